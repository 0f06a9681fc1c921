/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: the bytes that cross between the parse child and its parent.
 * Index file: header, segments, symbols (sorted, disjoint), strings; nothing else.
 */
#pragma once

#include "lib/base/base.h"

#define INDEX_MAGIC	   "pfindex1"
#define INDEX_SYMBOLS_MAX  (4u << 20)
#define INDEX_SEGMENTS_MAX 1024
#define INDEX_STRINGS_MAX  (64u << 20)
#define INDEX_NAME_MAX	   16384 /* longer names are cut and end in "..." */
#define INDEX_BUILD_ID_MAX 64
#define PARSE_FILE_MAX	   (4ULL << 30)

struct index_header {
	char magic[8];
	uint32_t n_symbols, n_segments;
	uint32_t string_bytes;
	uint32_t build_id_bytes;
	uint8_t build_id[INDEX_BUILD_ID_MAX];
};
struct index_segment {
	uint64_t address, offset, bytes; /* bytes: of the file */
	uint32_t executable, pad;
};
struct index_symbol {
	uint64_t address;
	uint32_t size, name; /* name: offset into the strings */
};
_Static_assert(sizeof(struct index_header) == 88, "index");
_Static_assert(sizeof(struct index_segment) == 32, "index");
_Static_assert(sizeof(struct index_symbol) == 16, "index");

/* Why a file has no index. X(enum, word in counters, errno) */
#define PARSE_REASONS(X)                                                                           \
	X(OK, "", 0)                                                                               \
	X(NOT_ELF, "not_elf", -ENOEXEC)                                                            \
	X(MACHINE, "other_machine", -ENOEXEC)                                                      \
	X(TYPE, "not_executable_or_library", -ENOEXEC)                                             \
	X(DAMAGED, "damaged", -EBADMSG)                                                            \
	X(FILE_BYTES, "file_too_big", -E2BIG)                                                      \
	X(SYMBOLS, "too_many_symbols", -E2BIG)                                                     \
	X(SEGMENTS, "too_many_segments", -E2BIG)                                                   \
	X(SECTIONS, "too_many_sections", -E2BIG)                                                   \
	X(STRINGS, "too_many_string_bytes", -E2BIG)                                                \
	X(INDEX_BYTES, "index_too_big", -E2BIG)                                                    \
	X(IO, "io", -EIO)                                                                          \
	X(TIMEOUT, "timeout", -ETIMEDOUT)                                                          \
	X(DIED, "child_died", -EPIPE)                                                              \
	X(ANSWER, "answer_refused", -EBADMSG)                                                      \
	X(SANDBOX, "no_sandbox", -EPERM)
enum parse_reason {
#define X(name, word, error) PARSE_##name,
	PARSE_REASONS(X)
#undef X
	_PARSE_REASON_MAX,
};

#define PARSE_SOCKET_FD 3 /* in the child */
struct parse_request {
	uint64_t sequence;
	uint64_t max_index_bytes;
};
struct parse_reply { /* sequence 0: the child is ready, or why it is not */
	uint64_t sequence;
	uint32_t reason, pad;
};

/* Child: ELF -> sealed memfd. Links elfutils; call it elsewhere only from tests. */
enum parse_reason elf_to_index(int fd, uint64_t max_index_bytes, int *ret_memfd);
/* Child: gives up everything but reading what it is sent. max_file_bytes: largest memfd. */
int parse_sandbox(uint64_t max_file_bytes);

/* One message with at most one descriptor (-1: none). 0, -EPIPE when the other end is gone,
 * -EBADMSG when the size or the number of descriptors is wrong. */
int parse_send(int sock, const void *message, size_t n, int fd);
int parse_receive(int sock, void *message, size_t n, int *ret_fd);
