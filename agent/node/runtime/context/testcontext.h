/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: bpf/trace_context.h over testwalk.h. It reads any live process as the kernel's part
 * does.
 */
#pragma once

#include "node/runtime/testwalk.h"

/*
 * Returns the result of pf_call_context() for a thread with this thread pointer, in a process with
 * this data.
 */
static inline int host_context(pid_t pid, uint64_t thread_pointer, uint32_t kind, const void *data,
			       size_t n)
{
	struct pf_walk *w = &host.walk;

	host_pid = pid;
	host_read = host_read_process;
	memcpy(host_chunk, data, n);
	memset(&w->process, 0, sizeof(w->process));
	w->process.n_runtimes = 1;
	w->process.runtimes[0] = (struct pf_runtime){kind, PF_REF(0, 0)};
	w->known = true;
	w->thread_pointer = thread_pointer;
	return pf_call_context(&host);
}
