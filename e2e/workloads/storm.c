/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm [MS]: calls malloc and free as fast as one thread can. Each second, or each MS
 * milliseconds, prints "rate PAIRS_PER_CPU_SECOND PAIRS CPU_NS", the last two since the program
 * began.
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

int main(int argc, char **argv)
{
	uint64_t period_ns = 1000000ull * (argc > 1 ? strtoul(argv[1], NULL, 10) : 1000);
	uint64_t pairs = 0, before = 0, since = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t due = clock_ns(CLOCK_MONOTONIC) + period_ns;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		uint64_t now;

		storms();
		pairs += 1000;
		if (clock_ns(CLOCK_MONOTONIC) < due)
			continue;
		now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		printf("rate %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       (pairs - before) * 1000000000 / (now - since), pairs, now);
		due = clock_ns(CLOCK_MONOTONIC) + period_ns;
		since = now;
		before = pairs;
	}
}
