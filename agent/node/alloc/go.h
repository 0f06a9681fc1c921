/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to go*.c. Go's memory: the program's own heap profile, which go_heap.c reads; if there is
 * none, probes of the functions that allocate. Facts are from Go's src/runtime/mprof.go and
 * malloc.go, 1.18 to 1.27.
 */
#pragma once

#include "node/alloc/alloc.h"

/* Where a program's heap profile is, and the layout that its Go version has. */
struct go_profile {
	uint64_t buckets;      /* address of runtime.mbuckets */
	uint64_t rate;	       /* of runtime.MemProfileRate */
	uint64_t cycle;	       /* of runtime.mProfCycle, in 1.18 mProf.cycle */
	unsigned cycle_shift;  /* the word's low bit is a flag since 1.19 */
	unsigned counts_bytes; /* size of a memRecordCycle */
};
/* index: the program's, for inlined functions. bias: process address - ELF address. */
struct alloc_go_heap *alloc_go_heap_new(const struct go_profile *p, struct elf_index *index,
				  uint64_t bias);
