/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hash: names stacks and process names by 64 bits. Seeded at load and by the
 * process, so that no pod can make another's hash: a collision that it could
 * construct would be between two stacks of its own.
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
 * Mixed into the hashes of a tick's stacks: none is that of a wait's or of memory's, whatever its
 * frames. Those may be referred to much later, and are kept for that; a tick's are not (held.c).
 */
#define PF_HASH_TICK 1

/* Never 0, which means "none". */
static __always_inline uint64_t pf_hash_end(uint64_t h)
{
	h = pf_hash_add(h, pf_config.seed >> 32);
	return h ? h : 1;
}
