/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf/unwind.h as a plain program, for tests and fuzzers of the runtimes' parts of the walk. It
 * reads memory through host_read, and has one chunk of tables and no files. Include it (or a header
 * that includes it) first and once, because its headers declare the walk.
 */
#pragma once

#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "bpf/host.h"

static bool (*host_read)(uint64_t address, void *to, size_t n);
static unsigned host_reads;
static uint8_t host_chunk[PF_CHUNK_BYTES] __attribute__((aligned(8)));

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	host_reads++;
	if (host_read((uintptr_t)address, to, n))
		return 0;
	memset(to, 0, n); /* as the kernel does after a failed read */
	return -14;
}

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

/* A function for host_read: reads the memory of a live process. */
static pid_t host_pid;
static inline bool host_read_process(uint64_t address, void *to, size_t n)
{
	struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};

	return process_vm_readv(host_pid, &here, 1, &there, 1, 0) == (ssize_t)n;
}

struct host_frame {
	uint32_t kind, type; /* kind: enum pf_frame_kind; type: type of a runtime's frame */
	uint64_t a, b;
};

/* Returns the n-th frame of the walk, leaf first; kind 0: the walk has no such frame. */
static inline struct host_frame host_frame(uint32_t n)
{
	const uint64_t *word = host.stack.words, *end = word + host.walk.n_words;

	for (; word < end; word += 1 + (word[0] >> 8 & 0xff))
		if (n-- == 0)
			return (struct host_frame){word[0] & 0xff, word[0] >> 24 & 0xff, word[1],
						   (word[0] >> 8 & 0xff) > 1 ? word[2] : 0};
	return (struct host_frame){0};
}
