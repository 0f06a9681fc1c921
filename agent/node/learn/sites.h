/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sites: turns the places where a process allocates memory into the arguments of probes_attach().
 * The node and `podflame record` share this step. Pure functions; any thread may call them.
 */
#pragma once

#include "node/alloc/alloc.h"
#include "node/probe/probe.h"

/* The arguments of probes_attach(). The file descriptors belong to the mappings. */
struct site_files {
	struct pf_mem_proc process;
	struct probe_site *sites;
	struct probe_file *files;
	size_t n_files;
};
void learn_site_files(const struct alloc_sites *s, const struct mappings *m, unsigned event_mask,
		     struct site_files *ret);
void learn_site_files_done(struct site_files *f);
/* Whether a and b have the same places in the same files, so that attached probes may stay. */
bool learn_sites_equal(const struct alloc_sites *a, const struct mappings *ma,
		 const struct alloc_sites *b, const struct mappings *mb);
/*
 * Copies to s what `newer` knows in addition about the same places, for example a JVM that has
 * started in between. s keeps its places.
 */
void learn_sites_take_over(struct alloc_sites *s, const struct alloc_sites *newer);
/*
 * Returns what a process must have loaded so that this set can probe it, and has not: "a CUDA
 * driver (libcuda.so.1)". Returns NULL if nothing is missing. s: the places of this set in the
 * process.
 */
const char *learn_sites_lack(enum probe_set set, const struct alloc_sites *s);
/*
 * Whether the process may still load something in which this set has places to probe: it has none
 * yet.
 */
bool learn_sites_may_come(enum probe_set set, const struct alloc_sites *s);
/*
 * Returns text for the user if the library that reports the work of GPUs says that it cannot, or if
 * it says nothing. attached_ns: how long its probes have been attached. NULL: there is no such
 * problem, or it is not known yet. The caller frees the text.
 */
char *learn_library_problem(const struct on_gpu_status *s, uint64_t attached_ns);
/*
 * Returns text for the user about the part of these events, which are of one set, that the probes
 * do not see: a problem that alloc reported, or places that cannot be probed. Returns a new string,
 * or NULL if the probes see everything. refused: the result of attaching; NULL: nothing is attached
 * yet.
 */
char *learn_sites_problem(const struct alloc_sites *s, unsigned event_mask,
			  const struct probes_refused *refused);
