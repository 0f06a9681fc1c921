// SPDX-License-Identifier: Apache-2.0
/*
 * Each call fails once while a process's probes are attached, changed and detached. Then no probe
 * stays in the process and no memory in this one, the kernel's entry has the events that are
 * attached, and the next attempt works. The test runs once for each way to attach uprobes.
 */
#include "lib/base/fault.h"
#include "node/probe/memory_scene_test.h"

#include <setjmp.h>

#define MANY_CALLS                                                                                 \
	(FAULT(BPF) | FAULT(LINK) | FAULT(PERF) | FAULT(OPEN) | FAULT(READ) | FAULT(STAT))

/* ---- the probed process: it only calls its allocator ---- */

static char pool[4096];

IN_SECTION(pf_short) static void *pool_new(size_t n)
{
	__asm__ volatile("" ::: "memory");
	return pool + n;
}

IN_SECTION(pf_long) static void pool_free(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

IN_SECTION(pf_loop) static void body_calls(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		keep[0] = pool_new(100);
		keep[1] = pool_new(1000);
		pool_free(keep[0]);
		say_and_wait(t, step);
	}
}

static struct scene scene;
static struct probed more; /* sites in another file */
static unsigned n_links;   /* links of scene.probed for both events, if no call fails */

static struct probe_set_state *memory(void)
{
	return scene_set(&scene);
}

static bool is_touched(const void *function)
{
	const unsigned char *at = function;

	for (int i = 0; i < 48; i++)
		if (byte_of(scene.c.pid, at + i) != at[i])
			return true;
	return false;
}

static int begin(void **state)
{
	(void)state;
	if (geteuid() != 0 || probes_uprobe_mode() < mode_at_most)
		return 0;
	scene = (struct scene){};
	more = (struct probed){};
	add_site(&scene.probed, pool_new, (struct pf_site){PF_SITE_ALLOC, 1, 0, 0, 0, 0});
	add_site(&scene.probed, pool_free, (struct pf_site){PF_SITE_FREE, 0, 0, 1, 0, 0});
	add_site(&more, dlsym(RTLD_DEFAULT, "posix_memalign"),
		 (struct pf_site){PF_SITE_OUT, 3, 0, 1, 0, 0});
	scene_open(&scene, body_calls, ALLOC | INUSE, 1);
	n_links = memory()->n_links;
	return 0;
}

/* After all faults, the probes still count both allocations, and see that one was freed. */
static int end(void **state)
{
	struct memory_watch *w = &scene.w;

	(void)state;
	if (!scene.p)
		return 0;
	go(&scene, 3);
	assert_int_equal(w->alloc.bytes, 1100);
	assert_int_equal(w->inuse.bytes, 1000);
	scene_close(&scene);
	close(more.file.fd);
	scene.p = NULL;
	return 0;
}

static void need_scene(void)
{
	if (scene.p)
		return;
	print_message("skipped: this needs root and such uprobes\n");
	skip();
}

/*
 * Makes only some of the calls fail: each run waits for RCU, and the ways to attach differ little.
 */
static void each_fault(struct fault_row row)
{
	row.step = mode_at_most == UPROBE_SESSION ? 5 : 11;
	row.grows = true;
	fault_each(&row, NULL);
}

/* ---- attached and detached ---- */

static int attach_and_detach(void *arg)
{
	struct probes_refused refused = {.n = 99};
	struct attached *a = NULL;
	int r;

	(void)arg;
	r = probes_attach(scene.p, PROBES_MEMORY,
			  (struct process_id){scene.w.proc.start_boottime_ns, scene.c.pid},
			  &scene.probed.proc, &scene.probed.file, 1, &a, &refused);
	if (r) {
		assert_null(a);
		assert_int_equal(refused.n, 99);
		return r;
	}
	assert_int_equal(memory()->n_links, refused.n ? memory()->n_links : n_links);
	if (refused.n)
		assert_true(fault_failed() > 0);
	probes_detach(scene.p, a);
	return 0;
}

/*
 * If the deletion of a process's entry failed, the entry may stay until the process is probed
 * again.
 */
static void nothing_is_left(void *arg)
{
	(void)arg;
	assert_int_equal(memory()->n_links, 0);
	assert_null(memory()->attached);
	assert_false(is_touched(pool_new));
	assert_false(is_touched(pool_free));
	assert_true(map_count(memory()->procs, sizeof(struct pf_process_key)) <= 1);
}

static void attaching_fails(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "probes_attach, probes_detach",
		 .calls = MANY_CALLS,
		 .run = attach_and_detach,
		 .check = nothing_is_left},
		{.name = "probes_attach, probes_detach: threads",
		 .calls = FAULT(START) | FAULT(MALLOC),
		 .run = attach_and_detach,
		 .check = nothing_is_left},
	};

	(void)state;
	need_scene();
	scene.a = probes_detach(scene.p, scene.a);
	nothing_is_left(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		each_fault(rows[i]);
	assert_int_equal(scene_attach(&scene, ALLOC | INUSE), 0);
	assert_int_equal(memory()->n_links, n_links);
}

/* ---- changed ---- */

static struct {
	unsigned events;
	int result;
	struct probes_refused refused;
} changed; /* the last change */

static int change(unsigned events, size_t n_files)
{
	struct probe_file files[2] = {scene.probed.file, more.file};

	scene.probed.proc.event_mask = events;
	changed.events = events;
	changed.refused = (struct probes_refused){.n = 99};
	changed.result = probes_attach_change(scene.p, scene.a, &scene.probed.proc, files, n_files,
					      &changed.refused);
	if (changed.result)
		assert_int_equal(changed.refused.n, 99);
	return changed.result;
}

static unsigned told_mask(void)
{
	struct pf_mem_proc v = {};

	assert_int_equal(bpf_map_lookup_elem(memory()->procs, &scene.a->key, &v), 0);
	return v.event_mask;
}

static void as_they_were(void *arg)
{
	(void)arg;
	assert_int_equal(change(ALLOC | INUSE, 1), 0);
	assert_int_equal(told_mask(), ALLOC | INUSE);
	assert_int_equal(memory()->n_links, n_links);
}

static int change_to_more(void *arg)
{
	(void)arg;
	return change(ALLOC | INUSE, 2);
}

static int change_to_alloc(void *arg)
{
	(void)arg;
	return change(ALLOC, 2);
}

static int change_to_inuse(void *arg)
{
	(void)arg;
	return change(INUSE, 1);
}

/* The count of links is right. If mem-inuse is on, the probes see each free. */
static void it_is_consistent(void *arg)
{
	(void)arg;
	assert_int_equal(memory()->n_links, scene.a->n_links);
	assert_ptr_equal(memory()->attached, scene.a);
	assert_true(is_touched(pool_new));
	if (!changed.result && !changed.refused.n)
		assert_int_equal(told_mask(), changed.events);
	if (scene.a->inuse) {
		assert_true(told_mask() & INUSE);
		assert_true(is_touched(pool_free));
	}
}

static void changing_fails(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "probes_attach_change: another file",
		 .calls = MANY_CALLS,
		 .before = as_they_were,
		 .run = change_to_more,
		 .check = it_is_consistent},
		{.name = "probes_attach_change: mem-inuse goes",
		 .calls = MANY_CALLS,
		 .before = as_they_were,
		 .run = change_to_alloc,
		 .check = it_is_consistent},
		{.name = "probes_attach_change: mem-alloc goes",
		 .calls = MANY_CALLS,
		 .before = as_they_were,
		 .run = change_to_inuse,
		 .check = it_is_consistent},
	};

	(void)state;
	need_scene();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		each_fault(rows[i]);
	as_they_were(NULL);
}

/* ---- the trial whether probed returns are safe ---- */

static int try_return(void *arg)
{
	int r = probes_uprobe_try_return(mode_at_most);

	(void)arg;
	/* -EPERM would mean that a probed return kills, which a failed call does not prove */
	assert_int_not_equal(r, -EPERM);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
	return r;
}

static void trying_returns_fails(void **state)
{
	const struct fault_row row = {
		.name = "uprobe_try_return",
		/* without READ: read() is called in the child, not in this process */
		.calls = (MANY_CALLS | FAULT(FD) | FAULT(START) | FAULT(WRITE)) & ~FAULT(READ),
		.run = try_return,
	};

	(void)state;
	if (geteuid() != 0 || probes_uprobe_mode() < mode_at_most)
		skip();
	each_fault(row);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(attaching_fails, begin, end),
		cmocka_unit_test_setup_teardown(changing_fails, begin, end),
		cmocka_unit_test(trying_returns_fails),
	};

	mode_at_most = mode;
	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
