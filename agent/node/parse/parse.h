/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse: hostile ELF files, read in a child without capabilities, file system or
 * network. The only directory that links elfutils. The parent sends descriptors,
 * the child answers with a sealed memfd: an index whose reader here checks every
 * bound (lib/symbols). A hang or crash of the child costs one file.
 */
#pragma once

#include "lib/symbols/symbols.h"

/* ---- parent ---- */
struct parser;
struct parser_config {
	uint64_t timeout_ns;		/* a file; 0: 10 s */
	size_t max_index_bytes;		/* a file; 0: 64 MiB */
	const char *self_exe;		/* re-executed as the child; NULL: /proc/self/exe */
	/*
	 * What else to look for in each file, NULL at the end (NULL: nothing): a symbol of any kind by name, a '*' in it, not
	 * the first character, stands for anything; after a '"', a text of read-only data. elf_index_mark has what was found. The child
	 * gets them as its arguments; files keeps the pointer.
	 */
	const char *const *marks;
};
int parse_new(const struct parser_config *c, struct parser **ret);
struct parser *parse_free(struct parser *p);
/*
 * Blocks up to the timeout: pipeline worker, record. main_fd is not closed.
 * -ETIMEDOUT, -EPIPE (child died; the next call starts another), -ENOEXEC (not an x86-64
 * executable or library), -EBADMSG (damaged file, or an answer that was refused), -E2BIG (limits).
 * Failures are counted by reason in podflame_parse_failures_total.
 */
int parse_elf(struct parser *p, int main_fd, struct elf_index **ret);
/*
 * The debug index of a file: symbols and inlined functions, no tables. debug_fd: its separate
 * debug file, -1 when the DWARF is in the file itself; dwo_fds: of elf_index_wanted, in its order,
 * -1 where one is missing; the first answer of a file with split DWARF has none and says what it wants.
 */
#define PARSE_FDS_MAX 64
struct parse_debug_files {
	int main_fd, debug_fd;
	const int *dwo_fds;
	size_t n_dwo_fds;		/* at most PARSE_FDS_MAX - 2 */
};
int parse_debug(struct parser *p, const struct parse_debug_files *f, struct elf_index **ret);
/* Why the last file failed, one word ("timeout", "too_many_symbols", ...); "" when it did not. */
const char *parse_reason(const struct parser *p);
/* Children lost (killed for a timeout, crashed, or killed by others). */
uint64_t parse_restarts(const struct parser *p);

/* ---- child: main() calls it when argv[1] is PARSE_CHILD_VERB; never returns to normal work ---- */
#define PARSE_CHILD_VERB "__parse"
int parse_child_main(int argc, char **argv);
