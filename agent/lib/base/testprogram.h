/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: programs that a test starts. .ci/deps installs them into a directory that the
 * Makefile puts first in PATH.
 */
#pragma once

#include "lib/base/base.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * Whether a directory of PATH has a program of this name. If not, prints a message, and the caller
 * skips its test.
 */
static inline bool program_here(const char *name)
{
	for (const char *at = getenv("PATH"), *end; at; at = *end ? end + 1 : NULL) {
		_cleanup_free_ char *path = NULL;

		end = strchrnul(at, ':');
		path = xasprintf("%.*s/%s", (int)(end - at), at, name);
		if (access(path, X_OK) == 0)
			return true;
	}
	print_message("skipped: no %s here\n", name);
	return false;
}

/* Returns the name of the file that the process executes; "?" if there is no such process. */
static inline const char *program_of(pid_t pid, char name[256])
{
	_cleanup_free_ char *link = xasprintf("/proc/%d/exe", pid);
	char path[4096] = "?";
	const char *slash;

	(void)!readlink(link, path, sizeof(path) - 1);
	slash = strrchr(path, '/');
	snprintf(name, 256, "%.255s", slash ? slash + 1 : path);
	return name;
}

/*
 * Returns the CPU time that all threads of a process have used; UINT64_MAX: there is no such
 * process.
 */
static inline uint64_t program_cpu_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t) < 0)
		return UINT64_MAX;
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Kills a process and its descendants. Does not find a descendant whose parent has ended. */
static inline void kill_family(pid_t pid)
{
	char path[64], text[4096] = "", *at = text, *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	kill(pid, SIGKILL);
	for (pid_t child; (child = (pid_t)strtol(at, &end, 10)) > 0; at = end)
		kill_family(child);
}

/*
 * Waits until the process executes the program itself (for python3 also python3.11). Fails after
 * ten seconds. A command of that name may be a script that starts the program as a child: then the
 * test would observe the script.
 */
static inline void program_runs(pid_t pid, const char *name)
{
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;
	char is[256];

	while (strncmp(program_of(pid, is), name, strlen(name)) != 0) {
		if (now_mono_ns() > deadline) {
			kill_family(pid);
			fail_msg("a process executes %s: the command %s on PATH is not the program",
				 is, name);
		}
		nanosleep(&(struct timespec){.tv_nsec = 5 * NSEC_PER_MSEC}, NULL);
	}
}
