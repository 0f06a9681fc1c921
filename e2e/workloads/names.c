/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thirty processes with thirty names (worker-00 ...). Each uses a few percent of a CPU in
 * names_work.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define N_NAMES 30

static volatile uint64_t sink;

__attribute__((noinline)) static void names_work(void)
{
	struct timespec t, end;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	do {
		for (int i = 0; i < 20000; i++)
			sink = sink * 3 + 1;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while ((t.tv_sec - end.tv_sec) * 1000000000 + t.tv_nsec - end.tv_nsec < 2000000);
}

static void child(int n)
{
	char name[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(name, sizeof(name), "worker-%02d", n);
	prctl(PR_SET_NAME, name);
	for (;;) {
		names_work();
		usleep(60000);
	}
}

int main(void)
{
	signal(SIGCHLD, SIG_IGN);
	for (int i = 0; i < N_NAMES; i++)
		if (fork() == 0)
			child(i);
	for (;;)
		pause();
}
