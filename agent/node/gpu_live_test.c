/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm-alloc and hbm-inuse of a program that calls the stand-in CUDA driver (e2e/gpu), from the
 * search for the driver's entries to the drains: which function of the program allocated how many
 * bytes, and which of these bytes are in use. The program is e2e/gpu/memory_steps.c, and runs one
 * step of it after another.
 */
#include "node/testprobed.h"

#include "lib/base/testfolder.h"

#define ALLOC  (1u << EVENT_HBM_ALLOC)
#define INUSE  (1u << EVENT_HBM_INUSE)
#define MIB    (1ull << 20)
#define SOURCE "e2e/gpu/memory_steps.c"

/* ---- what the drains report ---- */

struct sum {
	uint64_t n, bytes;
};
struct function {
	char name[64];
	struct sum allocated, alive; /* alive: in the newest snapshot */
	struct raw_labels labels;    /* labels of the newest sample */
};
struct scene {
	struct probed_program p;
	struct function functions[32];
	size_t n;
	uint64_t snapshot_ns;
	unsigned n_labels; /* different labels of hbm-alloc */
	struct raw_labels labels[16];
	uint64_t lost[_EVENT_MAX];
};

static struct function *function_of(struct scene *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (streq(s->functions[i].name, name))
			return &s->functions[i];
	assert_true(s->n < ARRAY_SIZE(s->functions));
	snprintf(s->functions[s->n].name, sizeof(s->functions[s->n].name), "%s", name);
	return &s->functions[s->n++];
}

static void add(struct sum *sum, const struct raw_sample *x)
{
	sum->n += x->n;
	sum->bytes += x->value;
}

static void take_sample(struct scene *s, const struct drain *d, const struct raw_sample *x)
{
	char name[64];
	struct function *f;

	if (x->event == EVENT_HBM_INUSE && x->last_ns != s->snapshot_ns) {
		for (size_t i = 0; i < s->n; i++)
			s->functions[i].alive = (struct sum){};
		s->snapshot_ns = x->last_ns;
	}
	if (!x->n) /* no memory is in use */
		return;
	probed_caller(&s->p, sample_drain_stack(d, x->ustack), name);
	f = function_of(s, name);
	add(x->event == EVENT_HBM_INUSE ? &f->alive : &f->allocated, x);
	f->labels = x->labels ? *x->labels : (struct raw_labels){};
	if (x->event == EVENT_HBM_ALLOC && s->n_labels < ARRAY_SIZE(s->labels))
		s->labels[s->n_labels++] = f->labels;
}

static void take_drain(struct scene *s)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(probes, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		if ((pid_t)d->samples[i].tgid == s->p.pid)
			take_sample(s, d, &d->samples[i]);
	for (size_t i = 0; i < d->lost.n; i++)
		for (size_t e = 0; e < _EVENT_MAX; e++)
			if (d->lost.items[i].event_mask & 1u << e)
				s->lost[e] += d->lost.items[i].n;
	sample_drain_free(d);
}

/* ---- the program ---- */

/* Lets the program run a step, and takes the samples until its end. */
static void run(struct scene *s, const char *step)
{
	char line[256];

	assert_true(dprintf(s->p.to, "%s\n", step) > 0);
	probed_read(&s->p, line, sizeof(line));
	assert_string_equal(line, step);
	s->n_labels = 0;
	probes_live_ask(probes);
	take_drain(s);
	take_drain(s);
}

static void begin(struct scene *s, const char *form)
{
	const char *build = getenv("BUILD") ?: "build";
	_cleanup_free_ char *library = xasprintf("%s/gpu/%s", build, form);
	_cleanup_free_ char *program = file_in_dir("program");
	_cleanup_free_ char *compile = xasprintf(
		"gcc -O1 -g -w -fno-omit-frame-pointer -Ie2e/gpu %s -o %s %s/libcuda.so.1 -pthread",
		SOURCE, program, library);
	char *const argv[] = {program, NULL};

	*s = (struct scene){.p.title = form};
	assert_int_equal(system(compile), 0);
	probed_start(&s->p, argv, library, NULL);
	probed_await(&s->p, "ready");
}

static void attach(struct scene *s, unsigned events)
{
	probed_find(&s->p, events);
	assert_string_equal(s->p.sites->problem, "");
	probed_open_probes();
	probed_select(&s->p, &(struct listed_process){.event_mask = events});
	probed_attach(&s->p, PROBES_GPU_MEMORY, events);
}

/* ---- expectations ---- */

static void check(const char *function, const char *what, struct sum is, uint64_t n, uint64_t bytes)
{
	if (is.n != n || is.bytes != bytes)
		fail_msg("%s: %s %lu times, %lu bytes; should be %lu, %lu", function, what, is.n,
			 is.bytes, n, bytes);
}

static void allocated(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	check(function, "allocated", function_of(s, function)->allocated, n, bytes);
}

static void alive(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	check(function, "alive", function_of(s, function)->alive, n, bytes);
}

static void both(struct scene *s, const char *function, uint64_t n, uint64_t bytes)
{
	allocated(s, function, n, bytes);
	alive(s, function, n, bytes);
}

/* Asserts that all functions together have exactly these bytes in use. */
static void all_alive(struct scene *s, uint64_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += s->functions[i].alive.bytes;
	assert_int_equal(sum, bytes);
}

static void no_loss(const struct scene *s)
{
	assert_int_equal(s->lost[EVENT_HBM_ALLOC], 0);
	assert_int_equal(s->lost[EVENT_HBM_INUSE], 0);
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

static int free_all(void **state)
{
	probes_free(probes);
	return dir_remove(state);
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
