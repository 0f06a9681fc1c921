/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and the fuzzer: bpf/jvm.h over testwalk.h. */
#pragma once

#include "node/runtime/testwalk.h"

#define HOST_RANGES_MAX 256

/*
 * Makes a process with the data d. code: ranges of the JVM's code, pairs of start and end,
 * ascending.
 */
static inline void host_process(const struct pf_jvm *d, const uint64_t (*code)[2], size_t n)
{
	uint32_t at = (sizeof(*d) + 31) / 32 * 32;
	struct pf_mapping *to = (struct pf_mapping *)(host_chunk + at);

	memcpy(host_chunk, d, sizeof(*d));
	for (size_t k = 0; k < n && k < HOST_RANGES_MAX; k++)
		to[k] = (struct pf_mapping){
			.start = code[k][0], .end = code[k][1], .runtime = 1 | PF_MANAGED};
	memset(&host.walk, 0, sizeof(host.walk));
	host.walk.known = true;
	host.walk.process.n_runtimes = 1;
	host.walk.process.runtimes[0] =
		(struct pf_runtime){.kind = PF_RUNTIME_JVM, .data = PF_REF(0, 0)};
	host.walk.process.n_parts = 1;
	host.walk.process.parts[0] =
		(struct pf_part){.start = code[0][0], .mappings = PF_REF(0, at), .n = n};
}

static inline void host_walk(uint64_t ip, uint64_t sp, uint64_t bp)
{
	host.walk.ip = ip;
	host.walk.regs[PF_REG_RSP] = sp;
	host.walk.regs[PF_REG_RBP] = bp;
	host_reads = 0;
	pf_walk_user(&host, 1, 0, false, false);
}
