/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the targets that are refused if there is no room for all: those of a namespace with many
 * targets, not those of one with few. Pure.
 */
#include "node/plan/internal.h"

#include <stdlib.h>

static int by_namespace(const void *a, const void *b)
{
	const struct plan_share *x = a, *y = b;
	int d = strcmp(x->ns, y->ns);

	return d ? d : (x->index > y->index) - (x->index < y->index);
}

static int by_rank(const void *a, const void *b)
{
	const struct plan_share *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank > y->rank ? 1 : -1;
	return (x->index > y->index) - (x->index < y->index);
}

void plan_share(struct plan_share *list, size_t n)
{
	qsort(list, n, sizeof(*list), by_namespace);
	for (size_t i = 1; i < n; i++)
		list[i].rank = streq(list[i].ns, list[i - 1].ns) ? list[i - 1].rank + 1 : 0;
	qsort(list, n, sizeof(*list), by_rank);
}

void plan_targets_refuse_too_many(struct target *const *targets, size_t n)
{
	_cleanup_free_ struct plan_share *list = NULL;
	size_t n_list = 0;

	if (n <= PLAN_MAX_TARGETS)
		return;
	list = xcalloc(n, sizeof(*list));
	for (size_t i = 0; i < n; i++) {
		const struct target *t = targets[i];

		if (t->refusal != REASON_TOO_MANY_TARGETS)
			list[n_list++] = (struct plan_share){
				t->kind == TARGET_NAMESPACED ? t->ns : "", i, 0};
	}
	plan_share(list, n_list);
	for (size_t i = PLAN_MAX_TARGETS; i < n_list; i++) {
		struct target *t = targets[list[i].index];

		t->over_limit = n_list;
		t->refusal = REASON_TOO_MANY_TARGETS;
		t->ok = false;
	}
}
