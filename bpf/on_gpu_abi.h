/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * on_gpu_abi: the part of abi.h for on-gpu: the USDT probes of the libraries that report the work
 * of GPUs. cuda/podflame_cuda.h describes those of libpodflame-cuda.so, and the README of
 * https://github.com/parca-dev/parcagpu those of its library.
 */
#pragma once

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
