/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to alloc: where the code of a process's function leads to. An entry point of an allocator that ends in a jump
 * to another one is seen twice by probes of both; one that calls another is its caller. The code tells, as it is
 * in the process: compilers and versions differ in what they inline. It is read, never run; hostile.
 */
#pragma once

#include "node/runtime/runtime.h"

/* n bytes of code as its file has them: without breakpoints. What is not of a file is read from memory. 0 or -errno. */
int alloc_code_bytes(const struct runtime_look *look, uint64_t address, void *to, size_t n);

/* Pages of code that were read, for many walks. */
struct code;
struct code *alloc_code_new(const struct runtime_look *look);
struct code *alloc_code_free(struct code *c);

#define CODE_WAYS_MAX 16
struct code_ways {
	uint64_t jumps[CODE_WAYS_MAX]; /* places that it goes on to without a way back: tail calls */
	uint64_t calls[CODE_WAYS_MAX]; /* places that it calls, or what it calls does */
	uint64_t returns[CODE_WAYS_MAX]; /* to where these calls come back; of its own code only */
	size_t n_jumps, n_calls, n_returns;
	bool any_call; /* of anything */
	bool open; /* it jumps to where a pointer says that is not set yet: a library function not called before */
	bool cut; /* a limit was reached: there may be more ways. What leads to a site unseen is counted twice */
};
/*
 * Follows the function's jumps, and calls to the given depth within its file, up to places (ascending), which are
 * where other functions begin. What cannot be read or decoded ends a path.
 */
void alloc_code_ways(struct code *c, uint64_t function, const uint64_t *places, size_t n, unsigned depth,
	       struct code_ways *ret);
/* The place that a function is nothing but a jump to; 0: it is not, or, cut, by more jumps than are followed. */
uint64_t alloc_code_thunk(struct code *c, uint64_t function, const uint64_t *places, size_t n,
		    bool *ret_cut);
/* At most 15 bytes of an executable mapping; fewer at its end; 0: there is none. */
size_t alloc_code_read(struct code *c, uint64_t address, uint8_t ret[static 15]);
