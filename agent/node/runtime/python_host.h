/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf/python.h as a plain program, for tests and the fuzzer: over whatever host_read reads. Include
 * it first and once: the headers that it brings declare the walk.
 */
#pragma once

#include <string.h>

#include "bpf/host.h"

static bool (*host_read)(uint64_t address, void *to, size_t n);
static unsigned host_reads, host_turns;

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	host_reads++;
	if (host_read((uintptr_t)address, to, n))
		return 0;
	memset(to, 0, n); /* as the kernel does */
	return -14;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	(void)map;
	(void)key;
	return NULL;
}

#include "bpf/unwind.h"

static struct pf_scratch host;

/* A walk begins, of the thread with this thread pointer. */
static inline void host_begin(uint64_t thread_pointer)
{
	memset(&host.walk, 0, sizeof(host.walk));
	host.walk.thread_pointer = thread_pointer;
	host_reads = host_turns = 0;
}

/* It meets an activation of the evaluation loop, as pf_step does. Returns how many frames came of it. */
static inline uint32_t host_activation(const struct pf_python *d, uint64_t address,
				       uint64_t frame_sp, uint64_t sp)
{
	struct pf_walk *w = &host.walk;
	uint32_t before = w->n_frames + 1;

	pf_push(&host, PF_FRAME_NATIVE, address);
	w->frame_sp = frame_sp;
	w->sp = sp;
	w->first = true;
	for (unsigned turns = 0; turns < PF_STEPS; turns++) {
		if (pf_python_frame(&host, d, &w->runtimes[0]))
			break;
		w->first = false;
		host_turns++;
	}
	return w->n_frames - before;
}

struct host_frame {
	uint32_t kind, type; /* enum pf_frame_kind; of a runtime's frame */
	uint64_t a, b;
};

/* The n-th frame of the walk, leaf first; kind 0: there is none. */
static inline struct host_frame host_frame(uint32_t n)
{
	const uint64_t *word = host.stack.words, *end = word + host.walk.n_words;

	for (; word < end; word += 1 + (word[0] >> 8 & 0xff))
		if (n-- == 0)
			return (struct host_frame){word[0] & 0xff, word[0] >> 24 & 0xff, word[1],
						   (word[0] >> 8 & 0xff) > 1 ? word[2] : 0};
	return (struct host_frame){0};
}
