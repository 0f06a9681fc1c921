/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text for users about the state of the library that reports the work of GPUs. The library has
 * written its status itself, so each value may be wrong. Pure; any thread may call it.
 */
#include "node/learn/sites.h"

/*
 * The library reports its status twice a second. After this time without a report, it is a problem.
 */
#define SILENT_NS (5 * NSEC_PER_SEC)

#define OTHER_PROFILER 39 /* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */

static char *refused(uint32_t code)
{
	if (code == OTHER_PROFILER)
		return xstrdup("its work on GPUs is not seen: another profiler has CUPTI");
	return xasprintf("its work on GPUs is not seen: CUPTI refuses (error %u)", code);
}

static char *silent(uint64_t attached_ns)
{
	if (attached_ns < SILENT_NS)
		return NULL;
	return xstrdup("its work on GPUs is not seen: podflame's library in the process "
		       "reports nothing, so it could not start its thread, or the process is "
		       "stopped");
}

char *learn_library_problem(const struct on_gpu_status *s, uint64_t attached_ns)
{
	const struct podflame_cuda_status *l = &s->library;

	if (s->parcagpu)
		return NULL;
	if (!s->told_ns)
		return silent(attached_ns);
	switch (l->state) {
	case PODFLAME_CUDA_IDLE:
	case PODFLAME_CUDA_RUNNING:
	case PODFLAME_CUDA_STOPPING:
		return NULL;
	case PODFLAME_CUDA_NO_CUPTI:
		return xstrdup("its work on GPUs is not seen: podflame's library in the process "
			       "found no libcupti that it can use");
	case PODFLAME_CUDA_TOO_OLD:
		return xasprintf("its work on GPUs is not seen: its libcupti (version %u) is older "
				 "than CUDA 11",
				 l->cupti_version);
	case PODFLAME_CUDA_REFUSED:
		return refused(l->code);
	case PODFLAME_CUDA_FAILED:
		return xasprintf("its work on GPUs is not seen: CUPTI failed (error %u)", l->code);
	}
	return xasprintf("its work on GPUs is not seen: podflame's library in the process reports "
			 "a state that this agent does not know (%u)",
			 l->state);
}
