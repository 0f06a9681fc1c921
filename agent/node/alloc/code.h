/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to alloc: to which functions the code of a function leads. If one entry point of an
 * allocator ends in a jump to another, or calls it, probes of both see one allocation twice.
 * Compilers and versions differ in what they inline, so the agent decodes the code of the process
 * itself. It never runs it, and the code is hostile. Reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

/*
 * Reads n bytes of code from the file, where they are without breakpoints; from memory, if no file
 * has them. 0 or -errno.
 */
int alloc_code_bytes(const struct runtime_look *look, uint64_t address, void *to, size_t n);

/* The walker: it keeps pages of code that it read, for many walks. */
struct alloc_code;
struct alloc_code *alloc_code_new(const struct runtime_look *look);
struct alloc_code *alloc_code_free(struct alloc_code *c);

#define CODE_WAYS_MAX 16
struct code_ways {
	uint64_t jumps[CODE_WAYS_MAX]; /* places that the function jumps to for good: tail calls */
	uint64_t calls[CODE_WAYS_MAX]; /* places that the function, or one that it calls, calls */
	uint64_t returns[CODE_WAYS_MAX]; /* return addresses of these calls, in its own code only */
	size_t n_jumps, n_calls, n_returns;
	bool any_call; /* it calls something, a place or not */
	/*
	 * It jumps by a pointer that is not set yet: a library function that was not called before.
	 */
	bool open;
	/* A limit was reached and there may be more: an allocation may be counted twice. */
	bool cut;
};
/*
 * Follows the function's jumps, and its calls down to the given depth, within its file, up to
 * places: the addresses (ascending) where other functions begin. A path ends at code that cannot be
 * read or decoded.
 */
void alloc_code_ways(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
		     unsigned depth, struct code_ways *ret);
/*
 * If the function is only a jump to a place: that place. 0: it is not; or *ret_cut is set, and
 * there are more jumps in a row than are followed.
 */
uint64_t alloc_code_thunk(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
		    bool *ret_cut);
/*
 * Reads at most 15 bytes of an executable mapping; fewer at its end. 0: there is no such mapping.
 */
size_t alloc_code_read(struct alloc_code *c, uint64_t address, uint8_t ret[static 15]);
