/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration that cannot be read is an error, and no part of it is used. */
#include "lib/base/fault.h"
#include "lib/conf/conf.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/base/testdir.h"

static char path[128];

static int load(void *arg)
{
	struct config c, untouched;
	_cleanup_buf_ struct buf warnings;
	struct field_error err = {0};
	int r;

	(void)arg;
	memset(&c, 0x5a, sizeof(c));
	untouched = c;
	buf_init(&warnings, 0);
	r = conf_load(path, &c, &warnings, &err);
	if (r) {
		assert_memory_equal(&c, &untouched, sizeof(c));
		assert_true(*err.path && *err.reason);
		return r;
	}
	assert_int_equal(c.window_ns, 7 * NSEC_PER_SEC);
	assert_string_equal(c.hub_url, "https://hub:4318");
	assert_string_equal(c.on_cpu_regex, "^redis-.*");
	conf_done(&c);
	return 0;
}

static void test_load(void **state)
{
	static const struct fault_row row = {
		.name = "conf_load", .calls = FAULT_FILES | FAULT(MALLOC), .run = load};

	(void)state;
	fault_each(&row, NULL);
}

int main(void)
{
	static const char text[] = "window: 7s\nhub:\n  url: https://hub:4318\n"
				   "static_config: {ebpf: {on-cpu-profile: {regex: ^redis-.*}}}\n";
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_load)};
	char dir[TESTDIR_BYTES];
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/podflame.yaml", dir);
	if (file_write_atomic(path, text, strlen(text), 0600))
		return 1;
	r = cmocka_run_group_tests_name("conf_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
