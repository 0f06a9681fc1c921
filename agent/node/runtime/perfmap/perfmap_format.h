/* SPDX-License-Identifier: Apache-2.0 */
/* Private to perfmap: the messages between the agent and the child that reads perf maps. */
#pragma once

#include "node/runtime/perfmap/perfmap.h"
#include "node/runtime/reader.h"

struct perf_question {
	struct reader_head head;
	uint64_t offset, stop; /* the slice */
	uint32_t writer;       /* enum perf_map_writer */
	uint32_t behind;
	uint32_t tail_n; /* the child compares the file's bytes before offset with tail */
	char tail[PERF_MAP_TAIL_BYTES];
};

/* Messages of the answer: any number of PERF_FUNCTIONS, then PERF_DONE. */
enum perf_message { PERF_FUNCTIONS, PERF_DONE };
struct perf_functions {
	struct reader_head head; /* n: how many records follow, each with the bytes of its texts */
};
struct perf_record {
	uint64_t start;
	uint32_t size, line;
	uint16_t name_n, file_n; /* bytes of the texts, which follow without NUL */
	uint32_t kind;		 /* enum frame_kind */
};
struct perf_done {
	struct reader_head head;
	int32_t error; /* 0; -ESTALE: the file has other bytes before offset; -errno of pread() */
	uint32_t behind;
	uint64_t offset;      /* the end of the last line that was taken */
	uint64_t n_malformed; /* lines that were refused */
	uint32_t tail_n, pad;
	char tail[PERF_MAP_TAIL_BYTES]; /* the bytes before offset */
};
/* A line has at least so many bytes: "0 1 a\n". So a slice cannot have more functions. */
#define PERF_LINE_MIN 6
