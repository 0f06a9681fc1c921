/* SPDX-License-Identifier: Apache-2.0 */
/* gpu: code that several programs in C and C++ use to allocate memory of a GPU. */
#pragma once

#include "../../gpu/standin.h"
#include "gpu_calls.h"
#include "told.h"

static uint64_t all_bytes, all_kept;

/* Runs a function that allocates `bytes` each time, and keeps `kept` of them. Prints the sums. */
static void allocates(const char *name, void (*f)(void), uint64_t bytes, uint64_t kept)
{
	for (unsigned i = 0; i < rounds; i++)
		f();
	fprintf(told, "hbm-alloc %s %llu\nhbm-inuse %s %llu\n", name,
		(unsigned long long)bytes * rounds, name, (unsigned long long)kept * rounds);
	all_bytes += bytes * rounds;
	all_kept += kept * rounds;
}

/* Ends the program if the driver has counted other sums than the program. */
static void compare_with_driver(void)
{
	struct standin_counts c;

	standin_count(&c);
	GIVES(1, c.alloc_bytes == all_bytes);
	GIVES(1, c.live_bytes == all_kept);
}
