/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap profile that a Go program has of itself (runtime.mbuckets), as a child of the program's
 * namespace reads it from the program's memory. A bucket has a stack and a size of objects, which
 * never change, and counts of such objects that were sampled and freed. Go adds new buckets at the
 * head of a list, so each is read once, and the counts of all are read each time. Facts are from
 * Go's src/runtime/mprof.go, 1.18 to 1.27. Reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

#define GO_BUCKETS_MAX 65536	    /* buckets of one program; further ones are not read */
#define GO_STACK_MAX   1100	    /* maxProfStackDepth, and room for inlined frames */
#define GO_OBJECT_MAX  (1ull << 47) /* bytes; a larger object is damaged data */
#define GO_RATE_MAX    (1ull << 40) /* bytes; a larger MemProfileRate is damaged data */
#define GO_READ_BUDGET (64u << 20)  /* limit for one read, in bytes; 65,536 stacks need less */

/* Where a program's heap profile is, and the layout that its Go version has. */
struct go_profile {
	uint64_t buckets;      /* address of runtime.mbuckets */
	uint64_t rate;	       /* address of runtime.MemProfileRate */
	uint64_t cycle;	       /* address of runtime.mProfCycle; in 1.18 of mProf.cycle */
	uint32_t cycle_shift;  /* 1 since 1.19: the word's low bit is a flag */
	uint32_t counts_bytes; /* size of a memRecordCycle: 32, or 16 since 1.27 */
};
struct go_bucket {
	uint64_t counts; /* address of the bucket's counts */
	uint64_t size;	 /* size of one object of the bucket, 1 to GO_OBJECT_MAX */
};
struct go_counts {
	uint64_t allocs, frees;		  /* counts in all cycles */
	uint64_t live_allocs, live_frees; /* counts at the last finished collection */
};

/* One read. The numbers are hostile, except as said here. */
struct go_heap_read {
	struct go_profile at;
	/*
	 * what earlier reads have found, at most GO_BUCKETS_MAX; not used after the first call of
	 * `bucket`
	 */
	const struct go_bucket *known;
	size_t n_known;
	/* the head of the list in the last read, 0: there was none; after the call: in this read */
	uint64_t head;
	/*
	 * Takes a new bucket, the newest first. The stack has return addresses, leaf first, n of at
	 * most GO_STACK_MAX; the function may change it. If the read fails, the buckets count for
	 * nothing, and the next read finds them again.
	 */
	void (*bucket)(void *arg, const struct go_bucket *b, uint64_t *stack, size_t n);
	void *arg;
	/* results */
	uint64_t rate;	/* MemProfileRate, 1 to GO_RATE_MAX */
	bool collected; /* the first collection has ended */
	bool full;	/* there are more buckets than GO_BUCKETS_MAX */
	size_t n_new;	/* buckets that were told; with the known ones at most GO_BUCKETS_MAX */
	/* of the known buckets, then of the new ones; the caller frees it. NULL after an error */
	struct go_counts *counts;
};
/*
 * Reads a profile. -EAGAIN: it changed all the time. -ENODATA: it is off. -E2BIG: over the budget.
 * -EBADMSG: it is damaged. Other errors of runtime_memory_read().
 */
typedef int go_heap_reader(struct go_heap_read *r, void *from);

/*
 * go/go_heap_ask.c: has a child read. from: struct runtime_asked. Other errors: -EBUSY, -ECANCELED,
 * -ETIMEDOUT, -EPIPE: no child answers now.
 */
go_heap_reader runtime_go_heap_ask;
/* go/go_heap_walk.c: reads in this process. Only the child and tests do. from: struct memory. */
go_heap_reader runtime_go_heap_walk;
