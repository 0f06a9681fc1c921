/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks through a Go program's heap profile in its memory. The program may change the counts
 * meanwhile, so they are read until two passes agree. Runs in the child.
 */
#include "node/runtime/go_heap.h"

#include <stdlib.h>

#define BUCKET_WORDS 6 /* next, allnext, typ, hash, size, nstk, in all versions */
#define MEM_PROFILE  1 /* value of bucketType for a bucket of the heap profile */
/* counts of the active cycle, and a ring of three future ones */
#define CYCLES		 4
#define COUNTS_BYTES_MAX 32 /* bytes of one cycle's counts */
#define PASSES_MAX	 5  /* passes of one read; if no two agree, the read fails */
#define WINDOW_BYTES	 (16u << 10)

struct place {
	uint64_t counts, size;
	size_t i; /* of the bucket among all */
};
struct walk {
	struct go_heap_read *r;
	struct memory *m;
	struct place *places; /* of all buckets; sorted by address before the counts are read */
	size_t n, cap;
};

/* ---- new buckets ---- */

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

static void add(struct walk *w, const struct go_bucket *b)
{
	GROW(w->places, w->n, w->cap);
	w->places[w->n] = (struct place){b->counts, b->size, w->n};
	w->n++;
}

static int read_bucket(struct walk *w, uint64_t at, uint64_t *ret_next)
{
	enum { NEXT, ALLNEXT, TYPE, HASH, SIZE, DEPTH };
	uint64_t head[BUCKET_WORDS], stack[GO_STACK_MAX];
	struct go_bucket b;
	int r = at % sizeof(uint64_t) ? -EBADMSG
				      : runtime_memory_read(w->m, at, head, sizeof(head));

	if (r == 0 && (head[TYPE] != MEM_PROFILE || head[DEPTH] > GO_STACK_MAX || head[SIZE] == 0 ||
		       head[SIZE] > GO_OBJECT_MAX))
		r = -EBADMSG;
	if (r == 0)
		r = runtime_memory_read(w->m, at + sizeof(head), stack,
					head[DEPTH] * sizeof(*stack));
	if (r == 0 && hash_of(stack, head[DEPTH], head[SIZE]) != head[HASH])
		r = -EBADMSG;
	if (r < 0)
		return r;
	b = (struct go_bucket){at + sizeof(head) + head[DEPTH] * sizeof(*stack), head[SIZE]};
	add(w, &b);
	w->r->n_new++;
	w->r->bucket(w->r->arg, &b, stack, head[DEPTH]);
	*ret_next = head[ALLNEXT];
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->counts < y->counts ? -1 : x->counts > y->counts;
}

/* Returns whether a bucket was met twice: then the list leads back into itself. */
static bool has_twice(const struct walk *w)
{
	for (size_t i = 1; i < w->n; i++)
		if (w->places[i].counts == w->places[i - 1].counts)
			return true;
	return false;
}

/*
 * Reads all buckets that are new since the last read. If there are more than the limit, some are
 * left out: in the first read the oldest ones, later the new ones.
 */
static int read_new(struct walk *w)
{
	uint64_t head, at;
	int r = runtime_memory_u64(w->m, w->r->at.buckets, &head);

	if (r < 0)
		return r;
	for (at = head; r == 0 && at && at != w->r->head && !w->r->full;) {
		w->r->full = w->n == GO_BUCKETS_MAX;
		if (!w->r->full)
			r = read_bucket(w, at, &at);
	}
	w->r->head = head;
	if (w->n)
		qsort(w->places, w->n, sizeof(*w->places), by_address);
	return r < 0 ? r : has_twice(w) ? -EBADMSG : 0;
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
	struct go_counts *counts; /* one element for each bucket */
	bool torn;		  /* the program was changing some counts */
	bool collected;		  /* the first collection has ended */
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

static int see(const struct go_profile *at, struct window *w, const struct place *b, struct pass *p)
{
	uint8_t bytes[CYCLES * COUNTS_BYTES_MAX];
	struct go_counts s = {0};
	int r = window_read(w, b->counts, bytes, (size_t)CYCLES * at->counts_bytes);

	for (unsigned i = 0; r == 0 && i < CYCLES; i++) {
		uint64_t counts[COUNTS_BYTES_MAX / sizeof(uint64_t)];

		memcpy(counts, bytes + (size_t)i * at->counts_bytes, at->counts_bytes);
		p->torn |= is_torn(at, counts, b->size);
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
	p->counts[b->i] = s;
	return r;
}

static int read_cycle(const struct go_profile *at, struct memory *m, uint64_t *ret)
{
	uint32_t word;
	int r = runtime_memory_u32(m, at->cycle, &word);

	*ret = r == 0 ? word >> at->cycle_shift : 0;
	return r;
}

static int read_pass(const struct walk *w, struct window *window, struct pass *p)
{
	const struct go_profile *at = &w->r->at;
	uint64_t after;
	int r = read_cycle(at, w->m, &p->cycle);

	p->torn = p->collected = false;
	window->n = 0;
	for (size_t i = 0; r == 0 && i < w->n; i++)
		r = see(at, window, &w->places[i], p);
	if (r == 0)
		r = read_cycle(at, w->m, &after);
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
		if (a->counts[i].live_allocs != b->counts[i].live_allocs ||
		    a->counts[i].live_frees != b->counts[i].live_frees)
			return false;
	return true;
}

static int read_counts(const struct walk *w)
{
	_cleanup_free_ struct window *window = xcalloc(1, sizeof(*window));
	struct pass p[2] = {{.counts = xcalloc(w->n + 1, sizeof(*p->counts)), .torn = true},
			    {.counts = xcalloc(w->n + 1, sizeof(*p->counts)), .torn = true}};
	struct pass *now = NULL;
	bool good = false;
	int r = 0;

	window->m = w->m;
	for (unsigned i = 0; r == 0 && i < PASSES_MAX && !good; i++) {
		now = &p[i % 2];
		r = read_pass(w, window, now);
		good = r == 0 && !p[0].torn && !p[1].torn && agree(&p[0], &p[1], w->n);
	}
	if (good) {
		w->r->collected = now->collected;
		w->r->counts = TAKE_PTR(now->counts);
	}
	free(p[0].counts);
	free(p[1].counts);
	return r < 0 ? r : good ? 0 : -EAGAIN;
}

int runtime_go_heap_walk(struct go_heap_read *r, void *from)
{
	struct walk w = {.r = r, .m = from};
	int e = runtime_memory_u64(w.m, r->at.rate, &r->rate);

	if (e == 0 && r->rate == 0)
		e = -ENODATA;
	if (e == 0 && r->rate > GO_RATE_MAX)
		e = -EBADMSG;
	for (size_t i = 0; e == 0 && i < r->n_known; i++)
		add(&w, &r->known[i]);
	if (e == 0)
		e = read_new(&w);
	if (e == 0)
		e = read_counts(&w);
	free(w.places);
	return e;
}
