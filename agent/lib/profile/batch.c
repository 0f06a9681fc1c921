/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: an arena with five interning tables (strings, frames, stacks, links, labels). The tables
 * use open addressing, and their slots point into the arena. A batch is freed as a whole.
 */
#include "lib/profile/profile.h"

#include <openssl/sha.h>
#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

struct batch_chunk {
	struct batch_chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

struct batch_table {
	void **slots; /* NULL: the slot is free */
	uint64_t *hashes;
	size_t n, cap; /* cap is a power of two */
};

struct interned_stack {
	uint32_t index;
	struct stack_ref ref;
};

struct interned_link {
	struct profile_link link;
	uint32_t index;
};

struct batch_arena {
	struct batch_chunk *chunks;
	size_t bytes;
	struct batch_table strings, frames, stacks, links, labels;
	uint64_t seed;
};

typedef bool equal_fn(const void *entry, const void *key, size_t n);

static void *arena_alloc(struct batch_arena *a, size_t n)
{
	struct batch_chunk *c = a->chunks;
	void *p;

	n = (n + 15) & ~(size_t)15;
	if (!c || c->size - c->used < n) {
		size_t size = MAX((size_t)CHUNK_BYTES, n);

		c = xmalloc(sizeof(*c) + size);
		c->next = a->chunks;
		c->used = 0;
		c->size = size;
		a->chunks = c;
		a->bytes += sizeof(*c) + size;
	}
	p = c->bytes + c->used;
	c->used += n;
	return p;
}

static size_t table_slot(const struct batch_table *t, uint64_t hash, equal_fn *equal,
			 const void *key, size_t n)
{
	size_t i = hash & (t->cap - 1);

	while (t->slots[i] && !(t->hashes[i] == hash && equal(t->slots[i], key, n)))
		i = (i + 1) & (t->cap - 1);
	return i;
}

static void table_grow(struct batch_arena *a, struct batch_table *t)
{
	struct batch_table old = *t;

	t->cap = old.cap ? old.cap * 2 : 256;
	t->slots = xcalloc(t->cap, sizeof(*t->slots));
	t->hashes = xcalloc(t->cap, sizeof(*t->hashes));
	for (size_t i = 0; i < old.cap; i++) {
		size_t j;

		if (!old.slots[i])
			continue;
		for (j = old.hashes[i] & (t->cap - 1); t->slots[j];)
			j = (j + 1) & (t->cap - 1);
		t->slots[j] = old.slots[i];
		t->hashes[j] = old.hashes[i];
	}
	a->bytes += (t->cap - old.cap) * (sizeof(*t->slots) + sizeof(*t->hashes));
	free(old.slots);
	free(old.hashes);
}

/*
 * Returns the entry that equals key. If there is none, returns NULL and sets *ret_slot to the slot
 * for it.
 */
static void *table_find(struct batch_arena *a, struct batch_table *t, uint64_t hash,
			equal_fn *equal, const void *key, size_t n, size_t *ret_slot)
{
	if (t->n * 4 >= t->cap * 3)
		table_grow(a, t);
	*ret_slot = table_slot(t, hash, equal, key, n);
	return t->slots[*ret_slot];
}

static void table_put(struct batch_table *t, size_t slot, uint64_t hash, void *entry)
{
	t->slots[slot] = entry;
	t->hashes[slot] = hash;
	t->n++;
}

static void table_done(struct batch_table *t)
{
	free(t->slots);
	free(t->hashes);
}

struct batch *profile_batch_new(void)
{
	struct batch *b = xcalloc(1, sizeof(*b));

	b->arena = xcalloc(1, sizeof(*b->arena));
	random_bytes(&b->arena->seed, sizeof(b->arena->seed));
	return b;
}

static void profile_done(struct profile *p)
{
	free(p->tags.items);
	free(p->samples);
	free(p->losses);
	free(p);
}

struct batch *profile_batch_free(struct batch *b)
{
	if (!b)
		return NULL;
	for (size_t i = 0; i < b->n_profiles; i++)
		profile_done(b->profiles[i]);
	for (struct batch_chunk *c = b->arena->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	table_done(&b->arena->strings);
	table_done(&b->arena->frames);
	table_done(&b->arena->stacks);
	table_done(&b->arena->links);
	table_done(&b->arena->labels);
	free(b->arena);
	free(b->profiles);
	free(b->stacks);
	free(b->links);
	free(b);
	return NULL;
}

void profile_batch_freep(struct batch **b)
{
	profile_batch_free(*b);
}

size_t profile_batch_bytes(const struct batch *b)
{
	return b->arena->bytes;
}

static bool string_equal(const void *entry, const void *key, size_t n)
{
	const char *s = entry;

	return strncmp(s, key, n) == 0 && !s[n];
}

const char *profile_batch_strn(struct batch *b, const char *s, size_t n)
{
	struct batch_arena *a = b->arena;
	uint64_t hash;
	size_t slot;
	char *found;

	if (!s)
		return NULL;
	n = strnlen(s, n);
	hash = hash_bytes(s, n, a->seed);
	found = table_find(a, &a->strings, hash, string_equal, s, n, &slot);
	if (found)
		return found;
	found = arena_alloc(a, n + 1);
	memcpy(found, s, n);
	found[n] = '\0';
	table_put(&a->strings, slot, hash, found);
	return found;
}

const char *profile_batch_str(struct batch *b, const char *s)
{
	return s ? profile_batch_strn(b, s, strlen(s)) : NULL;
}

/* Compares pointers of strings, not strings: both frames hold interned strings. */
static bool frame_equal(const void *entry, const void *key, size_t n)
{
	(void)n;
	return memcmp(entry, key, sizeof(struct frame)) == 0;
}

const struct frame *profile_batch_frame(struct batch *b, const struct frame *f)
{
	struct batch_arena *a = b->arena;
	struct frame key;
	struct frame *found;
	uint64_t hash;
	size_t slot;

	memset(&key, 0, sizeof(key)); /* frame_equal() compares all bytes, padding included */
	key.kind = f->kind;
	key.inlined = f->inlined;
	key.line = f->line;
	key.address = f->address;
	key.start = f->start;
	key.name = f->name;
	key.module = f->module;
	key.build_id = f->build_id;
	key.file = f->file;
	hash = hash_bytes(&key, sizeof(key), a->seed);
	found = table_find(a, &a->frames, hash, frame_equal, &key, sizeof(key), &slot);
	if (found)
		return found;
	found = arena_alloc(a, sizeof(key));
	memcpy(found, &key, sizeof(key));
	table_put(&a->frames, slot, hash, found);
	return found;
}

static const struct frame *intern_frame(struct batch *b, struct frame f)
{
	f.name = profile_batch_str(b, f.name);
	f.module = profile_batch_str(b, f.module);
	f.build_id = profile_batch_str(b, f.build_id);
	f.file = profile_batch_str(b, f.file);
	return profile_batch_frame(b, &f);
}

static bool stack_equal(const void *entry, const void *key, size_t n)
{
	const struct interned_stack *s = entry;

	return s->ref.n == n && memcmp(s->ref.frames, key, n * sizeof(*s->ref.frames)) == 0;
}

static uint32_t intern_stack(struct batch *b, const struct frame *const *frames, size_t n)
{
	struct batch_arena *a = b->arena;
	uint64_t hash = hash_bytes(frames, n * sizeof(*frames), a->seed);
	struct interned_stack *s;
	size_t slot;

	s = table_find(a, &a->stacks, hash, stack_equal, frames, n, &slot);
	if (!s) {
		const struct frame **copy = arena_alloc(a, n * sizeof(*frames));

		memcpy(copy, frames, n * sizeof(*frames));
		s = arena_alloc(a, sizeof(*s));
		*s = (struct interned_stack){(uint32_t)b->n_stacks, {copy, n}};
		table_put(&a->stacks, slot, hash, s);
		GROW(b->stacks, b->n_stacks, b->cap_stacks);
		b->stacks[b->n_stacks++] = s->ref;
	}
	return s->index;
}

static bool takes_stack(const struct batch *b, size_t n)
{
	return n <= STACK_MAX_FRAMES &&
	       profile_batch_bytes(b) <= (b->max_bytes ?: (size_t)BATCH_MAX_BYTES);
}

int profile_batch_stack(struct batch *b, const struct frame *root_first, size_t n,
			uint32_t *ret_index)
{
	const struct frame *frames[STACK_MAX_FRAMES];

	if (!takes_stack(b, n))
		return -E2BIG;
	for (size_t i = 0; i < n; i++)
		frames[i] = intern_frame(b, root_first[i]);
	*ret_index = intern_stack(b, frames, n);
	return 0;
}

int profile_batch_stack_of(struct batch *b, const struct frame *const *root_first, size_t n,
			   uint32_t *ret_index)
{
	if (!takes_stack(b, n))
		return -E2BIG;
	*ret_index = intern_stack(b, root_first, n);
	return 0;
}

static bool link_equal(const void *entry, const void *key, size_t n)
{
	return memcmp(&((const struct interned_link *)entry)->link, key, n) == 0;
}

int profile_batch_link(struct batch *b, const struct profile_link *l, uint32_t *ret_link)
{
	struct batch_arena *a = b->arena;
	uint64_t hash = hash_bytes(l, sizeof(*l), a->seed);
	struct interned_link *found;
	size_t slot;

	found = table_find(a, &a->links, hash, link_equal, l, sizeof(*l), &slot);
	if (!found) {
		if (b->n_links == BATCH_MAX_LINKS)
			return -E2BIG;
		found = arena_alloc(a, sizeof(*found));
		*found = (struct interned_link){*l, (uint32_t)b->n_links};
		table_put(&a->links, slot, hash, found);
		GROW(b->links, b->n_links, b->cap_links);
		b->links[b->n_links++] = *l;
	}
	*ret_link = found->index + 1;
	return 0;
}

uint32_t profile_batch_find_link(struct batch *b, const struct profile_link *l)
{
	struct batch_arena *a = b->arena;
	const struct interned_link *found;
	size_t slot;

	found = table_find(a, &a->links, hash_bytes(l, sizeof(*l), a->seed), link_equal, l,
			   sizeof(*l), &slot);
	return found ? found->index + 1 : 0;
}

static bool labels_equal(const void *entry, const void *key, size_t n)
{
	return memcmp(entry, key, n) == 0;
}

const struct profile_labels *profile_batch_labels(struct batch *b, const struct profile_labels *l)
{
	static const struct profile_labels none;
	struct batch_arena *a = b->arena;
	struct profile_labels *found;
	uint64_t hash;
	size_t slot;

	if (labels_equal(l, &none, sizeof(*l)))
		return NULL;
	hash = hash_bytes(l, sizeof(*l), a->seed);
	found = table_find(a, &a->labels, hash, labels_equal, l, sizeof(*l), &slot);
	if (found)
		return found;
	found = arena_alloc(a, sizeof(*found));
	*found = *l;
	table_put(&a->labels, slot, hash, found);
	return found;
}

struct profile *profile_batch_profile(struct batch *b)
{
	struct profile *p = xcalloc(1, sizeof(*p));

	GROW(b->profiles, b->n_profiles, b->cap_profiles);
	b->profiles[b->n_profiles++] = p;
	return p;
}

void profile_batch_skip(struct batch *b, size_t i, const char *why)
{
	profile_done(b->profiles[i]);
	b->profiles[i] = b->profiles[--b->n_profiles];
	if (b->n_skipped++ == 0)
		b->skipped_for = why;
}

/* Returns the index of key, or the index at which it must be inserted. */
static size_t tag_slot(const struct tags *t, const char *key)
{
	size_t lo = 0, hi = t->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(t->items[mid].key, key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void profile_tag(struct batch *b, struct profile *p, const char *key, const char *value)
{
	struct tags *t = &p->tags;
	size_t i = tag_slot(t, key);

	if (i < t->n && streq(t->items[i].key, key)) {
		t->items[i].value = profile_batch_str(b, value);
		return;
	}
	GROW(t->items, t->n, t->cap);
	memmove(&t->items[i + 1], &t->items[i], (t->n - i) * sizeof(*t->items));
	t->items[i] = (struct tag){profile_batch_str(b, key), profile_batch_str(b, value)};
	t->n++;
}

void profile_untag(struct profile *p, const char *key)
{
	struct tags *t = &p->tags;
	size_t i = tag_slot(t, key);

	if (i == t->n || !streq(t->items[i].key, key))
		return;
	t->n--;
	memmove(&t->items[i], &t->items[i + 1], (t->n - i) * sizeof(*t->items));
}

const char *profile_tag_get(const struct profile *p, const char *key)
{
	size_t i = tag_slot(&p->tags, key);

	return i < p->tags.n && streq(p->tags.items[i].key, key) ? p->tags.items[i].value : NULL;
}

struct profile_sample *profile_add(struct batch *b, struct profile *p)
{
	(void)b;
	GROW(p->samples, p->n_samples, p->cap_samples);
	p->samples[p->n_samples] = (struct profile_sample){.stack = STACK_NONE, .cpu = -1};
	return &p->samples[p->n_samples++];
}

void profile_lose(struct batch *b, struct profile *p, const char *reason, uint64_t n,
		  uint64_t time_ns)
{
	for (size_t i = 0; i < p->n_losses; i++) {
		struct loss *l = &p->losses[i];

		if (streq(l->reason, reason)) {
			l->n_samples += n;
			l->time_ns += time_ns;
			return;
		}
	}
	GROW(p->losses, p->n_losses, p->cap_losses);
	p->losses[p->n_losses++] = (struct loss){profile_batch_str(b, reason), n, time_ns};
}

void profile_id_make(const char *const *parts, size_t n, uint8_t ret[16])
{
	_cleanup_buf_ struct buf b;
	uint8_t digest[SHA256_DIGEST_LENGTH];

	buf_init(&b, 0);
	for (size_t i = 0; i < n; i++)
		buf_add(&b, parts[i], strlen(parts[i]) + (i + 1 < n));
	/* after a failure, digest is not set, and could equal the id of another window */
	if (!SHA256((const uint8_t *)b.data, b.len, digest))
		out_of_memory();
	memcpy(ret, digest, 16);
}
