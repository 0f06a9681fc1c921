// SPDX-License-Identifier: Apache-2.0
/*
 * drain_cache: stacks, names, contexts and texts that later drains may refer to. In each
 * generation, the kernel sends an item once. But samples of a wait that goes on, or of memory that
 * lives, refer to it in later generations, too. An item to which no sample has referred for 15 s is
 * dropped. An item that exceeds the memory limit, of which each namespace has a share, is not kept,
 * and is counted. A wait that will be
 * counted much later (minBlock) has an empty sample in each drain, which refers to its items. A
 * launch whose work has not ended has such a sample in some drains. This file drops these samples.
 */
#include "node/probe/internal.h"

#define HELD_NS (15 * NSEC_PER_SEC)

enum kind { STACK, NAMES, CONTEXT, TEXT };

struct cached_key {
	uint64_t hash, kind;
};

struct cached_item {
	struct cached_key key;
	uint64_t used_ns;
	size_t bytes;
	uint32_t share;
	bool added; /* the item was added to the current drain */
	UT_hash_handle hh;
	union {
		struct raw_stack stack;
		struct raw_names names;
		struct raw_context context;
		struct raw_text text;
	};
	struct raw_frame frames[];
};

struct drain_cache {
	struct cached_item *items;
	size_t max_bytes;
	struct pf_shares *shares; /* in bytes */
};

struct drain_cache *probes_cache_new(size_t max_bytes)
{
	struct drain_cache *h = xcalloc(1, sizeof(*h));

	h->max_bytes = max_bytes;
	h->shares = xcalloc(1, sizeof(*h->shares));
	return h;
}

static void item_drop(struct drain_cache *h, struct cached_item *i)
{
	HASH_DEL(h->items, i);
	probes_share_less_by(h->shares, i->share, i->bytes);
	free(i);
}

struct drain_cache *probes_cache_free(struct drain_cache *h)
{
	struct cached_item *i, *next;

	if (!h)
		return NULL;
	HASH_ITER (hh, h->items, i, next)
		item_drop(h, i);
	free(h->shares);
	free(h);
	return NULL;
}

size_t probes_cache_bytes(const struct drain_cache *h)
{
	return (size_t)h->shares->held[0];
}

struct pf_shares *probes_cache_shares(struct drain_cache *h)
{
	return h->shares;
}

static struct cached_item *item_find(const struct drain_cache *h, enum kind kind, uint64_t hash)
{
	struct cached_key key = {hash, kind};
	struct cached_item *i;

	HASH_FIND(hh, h->items, &key, sizeof(key), i);
	return i;
}

/* ---- one drain, whose frames are still offsets into its memory ---- */

struct cache_pass {
	struct drain_cache *h;
	struct drain *d;
	uint64_t now_ns;
	/* the drain's own items, sorted; added items come after them */
	size_t n_stacks, n_names, n_contexts, n_texts;
	size_t cap_stacks, cap_names, cap_contexts, cap_texts;
	/*
	 * USED_ONCE, USED_LATER for each of the drain's own stacks: which kinds of events refer to
	 * it
	 */
	uint8_t *used;
};
enum { USED_ONCE = 1, USED_LATER = 2 };

/*
 * Returns the item with this hash, which may be new; the caller then fills in its content. NULL:
 * there is no room for it, or its namespace has its share of the room already.
 */
static struct cached_item *item_hold(struct cache_pass *p, enum kind kind, uint64_t hash,
				     uint32_t share, size_t n_frames, bool *ret_new)
{
	struct drain_cache *h = p->h;
	struct cached_item *i = item_find(h, kind, hash);
	size_t bytes = sizeof(*i) + n_frames * sizeof(i->frames[0]);

	*ret_new = !i;
	if (!i) {
		if (!probes_share_may_add(h->shares, share, bytes, h->max_bytes)) {
			sample_drain_lose_records(p->d, "held_full", 1);
			return NULL;
		}
		i = xcalloc(1, bytes);
		i->key = (struct cached_key){hash, kind};
		i->bytes = bytes;
		i->share = share;
		HASH_ADD(hh, h->items, key, sizeof(i->key), i);
	}
	i->used_ns = p->now_ns;
	return i;
}

static bool refers_later(enum event e)
{
	return e == EVENT_OFF_CPU || probes_set_of(e) != _PROBES_SET_MAX;
}

/*
 * Returns the index of the item with this hash, or n if no item has it. Each item begins with its
 * hash.
 */
static size_t find(const void *items, size_t n, size_t size, uint64_t hash)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		uint64_t at = *(const uint64_t *)((const char *)items + mid * size);

		if (at == hash)
			return mid;
		if (at < hash)
			lo = mid + 1;
		else
			hi = mid;
	}
	return n;
}

static void add_stack(struct cache_pass *p, const struct cached_item *i)
{
	struct drain *d = p->d;
	size_t at = d->memory->len;

	if (buf_add(d->memory, i->frames, i->stack.n * sizeof(i->frames[0]))) {
		sample_drain_lose_records(d, "memory", 1);
		return;
	}
	GROW(d->stacks, d->n_stacks, p->cap_stacks);
	d->stacks[d->n_stacks] = i->stack;
	d->stacks[d->n_stacks++].frames = (const struct raw_frame *)(uintptr_t)at;
}

static void add(struct cache_pass *p, const struct cached_item *i)
{
	struct drain *d = p->d;

	switch ((enum kind)i->key.kind) {
	case STACK:
		add_stack(p, i);
		break;
	case NAMES:
		GROW(d->names, d->n_names, p->cap_names);
		d->names[d->n_names++] = i->names;
		break;
	case CONTEXT:
		GROW(d->contexts, d->n_contexts, p->cap_contexts);
		d->contexts[d->n_contexts++] = i->context;
		break;
	case TEXT:
		GROW(d->texts, d->n_texts, p->cap_texts);
		d->texts[d->n_texts++] = i->text;
		break;
	}
}

/*
 * Notes that a sample refers to the item. If later samples of its event may refer to the item, too
 * (`later`), the item stays in the cache. If the drain does not have the item, adds it.
 */
static void refer(struct cache_pass *p, enum kind kind, uint64_t hash, bool is_there, bool later)
{
	struct cached_item *i = hash ? item_find(p->h, kind, hash) : NULL;

	if (!i)
		return;
	if (later)
		i->used_ns = p->now_ns;
	if (is_there || i->added)
		return;
	i->added = true;
	add(p, i);
}

static void refer_stack(struct cache_pass *p, uint64_t hash, bool later)
{
	size_t at =
		hash ? find(p->d->stacks, p->n_stacks, sizeof(*p->d->stacks), hash) : p->n_stacks;

	if (at < p->n_stacks)
		p->used[at] |= later ? USED_LATER : USED_ONCE;
	refer(p, STACK, hash, at < p->n_stacks, later);
}

/* Refers to the texts of the drain's contexts, also of those that were added. */
static void refer_texts(struct cache_pass *p)
{
	const struct drain *d = p->d;

	for (size_t i = 0; i < d->n_contexts; i++) {
		const struct raw_labels *x = &d->contexts[i].labels;

		for (enum profile_label l = 0; l < _LABEL_MAX; l++)
			if (x->mask & 1u << l && profile_label_is_text(l))
				refer(p, TEXT, x->numbers[l],
				      find(d->texts, p->n_texts, sizeof(*d->texts), x->numbers[l]) <
					      p->n_texts,
				      true);
	}
}

static void refer_all(struct cache_pass *p)
{
	struct drain *d = p->d;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		bool later = refers_later(s->event);

		refer_stack(p, s->ustack, later);
		refer_stack(p, s->kstack, later);
		refer(p, NAMES, s->names,
		      find(d->names, p->n_names, sizeof(*d->names), s->names) < p->n_names, later);
		refer(p, CONTEXT, s->ctx,
		      find(d->contexts, p->n_contexts, sizeof(*d->contexts), s->ctx) <
			      p->n_contexts,
		      later);
	}
	refer_texts(p);
}

/*
 * A stack to which only samples of on-cpu refer is not needed later: its hash is never the hash of
 * a stack of a wait or of memory (PF_HASH_TICK). A stack to which no sample refers yet may be
 * needed later.
 */
static void keep_stacks(struct cache_pass *p)
{
	for (size_t k = 0; k < p->n_stacks; k++) {
		const struct raw_stack *s = &p->d->stacks[k];
		struct cached_item *i;
		bool is_new;

		if (p->used[k] == USED_ONCE)
			continue;
		i = item_hold(p, STACK, s->hash, s->share, s->n, &is_new);
		if (!i || !is_new)
			continue;
		i->stack = *s;
		memcpy(i->frames, p->d->memory->data + (uintptr_t)s->frames,
		       s->n * sizeof(*s->frames));
	}
}

static void keep_rest(struct cache_pass *p)
{
	struct cached_item *i;
	bool is_new;

	for (size_t k = 0; k < p->n_names; k++) {
		i = item_hold(p, NAMES, p->d->names[k].hash, p->d->names[k].share, 0, &is_new);
		if (i)
			i->names = p->d->names[k];
	}
	for (size_t k = 0; k < p->n_contexts; k++) {
		i = item_hold(p, CONTEXT, p->d->contexts[k].hash, p->d->contexts[k].share, 0,
			      &is_new);
		if (i)
			i->context = p->d->contexts[k];
	}
	for (size_t k = 0; k < p->n_texts; k++) {
		i = item_hold(p, TEXT, p->d->texts[k].hash, p->d->texts[k].share, 0, &is_new);
		if (i)
			i->text = p->d->texts[k];
	}
}

static void forget(struct drain_cache *h, uint64_t now_ns)
{
	struct cached_item *i, *next;

	HASH_ITER (hh, h->items, i, next) {
		i->added = false;
		if (now_ns - i->used_ns > HELD_NS)
			item_drop(h, i);
	}
}

static void pass_all(struct drain_cache *h, struct drain *d, uint64_t now_ns, bool keep)
{
	struct cache_pass p = {
		.h = h,
		.d = d,
		.now_ns = now_ns,
		.n_stacks = d->n_stacks,
		.n_names = d->n_names,
		.n_contexts = d->n_contexts,
		.n_texts = d->n_texts,
		.cap_stacks = d->n_stacks,
		.cap_names = d->n_names,
		.cap_contexts = d->n_contexts,
		.cap_texts = d->n_texts,
	};

	p.used = xcalloc(d->n_stacks + 1, 1);
	refer_all(&p);
	if (keep) {
		keep_stacks(&p);
		keep_rest(&p);
	}
	forget(h, now_ns);
	if (d->n_stacks > p.n_stacks || d->n_names > p.n_names || d->n_contexts > p.n_contexts ||
	    d->n_texts > p.n_texts)
		(void)sample_drain_sort(d);
	free(p.used);
}

/*
 * Drops the empty samples of waits that are still too short to count, and of launches whose work
 * has not ended. Such a sample only names the items to which a later one will refer.
 */
static void drop_references(struct drain *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];

		bool may_be_empty = s->event == EVENT_OFF_CPU || s->event == EVENT_ON_GPU;

		if (!may_be_empty || s->n || s->value)
			d->samples[n++] = *s;
	}
	d->n_samples = n;
}

void probes_cache_pass(struct drain_cache *h, struct drain *d, uint64_t now_ns, bool keep)
{
	if (keep || h->items)
		pass_all(h, d, now_ns, keep);
	drop_references(d);
}
