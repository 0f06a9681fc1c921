// SPDX-License-Identifier: Apache-2.0
/*
 * testlimit: a test that waits for ever fails, and the output shows its functions and its children.
 */
#include "lib/base/testdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- with the argument "waits", this program runs these tests, which fail ---- */

static void it_passes(void **state)
{
	(void)state;
}

static __attribute__((noinline)) void wait_for_the_other_end(int fd)
{
	char byte;

	while (read(fd, &byte, 1) >= 0)
		;
}

static void it_waits_for_ever(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	if (fork() == 0) {
		execl("/bin/sleep", "sleep", "600", NULL);
		_exit(1);
	}
	wait_for_the_other_end(fds[0]);
}

static int waits(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_passes),
		cmocka_unit_test(it_waits_for_ever),
		cmocka_unit_test(it_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- tests ---- */

/* Runs this program with the arguments. Returns its exit status. */
static int run_self(const char *arguments, char **ret_said)
{
	_cleanup_free_ char *command = NULL, *said = NULL;
	char dir[TESTDIR_BYTES], self[4096] = "";
	int status;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	assert_int_equal(testdir_make(dir), 0);
	said = xasprintf("%s/said", dir);
	command = xasprintf("TEST_LIMIT_S=1 timeout 20 %s %s >%s 2>&1", self, arguments, said);
	status = system(command); /* NOLINT: all parts of the command are constants */
	assert_int_equal(file_read(AT_FDCWD, said, 1 << 16, ret_said, NULL), 0);
	testdir_remove(dir);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_test_that_waits_for_ever_fails(void **state)
{
	_cleanup_free_ char *text = NULL;

	(void)state;
	assert_int_equal(run_self("waits", &text), 1);
	assert_non_null(strstr(text, "[       OK ] it_passes"));
	assert_non_null(strstr(text, "[  ERROR   ] --- it_waits_for_ever: no end after 1 s"));
	assert_non_null(strstr(text, "wait_for_the_other_end at "));
	assert_non_null(strstr(text, "(sleep) S"));
	assert_non_null(strstr(text, "[  FAILED  ] it_waits_for_ever"));
}

static void a_pattern_that_matches_no_test_fails(void **state)
{
	_cleanup_free_ char *some = NULL, *none = NULL;

	(void)state;
	assert_int_equal(run_self("waits 'it_pass*'", &some), 0);
	assert_non_null(strstr(some, "2 test(s) run"));
	assert_int_equal(run_self("waits 'it_passed*'", &none), 1);
	assert_non_null(strstr(none, "no test's name matches the pattern it_passed*"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_test_that_waits_for_ever_fails),
		cmocka_unit_test(a_pattern_that_matches_no_test_fails),
	};

	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && streq(argv[1], "waits"))
		return waits();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
