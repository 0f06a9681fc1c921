/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse reads hostile ELF files in a child process without capabilities, file system or network. No
 * other module links elfutils. The parent sends descriptors. The child answers with a sealed memfd:
 * an index, whose reader in the parent (lib/symbols) checks every bound. A child reads one file. If
 * it hangs or crashes, that costs this file only.
 */
#pragma once

#include "lib/symbols/symbols.h"

/* ---- parent ---- */
struct parser;
struct parser_config {
	uint64_t timeout_ns;		/* limit for a file; 0: 10 s */
	size_t max_index_bytes;		/* limit for a file; 0: 128 MiB */
	/* the program that is started as the child; NULL: /proc/self/exe */
	const char *self_exe;
	/*
	 * What else to search for in each file: a list of patterns that ends with NULL; NULL:
	 * nothing. A pattern is the name of a symbol of any kind, in which a '*' (not as the first
	 * character) stands for any characters. After a '@', only the newest version of the symbol
	 * matches; after a '?', only a symbol that the file imports. Or it is a '"' and a string to
	 * be found in read-only data. Or it is the name of a USDT probe, "%provider:probe
	 * arguments", which may have a '*', too. elf_index_mark describes what was found. The child
	 * gets the patterns as its arguments. The list must stay valid, because node/files keeps
	 * the pointer.
	 */
	const char *const *marks;
	const struct child_ops *child_ops; /* NULL: child_kernel */
};
int parse_new(const struct parser_config *c, struct parser **ret);
struct parser *parse_free(struct parser *p);
/*
 * Parses a file. This blocks up to the timeout, so only a worker or `record` may call it. main_fd
 * is not closed. -ETIMEDOUT: the child did not answer in time; -EPIPE: the child died, and the next
 * call starts another; -ENOEXEC: no x86-64 executable or library; -EBADMSG: the file is damaged, or
 * the answer was refused; -E2BIG: the file exceeds a limit. Failures are counted by reason in
 * podflame_parse_failures_total.
 */
int parse_elf(struct parser *p, int main_fd, struct elf_index **ret);
/*
 * Makes the debug index of a file: symbols and inlined functions, but no tables. debug_fd: its
 * separate debug file; -1: the DWARF is in the file itself. dwo_fds: the files of elf_index_wanted,
 * in its order; -1: one is missing. The first call for a file with split DWARF passes none; then
 * the index says which are wanted.
 */
#define PARSE_FDS_MAX 64 /* files of one request to the parser */
struct parse_debug_files {
	int main_fd, debug_fd;
	const int *dwo_fds;
	size_t n_dwo_fds;		/* at most PARSE_FDS_MAX - 2 */
};
int parse_debug(struct parser *p, const struct parse_debug_files *f, struct elf_index **ret);
/*
 * Returns why the last file failed, in one word ("timeout", "too_many_sections", ...); "": it did
 * not fail.
 */
const char *parse_reason(const struct parser *p);
/*
 * Returns how many children were lost: killed for a timeout, crashed, or killed by other processes.
 */
uint64_t parse_restarts(const struct parser *p);

/* ---- child: main() calls this if argv[1] is PARSE_CHILD_VERB, and ends with its result ---- */
#define PARSE_CHILD_VERB "__parse"
int parse_child_main(int argc, char **argv);
