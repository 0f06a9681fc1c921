/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of a cgroup that the test makes, and for how long its CPU limit kept it from running.
 * Needs root; skipped if no limit can be set.
 */
#include "node/proc/testcgroup.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (60 * NSEC_PER_SEC)

static void test_usage_and_throttled(void **state)
{
	uint64_t id, deadline_ns = now_mono_ns() + DEADLINE_NS;
	struct cgroup_cpu cpu = {0};
	struct own_cgroup o;
	bool limited;

	(void)state;
	if (!own_cgroup_make(&o)) {
		own_cgroup_remove(&o);
		print_message("no cgroup can be made here\n");
		skip();
	}
	assert_int_equal(proc_cgroup_id_of(&o.h, o.name, &id), 0);
	assert_int_equal(proc_cgroup_cpu_read(&o.h, id, &cpu), 0);
	assert_int_equal(cpu.usage_ns, 0);
	assert_int_equal(cpu.throttled_ns, 0);
	limited = own_cgroup_limit(&o);
	if (!limited)
		print_message("skip: no CPU limit can be set here, throttled time is not tested\n");
	own_cgroup_burn(&o);
	do {
		usleep(20000);
		assert_int_equal(proc_cgroup_cpu_read(&o.h, id, &cpu), 0);
	} while ((cpu.usage_ns < 50 * NSEC_PER_MSEC ||
		  (limited && cpu.throttled_ns < 100 * NSEC_PER_MSEC)) &&
		 now_mono_ns() < deadline_ns);
	assert_true(cpu.usage_ns >= 50 * NSEC_PER_MSEC);
	if (limited) {
		assert_true(cpu.throttled_ns >= 100 * NSEC_PER_MSEC);
		assert_true(cpu.n_throttled > 0);
	}
	own_cgroup_remove(&o);
	assert_true(proc_cgroup_cpu_read(&o.h, id, &cpu) < 0); /* the cgroup is removed */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_usage_and_throttled)};

	return cmocka_run_group_tests_name("proc/cgroup_cpu", tests, NULL, NULL);
}
