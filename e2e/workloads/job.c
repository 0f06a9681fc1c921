/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A short job: uses the given CPU time (in seconds, default 1) in job_work, prints the time and
 * ends.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void job_work(double until_s)
{
	while (cpu_s() < until_s)
		for (int i = 0; i < 20000; i++)
			sink = sink * 3 + 1;
}

int main(int argc, char **argv)
{
	job_work(argc > 1 ? strtod(argv[1], NULL) : 1);
	printf("cpu_s %.3f\n", cpu_s());
	return 0;
}
