/* SPDX-License-Identifier: Apache-2.0 */
/* sites: from where a process allocates to what is attached to it: the step that the node and `podflame record` share. */
#pragma once

#include "node/alloc/alloc.h"
#include "node/probe/probe.h"

/* For probes_attach; descriptors are those of the mappings. */
struct site_files {
	struct pf_mem_proc process;
	struct probe_site *sites;
	struct probe_file *files;
	size_t n_files;
};
void learn_site_files(const struct alloc_sites *s, const struct mappings *m, unsigned event_mask,
		     struct site_files *ret);
void learn_site_files_done(struct site_files *f);
/* The same places of the same files: what is attached may stay. */
bool learn_sites_equal(const struct alloc_sites *a, const struct mappings *ma,
		 const struct alloc_sites *b, const struct mappings *mb);
/* s keeps its places, which newer has as well; what newer knows besides is known of them: a JVM that came since. */
void learn_sites_take_over(struct alloc_sites *s, const struct alloc_sites *newer);
/*
 * What of these events is not seen, for its user: what alloc tells, or what cannot be probed; "": all is.
 * refused: of what is attached; NULL: nothing is yet.
 */
const char *learn_sites_problem(const struct alloc_sites *s, unsigned event_mask,
			  const struct probes_refused *refused);
