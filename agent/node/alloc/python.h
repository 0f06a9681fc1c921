/* SPDX-License-Identifier: Apache-2.0 */
/* Private to python*.c. */
#pragma once

#include "node/alloc/code.h"

/* PyMemAllocatorEx, Include/cpython/pymem.h */
struct python_allocator {
	uint64_t context;
	uint64_t malloc, calloc, realloc, free; /* of (context, ...) */
};

/* ---- python_copies.c ---- */
enum python_value_kind { PYTHON_UNKNOWN, PYTHON_REGISTER, PYTHON_CONSTANT };
struct python_value {
	enum python_value_kind kind;
	uint64_t value; /* a register's number, or the constant */
};
/* Code that asks whether a pointer is a function, and has the function's code where it is, else calls the pointer. */
struct python_copy {
	size_t function;  /* index of functions */
	uint64_t address; /* of the comparison */
	struct python_value registers[16]; /* what the call gets, as of the comparison */
};
typedef void python_copy_fn(const struct python_copy *c, void *arg);
/* Looks at all code around the first function. -E2BIG: that is too much. */
int alloc_python_copies(const struct runtime_look *look, struct code *code, const uint64_t *functions,
		  size_t n, python_copy_fn *fn, void *arg);
