/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches [MS]: very many context switches. Two threads on one CPU pass a byte to and fro through
 * pipes, and each waits for the other. Every MS milliseconds, prints "rate SWITCHES_PER_CPU_SECOND
 * SWITCHES CPU_NS", the last two since the program began.
 */
#define _GNU_SOURCE
#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static void hand_over(int from, int to)
{
	char byte = 0;

	if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
		err(1, "pipe");
}

static void *other(void *arg)
{
	char byte;

	if (read(there[0], &byte, 1) != 1)
		err(1, "pipe");
	for (;;)
		hand_over(there[0], back[1]);
	return arg;
}

int main(int argc, char **argv)
{
	uint64_t period_ns = 1000000ull * (argc > 1 ? strtoul(argv[1], NULL, 10) : 1000);
	uint64_t switches = 0, before = 0, since, due = clock_ns(CLOCK_MONOTONIC) + period_ns;
	pthread_t thread;
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first) || pipe(there) || pipe(back))
		err(1, "CPU 0, pipes");
	setvbuf(stdout, NULL, _IOLBF, 0);
	since = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (pthread_create(&thread, NULL, other, NULL))
		errx(1, "no thread");
	for (;;) {
		uint64_t now;

		for (int i = 0; i < 100; i++)
			hand_over(back[0], there[1]);
		switches += 200;
		if (clock_ns(CLOCK_MONOTONIC) < due)
			continue;
		now = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		printf("rate %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       (switches - before) * 1000000000 / (now - since), switches, now);
		due = clock_ns(CLOCK_MONOTONIC) + period_ns;
		since = now;
		before = switches;
	}
}
