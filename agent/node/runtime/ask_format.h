/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: the messages about runtimes between the agent (ask.c) and the child
 * (answer.c). With each question comes a descriptor of the process's memory. If the child is to
 * learn the process, a second one has the look (look_bytes.c): what the child must know of the
 * mappings and their files.
 */
#pragma once

#include "node/runtime/generated/generated.h"
#include "node/runtime/reader.h"
#include "node/runtime/states.h"

/*
 * The child keeps what it learns of a process under a number that the agent chose: the token. Each
 * learning has its own token, so that a child never answers with what an earlier one left behind.
 */
struct learn_question {
	struct reader_head head;
	uint64_t old;	/* token of the previous result, which is learnt anew; 0: there is none */
	/* of the result; 0: the child reads only the rows of generated code, and keeps nothing */
	uint64_t token;
	uint64_t look_bytes;
};

struct wire_ask {
	uint64_t a, b, caller_a, caller_b;
	uint8_t kind, type, caller_type, has_caller;
	uint32_t pad;
};
#define NAMES_ASKS_MAX 1024 /* frames of one question */
struct names_question {
	struct reader_head head; /* n: frames */
	uint64_t token;
	struct wire_ask asks[NAMES_ASKS_MAX]; /* only n of them are sent */
};
_Static_assert(sizeof(struct names_question) <= READER_MESSAGE_MAX, "a question is one message");

/*
 * ---- answers ----
 * To learn_question: a LEARNT for each runtime for which learn() did not say -ENOENT, in ascending
 * order of kinds, the index of the rows of generated code in pieces (GENERATED; none if there are
 * no rows), then LEARNT_ALL. To names_question: any number of NAMES, then NAMES_ALL; or only
 * NAMES_UNKNOWN: the child does not know the token.
 */
enum runtimes_message { LEARNT, LEARNT_ALL, NAMES, NAMES_ALL, NAMES_UNKNOWN, GENERATED };

/* What the child dropped; the agent counts it. */
enum reader_loss { LOST_LINES, LOST_INLINED, LOST_RANGES, _READER_LOSSES };
struct counter *runtime_loss_counter(enum reader_loss l);

struct learnt_message {		 /* n_ranges * wire_range and data_bytes follow */
	struct reader_head head; /* n: the kind */
	int32_t error;		 /* 0 or -errno of learn(); then only `named` is set */
	uint32_t n_ranges, data_bytes;
	char version[sizeof(((struct runtime_learnt *)0)->version)];
	char problem[RUNTIME_PROBLEM_BYTES];
	/* 1: the child can name the runtime's frames. After an error: with an earlier result */
	uint32_t named;
};
struct wire_range {
	uint64_t start, end;
	uint64_t managed;
};
struct generated_message {
	struct reader_head head; /* n: how many bytes of the index follow */
};
struct names_message {
	struct reader_head head; /* n: how many records follow, each with the bytes of its texts */
};
struct wire_name {
	int32_t error; /* of the last record of a frame: 0 or -errno of resolve() */
	uint32_t line;
	uint16_t name_n, file_n; /* bytes of the texts, which follow without NUL */
	uint8_t last;		 /* 1: the frame ends with this record, which has no name */
	uint8_t kind;		 /* of the last record: enum frame_kind */
	uint8_t has_file, inlined;
};
#define WIRE_TEXT_MAX 30000 /* bytes of a name or a file; a longer one is cut */
/* the end of an answer: LEARNT_ALL, NAMES_ALL, NAMES_UNKNOWN */
struct end_message {
	struct reader_head head;
	uint64_t read_bytes; /* of the process's memory */
	uint64_t lost[_READER_LOSSES];
	struct generated_facts generated; /* of LEARNT_ALL */
};

/* ---- answer.c: the child ---- */
/* Reads n bytes of the file that came with a question. -EBADMSG: there are fewer. */
int runtime_answer_read(int file, void *to, size_t n);
/* Answers one question. look: -1: none. -errno: the child cannot go on. */
int runtime_answer_learn(const void *message, size_t n, int memory, int look);
int runtime_answer_names(const void *message, size_t n, int memory);

/* ---- ask.c: the agent ---- */
struct runtime_answers {
	/* for each row that runs in a child: 0 or -errno of learn() */
	int errors[_PF_RUNTIME_MAX];
	struct runtime_learnt
		learnt[_PF_RUNTIME_MAX]; /* without state; only if there is no error */
	bool named[_PF_RUNTIME_MAX];	 /* the child can name the runtime's frames */
	struct buf generated;		 /* bytes of the index of generated code; may be empty */
	bool publishes;			 /* generated_facts.publishes */
};
void runtime_answers_done(struct runtime_answers *a);
/*
 * Asks with the process's memory and, if file is not NULL, a file of these n bytes, which this
 * function adds to q. -EBUSY: the file could not be made; errors of runtime_reader_ask().
 */
int runtime_ask(const struct runtime_asked *of, const void *file, size_t n,
		struct reader_question *q);
/*
 * *answers has -ENOENT for each row before the call, and results must be freed after errors, too.
 * old, token: as in struct learn_question. Errors are those of runtime_reader_ask().
 */
int runtime_ask_learn(const struct runtime_asked *of, const struct buf *look, uint64_t old,
		      uint64_t token, struct runtime_answers *answers);
/*
 * Sets the names and errors of n frames, at most NAMES_ASKS_MAX. -ENOKEY: the child does not know
 * the token. Other errors are those of runtime_reader_ask(). After an error no frame has names.
 */
int runtime_ask_names(const struct runtime_asked *of, uint64_t token,
		      struct runtime_ask *const *asks, size_t n);

/* ---- look_bytes.c ---- */
#define LOOK_BYTES_MAX (4u << 20) /* the look of one process; if it is larger, it is not learnt */
/*
 * The agent's side: writes to `out`, which is empty, what rows that run in a child may see of the
 * process. 0: no file has a mark of such a row, so the process has none of them. 1: some file has.
 * -E2BIG: the look exceeds a limit.
 */
int runtime_look_write(const struct mappings *maps, struct elf_index *const *indexes,
		       struct buf *out);
/* The child's side. */
struct read_look {
	struct mappings maps;
	struct elf_index **indexes;
	struct elf_index **files; /* the indexes, each once */
	size_t n_files;
	char *bytes;
};
/* Takes `bytes`, which malloc() has made. -EBADMSG: they are no look. */
int runtime_look_read(char *bytes, size_t n, struct read_look *ret);
void runtime_look_done(struct read_look *l);
