/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a session of the library with the stand-ins of e2e/gpu. The test itself makes the
 * steps of the library's thread, and sees what the probes report (testprobes.h).
 */
#pragma once

#include "session.h"
#include "clock.h"
#include "probes.h"
#include "testcalls.h"
#include "testprobes.h"
#include "work.h"

#include "e2e/gpu/standin_cupti.h"
#include "lib/base/testprogram.h"

enum {
	cudaLaunchKernel = 211,
	cuLaunchKernel = 307,
	cudaMemcpyAsync = 41,
	cuMemcpyAsync = 306,
	cudaGraphLaunch = 311,
	cuGraphLaunch = 514,
	cuMemsetD8Async_ptsz = 428,
	cuMemcpyPeerAsync = 319
};

/*
 * The steps of the session get a time that is ahead of the clock by this. The callbacks read the
 * clock itself, so it is 0 in tests of sampling.
 */
static uint64_t ahead_ns;

static inline void step(void)
{
	session_step(now_ns() + ahead_ns);
}

static inline void attach(uint16_t *semaphore, uint16_t n)
{
	__atomic_store_n(semaphore, n, __ATOMIC_RELAXED);
}

static inline void attach_all(uint16_t n)
{
	attach(&probe_launch_semaphore, n);
	attach(&probe_work_semaphore, n);
	attach(&probe_status_semaphore, n);
}

static inline struct podflame_cuda_status status(void)
{
	step();
	return seen.status;
}

/* Launches one kernel through the runtime. Returns its correlation id. */
static inline uint32_t launch(const char *kernel, uint64_t ns)
{
	struct standin_work work = {STANDIN_KERNEL, kernel, .ns = ns, .context = 1, .stream = 7};

	return run_call(&(struct test_call){.runtime_id = cudaLaunchKernel,
					    .driver_id = cuLaunchKernel,
					    .function = "cudaLaunchKernel",
					    .kernel = kernel,
					    .context = 1,
					    .work = &work,
					    .n_work = 1});
}

/* Detaches all profilers, and makes the call of CUDA that removes CUPTI. */
static inline void end_session(void)
{
	attach_all(0);
	step();
	launch("after", 1);
	step();
}

static inline int begin(void **state)
{
	(void)state;
	end_session();
	if (work_counts.state > PODFLAME_CUDA_STOPPING) /* the library waits for its next try */
		ahead_ns += 61 * NSEC_PER_SEC;
	seen_forget();
	memset(&work_counts, 0, sizeof(work_counts));
	standin_cupti_begin();
	attach_all(1);
	return 0;
}

static inline const struct podflame_cuda_work *work_of(uint32_t correlation)
{
	for (size_t i = 0; i < seen.n_work; i++)
		if (seen.work[i].correlation == correlation)
			return &seen.work[i];
	fail_msg("no work of call %u", correlation);
	return NULL;
}
