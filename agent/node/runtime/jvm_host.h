/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf/jvm.h as a plain program, for tests and the fuzzer: over whatever host_read reads. Include it
 * first and once: the headers that it brings declare the walk.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "bpf/host.h"

#define HOST_RANGES_MAX 256

static bool (*host_read)(uint64_t address, void *to, size_t n);
static unsigned host_reads;
static uint8_t host_chunk[PF_CHUNK_BYTES];

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	host_reads++;
	if (host_read((uintptr_t)address, to, n))
		return 0;
	memset(to, 0, n); /* as the kernel does */
	return -14;
}

/* One chunk, and no files. */
static void *bpf_map_lookup_elem(void *map, const void *key)
{
	static uint8_t *inner = host_chunk;
	static struct pf_file none = {.state = PF_FILE_NONE};

	if (map == &unwind_files)
		return &none;
	if (map == &chunks)
		return *(const uint32_t *)key == 0 ? &inner : NULL;
	return map == &inner ? inner : NULL;
}

#include "bpf/unwind.h"

static struct pf_scratch host;

/* What a frame is made of, as the kernel sends it; kind 0: there is none. */
struct host_frame {
	uint32_t kind, type;
	uint64_t a, b;
};
static inline struct host_frame host_frame(uint32_t k)
{
	for (uint32_t at = 0; at < host.walk.n_words;) {
		uint64_t header = host.stack.words[at];
		uint32_t n = header >> 8 & 0xff;

		if (k-- == 0)
			return (struct host_frame){header & 0xff, header >> 24 & 0xff,
						   host.stack.words[at + 1],
						   n > 1 ? host.stack.words[at + 2] : 0};
		at += 1 + n;
	}
	return (struct host_frame){0};
}

/* A process that is told by d; code of the JVM: pairs of start and end, ascending. */
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
