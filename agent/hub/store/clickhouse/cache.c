/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks and frames of all readers: a cache by id, within one budget. */
#include "hub/store/clickhouse/names.h"

#include <stdlib.h>
#include <utlist.h>

struct ch_cache {
	pthread_mutex_t lock; /* guards all of it, and the cache's fields of stacks and frames */
	size_t max_bytes;
	size_t bytes; /* of the cache, and of what readers have for themselves */
	size_t held;  /* the sum over all readers */
	struct kept_frame *frames;
	struct kept_stack *stacks;
	struct kept_stack *idle; /* nobody holds them; the one that waits longest is the first */
	struct counter *size, *evicted;
};

struct ch_cache *store_ch_cache_new(size_t max_bytes)
{
	struct ch_cache *c = xcalloc(1, sizeof(*c));

	pthread_mutex_init(&c->lock, NULL);
	c->max_bytes = max_bytes;
	c->size = counter("store_names_bytes", NULL, NULL);
	c->evicted = counter("store_names_evicted_total", NULL, NULL);
	return c;
}

static struct kept_frame *frame_at(const struct kept_stack *s, size_t i)
{
	return (struct kept_frame *)s->frames[i];
}

static void leave_frame(struct ch_cache *c, struct kept_frame *f)
{
	if (--f->n_users)
		return;
	HASH_DEL(c->frames, f);
	c->bytes -= f->bytes;
	free(f);
}

static void evict(struct ch_cache *c, struct kept_stack *s)
{
	DL_DELETE(c->idle, s);
	HASH_DEL(c->stacks, s);
	for (size_t i = 0; i < s->n; i++)
		leave_frame(c, frame_at(s, i));
	c->bytes -= s->bytes;
	free(s);
}

struct ch_cache *store_ch_cache_free(struct ch_cache *c)
{
	if (!c)
		return NULL;
	while (c->idle)
		evict(c, c->idle);
	assert_se(!c->stacks && !c->frames && !c->bytes && !c->held);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return NULL;
}

/* ---- room ---- */

/* Each reader leaves as much as it has: two have a third each, and a third one still has room. */
static bool may_hold(const struct ch_share *s, size_t bytes)
{
	const struct ch_cache *c = s->cache;
	size_t held = c->held + bytes;

	return held <= c->max_bytes && s->held + bytes <= c->max_bytes - held;
}

static void hold(struct ch_share *s, size_t bytes)
{
	s->held += bytes;
	s->cache->held += bytes;
}

static int take(struct ch_share *s, size_t bytes)
{
	struct ch_cache *c = s->cache;

	if (!may_hold(s, bytes))
		return -EFBIG;
	while (c->bytes + bytes > c->max_bytes && c->idle) {
		evict(c, c->idle);
		counter_add(c->evicted, 1);
	}
	if (c->bytes + bytes > c->max_bytes)
		return -EFBIG;
	hold(s, bytes);
	s->own += bytes;
	c->bytes += bytes;
	return 0;
}

int store_ch_share_take(struct ch_share *s, size_t bytes)
{
	int e;

	pthread_mutex_lock(&s->cache->lock);
	e = take(s, bytes);
	pthread_mutex_unlock(&s->cache->lock);
	return e;
}

/* The most bytes of which may_hold() is true. */
static size_t room(const struct ch_share *s)
{
	size_t others = s->cache->max_bytes - s->cache->held;

	return others > s->held ? (others - s->held) / 2 : 0;
}

size_t store_ch_share_room(const struct ch_share *s)
{
	size_t bytes;

	pthread_mutex_lock(&s->cache->lock);
	bytes = room(s);
	pthread_mutex_unlock(&s->cache->lock);
	return bytes;
}

void store_ch_share_end(struct ch_share *s)
{
	struct ch_cache *c = s->cache;

	pthread_mutex_lock(&c->lock);
	c->held -= s->held;
	c->bytes -= s->own;
	counter_set(c->size, c->bytes);
	pthread_mutex_unlock(&c->lock);
	*s = (struct ch_share){.cache = c};
}

/* The reader frees bytes that it has taken. Holding counts what it once needed, so it stays. */
static void give_back(struct ch_share *s, size_t bytes)
{
	s->own -= bytes;
	s->cache->bytes -= bytes;
}

/* ---- stacks ---- */

static void hold_stack(struct ch_cache *c, struct kept_stack *s)
{
	if (!s->n_readers++)
		DL_DELETE(c->idle, s);
}

static int find_stack(struct ch_share *s, uint64_t id, struct kept_stack **ret)
{
	struct kept_stack *x;

	HASH_FIND(hh, s->cache->stacks, &id, sizeof(id), x);
	*ret = NULL;
	if (!x)
		return 0;
	if (!may_hold(s, x->bytes))
		return -EFBIG;
	hold(s, x->bytes);
	hold_stack(s->cache, x);
	*ret = x;
	return 0;
}

int store_ch_share_find_stack(struct ch_share *s, uint64_t id, struct kept_stack **ret)
{
	int e;

	pthread_mutex_lock(&s->cache->lock);
	e = find_stack(s, id, ret);
	pthread_mutex_unlock(&s->cache->lock);
	return e;
}

static struct kept_stack *put_stack(struct ch_share *s, struct kept_stack *x)
{
	struct ch_cache *c = s->cache;
	struct kept_stack *other;

	HASH_FIND(hh, c->stacks, &x->id, sizeof(x->id), other);
	if (other) {
		give_back(s, x->bytes);
		free(x);
		hold_stack(c, other);
		return other;
	}
	s->own -= x->bytes; /* it is the cache's now */
	x->shared = true;
	x->n_readers = 1;
	for (size_t i = 0; i < x->n; i++)
		frame_at(x, i)->n_users++;
	HASH_ADD(hh, c->stacks, id, sizeof(x->id), x);
	return x;
}

struct kept_stack *store_ch_share_put_stack(struct ch_share *s, struct kept_stack *x)
{
	pthread_mutex_lock(&s->cache->lock);
	x = put_stack(s, x);
	pthread_mutex_unlock(&s->cache->lock);
	return x;
}

void store_ch_share_drop_stack(struct ch_share *s, struct kept_stack *x)
{
	pthread_mutex_lock(&s->cache->lock);
	if (!x->shared) {
		give_back(s, x->bytes);
		free(x);
	} else if (!--x->n_readers) {
		DL_APPEND(s->cache->idle, x);
	}
	pthread_mutex_unlock(&s->cache->lock);
}

/* ---- frames ---- */

static int find_frame(struct ch_share *s, uint64_t id, struct kept_frame **ret)
{
	struct kept_frame *x;

	HASH_FIND(hh, s->cache->frames, &id, sizeof(id), x);
	*ret = NULL;
	if (!x)
		return 0;
	if (!may_hold(s, x->bytes))
		return -EFBIG;
	hold(s, x->bytes);
	x->n_users++;
	*ret = x;
	return 0;
}

int store_ch_share_find_frame(struct ch_share *s, uint64_t id, struct kept_frame **ret)
{
	int e;

	pthread_mutex_lock(&s->cache->lock);
	e = find_frame(s, id, ret);
	pthread_mutex_unlock(&s->cache->lock);
	return e;
}

static struct kept_frame *put_frame(struct ch_share *s, struct kept_frame *x)
{
	struct ch_cache *c = s->cache;
	struct kept_frame *other;

	HASH_FIND(hh, c->frames, &x->id, sizeof(x->id), other);
	if (other) {
		give_back(s, x->bytes);
		free(x);
		other->n_users++;
		return other;
	}
	s->own -= x->bytes;
	x->shared = true;
	x->n_users = 1;
	HASH_ADD(hh, c->frames, id, sizeof(x->id), x);
	return x;
}

struct kept_frame *store_ch_share_put_frame(struct ch_share *s, struct kept_frame *x)
{
	pthread_mutex_lock(&s->cache->lock);
	x = put_frame(s, x);
	pthread_mutex_unlock(&s->cache->lock);
	return x;
}

void store_ch_share_drop_frame(struct ch_share *s, struct kept_frame *x)
{
	pthread_mutex_lock(&s->cache->lock);
	if (x->shared) {
		leave_frame(s->cache, x);
	} else {
		give_back(s, x->bytes);
		free(x);
	}
	pthread_mutex_unlock(&s->cache->lock);
}
