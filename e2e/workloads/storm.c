/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm [MS]: calls malloc and free as fast as one thread can. Each second, or each MS
 * milliseconds, prints "rate PAIRS_PER_CPU_SECOND PAIRS CPU_NS OWN_PER_CPU_SECOND". PAIRS and
 * CPU_NS are since the program began. OWN is the same work with a free list of the program itself,
 * which nothing observes: it says how fast the machine is at that moment.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *volatile escaped;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static void storms(void)
{
	for (int i = 0; i < 1000; i++) {
		escaped = malloc(64);
		free(escaped);
	}
}

static void *volatile free_list;

__attribute__((noinline)) static void *own_take(void)
{
	void *block = free_list;

	free_list = *(void **)block;
	return block;
}

__attribute__((noinline)) static void own_put(void *block)
{
	*(void **)block = free_list;
	free_list = block;
}

#define N_OWN 4000000

/* Returns the pairs of own_take and own_put that the thread does in a second of CPU time. */
static uint64_t own_rate(void)
{
	static void *blocks[2][8];
	uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	free_list = blocks[0];
	blocks[0][0] = blocks[1];
	for (int i = 0; i < N_OWN; i++) {
		escaped = own_take();
		own_put(escaped);
	}
	return N_OWN * 1000000000ull / (clock_ns(CLOCK_THREAD_CPUTIME_ID) - began);
}

int main(int argc, char **argv)
{
	uint64_t period_ns = 1000000ull * (argc > 1 ? strtoul(argv[1], NULL, 10) : 1000);
	uint64_t pairs = 0, cpu_ns = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		uint64_t own = own_rate(), before = pairs;
		uint64_t since = clock_ns(CLOCK_THREAD_CPUTIME_ID), took;
		uint64_t due = clock_ns(CLOCK_MONOTONIC) + period_ns;

		do {
			storms();
			pairs += 1000;
		} while (clock_ns(CLOCK_MONOTONIC) < due);
		took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - since;
		cpu_ns += took;
		printf("rate %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       (pairs - before) * 1000000000 / took, pairs, cpu_ns, own);
	}
}
