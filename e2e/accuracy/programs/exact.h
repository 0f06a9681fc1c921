/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact: what exact.c and exact.cc share, besides told.h: functions that wait, and functions that
 * allocate memory of the heap.
 */
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "told.h"

#define WAIT_MS 15

static int pipe_fds[2], socket_fds[2], disk_fd, ask_fds[2], held_fds[2];
static void *volatile escaped, *volatile given;

static uint64_t now_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The functions of a second thread, for which the first one waits. */
static void takes_lock(void);
static void gives_lock(void);

static void *helps(void *arg)
{
	struct timespec wait = {0, WAIT_MS * 1000000L};
	char what;

	while (read(ask_fds[0], &what, 1) == 1) {
		if (what == 'l')
			takes_lock();
		if (what == 'f')
			free(given);
		if ((what == 'l' || what == 'f') && write(held_fds[1], "h", 1) != 1)
			fail("write");
		if (what == 'f')
			continue;
		nanosleep(&wait, NULL);
		if (what == 'l')
			gives_lock();
		else if (write(what == 'p' ? pipe_fds[1] : socket_fds[1], "x", 1) != 1)
			fail("write");
	}
	return arg;
}

/*
 * Asks the second thread for something. l: it holds the lock for a while; f: it frees `given`; p:
 * after a while, it writes a byte to the pipe; s: the same, to the socket.
 */
static void ask(char what)
{
	char c;

	if (write(ask_fds[1], &what, 1) != 1 ||
	    ((what == 'l' || what == 'f') && read(held_fds[0], &c, 1) != 1))
		fail("ask");
}

static void begin(int argc, char **argv)
{
	char path[4096];
	sigset_t set;
	pthread_t t;

	open_told(argc, argv);
	snprintf(path, sizeof(path), "%s.disk", argv[1]);
	disk_fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
	if (disk_fd < 0 || pipe(pipe_fds) || pipe(ask_fds) || pipe(held_fds) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socket_fds))
		fail(path);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &set, NULL) || pthread_create(&t, NULL, helps, NULL))
		fail("begin");
	wait_for_order();
}

/* Runs a function that waits. Prints its time without its CPU time. */
static void waits(const char *name, const char *cause, void (*f)(void), char asks)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t before, cpu;

		if (asks)
			ask(asks);
		before = now_us(CLOCK_MONOTONIC), cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
		f();
		sum += now_us(CLOCK_MONOTONIC) - before - (now_us(CLOCK_THREAD_CPUTIME_ID) - cpu);
	}
	fprintf(told, "off-cpu %s %llu %s\n", name, (unsigned long long)sum, cause);
}

/* Runs a function that allocates `bytes` each time, and keeps `kept` of them. Prints the sums. */
static void allocates(const char *name, void (*f)(void), uint64_t bytes, uint64_t kept)
{
	for (unsigned i = 0; i < rounds; i++)
		f();
	fprintf(told, "mem-alloc %s %llu\nmem-inuse %s %llu\n", name,
		(unsigned long long)bytes * rounds, name, (unsigned long long)kept * rounds);
}
