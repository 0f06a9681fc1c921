/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * on_gpu_abi: the part of abi.h for on-gpu: the USDT probes of the libraries that report the work
 * of GPUs. cuda/podflame_cuda.h describes those of libpodflame-cuda.so, and the README of
 * https://github.com/parca-dev/parcagpu those of its library.
 */
#pragma once

#include "cuda/podflame_cuda.h"

/* Kinds of struct pf_site, one for each probe that is read. Only the entry is probed. */
enum pf_on_gpu_site_kind {
	/*
	 * Provider podflame_cuda. The site names no registers, because the arguments are in those
	 * of a C call.
	 */
	PF_SITE_ON_GPU_LAUNCH = 64,
	PF_SITE_ON_GPU_WORK,
	PF_SITE_ON_GPU_STATUS,
	/*
	 * Provider parcagpu. The site names the registers of the arguments as in PF_SITE_INSIDE:
	 * size_arg has the first argument, count_arg the second and ptr_arg the third one.
	 */
	PF_SITE_ON_GPU_CORRELATION, /* cuda_correlation: u32 id, int cbid, const char *name */
	PF_SITE_ON_GPU_BATCH,	    /* activity_batch: const void **records, u32 n; no third one */
	_PF_SITE_ON_GPU_MAX,
};

#define PF_PARCAGPU_BATCH_MAX 128	   /* records that parcagpu reports at once */
#define PF_GPU_PIECE_MAX      4096	   /* bytes of a reported piece of work */
#define PF_GPU_LEVEL_MAX      20	   /* level of a launch: the sample has one in 2^level */
#define PF_GPU_NS_MAX	      (1ull << 56) /* time of work, times 2^level: none runs for 2 years */

/*
 * Map `gpu_launches`, hash: the calls that gave work to a GPU. The work of a launch ends later, and
 * may be many pieces. User space removes the launches of which no more work is expected.
 */
struct pf_gpu_launch_key {
	uint64_t start_boottime_ns; /* of the process */
	uint32_t tgid_root, exec_id;
	uint64_t correlation;
};
struct pf_gpu_launch {
	struct pf_count_key key; /* of its samples; ctx and kstack differ from piece to piece */
	uint64_t time_ns;	 /* CLOCK_BOOTTIME of the call */
	uint64_t work_ns;	 /* CLOCK_BOOTTIME of the last report of its work; 0: none yet */
	uint64_t value;		 /* microseconds for which its work counts, so far */
	uint32_t level;
	uint32_t kind; /* enum podflame_cuda_kind; of parcagpu PODFLAME_CUDA_GRAPH */
	/* the trace context of the call, as in struct pf_rec_context */
	uint32_t form;
	uint32_t share; /* pf_filter.share */
	uint64_t trace[4], span[2];
};
#define PF_GPU_LAUNCHES_MAX 131072 /* entries of map `gpu_launches` */
#define PF_GPU_AFTER (1ull << 32) /* a bit that no correlation id has */

/* Map `gpu_status`, hash, key: struct pf_process_key. */
struct pf_gpu_status {
	uint64_t told_ns;  /* CLOCK_BOOTTIME of the last report; 0: none yet */
	/* CLOCK_BOOTTIME since which all reports say that CUPTI runs; 0: the last one does not */
	uint64_t running_ns;
	uint64_t parcagpu; /* 1: the process has parcagpu's library */
	/* pieces that the BPF program got from `work`, and that are not in library.told yet */
	uint64_t n_untold;
	struct podflame_cuda_status library;
};

_Static_assert(sizeof(struct pf_gpu_launch_key) == 24, "abi");
_Static_assert(sizeof(struct pf_gpu_launch) == 152, "abi");
_Static_assert(sizeof(struct podflame_cuda_work) == 64, "abi");
_Static_assert(sizeof(struct podflame_cuda_status) == 200, "abi");
