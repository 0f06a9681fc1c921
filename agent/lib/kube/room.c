// SPDX-License-Identifier: Apache-2.0
/*
 * Shares the memory for the objects of one kind among the namespaces. While all objects fit, each
 * is kept. If not, each namespace keeps its oldest objects, as many as fit into its share. The
 * share is the same for all namespaces: the largest one with which everything that is kept fits. So
 * a namespace with less than a share keeps everything.
 *
 * The oldest objects stay, because a new object must not end what has worked so far. After the
 * first object without room a namespace gets none of its newer ones either, not even small ones.
 * Then the result depends only on the objects that exist, not on the order in which they arrive:
 * an object's sum, over it and the older objects of its namespace, only grows while objects arrive,
 * and the share only shrinks, so an object that was left out once would be left out in the end.
 *
 * Owns the sums of the namespaces, but no object. Loop thread.
 */
#include "lib/kube/kube_private.h"

#include <stdlib.h>

/*
 * objects of a kind: an object counts as at least this part of the memory; Kubernetes supports
 * 150,000 of a kind
 */
#define MAX_OBJECTS    200000
#define MAX_NAMESPACES 50000 /* further ones have one share together; Kubernetes supports 10,000 */
#define FURTHER	       "*"   /* stands for them; no namespace has this name */
#define SLACK	       16    /* a list that arrives may have 1/16 more than the limit */

struct room_share { /* of one namespace */
	char *ns;
	struct kube_item **kept; /* a heap: the newest object is the first */
	size_t n_kept, cap_kept, n_left_out;
	uint64_t kept_bytes, left_out_bytes;
	/* the oldest object that was left out; n_bytes 0: not known; key NULL: there is none */
	struct kube_item first_out;
	UT_hash_handle hh;
};
struct kube_room {
	struct room_share *shares;
	uint64_t max_bytes, kept_bytes, left_out_bytes;
	size_t n_left_out;
	bool has_more, changed;
};

struct kube_room *kube_room_new(size_t max_bytes)
{
	struct kube_room *r = xcalloc(1, sizeof(*r));

	r->max_bytes = max_bytes;
	return r;
}

static void share_free(struct kube_room *r, struct room_share *s)
{
	HASH_DEL(r->shares, s);
	free(s->first_out.key);
	free(s->kept);
	free(s->ns);
	free(s);
}

struct kube_room *kube_room_free(struct kube_room *r)
{
	struct room_share *s, *next;

	if (!r)
		return NULL;
	HASH_ITER (hh, r->shares, s, next)
		share_free(r, s);
	free(r);
	return NULL;
}

static struct room_share *find(const struct kube_room *r, const char *ns)
{
	struct room_share *s;

	HASH_FIND_STR(r->shares, ns, s);
	if (!s && HASH_COUNT(r->shares) >= MAX_NAMESPACES)
		HASH_FIND_STR(r->shares, FURTHER, s);
	return s;
}

static struct room_share *find_or_add(struct kube_room *r, const char *ns)
{
	struct room_share *s = find(r, ns);

	if (s)
		return s;
	s = xcalloc(1, sizeof(*s));
	s->ns = xstrdup(HASH_COUNT(r->shares) >= MAX_NAMESPACES ? FURTHER : ns);
	HASH_ADD_KEYPTR(hh, r->shares, s->ns, strlen(s->ns), s);
	return s;
}

static const char *namespace_of(const struct kube_item *i)
{
	return json_str_at(i->obj, "metadata.namespace", "");
}

static uint64_t counted_bytes(const struct kube_room *r, const struct kube_item *i)
{
	return MAX(i->n_bytes, MAX(r->max_bytes / MAX_OBJECTS, 1u));
}

/* ---- the objects of a namespace, the newest one first ---- */

/* The key decides between objects of the same second. */
static int compare_age(const struct kube_item *a, const struct kube_item *b)
{
	if (a->created_ns != b->created_ns)
		return a->created_ns > b->created_ns ? 1 : -1;
	return strcmp(a->key, b->key);
}

static void place(struct room_share *s, size_t at, struct kube_item *i)
{
	s->kept[at] = i;
	i->at = at;
}

static void rise(struct room_share *s, size_t at)
{
	struct kube_item *i = s->kept[at];

	for (size_t up; at && compare_age(i, s->kept[up = (at - 1) / 2]) > 0; at = up)
		place(s, at, s->kept[up]);
	place(s, at, i);
}

static void sink(struct room_share *s, size_t at)
{
	struct kube_item *i = s->kept[at];

	for (size_t down; (down = 2 * at + 1) < s->n_kept; at = down) {
		if (down + 1 < s->n_kept && compare_age(s->kept[down + 1], s->kept[down]) > 0)
			down++;
		if (compare_age(s->kept[down], i) <= 0)
			break;
		place(s, at, s->kept[down]);
	}
	place(s, at, i);
}

static void push(struct kube_room *r, struct room_share *s, struct kube_item *i)
{
	GROW(s->kept, s->n_kept, s->cap_kept);
	i->share = s;
	place(s, s->n_kept++, i);
	rise(s, i->at);
	s->kept_bytes += counted_bytes(r, i);
	r->kept_bytes += counted_bytes(r, i);
}

static void take_out(struct kube_room *r, struct kube_item *i)
{
	struct room_share *s = i->share;
	size_t at = i->at;

	s->kept_bytes -= counted_bytes(r, i);
	r->kept_bytes -= counted_bytes(r, i);
	i->share = NULL;
	if (at == --s->n_kept)
		return;
	place(s, at, s->kept[s->n_kept]);
	rise(s, at);
	sink(s, at);
}

static void free_if_empty(struct kube_room *r, struct room_share *s)
{
	if (!s->n_kept && !s->n_left_out)
		share_free(r, s);
}

/* ---- what has no room ---- */

static void note_first_out(struct room_share *s, const struct kube_item *i)
{
	char *key;

	if (s->first_out.key && compare_age(&s->first_out, i) < 0)
		return;
	key = xstrdup(i->key);
	free(s->first_out.key);
	s->first_out =
		(struct kube_item){.key = key, .created_ns = i->created_ns, .n_bytes = i->n_bytes};
}

static void leave_out(struct kube_room *r, struct room_share *s, const struct kube_item *i)
{
	s->n_left_out++;
	r->n_left_out++;
	s->left_out_bytes += counted_bytes(r, i);
	r->left_out_bytes += counted_bytes(r, i);
	note_first_out(s, i);
	r->changed = true;
}

bool kube_room_add(struct kube_room *r, struct kube_item *i, bool is_new)
{
	struct room_share *s = find_or_add(r, namespace_of(i));

	if (!s->first_out.key || compare_age(i, &s->first_out) < 0) {
		push(r, s, i);
		return true;
	}
	if (is_new)
		leave_out(r, s, i);
	else
		note_first_out(s, i);
	return false;
}

void kube_room_remove(struct kube_room *r, struct kube_item *i)
{
	struct room_share *s = i->share;

	take_out(r, i);
	free_if_empty(r, s);
}

void kube_room_forget(struct kube_room *r, const struct kube_item *i)
{
	struct room_share *s = find(r, namespace_of(i));
	uint64_t n_bytes;

	if (!s || !s->first_out.key || compare_age(i, &s->first_out) < 0)
		return;
	/* the object may have had another size when it was counted; the next list counts again */
	n_bytes = --s->n_left_out ? MIN(counted_bytes(r, i), s->left_out_bytes) : s->left_out_bytes;
	r->n_left_out--;
	s->left_out_bytes -= n_bytes;
	r->left_out_bytes -= n_bytes;
	r->changed = true;
	if (!s->n_left_out) {
		free(TAKE_PTR(s->first_out.key));
		free_if_empty(r, s);
	} else if (compare_age(i, &s->first_out) == 0) {
		s->first_out.n_bytes = 0;
	}
}

/* ---- the share ---- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * Returns the share: the largest number of bytes with which all namespaces fit, if each takes the
 * share or, if it needs less, what it needs.
 */
static uint64_t share_bytes(const struct kube_room *r)
{
	size_t n = HASH_COUNT(r->shares), i = 0;
	_cleanup_free_ uint64_t *needs = NULL;
	uint64_t left = r->max_bytes;

	if (r->kept_bytes + r->left_out_bytes <= r->max_bytes)
		return UINT64_MAX;
	needs = xcalloc(n + 1, sizeof(*needs));
	for (const struct room_share *s = r->shares; s; s = s->hh.next)
		needs[i++] = s->kept_bytes + s->left_out_bytes;
	qsort(needs, n, sizeof(*needs), by_size);
	for (i = 0; i < n && needs[i] <= left / (n - i); i++)
		left -= needs[i];
	return i < n ? left / (n - i) : UINT64_MAX;
}

void kube_room_settle(struct kube_room *r, void (*fn)(struct kube_item *i, void *arg), void *arg)
{
	uint64_t most;

	r->has_more = false;
	if (!r->n_left_out && r->kept_bytes <= r->max_bytes)
		return;
	most = share_bytes(r);
	for (struct room_share *s = r->shares; s; s = s->hh.next) {
		while (s->kept_bytes > most) {
			struct kube_item *i = s->kept[0];

			take_out(r, i);
			leave_out(r, s, i);
			fn(i, arg);
		}
		r->has_more |=
			s->n_left_out && s->kept_bytes + counted_bytes(r, &s->first_out) <= most;
	}
}

bool kube_room_is_over(const struct kube_room *r)
{
	return r->kept_bytes > r->max_bytes + r->max_bytes / SLACK;
}

bool kube_room_has_more(const struct kube_room *r)
{
	return r->has_more;
}

bool kube_room_has_changed(struct kube_room *r)
{
	bool changed = r->changed;

	r->changed = false;
	return changed;
}

size_t kube_room_left_out(const struct kube_room *r)
{
	return r->n_left_out;
}

void kube_room_each_left_out(const struct kube_room *r, kube_left_out_fn *fn, void *arg)
{
	for (const struct room_share *s = r->shares; s; s = s->hh.next)
		if (s->n_left_out)
			fn(s->ns, s->n_left_out, arg);
}
