/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burn: what every known-answer program in C and C++ does. It prints "ready", waits for a byte on
 * standard input, and burns CPU time until the seconds of its second argument are used up. Then it
 * appends the CPU time of each of its functions, by the thread's CPU clock, to the file of its
 * first argument: a line "NAME nanoseconds" each, "total" last. Then it prints "done" and waits for
 * the end of its input. The length of a step is random, so that the steps do not follow the
 * sampler's period.
 */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noinline, noclone))
#endif
#define STAY() __asm__ volatile("" ::: "memory") /* after a call, so that it is no tail call */

struct share {
	const char *name;
	uint64_t ns;
};

static const char *burn_file;
static uint64_t burn_first_ns, burn_budget_ns, burn_state;
static volatile uint64_t burn_sink;

static inline uint64_t burn_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
#define THREAD_NS()  burn_clock(CLOCK_THREAD_CPUTIME_ID)
#define PROCESS_NS() burn_clock(CLOCK_PROCESS_CPUTIME_ID)

/* Adds the CPU time of the call to a share. */
#define BURN(share, call)                                                                          \
	do {                                                                                       \
		uint64_t burn_t = THREAD_NS();                                                     \
		call;                                                                              \
		(share).ns += THREAD_NS() - burn_t;                                                \
	} while (0)

/*
 * Does n steps of about a nanosecond in the function that uses this macro. The steps of each use
 * differ a little: gcc would merge equal functions.
 */
#define SPIN(n)                                                                                    \
	do {                                                                                       \
		uint64_t burn_x = burn_sink | 1;                                                   \
                                                                                                   \
		for (uint64_t burn_i = (n); burn_i; burn_i--) {                                    \
			burn_x = burn_x * 6364136223846793005ull + 2 * __LINE__ + 1;               \
			__asm__ volatile("" : "+r"(burn_x)); /* one step after another */          \
		}                                                                                  \
		burn_sink = burn_x;                                                                \
	} while (0)

static inline uint64_t burn_random(uint64_t below)
{
	burn_state ^= burn_state << 13;
	burn_state ^= burn_state >> 7;
	burn_state ^= burn_state << 17;
	return burn_state % below;
}

/* Returns a random number of steps, for 1 to 5 ms. */
static inline uint64_t burn_steps(void)
{
	return 1000000 + burn_random(4000000);
}

/*
 * Begins to count CPU time. The program calls this first, and each of its other processes calls it
 * when it begins.
 */
static inline void burn_start(void)
{
	burn_state = burn_clock(CLOCK_MONOTONIC) | 1;
	burn_first_ns = PROCESS_NS();
}

static inline void burn_begin(char **argv)
{
	char c;

	burn_file = argv[1];
	burn_budget_ns = (uint64_t)(atof(argv[2]) * 1e9);
	if (write(1, "ready\n", 6) != 6 || read(0, &c, 1) != 1)
		exit(3);
	burn_start();
}

static inline int burn_more(void)
{
	return PROCESS_NS() - burn_first_ns < burn_budget_ns;
}

/* Writes the shares of one of several processes, which ends then. */
static inline int burn_tell(const struct share *shares, int n)
{
	char text[1024];
	int fd = open(burn_file, O_WRONLY | O_CREAT | O_APPEND, 0666), used = 0;

	for (int i = 0; i < n; i++)
		used += snprintf(text + used, sizeof(text) - (size_t)used, "%s %llu\n",
				 shares[i].name, (unsigned long long)shares[i].ns);
	used += snprintf(text + used, sizeof(text) - (size_t)used, "total %llu\n",
			 (unsigned long long)(PROCESS_NS() - burn_first_ns));
	return fd < 0 || write(fd, text, (size_t)used) != used;
}

/* Ends the last process, or the only one. Sampling ends before the process does. */
static inline int burn_end(const struct share *shares, int n)
{
	char c;

	if (burn_tell(shares, n) || write(1, "done\n", 5) != 5)
		return 1;
	return read(0, &c, 1) < 0;
}
