// SPDX-License-Identifier: Apache-2.0
/*
 * A heap profile in memory, as Go's runtime keeps it: what the agent reads, also if the profile
 * changes during the read, or is hostile.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/shares.h"
#include "node/alloc/testgoheap.h"
#include "node/parse/format.h"

static const uint64_t stack_a[] = {0x401001, 0x402002, 0x403003}, stack_b[] = {0x501001};
static struct elf_index *index_of_nothing;

/* ---- what was reported ---- */

struct told {
	size_t n;
	uint64_t alloc[2], live[2], objects[2]; /* for stack_a, stack_b */
};

static void on_record(const struct alloc_go_record *r, void *arg)
{
	struct told *t = arg;
	size_t k = r->n_addresses == 1;

	assert_memory_equal(r->addresses, k ? stack_b : stack_a, 8 * r->n_addresses);
	t->n++;
	t->alloc[k] += r->alloc_bytes;
	t->live[k] += r->inuse_bytes;
	t->objects[k] += r->inuse_objects;
}

static void count_record(const struct alloc_go_record *r, void *arg)
{
	(void)r;
	(*(size_t *)arg)++;
}

struct heap {
	struct go_image image;
	struct alloc_go_heap *g;
	struct told told;
};

static void make(struct heap *h, unsigned counts_bytes, unsigned cycle_shift)
{
	go_image_init(&h->image, counts_bytes, cycle_shift, 16 << 20);
	h->g = alloc_go_heap_new(&h->image.at, index_of_nothing, 0);
	alloc_go_charge(h->g, 0);
}

static void done(struct heap *h)
{
	alloc_go_heap_free(h->g);
	go_image_done(&h->image);
}

static int read_heap(struct heap *h)
{
	h->told = (struct told){0};
	h->image.n_reads = 0;
	return alloc_go_read(h->g, runtime_go_heap_walk, &h->image.memory, on_record, &h->told);
}

static uint64_t bucket_a(struct heap *h, uint64_t size)
{
	return go_bucket(&h->image, stack_a, 3, size);
}

/* ---- tests ---- */

static const struct {
	unsigned counts_bytes, cycle_shift;
} layouts[] = {{32, 0}, {32, 1}, {16, 1}}; /* Go 1.18; 1.19; 1.27 */

/*
 * Go counts allocations of cycle c in future[(c + 2) % 3] of the bucket, and what the sweep of
 * cycle c frees in future[(c + 1) % 3].
 */
static void a_life_of_a_profile(void **state)
{
	struct heap h;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(layouts); k++) {
		uint64_t a, b;

		make(&h, layouts[k].counts_bytes, layouts[k].cycle_shift);
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.n, 0);
		a = bucket_a(&h, 1024);
		go_set_cycle(&h.image, 4, true);
		go_count(&h.image, a, 0, 10, 4);
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.alloc[0], 10 * 1024); /* new since the last read */
		assert_int_equal(h.told.live[0], 6 * 1024);
		assert_int_equal(h.told.objects[0], 6);
		/* New objects: they are allocated, but not live as of the last collection. */
		go_count(&h.image, a, 1 + (4 + 2) % 3, 5, 0);
		b = go_bucket(&h.image, stack_b, 1, 100);
		go_count(&h.image, b, 1 + (4 + 2) % 3, 3, 0);
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.alloc[0], 5 * 1024);
		assert_int_equal(h.told.alloc[1], 300);
		assert_int_equal(h.told.live[0], 6 * 1024);
		assert_int_equal(h.told.live[1], 0);
		/*
		 * Two collections later the objects are live, even before the cycle's counts are
		 * added to the active ones.
		 */
		go_set_cycle(&h.image, 6, false);
		for (unsigned flushed = 0; flushed < 2; flushed++) {
			assert_int_equal(read_heap(&h), 0);
			assert_int_equal(h.told.alloc[0] + h.told.alloc[1], 0);
			assert_int_equal(h.told.live[0], 11 * 1024);
			assert_int_equal(h.told.live[1], 300);
			go_flush(&h.image, a, 6);
			go_flush(&h.image, b, 6);
			go_set_cycle(&h.image, 6, true);
		}
		go_count(&h.image, a, 1 + (6 + 1) % 3, 0, 11);
		go_flush(&h.image, a, 6 + 1);
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.live[0], 0);
		assert_int_equal(h.told.n, 1);
		done(&h);
	}
}

static void what_was_before_is_nobody_s(void **state)
{
	struct heap h;
	uint64_t a;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	go_count(&h.image, a, 0, 7, 2);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0], 0);
	assert_int_equal(h.told.live[0], 5 * 64);
	go_count(&h.image, a, 2, 1, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0], 64);
	done(&h);
}

/* If no target asks for mem-alloc for a while, allocations of that time are not reported. */
static void what_was_meanwhile_is_nobody_s(void **state)
{
	struct heap h;
	uint64_t a, b;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	assert_int_equal(read_heap(&h), 0);
	go_count(&h.image, a, 0, 7, 2);
	b = go_bucket(&h.image, stack_b, 1, 100);
	go_count(&h.image, b, 0, 3, 0);
	alloc_go_begin_anew(h.g);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0] + h.told.alloc[1], 0);
	assert_int_equal(h.told.live[0], 5 * 64);
	go_count(&h.image, a, 2, 1, 0);
	go_count(&h.image, b, 2, 1, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0], 64);
	assert_int_equal(h.told.alloc[1], 100);
	done(&h);
}

static void before_the_first_collection_all_is_live(void **state)
{
	struct heap h;
	uint64_t a;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	go_count(&h.image, a, 3, 7, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.live[0], 7 * 64);
	done(&h);
}

/*
 * Go samples these objects with the probabilities 1 - exp(-1) = 0.63212 and 1 - exp(-1/16) =
 * 0.060587. So each sample counts for the bytes of its object, divided by this.
 */
static void samples_stand_for_more(void **state)
{
	struct heap h;
	uint64_t a, b;

	(void)state;
	make(&h, 32, 1);
	*go_word(&h.image, GO_RATE) = 524288;
	a = bucket_a(&h, 524288);
	b = go_bucket(&h.image, stack_b, 1, 32768);
	go_count(&h.image, a, 0, 1, 0);
	go_count(&h.image, b, 0, 1, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.live[0], 829411);
	assert_int_equal(h.told.objects[0], 1);
	assert_int_equal(h.told.live[1], 540842);
	assert_int_equal(h.told.objects[1], 16);
	done(&h);
}

static void off_is_told(void **state)
{
	struct heap h;

	(void)state;
	make(&h, 32, 1);
	*go_word(&h.image, GO_RATE) = 0;
	assert_int_equal(read_heap(&h), -ENODATA);
	*go_word(&h.image, GO_RATE) = UINT64_MAX;
	assert_int_equal(read_heap(&h), -EBADMSG);
	done(&h);
}

/* ---- changes during a read ---- */

static uint64_t changed;
static size_t change_at;

static void flush_once(struct go_image *i, size_t n_reads)
{
	if (n_reads == change_at)
		go_flush(i, changed, 3);
}

/* The flush may come before any read of memory. Each object counts as live once. */
static void a_flush_while_it_is_read(void **state)
{
	struct heap h;

	(void)state;
	for (change_at = 1; change_at < 20; change_at++) {
		make(&h, 32, 1);
		go_set_cycle(&h.image, 3, false);
		changed = bucket_a(&h, 64);
		go_count(&h.image, changed, 0, 1, 0);
		go_count(&h.image, changed, 1, 2, 0);
		h.image.before = flush_once;
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.live[0], 3 * 64);
		done(&h);
	}
}

static uint64_t swept[2];

static void sweep_once(struct go_image *i, size_t n_reads)
{
	for (size_t k = 0; n_reads == change_at && k < 2; k++)
		go_flush(i, swept[k], 3 + 1);
}

/*
 * At its end, runtime.GC() adds past frees to the active counts. The agent must report these frees
 * for all stacks or for none.
 */
static void a_sweep_while_it_is_read(void **state)
{
	struct heap h;
	bool before = false, after = false;

	(void)state;
	for (change_at = 1; change_at < 24; change_at++) {
		make(&h, 32, 1);
		go_set_cycle(&h.image, 3, true);
		swept[0] = bucket_a(&h, 64);
		h.image.used += 64 << 10; /* so that no read has both buckets */
		swept[1] = go_bucket(&h.image, stack_b, 1, 64);
		for (size_t k = 0; k < 2; k++) {
			go_count(&h.image, swept[k], 0, 2, 0);
			go_count(&h.image, swept[k], 1 + (3 + 1) % 3, 0, 1);
		}
		h.image.before = sweep_once;
		assert_int_equal(read_heap(&h), 0);
		assert_int_equal(h.told.live[0], h.told.live[1]);
		before |= h.told.live[0] == 2 * 64;
		after |= h.told.live[0] == 64;
		done(&h);
	}
	assert_true(before && after);
}

static void collect_each_time(struct go_image *i, size_t n_reads)
{
	go_set_cycle(i, (uint32_t)n_reads, false);
}

static void no_snapshot_of_what_always_changes(void **state)
{
	struct heap h;

	(void)state;
	make(&h, 32, 1);
	go_count(&h.image, bucket_a(&h, 64), 0, 1, 0);
	h.image.before = collect_each_time;
	assert_int_equal(read_heap(&h), -EAGAIN);
	assert_int_equal(h.told.n, 0);
	h.image.before = NULL;
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.live[0], 64);
	done(&h);
}

/* The agent reads after Go has counted the objects and before Go has counted their bytes. */
static void half_counted(void **state)
{
	struct heap h;
	uint64_t a;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	go_count(&h.image, a, 0, 1, 0);
	go_word(&h.image, a)[6 + 3 + 2] -= 1;
	assert_int_equal(read_heap(&h), -EAGAIN);
	assert_int_equal(h.told.n, 0);
	done(&h);
}

/*
 * If objects were counted twice at first, the agent reports too much. Later it reports less, so
 * that the sum becomes right.
 */
static void sums_come_right(void **state)
{
	struct heap h;
	uint64_t a;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	go_count(&h.image, a, 0, 5, 0);
	assert_int_equal(read_heap(&h), 0);
	go_count(&h.image, a, 0, (uint64_t)-2, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0], 0);
	go_count(&h.image, a, 0, 3, 0);
	assert_int_equal(read_heap(&h), 0);
	assert_int_equal(h.told.alloc[0], 64);
	done(&h);
}

/* ---- hostile profiles ---- */

static void nothing_else_is_taken_for_a_bucket(void **state)
{
	static const struct {
		size_t word;
		uint64_t value;
	} cases[] = {
		{2, 0},	      {2, 2},	       {3, 0}, {3, 1},		 {4, 0},
		{4, 1024},    {4, UINT64_MAX}, {5, 4}, {5, 2},		 {5, 1101},
		{5, 1 << 29}, {5, UINT64_MAX}, {1, 3}, {1, GO_BASE - 8}, {1, UINT64_MAX - 7},
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		struct heap h;
		uint64_t a;
		int r;

		make(&h, 32, 1);
		a = bucket_a(&h, 64);
		go_count(&h.image, a, 0, 1, 0);
		go_word(&h.image, a)[cases[k].word] = cases[k].value;
		r = read_heap(&h);
		assert_true(r == -EBADMSG || r == -EFAULT);
		assert_int_equal(h.told.n, 0);
		done(&h);
	}
}

static void a_list_that_bites_its_tail(void **state)
{
	struct heap h;
	uint64_t a;

	(void)state;
	make(&h, 32, 1);
	a = bucket_a(&h, 64);
	for (uint64_t size = 65; size < 70; size++)
		bucket_a(&h, size);
	go_word(&h.image, a)[1] = *go_word(&h.image, GO_BUCKETS);
	assert_int_equal(read_heap(&h), -EBADMSG);
	assert_int_equal(read_heap(&h), -EBADMSG);
	assert_int_equal(h.told.n, 0);
	done(&h);
}

static void counts_that_cannot_be(void **state)
{
	static const uint64_t counts[][2] = {{1, 2}, {UINT64_MAX, 0}, {1ull << 60, 0}};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(counts); k++) {
		struct heap h;

		make(&h, 16, 1);
		go_count(&h.image, bucket_a(&h, 1024), 0, counts[k][0], counts[k][1]);
		assert_int_equal(read_heap(&h), -EBADMSG);
		assert_int_equal(h.told.n, 0);
		done(&h);
	}
}

static void so_many_and_no_more(void **state)
{
	struct heap h;
	uint64_t a = 0;

	(void)state;
	make(&h, 16, 1);
	for (uint64_t size = 1; size <= 70000; size++) {
		a = bucket_a(&h, size);
		go_count(&h.image, a, 0, 1, 0);
	}
	assert_int_equal(read_heap(&h), -E2BIG);
	assert_int_equal(h.told.n, 65536);
	go_count(&h.image, a, 0, 1, 0);
	assert_int_equal(read_heap(&h), -E2BIG);
	assert_int_equal(h.told.alloc[0], 70000);
	bucket_a(&h, 70001);
	assert_int_equal(read_heap(&h), -E2BIG);
	assert_int_equal(h.told.n, 65536);
	h.image.memory.budget_bytes = 100000;
	assert_int_equal(read_heap(&h), -E2BIG);
	assert_int_equal(h.told.n, 0);
	done(&h);
}

/*
 * Programs of many namespaces have large profiles. What the agent keeps of all of them stays within
 * the limit of memory, and there is room for a program that comes late.
 */
static void all_programs_share(void **state)
{
	enum { N_HEAPS = 8, DEPTH = 500, N_BUCKETS = 4000, WORDS = DEPTH + 5 };
	uint64_t stack[DEPTH];
	struct heap h[N_HEAPS];
	size_t n_all = 0, n_told = 0;

	(void)state;
	for (size_t i = 0; i < DEPTH; i++)
		stack[i] = 0x7f0000000000 + 16 * i;
	go_image_init(&h[0].image, 16, 1, (N_BUCKETS + 1) * (48 + 8 * DEPTH + 64));
	for (uint64_t size = 1; size <= N_BUCKETS; size++)
		go_count(&h[0].image, go_bucket(&h[0].image, stack, DEPTH, size), 0, 1, 0);
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < N_HEAPS; i++) {
			h[i].g = alloc_go_heap_new(&h[0].image.at, index_of_nothing, 0);
			alloc_go_charge(h[i].g, i + 1);
			n_told = 0;
			(void)alloc_go_read(h[i].g, runtime_go_heap_walk, &h[0].image.memory,
					    count_record, &n_told);
			assert_true(n_told > 100);
			n_all += n_told;
		}
		/* without a limit, the agent would keep 16,000,000 words */
		assert_true(n_all * WORDS < 8u << 20);
		for (size_t i = 0; i < N_HEAPS; i++)
			h[i].g = alloc_go_heap_free(h[i].g);
		n_all = 0;
	}
	done(&h[0]);
}

/* Returns how many stacks the agent keeps of a program of a namespace. */
static size_t keep(struct alloc_go_heap **ret, struct go_image *image, uint64_t ns)
{
	size_t n_told = 0;

	*ret = alloc_go_heap_new(&image->at, index_of_nothing, 0);
	alloc_go_charge(*ret, ns);
	(void)alloc_go_read(*ret, runtime_go_heap_walk, &image->memory, count_record, &n_told);
	return n_told;
}

/*
 * Many programs of a namespace have large profiles. The agent keeps the whole profile of a program
 * of another namespace, which comes last, and knows whose profiles it has cut.
 */
static void heaps_of_one_namespace_leave_room(void **state)
{
	enum { GREEDY = 1, VICTIM, N_HEAPS = 8, DEPTH = 500, N_BUCKETS = 1500 };
	struct alloc_go_heap *greedy[N_HEAPS], *victim;
	struct shares refused = {0};
	struct go_image image = {0};
	uint64_t stack[DEPTH];

	(void)state;
	alloc_go_refused(&refused); /* those of other tests */
	shares_done(&refused);
	for (size_t i = 0; i < DEPTH; i++)
		stack[i] = 0x7f0000000000 + 16 * i;
	go_image_init(&image, 16, 1, (N_BUCKETS + 1) * (48 + 8 * DEPTH + 64));
	for (uint64_t size = 1; size <= N_BUCKETS; size++)
		go_count(&image, go_bucket(&image, stack, DEPTH, size), 0, 1, 0);
	for (size_t i = 0; i < N_HEAPS; i++)
		(void)keep(&greedy[i], &image, GREEDY);
	alloc_go_refused(&refused);
	assert_int_equal(shares_most(&refused, 0), GREEDY);
	shares_done(&refused);
	assert_int_equal(keep(&victim, &image, VICTIM), N_BUCKETS);
	alloc_go_refused(&refused);
	assert_int_equal(refused.all, 0);
	alloc_go_heap_free(victim);
	for (size_t i = 0; i < N_HEAPS; i++)
		alloc_go_heap_free(greedy[i]);
	go_image_done(&image);
}

static int set_up(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd;
	static const char *const none[] = {NULL};

	(void)state;
	if (parse_elf_to_index(fd, none, 64 << 20, &memfd) != PARSE_OK)
		return -1;
	close(fd);
	return elf_index_open(memfd, &index_of_nothing);
}

static int tear_down(void **state)
{
	(void)state;
	elf_index_unref(index_of_nothing);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_life_of_a_profile),
		cmocka_unit_test(what_was_before_is_nobody_s),
		cmocka_unit_test(what_was_meanwhile_is_nobody_s),
		cmocka_unit_test(before_the_first_collection_all_is_live),
		cmocka_unit_test(samples_stand_for_more),
		cmocka_unit_test(off_is_told),
		cmocka_unit_test(a_flush_while_it_is_read),
		cmocka_unit_test(a_sweep_while_it_is_read),
		cmocka_unit_test(no_snapshot_of_what_always_changes),
		cmocka_unit_test(half_counted),
		cmocka_unit_test(sums_come_right),
		cmocka_unit_test(nothing_else_is_taken_for_a_bucket),
		cmocka_unit_test(a_list_that_bites_its_tail),
		cmocka_unit_test(counts_that_cannot_be),
		cmocka_unit_test(so_many_and_no_more),
		cmocka_unit_test(all_programs_share),
		cmocka_unit_test(heaps_of_one_namespace_leave_room),
	};

	return cmocka_run_group_tests_name("heap profiles of Go", tests, set_up, tear_down);
}
