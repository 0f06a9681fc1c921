/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts lists of which most stays from plan to plan. Pure. */
#include "node/plan/cache.h"

struct places {
	struct in_order **old; /* by rank in the last list; NULL: it is not in this list */
	struct in_order **added;
	size_t n_old, n_added;
};

static void place(struct in_order **list, size_t n, struct places *p)
{
	for (size_t i = 0; i < n; i++) {
		size_t rank = list[i]->rank;

		if (rank == PLAN_NO_RANK || p->old[rank])
			p->added[p->n_added++] = list[i];
		else
			p->old[rank] = list[i];
	}
}

void plan_order(struct in_order **list, size_t n, size_t n_before,
		int (*compare)(const void *a, const void *b))
{
	struct places p = {.old = xcalloc(n_before + 1, sizeof(struct in_order *)),
			   .added = xcalloc(n + 1, sizeof(struct in_order *)),
			   .n_old = n_before};
	size_t k = 0, a = 0;

	place(list, n, &p);
	qsort(p.added, p.n_added, sizeof(struct in_order *), compare);
	for (size_t i = 0; i < p.n_old; i++) {
		if (!p.old[i])
			continue;
		while (a < p.n_added && compare(&p.added[a], &p.old[i]) < 0)
			list[k++] = p.added[a++];
		list[k++] = p.old[i];
	}
	while (a < p.n_added)
		list[k++] = p.added[a++];
	for (size_t i = 0; i < n; i++)
		list[i]->rank = i;
	free(p.old);
	free(p.added);
}
