/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libcuda.so.1 has besides the driver API. A program can ask it for exact sums,
 * order failures, and set how long work takes on a device. A profiler in the process, which is the
 * stand-in libcupti, can learn of calls and of their work. Any thread may call the functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct standin_counts {
	/*
	 * Memory of the devices. Not counted: an allocation of another process
	 * (cuIpcOpenMemHandle), and a mapping of physical memory. Memory that the end of a context
	 * frees is counted in `frees`, too.
	 */
	uint64_t allocs, alloc_bytes, frees, live_bytes;
	uint64_t host_live_bytes; /* memory of the host (cuMemHostAlloc and similar functions) */
	uint64_t launches;	  /* calls that launched a kernel or a graph */
	uint64_t kernels;	  /* kernels that ran: the launch of a graph runs all its kernels */
};

enum standin_kind {
	STANDIN_KERNEL,
	STANDIN_COPY,
	STANDIN_SET,
	STANDIN_PEER_COPY /* from one device to another */
};

/* A piece of work of a device. */
struct standin_work {
	enum standin_kind kind;
	const char *name; /* of a kernel: its mangled name, which is valid until the process ends */
	uint64_t ns, n_bytes, graph_node;
	uint32_t device, context, stream, graph;
	uint8_t copy_kind; /* CUpti_ActivityMemcpyKind */
	bool has_no_time;  /* CUPTI does not know when it ran */
	uint64_t start_ns; /* by the real-time clock; 0: now */
};

/* A call of the runtime or of the driver. */
struct standin_call {
	int domain;	      /* CUpti_CallbackDomain: 1 is the driver, 2 the runtime */
	uint32_t id;	      /* the function's number in that domain (cbid) */
	const char *function; /* a constant string */
	const char *kernel;   /* the mangled name of the kernel that it launches, or NULL */
	uint32_t context;     /* the number of the current context */
	uint32_t outer;	      /* for standin_call_end(): the correlation id of the call around it */
};

/* What a profiler learns. The driver calls these functions on the thread that makes the call. */
struct standin_hooks {
	void (*call)(const struct standin_call *call, int site, uint32_t correlation);
	void (*work)(const struct standin_work *work, uint32_t correlation);
};

#pragma GCC visibility push(default)
void standin_count(struct standin_counts *ret);
/*
 * The next n calls of this thread that allocate or free memory, or make or end a context, fail with
 * this error and do nothing.
 */
void standin_fail_next(unsigned int n, int error);
/*
 * Sets how long each kernel, copy and set that this thread launches from now on occupies its
 * stream. At first, this is 0. A node of a graph keeps the time of the moment at which it was
 * added.
 */
void standin_set_work_ns(uint64_t ns);

/* Sets the profiler; NULL: none. */
void standin_hook(const struct standin_hooks *hooks);
/*
 * Each call that gives work to a device begins and ends with these functions. Returns the call's
 * correlation id; a call that begins inside another one of the same thread has the other call's id.
 */
uint32_t standin_call_begin(struct standin_call *call);
void standin_call_end(struct standin_call *call);
/* Reports work of the call that this thread is in. */
void standin_work(const struct standin_work *work);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
