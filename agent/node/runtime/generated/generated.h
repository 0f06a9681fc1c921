/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: sources of unwind rows for generated code. Some just-in-time compilers
 * publish call frame information in the memory of their process: for a debugger, or for C++'s
 * exceptions. A source is a file of this directory and a row of generated.c. It runs in the child
 * of the process's namespace (reader.h). docs/generated-code.md.
 */
#pragma once

#include "node/parse/generated.h"
#include "node/runtime/internal.h"

#define GENERATED_INDEX_MAX  (4u << 20)	  /* bytes of the index of a process's generated code */
#define GENERATED_FRAMES_MAX (256u << 10) /* bytes of one piece of call frame information */

/* What was left out of a process's rows; the agent counts it. X(enum, reason of the counter) */
#define GENERATED_LACKS(X)                                                                         \
	X(TOO_MANY, "too_many")	      /* there are more images, frames or rows than the limit */   \
	X(TOO_LARGE, "too_large")     /* one of them is larger than the limit */                   \
	X(CHANGED, "changed")	      /* it changed while it was read */                           \
	X(DAMAGED, "damaged")	      /* it is not what it should be */                            \
	X(MOVABLE, "not_relocated")   /* its addresses are those before it was relocated */        \
	X(UNKNOWN, "unknown_version") /* the library that keeps them is none that podflame knows */
enum generated_lack {
#define X(name, word) GENERATED_##name,
	GENERATED_LACKS(X)
#undef X
		_GENERATED_LACKS,
};

/* What is known beside the rows. */
struct generated_facts {
	uint32_t lacks[_GENERATED_LACKS];
	/* not 0: the process has a source, which may have rows of further code at any time */
	uint32_t publishes;
};
struct generated {
	const struct runtime_look *look;
	struct parse_generated *rows;
	struct generated_facts facts;
};
/* For sources: adds the rows of these functions, and counts what is left out. */
void runtime_generated_add(struct generated *g, const struct parse_generated_frames *f);

/*
 * For sources: counts that something was left out, by the error of its reading. -E2BIG: it is too
 * large, or no more memory may be read; -ENOSPC: there are too many.
 */
void runtime_generated_left_out(struct generated *g, int error);

struct generated_source {
	/* as runtime_ops.marks: the process may have this source if a file has one of them */
	const char *const *marks;
	/* Adds what the process has published. The budget of the look's memory bounds the work. */
	void (*read)(struct generated *g);
};
extern const struct generated_source runtime_gdb_jit; /* gdb_jit.c */
extern const struct generated_source runtime_libgcc;  /* libgcc.c */

/*
 * The child: reads all sources of a process that has generated code, and writes the index of its
 * rows to `out`: nothing if there are none.
 */
void runtime_generated_read(const struct runtime_look *look, struct generated_facts *ret,
			    struct buf *out);
/* The agent: counts what was left out. */
void runtime_generated_count(const struct generated_facts *f);
/* Returns whether a mark is one of a source. */
bool runtime_generated_is_mark(const char *name);
/* Writes the marks of all sources to ret, at most max. Returns how many. */
size_t runtime_generated_marks(const char **ret, size_t max);
