// SPDX-License-Identifier: Apache-2.0
/*
 * What the libraries that report the work of GPUs may say: names that are long or cannot be read,
 * reports that cannot be true, their status and losses, and the reports of parcagpu. The tests run
 * once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/on_gpu_scene_test.h"

#define NOWHERE ((void *)16) /* an address that no process has */

/* ---- names ---- */

static char long_name[3001], longest_name[256 * 8];
static const char other_name[] = "oooooooooooooooooooooooooooooooooooooooo";

IN_SECTION(pf_loop) static void body_names(struct truth *t)
{
	struct podflame_cuda_work w[3];

	memset(long_name, 'l', sizeof(long_name) - 1);
	memset(longest_name, 'x', PF_FRAME_GPU_WORK_WORDS * 8 - 1);
	w[0] = kernel(1, long_name, 1);
	w[1] = kernel(1, longest_name, 2);
	w[2] = kernel(1, NULL, 4);
	w[2].name = (uintptr_t)NOWHERE;
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_GRAPH);
	report(w, 3);
	for (size_t n = 0; n < 32; n++) { /* each length of the last word */
		memset(long_name, 'n', n);
		long_name[n] = '\0';
		report_kernel(1, other_name, 0); /* nothing of it stays in the next name */
		report_kernel(1, long_name, 50);
		report_kernel(1, longest_name, 0);
		report_kernel(1, long_name, 50);
	}
	say_and_wait(t, 3);
}

static void check_name(const struct gpu_row *r)
{
	static const uint64_t values[128] = {
		['l'] = 1, ['x'] = 2, ['o'] = 0, ['n'] = 100, ['\0'] = 4 + 100};
	size_t len = strlen(r->name);

	assert_string_equal(r->launched, "short");
	assert_int_equal(r->work, RAW_WORK_KERNEL);
	assert_int_equal(r->cut, r->name[0] == 'l');
	assert_int_equal(len, strspn(r->name, (char[]){r->name[0], '\0'}));
	assert_int_equal(r->value, values[r->name[0] & 127]);
	if (r->name[0] == 'l' || r->name[0] == 'x')
		assert_int_equal(len, PF_FRAME_GPU_WORK_WORDS * 8 - 1);
}

/* A kernel whose name cannot be read counts without a name. */
static void long_names_are_cut_and_unreadable_ones_left_out(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_names);
	gpu_go(&g, 3);
	assert_int_equal(g.w.n_rows, 3 + 32);
	assert_int_equal(g.w.value, 7 + 32 * 100);
	for (size_t i = 0; i < g.w.n_rows; i++)
		check_name(&g.w.rows[i]);
	gpu_end(&g);
}

/* ---- reports that cannot be true ---- */

IN_SECTION(pf_loop) static void body_lies(struct truth *t)
{
	struct podflame_cuda_work w[4] = {
		kernel(1, "true", 1), kernel(1, "backwards", 1), kernel(1, "endless", 1),
		kernel(9, "without_launch", 1), /* 9 was not launched */
	};

	w[1].end_ns = w[1].start_ns - 1;
	w[2].end_ns = w[2].start_ns + PF_GPU_NS_MAX;
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_GRAPH);
	report(w, 4);
	say_and_wait(t, 3);
	probe_work(w, 4000000000u, sizeof(w[0]));
	probe_work(w, 0, sizeof(w[0]));
	probe_work(w, PODFLAME_CUDA_WORK_MAX + 1, sizeof(w[0]));
	probe_work(w, 1, sizeof(w[0]) - 1);
	probe_work(w, 1, 4000000000u);
	probe_work(NOWHERE, 2, sizeof(w[0]));
	probe_status(NOWHERE, sizeof(struct podflame_cuda_status));
	probe_status((const struct podflame_cuda_status *)w, 8);
	say_and_wait(t, 4);
}

static void lies_are_counted_as_losses(void **state)
{
	uint64_t unread = lost("gpu_unread"), unlaunched = lost("gpu_unlaunched");
	struct on_gpu_status status;
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_lies);
	gpu_go(&g, 3);
	assert_int_equal(gpu_sum(&g, "short", "true").value, 1);
	assert_int_equal(lost("gpu_unlaunched") - unlaunched, 1);
	assert_int_equal(lost("gpu_unread") - unread, 2);
	gpu_go(&g, 4);
	assert_int_equal(lost("gpu_unread") - unread, 2 + 5 + 2 + 2);
	assert_int_equal(g.w.n, 1);
	assert_int_equal(gpu_status(&g, &status), -ENOENT);
	gpu_end(&g);
}

/* A later library may report more of each piece. */
IN_SECTION(pf_loop) static void body_larger(struct truth *t)
{
	struct {
		struct podflame_cuda_work work;
		uint64_t more[3];
	} w[2] = {{kernel(1, "first", 1), {1, 2, 3}}, {kernel(1, "second", 2), {4, 5, 6}}};

	say_and_wait(t, 1);
	launch_long(1, 0, PODFLAME_CUDA_GRAPH);
	probe_work(&w[0].work, 2, sizeof(w[0]));
	say_and_wait(t, 3);
}

static void larger_pieces_are_understood(void **state)
{
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_larger);
	gpu_go(&g, 3);
	assert_int_equal(gpu_sum(&g, "long", "first").value, 1);
	assert_int_equal(gpu_sum(&g, "long", "second").value, 2);
	gpu_end(&g);
}

/* ---- too many launches ---- */

IN_SECTION(pf_loop) static void body_two(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	say_and_wait(t, 3);
	launch_short(2, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(1, "known", 1);
	report_kernel(2, "too_many", 1);
	say_and_wait(t, 4);
}

/* Adds launches until the map is full. They are 31 s older than launch 1. */
static void fill_launches(const struct gpu_scene *g)
{
	int map = bpf_map__fd(gpu_programs(g)->maps.gpu_launches);
	struct pf_gpu_launch_key key;
	struct pf_gpu_launch value;
	int32_t *held;

	assert_int_equal(bpf_map_get_next_key(map, NULL, &key), 0);
	assert_int_equal(bpf_map_lookup_elem(map, &key, &value), 0);
	value.time_ns -= 31 * NSEC_PER_SEC;
	for (key.correlation = 1000; !bpf_map_update_elem(map, &key, &value, BPF_ANY);)
		key.correlation++;
	assert_int_equal(key.correlation, 1000 + PF_GPU_LAUNCHES_MAX - 1);
	held = scene_set(&g->s)->shares.of[SHARED_LAUNCHES]->held;
	held[0] = held[value.share] = PF_GPU_LAUNCHES_MAX;
}

static void launches_beyond_the_table_are_counted(void **state)
{
	uint64_t before = lost("gpu_unlaunched");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_two);
	gpu_go(&g, 3);
	fill_launches(&g);
	gpu_go(&g, 4);
	assert_int_equal(gpu_sum(&g, "short", "known").value, 1);
	assert_int_equal(gpu_sum(&g, "short", "too_many").n, 0);
	assert_int_equal(lost("gpu_unlaunched") - before, 1);
	scene_set(&g.s)->snapshot_ns = 0;
	gpu_drain(&g); /* old launches are removed, because the namespace has many */
	assert_int_equal(n_launches(&g), 1);
	gpu_end(&g);
}

/* ---- a probe hits while another task on this CPU is counting ---- */

IN_SECTION(pf_loop) static void body_busy(struct truth *t)
{
	struct podflame_cuda_work w[3] = {kernel(1, "busy", 1), kernel(1, "busy", 1),
					  kernel(1, "busy", 1)};

	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_GRAPH);
	say_and_wait(t, 3);
	launch_short(2, 0, PODFLAME_CUDA_KERNEL);
	report(w, 3);
	say_and_wait(t, 4);
	report(w, 3);
	say_and_wait(t, 5);
}

static void each_piece_that_meets_a_busy_cpu_is_counted(void **state)
{
	uint64_t before = lost("scratch_busy");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_busy);
	gpu_go(&g, 3);
	set_busy(scene_set(&g.s), 1);
	gpu_go(&g, 4);
	assert_int_equal(lost("scratch_busy") - before, 1 + 3);
	assert_int_equal(g.w.n, 0);
	set_busy(scene_set(&g.s), 0);
	gpu_go(&g, 5);
	assert_int_equal(gpu_sum(&g, "short", "busy").value, 3);
	gpu_end(&g);
}

/* ---- the library's status ---- */

IN_SECTION(pf_loop) static void body_status(struct truth *t)
{
	struct podflame_cuda_status s = {
		.state = PODFLAME_CUDA_REFUSED,
		.code = 39,
		.level = 4,
		.n_dropped = 100,
		.n_untimed = 200,
		.n_unread = 300,
		.n_unseen = 400,
		.own_ns = 5000,
	};

	say_and_wait(t, 1);
	probe_status(&s, sizeof(s));
	say_and_wait(t, 3);
	s.state = PODFLAME_CUDA_RUNNING;
	s.n_dropped += 1;
	s.n_untimed += 2;
	s.n_unread += 3;
	s.n_unseen += 4;
	s.own_ns += 700;
	probe_status(&s, sizeof(s));
	s.n_dropped -= 50; /* wrong counts: one goes back, and two are too large */
	s.n_unseen = UINT64_MAX;
	s.own_ns = UINT64_MAX;
	probe_status(&s, sizeof(s));
	say_and_wait(t, 4);
	probe_status(&s, __builtin_offsetof(struct podflame_cuda_status, all));
	say_and_wait(t, 5);
}

static uint64_t own_ns(const struct gpu_scene *g)
{
	_cleanup_free_ struct probe_usage *items = NULL;
	uint64_t sum = 0;
	size_t n;

	assert_int_equal(probes_usage(g->s.p, &items, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += items[i].event == EVENT_ON_GPU ? items[i].own_ns : 0;
	return sum;
}

static void the_status_and_its_losses_are_known(void **state)
{
	uint64_t dropped = lost("gpu_dropped"), untimed = lost("gpu_untimed");
	uint64_t unread = lost("gpu_unread"), unlaunched = lost("gpu_unlaunched");
	uint64_t own, since;
	struct on_gpu_status status = {};
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_status);
	own = own_ns(&g);
	assert_int_equal(gpu_status(&g, &status), -ENOENT);
	gpu_go(&g, 3);
	assert_int_equal(gpu_status(&g, &status), 0);
	assert_int_equal(status.library.state, PODFLAME_CUDA_REFUSED);
	assert_int_equal(status.library.code, 39);
	assert_int_equal(status.library.level, 4);
	assert_in_range(status.told_ns, 1, now_boot_ns());
	assert_int_equal(status.running_ns, 0);
	assert_false(status.parcagpu);
	assert_int_equal(lost("gpu_dropped"), dropped); /* lost before the probes were attached */
	gpu_go(&g, 4);
	assert_int_equal(gpu_status(&g, &status), 0);
	assert_int_equal(status.library.state, PODFLAME_CUDA_RUNNING);
	since = status.running_ns;
	assert_in_range(since, 1, status.told_ns - 1);
	assert_int_equal(lost("gpu_dropped") - dropped, 1);
	assert_int_equal(lost("gpu_untimed") - untimed, 2);
	assert_int_equal(lost("gpu_unread") - unread, 3);
	assert_int_equal(lost("gpu_unlaunched") - unlaunched, 4);
	assert_int_equal(own_ns(&g) - own, 700);
	gpu_go(&g, 5); /* an older library reports less */
	assert_int_equal(gpu_status(&g, &status), 0);
	assert_int_equal(status.library.own_ns, 0);
	assert_int_equal(status.running_ns, since);
	gpu_end(&g);
}

/* ---- parcagpu ---- */

/* The members of CUPTI's record of a kernel that podflame reads, at the offsets of CUPTI 11.1. */
union cupti_record {
	uint8_t bytes[160];
	uint32_t words[40];
	uint64_t longs[20];
};

static union cupti_record record(uint32_t kind, uint32_t correlation, const char *name, uint64_t us)
{
	struct podflame_cuda_work w = kernel(correlation, name, us);
	union cupti_record r;

	memset(r.bytes, 0xee, sizeof(r.bytes));
	r.words[0] = kind;
	r.longs[16 / 8] = w.start_ns;
	r.longs[24 / 8] = w.end_ns;
	r.words[40 / 4] = w.device;
	r.words[44 / 4] = w.context;
	r.words[48 / 4] = w.stream;
	r.words[92 / 4] = w.correlation;
	r.longs[104 / 8] = w.name;
	return r;
}

IN_SECTION(pf_short) static void correlate(uint32_t correlation)
{
	probe_cuda_correlation(correlation, -307, "cuLaunchKernel");
	after = 1;
}

IN_SECTION(pf_loop) static void body_parcagpu(struct truth *t)
{
	const union cupti_record r[] = {record(10, 1, "concurrent", 10), record(3, 2, "serial", 20),
					record(1, 2, "no_kernel", 1), record(10, 3, "unknown", 1)};
	const void *records[PF_PARCAGPU_BATCH_MAX + 1] = {&r[0], &r[1], &r[2], &r[3], NOWHERE};

	say_and_wait(t, 1);
	correlate(1);
	correlate(2);
	probe_activity_batch(records, 5);
	probe_activity_batch(records, PF_PARCAGPU_BATCH_MAX + 1);
	probe_activity_batch(NOWHERE, 2);
	for (size_t i = 0; i < PF_PARCAGPU_BATCH_MAX; i++)
		records[i] = &r[0];
	probe_activity_batch(records, PF_PARCAGPU_BATCH_MAX);
	say_and_wait(t, 3);
}

static void reports_of_parcagpu_are_understood(void **state)
{
	uint64_t unread = lost("gpu_unread"), unlaunched = lost("gpu_unlaunched");
	struct on_gpu_status status = {};
	struct gpu_row r;
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_parcagpu);
	gpu_go(&g, 3);
	r = gpu_sum(&g, "short", "concurrent");
	assert_int_equal(r.value, 10 * (1 + PF_PARCAGPU_BATCH_MAX));
	assert_int_equal(r.labels.numbers[LABEL_GPU_DEVICE], 3);
	assert_int_equal(r.labels.numbers[LABEL_GPU_CONTEXT], 1);
	assert_int_equal(r.labels.numbers[LABEL_GPU_STREAM], 7);
	assert_int_equal(gpu_sum(&g, "short", "serial").value, 20);
	assert_int_equal(g.w.n, 2 + PF_PARCAGPU_BATCH_MAX);
	assert_int_equal(lost("gpu_unread") - unread, 2 + 1 + 2);
	assert_int_equal(lost("gpu_unlaunched") - unlaunched, 1);
	assert_int_equal(gpu_status(&g, &status), 0);
	assert_true(status.parcagpu);
	assert_int_equal(status.told_ns, 0);
	gpu_end(&g);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_names_are_cut_and_unreadable_ones_left_out),
		cmocka_unit_test(lies_are_counted_as_losses),
		cmocka_unit_test(larger_pieces_are_understood),
		cmocka_unit_test(launches_beyond_the_table_are_counted),
		cmocka_unit_test(each_piece_that_meets_a_busy_cpu_is_counted),
		cmocka_unit_test(the_status_and_its_losses_are_known),
		cmocka_unit_test(reports_of_parcagpu_are_understood),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
