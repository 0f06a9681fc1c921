/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libcuda.so.1 has besides the driver API: a program can ask it for exact sums,
 * order failures, and set the duration of kernels. Any thread may call the functions.
 */
#pragma once

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

#pragma GCC visibility push(default)
void standin_count(struct standin_counts *ret);
/*
 * The next n calls of this thread that allocate or free memory, or make or end a context, fail with
 * this error and do nothing.
 */
void standin_fail_next(unsigned int n, int error);
/*
 * Sets how long each kernel that is launched from now on occupies its stream. At first, this is 0.
 */
void standin_set_kernel_us(uint64_t us);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
