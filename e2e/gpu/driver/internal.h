/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the stand-in driver share. One lock guards all state. Each entry of the API
 * takes it (LOCKED) and calls no other entry, since a probe would count that call, too.
 */
#pragma once

#include <stdbool.h>

#include "../cuda_driver.h"
#include "../standin.h"

#define N_DEVICES    2
#define DEVICE_BYTES (80ULL << 30)
#define DRIVER	     12090 /* CUDA 12.9 */

void driver_lock(void);
void driver_unlock(void *unused);
#define LOCKED                                                                                    \
	__attribute__((cleanup(driver_unlock), unused)) char is_locked = (driver_lock(), 0)

/* ---- driver.c ---- */
CUresult driver_needed(void); /* 0: it is initialized in this process */
CUresult device_needed(CUdevice dev);

/* ---- contexts.c ---- */
struct CUctx_st {
	uint64_t id;
	CUdevice device;
	unsigned int flags, refs;
	const struct CUctx_st *owner; /* of its memory: itself; of a green one, the primary */
	struct CUstream_st *default_stream; /* NULL: not used yet */
	bool destroyed; /* It stays allocated, so that a stale handle gives an error. */
};
struct CUctx_st *context_current(void); /* NULL: the thread has none, or it is destroyed */
CUresult context_needed(void);

/* ---- allocations.c: all that lives, by its address or handle ---- */
enum kind {
	LINEAR, /* of a context: cuMemAlloc and its like, managed memory */
	POOLED, /* in the order of a stream */
	ARRAY,
	MIPMAPPED,
	PHYSICAL, /* cuMemCreate */
	_DEVICE_KINDS,
	HOST = _DEVICE_KINDS, /* cuMemHostAlloc */
	HOST_PHYSICAL,	      /* cuMemCreate, in the host's memory */
	HOST_POOLED,
	IPC,	/* another process's */
	MAPPED, /* physical memory, at addresses that are reserved */
};
struct allocation {
	uint64_t key; /* address of the memory, or the handle of what has no address */
	uint64_t bytes;
	enum kind kind;
	CUdevice device;
	const struct CUctx_st *context; /* its end frees this; NULL: no context's end does */
	unsigned int refs, maps;	/* PHYSICAL: handles, mappings; it is freed with the last */
	struct allocation *physical;	/* MAPPED */
	struct allocation *next;	/* while a context's end frees it */
};
/*
 * Takes addresses, or only memory for a kind that has a handle. `flags`: those of mmap() besides.
 */
CUresult allocation_add(enum kind kind, CUdevice device, uint64_t bytes, int flags,
			struct allocation **ret);
/* MAPPED */
struct allocation *allocation_add_at(uint64_t address, uint64_t bytes, struct allocation *physical);
struct allocation *allocation_find(uint64_t key); /* NULL: no such */
void allocation_remove(struct allocation *a);
bool addresses_free(uint64_t address, uint64_t bytes); /* false: they are none */
void allocations_remove_of(const struct CUctx_st *context);
uint64_t allocations_live_of(CUdevice device);
/* CUDA_SUCCESS, or what the caller ordered with standin_fail_next(). */
CUresult failure_ordered(void);
/* All that an entry which allocates or frees asks first. */
CUresult memory_call_begin(void);

/* ---- streams.c ---- */
struct CUstream_st {
	struct CUctx_st *context;
	uint64_t busy_until_ns;
	struct CUgraph_st *captures; /* NULL: its launches run */
	struct CUstream_st *next;    /* of all */
	bool destroyed;		     /* as a context's */
};
/*
 * The stream that a handle means; NULL: it is none, or the thread has no context. `own_default`: 0
 * means the thread's own default stream.
 */
struct CUstream_st *stream_of(CUstream handle, bool own_default);
void stream_runs(struct CUstream_st *s, unsigned int kernels);
void streams_destroy_of(const struct CUctx_st *context);
extern struct standin_counts counts;

/* ---- procs.c ---- */
CUresult proc_find(const char *name, void **fn, int version, uint64_t flags, int *status);
