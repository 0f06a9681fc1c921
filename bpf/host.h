/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * host: replaces the parts of the kernel that unwind.h needs, so that unwind.h also compiles as a
 * normal program: its tests and its fuzzer run under sanitizers. The file that includes this header
 * defines the two functions that are only declared here. They read an image of a process's memory,
 * and find chunks in that file's own memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#undef __always_inline /* glibc defines this macro, too */
#define __always_inline inline __attribute__((always_inline))
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif
#define PF_ONCE static __noinline

static struct pf_config pf_config = {.seed = 1};

/* Here a map needs nothing but an address. */
static char chunks, unwind_files, images;

static long bpf_probe_read_user(void *to, uint32_t n, const void *address);
/* For the map `chunks`, this function returns a map of one value. */
static void *bpf_map_lookup_elem(void *map, const void *key);

static inline long bpf_loop(uint32_t n, void *step, void *arg, uint64_t flags)
{
	uint32_t i;

	(void)flags;
	for (i = 0; i < n; i++)
		if (((long (*)(uint32_t, void *))step)(i, arg))
			return i + 1;
	return n;
}
