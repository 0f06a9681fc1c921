/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: the child "podflame-reader", in which bytes of processes are parsed: perf
 * maps, what runtimes have in the memory of their processes, and the heap profiles of Go programs.
 * It has no capability, no file system and no memory but its own, may make a few system calls, and
 * gets one or two descriptors with each question. Each namespace has children of its own, so a
 * child that is taken over can name frames of its own namespace only.
 */
#pragma once

#include "node/runtime/runtime.h"

/* A question begins with reader_head, and each message of the answer with the same sequence. */
struct reader_head {
	uint64_t sequence; /* runtime_reader_ask() sets it */
	/* of a question: enum reader_what; of an answer: what the question says */
	uint32_t what;
	uint32_t n;
};
enum reader_what { READ_PERF_MAP, READ_RUNTIMES, READ_NAMES, READ_GO_HEAP };
#define READER_MESSAGE_MAX 65536 /* bytes of a message */
/* limit of the time in which the agent waits for the answers to one question */
#define READER_WAIT_NS (2 * NSEC_PER_SEC)

/* ---- reader.c: the agent's side; any thread ---- */
struct reader_question {
	uint64_t charged_ns; /* whose bytes they are: of struct charged */
	struct reader_head *message;
	size_t n;
	int fds[2]; /* the child gets duplicates */
	size_t n_fds;
	/*
	 * Checks and takes a message of the answer. 1: it was the last one; 0: more follow.
	 * -EBADMSG: the message is wrong.
	 */
	int (*take)(void *arg, const void *message, size_t n);
	void *arg;
};
/*
 * Asks a child, and blocks at most READER_WAIT_NS for it. -ETIMEDOUT, -EPIPE, -EBADMSG: the child
 * hung, died or lied; it was ended, and the namespace's bytes are not read for a while: -ECANCELED.
 * -EBUSY: no child can be started now. Each failure is counted by reason in
 * podflame_reader_failures_total.
 */
int runtime_reader_ask(const struct reader_question *q);
/* For tests: the program to execute as the child, and its argument. Ends all children. */
void runtime_reader_use(const char *self_exe, const char *verb);

/* ---- reader_child.c: the child ---- */
extern const char runtime_reader_verb[]; /* handled before main(), as in lib/symbols */
extern const struct child_rights runtime_reader_rights;
