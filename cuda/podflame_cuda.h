/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libpodflame-cuda.so reports to a profiler. The process that uses CUDA loads the library. It
 * has three USDT probes of the provider "podflame_cuda", each with a semaphore. A BPF program at a
 * probe finds all that it needs in the probe's arguments; it reads structures from the memory of
 * the process. docs/gpu.md describes the library.
 *
 *	launch(u32 correlation, u32 level, u32 kind, const char *function, const char *kernel,
 *	       u32 context)
 *		A thread calls a function that gives work to a device, and the library has taken
 *		the call into its sample. The probe fires when the call begins, on the thread that
 *		calls: its stack is the one that asked for the work. All work of the call carries
 *		this correlation id, and `work` reports it later. One call may have no work (it
 *		failed, or a graph was recorded), one piece (a kernel) or many (a graph).
 *		kind: enum podflame_cuda_kind. function: the function of CUDA, a constant string.
 *		kernel: its mangled name, or NULL. context: CUPTI's number of the calling thread's
 *		context. The names are valid while the thread is at the probe.
 *	work(const struct podflame_cuda_work *work, u32 n, u32 size)
 *		n pieces of work (1 to PODFLAME_CUDA_WORK_MAX) have ended; `size` is the size of
 *		each. All belong to calls of the sample. A piece is never reported before its
 *		launch. A profiler that attaches to `work` before `launch` may miss a launch.
 *	status(const struct podflame_cuda_status *status, u32 size)
 *		The probe fires twice a second, also while CUPTI does not run. All counts begin when
 *		the process loads the library, and never go back.
 *
 * CUPTI runs while the semaphore of `launch` or of `work` is not 0; `status` alone does not start
 * it. A structure may get fields at its end: a reader takes the smaller of `size` and its own.
 *
 * Shares and their error: a call is in the sample with the probability p = 2^-level, which does not
 * depend on the call. So a sum over work, with each duration d times w = 2^level, estimates the sum
 * over all work without bias. Its variance is estimated by the sum of w * (w - 1) * d * d, where d
 * adds up all work of one launch. The exact total, of all work, is in `status`.
 */
#pragma once

#ifndef __bpf__
#include <stdint.h>
#endif

#define PODFLAME_CUDA_WORK_MAX 32

enum podflame_cuda_kind {
	PODFLAME_CUDA_KERNEL,
	PODFLAME_CUDA_COPY,
	PODFLAME_CUDA_SET,
	PODFLAME_CUDA_GRAPH,		/* only of a launch: its work has the kinds above */
};
#define PODFLAME_CUDA_WORK_KINDS 3

struct podflame_cuda_work {
	uint64_t start_ns, end_ns;	/* when it ran on the device, by CUPTI's default clock */
	uint64_t name;			/* for a kernel: address of its mangled name; else 0 */
	uint64_t n_bytes;		/* for a copy or a set: its bytes; else 0 */
	uint64_t graph_node;		/* 0: not of a graph */
	uint32_t graph;			/* 0: not of a graph, or not a kernel */
	uint32_t correlation;
	uint32_t device, context, stream; /* CUPTI's numbers */
	uint8_t kind;			/* enum podflame_cuda_kind */
	uint8_t copy_kind;		/* for a copy: CUpti_ActivityMemcpyKind; else 0 */
	uint8_t level;			/* the level of its launch */
	uint8_t unused;
};

enum podflame_cuda_state {
	PODFLAME_CUDA_IDLE,		/* no profiler needs CUPTI, so it is not in use */
	PODFLAME_CUDA_RUNNING,
	PODFLAME_CUDA_STOPPING,		/* the next call of CUDA removes CUPTI from the process */
	PODFLAME_CUDA_NO_CUPTI,		/* no libcupti was found, or it lacks a function */
	PODFLAME_CUDA_TOO_OLD,		/* CUPTI of CUDA 10 or older */
	PODFLAME_CUDA_REFUSED,		/* another profiler has CUPTI: `code` is 39 */
	PODFLAME_CUDA_FAILED,		/* `code` is the error */
};

struct podflame_cuda_sum {
	uint64_t n, ns;
};

struct podflame_cuda_status {
	uint32_t state;			/* enum podflame_cuda_state */
	uint32_t code;			/* the CUptiResult of the call that failed last; 0: none */
	uint32_t cupti_version;		/* CUPTI_API_VERSION; 0: not known yet */
	uint32_t level;			/* the level of calls from now on */
	uint32_t n_sessions;		/* how often CUPTI was started */
	uint32_t n_not_removed;		/* sessions and failed starts after which CUPTI stayed */
	uint32_t n_displaced;		/* sessions that ended because of another profiler */
	uint32_t unused;
	/* exact sums for each kind (enum podflame_cuda_kind): */
	struct podflame_cuda_sum all[PODFLAME_CUDA_WORK_KINDS]; /* all that CUPTI has reported */
	struct podflame_cuda_sum told[PODFLAME_CUDA_WORK_KINDS]; /* the part that `work` reported */
	uint64_t n_launches;		/* launches that `launch` reported */
	/* work that is missing in `all` and in `told`: */
	uint64_t n_dropped;		/* pieces for which CUPTI had no room */
	uint64_t n_untimed;		/* pieces of work whose times CUPTI does not know */
	uint64_t n_unread;		/* buffers with a record that CUPTI could not read */
	/* other counts: */
	uint64_t n_unseen;		/* pieces of `all` whose call the library did not see */
	uint64_t n_buffers;		/* buffers that CUPTI gave back */
	uint64_t n_refused_buffers;	/* CUPTI's requests for a buffer when all were in use */
	uint64_t n_callbacks;		/* callbacks of CUPTI, at begins and ends of calls */
	/* time that the library has used in this process, with an estimate of CUPTI's own time */
	uint64_t own_ns;
};
