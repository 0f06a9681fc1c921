/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stand-in driver share. One lock guards all state. Each function of the API
 * takes the lock (LOCKED) and calls no other function of the API, because a probe would count that
 * call, too.
 */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "../cuda_driver.h"
#include "../standin.h"

#define N_DEVICES    2
#define DEVICE_BYTES (80ULL << 30)
#define DRIVER	     12090 /* CUDA 12.9 */

void driver_lock(void);
void driver_unlock(void *unused);
#define LOCKED                                                                                    \
	__attribute__((cleanup(driver_unlock), unused)) char is_locked = (driver_lock(), 0)

/* ---- calls.c ---- */
/*
 * A profiler learns of this call of the API, from here to the end of the function. cbid: the number
 * that CUPTI has for the call; name: that of the kernel that the call launches, or NULL
 */
#define CALL_OF_API(cbid, name)                                                                   \
	__attribute__((cleanup(standin_call_end))) struct standin_call call = {                   \
		.domain = 1,                                                                      \
		.id = (cbid),                                                                     \
		.function = __func__,                                                             \
		.kernel = (name),                                                                 \
		.context = context_number()};                                                     \
	standin_call_begin(&call)

/* ---- driver.c ---- */
CUresult driver_needed(void); /* 0: the driver is initialized in this process */
CUresult device_needed(CUdevice dev);

/* ---- contexts.c ---- */
struct CUctx_st {
	uint64_t id;
	CUdevice device;
	unsigned int flags, refs;
	/*
	 * the context that owns the memory of this one: the context itself; for a green context,
	 * the primary one
	 */
	const struct CUctx_st *owner;
	struct CUstream_st *default_stream; /* NULL: not used yet */
	bool destroyed; /* a destroyed context stays allocated: a stale handle gives an error */
};
struct CUctx_st *context_current(void); /* NULL: none, or it is destroyed */
CUresult context_needed(void);
uint32_t context_number(void); /* of the current context; 0: there is none */

/* ---- allocations.c: all that lives, by its address or handle ---- */
enum kind {
	LINEAR, /* memory of a context: from cuMemAlloc and similar functions, or managed memory */
	POOLED, /* memory that is allocated and freed in the order of a stream */
	ARRAY,
	MIPMAPPED,
	PHYSICAL, /* memory from cuMemCreate */
	_DEVICE_KINDS,
	HOST = _DEVICE_KINDS, /* memory of the host, from cuMemHostAlloc and similar functions */
	HOST_PHYSICAL,	      /* cuMemCreate, in the host's memory */
	HOST_POOLED,
	IPC,	/* memory of another process */
	MAPPED, /* physical memory that is mapped at reserved addresses */
};
struct allocation {
	uint64_t key; /* address of the memory, or the handle if there is no address */
	uint64_t bytes;
	enum kind kind;
	CUdevice device;
	/* the context whose end frees the allocation; NULL: the end of no context frees it */
	const struct CUctx_st *context;
	/* PHYSICAL: numbers of its handles and mappings; the last one frees it */
	unsigned int refs, maps;
	struct allocation *physical;	/* the memory of a MAPPED allocation */
	struct allocation *next;	/* list of those that a context's end frees */
};
/*
 * Adds an allocation: reserves addresses for it, or only makes a handle if its kind has handles.
 * flags: additional flags for mmap().
 */
CUresult allocation_add(enum kind kind, CUdevice device, uint64_t bytes, int flags,
			struct allocation **ret);
/* Adds a MAPPED allocation, which maps `physical` at this address. */
struct allocation *allocation_add_at(uint64_t address, uint64_t bytes, struct allocation *physical);
struct allocation *allocation_find(uint64_t key); /* NULL: there is none */
void allocation_remove(struct allocation *a);
bool addresses_free(uint64_t address, uint64_t bytes); /* false: no such addresses */
void allocations_remove_of(const struct CUctx_st *context);
uint64_t allocations_live_of(CUdevice device);
/* Returns CUDA_SUCCESS, or the error that the test ordered with standin_fail_next(). */
CUresult failure_ordered(void);
/* The checks at the beginning of each function that allocates or frees. */
CUresult memory_call_begin(void);

/* ---- streams.c ---- */
uint64_t clock_now_ns(clockid_t clock);
struct CUstream_st {
	struct CUctx_st *context;
	uint32_t id;
	uint64_t busy_until_ns;
	struct CUgraph_st *captures; /* the graph that captures its launches; NULL: they run */
	struct CUstream_st *next;    /* the next one of all streams */
	/* a destroyed stream stays allocated, as a destroyed context does */
	bool destroyed;
};
/*
 * Returns the stream of a handle. NULL: there is no such stream, or the thread has no context.
 * own_default: the handle 0 means the thread's own default stream.
 */
struct CUstream_st *stream_of(CUstream handle, bool own_default);
/*
 * Gives a stream n pieces of work, of which only kind, name, time and size are set. It runs them
 * one after another, or adds them to the graph that it captures. is_launch: the call is counted as
 * a launch.
 */
CUresult stream_give(CUstream handle, bool own_default, const struct standin_work *works,
		     unsigned int n, bool is_launch);
uint64_t work_ns(void); /* how long work takes that this thread launches */
void streams_destroy_of(const struct CUctx_st *context);
extern struct standin_counts counts;

/* ---- launches.c, graphs.c ---- */
struct standin_work kernel_of(CUfunction f);
void graph_add(struct CUgraph_st *g, const struct standin_work *work);

/* ---- procs.c ---- */
CUresult proc_find(const char *name, void **fn, int version, uint64_t flags, int *status);
