/* SPDX-License-Identifier: Apache-2.0 */
/* What targets are told of their pods: for each reason the first pod, and how many there are. */
#include "node/scrape/internal.h"

#include <stdlib.h>
#include <uthash.h>

struct told {
	char *key; /* see key_of() */
	char *uid, *text;
	enum reason reason;
	unsigned n_pods;
	UT_hash_handle hh;
};

/* The caller frees it. */
static char *key_of(const char *uid, enum reason reason)
{
	return xasprintf("%d %s", (int)reason, uid);
}

void scrape_told_add(struct scrape_told *t, const char *uid, enum reason reason, const char *text)
{
	_cleanup_free_ char *key = key_of(uid, reason);
	struct told *x;

	HASH_FIND_STR(t->all, key, x);
	if (x) {
		x->n_pods++;
		return;
	}
	x = xcalloc(1, sizeof(*x));
	*x = (struct told){.key = TAKE_PTR(key),
			   .uid = xstrdup(uid),
			   .text = xstrdup(text),
			   .reason = reason,
			   .n_pods = 1};
	HASH_ADD_KEYPTR(hh, t->all, x->key, strlen(x->key), x);
}

void scrape_told_tell(const struct scrape_config *c, struct scrape_told *before,
		      struct scrape_told *now)
{
	for (const struct told *x = before->all; c->tell && x; x = x->hh.next) {
		const struct told *still;

		HASH_FIND_STR(now->all, x->key, still);
		if (!still)
			c->tell(x->uid, x->reason, NULL, 0, c->arg);
	}
	for (const struct told *x = now->all; c->tell && x; x = x->hh.next)
		c->tell(x->uid, x->reason, x->text, x->n_pods, c->arg);
	scrape_told_done(before);
	*before = *now;
	*now = (struct scrape_told){0};
}

void scrape_told_done(struct scrape_told *t)
{
	struct told *x, *next;

	HASH_ITER (hh, t->all, x, next) {
		HASH_DEL(t->all, x);
		free(x->key);
		free(x->uid);
		free(x->text);
		free(x);
	}
}
