// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu: the number of pieces of work that the library says to have reported, against those that
 * have come. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/on_gpu_scene_test.h"

/* Reports a status: the library says to have reported n pieces, one copy among them. */
static void say_told(uint64_t n)
{
	const struct podflame_cuda_status s = {
		.state = PODFLAME_CUDA_RUNNING,
		.told = {[PODFLAME_CUDA_KERNEL] = {.n = n - (n > 0)},
			 [PODFLAME_CUDA_COPY] = {.n = n > 0}},
	};

	probe_status(&s, sizeof(s));
	after = 1;
}

static void report_pieces(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		report_kernel(1 + i % 2, "kernel", 1);
}

IN_SECTION(pf_loop) static void body_told(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_GRAPH);
	launch_long(2, 0, PODFLAME_CUDA_GRAPH);
	say_told(1000); /* before the probes were attached */
	report_pieces(7);
	say_told(1007);
	report_pieces(2);
	say_told(1007); /* the library counts them after it has reported them */
	report_pieces(3);
	say_told(1012);
	say_and_wait(t, 3); /* all have come */
	report_pieces(2);
	say_told(1019);
	say_and_wait(t, 4); /* five have not */
	say_told(1ull << 40);
	say_told(3);
	say_told(3);
	say_and_wait(t, 5); /* a process may say anything */
	say_told(5);
	say_and_wait(t, 6);
}

static void pieces_that_did_not_come_are_lost(void **state)
{
	static const uint64_t steps[] = {0, 5, 5, 7};
	uint64_t missed = lost("gpu_missed");
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_told);
	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		gpu_go(&g, 3 + i);
		assert_int_equal(lost("gpu_missed") - missed, steps[i]);
	}
	assert_int_equal(g.w.value, 14);
	gpu_end(&g);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_that_did_not_come_are_lost),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
