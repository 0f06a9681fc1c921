/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of incidents are made of: time on a CPU and pauses. */
#pragma once
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTION __attribute__((noinline)) static

static inline uint64_t cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Uses so much CPU time, as a part of the function that calls it. */
__attribute__((always_inline)) static inline void compute(uint64_t us)
{
	for (uint64_t end = cpu_us() + us; cpu_us() < end;)
		for (volatile int i = 0; i < 20000; i++)
			;
}

static inline void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

/* Starts a thread of that name. */
static inline void start(const char *name, void *(*function)(void *))
{
	pthread_t t;

	if (pthread_create(&t, NULL, function, NULL))
		abort();
	pthread_setname_np(t, name);
}

/* Stays on the last CPU that the process may use, so that one CPU can be crowded, and no more. */
static inline void stay_on_last_cpu(void)
{
	cpu_set_t set;
	int last = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		abort();
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			last = i;
	CPU_ZERO(&set);
	CPU_SET(last, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		abort();
}
