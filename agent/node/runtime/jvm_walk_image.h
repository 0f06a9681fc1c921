/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bpf/jvm.h as a plain program, for tests and the fuzzer: over a made-up JVM of one code heap, a stack and some other
 * memory. Include it first and once: the headers that it brings declare the walk.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "bpf/host.h"

#define CODE_AT	     0x7f1000000000ull
#define CODE_BYTES   0x40000u
#define SEGMENT_BITS 7
#define SEGMAP_AT    0x7f2000000000ull
#define SEGMAP_BYTES (CODE_BYTES >> SEGMENT_BITS)
#define STACK_AT     0x7ffd00000000ull
#define STACK_BYTES  0x10000u
#define DATA_AT	     0x7f3000000000ull /* names, Methods, libjvm's code */
#define DATA_BYTES   0x4000u

static struct {
	uint8_t code[CODE_BYTES], segmap[SEGMAP_BYTES], stack[STACK_BYTES], data[DATA_BYTES];
	uint8_t chunk[PF_CHUNK_BYTES];
	uint32_t next; /* segment: where the next blob begins */
	unsigned reads;
} vm;

static uint8_t *vm_at(uint64_t address, uint64_t n)
{
	const struct {
		uint64_t start, bytes;
		uint8_t *at;
	} pieces[] = {
		{CODE_AT, CODE_BYTES, vm.code},
		{SEGMAP_AT, SEGMAP_BYTES, vm.segmap},
		{STACK_AT, STACK_BYTES, vm.stack},
		{DATA_AT, DATA_BYTES, vm.data},
	};

	for (size_t k = 0; k < sizeof(pieces) / sizeof(*pieces); k++)
		if (address >= pieces[k].start && n <= pieces[k].bytes &&
		    address - pieces[k].start <= pieces[k].bytes - n)
			return pieces[k].at + (address - pieces[k].start);
	return NULL;
}

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	const uint8_t *from = vm_at((uintptr_t)address, n);

	vm.reads++;
	if (!from) {
		memset(to, 0, n); /* as the kernel does */
		return -14;
	}
	memcpy(to, from, n);
	return 0;
}

/* One chunk, and no files. */
static void *bpf_map_lookup_elem(void *map, const void *key)
{
	static uint8_t *inner = vm.chunk;
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

/* A process whose code heap is d's. */
static inline void host_process(const struct pf_jvm *d)
{
	struct pf_mapping mapping = {
		.start = CODE_AT, .end = CODE_AT + CODE_BYTES, .runtime = 1 | PF_MANAGED};
	uint32_t at = (sizeof(*d) + 31) / 32 * 32;

	memcpy(vm.chunk, d, sizeof(*d));
	memcpy(vm.chunk + at, &mapping, sizeof(mapping));
	memset(&host.walk, 0, sizeof(host.walk));
	host.walk.known = true;
	host.walk.process.n_runtimes = 1;
	host.walk.process.runtimes[0] =
		(struct pf_runtime){.kind = PF_RUNTIME_JVM, .data = PF_REF(0, 0)};
	host.walk.process.n_parts = 1;
	host.walk.process.parts[0] =
		(struct pf_part){.start = CODE_AT, .mappings = PF_REF(0, at), .n = 1};
}

static inline void host_walk(uint64_t ip, uint64_t sp, uint64_t bp)
{
	host.walk.ip = ip;
	host.walk.regs[PF_REG_RSP] = sp;
	host.walk.regs[PF_REG_RBP] = bp;
	vm.reads = 0;
	pf_walk_user(&host, 1, 0, false, false);
}
