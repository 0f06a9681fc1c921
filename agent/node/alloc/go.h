/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to go*.c: Go's memory. go_heap.c reads the program's own heap profile. If there is none,
 * the functions that allocate are probed. Facts are from Go's src/runtime/mprof.go and malloc.go,
 * 1.18 to 1.27.
 */
#pragma once

#include "node/alloc/alloc.h"

/* Where a program's heap profile is, and the layout that its Go version has. */
struct go_profile {
	uint64_t buckets;      /* address of runtime.mbuckets */
	uint64_t rate;	       /* address of runtime.MemProfileRate */
	uint64_t cycle;	       /* address of runtime.mProfCycle; in 1.18 of mProf.cycle */
	unsigned cycle_shift;  /* 1 since 1.19: the word's low bit is a flag */
	unsigned counts_bytes; /* size of a memRecordCycle */
};
/* index: that of the program, for its inlined functions. bias: process address - ELF address. */
struct alloc_go_heap *alloc_go_heap_new(const struct go_profile *p, struct elf_index *index,
				  uint64_t bias);
