/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: finds and holds a child process of lib/child that this program has started. */
#pragma once

#include "lib/base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Returns the pid of this program's child with that name (comm); 0: there is none. */
static inline pid_t testchild_pid(const char *name)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while ((e = readdir(d))) {
		_cleanup_free_ char *path = xasprintf("/proc/%s/stat", e->d_name), *text = NULL;
		char comm[32], process_state;
		int pid, parent;

		if (file_read(AT_FDCWD, path, 4096, &text, NULL) == 0 &&
		    sscanf(text, "%d (%31[^)]) %c %d", &pid, comm, &process_state, &parent) == 4 &&
		    streq(comm, name) && parent == getpid() && process_state != 'Z')
			found = pid;
	}
	closedir(d);
	return found;
}

/*
 * Stops a process in its exit, as a read that cannot be interrupted would. The exit goes on once
 * the process whose pid this function returns ends.
 */
static inline pid_t testchild_hold_at_exit(pid_t pid)
{
	int ready[2];
	pid_t tracer;
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	tracer = fork();
	assert_true(tracer >= 0);
	if (tracer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT) == 0)
			(void)!write(ready[1], "", 1);
		close(ready[1]);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return tracer;
}
