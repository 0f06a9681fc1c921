// SPDX-License-Identifier: Apache-2.0
/* testlimit: a test that waits for what never comes fails, with what a reader needs to find out why. */
#include "lib/base/testdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a program whose tests are to fail: this one, told "waits" ---- */

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

static void a_test_that_waits_for_ever_fails(void **state)
{
	_cleanup_free_ char *command = NULL, *text = NULL;
	char dir[TESTDIR_BYTES], self[4096] = "";
	int status;

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	assert_int_equal(testdir_make(dir), 0);
	command = xasprintf("TEST_LIMIT_S=1 timeout 20 %s waits >%s/said 2>&1", self, dir);
	status = system(command); /* NOLINT: of constants */
	free(command);
	command = xasprintf("%s/said", dir);
	assert_int_equal(file_read(AT_FDCWD, command, 1 << 16, &text, NULL), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_non_null(strstr(text, "[       OK ] it_passes"));
	assert_non_null(strstr(text, "[  ERROR   ] --- it_waits_for_ever: no end after 1 s"));
	assert_non_null(strstr(text, "wait_for_the_other_end at "));
	assert_non_null(strstr(text, "(sleep) S"));
	assert_non_null(strstr(text, "[  FAILED  ] it_waits_for_ever"));
	testdir_remove(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_test_that_waits_for_ever_fails),
	};

	if (argc > 1 && streq(argv[1], "waits"))
		return waits();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
