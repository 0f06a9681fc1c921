/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_gpu: what the programs in C and C++ share that give work to GPUs. The stand-in driver of
 * e2e/gpu knows how long each piece of work takes. The protocol is told.h's; a line of TOLD is
 * "on-gpu FUNCTION MICROSECONDS LEAF", where LEAF is the name of the kernel, the copy or the set.
 */
#pragma once

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "../../gpu/standin.h"
#include "../../gpu/standin_cupti.h"
#include "gpu_calls.h"
#include "told.h"

#define TAKES_US(us) standin_set_work_ns((us)*1000ull)

static void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

static const struct standin_cupti *cupti;

/*
 * Loads CUPTI before podflame's library needs it, as frameworks do (PyTorch). If the library loads
 * it, the agent does not know yet how to unwind through it, and the first stacks are cut there.
 */
static void open_cupti(void)
{
	void *library = dlopen("libcupti.so.12", RTLD_NOW);

	cupti = library ? (const struct standin_cupti *)dlsym(library, "standin_cupti") : NULL;
	if (!cupti)
		fail("libcupti.so.12");
}

/*
 * Waits until podflame's library, which looks twice a second whether it is profiled, has enabled
 * all four kinds of records. parcagpu's library enables only those of kernels, and at once.
 */
static void wait_until_profiled(void)
{
	unsigned n = strstr(getenv("CUDA_INJECTION64_PATH"), "parcagpu") ? 1 : 4;

	while (__atomic_load_n(&cupti->n_enabled, __ATOMIC_ACQUIRE) < n)
		pause_us(1000);
}

/* Waits until podflame's library has read all records. */
static void wait_until_read(void)
{
	while (__atomic_load_n(&cupti->n_waiting, __ATOMIC_ACQUIRE))
		pause_us(1000);
}

/*
 * Runs a function of at most eight launches. It waits between the rounds, because the library
 * reports all launches only if there are at most about a thousand a second.
 */
__attribute__((unused)) static void runs(void (*f)(void))
{
	for (unsigned i = 0; i < rounds; i++) {
		f();
		pause_us(10000);
	}
}

/* Says that each round had so many microseconds of this leaf under this function. */
static void had(const char *name, uint64_t us, const char *leaf)
{
	fprintf(told, "on-gpu %s %llu %s\n", name, (unsigned long long)(us * rounds), leaf);
}
