/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the pods that are over the limit of a node: those of a namespace with many pods, not
 * those of one with few. The oldest pods of a namespace stay, so that a new one takes the place of
 * none. Pure.
 */
#include "node/plan/cache.h"

static int by_age(const void *a, const void *b)
{
	const struct known_pod *x = *(struct known_pod *const *)a,
			       *y = *(struct known_pod *const *)b;
	int d = strcmp(x->view.created, y->view.created);

	return d ? d : strcmp(x->view.uid, y->view.uid);
}

void plan_pods_choose(struct known_pod **pods, size_t n)
{
	_cleanup_free_ struct known_pod **by = NULL;
	_cleanup_free_ struct plan_share *list = NULL;

	for (size_t i = 0; i < n; i++)
		pods[i]->over_limit = false;
	if (n <= PLAN_MAX_PODS)
		return;
	by = xmemdup(pods, n * sizeof(struct known_pod *));
	list = xcalloc(n, sizeof(*list));
	qsort(by, n, sizeof(struct known_pod *), by_age);
	for (size_t i = 0; i < n; i++)
		list[i] = (struct plan_share){by[i]->view.ns, i, 0};
	plan_share(list, n);
	for (size_t i = PLAN_MAX_PODS; i < n; i++)
		by[list[i].index]->over_limit = true;
}
