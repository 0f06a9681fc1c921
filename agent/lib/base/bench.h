/* SPDX-License-Identifier: Apache-2.0 */
/* For *_bench.c only: one JSON object a line on standard output, and nothing else there. */
#pragma once

#include "lib/base/base.h"

#include <stdlib.h>
#include <time.h>

/* compared_with: what the value is to be read against, in words. */
static inline void bench_report(const char *name, double value, const char *unit,
				const char *compared_with)
{
	printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"compared_with\":\"%s\"}\n", name,
	       value, unit, compared_with);
	fflush(stdout);
}

/* err: errno or its negative. */
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
