/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testliving: a process whose first thread ends while another one goes on. Include it after
 * cmocka.h.
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/base.h"

static inline void *testliving_waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Starts a thread that only waits, and ends the first thread. */
static inline _Noreturn void testliving_end_first(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, testliving_waits, NULL))
		pthread_exit(NULL);
	_exit(1);
}

static inline bool testliving_has_ended(pid_t tid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/stat", tid), *text = NULL;
	const char *p;

	if (file_read(AT_FDCWD, path, 4096, &text, NULL) < 0)
		return true;
	p = strrchr(text, ')');
	return p && str_has_prefix(p, ") Z");
}

static inline void testliving_await_end(pid_t tid)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!testliving_has_ended(tid)) {
		if (now_mono_ns() > deadline)
			fail_msg("thread %d does not end within 60 s", tid);
		usleep(1000);
	}
}

/*
 * Starts a process and waits until its first thread has ended. The process first calls `before`,
 * which may be NULL.
 */
static inline pid_t testliving_start(void (*before)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (before)
			before();
		testliving_end_first();
	}
	testliving_await_end(pid);
	return pid;
}

static inline void testliving_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
