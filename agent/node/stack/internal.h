/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of stack share with each other, their tests and fuzz targets. */
#pragma once

#include "node/stack/stack.h"

#include <uthash.h>

#define EXECS_MAX    4	/* generations of mappings kept of one process */
#define UNPARSED_MAX 16 /* files of one process, told at once */

struct exec {
	struct mappings *maps;
	uint64_t root;			  /* of files_root */
	struct runtime_process *runtimes; /* NULL: native code only */
	struct named *named;		  /* with runtimes */
	struct compared *compared;	  /* NULL: nothing was compared yet */
};
struct process {
	struct process_id id;
	struct exec execs[EXECS_MAX];		      /* newest first */
	uint64_t miss_told_ns;			      /* CLOCK_MONOTONIC */
	bool reread;				      /* its mappings are to be read again */
	uint64_t forget_ns;			      /* 0: it lives */
	uint64_t exited_ns;			      /* with forget_ns; CLOCK_BOOTTIME */
	struct names_wanted *wanted;		      /* NULL: nothing */
	const struct mapping *unparsed[UNPARSED_MAX]; /* told, and only to be compared with */
	uint64_t unparsed_round;		      /* when; else there are none */
	size_t n_unparsed;
	struct process *prev_wanting, *next_wanting;
	UT_hash_handle hh;
};
struct stacks {
	struct files *files;
	struct process *processes;
	struct process *wanting; /* those with `wanted` */
	uint64_t next_purge_ns;
	struct kernel_names *kernel;
	struct frame frames[STACK_MAX_FRAMES];
	size_t n_frames;
	size_t inlined_room; /* of frames: each function has its own, the inlined ones share the rest */
	struct batch *batch; /* of the call at work */
	struct unparsed_file *unparsed;
	size_t n_unparsed, cap_unparsed;
	uint64_t unparsed_round;
	size_t n_compared_pages; /* of compared.c */
	uint64_t taken_ns;	 /* of stacks_taken */
};

/* ---- processes.c ---- */
/* NULL: not known. */
struct process *stacks_process(struct stacks *s, struct process_id id);
struct exec *stacks_process_exec(struct process *p, uint32_t exec_id);
/*
 * The mapping that the frame lies in, among those that were read; address: as it is looked up.
 * NULL: none, or another one than was there when the sample was taken.
 */
const struct mapping *stacks_mapping(const struct exec *e, const struct raw_frame *f,
				     uint64_t address);
/* Forgets who has ended long enough ago: no process that was found before is valid then. */
void stacks_purge(struct stacks *s);
void stacks_forget_all(struct stacks *s);
/* Nobody has parsed its file. */
void stacks_note_unparsed(struct stacks *s, struct process *p, struct mappings *maps,
			  const struct mapping *m);

/* Where it stands itself, callers have return addresses: the first frame, or behind what was allocated there. */
static inline bool stack_is_leaf(const struct raw_stack *stack, size_t i)
{
	return i == 0 ||
	       (i == 1 && stack->frames[0].runtime && stack->frames[0].type == PF_TYPE_OBJECT);
}

/* ---- wanted.c ---- */
bool stacks_stack_has_runtimes(const struct raw_stack *stack);
void stacks_unwant(struct stacks *s, struct process *p);

/* ---- kallsyms.c ---- */
struct kernel_symbols;
struct kernel_symbols *stacks_kernel_symbols_free(struct kernel_symbols *k);
/* Cuts the text in place, keeps nothing of it. When all addresses are zero there are no symbols,
 * and stacks_kernel_symbols_hidden. */
struct kernel_symbols *stacks_kernel_symbols_parse(char *text, size_t n);
int stacks_kernel_symbols_read(const char *path, struct kernel_symbols **ret);
/* Whether it has addresses at all, by its first lines: 0; -EADDRNOTAVAIL: they are hidden; -ENODATA: it is empty. */
int stacks_kernel_symbols_look(const char *path);
bool stacks_kernel_symbols_hidden(const struct kernel_symbols *k);
size_t stacks_kernel_symbols_count(const struct kernel_symbols *k);
/* -ENOENT: before the first symbol, or in a hole. Strings are borrowed from k. */
int stacks_kernel_symbols_find(const struct kernel_symbols *k, uint64_t address, uint64_t *ret_start,
			const char **ret_name, const char **ret_module);
/* Changes when modules or BPF programs come. *newest_bpf is kept between calls, 0 at first. */
uint64_t stacks_kernel_symbols_fingerprint(const char *path, uint32_t *newest_bpf);

/* ---- kernel.c ---- */
struct kernel_names;
struct kernel_names *stacks_kernel_names_new(const char *path); /* NULL: /proc/kallsyms */
struct kernel_names *stacks_kernel_names_free(struct kernel_names *k);
int stacks_kernel_names_refresh(struct kernel_names *k); /* -ENODATA: see stacks_kernel_names_problem */
const char *stacks_kernel_names_problem(const struct kernel_names *k);
/* Fills name, module and the function's address if they are known; valid until the next call. */
void stacks_kernel_names_find(struct kernel_names *k, uint64_t address, struct frame *f);

/* ---- named.c: names of the runtimes' frames of one process ---- */
struct named;
struct named *stacks_named_new(void);
struct named *stacks_named_free(struct named *n);
/* The frame of a runtime that called it: the next one of the same runtime; NULL: none, or it does not matter. */
const struct raw_frame *stacks_named_caller(const struct raw_stack *stack, size_t i);
/* Its names; NULL: not known (yet). Borrowed until the next call. */
const struct runtime_names *stacks_named_find(struct named *n, const struct raw_frame *f,
				       const struct raw_frame *caller);
/* What is not known of a stack goes into w, once. */
void stacks_named_want(struct named *n, const struct raw_stack *stack, struct names_wanted *w);
void stacks_named_take(struct named *n, struct names_wanted *w);

/* ---- compared.c: whether code is what its file's names and rows were made of ---- */
struct compared;
struct compared *stacks_compared_free(struct compared *c);
/* What has to be compared of a stack of p's present program goes into p->wanted. */
void stacks_compared_want(struct stacks *s, struct process *p, const struct raw_stack *stack);
void stacks_compared_read(struct names_wanted *w); /* reader's thread */
void stacks_compared_take(struct stacks *s, struct exec *e, struct names_wanted *w);
void stacks_compared_wanted_done(struct names_wanted *w);
/* Newer mappings are known. c may be NULL. */
void stacks_compared_mappings(struct compared *c, const struct mappings *before,
		       const struct mappings *now);
/*
 * NULL: all of it may be shown; else why not: the code of *ret_frame is not that of its file, or
 * nobody knows. Then neither that frame is shown nor any behind it.
 */
const char *stacks_compared_doubt(struct stacks *s, struct process *p, const struct raw_stack *stack,
			   size_t *ret_frame);
