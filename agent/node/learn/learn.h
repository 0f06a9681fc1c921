/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learn: from what a process maps to unwind tables in the kernel, its runtimes and the places where it allocates: the
 * step that the node and `podflame record` share. Threads: each function says its own (of record: the main thread).
 */
#pragma once

#include "node/files/files.h"
#include "node/probe/probe.h"
#include "node/unwind/unwind.h"

/* A manager whose tables lie in p's maps; it must be freed before p. */
int learn_unwind_new(struct probes *p, size_t budget_bytes, struct unwind **ret);

/*
 * Gives each mapping its tag, and tells f what the tags mean. For mappings that were just read,
 * before anything else uses them. May block as long as a pod's file system does: for the files
 * worker (of record: the main thread).
 */
void learn_tags(struct files *f, struct mappings *m);

struct applied {
	size_t *unknown; /* mappings whose files are not parsed yet, one of each file */
	size_t n_unknown;
	char *missing; /* a file that has no tables and why; NULL: none */
	bool go;       /* goroutines may wait in it: no thread does then */
	bool runs;     /* it may run more than native code: learn_runtimes is worth a look */
};
void learn_applied_done(struct applied *a);
/*
 * Gives the kernel what is known of the process's files by now. Parses nothing: what is unknown
 * is for the caller to ask files_index for, and then to come again. runtimes: what it runs besides; NULL: nothing.
 */
int learn_apply(struct unwind *u, struct files *f, const struct mappings *m,
		 const struct runtime_process *runtimes, struct applied *ret);
/*
 * runs.c: what the process runs besides native code, of the files that are known by now. Reads its memory, which may
 * block: the files worker's (record: the main thread). old, ret and ret_again as runtime_learn has them.
 */
int learn_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
		    struct runtime_process **ret, bool *ret_again);
/* What of it is not walked, and why; a new string. NULL: all is. */
char *learn_runtimes_problem(const struct mappings *m, const struct runtime_process *p);

/* Its runtimes whose functions have no names, and what works; a new string. NULL: it has none. */
char *learn_runtimes_unnamed(const struct runtime_process *p);

/* marks.c: for parser_config.marks of whoever asks the two around this; NULL at the end. */
const char *const *learn_markers(void);

/*
 * runs.c: where the process allocates memory, of the files that are known by now; the same thread. event_mask as
 * alloc_sites_find has it.
 */
struct alloc_sites;
int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		       struct alloc_sites **ret);
