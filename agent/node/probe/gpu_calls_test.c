// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory events in odd calls: driver functions that call each other, a handle that is used
 * again, a call that lasts, arrays that cannot be understood. Functions of this program stand in
 * for the CUDA driver.
 */
#include "node/probe/gpu_scene_test.h"

#define HBM	       (HBM_ALLOC | HBM_INUSE)
#define PIECE	       (2ull << 20)
#define NO_KIND_FORMAT 0x60 /* not a value of enum CUarray_format */

/* ---- the driver ---- */

static struct truth *truth;

/* Calls cu_mem_alloc(), as some functions of drivers call each other. Inner calls do not count. */
IN_SECTION(pf_driver) static int cu_alloc_managed(uint64_t *ret, uint64_t bytes)
{
	uint64_t inner;

	return cu_mem_alloc(&inner, bytes + 1) + cu_mem_alloc(ret, bytes);
}

/* Returns two drains after its call. */
IN_SECTION(pf_driver) static int cu_alloc_slow(uint64_t *ret, uint64_t bytes)
{
	say_and_wait(truth, 3);
	say_and_wait(truth, 4);
	return cu_mem_alloc(ret, bytes);
}

/*
 * Frees the memory, and returns only when another thread has got new memory with the same handle.
 */
IN_SECTION(pf_driver) static int cu_release_slow(uint64_t handle)
{
	say_and_wait(truth, 3);
	return !handle;
}

IN_SECTION(pf_driver) static int cu_array(uint64_t *ret, const void *descriptor)
{
	*ret = next_address++;
	return !descriptor;
}

IN_SECTION(pf_driver) static int cu_mipmap(uint64_t *ret, const void *descriptor, unsigned levels)
{
	*ret = next_address++;
	return !descriptor || levels > 1000000;
}

/* Stores no address, because the argument points to nothing. */
IN_SECTION(pf_driver) static int cu_alloc_nowhere(const uint64_t *ret, uint64_t bytes)
{
	return !ret || !bytes;
}

/* Begins to free the memory, waits, and fails the first time. */
IN_SECTION(pf_driver) static int cu_free_slow(uint64_t address)
{
	static int n_calls;

	say_and_wait(truth, 3 + 2 * (uint32_t)n_calls);
	return n_calls++ == 0 || !address;
}

static void calls_open(struct scene *s, body_fn *body)
{
	struct probed *t = &s->probed;

	add_driver(t);
	add_entry(t, cu_alloc_managed, PF_SITE_GPU_ALLOC, 1, 2, 0);
	add_entry(t, cu_alloc_slow, PF_SITE_GPU_ALLOC, 1, 2, 0);
	add_entry(t, cu_release_slow, PF_SITE_GPU_RELEASE, 1, 0, 0);
	add_entry(t, cu_array, PF_SITE_GPU_ARRAY, 1, 2, 0);
	add_site(t, cu_mipmap,
		 (struct pf_site){.kind = PF_SITE_GPU_ARRAY,
				  .ptr_arg = 1,
				  .size_arg = 2,
				  .count_arg = 3,
				  .flags = PF_GPU_3D | PF_GPU_MIPMAP});
	add_entry(t, cu_alloc_nowhere, PF_SITE_GPU_ALLOC, 1, 2, 0);
	add_entry(t, cu_free_slow, PF_SITE_GPU_FREE, 1, 0, 0);
	gpu_open(s, body, HBM);
}

static uint64_t at[8];

IN_SECTION(pf_short) static void allocate(void)
{
	status = cu_mem_alloc(&at[0], 1000);
}

/* ---- calls inside calls, and calls that last ---- */

IN_SECTION(pf_loop) static void body_nested(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_alloc_managed(&at[0], 500);
	say_and_wait(t, 3);
	status = cu_mem_free(at[0]);
	allocate();
	say_and_wait(t, 4);
}

static void a_call_inside_another_one_does_not_count(void **state)
{
	struct scene s = {};

	(void)state;
	calls_open(&s, body_nested);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 1);
	assert_int_equal(s.w.alloc.bytes, 500);
	assert_int_equal(s.w.inuse.bytes, 500);
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 1500);
	assert_int_equal(s.w.inuse.bytes, 1000);
	gpu_close(&s);
}

IN_SECTION(pf_long) static void allocate_slowly(void)
{
	status = cu_alloc_slow(&at[0], 600);
}

IN_SECTION(pf_loop) static void body_slow(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	allocate_slowly();
	say_and_wait(t, 5);
}

/* The stack crossed to the agent in a drain before the one that has the sample. */
static void a_call_that_lasts_has_its_stack(void **state)
{
	static const unsigned events[] = {1u << EVENT_HBM_ALLOC, 1u << EVENT_HBM_INUSE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		struct scene s = {.set = PROBES_GPU_MEMORY};

		add_entry(&s.probed, cu_alloc_slow, PF_SITE_GPU_ALLOC, 1, 2, 0);
		scene_open(&s, body_slow, events[i], 1);
		go(&s, 3);
		go(&s, 4);
		go(&s, 5);
		assert_int_equal(s.w.alloc.in_long + s.w.inuse.in_long, 600);
		assert_int_equal(s.w.stackless, 0);
		gpu_close(&s);
	}
}

__attribute__((noinline)) static void allocate_deeper(void)
{
	volatile char room[4096] = {0};

	status = room[0];
	allocate();
	status = room[1];
}

IN_SECTION(pf_loop) static void body_changed(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	status = cu_release_slow(5);
	allocate_deeper();
	say_and_wait(t, 4);
}

/*
 * hbm-inuse is removed during a call that releases memory, so the return of this call is not probed
 * any more. Calls that the thread makes after it must not count as calls inside it.
 */
static void a_call_in_a_change_of_events_hides_no_other(void **state)
{
	struct probes_refused refused = {};
	struct scene s = {};

	(void)state;
	calls_open(&s, body_changed);
	go(&s, 3);
	s.probed.proc.event_mask = 1u << EVENT_HBM_ALLOC;
	assert_int_equal(
		probes_attach_change(s.p, s.a, &s.probed.proc, &s.probed.file, 1, &refused), 0);
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 1000);
	gpu_close(&s);
}

static void *create_again(void *arg)
{
	while (truth->ready != 3)
		nap(1);
	status = cu_mem_create(&at[1], 3 * PIECE, on_device);
	truth->ready = 4;
	return arg;
}

/* Two threads; the main one waits for the test while the other one creates. */
IN_SECTION(pf_loop) static void body_again(struct truth *t)
{
	pthread_t other;

	truth = t;
	say_and_wait(t, 1);
	status = cu_mem_create(&at[0], PIECE, on_device);
	pthread_create(&other, NULL, create_again, NULL);
	status = cu_release_slow(at[0]);
	pthread_join(other, NULL);
	say_and_wait(t, 5);
}

/* The handle is used again before the release has returned: the new memory stays. */
static void a_handle_that_is_used_again_is_new_memory(void **state)
{
	struct scene s = {};

	(void)state;
	calls_open(&s, body_again);
	go(&s, 5);
	assert_int_equal(s.w.alloc.bytes, 4 * PIECE);
	assert_int_equal(s.w.inuse.bytes, 3 * PIECE);
	gpu_close(&s);
}

static const struct {
	uint64_t width, height;
	uint32_t format, channels;
} known = {64, 64, 0x20, 4}, unknown = {64, 64, NO_KIND_FORMAT, 4};

IN_SECTION(pf_loop) static void body_format(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_array(&at[0], &known);
	status = cu_array(&at[1], &unknown);
	say_and_wait(t, 3);
}

static void an_array_of_an_unknown_format_is_counted(void **state)
{
	uint64_t before = lost("gpu_unseen");
	struct scene s = {};

	(void)state;
	calls_open(&s, body_format);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 64 * 64 * 16);
	assert_int_equal(lost("gpu_unseen") - before, 2); /* a sample of each event */
	gpu_close(&s);
}

static const struct {
	uint64_t width, height, depth;
	uint32_t format, channels, flags;
} small = {64, 16, 0, 1, 1, 0}; /* 64 * 16 elements of a byte */

IN_SECTION(pf_loop) static void body_levels(struct truth *t)
{
	static const unsigned levels[] = {0, 1, 3, 7, 8, 1000};

	say_and_wait(t, 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(levels); i++) {
		status = cu_mipmap(&at[0], &small, levels[i]);
		say_and_wait(t, 3 + i);
	}
}

/* Each level has half of the width and height of the one before, until both are 1. */
static void a_mipmap_has_the_bytes_of_its_levels(void **state)
{
	static const uint64_t bytes[] = {1024, 1024, 1024 + 256 + 64, 1367, 1367, 1367};
	struct scene s = {};
	uint64_t before = 0;

	(void)state;
	calls_open(&s, body_levels);
	for (uint32_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		go(&s, 3 + i);
		assert_int_equal(s.w.alloc.bytes - before, bytes[i]);
		before = s.w.alloc.bytes;
	}
	gpu_close(&s);
}

#define NOWHERE ((void *)8) /* no process has this address */

IN_SECTION(pf_loop) static void body_unreadable(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_array(&at[0], NOWHERE);
	say_and_wait(t, 3);
	status = cu_alloc_nowhere(NOWHERE, 500);
	say_and_wait(t, 4);
}

/* What a call asks for, or has given, cannot be read. */
static void what_cannot_be_read_is_counted(void **state)
{
	uint64_t before = lost("gpu_unseen");
	struct scene s = {};

	(void)state;
	calls_open(&s, body_unreadable);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n + s.w.inuse.n, 0);
	assert_int_equal(lost("gpu_unseen") - before, 2); /* a sample of each event */
	go(&s, 4);
	assert_int_equal(s.w.alloc.bytes, 500);
	assert_int_equal(s.w.inuse.n, 0);
	assert_int_equal(lost("gpu_unseen") - before, 3);
	gpu_close(&s);
}

IN_SECTION(pf_loop) static void body_frees(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	allocate();
	status = cu_free_slow(at[0]);
	say_and_wait(t, 4);
	status = cu_free_slow(at[0]);
	say_and_wait(t, 6);
}

/* Memory stops being in use when a call that frees it begins. If the call fails, it is again. */
static void a_free_counts_from_its_entry(void **state)
{
	struct scene s = {};

	(void)state;
	calls_open(&s, body_frees);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 1000);
	assert_int_equal(s.w.inuse.bytes, 0);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 1000);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 0);
	go(&s, 6);
	assert_int_equal(s.w.inuse.bytes, 0);
	gpu_close(&s);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_inside_another_one_does_not_count),
		cmocka_unit_test(a_call_that_lasts_has_its_stack),
		cmocka_unit_test(a_call_in_a_change_of_events_hides_no_other),
		cmocka_unit_test(a_handle_that_is_used_again_is_new_memory),
		cmocka_unit_test(an_array_of_an_unknown_format_is_counted),
		cmocka_unit_test(a_mipmap_has_the_bytes_of_its_levels),
		cmocka_unit_test(what_cannot_be_read_is_counted),
		cmocka_unit_test(a_free_counts_from_its_entry),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
