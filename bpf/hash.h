/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hash: 64-bit hashes that stand for stacks, process names and trace contexts. A hash begins with a
 * seed, which is random for each load of the programs, and with the process. So a pod cannot make a
 * stack whose hash is that of another pod's stack. It could only make two of its own stacks
 * collide.
 */
#pragma once

#ifdef __bpf__
#include "maps.h"
#else
#include "host.h"
#endif

#define PF_HASH_K 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio: odd, so multiplying loses nothing */

static __always_inline uint64_t pf_hash_add(uint64_t h, uint64_t word)
{
	h = (h ^ word) * PF_HASH_K;
	return h ^ (h >> 29);
}

static __always_inline uint64_t pf_hash_start(uint64_t a, uint64_t b)
{
	return pf_hash_add(pf_hash_add(pf_config.seed, a), b);
}

/*
 * Mixed into the hashes of a tick's stacks, so that they differ from those of waits and memory even
 * if the frames are equal. The agent keeps the stacks of waits and memory for later references, but
 * not those of ticks (probe/drain_cache.c).
 */
#define PF_HASH_TICK 1

/* Returns the finished hash. It is never 0, because 0 means "none". */
static __always_inline uint64_t pf_hash_end(uint64_t h)
{
	h = pf_hash_add(h, pf_config.seed >> 32);
	return h ? h : 1;
}
