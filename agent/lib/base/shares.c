/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/shares.h"
#include "lib/base/base.h"

#include <stdlib.h>
#include <uthash.h>

struct share_held {
	uint64_t owner, n;
	UT_hash_handle hh;
};

static struct share_held *find(const struct shares *s, uint64_t owner)
{
	struct share_held *h;

	HASH_FIND(hh, s->by_owner, &owner, sizeof(owner), h);
	return h;
}

bool shares_may_add(const struct shares *s, uint64_t owner, uint64_t max)
{
	const struct share_held *h = find(s, owner);

	return shares_have_room(s->all, h ? h->n : 0, 1, max);
}

void shares_add(struct shares *s, uint64_t owner)
{
	struct share_held *h = find(s, owner);

	if (!h) {
		h = xcalloc(1, sizeof(*h));
		h->owner = owner;
		HASH_ADD(hh, s->by_owner, owner, sizeof(h->owner), h);
	}
	h->n++;
	s->all++;
}

void shares_remove(struct shares *s, uint64_t owner)
{
	struct share_held *h = find(s, owner);

	assert_se(h && h->n);
	s->all--;
	if (--h->n)
		return;
	HASH_DEL(s->by_owner, h);
	free(h);
}

uint64_t shares_most(const struct shares *s, uint64_t owner)
{
	const struct share_held *most = find(s, owner);

	for (const struct share_held *h = s->by_owner; h; h = h->hh.next)
		if (!most || h->n > most->n)
			most = h;
	return most ? most->owner : owner;
}

void shares_each(const struct shares *s, void (*fn)(uint64_t owner, void *arg), void *arg)
{
	for (const struct share_held *h = s->by_owner; h; h = h->hh.next)
		fn(h->owner, arg);
}

void shares_done(struct shares *s)
{
	struct share_held *h, *next;

	HASH_ITER (hh, s->by_owner, h, next) {
		HASH_DEL(s->by_owner, h);
		free(h);
	}
	s->all = 0;
}
