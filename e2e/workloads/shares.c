/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known answer in C: three functions that take 50, 30 and 20 % of the CPU time, in random order.
 * The program measures this by the thread's CPU clock and prints the shares once a second. So a
 * test compares with the shares that were measured, not with those that were planned.
 * Usage: shares [THREAD_NAME]
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

#define SLICE_NS 1000000

static volatile uint64_t sink;

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Each function has a loop of its own and calls nothing, so its self time is its total time. */
#define SHARE(name, constant)                                                                      \
	__attribute__((noinline)) static void name(uint64_t until)                                 \
	{                                                                                          \
		do {                                                                               \
			uint64_t x = sink | 1;                                                     \
                                                                                                   \
			for (int i = 0; i < 20000; i++)                                            \
				x = x * (constant) + 1;                                            \
			sink = x;                                                                  \
		} while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until);                               \
	}
SHARE(share_50, 6364136223846793005)
SHARE(share_30, 2862933555777941757)
SHARE(share_20, 3202034522624059733)

static uint64_t random_step(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

__attribute__((noinline)) static int work(uint64_t *state)
{
	uint64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + SLICE_NS,
		 dice = random_step(state) % 10;

	if (dice < 5) {
		share_50(until);
		return 0;
	}
	if (dice < 8) {
		share_30(until);
		return 1;
	}
	share_20(until);
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t state = clock_ns(CLOCK_REALTIME) | 1, spent_ns[3] = {0}, last_print = 0;

	if (argc > 1)
		prctl(PR_SET_NAME, argv[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID), now;
		int which = work(&state);

		spent_ns[which] += clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
		now = clock_ns(CLOCK_REALTIME);
		if (now - last_print < 1000000000)
			continue;
		last_print = now;
		printf("split %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", now / 1000000000,
		       spent_ns[0] / 1000, spent_ns[1] / 1000, spent_ns[2] / 1000);
	}
}
