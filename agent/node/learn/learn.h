/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learn: the steps that the node and `podflame record` share: from what a process maps to unwind
 * tables in the kernel, to its runtimes and to the places where it allocates. Each function says
 * which thread runs it. In `podflame record` that is always the main thread. Functions return 0 or
 * a negative errno.
 */
#pragma once

#include "node/files/files.h"
#include "node/probe/probe.h"
#include "node/unwind/unwind.h"

/* Creates a manager whose tables lie in p's maps. The caller must free it before p. */
int learn_unwind_new(struct probes *p, size_t budget_bytes, struct unwind **ret);

/*
 * Gives each mapping its tag, and tells f what the tags mean. The caller passes mappings that it
 * has just read, before anything else uses them. It may block as long as a pod's file system does.
 * Files worker.
 */
void learn_tags(struct files *f, struct mappings *m);

struct applied {
	size_t *unknown; /* indexes of mappings whose files are not parsed yet, one per file */
	size_t n_unknown;
	char *missing; /* a file that has no tables, and why; NULL: none */
	bool go;       /* goroutines may wait in it, without any thread that waits */
	bool runs;     /* it may run more than native code, so learn_runtimes() should be called */
};
void learn_applied_done(struct applied *a);
/*
 * Gives the kernel what is known of the process's files by now. It parses nothing: for what is
 * unknown, the caller asks files_index() and then calls this again. runtimes: the runtimes that
 * were found in the process; NULL: none.
 */
int learn_apply(struct unwind *u, struct files *f, const struct mappings *m,
		 const struct runtime_process *runtimes, struct applied *ret);
/*
 * runtimes.c: finds what the process runs besides native code, as far as its files are known by
 * now. It reads the process's memory, which may block. Files worker. old, java, ret and ret_again:
 * see runtime_learn().
 */
int learn_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
		   struct java_requests *java, struct runtime_process **ret, bool *ret_again);
/*
 * Says which of the runtimes cannot be unwound, and why. Returns a new string, or NULL if all can.
 */
char *learn_runtimes_problem(const struct mappings *m, const struct runtime_process *p);

/*
 * Says which of the runtimes have functions without names, and how to get them. Returns a new
 * string, or NULL if there are none.
 */
char *learn_runtimes_unnamed(const struct runtime_process *p);

/*
 * markers.c: the symbols that the parser searches for in each file, for parser_config.marks.
 * Without them learn_runtimes() and learn_alloc_sites() find nothing. NULL ends the list.
 */
const char *const *learn_markers(void);

/*
 * runtimes.c: finds the places where the process allocates memory, as far as its files are known by
 * now. Files worker. event_mask: see alloc_sites_find().
 */
struct alloc_sites;
int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		       struct alloc_sites **ret);
