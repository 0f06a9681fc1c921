/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What finding a program's contexts (context_otel.c, context_golabels.c) needs of a file as it lies in
 * the process: headers, dynamic section, relocated slots. All of it is the process's, so hostile.
 */
#pragma once

#include <elf.h>

#include "node/runtime/internal.h"

#define CONTEXT_SEGMENTS_MAX 64 /* real ones have about 13 */

struct loaded_elf {
	struct memory *memory;
	uint64_t bias;	 /* process address - ELF virtual address */
	Elf64_Half type; /* ET_EXEC, ET_DYN */
	Elf64_Phdr segments[CONTEXT_SEGMENTS_MAX];
	size_t n;
};
/* -ENOENT: its headers are in no segment. -EBADMSG: what is there is no ELF header of x86-64. -E2BIG: more than
 * CONTEXT_SEGMENTS_MAX. */
int loaded_elf_read(const struct runtime_look *look, const struct mapping *m,
		    struct loaded_elf *ret);
/* The first of this type; NULL. */
const Elf64_Phdr *loaded_elf_segment(const struct loaded_elf *e, uint32_t type);

/* Where a thread-local variable is, as struct pf_otel has it. */
struct tls_place {
	int64_t offset;	 /* from the thread pointer, or in the module's block */
	uint32_t module; /* 0: from the thread pointer */
};
/*
 * Of a variable that e exports, offset being its own in e's TLS image: by the slot that the dynamic
 * linker fills for e's accesses to it; in an executable without one by the layout. -EAGAIN: the slot
 * is not filled yet. -ENOTSUP: e has no way to it that is known here.
 */
int tls_find(const struct loaded_elf *e, const char *name, uint64_t offset, struct tls_place *ret);

/* ---- Go: go_version.c ---- */
/* The first mapping of a Go program or library; NULL: none. */
const struct mapping *go_find(const struct runtime_look *look, const struct elf_index **ret_index);
/* "go1.26.8"; "": of a Go before 1.18. -ENOENT: it does not say. */
int go_version(const struct loaded_elf *e, char *ret, size_t n);
/* Of "go1.26.8" 26; 0: no release that is known by number. */
unsigned go_minor(const char *version);

/* ---- Go: go_types.c ---- */
/* Where a program's types are; NULL: not known. To be freed. */
struct go_types *go_types_find(const struct loaded_elf *e, const struct elf_index *index,
			       unsigned minor);
/* runtime_ops.resolve of a frame of PF_TYPE_OBJECT; state: struct go_types. */
int go_type_resolve(void *state, struct memory *m, const struct runtime_words *frame,
		    const struct runtime_words *caller, struct runtime_names *ret);
