/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of runtime share. Reader's thread, unless a comment says otherwise. */
#pragma once

#include "node/runtime/runtime.h"

#define X(NAME, name) extern const struct runtime_ops runtime_##name##_runtime;
PF_RUNTIMES(X)
PF_CONTEXTS(X)
#undef X

	/* Indexed by enum pf_runtime_kind, _PF_RUNTIME_MAX items. A test sets its own table. */
	extern const struct runtime_ops *const *runtime_table;

/* ranges.c */
/*
 * Sorts the ranges, and cuts them to executable mappings and to what is not in look->taken.
 * -EINVAL: there are empty or overlapping ranges. -E2BIG: the result has more than most.
 */
int runtime_ranges_fit(const struct runtime_look *look, size_t most, struct runtime_range **ranges,
	       size_t *n);
/*
 * Notes in l's problem that the runtime has more ranges than the limit; what: their name, for a
 * user. Counts it as over_limit.
 */
void runtime_ranges_cut(struct runtime_learnt *l, const char *what);

/* recognised.c: writes the marks of its runtimes to ret, at most max. Returns how many. */
size_t runtime_recognised_marks(const char **ret, size_t max);
/*
 * Finds the recognised runtimes of a process. Returns how many. *ret_again: one may be starting;
 * look again soon.
 */
size_t runtime_recognised_find(const struct runtime_look *look,
			       const struct runtime_recognised *ret[static RUNTIME_RECOGNISED_MAX],
			       bool *ret_again);

#define LEARN_FAILURES "podflame_runtime_learn_failures_total"
/* Counts a function that gets no lines, because its table of lines is too large. */
void runtime_lines_dropped(void);
/* The reason of an error as a word, for counters. */
const char *runtime_error_word(int error);

/*
 * cache_limit.c; any thread. *own: the bytes that a runtime keeps of one process, 0 at first. When
 * the runtime forgets the process, it sets them to 0 again by this function.
 */
void runtime_cache_set(size_t *own, size_t bytes);
/* Whether there is room for more bytes. most: the process's limit; all processes have one, too. */
bool runtime_cache_has_room(size_t own, size_t bytes, size_t most);

/*
 * For tests: adds l to the runtimes of p, and takes over its memory. p NULL: makes a new one, of
 * m's process.
 */
struct runtime_process *runtime_process_with(struct runtime_process *p, const struct mappings *m,
					     enum pf_runtime_kind k,
					     const struct runtime_learnt *l);
