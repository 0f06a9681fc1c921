/* SPDX-License-Identifier: Apache-2.0 */
/* For *_bench.c only: one JSON object a line on standard output, and nothing else there. */
#pragma once

#include "lib/base/base.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* compared_with: a text that names the value with which a reader compares this one. */
static inline void bench_report(const char *name, double value, const char *unit,
				const char *compared_with)
{
	printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"compared_with\":\"%s\"}\n", name,
	       value, unit, compared_with);
	fflush(stdout);
}

/* As bench_report(), with a goal for the value: a text such as ">= 200000" or "<= 30". */
static inline void bench_goal(const char *name, double value, const char *unit, const char *goal,
			      const char *compared_with)
{
	printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"goal\":\"%s\","
	       "\"compared_with\":\"%s\"}\n",
	       name, value, unit, goal, compared_with);
	fflush(stdout);
}

static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	if (isnan(x) || isnan(y))
		return isnan(x) - isnan(y);
	return x < y ? -1 : x > y;
}

/*
 * Returns the median; sorts the values. NaN (0 / 0) is the value of a round in which nothing ran.
 * It is sorted last, and bench_rounds ignores it.
 */
static inline double bench_median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), bench_by_value);
	return values[n / 2];
}

/*
 * Reports the median of the rounds' values, and the smallest and the largest one. goal: as
 * bench_goal's, or "".
 */
static inline void bench_rounds(const char *name, double *values, size_t n, const char *unit,
				const char *goal, const char *compared_with)
{
	bench_median(values, n);
	while (n && isnan(values[n - 1]))
		n--;
	if (!n) {
		fprintf(stderr, "%s: skip: %s: nothing ran in any round\n",
			program_invocation_short_name, name);
		return;
	}
	printf("{\"name\":\"%s\",\"value\":%.3f,\"least\":%.3f,\"most\":%.3f,\"rounds\":%zu,"
	       "\"unit\":\"%s\",\"goal\":\"%s\",\"compared_with\":\"%s\"}\n",
	       name, values[n / 2], values[0], values[n - 1], n, unit, goal, compared_with);
	fflush(stdout);
}

/* Prints what failed and why, and ends the program. err: errno or its negative. */
static inline _Noreturn void bench_die(const char *what, int err)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		strerror(err < 0 ? -err : err));
	exit(1);
}

static inline void bench_nap(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}
