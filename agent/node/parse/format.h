/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to parse: the messages between the parse child and its parent. The bytes of the answer
 * are as in lib/symbols/format.h.
 */
#pragma once

#include "lib/child/child.h"
#include "lib/symbols/format.h"
#include "node/parse/parse.h"

#define PARSE_FILE_MAX	(4ULL << 30)   /* bytes of a file; a larger one is not parsed */
#define INDEX_BYTES_MAX (256ULL << 20) /* bytes that the child may write to a memfd */

/* Why a file has no index. X(enum, word in counters, errno) */
#define PARSE_REASONS(X)                                                                           \
	X(OK, "", 0)                                                                               \
	X(NOT_ELF, "not_elf", -ENOEXEC)                                                            \
	X(MACHINE, "other_machine", -ENOEXEC)                                                      \
	X(TYPE, "not_executable_or_library", -ENOEXEC)                                             \
	X(DAMAGED, "damaged", -EBADMSG)                                                            \
	X(FILE_BYTES, "file_too_big", -E2BIG)                                                      \
	X(SEGMENTS, "too_many_segments", -E2BIG)                                                   \
	X(SECTIONS, "too_many_sections", -E2BIG)                                                   \
	X(STRINGS, "too_many_string_bytes", -E2BIG)                                                \
	X(INDEX_BYTES, "index_too_big", -E2BIG)                                                    \
	X(IO, "io", -EIO)                                                                          \
	X(TIMEOUT, "timeout", -ETIMEDOUT)                                                          \
	X(DIED, "child_died", -EPIPE)                                                              \
	X(ANSWER, "answer_refused", -EBADMSG)
enum parse_reason {
#define X(name, word, error) PARSE_##name,
	PARSE_REASONS(X)
#undef X
	_PARSE_REASON_MAX,
};

_Static_assert(PARSE_FDS_MAX <= CHILD_FDS_MAX, "a request is one message");

#define PARSE_MARKS_MAX 512 /* patterns of symbols that one call searches for */
#define PARSE_MARK_HITS 64  /* limit for the matches of one pattern in one file */

enum parse_what { PARSE_MAIN, PARSE_DEBUG };
struct parse_request {
	uint64_t max_index_bytes;
	uint32_t what; /* enum parse_what */
	/* PARSE_DEBUG: bit k is set if descriptor k (main, debug, .dwo files) was sent */
	uint32_t has;
	uint32_t has_high, pad;
};
struct parse_reply {
	uint32_t reason;
};

/*
 * For the child: reads a file, and writes its index to a sealed memfd. The function needs elfutils,
 * so outside the child only tests may call it.
 */
enum parse_reason parse_elf_to_index(int fd, const char *const *marks, uint64_t max_index_bytes,
			       int *ret_memfd);
/* Does the same for a debug index. fds: main; debug or -1; .dwo files, each may be -1. */
enum parse_reason parse_elf_to_debug_index(const int *fds, size_t n_fds, uint64_t max_index_bytes,
				     int *ret_memfd);
