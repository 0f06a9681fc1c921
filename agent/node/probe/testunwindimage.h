/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind_image: bpf/unwind.h over an image: two pieces of memory (code and stack) and a few chunks.
 * Each test of bpf/unwind.h, and its fuzzer, includes this header once.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "bpf/host.h"

#define IMAGE_CHUNKS 4
#define CODE_BASE    0x400000ull
#define STACK_BASE   0x7ffd00000000ull

static struct image {
	uint8_t *code, *stack;
	size_t n_code, n_stack;
	uint8_t *chunks[IMAGE_CHUNKS]; /* each has PF_CHUNK_BYTES or is NULL */
	struct pf_file files[4];
	unsigned reads;
	/*
	 * For pf_config.sees_mappings. found and mapped: the result of pf_find_vma() for an address
	 * in `mapped`. known: what the kernel's map of images has for any tag; NULL: nothing.
	 */
	int found; /* enum pf_vma_found */
	struct pf_vma mapped;
	const struct pf_image *known;
} image;

static bool image_piece(uint64_t address, uint32_t n, uint64_t base, const uint8_t *bytes,
			size_t have, void *to)
{
	if (address < base || address - base > have || n > have - (address - base))
		return false;
	memcpy(to, bytes + (address - base), n);
	return true;
}

static long bpf_probe_read_user(void *to, uint32_t n, const void *address)
{
	uint64_t at = (uintptr_t)address;

	image.reads++;
	if (image_piece(at, n, CODE_BASE, image.code, image.n_code, to) ||
	    image_piece(at, n, STACK_BASE, image.stack, image.n_stack, to))
		return 0;
	memset(to, 0, n); /* as the kernel does after a failed read */
	return -14;
}

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	uint32_t k = *(const uint32_t *)key;

	if (map == &unwind_files)
		return k < 4 ? &image.files[k] : NULL;
	if (map == &images)
		return (void *)image.known;
	if (map == &chunks)
		return k < IMAGE_CHUNKS && image.chunks[k] ? &image.chunks[k] : NULL;
	return k == 0 ? *(uint8_t **)map : NULL; /* an inner map, which has one value */
}

#define PF_FIND_VMA
static int pf_find_vma(struct pf_vma *l)
{
	uint64_t address = l->address;

	if (address < image.mapped.start || address >= image.mapped.end)
		return PF_VMA_NOTHING;
	*l = image.mapped;
	l->address = address;
	return image.found;
}

#include "bpf/unwind.h"
