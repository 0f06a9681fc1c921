/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf/context.h as a plain program, for tests: what the kernel's part reads, of any process. Include
 * it first and once: the headers that it brings declare the walk.
 */
#pragma once

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bpf/host.h"

static pid_t host_pid; /* whose memory is read */
static uint8_t host_chunk[PF_CHUNK_BYTES] __attribute__((aligned(8)));

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	struct iovec here = {to, n}, there = {(void *)address, n};

	if (process_vm_readv(host_pid, &here, 1, &there, 1, 0) == n)
		return 0;
	memset(to, 0, n); /* as the kernel does */
	return -14;
}

/* Chunk 0, a map of one value; nothing else is there. */
static void *bpf_map_lookup_elem(void *map, const void *key)
{
	static void *chunk = host_chunk;

	if (map == &chunks)
		return *(const uint32_t *)key == 0 ? &chunk : NULL;
	return map == &chunk ? host_chunk : NULL;
}

#include "bpf/unwind.h"

static struct pf_scratch host_scratch;

/* What a sample of the thread with this thread pointer gets of a process with this data. */
static inline int host_context(pid_t pid, uint64_t thread_pointer, uint32_t kind, const void *data,
			       size_t n)
{
	struct pf_walk *w = &host_scratch.walk;

	host_pid = pid;
	memcpy(host_chunk, data, n);
	memset(&w->process, 0, sizeof(w->process));
	w->process.n_runtimes = 1;
	w->process.runtimes[0] = (struct pf_runtime){kind, PF_REF(0, 0)};
	w->known = true;
	w->thread_pointer = thread_pointer;
	return pf_call_context(&host_scratch);
}
