/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: where a process allocates memory: which functions of which of its files are to be probed, and
 * what a hit of each means (struct pf_site). Every entry point is a row of a table: library, symbol,
 * which argument is the size. Rows of C's allocators are in alloc.c; what a runtime does its own way
 * (Python, Go, HotSpot) is a file of its own and one row. Reader's thread; all files and memory of a process are hostile.
 * docs/memory.md.
 */
#pragma once

#include "bpf/abi.h"
#include "node/runtime/runtime.h"

struct alloc_site {
	size_t mapping;	      /* index into maps->items: a mapping of the file */
	uint64_t file_offset; /* where the probe goes */
	uint64_t address;     /* the same in the process */
	struct pf_site site;
	char symbol[64]; /* for people */
};
#define ALLOC_SITES_MAX	    512 /* of one process */
#define ALLOC_PROBLEM_BYTES 512

/* Go's own heap profile (runtime.mbuckets), which is read instead of probing. */
struct alloc_go_heap;

struct alloc_sites {
	struct alloc_site *items; /* by mapping's file, then offset; each place once */
	size_t n;
	/* Code of allocators in the process: a hit whose caller is in there is part of another call. */
	struct {
		uint64_t start, end;
	} inner[PF_MEM_INNER_MAX + 1];
	size_t n_inner;
	struct alloc_go_heap *go; /* NULL: not Go, or its profile is off: sites has a probe then */
	bool own_heap;		  /* Go's or Java's, which is not of these places alone */
	bool copied;		  /* there are functions that no probe can be set in, which is told */
	/* What is not seen, and why, for its user: "libjvm.so has no .symtab: ...; ..."; "": all is. */
	char problem[ALLOC_PROBLEM_BYTES];
};
/*
 * event_mask: 1 << EVENT_MEM_ALLOC, EVENT_MEM_INUSE. 0 with n 0 and a problem when nothing can be probed. -EAGAIN: the
 * process is just starting (no libc yet): again when its mappings change.
 */
int alloc_sites_find(const struct runtime_look *look, unsigned event_mask,
		     struct alloc_sites **ret);
struct alloc_sites *alloc_sites_free(struct alloc_sites *s);

/* Symbols that it looks for, for parser_config.marks, which get them besides runtime_marks(); NULL at the end. */
const char *const *alloc_marks(void);

/* ---- Go's heap profile: go_heap.c ---- */
struct alloc_go_heap *alloc_go_heap_free(struct alloc_go_heap *g); /* by alloc_sites_free */
/* One stack of the profile. Values are scaled to what they stand for, as pprof does (scaleHeapSample). */
struct alloc_go_record {
	const uint64_t *addresses; /* return addresses, leaf first */
	size_t n_addresses;
	bool truncated; /* there are outer ones */
	uint64_t alloc_bytes,
		alloc_objects; /* since the record before: of the time between two reads */
	uint64_t inuse_bytes, inuse_objects; /* as of the last finished garbage collection */
};
typedef void alloc_go_fn(const struct alloc_go_record *r, void *arg);
/*
 * Reads the whole profile; the first read tells alloc 0 for all (what was before is nobody's). Values of memory that is
 * changed while it is read are told when they are consistent. -E2BIG: more buckets than a limit; what was told counts.
 * -EAGAIN: it changed all the time: nothing was told, next time is. -ENODATA: the profile is off by now: alloc_sites_find again.
 */
int alloc_go_read(struct alloc_go_heap *g, struct memory *m, alloc_go_fn *fn, void *arg);
/* The next read is as the first: what was allocated before it is nobody's. */
void alloc_go_begin_anew(struct alloc_go_heap *g);
