/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels of Go's runtime/pprof: where a thread's g is, and, by the version that the program was built
 * with, how its labels are found from there.
 */
#include "node/runtime/context.h"

#include <stdlib.h>

#define BUILD_INFO	 "\xff Go buildinf:" /* debug/buildinfo */
#define BUILD_INFO_ALIGN 16
#define BUILD_INFO_HEAD	 32
#define SEARCH_MAX	 (4u << 20)
#define SEARCH_AT_ONCE	 (64u << 10)
#define INLINE_VERSION	 2 /* bit of the head's flags: since Go 1.18 */

/*
 * Offsets in runtime.g and runtime.m of linux/amd64, read from the DWARF of programs built with the
 * first and, to 1.22, the last release of each version; these structures do not change within one.
 */
static const struct version {
	unsigned minor; /* go1.minor and later */
	uint32_t m, curg, labels;
	bool is_map;
} versions[] = {
	{18, 48, 192, 360, true},  {21, 48, 192, 344, true},  {23, 48, 192, 352, true},
	{24, 48, 192, 352, false}, {25, 48, 184, 344, false}, {26, 48, 184, 352, false},
};
#define NEWEST_MINOR 27

static const struct version *version_of(unsigned minor)
{
	const struct version *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(versions) && versions[i].minor <= minor; i++)
		found = &versions[i];
	return minor <= NEWEST_MINOR ? found : NULL;
}

/* ---- the version ---- */

/* A varint, then so many bytes: "go1.26.8". */
static int read_version(struct memory *m, uint64_t head, char *ret, size_t n)
{
	uint8_t length;
	int r = memory_u8(m, head + BUILD_INFO_HEAD, &length);

	if (r < 0)
		return r;
	if (length >= n || length & 0x80)
		return -EBADMSG;
	r = memory_read(m, head + BUILD_INFO_HEAD + 1, ret, length);
	ret[r < 0 ? 0 : length] = '\0';
	return r;
}

/* Where it begins in one segment. */
static int search_segment(const struct loaded_elf *e, const Elf64_Phdr *s, char *bytes,
			  uint64_t *left, uint64_t *ret, uint8_t *ret_flags)
{
	uint64_t start = e->bias + s->p_vaddr, size = MIN(s->p_filesz, *left);

	*left -= size;
	for (uint64_t at = start, have; at < start + size; at += have) {
		int r;

		have = MIN(start + size - at, (uint64_t)SEARCH_AT_ONCE);
		r = memory_read(e->memory, at, bytes, have);
		if (r < 0)
			return r;
		for (uint64_t k = -at % BUILD_INFO_ALIGN; k + BUILD_INFO_ALIGN <= have;
		     k += BUILD_INFO_ALIGN) {
			if (memcmp(bytes + k, BUILD_INFO, strlen(BUILD_INFO)) != 0)
				continue;
			*ret = at + k;
			*ret_flags = (uint8_t)bytes[k + 15];
			return 0;
		}
	}
	return -ENOENT;
}

/* In a writable segment, mostly where it begins (debug/buildinfo looks there, too). */
static int find_build_info(const struct loaded_elf *e, uint64_t *ret, uint8_t *ret_flags)
{
	_cleanup_free_ char *bytes = xmalloc(SEARCH_AT_ONCE);
	uint64_t left = SEARCH_MAX;
	int r = -ENOENT;

	for (size_t i = 0; i < e->n && r == -ENOENT; i++)
		if (e->segments[i].p_type == PT_LOAD && e->segments[i].p_flags & PF_W)
			r = search_segment(e, &e->segments[i], bytes, &left, ret, ret_flags);
	return r;
}

/* 0: no release that is known by number. */
static unsigned minor_of(const char *version)
{
	unsigned minor = 0;

	if (!str_has_prefix(version, "go1."))
		return 0;
	for (const char *s = version + 4; *s >= '0' && *s <= '9' && minor < 1000; s++)
		minor = minor * 10 + (unsigned)(*s - '0');
	return minor;
}

/* ---- where g is ---- */

/*
 * runtime.stackcheck begins with loading g, in one of three ways (asm_amd64.s, obj6.go):
 * mov %fs:N,%r; mov $N,%r and mov %fs:(%r),%r2; mov N(%rip),%r and the same, N(%rip) being a slot.
 */
static int decode_g(const struct loaded_elf *e, uint64_t at, const uint8_t code[16], int64_t *ret)
{
	int32_t n;

	if (code[0] == 0x64 && (code[1] & 0xfb) == 0x48 && code[2] == 0x8b &&
	    (code[3] & 0xc7) == 0x04 && code[4] == 0x25) {
		memcpy(&n, code + 5, sizeof(n));
		*ret = n;
		return 0;
	}
	memcpy(&n, code + 3, sizeof(n));
	if (code[7] != 0x64 || (code[8] & 0xf8) != 0x48 || code[9] != 0x8b)
		return -ENOTSUP;
	if ((code[0] & 0xfb) == 0x48 && code[1] == 0xc7 && (code[2] & 0xf8) == 0xc0) {
		*ret = n;
		return 0;
	}
	if ((code[0] & 0xfb) == 0x48 && code[1] == 0x8b && (code[2] & 0xc7) == 0x05)
		return memory_u64(e->memory, at + 7 + (uint64_t)(int64_t)n, (uint64_t *)ret);
	return -ENOTSUP;
}

static int find_g(const struct loaded_elf *e, const struct elf_index *index, int64_t *ret)
{
	struct elf_symbol check;
	uint8_t code[16];
	uint64_t at;
	int r = elf_index_find_symbol(index, "runtime.stackcheck", &check);

	if (r == -ENOENT) /* the assembler's function as some linkers name it */
		r = elf_index_find_symbol(index, "runtime.stackcheck.abi0", &check);
	if (r < 0)
		return -ENOTSUP;
	at = e->bias + check.address;
	r = memory_read(e->memory, at, code, sizeof(code));
	if (r == 0)
		r = decode_g(e, at, code, ret);
	if (r == 0 && *ret == 0)
		r = -EAGAIN; /* the slot is not filled yet */
	return r;
}

/* ---- both ---- */

static const struct mapping *find_go(const struct runtime_look *look,
				     const struct elf_index **ret_index)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		*ret_index = look->indexes[i];
		if (*ret_index && elf_index_flags(*ret_index) & ELF_INDEX_GO)
			return &look->maps->items[i];
	}
	return NULL;
}

static int learn_program(const struct loaded_elf *e, const struct elf_index *index,
			 struct runtime_learnt *ret)
{
	const struct version *v;
	struct pf_golabels *d;
	uint8_t flags;
	uint64_t head;
	int64_t g;
	int r = find_build_info(e, &head, &flags);

	if (r == 0 && flags & INLINE_VERSION)
		r = read_version(e->memory, head, ret->version, sizeof(ret->version));
	if (r < 0)
		return r;
	v = version_of(minor_of(ret->version));
	if (!v) {
		snprintf(ret->problem, sizeof(ret->problem),
			 "where labels are is known for Go 1.18 to 1.%u; this is %s", NEWEST_MINOR,
			 *ret->version ? ret->version : "older");
		return 0;
	}
	r = find_g(e, index, &g);
	if (r < 0)
		return r;
	d = ret->data = xcalloc(1, sizeof(*d));
	ret->data_bytes = sizeof(*d);
	*d = (struct pf_golabels){
		.g = g, .m = v->m, .curg = v->curg, .labels = v->labels, .is_map = v->is_map};
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	const struct elf_index *index;
	const struct mapping *m = find_go(look, &index);
	_cleanup_free_ struct loaded_elf *e = NULL;
	int r;

	if (!m)
		return -ENOENT;
	if (old) { /* the same program: nothing of this changes */
		ret->data = old->data ? xmemdup(old->data, old->data_bytes) : NULL;
		ret->data_bytes = old->data_bytes;
		memcpy(ret->version, old->version, sizeof(ret->version));
		memcpy(ret->problem, old->problem, sizeof(ret->problem));
		return 0;
	}
	e = xcalloc(1, sizeof(*e));
	r = loaded_elf_read(look, m, e);
	return r < 0 ? r : learn_program(e, index, ret);
}

static const char *const marks[] = {NULL}; /* ELF_INDEX_GO tells */

const struct runtime_ops golabels_runtime = {
	.name = "golabels",
	.title = "Go's profiler labels",
	.frame_kind = FRAME_APP,
	.marks = marks,
	.learn = learn,
};
