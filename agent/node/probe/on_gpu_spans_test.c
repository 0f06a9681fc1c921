// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu of a process that is attached for a span: which launches count, and what becomes of their
 * work. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/on_gpu_scene_test.h"

IN_SECTION(pf_loop) static void body_span(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(7, 0, PODFLAME_CUDA_KERNEL);
	launch_short(9, 0, PODFLAME_CUDA_KERNEL);
	say_and_wait(t, 3); /* the span is over */
	launch_long(10, 0, PODFLAME_CUDA_KERNEL);
	launch_long(8, 0, PODFLAME_CUDA_KERNEL);
	launch_long(11, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(7, "in_span", 100);
	report_kernel(9, "in_span", 10);
	for (uint32_t id = 8; id <= 11; id++)
		if (id != 9)
			report_kernel(id, "after_span", 1000);
	say_and_wait(t, 4);
	report_kernel(6, "without_launch", 1000);
	say_and_wait(t, 5);
}

/* From now on the process has been attached for longer than launches count. */
static void end_span(struct gpu_scene *g)
{
	struct probes_refused refused;

	g->s.probed.proc.launches_ms = 1;
	while (now_boot_ns() <= g->s.a->since_ns + NSEC_PER_MSEC)
		nap(1);
	assert_int_equal(probes_attach_change(g->s.p, g->s.a, &g->s.probed.proc, &g->s.probed.file,
					      1, &refused),
			 0);
}

/*
 * What was launched in the span counts when its work has ended. What was launched later does not
 * count, and is not lost.
 */
static void launches_of_the_span_count_with_all_of_their_work(void **state)
{
	uint64_t unlaunched = lost("gpu_unlaunched"), unended = lost("gpu_unended");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_span);
	gpu_go(&g, 3);
	end_span(&g);
	gpu_go(&g, 4);
	assert_int_equal(gpu_sum(&g, "short", "in_span").value, 110);
	assert_int_equal(g.w.value, 110);
	assert_int_equal(lost("gpu_unlaunched"), unlaunched);
	gpu_go(&g, 5);
	assert_int_equal(lost("gpu_unlaunched") - unlaunched, 1);
	gpu_end(&g);
	assert_int_equal(lost("gpu_unended"), unended);
}

IN_SECTION(pf_loop) static void body_unended(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t id = 1; id <= 3; id++)
		launch_short(id, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(2, "ended", 5);
	say_and_wait(t, 3);
}

static void launches_without_work_are_lost_when_the_process_is_detached(void **state)
{
	uint64_t unended = lost("gpu_unended");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_unended);
	gpu_go(&g, 3);
	gpu_drain(&g);
	assert_int_equal(lost("gpu_unended"), unended);
	gpu_end(&g);
	assert_int_equal(lost("gpu_unended") - unended, 2);
}

/* A process that has ended has no work that could still end. */
static void launches_of_a_process_that_ended_are_not_lost(void **state)
{
	uint64_t unended = lost("gpu_unended");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_unended);
	gpu_go(&g, 3);
	kill(g.s.c.pid, SIGKILL);
	while (!g.s.a->ended)
		gpu_watch_drain(g.s.p, &g.w);
	gpu_end(&g);
	assert_int_equal(lost("gpu_unended"), unended);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launches_of_the_span_count_with_all_of_their_work),
		cmocka_unit_test(launches_without_work_are_lost_when_the_process_is_detached),
		cmocka_unit_test(launches_of_a_process_that_ended_are_not_lost),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
