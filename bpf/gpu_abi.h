/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_abi: the part of abi.h for the CUDA driver's entries: hbm-alloc and hbm-inuse. The maps
 * `gpu_procs`, `gpu_pending` and `gpu_live` have the keys and values of the allocators' maps. Facts
 * about the driver are those of cuda.h, CUDA 11.8 to 13.5.
 */
#pragma once

/*
 * Kinds of struct pf_site. Both the entry and the return of the function are probed. A call has
 * succeeded if it returns 0 (CUDA_SUCCESS). size_arg, count_arg and ptr_arg are the numbers of the
 * arguments that the comments name, flags are enum pf_gpu_flags, and max_bytes is not used.
 */
enum pf_gpu_site_kind {
	/* ---- memory ---- */
	PF_SITE_GPU_ALLOC = 32, /* ptr_arg: where the address is stored; size_arg: bytes */
	/* as GPU_ALLOC; size_arg: rows; count_arg: where the pitch is stored */
	PF_SITE_GPU_PITCH,
	PF_SITE_GPU_ARRAY,	/* ptr_arg: where the handle is stored; size_arg: the descriptor */
	PF_SITE_GPU_ASYNC,	/* as GPU_ALLOC, but from a pool; count_arg: the stream */
	/* cuMemCreate: ptr_arg: where the handle is stored; size_arg: bytes; count_arg: props */
	PF_SITE_GPU_HANDLE,
	PF_SITE_GPU_FREE,    /* ptr_arg: the address, or the handle of an array */
	PF_SITE_GPU_RELEASE, /* cuMemRelease: ptr_arg: the handle */
	PF_SITE_GPU_RETAIN,  /* cuMemRetainAllocationHandle: ptr_arg: where the handle is stored */
	PF_SITE_GPU_MAP,     /* cuMemMap: ptr_arg: address; size_arg: bytes; count_arg: handle */
	PF_SITE_GPU_UNMAP,   /* cuMemUnmap: ptr_arg: address; size_arg: bytes */
	/*
	 * Allocates memory in a way that podflame does not follow. With PF_GPU_IS_ARRAY, the call
	 * allocates nothing, but keeps memory that was allocated before. size_arg: 0, or a pointer
	 * to CUgraphNodeParams, which say whether the node allocates memory.
	 */
	PF_SITE_GPU_UNSEEN,
	/* gives the handle of a pool; ptr_arg: where it is stored; size_arg: the device */
	PF_SITE_GPU_POOL,
	PF_SITE_GPU_POOL_DESTROY, /* ptr_arg: the pool */

	/*
	 * ---- objects in the memory of an allocator that keeps it in a cache ----
	 * Only instructions are probed, no returns: an exception may leave the function.
	 */
	/* its entry; ptr_arg: where the address is stored; size_arg: bytes; count_arg: stream */
	PF_SITE_GPU_OBJECT,
	PF_SITE_GPU_OBJECT_DONE, /* each instruction of it that returns */
	PF_SITE_GPU_OBJECT_FREE, /* an entry; ptr_arg: the address */

	/* ---- contexts; ptr_arg: the context, or where it is stored; size_arg: the device ---- */
	PF_SITE_GPU_INIT,	     /* cuInit */
	PF_SITE_GPU_TABLE,	     /* cuGetExportTable: gives functions that are not probed */
	PF_SITE_GPU_CONTEXT,	     /* cuCtxCreate: also makes the context current */
	PF_SITE_GPU_ATTACH,	     /* cuCtxAttach */
	PF_SITE_GPU_DESTROY,	     /* cuCtxDestroy, cuCtxDetach */
	PF_SITE_GPU_SET,	     /* cuCtxSetCurrent */
	PF_SITE_GPU_PUSH,	     /* cuCtxPushCurrent */
	PF_SITE_GPU_POP,	     /* cuCtxPopCurrent */
	PF_SITE_GPU_PRIMARY,	     /* cuDevicePrimaryCtxRetain */
	PF_SITE_GPU_PRIMARY_RELEASE, /* cuDevicePrimaryCtxRelease */
	PF_SITE_GPU_PRIMARY_RESET,   /* cuDevicePrimaryCtxReset */
	PF_SITE_GPU_GREEN,	     /* cuGreenCtxCreate; ptr_arg: where it is stored */
	PF_SITE_GPU_GREEN_DESTROY,   /* cuGreenCtxDestroy; ptr_arg: the green context */
	PF_SITE_GPU_FROM_GREEN,	     /* cuCtxFromGreenCtx; count_arg: the green context */

	/* ---- queries: they change nothing, but show what no probe has seen ---- */
	PF_SITE_GPU_CURRENT, /* cuCtxGetCurrent; ptr_arg: where the context is stored */
	/* cuCtxGetDevice; ptr_arg: where the device is stored; count_arg: the context, or none */
	PF_SITE_GPU_DEVICE,
	_PF_SITE_GPU_MAX,
};
#define PF_SITE_IS_GPU_OBJECT(kind)                                                                \
	((kind) >= PF_SITE_GPU_OBJECT && (kind) <= PF_SITE_GPU_OBJECT_FREE)
#define PF_GPU_OBJECT_BYTES	   (1u << 20) /* smaller objects are not followed */
#define PF_SITE_IS_GPU_QUERY(kind)   ((kind) >= PF_SITE_GPU_CURRENT)
#define PF_SITE_IS_GPU_CONTEXT(kind) ((kind) >= PF_SITE_GPU_INIT && !PF_SITE_IS_GPU_QUERY(kind))
enum pf_gpu_flags {
	PF_GPU_32 = 1 << 0,	  /* before CUDA 3.2: addresses and sizes have 32 bits */
	PF_GPU_3D = 1 << 1,	  /* GPU_ARRAY: the descriptor has a depth and flags */
	PF_GPU_MIPMAP = 1 << 2,	  /* GPU_ARRAY: a mipmapped array; count_arg: its levels */
	PF_GPU_IS_ARRAY = 1 << 3, /* GPU_FREE: ptr_arg is the handle of an array */
	PF_GPU_OF_POOL = 1 << 4,  /* GPU_ASYNC: the argument before the stream is the pool */
	/* GPU_ASYNC: the stream 0 is the thread's own (the entries ..._ptsz) */
	PF_GPU_PER_THREAD = 1 << 5,
	/* GPU_POOL: size_arg points to struct CUmemPoolProps, which has the device */
	PF_GPU_PROPS = 1 << 6,
	PF_GPU_LOCATION = 1 << 8, /* GPU_POOL: size_arg points to struct CUmemLocation */
	PF_GPU_DETACH = 1 << 7,	  /* GPU_DESTROY: only if nothing has attached to the context */
};

/*
 * Part of struct pf_pending: a call. Its key has PF_SITE_GPU_GROUP instead of the stack pointer: of
 * the nested calls of a thread, only the outermost one of each group counts.
 */
#define PF_SITE_GPU_GROUP(kind)                                                                    \
	(PF_SITE_IS_GPU_OBJECT(kind)                                                               \
		 ? 3                                                                               \
		 : ((kind) >= PF_SITE_GPU_INIT) + PF_SITE_IS_GPU_QUERY(kind))
struct pf_gpu_call {
	struct pf_site site;
	uint64_t sp;		   /* stack pointer at the entry */
	uint64_t ptr, size, count; /* the arguments ptr_arg, size_arg, count_arg */
	union {
		/*
		 * GPU_FREE, GPU_RELEASE: time_ns of the memory's entry, or 0. GPU_FREE: `live` has
		 * the entry itself, which is put back if the call fails.
		 */
		uint64_t since_ns;
		uint64_t ctx; /* a call that asks for memory: pf_count_key.ctx of hbm-alloc */
	};
	uint32_t events; /* 1 << enum pf_event: those that wanted the call */
	uint32_t first;	 /* GPU_INIT: no call of the driver has succeeded before it */
	/*
	 * the labels of a call that asks for memory; known: for each label that is known, 1 << enum
	 * pf_label_key
	 */
	uint64_t context, stream;
	uint32_t device, known;
};

/*
 * In an address of `gpu_live` and `gpu_objects`, the highest byte says what the number in the other
 * bytes is.
 */
enum pf_gpu_space {
	/* in gpu_live: memory at an address; an array; memory that cuMemCreate made */
	PF_GPU_ADDRESS = 1,
	PF_GPU_ARRAY,
	PF_GPU_HANDLE,
	/*
	 * in gpu_objects: what the number is, and the members of struct pf_gpu_object that are used
	 */
	PF_GPU_MAPPING, /* an address: handle, bytes, time_ns (that of the handle's memory) */
	PF_GPU_CONTEXT, /* a context: owner, device, refs; time_ns: when it was made, or 0 */
	PF_GPU_PRIMARY, /* a device: handle of its primary context, refs */
	PF_GPU_GREEN,	/* a green context: device */
	PF_GPU_POOL,	/* a pool: device, or PF_GPU_HOST; time_ns: when a call gave it */
	PF_GPU_DRIVER,	/* the number 0: the probes have seen all calls so far */
	PF_GPU_ENDED,	/* a context: time_ns. User space removes these entries. */
	/* in gpu_live: an object at an address, in memory that other entries have, too */
	PF_GPU_OBJECT,
};
#define PF_GPU_KEY(space, number) ((uint64_t)(space) << 56 | ((number)&PF_GPU_ANY))
#define PF_GPU_ANY		  ((1ull << 56) - 1)
#define PF_GPU_HOST		  0xffffffffu /* no device: memory of the host */

/*
 * pf_count_key.owner in `gpu_live`:
 *
 * - Memory that belongs to a context has the context, or 0 if it is not known which context was
 *   current. PF_GPU_MADE_BEFORE: the probes have not seen the call that made the context.
 * - Memory of a pool has PF_GPU_POOLED.
 * - Memory that cuMemCreate made has the number of releases that are due, and in the upper half the
 *   number of its mappings.
 *
 * Memory of a context has ended if an entry PF_GPU_ENDED of that context has a later time_ns. If
 * the context is not known, and an entry PF_GPU_ENDED of the number 0 has a later time_ns, the
 * memory may have ended. The memory may also have ended if it has PF_GPU_MADE_BEFORE, and an entry
 * PF_GPU_ENDED of PF_GPU_ANY has a later time_ns.
 */
#define PF_GPU_MADE_BEFORE (1ull << 63)
#define PF_GPU_POOLED	   (1ull << 62)
#define PF_GPU_MAPPED	   (1ull << 32)

/*
 * Map `gpu_objects`, hash, key: struct pf_live_key. It is as small as possible, because some
 * programs have nearly all of the BPF stack in use when they make one there.
 */
struct pf_gpu_object {
	union {
		uint64_t handle;
		uint64_t owner; /* the owner of memory of the context */
	};
	uint64_t time_ns; /* CLOCK_BOOTTIME */
	union {
		uint64_t bytes; /* of a mapping */
		struct {
			uint32_t device;
			int32_t refs;
		};
	};
	uint32_t share, pad; /* pf_filter.share */
};

/*
 * Map `gpu_threads`, storage of tasks: the thread's stack of contexts, as far as the probes have
 * seen it.
 */
#define PF_GPU_CONTEXTS_MAX 8 /* contexts of a thread; deeper ones are unknown; a power of two */
struct pf_gpu_thread {
	uint64_t attached_ns; /* pf_mem_proc.attached_ns; another one: the stack is not valid */
	uint32_t n, pad;
	uint64_t contexts[PF_GPU_CONTEXTS_MAX]; /* the current one is the last of n */
};
#define PF_GPU_OBJECTS_MAX 131072 /* entries of map `gpu_objects` */

_Static_assert(sizeof(struct pf_gpu_call) == 80, "abi");
_Static_assert(sizeof(struct pf_gpu_object) == 32, "abi");
_Static_assert(sizeof(struct pf_gpu_thread) == 80, "abi");
