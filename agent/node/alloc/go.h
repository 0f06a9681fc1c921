/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to go*.c: Go's memory. go_heap.c reads the program's own heap profile. If there is none,
 * the functions that allocate are probed. Facts are from Go's src/runtime/mprof.go and malloc.go,
 * 1.18 to 1.27.
 */
#pragma once

#include "node/alloc/alloc.h"

/* index: that of the program, for its inlined functions. bias: process address - ELF address. */
struct alloc_go_heap *alloc_go_heap_new(const struct go_profile *p, struct elf_index *index,
				  uint64_t bias);
