// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts of GPU memory events: memory that ends with its context, how often a primary context was
 * retained, and what queries tell of contexts that were made before the probes came.
 */
#include "node/probe/gpu_scene_test.h"

#include <sys/mman.h>

static uint64_t at[8];

/* ---- contexts ---- */

static uint64_t contexts[2];

IN_SECTION(pf_short) static void allocate_on_first(void)
{
	status = cu_ctx_create(&contexts[0], 0, 3);
	status = cu_mem_alloc(&at[0], 1000);
}

IN_SECTION(pf_long) static void allocate_on_second(void)
{
	status = cu_ctx_create(&contexts[1], 0, 5);
	status = cu_mem_alloc(&at[1], 500);
}

/* Memory of a pool and of a handle belongs to no context. */
IN_SECTION(pf_long) static void allocate_without_context(void)
{
	status = cu_mem_alloc_async(&at[4], 40, 0);
	status = cu_mem_create(&at[5], 6, on_device);
}

/* No context of this thread is known. */
static void *allocate_where_nothing_is_known(void *arg)
{
	status = cu_mem_alloc(&at[2], 7);
	return arg;
}

IN_SECTION(pf_loop) static void body_contexts(struct truth *t)
{
	pthread_t other;

	say_and_wait(t, 1);
	status = cu_init(0);
	allocate_on_first();
	allocate_on_second();
	say_and_wait(t, 3);
	status = cu_ctx_destroy(contexts[0]);
	say_and_wait(t, 4);
	pthread_create(&other, NULL, allocate_where_nothing_is_known, NULL);
	pthread_join(other, NULL);
	say_and_wait(t, 5);
	status = cu_ctx_destroy(0xbad); /* the probes have not seen how this context was made */
	status = cu_mem_alloc(&at[3], 20);
	allocate_without_context();
	say_and_wait(t, 6);
	status = cu_ctx_destroy(contexts[1]);
	say_and_wait(t, 7);
}

/* Memory whose context may have ended is not in the snapshot, and counts as lost. */
static void memory_ends_with_its_context(void **state)
{
	uint64_t before = lost("gpu_context");
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_contexts, HBM_ALLOC | HBM_INUSE);
	go(&s, 3);
	assert_int_equal(s.w.inuse.in_short, 1000);
	assert_int_equal(s.w.inuse.in_long, 500);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 500);
	assert_int_equal(s.w.labels.mask, 1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_CONTEXT);
	assert_int_equal(s.w.labels.numbers[LABEL_GPU_DEVICE], 5);
	assert_int_equal(s.w.labels.numbers[LABEL_GPU_CONTEXT], 0xc0ffef00);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 507);
	assert_int_equal(lost("gpu_context"), before);
	go(&s, 6);
	assert_int_equal(s.w.inuse.bytes, 500 + 20 + 46);
	assert_int_equal(n_held(&s), 4);
	assert_int_equal(lost("gpu_context") - before, 1);
	go(&s, 7);
	assert_int_equal(s.w.inuse.bytes, 46);
	assert_int_equal(n_held(&s), 2);
	gpu_close(&s);
}

/* Without hbm-inuse there is no snapshot, but drains still remove contexts that have ended. */
static void ended_contexts_are_forgotten_without_a_snapshot(void **state)
{
	struct scene s = {};
	unsigned n;

	(void)state;
	gpu_open(&s, body_contexts, HBM_ALLOC);
	go(&s, 3);
	n = n_objects(&s);
	go(&s, 4);
	assert_int_equal(n_objects(&s), n - 1);
	gpu_close(&s);
}

/* ---- how often a primary context was retained ---- */

static void begin_in_primary(void)
{
	uint64_t context;

	status = cu_init(0);
	status = cu_primary_retain(&context, 0);
	status = cu_ctx_set_current(context);
	status = cu_mem_alloc(&at[0], 1000);
}

IN_SECTION(pf_loop) static void body_primary(struct truth *t)
{
	say_and_wait(t, 1);
	begin_in_primary();
	say_and_wait(t, 3);
	status = cu_primary_release(0);
	say_and_wait(t, 4);
}

/*
 * A file with the name of a device is open, as if cuInit was called before the probes were
 * attached. So the cuInit that the probes see is not the first one.
 */
IN_SECTION(pf_loop) static void body_used_before(struct truth *t)
{
	(void)memfd_create("/nvidiactl", 0);
	body_primary(t);
}

static void only_a_process_that_is_seen_from_the_start_ends_its_context(void **state)
{
	uint64_t before = lost("gpu_context");
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_primary, HBM_ALLOC | HBM_INUSE);
	go(&s, 3);
	assert_int_equal(s.w.inuse.bytes, 1000);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 0);
	assert_int_equal(lost("gpu_context"), before);
	gpu_close(&s);
	s = (struct scene){};
	gpu_open(&s, body_used_before, HBM_ALLOC | HBM_INUSE);
	go(&s, 3);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 1000);
	assert_int_equal(lost("gpu_context") - before, 1);
	gpu_close(&s);
}

#define RETAINERS 4

static void *retain_often(void *arg)
{
	uint64_t context;

	for (int i = 0; i < 2000; i++) {
		status = cu_primary_retain(&context, 0);
		status = cu_primary_release(0);
	}
	return arg;
}

IN_SECTION(pf_loop) static void body_retainers(struct truth *t)
{
	pthread_t threads[RETAINERS];

	say_and_wait(t, 1);
	begin_in_primary();
	for (size_t i = 0; i < RETAINERS; i++)
		pthread_create(&threads[i], NULL, retain_often, NULL);
	for (size_t i = 0; i < RETAINERS; i++)
		pthread_join(threads[i], NULL);
	say_and_wait(t, 3);
	status = cu_primary_release(0);
	say_and_wait(t, 4);
}

static void threads_that_retain_at_once_count_each(void **state)
{
	uint64_t before = lost("gpu_context");
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_retainers, HBM_ALLOC | HBM_INUSE);
	go(&s, 3);
	assert_int_equal(s.w.inuse.bytes, 1000);
	go(&s, 4);
	assert_int_equal(s.w.inuse.bytes, 0);
	assert_int_equal(lost("gpu_context"), before);
	gpu_close(&s);
}

/* ---- attached again ---- */

IN_SECTION(pf_loop) static void body_again(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step += 2) {
		status = cu_ctx_set_current(PRIMARY);
		status = cu_mem_alloc(&at[0], 10);
		say_and_wait(t, step);
		status = cu_mem_alloc(&at[0], 10);
		say_and_wait(t, step + 1);
	}
}

/* What happened while there were no probes is not known. */
static void a_detach_forgets_which_context_is_current(void **state)
{
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_again, HBM_ALLOC);
	go(&s, 3);
	assert_int_equal(s.w.labels.numbers[LABEL_GPU_CONTEXT], PRIMARY);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(scene_attach(&s, HBM_ALLOC), 0);
	go(&s, 4);
	assert_int_equal(s.w.labels.mask, 0);
	go(&s, 5);
	assert_int_equal(s.w.labels.mask, 1u << LABEL_GPU_CONTEXT);
	go(&s, 6);
	assert_int_equal(s.w.labels.numbers[LABEL_GPU_CONTEXT], PRIMARY);
	gpu_close(&s);
}

/* ---- queries ---- */

#define BEFORE	    0xa000 /* a context that was made before the probes came */
#define AFTER	    0xb000
#define CONTEXT_IS  (1u << LABEL_GPU_CONTEXT)
#define BOTH_ARE    (CONTEXT_IS | 1u << LABEL_GPU_DEVICE)
#define QUERIES_MAX 1000 /* as QUERY_HITS_MAX of the sources */

static uint64_t context_told;
static int device_told;

static void allocate_more(struct truth *t, uint32_t step)
{
	status = cu_mem_alloc(&at[0], 10);
	say_and_wait(t, step);
}

IN_SECTION(pf_loop) static void body_queries(struct truth *t)
{
	true_context = BEFORE;
	true_device = 2;
	say_and_wait(t, 1);
	fails = true;
	status = cu_ctx_get_current(&context_told);
	allocate_more(t, 3);
	status = cu_ctx_get_current(&context_told);
	fails = true;
	status = cu_ctx_get_device(&device_told);
	allocate_more(t, 4);
	status = cu_ctx_get_device(&device_told);
	allocate_more(t, 5);
	true_context = AFTER; /* by a call that no probe sees */
	true_device = 6;
	status = cu_ctx_get_device(&device_told);
	allocate_more(t, 6);
	status = cu_ctx_get_current(&context_told);
	allocate_more(t, 7);
	status = cu_ctx_get_device(&device_told);
	allocate_more(t, 8);
	true_context = 0;
	status = cu_ctx_get_current(&context_told);
	allocate_more(t, 9);
}

/*
 * Queries show which context is current, and of which device it is. If a query contradicts what the
 * probes know, they forget it, so the next allocation has no labels.
 */
static void queries_tell_of_contexts_from_before(void **state)
{
	static const struct {
		unsigned labels;
		uint64_t context, device;
	} steps[] = {
		{0, 0, 0}, {CONTEXT_IS, BEFORE, 0}, {BOTH_ARE, BEFORE, 2},
		{0, 0, 0}, {CONTEXT_IS, AFTER, 0},  {BOTH_ARE, AFTER, 6},
		{0, 0, 0},
	};
	struct scene s = {};

	(void)state;
	if (mode_at_most == UPROBE_SINGLE) /* has no queries */
		skip();
	gpu_open(&s, body_queries, HBM_ALLOC);
	for (uint32_t i = 0; i < ARRAY_SIZE(steps); i++) {
		go(&s, 3 + i);
		assert_int_equal(s.w.labels.mask, steps[i].labels);
		assert_int_equal(s.w.labels.numbers[LABEL_GPU_CONTEXT], steps[i].context);
		assert_int_equal(s.w.labels.numbers[LABEL_GPU_DEVICE], steps[i].device);
	}
	gpu_close(&s);
}

IN_SECTION(pf_loop) static void body_many_queries(struct truth *t)
{
	true_context = BEFORE;
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		for (int i = 0; i < QUERIES_MAX; i++)
			status = cu_ctx_get_current(&context_told);
		allocate_more(t, step);
	}
}

/* A program may query its context all the time. Then the probes of queries are removed. */
static void many_queries_are_probed_no_longer(void **state)
{
	struct probes_refused refused = {};
	struct scene s = {};
	uint64_t hits;

	(void)state;
	if (mode_at_most == UPROBE_SINGLE) /* has no queries */
		skip();
	gpu_open(&s, body_many_queries, HBM_ALLOC | HBM_INUSE);
	assert_false(probes_attached_queried(s.a));
	go(&s, 3);
	assert_true(probes_attached_queried(s.a));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			probes_attach_change(s.p, s.a, &s.probed.proc, &s.probed.file, 1, &refused),
			0);
		assert_false(probes_attached_queried(s.a));
	}
	hits = kernel_entry(&s).hits;
	go(&s, 4);
	assert_true(kernel_entry(&s).hits < hits + 100); /* hits of the allocation's probes only */
	assert_int_equal(s.w.inuse.bytes, 20);
	assert_int_equal(s.w.labels.mask, CONTEXT_IS);
	gpu_close(&s);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_ends_with_its_context),
		cmocka_unit_test(ended_contexts_are_forgotten_without_a_snapshot),
		cmocka_unit_test(only_a_process_that_is_seen_from_the_start_ends_its_context),
		cmocka_unit_test(threads_that_retain_at_once_count_each),
		cmocka_unit_test(a_detach_forgets_which_context_is_current),
		cmocka_unit_test(queries_tell_of_contexts_from_before),
		cmocka_unit_test(many_queries_are_probed_no_longer),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
