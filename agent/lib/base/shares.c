/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/shares.h"
#include "lib/base/base.h"

#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

struct share_held {
	uint64_t owner, n;
	struct share_item *items; /* a utlist DL: those of shares_put() */
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

static struct share_held *add(struct shares *s, uint64_t owner)
{
	struct share_held *h = find(s, owner);

	if (!h) {
		h = xcalloc(1, sizeof(*h));
		h->owner = owner;
		HASH_ADD(hh, s->by_owner, owner, sizeof(h->owner), h);
	}
	h->n++;
	s->all++;
	return h;
}

void shares_add(struct shares *s, uint64_t owner)
{
	add(s, owner);
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

static const struct share_held *who_has_most(const struct shares *s, uint64_t owner)
{
	const struct share_held *most = find(s, owner);

	for (const struct share_held *h = s->by_owner; h; h = h->hh.next)
		if (!most || h->n > most->n)
			most = h;
	return most;
}

uint64_t shares_most(const struct shares *s, uint64_t owner)
{
	const struct share_held *most = who_has_most(s, owner);

	return most ? most->owner : owner;
}

void shares_put(struct shares *s, struct share_item *i, uint64_t owner)
{
	struct share_held *h = add(s, owner);

	i->owner = owner;
	DL_APPEND(h->items, i);
}

void shares_take(struct shares *s, struct share_item *i)
{
	struct share_held *h = find(s, i->owner);

	assert_se(h);
	DL_DELETE(h->items, i);
	shares_remove(s, i->owner);
}

void shares_give(struct shares *s, struct share_item *i, uint64_t owner)
{
	if (i->owner == owner)
		return;
	shares_take(s, i);
	shares_put(s, i, owner);
}

struct share_item *shares_surplus(const struct shares *s, uint64_t owner)
{
	const struct share_held *most = who_has_most(s, owner);

	return most ? most->items : NULL;
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

static void add_one(uint64_t owner, void *to)
{
	shares_add(to, owner);
}

void shares_move_owners(struct shares *to, struct shares *from)
{
	shares_each(from, add_one, to);
	shares_done(from);
}
