/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of runtime share. */
#pragma once

#include "node/runtime/runtime.h"

#define X(NAME, name) extern const struct runtime_ops runtime_##name##_runtime;
PF_RUNTIMES(X)
PF_CONTEXTS(X)
#undef X

	/* By enum pf_runtime_kind, _PF_RUNTIME_MAX of them; a test puts its own here. */
	extern const struct runtime_ops *const *runtime_table;

/* ranges.c */
/*
 * Sorts, and cuts to executable mappings and to what nobody has taken. -EINVAL: empty or overlapping ranges.
 * -E2BIG: more than most.
 */
int runtime_ranges_fit(const struct runtime_look *look, size_t most, struct runtime_range **ranges,
	       size_t *n);
/* l has as many ranges as are told, and there are more; what: of them, for its user. Counted as over_limit. */
void runtime_ranges_cut(struct runtime_learnt *l, const char *what);

/* recognised.c: adds the marks of its runtimes to ret, at most max; returns how many. */
size_t runtime_recognised_marks(const char **ret, size_t max);
/* Returns how many of them the process runs. ret_again: one is starting; look again soon. */
size_t runtime_recognised_find(const struct runtime_look *look,
			       const struct runtime_recognised *ret[static RUNTIME_RECOGNISED_MAX],
			       bool *ret_again);

#define LEARN_FAILURES "podflame_runtime_learn_failures_total"
/* A function has no lines, since its table of them is too large. */
void runtime_lines_dropped(void);
/* Why something was not read, for counters. */
const char *runtime_error_word(int error);

/*
 * cache_limit.c; any thread. own: the bytes that a runtime keeps of one process, 0 at first; the
 * runtime sets it to 0 again when it forgets the process.
 */
void runtime_cache_set(size_t *own, size_t bytes);
/* Whether there is room for bytes more: most is the process's limit; all together have one. */
bool runtime_cache_has_room(size_t own, size_t bytes, size_t most);

/* Adds what l says to what p runs (NULL: a new one, of m's process); takes over l's memory. Tests make theirs so. */
struct runtime_process *runtime_process_with(struct runtime_process *p, const struct mappings *m,
					     enum pf_runtime_kind k,
					     const struct runtime_learnt *l);
