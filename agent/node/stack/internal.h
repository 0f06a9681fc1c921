/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of stack share with each other, their tests and fuzz targets. */
#pragma once

#include "node/stack/stack.h"

/* ---- kallsyms.c ---- */
struct kernel_symbols;
struct kernel_symbols *kernel_symbols_free(struct kernel_symbols *k);
/* Cuts the text in place, keeps nothing of it. When all addresses are zero there are no symbols,
 * and kernel_symbols_hidden. */
struct kernel_symbols *kernel_symbols_parse(char *text, size_t n);
int kernel_symbols_read(const char *path, struct kernel_symbols **ret);
bool kernel_symbols_hidden(const struct kernel_symbols *k);
size_t kernel_symbols_count(const struct kernel_symbols *k);
/* -ENOENT: before the first symbol, or in a hole. Strings are borrowed from k. */
int kernel_symbols_find(const struct kernel_symbols *k, uint64_t address, uint64_t *ret_start,
			const char **ret_name, const char **ret_module);
/* Changes when modules or BPF programs come. *newest_bpf is kept between calls, 0 at first. */
uint64_t kernel_symbols_fingerprint(const char *path, uint32_t *newest_bpf);

/* ---- kernel.c ---- */
struct kernel_names;
struct kernel_names *kernel_names_new(const char *path); /* NULL: /proc/kallsyms */
struct kernel_names *kernel_names_free(struct kernel_names *k);
int kernel_names_refresh(struct kernel_names *k); /* -ENODATA: see kernel_names_problem */
const char *kernel_names_problem(const struct kernel_names *k);
/* Fills name, module and the function's address if they are known; valid until the next call. */
void kernel_names_find(struct kernel_names *k, uint64_t address, struct frame *f);

/* ---- named.c: names of the runtimes' frames of one process ---- */
struct named;
struct named *named_new(void);
struct named *named_free(struct named *n);
/* The frame of a runtime that called it: the next one of the same runtime; NULL: none, or it does not matter. */
const struct raw_frame *named_caller(const struct raw_stack *stack, size_t i);
/* Its names; NULL: not known (yet). Borrowed until the next call. */
const struct runtime_names *named_find(struct named *n, const struct raw_frame *f,
				       const struct raw_frame *caller);
/* What is not known of a stack goes into w, once. */
void named_want(struct named *n, const struct raw_stack *stack, struct names_wanted *w);
void named_take(struct named *n, struct names_wanted *w);
