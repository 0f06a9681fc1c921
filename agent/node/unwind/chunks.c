/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file keeps account of which bytes of the chunks (bpf/unwind_tables.h) are in use: it has one
 * bit for each granule of GRANULE_BYTES, set if the granule is taken. Tables consist of many
 * extents of a few KiB, so taking the first run that is long enough leaves little unused. This file
 * writes nothing to the kernel.
 */
#include "node/unwind/internal.h"

#define GRANULES (PF_CHUNK_BYTES / GRANULE_BYTES)

struct table_chunk {
	bool made;
	uint16_t n_used, longest; /* in granules; no free run is longer than `longest` */
	uint64_t used[GRANULES / 64];
};
struct space {
	struct table_chunk chunks[PF_CHUNKS_MAX];
	size_t n_made, max, n_seen, n_used; /* chunks with numbers from n_seen on were never made */
};

struct space *unwind_space_new(size_t max_bytes)
{
	struct space *s = xcalloc(1, sizeof(*s));

	s->max = MIN(max_bytes / PF_CHUNK_BYTES, (size_t)PF_CHUNKS_MAX);
	return s;
}

struct space *unwind_space_free(struct space *s)
{
	free(s);
	return NULL;
}

static bool is_used(const struct table_chunk *c, unsigned granule)
{
	return c->used[granule / 64] >> granule % 64 & 1;
}

static void mark(struct table_chunk *c, unsigned first, unsigned n, bool used)
{
	for (unsigned i = first; i < first + n; i++) {
		uint64_t bit = 1ULL << i % 64;

		c->used[i / 64] = used ? c->used[i / 64] | bit : c->used[i / 64] & ~bit;
	}
	c->n_used = used ? c->n_used + n : c->n_used - n;
}

/*
 * Returns the number of the first granule of the first run of n free granules. GRANULES: there is
 * no such run. A search that has looked at all granules sets `longest` to its exact value.
 */
static unsigned find_run(struct table_chunk *c, unsigned n)
{
	unsigned longest = 0, run = 0;

	if (c->longest < n)
		return GRANULES;
	for (unsigned i = 0; i < GRANULES; i++) {
		run = is_used(c, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
		longest = MAX(longest, run);
	}
	c->longest = longest;
	return GRANULES;
}

static struct table_chunk *make_chunk(struct space *s)
{
	struct table_chunk *c = s->chunks;

	if (s->n_made == s->max)
		return NULL;
	while (c->made)
		c++;
	*c = (struct table_chunk){.made = true, .longest = GRANULES};
	s->n_made++;
	s->n_seen = MAX(s->n_seen, (size_t)(c - s->chunks) + 1);
	return c;
}

static void take_run(struct space *s, struct table_chunk *c, unsigned first, unsigned n,
		     struct extent *ret)
{
	mark(c, first, n, true);
	s->n_used += n;
	*ret = (struct extent){PF_REF(c - s->chunks, first * GRANULE_BYTES), n * GRANULE_BYTES};
}

int unwind_space_take(struct space *s, size_t bytes, struct extent *ret)
{
	unsigned n = space_rounded(bytes) / GRANULE_BYTES, first;
	struct table_chunk *c;

	if (bytes == 0 || bytes > PF_CHUNK_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < s->n_seen; i++) {
		c = &s->chunks[i];
		if (!c->made)
			continue;
		first = find_run(c, n);
		if (first < GRANULES) {
			take_run(s, c, first, n, ret);
			return 0;
		}
	}
	c = make_chunk(s);
	if (!c)
		return -ENOSPC;
	take_run(s, c, 0, n, ret);
	return 0;
}

void unwind_space_give(struct space *s, struct extent e)
{
	struct table_chunk *c = &s->chunks[PF_REF_CHUNK(e.ref)];
	unsigned n = e.bytes / GRANULE_BYTES;

	mark(c, PF_REF_BYTES(e.ref) / GRANULE_BYTES, n, false);
	/* an upper limit; find_run computes the exact value when it needs it */
	c->longest = GRANULES - c->n_used;
	s->n_used -= n;
}

int unwind_space_empty_chunk(struct space *s, uint32_t *ret_chunk)
{
	for (size_t i = 0; i < s->n_seen; i++) {
		if (!s->chunks[i].made || s->chunks[i].n_used)
			continue;
		s->chunks[i].made = false;
		s->n_made--;
		*ret_chunk = i;
		return 0;
	}
	return -ENOENT;
}

size_t unwind_space_used_bytes(const struct space *s)
{
	return s->n_used * GRANULE_BYTES;
}

size_t unwind_space_chunk_bytes(const struct space *s)
{
	return s->n_made * PF_CHUNK_BYTES;
}
