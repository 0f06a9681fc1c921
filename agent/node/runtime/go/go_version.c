/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the Go version of a program. The linker writes it into every program, after "Go buildinf:"
 * (debug/buildinfo of Go's library). This file reads it from the process's memory. Runs on the
 * reader's thread.
 */
#include "node/runtime/internal.h"

#include <stdlib.h>

#define BUILD_INFO	 "\xff Go buildinf:" /* debug/buildinfo */
#define BUILD_INFO_ALIGN 16
#define BUILD_INFO_HEAD	 32
#define SEARCH_MAX	 (4u << 20) /* bytes of a program that are searched */
#define SEARCH_AT_ONCE	 (64u << 10)
#define INLINE_VERSION	 2 /* flag in the head: the version follows; since Go 1.18 */

/* Reads a varint with the length, then the text: "go1.26.8". */
static int read_version(struct memory *m, uint64_t head, char *ret, size_t n)
{
	uint8_t length;
	int r = runtime_memory_u8(m, head + BUILD_INFO_HEAD, &length);

	if (r < 0)
		return r;
	/*
	 * "go1.24.6 (Red Hat 1.24.6-1.el9_6) X:strictfipsruntime": the beginning is enough. A
	 * length of 128 or more has a second byte.
	 */
	n = MIN(length, n - 1);
	r = runtime_memory_read(m, head + BUILD_INFO_HEAD + 1 + (length >> 7), ret, n);
	ret[r < 0 ? 0 : n] = '\0';
	return r;
}

/* Searches one range of the file's addresses for the build information. */
static int search(const struct loaded_elf *e, uint64_t from, uint64_t to, char *bytes,
		  uint64_t *left, uint64_t *ret, uint8_t *ret_flags)
{
	uint64_t start = e->bias + from, end = start + MIN(to - from, *left);

	*left -= end - start;
	start += -start % BUILD_INFO_ALIGN;
	for (uint64_t at = start, have; at < end; at += have) {
		int r;

		have = MIN(end - at, (uint64_t)SEARCH_AT_ONCE);
		r = runtime_memory_read(e->memory, at, bytes, have);
		if (r < 0)
			return r;
		for (uint64_t k = 0; k + BUILD_INFO_ALIGN <= have; k += BUILD_INFO_ALIGN) {
			if (memcmp(bytes + k, BUILD_INFO, strlen(BUILD_INFO)) != 0)
				continue;
			*ret = at + k;
			*ret_flags = (uint8_t)bytes[k + 15];
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * Returns the address where a segment's relocated read-only data (PT_GNU_RELRO) ends. After it
 * comes the data that the program writes. In a PIE, the relocated data may have many MiB, so it is
 * searched last.
 */
static uint64_t behind_relocated(const struct loaded_elf *e, const Elf64_Phdr *s)
{
	const Elf64_Phdr *relocated = runtime_loaded_elf_segment(e, PT_GNU_RELRO);
	uint64_t end = relocated ? relocated->p_vaddr + relocated->p_memsz : 0;

	if (!relocated || relocated->p_vaddr >= s->p_vaddr + s->p_filesz)
		return s->p_vaddr;
	return MIN(MAX(end, s->p_vaddr), s->p_vaddr + s->p_filesz);
}

/*
 * Searches the writable segments. Mostly the build information is at the beginning of one of them,
 * where debug/buildinfo looks, too.
 */
static int find_build_info(const struct loaded_elf *e, uint64_t *ret, uint8_t *ret_flags)
{
	_cleanup_free_ char *bytes = xmalloc(SEARCH_AT_ONCE);
	uint64_t left = SEARCH_MAX;
	int r = -ENOENT;

	for (size_t i = 0; i < 2 * e->n && r == -ENOENT; i++) {
		const Elf64_Phdr *s = &e->segments[i % e->n];
		uint64_t from = s->p_vaddr, to = s->p_vaddr + s->p_filesz;

		if (s->p_type != PT_LOAD || !(s->p_flags & PF_W) || to < from)
			continue;
		if (i < e->n)
			from = behind_relocated(e, s);
		else
			to = behind_relocated(e, s);
		r = search(e, from, to, bytes, &left, ret, ret_flags);
	}
	return r == -ENOENT && left == 0 ? -E2BIG : r;
}

const struct mapping *runtime_go_find(const struct runtime_look *look,
				      const struct elf_index **ret_index)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		if (!look->indexes[i] || !(elf_index_flags(look->indexes[i]) & ELF_INDEX_GO))
			continue;
		if (ret_index)
			*ret_index = look->indexes[i];
		return &look->maps->items[i];
	}
	return NULL;
}

int runtime_go_version(const struct loaded_elf *e, char *ret, size_t n)
{
	uint8_t flags;
	uint64_t head;
	int r = find_build_info(e, &head, &flags);

	*ret = '\0';
	if (r < 0 || !(flags & INLINE_VERSION))
		return r;
	return read_version(e->memory, head, ret, n);
}

unsigned runtime_go_minor(const char *version)
{
	unsigned minor = 0;

	if (!str_has_prefix(version, "go1."))
		return 0;
	for (const char *s = version + 4; *s >= '0' && *s <= '9' && minor < 1000; s++)
		minor = minor * 10 + (unsigned)(*s - '0');
	return minor;
}
