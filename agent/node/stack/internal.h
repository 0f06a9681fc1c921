/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of stack, their tests and their fuzz targets share. All functions run on the
 * pipeline worker, except where a comment names another thread.
 */
#pragma once

#include "lib/base/budget.h"
#include "node/stack/stack.h"

#include <uthash.h>

#define EXECS_MAX    4	/* programs of one process whose mappings are kept */
#define UNPARSED_MAX 16 /* limit for files of one process in one call of stacks_unparsed() */
/*
 * limit for rows of generated code beside the newest, of all programs: a budget (lib/base/budget.h)
 * of which each namespace has a share
 */
#define OLD_ROWS_BYTES_MAX (64u << 20)

/* One program that a process runs, or ran before an exec. */
struct exec {
	struct mappings *maps;
	uint64_t root;			  /* the root that files_root() returned */
	struct runtime_process *runtimes; /* NULL: native code only */
	struct named *named;		  /* set if `runtimes` is */
	struct compared *compared;	  /* NULL: nothing was compared yet */
	struct published *published;	  /* NULL: it has published no rows of generated code */
};
struct stacks_process {
	struct share_item share; /* must be the first member */
	struct process_id id;
	struct exec execs[EXECS_MAX]; /* newest first */
	uint64_t miss_told_ns;	      /* CLOCK_MONOTONIC: when stacks_misses() last returned true */
	/*
	 * When stacks_misses() last asked for rows of generated code (CLOCK_MONOTONIC), and how
	 * long it then waits if the reading finds none. Of published_rows.c.
	 */
	uint64_t rows_told_ns, rows_every_ns;
	bool rows_changed; /* the kernel's rows were found to differ from what it publishes */
	/* stacks_misses() must ask for the process's mappings again */
	bool reread;
	uint64_t forget_ns;	     /* CLOCK_MONOTONIC; 0: the process lives */
	uint64_t exited_ns;	     /* set if forget_ns is; CLOCK_BOOTTIME */
	struct names_wanted *wanted; /* reads to be done; NULL: none */
	/* files noted for stacks_unparsed(); only the pointers are compared */
	const struct mapping *unparsed[UNPARSED_MAX];
	/* the round to which `unparsed` belongs; in another round, no file is noted */
	uint64_t unparsed_round;
	size_t n_unparsed;
	struct name_cost names_cost; /* of the names of its work on GPUs */
	struct stacks_process *prev_wanting, *next_wanting;
	UT_hash_handle hh;
};
struct directory { /* inode 0: not known which */
	uint64_t dev, inode;
};
struct stacks {
	struct files *files;
	struct stacks_process *processes;
	/* of all in `processes`, by namespace: those that live, and those that have ended */
	struct shares living, ended;
	struct shares crowded;		/* for stacks_crowded() */
	struct stacks_process *wanting; /* the processes with `wanted` */
	uint64_t next_purge_ns;
	struct kernel_names *kernel;
	bool unnamed_by_start;
	struct frame frames[STACK_MAX_FRAMES];
	size_t n_frames;
	/*
	 * How many more frames of inlined functions there may be. Room for all other frames is
	 * kept.
	 */
	size_t inlined_room;
	struct batch *batch; /* the batch of the stacks_resolve() call that is running */
	struct unparsed_file *unparsed;
	size_t n_unparsed, cap_unparsed;
	uint64_t unparsed_round;
	struct shares compared_pages; /* of all processes, for code_compare.c */
	struct budget old_rows;	      /* bytes, of all processes, for published_rows.c */
	/* set by stacks_taken(): when the earliest and the latest of them were taken */
	uint64_t taken_ns, taken_last_ns;
	uint64_t walked_ns;	     /* as taken_ns: sample_walked_ns() */
	uint64_t cgroup_id;	     /* as taken_ns */
	struct cgroup_root *roots;   /* roots.c */
	struct directory nodes_root; /* of the node itself */
	struct gpu_names *gpu_names;
};

/* ---- processes.c ---- */
/* Returns NULL if the process is not known. */
struct stacks_process *stacks_process(struct stacks *s, struct process_id id);
struct exec *stacks_process_exec(struct stacks_process *p, uint32_t exec_id);
/*
 * Finds the mapping of the frame among the mappings that were read. address: the address to look
 * up. NULL: there is no mapping, or not the one of the time when the sample was taken.
 */
const struct mapping *stacks_mapping(const struct exec *e, const struct raw_frame *f,
				     uint64_t address);
void stacks_forget_all(struct stacks *s);
/* Notes for stacks_unparsed() that the file of m has not been parsed. */
void stacks_note_unparsed(struct stacks *s, struct stacks_process *p, struct mappings *maps,
			  const struct mapping *m);

/*
 * Returns whether frame i is the one that was running. Its address is that of an instruction; the
 * addresses of its callers are return addresses. It is the first frame, or the second if the first
 * is an allocated object.
 */
static inline bool stack_is_leaf(const struct raw_stack *stack, size_t i)
{
	return i == 0 ||
	       (i == 1 && stack->frames[0].runtime && stack->frames[0].type == PF_TYPE_OBJECT);
}

/* ---- roots.c ---- */
void stacks_roots_begin(struct stacks *s);
/* Returns whether a process's root directory is that of the node itself. root_fd -1: unknown. */
bool stacks_root_is_nodes(const struct stacks *s, int root_fd);
/*
 * Notes the root (files_root()) of a process of the cgroup; 0, of either: not known which. nodes:
 * it is that of the node itself.
 */
void stacks_roots_note(struct stacks *s, uint64_t cgroup_id, uint64_t root, bool nodes);
/* Returns the root of the cgroup's processes; 0: none was read, or they have several roots. */
uint64_t stacks_roots_find(const struct stacks *s, uint64_t cgroup_id);
void stacks_roots_free(struct stacks *s);

/* ---- wanted.c ---- */
bool stacks_stack_has_runtimes(const struct raw_stack *stack);
void stacks_unwant(struct stacks *s, struct stacks_process *p);

/* ---- kallsyms.c ---- */
struct kernel_symbols;
struct kernel_symbols *stacks_kernel_symbols_free(struct kernel_symbols *k);
/*
 * Parses kallsyms. Changes the text (puts NULs into it), but keeps no pointer to it. If all
 * addresses are zero, the result has no symbols, and stacks_kernel_symbols_hidden() is true.
 */
struct kernel_symbols *stacks_kernel_symbols_parse(char *text, size_t n);
int stacks_kernel_symbols_read(const char *path, struct kernel_symbols **ret);
/*
 * Checks whether the file's first lines have addresses. Returns 0 if they have; -EADDRNOTAVAIL: the
 * addresses are hidden; -ENODATA: the file is empty.
 */
int stacks_kernel_symbols_look(const char *path);
bool stacks_kernel_symbols_hidden(const struct kernel_symbols *k);
size_t stacks_kernel_symbols_count(const struct kernel_symbols *k);
/*
 * Finds the symbol of an address. -ENOENT: the address is before the first symbol, or in a hole.
 * The strings belong to k.
 */
int stacks_kernel_symbols_find(const struct kernel_symbols *k, uint64_t address,
			       uint64_t *ret_start, const char **ret_name, const char **ret_module);
/*
 * Returns a number that changes when modules or BPF programs are loaded. The caller keeps
 * *newest_bpf between calls; it is 0 at first.
 */
uint64_t stacks_kernel_symbols_fingerprint(const char *path, uint32_t *newest_bpf);

/* ---- kernel_names.c ---- */
struct kernel_names;
struct kernel_names *stacks_kernel_names_new(const char *path); /* NULL: /proc/kallsyms */
struct kernel_names *stacks_kernel_names_free(struct kernel_names *k);
/* Reads kallsyms again if needed. -ENODATA: stacks_kernel_names_problem() returns the reason. */
int stacks_kernel_names_refresh(struct kernel_names *k);
const char *stacks_kernel_names_problem(const struct kernel_names *k);
/*
 * Sets name, module and the function's address in f, if they are known. The strings are valid until
 * the next call.
 */
void stacks_kernel_names_find(struct kernel_names *k, uint64_t address, struct frame *f);

/* ---- gpu_names.c ---- */
struct gpu_names;
struct gpu_names *stacks_gpu_names_new(void);
struct gpu_names *stacks_gpu_names_free(struct gpu_names *n);
/*
 * Returns the name of a piece of work of a GPU, which is this stack: a constant, or interned in
 * s->batch. NULL: it has no name.
 */
const char *stacks_gpu_work_name(struct stacks *s, struct process_id id,
				 const struct raw_stack *work);

/* ---- runtime_names.c: names of the runtimes' frames of one process ---- */
struct named;
struct named *stacks_named_new(uint64_t ns); /* struct charged; 0: nobody */
struct named *stacks_named_free(struct named *n);
/*
 * Returns the caller of frame i: the next frame of the same runtime. NULL: there is none, or the
 * runtime's names do not depend on the caller.
 */
const struct raw_frame *stacks_named_caller(const struct raw_stack *stack, size_t i);
/*
 * Returns the frame's names. NULL: they are not known (yet). The result is valid until the next
 * call.
 */
const struct runtime_names *stacks_named_find(struct named *n, const struct raw_frame *f,
					      const struct raw_frame *caller);
/* Adds to w the names that are needed for a stack, each once. */
void stacks_named_want(struct named *n, const struct raw_stack *stack, struct names_wanted *w);
void stacks_named_take(struct named *n, struct names_wanted *w);

/* ---- published_rows.c: whether the rows of generated code were still right ---- */
struct published;
struct published *stacks_published_free(struct published *x);
/*
 * Returns whether the rows must be read again that the process publishes for the generated code of
 * the stack. now_ns: CLOCK_MONOTONIC
 */
bool stacks_published_misses(struct stacks_process *p, const struct raw_stack *ustack,
			     uint64_t now_ns);
/* Returns whether p's present rows must be read to judge the stack, which is of its program. */
bool stacks_published_wants(const struct stacks_process *p, const struct raw_stack *stack);
/* on the reader's thread */
void stacks_published_read(struct names_wanted *w, const struct runtime_source *from);
void stacks_published_take(struct stacks_process *p, struct exec *e, struct names_wanted *w);
/*
 * Returns NULL if the whole stack may be shown. Else returns the reason why not: the walk has found
 * *ret_frame by rows that may be those of other code. Then that frame and its callers must not be
 * shown.
 */
const char *stacks_published_doubt(struct stacks *s, struct stacks_process *p,
				   const struct raw_stack *stack, size_t *ret_frame);

/* ---- code_compare.c: whether code is still the code of its file ---- */
struct compared;
struct compared *stacks_compared_free(struct compared *c);
/* Adds the code that has to be compared to p->wanted; stack is of p's present program. */
void stacks_compared_want(struct stacks *s, struct stacks_process *p,
			  const struct raw_stack *stack);
void stacks_compared_read(struct names_wanted *w); /* on the reader's thread */
void stacks_compared_take(struct stacks *s, struct exec *e, struct names_wanted *w);
void stacks_compared_wanted_done(struct names_wanted *w);
/* Notes in c that newer mappings were read. c may be NULL. */
void stacks_compared_mappings(struct compared *c, const struct mappings *before,
			      const struct mappings *now);
/*
 * Returns NULL if the whole stack may be shown. Else returns the reason why not: the code of
 * *ret_frame is not the code of its file, or the agent does not know whether it is. Then that frame
 * and its callers must not be shown.
 */
const char *stacks_compared_doubt(struct stacks *s, struct stacks_process *p,
				  const struct raw_stack *stack, size_t *ret_frame);
