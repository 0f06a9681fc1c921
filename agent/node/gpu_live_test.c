/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm-alloc and hbm-inuse of a program that calls the stand-in CUDA driver (e2e/gpu), from the
 * search for the driver's entries to the drains: which function of the program allocated how many
 * bytes, and which of these bytes are in use. The program is e2e/gpu/memory_steps.c, and runs one
 * step of it after another.
 */
#include "node/testgpumemory.h"

static void begin(struct scene *s, const char *form)
{
	begin_of(s, "e2e/gpu/memory_steps.c", form);
}

/* ---- memory that calls give and free ---- */

static void check_linear(struct scene *s)
{
	run(s, "alloc");
	both(s, "with_alloc", 3, 6000);
	run(s, "old");
	both(s, "with_old", 2, 500 + 3 * 512);
	run(s, "pitch");
	both(s, "with_pitch", 1, 10 * 512);
	run(s, "managed");
	both(s, "with_managed", 1, 4096);
	run(s, "failure");
	both(s, "with_failure", 0, 0);
	alive(s, "with_alloc", 3, 6000);
	run(s, "freed");
	alive(s, "with_alloc", 2, 4000);
	all_alive(s, 4000);
	run(s, "threads");
	both(s, "with_thread_alloc", 1, 7000);
	alive(s, "with_alloc", 1, 1000);
	run(s, "thread_freed");
	run(s, "others");
	all_alive(s, 1000);
	allocated(s, "with_alloc", 3, 6000);
}

static void check_pools(struct scene *s)
{
	run(s, "pool");
	both(s, "with_pool", 3, 700 + 800 + 900);
	run(s, "pool_of_location");
	run(s, "pool_now_of_location");
	allocated(s, "with_pool_of_location", 1, 30);
	allocated(s, "with_pool_now_of_location", 1, 40);
	run(s, "pool_destroyed");
	alive(s, "with_pool", 3, 700 + 800 + 900);
	run(s, "pool_freed");
	alive(s, "with_pool", 1, 900);
}

static void check_arrays(struct scene *s)
{
	run(s, "arrays");
	both(s, "with_arrays", 5,
	     64 * 32 * 16 + 100 * 4 + 16 * 8 * 4 * 2 + 16 * 8 * 4 +
		     2 * (64 * 64 + 32 * 32 + 16 * 16));
	run(s, "arrays_freed");
	alive(s, "with_arrays", 1, 16 * 8 * 4);
}

static void check_handles(struct scene *s)
{
	run(s, "handles");
	allocated(s, "create", 0, 0);
	both(s, "with_handles", 4, 8 * MIB);
	run(s, "mapped");
	alive(s, "with_handles", 3, 6 * MIB);
	run(s, "unmapped");
	alive(s, "with_handles", 3, 6 * MIB);
	run(s, "unmapped_last");
	alive(s, "with_handles", 1, 2 * MIB);
}

/* ---- memory that ends with its context; pools and mapped memory belong to none ---- */

static void check_ends(struct scene *s)
{
	run(s, "second_context");
	run(s, "pushed");
	both(s, "with_pushed", 2, 101);
	run(s, "destroyed");
	alive(s, "with_pushed", 1, 1);
	alive(s, "with_alloc", 0, 0);
	alive(s, "with_arrays", 0, 0);
	alive(s, "with_second_context", 1, 4000);
	alive(s, "with_pool", 1, 900);
	alive(s, "with_handles", 1, 2 * MIB);
	run(s, "pool_freed_last");
	run(s, "retained_released");
	all_alive(s, 4001);
	run(s, "detached");
	all_alive(s, 4001);
	run(s, "detached_again");
	all_alive(s, 0);
}

static void check_primary(struct scene *s)
{
	run(s, "primary");
	both(s, "with_primary", 1, 10000);
	run(s, "reset");
	alive(s, "with_primary", 0, 0);
	both(s, "with_reset", 1, 20000);
	run(s, "green");
	both(s, "with_green", 1, 30000);
	run(s, "released"); /* the green context keeps the primary context */
	all_alive(s, 50000);
	run(s, "green_destroyed");
	all_alive(s, 0);
}

/* There must be no snapshot of a process that has ended. */
static void check_exit(struct scene *s)
{
	pid_t pid = s->p.pid;
	uint64_t last_ns = s->snapshot_ns;

	probed_end(&s->p);
	s->p.pid = pid; /* so that take_drain() finds samples of it */
	probes_live_ask(probes);
	take_drain(s);
	s->p.pid = 0;
	assert_int_equal(s->snapshot_ns, last_ns);
}

static void each_call_is_counted(void **state)
{
	struct scene s;

	begin(&s, *state);
	attach(&s, ALLOC | INUSE);
	run(&s, "init");
	run(&s, "context");
	check_linear(&s);
	check_pools(&s);
	check_arrays(&s);
	check_handles(&s);
	check_ends(&s);
	check_primary(&s);
	no_loss(&s);
	check_exit(&s);
	probed_close(&s.p);
}

/* ---- each event alone ---- */

static void allocations_alone_are_counted(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	attach(&s, ALLOC);
	run(&s, "init");
	run(&s, "context");
	run(&s, "alloc");
	run(&s, "freed");
	allocated(&s, "with_alloc", 3, 6000);
	alive(&s, "with_alloc", 0, 0);
	assert_int_equal(s.snapshot_ns, 0);
	probed_close(&s.p);
}

static void memory_in_use_alone_is_known(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	attach(&s, INUSE);
	run(&s, "init");
	run(&s, "context");
	run(&s, "alloc");
	run(&s, "threads");
	alive(&s, "with_alloc", 2, 3000);
	allocated(&s, "with_alloc", 0, 0);
	probed_close(&s.p);
}

/* ---- labels ---- */

#define DEVICE	(1u << LABEL_GPU_DEVICE)
#define CONTEXT (1u << LABEL_GPU_CONTEXT)
#define STREAM	(1u << LABEL_GPU_STREAM)

static void labels_are(struct scene *s, const char *step, unsigned mask, uint64_t device)
{
	_cleanup_free_ char *function = xasprintf("with_%s", step);
	const struct raw_labels *l = &function_of(s, function)->labels;

	run(s, step);
	assert_int_equal(l->mask, mask);
	assert_int_equal(l->numbers[LABEL_GPU_DEVICE], device);
}

static void the_device_context_and_stream_are_labels(void **state)
{
	uint64_t first, streams[2] = {};
	struct function *f;
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	attach(&s, ALLOC | INUSE);
	run(&s, "init");
	run(&s, "context");
	run(&s, "alloc");
	f = function_of(&s, "with_alloc");
	assert_int_equal(f->labels.mask, DEVICE | CONTEXT);
	assert_int_equal(f->labels.numbers[LABEL_GPU_DEVICE], 0);
	first = f->labels.numbers[LABEL_GPU_CONTEXT];
	assert_true(first > 4096);

	run(&s, "pool");
	assert_int_equal(s.n_labels, 3);
	for (size_t i = 0; i < s.n_labels; i++) {
		const struct raw_labels *l = &s.labels[i];
		uint64_t stream = l->numbers[LABEL_GPU_STREAM];

		assert_int_equal(l->mask, DEVICE | CONTEXT | STREAM);
		assert_int_equal(l->numbers[LABEL_GPU_CONTEXT], first);
		if (stream == 2) /* the thread's own stream: only the allocation of 800 bytes */
			assert_int_equal(l->numbers[LABEL_GPU_DEVICE], 0);
		else
			streams[l->numbers[LABEL_GPU_DEVICE] != 0] = stream;
	}
	assert_true(streams[0] > 4096); /* the pool of device 1 is used in the same stream */
	assert_int_equal(streams[1], streams[0]);
	labels_are(&s, "pool_of_location", DEVICE | CONTEXT | STREAM, 1);
	labels_are(&s, "pool_now_of_location", DEVICE | CONTEXT | STREAM, 1);

	run(&s, "second_context");
	f = function_of(&s, "with_second_context");
	assert_int_equal(f->labels.numbers[LABEL_GPU_DEVICE], 1);
	assert_true(f->labels.numbers[LABEL_GPU_CONTEXT] != first);
	probed_close(&s.p);
}

/* ---- contexts from before the probes came ---- */

/*
 * The context of the thread is not known. So memory of the thread may belong to a context that
 * ends, and this loss must be reported.
 */
static void memory_of_an_unknown_context_may_end(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	assert_true(dprintf(s.p.to, "init\ncontext\nsecond_context\n") > 0);
	probed_await(&s.p, "second_context");
	attach(&s, ALLOC | INUSE);
	run(&s, "alloc");
	both(&s, "with_alloc", 3, 6000);
	assert_int_equal(function_of(&s, "with_alloc")->labels.mask, 0);
	no_loss(&s);
	run(&s, "destroyed");
	all_alive(&s, 0);
	assert_int_equal(s.lost[EVENT_HBM_INUSE], 3);
	assert_int_equal(s.lost[EVENT_HBM_ALLOC], 0);
	probed_close(&s.p);
}

/*
 * Once the program has called a query, the memory that it then allocates has labels, and is known
 * to end with its context.
 */
static void a_query_tells_the_context_and_its_device(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	assert_true(dprintf(s.p.to, "init\ncontext\nsecond_context\n") > 0);
	probed_await(&s.p, "second_context");
	attach(&s, ALLOC | INUSE);
	labels_are(&s, "alloc", 0, 0);
	labels_are(&s, "current_queried", CONTEXT, 0);
	labels_are(&s, "device_queried", DEVICE | CONTEXT, 1);
	labels_are(&s, "first_queried", DEVICE | CONTEXT, 0);
	all_alive(&s, 6000 + 50 + 60 + 80);
	run(&s, "destroyed"); /* ends the first context, which may own the memory of "alloc" */
	all_alive(&s, 50 + 60);
	assert_int_equal(s.lost[EVENT_HBM_INUSE], 3);
	run(&s, "detached");
	all_alive(&s, 50 + 60);
	run(&s, "detached_again");
	all_alive(&s, 0);
	probed_close(&s.p);
}

/* The context was retained before the probes came, so its memory may still be in use. */
static void a_release_of_an_unknown_context_is_told(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, "thunk");
	assert_true(dprintf(s.p.to, "init\nprimary\n") > 0);
	probed_await(&s.p, "primary");
	attach(&s, ALLOC | INUSE);
	run(&s, "primary");
	both(&s, "with_primary", 1, 10000);
	run(&s, "released");
	all_alive(&s, 10000);
	assert_int_equal(s.lost[EVENT_HBM_INUSE], 1);
	run(&s, "reset");
	alive(&s, "with_primary", 0, 0);
	probed_close(&s.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(each_call_is_counted, "push"),
		cmocka_unit_test_prestate(each_call_is_counted, "thunk"),
		cmocka_unit_test(allocations_alone_are_counted),
		cmocka_unit_test(memory_in_use_alone_is_known),
		cmocka_unit_test(the_device_context_and_stream_are_labels),
		cmocka_unit_test(memory_of_an_unknown_context_may_end),
		cmocka_unit_test(a_query_tells_the_context_and_its_device),
		cmocka_unit_test(a_release_of_an_unknown_context_is_told),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, dir_make, free_all);
}
