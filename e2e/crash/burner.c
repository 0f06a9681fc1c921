/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burner: burns CPU time all the time. Ten times a second, prints how much it has burnt:
 * "SECONDS_OF_WALL_TIME CPU_SECONDS". With an argument, it ends after this number of seconds of CPU
 * time, and prints nothing.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static double now(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void burn(void)
{
	uint64_t x = sink | 1;

	for (int i = 0; i < 1000000; i++)
		x = x * 6364136223846793005 + 1;
	sink = x;
}

int main(int argc, char **argv)
{
	double end = argc > 1 ? atof(argv[1]) : 0, next = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (!end || now(CLOCK_PROCESS_CPUTIME_ID) < end) {
		double wall = now(CLOCK_REALTIME);

		burn();
		if (end || wall < next)
			continue;
		printf("%.6f %.6f\n", wall, now(CLOCK_PROCESS_CPUTIME_ID));
		next = wall + 0.1;
	}
	return 0;
}
