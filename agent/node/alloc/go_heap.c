/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent knows of a Go program's heap profile (runtime.mbuckets). A child reads it
 * (node/runtime/go_heap.h): new buckets with their stacks, once each, and the counts of all buckets
 * each time. Their numbers are hostile. Reader's thread.
 */
#include "node/alloc/go.h"
#include "lib/base/budget.h"

#include <math.h>
#include <stdlib.h>

#define ADDRESSES_MAX (2u << 20) /* addresses of all stacks of one program */
/*
 * limit for the agent's copies of the buckets of all programs, in 8-byte words: a budget
 * (lib/base/budget.h) of which each namespace has a share
 */
#define ALL_WORDS_MAX  (4u << 20)
#define STACK_TOLD_MAX PF_MAX_USER_FRAMES
#define GO_FRAMES_MIN  32		/* Go never cuts a stack that is shorter than this */
#define ROOT	       "runtime.goexit" /* the root of each goroutine; also with .abi0 */

struct bucket {
	uint32_t first; /* index of its first address in `addresses` */
	uint16_t n;
	bool truncated;
	uint64_t told; /* allocated objects that earlier reads have reported */
};

struct alloc_go_heap {
	struct go_profile at;
	struct elf_index *index;
	uint64_t bias;
	uint64_t head; /* the head of the list of buckets in the last read */
	bool told_once, full;
	struct bucket *buckets;	  /* in the order in which they were found */
	struct go_bucket *places; /* of each bucket, for the child */
	size_t n, cap, cap_places;
	uint64_t *addresses;
	size_t n_addresses, cap_addresses;
	struct budget_member words;
};

#define BUCKET_OWN_WORDS ((sizeof(struct bucket) + sizeof(struct go_bucket)) / sizeof(uint64_t))

static struct budget all_words = BUDGET(ALL_WORDS_MAX);

static size_t words_of(size_t n_buckets, size_t n_addresses)
{
	return n_buckets * BUCKET_OWN_WORDS + n_addresses;
}

struct alloc_go_heap *alloc_go_heap_new(const struct go_profile *p, struct elf_index *index,
					uint64_t bias)
{
	struct alloc_go_heap *g = xcalloc(1, sizeof(*g));

	g->at = *p;
	g->index = elf_index_ref(index);
	g->bias = bias;
	return g;
}

void alloc_go_charge(struct alloc_go_heap *g, uint64_t charged_ns)
{
	if (!g->words.of)
		budget_join(&all_words, &g->words, charged_ns);
}

struct alloc_go_heap *alloc_go_heap_free(struct alloc_go_heap *g)
{
	if (g) {
		if (g->words.of)
			budget_leave(&all_words, &g->words);
		elf_index_unref(g->index);
		free(g->buckets);
		free(g->places);
		free(g->addresses);
		free(g);
	}
	return NULL;
}

/* ---- stacks ---- */

/*
 * Go notes one address for each function, inlined ones included; the addresses of the functions
 * around an inlined call are made up. The agent's frame stands for all functions that are inlined
 * at its address, so this function keeps the real addresses only. If two addresses in a row are in
 * the same function, and fewer inlined functions are around the second one, the second one is made
 * up.
 *
 * *ret_truncated: the agent or Go has cut the stack. Go keeps 32 addresses before 1.23, and 128
 * since (GODEBUG=profstackdepth).
 */
static uint16_t keep_real(const struct alloc_go_heap *g, uint64_t *stack, uint32_t n,
			  bool *ret_truncated)
{
	struct elf_inline inlines[ELF_INLINES_MAX];
	const char *outermost = ROOT;
	uint64_t function = 0;
	size_t depth = 0;
	uint16_t kept = 0;

	*ret_truncated = false;
	for (uint32_t i = 0; i < n && !*ret_truncated; i++) {
		uint64_t address = stack[i] - 1 - g->bias;
		struct elf_symbol symbol = {.address = UINT64_MAX, .name = ROOT};
		size_t inlined = elf_index_inlines(g->index, address, inlines);
		bool same;

		(void)elf_index_symbol(g->index, address, &symbol);
		same = symbol.address == function && i > 0;
		if (!same || inlined >= depth) {
			*ret_truncated = kept == STACK_TOLD_MAX;
			if (!*ret_truncated)
				stack[kept++] = stack[i];
		}
		function = symbol.address;
		depth = inlined;
		outermost = symbol.name;
	}
	*ret_truncated |= n >= GO_FRAMES_MIN && !str_has_prefix(outermost, ROOT);
	return kept;
}

/* ---- new buckets ---- */

void alloc_go_refused(struct shares *to)
{
	budget_refused(&all_words, to);
}

static bool is_full(const struct alloc_go_heap *g)
{
	return g->n == GO_BUCKETS_MAX || g->n_addresses > ADDRESSES_MAX - STACK_TOLD_MAX;
}

/* A read under way. */
struct taking {
	struct alloc_go_heap *g;
	bool over; /* a bucket was left out, and so are those that come after it */
};

static void take_bucket(void *arg, const struct go_bucket *place, uint64_t *stack, size_t n)
{
	struct taking *t = arg;
	struct alloc_go_heap *g = t->g;
	struct bucket b = {.first = (uint32_t)g->n_addresses};

	t->over |= is_full(g);
	if (t->over)
		return;
	b.n = keep_real(g, stack, (uint32_t)n, &b.truncated);
	t->over = !budget_take(&all_words, &g->words, words_of(1, b.n));
	if (t->over)
		return;
	GROW(g->buckets, g->n, g->cap);
	GROW(g->places, g->n, g->cap_places);
	g->places[g->n] = *place;
	g->buckets[g->n++] = b;
	for (uint32_t i = 0; i < b.n; i++) {
		GROW(g->addresses, g->n_addresses, g->cap_addresses);
		g->addresses[g->n_addresses++] = stack[i];
	}
}

/*
 * Reads the profile. After an error no new buckets are kept. If there are more buckets than the
 * limit, some are left out: in the first read the oldest ones, later the new ones.
 */
static int read_profile(struct alloc_go_heap *g, go_heap_reader *read, void *from,
			struct go_heap_read *ret)
{
	size_t n = g->n, n_addresses = g->n_addresses;
	struct taking t = {.g = g};
	int r;

	*ret = (struct go_heap_read){
		.at = g->at,
		.known = g->places,
		.n_known = n,
		.head = g->head,
		.bucket = take_bucket,
		.arg = &t,
	};
	r = read(ret, from);
	if (r < 0) {
		budget_give_back(&all_words, &g->words,
				 words_of(g->n - n, g->n_addresses - n_addresses));
		g->n = n;
		g->n_addresses = n_addresses;
		return r;
	}
	g->full |= t.over || ret->full;
	g->head = ret->head;
	return 0;
}

/* ---- records ---- */

/*
 * Scales counts as scaleHeapSample of runtime/pprof does: an object is sampled with probability 1 -
 * exp(-bytes / rate).
 */
static void scale(uint64_t objects, uint64_t size, uint64_t rate, uint64_t *ret_objects,
		  uint64_t *ret_bytes)
{
	double by = rate > 1 ? 1 / (1 - exp(-(double)size / (double)rate)) : 1;

	/* is_sane() has checked the counts; the rate may be anything */
	*ret_objects = (uint64_t)MIN((double)objects * by, 9e18);
	*ret_bytes = (uint64_t)MIN((double)(objects * size) * by, 9e18);
}

static bool is_sane(const struct go_bucket *b, const struct go_counts *s)
{
	uint64_t most = (uint64_t)INT64_MAX / b->size;

	return s->allocs <= most && s->frees <= s->allocs && s->live_frees <= s->live_allocs;
}

static int check(const struct alloc_go_heap *g, const struct go_counts *counts)
{
	for (size_t i = 0; i < g->n; i++)
		if (!is_sane(&g->places[i], &counts[i]))
			return -EBADMSG;
	return 0;
}

/*
 * The live objects. Until the first collection ends, all objects that were not freed are live, as
 * in the runtime's own profile.
 */
static uint64_t live_of(const struct go_heap_read *read, const struct go_counts *s)
{
	return read->collected ? s->live_allocs - s->live_frees : s->allocs - s->frees;
}

static void tell(struct alloc_go_heap *g, const struct go_heap_read *read, alloc_go_fn *fn,
		 void *arg)
{
	for (size_t i = 0; i < g->n; i++) {
		struct bucket *b = &g->buckets[i];
		uint64_t size = g->places[i].size;
		const struct go_counts *s = &read->counts[i];
		struct alloc_go_record r = {.addresses = g->addresses + b->first,
					    .n_addresses = b->n,
					    .truncated = b->truncated};

		/*
		 * If there are fewer allocations than an earlier read has reported, that read came
		 * in the middle of a change and counted some twice. Nothing is reported until the
		 * count is higher again, so the sum becomes right.
		 */
		if (g->told_once && s->allocs > b->told)
			scale(s->allocs - b->told, size, read->rate, &r.alloc_objects,
			      &r.alloc_bytes);
		scale(live_of(read, s), size, read->rate, &r.inuse_objects, &r.inuse_bytes);
		b->told = MAX(b->told, s->allocs);
		if (r.alloc_bytes || r.inuse_bytes)
			fn(&r, arg);
	}
	g->told_once = true;
}

void alloc_go_begin_anew(struct alloc_go_heap *g)
{
	g->told_once = false;
}

int alloc_go_read(struct alloc_go_heap *g, go_heap_reader *read, void *from, alloc_go_fn *fn,
		  void *arg)
{
	struct go_heap_read result;
	int r = read_profile(g, read, from, &result);

	if (r < 0)
		return r;
	r = check(g, result.counts);
	if (r == 0)
		tell(g, &result, fn, arg);
	free(result.counts);
	return r == 0 && g->full ? -E2BIG : r;
}
