// SPDX-License-Identifier: Apache-2.0
/*
 * The event on-gpu of real processes, which have the probes of the libraries that report the work
 * of GPUs: exact times by kernel and by the stack that launched it, what is lost and why, and what
 * a process that lies can do. The tests run once for each way to attach uprobes that this kernel
 * has.
 */
#include "node/probe/on_gpu_scene_test.h"

/* ---- exact times ---- */

IN_SECTION(pf_loop) static void body_exact(struct truth *t)
{
	struct podflame_cuda_work w[4] = {
		kernel(3, "node", 10),
		kernel(3, "node", 20),
		kernel(3, "other_node", 5),
		kernel(2, "_Z5scalePfi", 1000),
	};

	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	launch_long(2, 0, PODFLAME_CUDA_KERNEL);
	launch_short(3, 0, PODFLAME_CUDA_GRAPH);
	report_kernel(1, "_Z5scalePfi", 100);
	report(w, 4);
	for (uint32_t i = 100; i < 132; i++)
		launch_long(i, 0, PODFLAME_CUDA_KERNEL);
	for (uint32_t i = 100; i < 132; i++)
		report_kernel(i, "many", 3);
	say_and_wait(t, 3);
}

static void times_are_exact(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_exact);
	gpu_go(&g, 3);
	assert_int_equal(gpu_sum(&g, "short", "_Z5scalePfi").value, 100);
	assert_int_equal(gpu_sum(&g, "long", "_Z5scalePfi").value, 1000);
	assert_int_equal(gpu_sum(&g, "short", "node").value, 30);
	assert_int_equal(gpu_sum(&g, "short", "node").n, 2);
	assert_int_equal(gpu_sum(&g, "short", "other_node").value, 5);
	assert_int_equal(gpu_sum(&g, "long", "many").value, 32 * 3);
	assert_int_equal(gpu_sum(&g, "long", "many").n, 32);
	assert_int_equal(g.w.value, 1100 + 35 + 96);
	assert_int_equal(g.w.stackless, 0);
	assert_int_equal(g.w.rows[0].labels.mask,
			 1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_CONTEXT | 1u << LABEL_GPU_STREAM);
	gpu_end(&g);
}

/* ---- copies and sets ---- */

static struct podflame_cuda_work copy(uint32_t correlation, uint8_t copy_kind, uint64_t us)
{
	struct podflame_cuda_work w = kernel(correlation, NULL, us);

	w.kind = copy_kind ? PODFLAME_CUDA_COPY : PODFLAME_CUDA_SET;
	w.copy_kind = copy_kind;
	return w;
}

IN_SECTION(pf_loop) static void body_copies(struct truth *t)
{
	struct podflame_cuda_work w[3] = {copy(1, 1, 10), copy(1, 2, 20), copy(2, 0, 40)};

	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_COPY);
	launch_short(2, 0, PODFLAME_CUDA_SET);
	report(w, 3);
	say_and_wait(t, 3);
}

static void copies_and_sets_are_told_apart(void **state)
{
	struct gpu_scene g = {};
	unsigned seen = 0;

	(void)state;
	gpu_begin(&g, body_copies);
	gpu_go(&g, 3);
	for (size_t i = 0; i < g.w.n_rows; i++) {
		const struct gpu_row *r = &g.w.rows[i];

		assert_string_equal(r->name, "");
		assert_string_equal(r->launched, "short");
		assert_int_equal(r->work, r->value == 40 ? RAW_WORK_SET : RAW_WORK_COPY);
		assert_int_equal(r->copy, r->value == 10 ? 1 : r->value == 20 ? 2 : 0);
		seen += r->value;
	}
	assert_int_equal(seen, 70);
	gpu_end(&g);
}

/* ---- levels: the sample has one in 2^level launches ---- */

#define SECOND_US 1000000ull

IN_SECTION(pf_loop) static void body_levels(struct truth *t)
{
	struct podflame_cuda_work w[3] = {
		kernel(1, "weighted", 1),
		kernel(2, "halves", SECOND_US / 2),
		kernel(2, "halves", SECOND_US / 2),
	};

	say_and_wait(t, 1);
	launch_short(1, 3, PODFLAME_CUDA_KERNEL);
	launch_short(2, 1, PODFLAME_CUDA_GRAPH);
	launch_short(3, 0, PODFLAME_CUDA_KERNEL);
	launch_short(4, PF_GPU_LEVEL_MAX + 1, PODFLAME_CUDA_KERNEL); /* no such level */
	report(w, 3);
	report_kernel(3, "all", SECOND_US);
	report_kernel(4, "never", 1);
	say_and_wait(t, 3);
}

static struct probe_usage usage_of(const struct gpu_scene *g)
{
	_cleanup_free_ struct probe_usage *items = NULL;
	struct probe_usage sum = {};
	size_t n;

	assert_int_equal(probes_usage(g->s.p, &items, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (items[i].event == EVENT_ON_GPU) {
			sum.taken += items[i].taken;
			sum.value += items[i].value;
			sum.square += items[i].square;
			sum.own_ns += items[i].own_ns;
		}
	return sum;
}

static void a_launch_counts_for_those_that_are_not_reported(void **state)
{
	uint64_t unread = lost("gpu_unread"), unlaunched = lost("gpu_unlaunched");
	struct probe_usage before, now;
	struct gpu_scene g = {};
	/* (1 - p) * v^2 in us^2 >> 20: a launch of 1 s is sampled with p = 1/2, as v = 2 s */
	double variance = 0.5 * 4e12 / 0x100000;

	(void)state;
	gpu_begin(&g, body_levels);
	before = usage_of(&g);
	gpu_go(&g, 3);
	now = usage_of(&g);
	assert_int_equal(gpu_sum(&g, "short", "weighted").value, 8);
	assert_int_equal(gpu_sum(&g, "short", "halves").value, 2 * SECOND_US);
	assert_int_equal(gpu_sum(&g, "short", "all").value, SECOND_US);
	assert_int_equal(gpu_sum(&g, "short", "never").n, 0);
	assert_int_equal(now.value - before.value, 8 + 3 * SECOND_US);
	assert_int_equal(now.taken - before.taken, 3);
	assert_near("variance", now.square - before.square, variance, 3);
	assert_int_equal(lost("gpu_unread") - unread, 1);
	assert_int_equal(lost("gpu_unlaunched") - unlaunched, 1);
	gpu_end(&g);
}

/* ---- rounding ---- */

#define N_SHORT 2048

IN_SECTION(pf_loop) static void body_short_pieces(struct truth *t)
{
	struct podflame_cuda_work w[32];

	for (int i = 0; i < 32; i++) {
		w[i] = kernel(1, "short", 0);
		w[i].end_ns = w[i].start_ns + 1250;
	}
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_GRAPH);
	for (int i = 0; i < N_SHORT / 32; i++)
		report(w, 32);
	say_and_wait(t, 3);
}

/* The sum is right within 5 standard deviations. Pieces all rounded one way would make it 20. */
static void the_sum_of_short_pieces_is_right(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_short_pieces);
	gpu_go(&g, 3);
	assert_int_equal(g.w.n, N_SHORT);
	/* one hit is the launch; each report of 32 pieces counts as five hits */
	assert_int_equal(probes_attached_hits(g.s.a), 1 + N_SHORT / 32 * 5);
	assert_near("microseconds", g.w.value, N_SHORT * 1.25, 5 * 0.433 * 45.3);
	gpu_end(&g);
}

/* ---- threads, streams, devices ---- */

static volatile uint32_t other_tid;

static void *launch_there(void *arg)
{
	other_tid = gettid();
	launch_long(2, 0, PODFLAME_CUDA_KERNEL);
	return arg;
}

IN_SECTION(pf_loop) static void body_threads(struct truth *t)
{
	struct podflame_cuda_work w[2] = {kernel(1, "here", 1), kernel(2, "there", 2)};
	pthread_t other;

	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	pthread_create(&other, NULL, launch_there, NULL);
	pthread_join(other, NULL);
	w[1].device = 4;
	w[1].context = 2;
	w[1].stream = 0x12345;
	report(w, 2);
	t->long_ns = other_tid;
	say_and_wait(t, 3);
}

static void assert_labels(const struct gpu_row *r, uint64_t device, uint64_t context,
			  uint64_t stream)
{
	assert_int_equal(r->labels.numbers[LABEL_GPU_DEVICE], device);
	assert_int_equal(r->labels.numbers[LABEL_GPU_CONTEXT], context);
	assert_int_equal(r->labels.numbers[LABEL_GPU_STREAM], stream);
}

static void threads_and_streams_are_told_apart(void **state)
{
	struct gpu_scene g = {};
	struct gpu_row here, there;

	(void)state;
	gpu_begin(&g, body_threads);
	gpu_go(&g, 3);
	here = gpu_sum(&g, "short", "here");
	there = gpu_sum(&g, "long", "there");
	assert_int_equal(here.value, 1);
	assert_int_equal(here.tid, g.w.pid);
	assert_labels(&here, 3, 1, 7);
	assert_int_equal(there.value, 2);
	assert_int_equal(there.tid, g.s.c.truth->long_ns);
	assert_labels(&there, 4, 2, 0x12345);
	gpu_end(&g);
}

/* ---- work that ends later ---- */

IN_SECTION(pf_loop) static void body_later(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	say_and_wait(t, 3);
	report_kernel(1, "late", 10);
	say_and_wait(t, 4);
	report_kernel(1, "later", 10);
	say_and_wait(t, 5);
}

/* Changes the times of the only launch, as if it had been made ns earlier. */
static void make_older(const struct gpu_scene *g, uint64_t ns)
{
	int map = bpf_map__fd(gpu_programs(g)->maps.gpu_launches);
	struct pf_gpu_launch_key key;
	struct pf_gpu_launch l;

	assert_int_equal(bpf_map_get_next_key(map, NULL, &key), 0);
	assert_int_equal(bpf_map_lookup_elem(map, &key, &l), 0);
	l.time_ns -= ns;
	l.work_ns -= l.work_ns ? ns : 0;
	assert_int_equal(bpf_map_update_elem(map, &key, &l, BPF_EXIST), 0);
	scene_set(&g->s)->snapshot_ns = 0; /* the next drain looks at the launches */
}

/* Returns how many samples of value 0 the event adds: one for each stack of a waiting launch. */
static size_t n_references(const struct gpu_scene *g)
{
	struct event_probe *e = &g->s.p->events[EVENT_ON_GPU];
	struct drain *d = sample_drain_new(0);
	struct taking t = {.d = d};
	size_t n;

	e->ops->collect(g->s.p, e, &t);
	n = d->n_samples;
	sample_drain_free(d);
	return n;
}

static void work_finds_the_stack_of_its_launch_later(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_later);
	gpu_go(&g, 3);
	gpu_drain(&g);
	gpu_drain(&g);
	assert_int_equal(g.w.n, 0);
	make_older(&g, 0);
	assert_int_equal(n_references(&g), 0);
	make_older(&g, 10 * NSEC_PER_SEC);
	assert_int_equal(n_references(&g), 1);
	make_older(&g, 500 * NSEC_PER_SEC);
	gpu_go(&g, 4);
	assert_int_equal(gpu_sum(&g, "short", "late").value, 10);
	assert_int_equal(g.w.stackless, 0);
	gpu_end(&g);
}

static void a_launch_that_has_ended_is_forgotten(void **state)
{
	uint64_t before = lost("gpu_unlaunched");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_later);
	gpu_go(&g, 3);
	gpu_go(&g, 4);
	make_older(&g, NSEC_PER_SEC);
	gpu_drain(&g);
	assert_int_equal(n_launches(&g), 1);
	make_older(&g, 10 * NSEC_PER_SEC);
	gpu_drain(&g);
	assert_int_equal(n_launches(&g), 0);
	gpu_go(&g, 5);
	assert_int_equal(gpu_sum(&g, "short", "later").n, 0);
	assert_int_equal(lost("gpu_unlaunched") - before, 1);
	gpu_end(&g);
}

static void a_launch_without_work_is_forgotten(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_later);
	gpu_go(&g, 3);
	make_older(&g, 601 * NSEC_PER_SEC);
	gpu_drain(&g);
	assert_int_equal(n_launches(&g), 0);
	gpu_end(&g);
}

/* ---- processes ---- */

static void body_ends(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
}

static void await_end(const struct gpu_scene *g)
{
	siginfo_t info;

	assert_int_equal(waitid(P_PID, g->w.pid, &info, WEXITED | WNOWAIT), 0);
}

static void a_process_that_ends_leaves_nothing(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_ends);
	g.s.c.truth->ready = 2;
	await_end(&g);
	assert_int_equal(n_launches(&g), 1);
	gpu_drain(&g);
	scene_set(&g.s)->snapshot_ns = 0;
	gpu_drain(&g);
	assert_int_equal(n_launches(&g), 0);
	assert_int_equal(g.w.n, 0);
	gpu_end(&g);
}

/* The child has the launches of its parent, but none of its own. */
static void body_forks(struct truth *t)
{
	pid_t child;

	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	child = fork();
	if (!child) {
		launch_long(2, 0, PODFLAME_CUDA_KERNEL);
		report_kernel(1, "of_child", 1);
		report_kernel(2, "of_child", 1);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	report_kernel(1, "of_parent", 1);
	say_and_wait(t, 3);
}

static void a_forked_child_counts_nothing(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_forks);
	gpu_go(&g, 3);
	assert_int_equal(gpu_sum(&g, "short", "of_parent").value, 1);
	assert_int_equal(g.w.n, 1);
	gpu_end(&g);
}

#define AFTER_EXEC "--after-exec"

static void body_execs(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	execl("/proc/self/exe", "on_gpu_test", AFTER_EXEC, (char *)NULL);
}

/* The program after the exec: it must not get the launch 1 of the program before. */
static int after_exec(void)
{
	report_kernel(1, "of_another_program", 1);
	launch_short(2, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(2, "of_another_program", 1);
	return 0;
}

static void another_program_counts_nothing(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_execs);
	g.s.c.truth->ready = 2;
	await_end(&g);
	gpu_drain(&g);
	assert_int_equal(g.w.n, 0);
	gpu_end(&g);
}

IN_SECTION(pf_loop) static void body_twice(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		launch_short(step, 0, PODFLAME_CUDA_KERNEL);
		report_kernel(step, "kernel", 1);
		say_and_wait(t, step);
	}
}

static void a_process_that_is_not_selected_counts_nothing(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_twice);
	gpu_go(&g, 3);
	assert_int_equal(g.w.n, 1);
	want(&g.s, 1u << EVENT_ON_CPU, 1);
	g.s.c.truth->ready = 2;
	await(&g.s.c, 4);
	assert_int_equal(n_launches(&g), 1);
	want(&g.s, ON_GPU, 1);
	g.w.n_rows = 0;
	gpu_go(&g, 5);
	assert_int_equal(gpu_sum(&g, "short", "kernel").n, 1);
	gpu_end(&g);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_exact),
		cmocka_unit_test(copies_and_sets_are_told_apart),
		cmocka_unit_test(a_launch_counts_for_those_that_are_not_reported),
		cmocka_unit_test(the_sum_of_short_pieces_is_right),
		cmocka_unit_test(threads_and_streams_are_told_apart),
		cmocka_unit_test(work_finds_the_stack_of_its_launch_later),
		cmocka_unit_test(a_launch_that_has_ended_is_forgotten),
		cmocka_unit_test(a_launch_without_work_is_forgotten),
		cmocka_unit_test(a_process_that_ends_leaves_nothing),
		cmocka_unit_test(a_forked_child_counts_nothing),
		cmocka_unit_test(another_program_counts_nothing),
		cmocka_unit_test(a_process_that_is_not_selected_counts_nothing),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], AFTER_EXEC))
		return after_exec();
	return in_each_mode(argc, argv, run_mode);
}
