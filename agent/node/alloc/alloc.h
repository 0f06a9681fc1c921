/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: finds where a process allocates memory: which functions of which of its files must be
 * probed, and what a hit of each means (struct pf_site). It does not set probes. It also reads Go's
 * own heap profile. The allocators of C, C++ and Rust are rows of allocators.c, and the entries of
 * the CUDA driver, for memory of GPUs, rows of cuda_entries.c. A runtime with an allocator of its
 * own (Python, Go, HotSpot) has a file here. So has the library that reports the work of GPUs. All
 * runs on the reader's thread. All files and memory of a process are hostile. docs/memory.md,
 * docs/gpu-memory.md, docs/gpu.md.
 */
#pragma once

#include "bpf/abi.h"
#include "node/runtime/go_heap.h"
#include "node/runtime/runtime.h"

struct alloc_site {
	size_t mapping;	      /* index into maps->items: a mapping of the file */
	uint64_t file_offset; /* the place of the probe in the file */
	uint64_t address;     /* the probe's address in the process */
	uint64_t semaphore;   /* see struct probe_site; 0: none */
	struct pf_site site;
	char symbol[64]; /* to be shown to a user */
};
#define ALLOC_SITES_MAX	    512 /* sites of one process: places where the agent sets probes */
#define ALLOC_PROBLEM_BYTES 512

/* Go's own heap profile (runtime.mbuckets): the agent reads it instead of setting probes. */
struct alloc_go_heap;
struct shares;

struct alloc_sites {
	/* sorted by the mapping's file, then by offset; no offset twice */
	struct alloc_site *items;
	size_t n;
	/*
	 * Allocators' own code in the process. If a probed function was called from there, the hit
	 * is part of an allocation that another probe sees.
	 */
	struct {
		uint64_t start, end;
	} inner[PF_MEM_INNER_MAX + 1];
	size_t n_inner;
	/*
	 * Go's heap profile. NULL: the process is no Go program, or its profile is off. If it is
	 * off, items has sites of Go's functions
	 */
	struct alloc_go_heap *go;
	/* the process has Go's or Java's heap: the sites see only a part of its memory */
	bool own_heap;
	bool copied; /* in some functions no probe can be set; `problem` says so */
	uint32_t n_functions; /* RDMA: how many functions of providers this search was given */
	/*
	 * For a user: which allocations are not seen, and why ("libjvm.so has no .symtab: ...;
	 * ..."). "": all are seen.
	 */
	char problem[ALLOC_PROBLEM_BYTES];
};
/*
 * Finds the sites of a process. event_mask: 1 << event, for events of one probe set. If nothing can
 * be probed, the function returns 0, and *ret has a problem but no items. For hbm-alloc and
 * hbm-inuse, *ret has neither if the process has no CUDA driver. -EAGAIN: the process is just
 * starting (it has no libc yet); the caller tries again when the process's mappings change.
 */
int alloc_sites_find(const struct runtime_look *look, unsigned event_mask,
		     struct alloc_sites **ret);
struct alloc_sites *alloc_sites_free(struct alloc_sites *s);

/*
 * Returns the symbols that alloc looks for, for parser_config.marks, like runtime_marks(). The last
 * element is NULL.
 */
const char *const *alloc_marks(void);

/* ---- Go's heap profile: go_heap.c ---- */
struct alloc_go_heap *alloc_go_heap_free(struct alloc_go_heap *g); /* alloc_sites_free() calls it */
/* Says whose program it is (struct charged), before the first read. The first call counts. */
void alloc_go_charge(struct alloc_go_heap *g, uint64_t charged_ns);
/*
 * One stack of the profile. Values are scaled up from Go's samples, as pprof does
 * (scaleHeapSample).
 */
struct alloc_go_record {
	const uint64_t *addresses; /* return addresses, leaf first */
	size_t n_addresses;
	bool truncated; /* frames towards the root are missing */
	/* What was allocated between the previous read and this one. */
	uint64_t alloc_bytes,
		alloc_objects;
	uint64_t inuse_bytes, inuse_objects; /* at the last finished garbage collection */
};
typedef void alloc_go_fn(const struct alloc_go_record *r, void *arg);
/*
 * Reads the whole profile with `read`, which gets `from`, and calls fn for each of its stacks. In
 * the first read, alloc_bytes and alloc_objects are 0 in all records, since it is not known when
 * the memory was allocated. The program may change the profile during the read, but fn gets only
 * consistent values.
 * - -E2BIG: the profile has more buckets than the limit; fn was called only for a part of them,
 * with right values.
 * - -ENODATA: the profile is off now; the caller calls alloc_sites_find() again.
 * - Other errors of `read`: fn was not called. The next read may succeed.
 */
int alloc_go_read(struct alloc_go_heap *g, go_heap_reader *read, void *from, alloc_go_fn *fn,
		  void *arg);
/*
 * Adds to `to` each namespace (struct charged) that had more stacks than its share since the last
 * call. Any thread.
 */
void alloc_go_refused(struct shares *to);
/* Makes the next read like the first one: in its records, alloc_bytes and alloc_objects are 0. */
void alloc_go_begin_anew(struct alloc_go_heap *g);
