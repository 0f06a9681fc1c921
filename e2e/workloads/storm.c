/* SPDX-License-Identifier: Apache-2.0 */
/* A storm of allocations: malloc and free as fast as one thread can. Prints once a second "rate PAIRS_A_CPU_SECOND". */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *volatile escaped;

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

__attribute__((noinline)) static void storms(void)
{
	for (int i = 0; i < 10000; i++) {
		escaped = malloc(64);
		free(escaped);
	}
}

int main(void)
{
	uint64_t pairs = 0, since = cpu_ns();
	time_t said = time(NULL);

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		uint64_t now;

		storms();
		pairs += 10000;
		if (time(NULL) == said)
			continue;
		now = cpu_ns();
		printf("rate %" PRIu64 "\n", pairs * 1000000000 / (now - since));
		said = time(NULL);
		since = now;
		pairs = 0;
	}
}
