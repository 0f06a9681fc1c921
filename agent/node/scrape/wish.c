/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan says that a pod is asked: copies of it, and what has changed. */
#include "node/scrape/internal.h"

#include <stdlib.h>

void scrape_wish_done(struct plan_scrape *w)
{
	for (size_t i = 0; i < w->n_targets; i++)
		free(w->target_uids[i]);
	free(w->target_uids);
	free(w->address);
	*w = (struct plan_scrape){0};
}

void scrape_wish_copy(const struct plan_scrape *from, struct plan_scrape *to)
{
	scrape_wish_done(to);
	*to = *from;
	to->address = xstrdup(from->address);
	to->target_uids = xcalloc(from->n_targets + 1, sizeof(*to->target_uids));
	for (size_t i = 0; i < from->n_targets; i++)
		to->target_uids[i] = xstrdup(from->target_uids[i]);
}

bool scrape_wish_is_same(const struct plan_scrape *a, const struct plan_scrape *b)
{
	return str_equal(a->address, b->address) && a->port == b->port &&
	       a->profiles == b->profiles && a->interval_ns == b->interval_ns &&
	       str_equal(a->refused, b->refused);
}

bool scrape_wish_has_same_targets(const struct plan_scrape *a, const struct plan_scrape *b)
{
	bool same = a->n_targets == b->n_targets;

	for (size_t i = 0; same && i < a->n_targets; i++)
		same = streq(a->target_uids[i], b->target_uids[i]);
	return same;
}
