/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps decoded targets from one plan to the next. A target at the limits of its schema costs more
 * than the rest of a plan, and each change of any pod makes a new plan. The object of a target
 * never changes, except for its resourceVersion: a new version of the target is a new object. The
 * cache owns the decoded targets. Loop thread.
 */
#include "node/plan/internal.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

struct cached_target {
	const json_t *obj; /* a reference, so that no other object can have this address */
	struct target target;
	bool asked; /* used since the last sweep */
	UT_hash_handle hh;
};
struct plan_cache {
	struct cached_target *all;
	struct plan_matches *matches;
};

struct plan_cache *plan_cache_new(void)
{
	struct plan_cache *c = xcalloc(1, sizeof(*c));

	c->matches = plan_matches_new();
	return c;
}

static void forget(struct plan_cache *c, struct cached_target *k)
{
	HASH_DEL(c->all, k);
	plan_matches_free_slot(c->matches, k->target.slot);
	plan_target_done(&k->target);
	json_decref((json_t *)k->obj);
	free(k);
}

const struct target *plan_cache_target(struct plan_cache *c, const json_t *obj)
{
	struct cached_target *k;

	HASH_FIND_PTR(c->all, &obj, k);
	if (!k) {
		k = xcalloc(1, sizeof(*k));
		k->obj = json_incref((json_t *)obj);
		plan_target_decode(obj, &k->target);
		k->target.slot = plan_matches_take_slot(c->matches);
		HASH_ADD_PTR(c->all, obj, k);
	}
	k->asked = true;
	return &k->target;
}

struct plan_matches *plan_cache_matches(struct plan_cache *c)
{
	return c->matches;
}

void plan_cache_sweep(struct plan_cache *c)
{
	struct cached_target *k, *next;

	HASH_ITER (hh, c->all, k, next) {
		if (!k->asked)
			forget(c, k);
		else
			k->asked = false;
	}
	plan_matches_sweep(c->matches);
}

struct plan_cache *plan_cache_free(struct plan_cache *c)
{
	struct cached_target *k, *next;

	if (!c)
		return NULL;
	HASH_ITER (hh, c->all, k, next)
		forget(c, k);
	plan_matches_free(c->matches);
	free(c);
	return NULL;
}
