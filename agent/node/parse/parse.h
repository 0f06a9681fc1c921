/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse: hostile ELF files, read in a child without capabilities, file system or
 * network. The only directory that links elfutils. The parent sends descriptors,
 * the child answers with a sealed memfd: an index whose reader here checks every
 * bound. A hang or crash of the child costs one file.
 */
#pragma once

#include "lib/base/base.h"

/* ---- the index ---- */
struct elf_index;			/* immutable, reference counted, mmapped */
/*
 * The part of a symbol around the address asked for. Symbols inside a larger one
 * cut it into parts; one without size (hand-written assembly, .symtab only) reaches
 * to the next symbol or its section's end, never into a symbol that has a size.
 */
struct elf_symbol {
	uint64_t address, size;		/* ELF virtual address */
	const char *name;		/* mangled, no symbol version, borrowed from the index */
};
struct elf_index *elf_index_ref(struct elf_index *i);
struct elf_index *elf_index_unref(struct elf_index *i);
size_t elf_index_bytes(const struct elf_index *i);
const char *elf_index_build_id(const struct elf_index *i);	/* hex, "" if none */
/* File offset -> ELF virtual address by the PT_LOAD headers; -ENOENT outside of all. */
int elf_index_address(const struct elf_index *i, uint64_t file_offset, uint64_t *ret_address);
/* -ENOENT: inside no symbol. Never a neighbour. */
int elf_index_symbol(const struct elf_index *i, uint64_t address, struct elf_symbol *ret);
/* Reads a child's answer; refuses (-EBADMSG) whatever is not consistent. Takes fd. */
int elf_index_open(int memfd, struct elf_index **ret);
/* Same bytes: files may share an index only then; a build id alone can be forged. */
bool elf_index_equal(const struct elf_index *a, const struct elf_index *b);

/* ---- parent ---- */
struct parser;
struct parser_config {
	uint64_t timeout_ns;		/* a file; 0: 10 s */
	size_t max_index_bytes;		/* a file; 0: 64 MiB */
	const char *self_exe;		/* re-executed as the child; NULL: /proc/self/exe */
};
int parser_new(const struct parser_config *c, struct parser **ret);
struct parser *parser_free(struct parser *p);
/*
 * Blocks up to the timeout: pipeline worker, record. main_fd is not closed.
 * -ETIMEDOUT, -EPIPE (child died; the next call starts another), -ENOEXEC (not an x86-64
 * executable or library), -EBADMSG (damaged file, or an answer that was refused), -E2BIG (limits).
 * Failures are counted by reason in podflame_parse_failures_total.
 */
int parser_elf(struct parser *p, int main_fd, struct elf_index **ret);
/* Why the last file failed, one word ("timeout", "too_many_symbols", ...); "" when it did not. */
const char *parser_reason(const struct parser *p);
/* Children lost (killed for a timeout, crashed, or killed by others). */
uint64_t parser_restarts(const struct parser *p);

/* ---- child: main() calls it when argv[1] is PARSE_CHILD_VERB; never returns to normal work ---- */
#define PARSE_CHILD_VERB "__parse"
int parse_child_main(int argc, char **argv);
