// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu: the library opens libcupti before it reports a launch. Its status has user space read the
 * mappings of the process. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/on_gpu_scene_test.h"

#define CODE_BYTES 65536

/* Maps code, then reports the status as the library does, and nothing else. */
IN_SECTION(pf_loop) static void body_maps(struct truth *t)
{
	const struct podflame_cuda_status s = {.state = PODFLAME_CUDA_IDLE};

	say_and_wait(t, 1);
	mmap(NULL, CODE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	t->ready = 3;
	for (;;) {
		probe_status(&s, sizeof(s));
		after = 1;
		nap(1);
	}
}

/* Whether a quick drain has a report that the process's mappings must be read again. */
static bool maps_are_told(struct gpu_scene *g)
{
	struct drain *d = NULL;
	bool told = false;

	assert_int_equal(probes_drain(g->s.p, false, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		told |= (pid_t)d->procs[i].tgid == g->s.c.pid && d->procs[i].what == RAW_PROC_MAPS;
	sample_drain_free(d);
	return told;
}

static void a_status_tells_of_new_code(void **state)
{
	uint64_t deadline_ns = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct gpu_scene g = {};

	(void)state;
	gpu_begin(&g, body_maps);
	gpu_go(&g, 3);
	while (!maps_are_told(&g)) {
		if (now_mono_ns() > deadline_ns)
			fail_msg("nothing was said of the new code");
		nap(1);
	}
	gpu_end(&g);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_status_tells_of_new_code),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
