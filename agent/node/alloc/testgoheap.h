/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: memory with a heap profile, in the layout of Go's runtime. A test may define another
 * GO_BASE before.
 */
#pragma once

#include "node/alloc/go.h"

#ifndef GO_BASE
#define GO_BASE 0xc000000000ull
#endif
#define GO_BUCKETS GO_BASE /* runtime.mbuckets; after it the other variables */
#define GO_RATE	   (GO_BASE + 8)
#define GO_CYCLE   (GO_BASE + 16)
#define GO_CYCLES  4 /* counts of a bucket: active, future[3] */

struct go_image {
	struct memory memory;
	struct go_profile at;
	void (*before)(struct go_image *i, size_t n_reads); /* called before each read */
	size_t n_reads;
	uint64_t used, room;
	uint8_t *bytes;
};

static inline int go_image_read(void *arg, uint64_t address, void *to, size_t n)
{
	struct go_image *i = arg;

	i->n_reads++;
	if (i->before)
		i->before(i, i->n_reads);
	if (address < GO_BASE || address - GO_BASE > i->used || n > i->used - (address - GO_BASE))
		return -EFAULT;
	memcpy(to, i->bytes + (address - GO_BASE), n);
	return 0;
}

static inline uint64_t *go_word(struct go_image *i, uint64_t address)
{
	return (uint64_t *)(i->bytes + (address - GO_BASE));
}

/* counts_bytes, cycle_shift: as in struct go_profile. */
static inline void go_image_init(struct go_image *i, unsigned counts_bytes, unsigned cycle_shift,
				 size_t room)
{
	*i = (struct go_image){
		.memory = {.read = go_image_read, .arg = i, .budget_bytes = SIZE_MAX},
		.at = {.buckets = GO_BUCKETS,
		       .rate = GO_RATE,
		       .cycle = GO_CYCLE,
		       .cycle_shift = cycle_shift,
		       .counts_bytes = counts_bytes},
		.used = 32,
		.room = room,
		.bytes = xcalloc(1, room),
	};
	*go_word(i, GO_RATE) = 1;
}

static inline void go_image_done(struct go_image *i)
{
	free(i->bytes);
}

static inline void go_set_cycle(struct go_image *i, uint32_t cycle, bool flushed)
{
	*go_word(i, GO_CYCLE) = i->at.cycle_shift ? cycle << 1 | flushed : cycle;
}

/* The hash of a bucket, as stkbucket() computes it. */
static inline uint64_t go_hash(const uint64_t *stack, size_t n, uint64_t size)
{
	uint64_t h = 0;

	for (size_t k = 0; k < n; k++) {
		h += stack[k];
		h += h << 10;
		h ^= h >> 6;
	}
	h += size;
	h += h << 10;
	h ^= h >> 6;
	h += h << 3;
	h ^= h >> 11;
	return h;
}

/* Adds a bucket at the list's head. Returns its address. */
static inline uint64_t go_bucket(struct go_image *i, const uint64_t *stack, size_t n, uint64_t size)
{
	uint64_t at = GO_BASE + i->used, *w = go_word(i, at);

	i->used += 48 + 8 * n + (uint64_t)GO_CYCLES * i->at.counts_bytes;
	if (i->used > i->room)
		abort();
	w[1] = *go_word(i, GO_BUCKETS);
	w[2] = 1;
	w[3] = go_hash(stack, n, size);
	w[4] = size;
	w[5] = n;
	memcpy(w + 6, stack, n * sizeof(*stack));
	*go_word(i, GO_BUCKETS) = at;
	return at;
}

/* Adds allocations and frees to a bucket's counts. cycle 0: active; 1 + k: future[k]. */
static inline void go_count(struct go_image *i, uint64_t bucket, unsigned cycle, uint64_t allocs,
			    uint64_t frees)
{
	uint64_t *w = go_word(i, bucket);
	uint64_t *counts = w + 6 + w[5] + (size_t)cycle * i->at.counts_bytes / 8;

	counts[0] += allocs;
	counts[1] += frees;
	if (i->at.counts_bytes == 32) {
		counts[2] += allocs * w[4];
		counts[3] += frees * w[4];
	}
}

/* Does what mProf_Flush does: adds future[cycle % 3] to active. */
static inline void go_flush(struct go_image *i, uint64_t bucket, uint32_t cycle)
{
	uint64_t *w = go_word(i, bucket), *active = w + 6 + w[5];
	uint64_t *future = active + (1 + cycle % 3) * i->at.counts_bytes / 8;

	for (size_t k = 0; k < i->at.counts_bytes / 8; k++) {
		active[k] += future[k];
		future[k] = 0;
	}
}
