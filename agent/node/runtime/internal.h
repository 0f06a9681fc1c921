/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of runtime. All functions run on the reader's thread, unless a comment says
 * otherwise.
 */
#pragma once

#include "node/runtime/runtime.h"

#define X(NAME, name) extern const struct runtime_ops runtime_##name##_runtime;
PF_RUNTIMES(X)
PF_CONTEXTS(X)
#undef X

/* _PF_RUNTIME_MAX items, indexed by enum pf_runtime_kind. A test sets its own table. */
extern const struct runtime_ops *const *runtime_table;

/* look.c: whether the name of a mark fits one of the marks, which are as in runtime_ops.marks */
bool runtime_is_mark(const char *const *of, const char *name);

/* memory.c: the memory of a process that has been opened. fd must stay valid. */
struct memory runtime_memory_of(int *fd);
int runtime_process_memory_fd(const struct process_memory *p); /* borrowed */

/*
 * ranges.c. Sorts the ranges, and removes what is not in an executable mapping or is in
 * look->taken. -EINVAL: a range is empty, or ranges overlap. -E2BIG: the result has more than
 * `most` ranges.
 */
int runtime_ranges_fit(const struct runtime_look *look, size_t most, struct runtime_range **ranges,
		       size_t *n);
/*
 * Writes into l->problem that the runtime has more ranges than the limit, and counts that as
 * over_limit. what: the name of such ranges, for a user.
 */
void runtime_ranges_cut(struct runtime_learnt *l, const char *what);

/*
 * recognised.c: runtimes that podflame recognises but does not walk. This function writes their
 * marks to ret, at most max. Returns how many.
 */
size_t runtime_recognised_marks(const char **ret, size_t max);
/*
 * Finds the recognised runtimes of a process. Returns how many. *ret_again: a runtime may just be
 * starting, and the caller looks again soon.
 */
size_t runtime_recognised_find(const struct runtime_look *look,
			       const struct runtime_recognised *ret[static RUNTIME_RECOGNISED_MAX],
			       bool *ret_again);

#define LEARN_FAILURES "podflame_runtime_learn_failures_total"
/* Counts a function whose frames get no lines, because its line table is too large. */
void runtime_lines_dropped(void);
/* Returns a word for the error, for the label `reason` of counters. */
const char *runtime_error_word(int error);

/*
 * cache_limit.c; any thread. *own: how many bytes a runtime keeps of one process, 0 at first. This
 * function sets that number. When the runtime forgets the process, it calls this function with 0.
 */
void runtime_cache_set(size_t *own, size_t bytes);
/*
 * Returns whether a process may keep that many more bytes. most: the limit of the process. All
 * processes together have a limit, too.
 */
bool runtime_cache_has_room(size_t own, size_t bytes, size_t most);
bool runtime_caches_are_full(void); /* all processes together keep as much as they may */

/*
 * For tests: adds l to the runtimes of p, which then owns l's memory. p NULL: makes a new one, for
 * the process of m.
 */
struct runtime_process *runtime_process_with(struct runtime_process *p, const struct mappings *m,
					     enum pf_runtime_kind k,
					     const struct runtime_learnt *l);
/*
 * For tests: makes one whose process publishes unwind rows. Takes the reference to the index; NULL:
 * there are no rows yet.
 */
struct runtime_process *runtime_process_publishing(const struct mappings *m,
						   struct elf_index *generated);
