/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: what is known of one process's memory, and which part of it the profile lacks. It reads
 * no process and attaches no probes: record_memory.c does.
 */
#include "cli/record_heap.h"

#include <stdlib.h>

#define LACKS_SHOWN 8 /* processes */

bool cli_record_heap_sites(struct record_heap *h, enum event event, struct alloc_sites *s,
			   struct mappings *m)
{
	const char *why = learn_sites_problem(s, 1u << event, NULL);

	if (s->own_heap)
		h->unseen = (struct unseen){0}; /* a heap of its own is not compared */
	if (h->sites && learn_sites_equal(s, m, h->sites, h->m)) {
		if (*why && !h->problem)
			h->problem = xstrdup(why);
		learn_sites_take_over(h->sites, s);
		alloc_sites_free(s);
		return false;
	}
	alloc_sites_free(h->sites);
	h->sites = s;
	proc_mappings_unref(h->m);
	h->m = proc_mappings_ref(m);
	free(h->problem);
	h->problem = *why ? xstrdup(why) : NULL;
	return true;
}

void cli_record_heap_reset(struct record_heap *h)
{
	h->sites = alloc_sites_free(h->sites);
	h->m = proc_mappings_unref(h->m);
	h->again = false;
}

bool cli_record_heap_is_compared(const struct record_heap *h)
{
	return h->sites && !h->sites->own_heap;
}

void cli_record_heaps_print_lack(const struct record_heap *heaps, size_t n)
{
	size_t n_lacks = 0;

	for (size_t i = 0; i < n; i++) {
		const struct record_heap *h = &heaps[i];
		_cleanup_free_ char *grown = learn_unseen_text(&h->unseen);
		const char *problem = h->problem && !h->again ? h->problem : NULL;

		if ((!problem && !grown) || n_lacks++ >= LACKS_SHOWN)
			continue;
		fprintf(stderr,
			"podflame record: process %u: the profile lacks a part of its memory: "
			"%s%s%s\n",
			(unsigned)h->id.tgid, problem ? problem : "", problem && grown ? "; " : "",
			grown ? grown : "");
	}
	if (n_lacks > LACKS_SHOWN)
		fprintf(stderr,
			"podflame record: the profile lacks a part of the memory of %zu more "
			"processes\n",
			n_lacks - LACKS_SHOWN);
}
