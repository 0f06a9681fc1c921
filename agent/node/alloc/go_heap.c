/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a Go program's heap profile (runtime.mbuckets) from its memory. A bucket has a stack and a
 * size, which never change, and counts of such objects that were sampled and freed. Go adds new
 * buckets at the list's head, so the agent learns each bucket once. It reads the counts of all
 * buckets each time. The program may change them during the read, so they are read until two passes
 * agree. Reader's thread.
 */
#include "node/alloc/go.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BUCKETS_MAX   65536	 /* buckets of one program; further ones are not read */
#define ADDRESSES_MAX (2u << 20) /* addresses of all stacks of one program */
/*
 * limit for the agent's copies of the buckets of all programs, in 8-byte words; if it is exceeded,
 * a program may still have an equal share of half of it
 */
#define ALL_WORDS_MAX  (4u << 20)
#define BUCKET_WORDS   6    /* next, allnext, typ, hash, size, nstk, in all versions */
#define MEM_PROFILE    1    /* value of bucketType for a bucket of the heap profile */
#define STACK_MAX      1100 /* maxProfStackDepth, and room for inlined frames */
#define STACK_TOLD_MAX PF_MAX_USER_FRAMES
#define GO_FRAMES_MIN  32		/* Go never cuts a stack that is shorter than this */
#define ROOT	       "runtime.goexit" /* the root of each goroutine; also with .abi0 */
/* counts of the active cycle, and a ring of three future ones */
#define CYCLES		 4
#define COUNTS_BYTES_MAX 32	      /* bytes of one cycle's counts */
#define PASSES_MAX	 5	      /* passes of one read; if no two agree, the read fails */
#define RATE_MAX	 (1ull << 40) /* bytes; a larger MemProfileRate is damaged data */
#define OBJECT_MAX	 (1ull << 47) /* bytes; a larger object is damaged data */
#define WINDOW_BYTES	 (16u << 10)

struct bucket {
	uint64_t counts; /* address of the bucket's counts */
	uint64_t size;	 /* size of one object of the bucket */
	uint32_t first;	 /* index of its first address in `addresses` */
	uint16_t n;
	bool truncated;
	uint64_t told; /* allocated objects that earlier reads have reported */
};
/* The counts of one bucket that a pass has read. */
struct seen {
	uint64_t allocs, frees;		  /* counts in all cycles */
	uint64_t live_allocs, live_frees; /* counts at the last finished collection */
};

struct alloc_go_heap {
	struct go_profile at;
	struct elf_index *index;
	uint64_t bias;
	uint64_t head; /* the head of the list of buckets when the list was last walked */
	bool told_once, full;
	struct bucket *buckets; /* sorted by address */
	size_t n, cap;
	uint64_t *addresses;
	size_t n_addresses, cap_addresses;
};

#define BUCKET_OWN_WORDS (sizeof(struct bucket) / sizeof(uint64_t))

static _Atomic size_t all_words, n_heaps;

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
	atomic_fetch_add(&n_heaps, 1);
	return g;
}

struct alloc_go_heap *alloc_go_heap_free(struct alloc_go_heap *g)
{
	if (g) {
		atomic_fetch_sub(&n_heaps, 1);
		atomic_fetch_sub(&all_words, words_of(g->n, g->n_addresses));
		elf_index_unref(g->index);
		free(g->buckets);
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

/*
 * The hash that stkbucket() stores in a bucket. Memory that is not a bucket does not have the right
 * hash.
 */
static uint64_t hash_of(const uint64_t *stack, size_t n, uint64_t size)
{
	uint64_t h = 0;

	for (size_t i = 0; i <= n; i++) {
		h += i < n ? stack[i] : size;
		h += h << 10;
		h ^= h >> 6;
	}
	h += h << 3;
	return h ^ h >> 11;
}

/* ---- learning buckets ---- */

static bool is_full(const struct alloc_go_heap *g)
{
	size_t share = ALL_WORDS_MAX / 2 / atomic_load(&n_heaps);

	return g->n == BUCKETS_MAX || g->n_addresses > ADDRESSES_MAX - STACK_TOLD_MAX ||
	       (atomic_load(&all_words) > ALL_WORDS_MAX && words_of(g->n, g->n_addresses) > share);
}

static int learn_bucket(struct alloc_go_heap *g, struct memory *m, uint64_t at, uint64_t *ret_next)
{
	enum { NEXT, ALLNEXT, TYPE, HASH, SIZE, DEPTH };
	uint64_t head[BUCKET_WORDS], stack[STACK_MAX];
	struct bucket b;
	int r = at % sizeof(uint64_t) ? -EBADMSG : runtime_memory_read(m, at, head, sizeof(head));

	if (r == 0 && (head[TYPE] != MEM_PROFILE || head[DEPTH] > STACK_MAX || head[SIZE] == 0 ||
		       head[SIZE] > OBJECT_MAX))
		r = -EBADMSG;
	if (r == 0)
		r = runtime_memory_read(m, at + sizeof(head), stack, head[DEPTH] * sizeof(*stack));
	if (r == 0 && hash_of(stack, head[DEPTH], head[SIZE]) != head[HASH])
		r = -EBADMSG;
	if (r < 0)
		return r;
	b = (struct bucket){.counts = at + sizeof(head) + head[DEPTH] * sizeof(*stack),
			    .size = head[SIZE],
			    .first = (uint32_t)g->n_addresses};
	b.n = keep_real(g, stack, (uint32_t)head[DEPTH], &b.truncated);
	if (is_full(g))
		return -E2BIG;
	GROW(g->buckets, g->n, g->cap);
	g->buckets[g->n++] = b;
	for (uint32_t i = 0; i < b.n; i++) {
		GROW(g->addresses, g->n_addresses, g->cap_addresses);
		g->addresses[g->n_addresses++] = stack[i];
	}
	atomic_fetch_add(&all_words, words_of(1, b.n));
	*ret_next = head[ALLNEXT];
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct bucket *x = a, *y = b;

	return x->counts < y->counts ? -1 : x->counts > y->counts;
}

/* Returns whether a bucket was met twice: then the list leads back into itself. */
static bool has_twice(const struct alloc_go_heap *g)
{
	for (size_t i = 1; i < g->n; i++)
		if (g->buckets[i].counts == g->buckets[i - 1].counts)
			return true;
	return false;
}

/*
 * Learns all buckets that are new since the last call; on failure, none. If there are more than the
 * limit, some are left out: in the first call the oldest ones, later the new ones.
 */
static int learn_new(struct alloc_go_heap *g, struct memory *m)
{
	size_t n = g->n, n_addresses = g->n_addresses;
	uint64_t head, at;
	int r = runtime_memory_u64(m, g->at.buckets, &head);

	for (at = head; r == 0 && at && at != g->head;)
		r = learn_bucket(g, m, at, &at);
	if (r == -E2BIG && is_full(g)) {
		g->full = true;
	} else if (r < 0) {
		atomic_fetch_sub(&all_words, words_of(g->n - n, g->n_addresses - n_addresses));
		g->n = n;
		g->n_addresses = n_addresses;
		return r;
	}
	g->head = head;
	if (g->n > n)
		qsort(g->buckets, g->n, sizeof(*g->buckets), by_place);
	return has_twice(g) ? -EBADMSG : 0;
}

/* ---- one pass over all counts ---- */

/*
 * The counts of many buckets are close to each other. They are read in the order of their
 * addresses, so one read gets many.
 */
struct window {
	struct memory *m;
	uint64_t at;
	size_t n;
	uint8_t bytes[WINDOW_BYTES];
};

static int window_read(struct window *w, uint64_t at, void *to, size_t n)
{
	int r = 0;

	if (at < w->at || at - w->at > w->n || n > w->n - (at - w->at)) {
		w->at = at;
		w->n = WINDOW_BYTES;
		r = runtime_memory_read(w->m, at, w->bytes, w->n);
		if (r == -EFAULT) { /* memory behind the n bytes is not mapped */
			w->n = n;
			r = runtime_memory_read(w->m, at, w->bytes, n);
		}
	}
	if (r < 0) {
		w->n = 0;
		return r;
	}
	memcpy(to, w->bytes + (at - w->at), n);
	return 0;
}

struct pass {
	uint64_t cycle;
	struct seen *seen; /* one element for each bucket */
	bool torn;	   /* the program was changing some counts */
	bool collected;	   /* the first collection has ended */
};

/*
 * Some versions also count bytes, which must be the number of objects times the size. If they are
 * not, the program was changing the counts.
 */
static bool is_torn(const struct go_profile *at, const uint64_t *counts, uint64_t size)
{
	return at->counts_bytes > 2 * sizeof(*counts) &&
	       (counts[2] != counts[0] * size || counts[3] != counts[1] * size);
}

static int see(const struct alloc_go_heap *g, struct window *w, const struct bucket *b,
	       struct pass *p, struct seen *ret)
{
	uint8_t bytes[CYCLES * COUNTS_BYTES_MAX];
	struct seen s = {0};
	int r = window_read(w, b->counts, bytes, (size_t)CYCLES * g->at.counts_bytes);

	for (unsigned i = 0; r == 0 && i < CYCLES; i++) {
		uint64_t counts[COUNTS_BYTES_MAX / sizeof(uint64_t)];

		memcpy(counts, bytes + (size_t)i * g->at.counts_bytes, g->at.counts_bytes);
		p->torn |= is_torn(&g->at, counts, b->size);
		s.allocs += counts[0];
		s.frees += counts[1];
		/*
		 * The live counts: the active ones, and those of a collection that has ended but
		 * that Go has not added to the active ones yet.
		 */
		if (i == 0 || i - 1 == p->cycle % (CYCLES - 1)) {
			s.live_allocs += counts[0];
			s.live_frees += counts[1];
		}
	}
	p->collected |= s.live_allocs || s.live_frees;
	*ret = s;
	return r;
}

static int read_cycle(const struct alloc_go_heap *g, struct memory *m, uint64_t *ret)
{
	uint32_t word;
	int r = runtime_memory_u32(m, g->at.cycle, &word);

	*ret = r == 0 ? word >> g->at.cycle_shift : 0;
	return r;
}

static int read_pass(const struct alloc_go_heap *g, struct window *w, struct pass *p)
{
	uint64_t after;
	int r = read_cycle(g, w->m, &p->cycle);

	p->torn = p->collected = false;
	w->n = 0;
	for (size_t i = 0; r == 0 && i < g->n; i++)
		r = see(g, w, &g->buckets[i], p, &p->seen[i]);
	if (r == 0)
		r = read_cycle(g, w->m, &after);
	if (r == 0)
		p->torn |= after != p->cycle;
	return r;
}

/*
 * Returns whether two passes agree. Compares only the live counts, because they do not change
 * between collections.
 */
static bool agree(const struct pass *a, const struct pass *b, size_t n)
{
	if (a->cycle != b->cycle || a->collected != b->collected)
		return false;
	for (size_t i = 0; a->collected && i < n; i++)
		if (a->seen[i].live_allocs != b->seen[i].live_allocs ||
		    a->seen[i].live_frees != b->seen[i].live_frees)
			return false;
	return true;
}

static int read_counts(const struct alloc_go_heap *g, struct memory *m, struct pass *ret)
{
	_cleanup_free_ struct window *w = xcalloc(1, sizeof(*w));
	struct pass p[2] = {{.seen = xcalloc(g->n + 1, sizeof(struct seen)), .torn = true},
			    {.seen = xcalloc(g->n + 1, sizeof(struct seen)), .torn = true}};
	struct pass *now = NULL;
	bool good = false;
	int r = 0;

	w->m = m;
	for (unsigned i = 0; r == 0 && i < PASSES_MAX && !good; i++) {
		now = &p[i % 2];
		r = read_pass(g, w, now);
		good = !p[0].torn && !p[1].torn && agree(&p[0], &p[1], g->n);
	}
	if (good) {
		*ret = *now;
		now->seen = NULL;
	}
	free(p[0].seen);
	free(p[1].seen);
	return r < 0 ? r : good ? 0 : -EAGAIN;
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

static bool is_sane(const struct bucket *b, const struct seen *s)
{
	uint64_t most = (uint64_t)INT64_MAX / b->size;

	return s->allocs <= most && s->frees <= s->allocs && s->live_frees <= s->live_allocs;
}

static int check(const struct alloc_go_heap *g, const struct pass *p)
{
	for (size_t i = 0; i < g->n; i++)
		if (!is_sane(&g->buckets[i], &p->seen[i]))
			return -EBADMSG;
	return 0;
}

/*
 * The live objects. Until the first collection ends, all objects that were not freed are live, as
 * in the runtime's own profile.
 */
static uint64_t live_of(const struct pass *p, const struct seen *s)
{
	return p->collected ? s->live_allocs - s->live_frees : s->allocs - s->frees;
}

static void tell(struct alloc_go_heap *g, const struct pass *p, uint64_t rate, alloc_go_fn *fn,
		 void *arg)
{
	for (size_t i = 0; i < g->n; i++) {
		struct bucket *b = &g->buckets[i];
		const struct seen *s = &p->seen[i];
		struct alloc_go_record r = {.addresses = g->addresses + b->first,
					    .n_addresses = b->n,
					    .truncated = b->truncated};

		/*
		 * If there are fewer allocations than an earlier read has reported, that read came
		 * in the middle of a change and counted some twice. Nothing is reported until the
		 * count is higher again, so the sum becomes right.
		 */
		if (g->told_once && s->allocs > b->told)
			scale(s->allocs - b->told, b->size, rate, &r.alloc_objects, &r.alloc_bytes);
		scale(live_of(p, s), b->size, rate, &r.inuse_objects, &r.inuse_bytes);
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

int alloc_go_read(struct alloc_go_heap *g, struct memory *m, alloc_go_fn *fn, void *arg)
{
	struct pass p = {0};
	uint64_t rate;
	int r = runtime_memory_u64(m, g->at.rate, &rate);

	if (r == 0 && rate == 0)
		return -ENODATA;
	if (r == 0 && rate > RATE_MAX)
		return -EBADMSG;
	if (r == 0)
		r = learn_new(g, m);
	if (r == 0)
		r = read_counts(g, m, &p);
	if (r < 0)
		return r;
	r = check(g, &p);
	if (r == 0)
		tell(g, &p, rate, fn, arg);
	free(p.seen);
	return r == 0 && g->full ? -E2BIG : r;
}
