/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libcuda.so.1 has besides the driver API: a program asks it for exact sums, and
 * orders failures and the duration of kernels. All functions may be called from any thread.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct standin_counts {
	/*
	 * Memory of the devices. An allocation that another process shares (cuIpcOpenMemHandle) and
	 * a mapping of physical memory are none of their own. Memory that a context's end frees is
	 * counted in `frees`, too.
	 */
	uint64_t allocs, alloc_bytes, frees, live_bytes;
	uint64_t host_live_bytes; /* of cuMemHostAlloc and its like, in the host's memory */
	uint64_t launches;	  /* calls that launched a kernel or a graph */
	uint64_t kernels;	  /* that ran: a graph's launch runs all that are in it */
};

#pragma GCC visibility push(default)
void standin_count(struct standin_counts *ret);
/*
 * The next n calls of this thread that allocate or free memory, or make or end a context, fail with
 * this error and do nothing.
 */
void standin_fail_next(unsigned int n, int error);
/* How long each kernel that is launched from now on occupies its stream, 0 at first. */
void standin_set_kernel_us(uint64_t us);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
