/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to alloc: finds to which functions the code of a function leads. If one entry point of an
 * allocator calls another, or ends in a jump to it, probes of both see one allocation twice.
 * Compilers and versions differ in what they inline, so the agent decodes the code of the process
 * itself. The agent never runs this code, which is hostile. Reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

/*
 * Reads n bytes of code from the file, which has no breakpoints in them; if no file has them, from
 * memory. 0 or -errno.
 */
int alloc_code_bytes(const struct runtime_look *look, uint64_t address, void *to, size_t n);

/* The walker over code. It keeps pages of code that it has read, for later walks. */
struct alloc_code;
struct alloc_code *alloc_code_new(const struct runtime_look *look);
struct alloc_code *alloc_code_free(struct alloc_code *c);

#define CODE_WAYS_MAX 16
struct code_ways {
	/* places to which the function jumps without return: tail calls */
	uint64_t jumps[CODE_WAYS_MAX];
	/* places that are called by the function or by one that it calls */
	uint64_t calls[CODE_WAYS_MAX];
	/* return addresses of these calls, only those in the function itself */
	uint64_t returns[CODE_WAYS_MAX];
	size_t n_jumps, n_calls, n_returns;
	bool any_call; /* the function calls a place or other code */
	/*
	 * The function jumps by a pointer that is not set yet: to a library function that the
	 * process has not called before.
	 */
	bool open;
	/* A limit was reached and there may be more: an allocation may be counted twice. */
	bool cut;
};
/*
 * Follows the jumps of the function, and its calls down to the given depth, inside its file. Stops
 * at places: the addresses (ascending) where other functions begin. A path ends at code that cannot
 * be read or decoded.
 */
void alloc_code_ways(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
		     unsigned depth, struct code_ways *ret);
/*
 * If the function is only a jump to a place, returns that place; else 0. If there are more jumps in
 * a row than are followed, returns 0 and sets *ret_cut.
 */
uint64_t alloc_code_thunk(struct alloc_code *c, uint64_t function, const uint64_t *places, size_t n,
		    bool *ret_cut);
/*
 * Reads at most 15 bytes of an executable mapping, and returns how many; fewer at the mapping's
 * end. 0: there is no mapping at the address.
 */
size_t alloc_code_read(struct alloc_code *c, uint64_t address, uint8_t ret[static 15]);
