// SPDX-License-Identifier: Apache-2.0
/*
 * Each call fails once in a drain that makes a snapshot of GPU memory. Memory whose context was
 * destroyed before is in no snapshot, and the memory of other contexts is in each.
 */
#include "lib/base/fault.h"
#include "node/probe/gpu_scene_test.h"

#include <setjmp.h>

#define LIVES 1000

static uint64_t address, context;

IN_SECTION(pf_short) static void allocate(void)
{
	status = cu_ctx_create(&context, 0, 0);
	status = cu_mem_alloc(&address, LIVES);
}

IN_SECTION(pf_long) static void allocate_and_end(void)
{
	status = cu_ctx_create(&context, 0, 0);
	status = cu_mem_alloc(&address, 70);
	status = cu_ctx_destroy(context);
}

IN_SECTION(pf_loop) static void body_steps(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_init(0);
	allocate();
	for (uint32_t step = 3;; step++) {
		allocate_and_end();
		say_and_wait(t, step);
	}
}

static struct scene scene;
static uint32_t next_step = 3;

static void memory_ends(void *arg)
{
	(void)arg;
	scene.c.truth->ready = 2;
	await(&scene.c, next_step++);
}

static void what_lives_is_right(void)
{
	assert_int_equal(scene.w.inuse.in_short, LIVES);
	assert_int_equal(scene.w.inuse.bytes, LIVES);
}

static int snapshot(void *arg)
{
	uint64_t failed = counter_get(counter("podflame_drain_failures_total", NULL, NULL));
	struct drain *d = NULL;
	int r;

	(void)arg;
	probes_live_ask(scene.p);
	r = probes_drain(scene.p, true, &d);
	if (r)
		return r;
	for (size_t i = 0; i < d->n_samples; i++)
		watch_sample(&scene.w, d, &d->samples[i]);
	sample_drain_free(d);
	if (scene.w.snapshots)
		what_lives_is_right();
	if (counter_get(counter("podflame_drain_failures_total", NULL, NULL)) > failed)
		return -EIO;
	return 0;
}

static void the_next_is_right(void *arg)
{
	unsigned before = scene.w.snapshots;

	(void)arg;
	watch_all(scene.p, &scene.w);
	assert_true(scene.w.snapshots > before);
	what_lives_is_right();
}

static void what_ended_is_in_no_snapshot(void **state)
{
	const struct fault_row row = {
		.name = "probes_drain: hbm-inuse",
		.calls = FAULT(BPF),
		.before = memory_ends,
		.run = snapshot,
		.check = the_next_is_right,
		.grows = true,
	};

	(void)state;
	if (geteuid() != 0)
		skip();
	gpu_open(&scene, body_steps, HBM_INUSE);
	fault_each(&row, NULL);
	gpu_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_ended_is_in_no_snapshot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
