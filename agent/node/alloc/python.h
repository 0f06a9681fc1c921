/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to python*.c: CPython's table of functions that allocate, and the copies of these
 * functions in its code.
 */
#pragma once

#include "node/alloc/code.h"

/* PyMemAllocatorEx, Include/cpython/pymem.h */
struct python_allocator {
	uint64_t context;
	uint64_t malloc, calloc, realloc, free; /* functions; context is their first argument */
};

/* ---- python_copies.c ---- */
enum python_value_kind { PYTHON_UNKNOWN, PYTHON_REGISTER, PYTHON_CONSTANT };
struct python_value {
	enum python_value_kind kind;
	uint64_t value; /* a register's number, or the constant */
};
/*
 * A place in code that compares a pointer with a function: if they are equal, a copy of the
 * function's code follows, else a call by the pointer.
 */
struct python_copy {
	size_t function;  /* index into functions */
	uint64_t address; /* address of the comparison */
	struct python_value registers[16]; /* arguments of the call, at the comparison */
};
typedef void python_copy_fn(const struct python_copy *c, void *arg);
/* Looks for copies in the mapping of the first function. -E2BIG: there is too much code. */
int alloc_python_copies(const struct runtime_look *look, struct alloc_code *code,
			const uint64_t *functions, size_t n, python_copy_fn *fn, void *arg);
