/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: asserts that a function aborts, as a failed assertion does (assert_se). */
#pragma once

#include "lib/base/base.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * Runs fn(arg) in a child process. The test fails unless the child aborts and its output contains
 * `words`.
 */
static inline void assert_aborts(void (*fn)(void *arg), void *arg, const char *words)
{
	char said[4096] = "";
	size_t n = 0;
	ssize_t got;
	int out[2], status;
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(out[1], STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	close(out[1]);
	while ((got = read(out[0], said + n, sizeof(said) - 1 - n)) > 0)
		n += (size_t)got;
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
		fail_msg("it did not abort (status %#x): %s", (unsigned)status, said);
	if (!strstr(said, words))
		fail_msg("it aborted, but did not say \"%s\": %s", words, said);
}
