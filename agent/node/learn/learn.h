/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learn: the steps that the node and `podflame record` share. They use the mappings of a process to
 * load its unwind tables into the kernel, to find its runtimes, and to find the places where it
 * allocates memory. Each function names the thread that runs it. In `podflame record` that is
 * always the main thread. Functions return 0 or a negative errno.
 */
#pragma once

#include "node/files/files.h"
#include "node/probe/probe.h"
#include "node/unwind/unwind.h"

/*
 * later.c: puts off the reading of processes of which all is known (raw_proc.all_known). Most of
 * them end within milliseconds, and then nothing needs to be read. One thread.
 */
struct learn_later;
struct learn_later *learn_later_new(void);
struct learn_later *learn_later_free(struct learn_later *l);
/*
 * To be called with each record of a process. Returns whether the caller need not read the process
 * now. If the process lives on, the second learn_later_round() from now calls read() for it.
 */
bool learn_later_takes(struct learn_later *l, const struct raw_proc *p);
/* To be called once a second. */
void learn_later_round(struct learn_later *l, void (*read)(const struct raw_proc *p, void *arg),
		       void *arg);

/*
 * Creates a manager of unwind tables. The tables are stored in p's maps. The caller must free the
 * manager before p.
 */
int learn_unwind_new(struct probes *p, size_t budget_bytes, struct unwind **ret);

/*
 * Gives each mapping the tag of its file, and stores in f to which file a tag belongs. The caller
 * passes mappings that it has just read, before anything else uses them. It may block as long as a
 * pod's file system does. Files worker.
 */
void learn_tags(struct files *f, struct mappings *m);

struct applied {
	/* mappings whose files are not parsed yet, as indexes into the mappings, one per file */
	size_t *unknown;
	size_t n_unknown;
	uint64_t *taken_from; /* namespaces (struct charged) that have lost tables to it */
	size_t n_taken_from;
	uint64_t crowded_ns; /* see unwind_crowded() */
	char *missing; /* a file that has no tables, and why; NULL: none */
	bool go;       /* the process runs Go: goroutines may wait in it while no thread waits */
	/* the process may run more than native code, so the caller should call learn_runtimes() */
	bool runs;
};
void learn_applied_done(struct applied *a);
/*
 * Gives the kernel the unwind tables of those files of the process that are parsed already. It
 * parses nothing. The caller has unknown files parsed with files_index() and then calls this again.
 * charged_ns: of struct charged. runtimes: the runtimes that were found in the process; NULL: none.
 */
int learn_apply(struct unwind *u, struct files *f, const struct mappings *m, uint64_t charged_ns,
		 const struct runtime_process *runtimes, struct applied *ret);
/*
 * runtimes.c: finds the runtimes of a process in those of its files that are parsed already. It
 * reads the process's memory, which may block. Files worker. old, java, ret and ret_again: see
 * runtime_learn().
 */
int learn_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
		   struct java_requests *java, struct runtime_process **ret, bool *ret_again);
/*
 * Names a runtime whose functions cannot be unwound, and why. Returns a new string, or NULL if all
 * can.
 */
char *learn_runtimes_problem(const struct mappings *m, const struct runtime_process *p);

/*
 * Names the runtimes that have functions without names, and how to get the names. Returns a new
 * string, or NULL if there are none.
 */
char *learn_runtimes_unnamed(const struct runtime_process *p);

/*
 * markers.c: returns the symbols for which the parser searches each file, for parser_config.marks.
 * Without them learn_runtimes() and learn_alloc_sites() find nothing. NULL ends the list.
 */
const char *const *learn_markers(void);

/*
 * runtimes.c: finds the places where the process allocates memory, in those of its files that are
 * parsed already. Files worker. event_mask: see alloc_sites_find(). rdma: what
 * probes_rdma_functions() knows of the process; NULL: nothing.
 */
struct alloc_sites;
int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		       const struct pf_rdma_functions *rdma, struct alloc_sites **ret);
