/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long no agent ran on the node, according to the file that the last agent left: in this boot,
 * in an earlier one, and after the clock was set.
 */
#include "node/pipeline/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testdir.h"

#define BOOT  "5e0a1f0c-0000-4000-8000-000000000001"
#define AGO_S 10

static struct pipeline *node_after(const char *form, ...) __attribute__((format(printf, 1, 2)));

/*
 * Makes the pipeline of an agent that finds a state file with this text. The pipeline does not
 * write the file, because no worker runs here.
 */
static struct pipeline *node_after(const char *form, ...)
{
	struct pipeline *n = xcalloc(1, sizeof(*n));
	_cleanup_free_ char *path = NULL, *text = NULL;
	char dir[TESTDIR_BYTES];
	struct config conf;
	va_list args;

	va_start(args, form);
	assert_true(vasprintf(&text, form, args) >= 0);
	va_end(args);
	assert_int_equal(testdir_make(dir), 0);
	path = xasprintf("%s/node-state.json", dir);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
	conf_init(&conf);
	free(conf.data_dir);
	conf.data_dir = xstrdup(dir);
	pipeline_downtime_open(&n->downtime, &conf, true, BOOT);
	pipeline_downtime_done(&n->downtime);
	conf_done(&conf);
	testdir_remove(dir);
	return n;
}

static long long wall_s(void)
{
	return (long long)(now_wall_ns() / NSEC_PER_SEC);
}

static long long boot_ms(void)
{
	return (long long)(now_boot_ns() / NSEC_PER_MSEC);
}

/* Checks the reported downtime. On a slow machine it may be longer. */
static void assert_told(struct pipeline *n, uint64_t seconds)
{
	uint64_t ns = pipeline_downtime_take(n);

	if (seconds)
		assert_in_range(ns, (seconds - 1) * NSEC_PER_SEC, (seconds + 120) * NSEC_PER_SEC);
	else
		assert_int_equal(ns, 0);
	free(n);
}

/*
 * The machine was rebooted. CLOCK_BOOTTIME began again at 0, so only the wall clock shows how long
 * no agent ran.
 */
static void test_another_boot_128(void **state)
{
	(void)state;
	assert_told(node_after("{\"end\": %lld, \"active\": true, \"boot_id\": \"another\", "
			       "\"boot_ms\": %lld}",
			       wall_s() - AGO_S, boot_ms() - 5000),
		    AGO_S);
	/* the earlier boot lasted longer than this one has lasted until now */
	assert_told(node_after("{\"end\": %lld, \"active\": true, \"boot_id\": \"another\", "
			       "\"boot_ms\": %lld}",
			       wall_s() - AGO_S, boot_ms() + 5000000),
		    AGO_S);
	/* the clock of the machine was wrong, then or now */
	assert_told(node_after("{\"end\": %lld, \"active\": true, \"boot_id\": \"another\", "
			       "\"boot_ms\": 7}",
			       wall_s() + AGO_S),
		    0);
}

/*
 * Within one boot the wall clock may have been set forward or back. This must not change the
 * downtime.
 */
static void test_clock_set_in_between(void **state)
{
	(void)state;
	for (int by_s = -3600; by_s <= 3600; by_s += 3600)
		assert_told(node_after("{\"end\": %lld, \"active\": true, \"boot_id\": \"%s\", "
				       "\"boot_ms\": %lld}",
				       wall_s() - AGO_S + by_s, BOOT, boot_ms() - AGO_S * 1000),
			    AGO_S);
}

static void test_nobody_was_selected(void **state)
{
	(void)state;
	assert_told(
		node_after(
			"{\"end\": %lld, \"active\": false, \"boot_id\": \"%s\", \"boot_ms\": 1}",
			wall_s() - AGO_S, BOOT),
		0);
	assert_told(node_after("{\"end\": \"soon\", \"active\": true, \"boot_id\": 7}"), 0);
	assert_told(node_after("{\"end\": -1, \"active\""), 0);
	assert_told(node_after("%s", ""), 0);
}

static struct pipeline *node_after_a_kill(void)
{
	return node_after("{\"end\": 0, \"active\": true, \"boot_id\": \"%s\", \"boot_ms\": %lld}",
			  BOOT, boot_ms() - AGO_S * 1000);
}

/* The downtime lasts until a process is profiled, and no part of it is reported twice. */
static void test_gap_lasts_until_active(void **state)
{
	struct pipeline *n = node_after_a_kill();
	uint64_t begin_ns = now_boot_ns(), told_ns;

	(void)state;
	told_ns = pipeline_downtime_take(n);
	for (int i = 0; i < 3; i++) {
		pipeline_downtime_note(n, false, false, false);
		assert_true(n->downtime.lasts);
		told_ns += pipeline_downtime_take(n);
	}
	pipeline_downtime_note(n, true, false, false);
	told_ns += pipeline_downtime_take(n);
	assert_in_range(told_ns, (AGO_S - 1) * NSEC_PER_SEC,
			(AGO_S + 1) * NSEC_PER_SEC + (now_boot_ns() - begin_ns));
	assert_int_equal(pipeline_downtime_take(n), 0);
	free(n);
}

/* If the kernel refuses the programs, an agent runs and reports that. So this is no downtime. */
static void test_kernel_refuses(void **state)
{
	struct pipeline *n = node_after_a_kill();

	(void)state;
	pipeline_downtime_note(n, false, false, true);
	assert_in_range(pipeline_downtime_take(n), (AGO_S - 1) * NSEC_PER_SEC,
			(AGO_S + 120) * NSEC_PER_SEC);
	pipeline_downtime_note(n, false, false, true);
	assert_int_equal(pipeline_downtime_take(n), 0);
	/*
	 * The programs load later. The time before is no downtime, because the targets' conditions
	 * have shown why nothing was profiled.
	 */
	pipeline_downtime_note(n, true, false, false);
	assert_int_equal(pipeline_downtime_take(n), 0);
	free(n);
}

static void assert_offset(struct pipeline *n, uint64_t want_ns, uint64_t apart_ns)
{
	uint64_t ns = n->downtime.start_offset_ns;

	assert_true(MAX(ns, want_ns) - MIN(ns, want_ns) <= apart_ns);
	free(n);
}

/*
 * A process must have the same start time for the next agent of this boot as for this agent, even
 * if the wall clock was set.
 */
static void test_processes_keep_their_start(void **state)
{
	uint64_t now_ns = now_wall_ns() - now_boot_ns(), set_ns = now_ns - 600 * NSEC_PER_SEC;
	static const uint64_t clocks_ns =
		NSEC_PER_SEC; /* tolerance: the two clocks are read one after the other */

	(void)state;
	assert_offset(node_after("{\"boot_id\": \"%s\", \"start_offset_ns\": %llu}", BOOT,
				 (unsigned long long)set_ns),
		      set_ns, 0);
	assert_offset(node_after("{\"boot_id\": \"another\", \"start_offset_ns\": %llu}",
				 (unsigned long long)set_ns),
		      now_ns, clocks_ns);
	/* a file of an older version; then one of a machine whose clock began in 1970 */
	assert_offset(node_after("{\"boot_id\": \"%s\"}", BOOT), now_ns, clocks_ns);
	assert_offset(node_after("{\"boot_id\": \"%s\", \"start_offset_ns\": 5}", BOOT), now_ns,
		      clocks_ns);
	assert_offset(node_after("%s", ""), now_ns, clocks_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_boot_128),
		cmocka_unit_test(test_clock_set_in_between),
		cmocka_unit_test(test_nobody_was_selected),
		cmocka_unit_test(test_gap_lasts_until_active),
		cmocka_unit_test(test_kernel_refuses),
		cmocka_unit_test(test_processes_keep_their_start),
	};

	return cmocka_run_group_tests_name("node/pipeline/downtime", tests, NULL, NULL);
}
