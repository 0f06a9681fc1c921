/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to go_heap_*.c: the messages between the agent and the child that reads Go programs' heap
 * profiles. With the question comes a descriptor of the program's memory, and if buckets are known,
 * a second one, of a file with them. The child keeps nothing between questions.
 */
#pragma once

#include "node/runtime/ask_format.h"
#include "node/runtime/go_heap.h"

struct go_heap_question {
	struct reader_head head; /* n: known buckets */
	struct go_profile at;
	uint64_t list_head; /* of the last read; 0: there was none */
};

/*
 * Messages of the answer: any number of HEAP_BUCKETS, then HEAP_COUNTS of all buckets, known and
 * new, then HEAP_ALL. After an error the counts do not come.
 */
enum go_heap_message { HEAP_BUCKETS, HEAP_COUNTS, HEAP_ALL };
/* One record of HEAP_BUCKETS, whose head.n says how many there are. Its stack follows. */
struct heap_record {
	struct go_bucket bucket;
	uint64_t n; /* addresses of the stack */
};
#define HEAP_COUNTS_MAX                                                                            \
	((READER_MESSAGE_MAX - sizeof(struct reader_head)) / sizeof(struct go_counts))
struct heap_counts {
	struct reader_head head;
	struct go_counts items[HEAP_COUNTS_MAX]; /* only head.n of them are sent */
};
struct heap_all {
	struct reader_head head;
	int32_t error; /* 0 or -errno; then nothing else is set */
	uint16_t collected, full;
	uint64_t rate, list_head;
};

/* go_heap_answer.c: the child. known: -1: none. -errno: the child cannot go on. */
int runtime_go_heap_answer(const void *message, size_t n, int memory, int known);
