/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_sample: which allocations are taken, and how many bytes they count for. The sum is right
 * on average, and an allocation that is not taken costs only a subtraction.
 */
#pragma once

#include "kernel.h"

/* Which byte of the small allocations on this CPU is the next chosen one: see pf_mem_worth(). */
struct pf_mem_points {
	uint64_t each; /* bytes of a stretch */
	uint64_t next; /* bytes until the next chosen one */
	uint64_t rest; /* bytes from the next chosen byte to the end of its stretch */
};

static __always_inline uint64_t pf_mem_random_below(uint64_t bound)
{
	return (uint64_t)bpf_get_prandom_u32() * bound >> 32;
}

static __noinline uint64_t pf_mem_worth_small(struct pf_mem_points *p, uint64_t size, uint64_t each)
{
	uint64_t next, rest, value = 0;

	if (!p)
		return 0;
	next = p->next;
	rest = p->rest;
	if (p->each != each) {
		p->each = each;
		next = pf_mem_random_below(each);
		rest = each - next;
	}
	/* The allocation is smaller than a stretch, so it is in two stretches at most. */
	for (int i = 0; i < 2 && next < size; i++) {
		uint64_t at = pf_mem_random_below(each);

		next += rest + at;
		rest = each - at;
		value += each;
	}
	/* next < size only if another task ran in between, which is possible before 6.10. */
	p->next = next < size ? 0 : next - size;
	p->rest = rest;
	return value;
}

/*
 * Returns the bytes for which an allocation counts; 0: the allocation is not taken. A large
 * allocation counts for its own size. The bytes of all smaller ones form stretches of `each` bytes,
 * and one byte of each stretch is chosen at random. The allocation that has the chosen byte counts
 * for the stretch. So each byte is chosen with probability 1 / each, whatever the sizes are. An
 * allocation without such a byte costs a subtraction.
 */
static __always_inline uint64_t pf_mem_worth(struct pf_mem_points *p, uint64_t size, uint64_t each)
{
	uint64_t next = *(volatile uint64_t *)&p->next;

	if (size >= each)
		return size;
	if (p->each != each || next < size)
		return pf_mem_worth_small(p, size, each);
	p->next = next - size;
	return 0;
}
