/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_none: programs that call NVIDIA's own libraries on a machine without a GPU. All calls fail,
 * so nothing may be counted. While podflame profiles, the calls must give the same results as
 * without it. The protocol is that of told.h. The includer has declared cuInit().
 *
 * A child makes the calls before the order to begin. So the libraries begin their work in the
 * program itself after the order, when podflame has set its probes. The driver alone is initialized
 * before: it loads podflame's library.
 */
#pragma once

#include "told.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS	     12
#define CALL(name)   __attribute__((noinline)) static void name(int *ret)
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

struct call {
	const char *name;
	void (*call)(int *ret); /* stores up to CALLS results */
};

enum { CALLS_MAX = 8, CPU_SECONDS = 1 };
static int right[CALLS_MAX][CALLS];

/* Has a child store the results of the calls in `right`. */
static void learn_results(const struct call *calls, size_t n)
{
	int to_parent[2], status;
	pid_t child;

	if (n > CALLS_MAX || pipe(to_parent) || (child = fork()) < 0)
		fail("child");
	if (child == 0) {
		for (size_t i = 0; i < n; i++)
			calls[i].call(right[i]);
		_exit(write(to_parent[1], right, sizeof(right)) != sizeof(right));
	}
	if (read(to_parent[0], right, sizeof(right)) != sizeof(right) ||
	    waitpid(child, &status, 0) != child || status)
		fail("the child's results");
	for (size_t i = 0; i < n; i++)
		if (!right[i][0]) {
			fprintf(stderr, "%s: this machine has a GPU\n", calls[i].name);
			exit(1);
		}
}

static void compare(const struct call *call, const int *results)
{
	int now[CALLS] = {0};

	call->call(now);
	for (size_t k = 0; k < CALLS; k++) {
		if (now[k] == results[k])
			continue;
		fprintf(stderr, "%s: call %zu gave %d, and gives %d now\n", call->name, k,
			results[k], now[k]);
		exit(1);
	}
}

static void run(int argc, char **argv, const struct call *calls, size_t n)
{
	static const char *const events[] = {"hbm-alloc", "hbm-inuse", "on-gpu"};

	open_told(argc, argv);
	learn_results(calls, n);
	cuInit(0);
	wait_for_order();
	for (unsigned k = 0; k < rounds || k % 256 || clock() < CPU_SECONDS * CLOCKS_PER_SEC; k++)
		for (size_t i = 0; i < n; i++)
			compare(&calls[i], right[i]);
	for (size_t i = 0; i < n; i++)
		for (size_t e = 0; e < COUNT(events); e++)
			fprintf(told, "%s %s 0\n", events[e], calls[i].name);
	end();
}
