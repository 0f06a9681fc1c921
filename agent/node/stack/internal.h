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
