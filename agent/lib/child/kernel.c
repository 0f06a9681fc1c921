/* SPDX-License-Identifier: Apache-2.0 */
/* How the owner starts a process, ends it and waits for it: calls to the kernel. */
#include "lib/child/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC};
}

static void sleep_for(uint64_t ns)
{
	struct timespec ts = timespec_of(ns);

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

/*
 * Starts the child with posix_spawn and not fork, because other threads may hold locks. The child
 * has its own process group: Ctrl-C in a terminal ends the recorder, not its child.
 */
static int start(const char *path, char *const *argv, int sock, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, sock, CHILD_SOCKET_FD);
	r = posix_spawn(ret, path, &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -r;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
}

static bool reap(pid_t pid, uint64_t ns)
{
	uint64_t deadline = now_mono_ns() + ns, now;
	struct pollfd ended = {.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	while ((now = now_mono_ns()) < deadline)
		if (poll(&ended, 1, (deadline - now) / NSEC_PER_MSEC + 1) >= 0 || errno != EINTR)
			break;
	closep(&ended.fd);
	return waitpid(pid, NULL, WNOHANG) == pid;
}

static bool readable(int sock, uint64_t ns)
{
	uint64_t now = now_mono_ns(), deadline = now + ns;

	for (;;) {
		struct pollfd pfd = {.fd = sock, .events = POLLIN};
		uint64_t left_ns = deadline > now ? deadline - now : 0;
		struct timespec left = timespec_of(left_ns);

		if (ppoll(&pfd, 1, &left, NULL) > 0)
			return true;
		if (!left_ns)
			return false;
		now = now_mono_ns();
	}
}

const struct child_ops child_kernel = {
	.now_ns = now_mono_ns,
	.sleep = sleep_for,
	.start = start,
	.end = end,
	.reap = reap,
	.readable = readable,
};
