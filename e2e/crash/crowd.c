/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd N: runs N processes. Each uses a little CPU time and sleeps, again and again. All end when
 * the first one ends.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define BURN_NS 1000000
#define REST_S	5

static long cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv)
{
	const struct timespec rest = {.tv_sec = REST_S};
	int n = argc > 1 ? atoi(argv[1]) : 1;

	while (--n > 0)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			break;
		}
	for (;;) {
		for (long end = cpu_ns() + BURN_NS; cpu_ns() < end;)
			;
		nanosleep(&rest, NULL);
	}
}
