/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: the state of the uprobes of one process, and which of its memory the profile lacks. This
 * file reads no process and attaches no probes: record_probes.c does.
 */
#include "cli/record_probed.h"

#include <stdlib.h>

#define LACKS_SHOWN 8 /* number of processes that a message names */

bool cli_record_probed_sites(struct record_probed *x, enum event event, struct alloc_sites *s,
			     struct mappings *m)
{
	_cleanup_free_ char *why = learn_sites_problem(s, 1u << event, NULL);

	if (s->own_heap)
		/* probes do not see the heaps of Go and Java, so the growth is not compared */
		x->unseen = (struct unseen){0};
	if (x->sites && learn_sites_equal(s, m, x->sites, x->m)) {
		if (!x->problem)
			x->problem = TAKE_PTR(why);
		learn_sites_take_over(x->sites, s);
		alloc_sites_free(s);
		return false;
	}
	alloc_sites_free(x->sites);
	x->sites = s;
	proc_mappings_unref(x->m);
	x->m = proc_mappings_ref(m);
	free(x->problem);
	x->problem = TAKE_PTR(why);
	return true;
}

void cli_record_probed_reset(struct record_probed *x)
{
	x->sites = alloc_sites_free(x->sites);
	x->m = proc_mappings_unref(x->m);
	x->again = false;
}

bool cli_record_probed_is_compared(const struct record_probed *x)
{
	return x->sites && !x->sites->own_heap;
}

const char *cli_record_probes_all_lack(const struct record_probed *probed, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!probed[i].lacks)
			return NULL;
	return n ? probed[0].lacks : NULL;
}

void cli_record_probes_print_lack(const struct record_probed *probed, size_t n)
{
	const char *lacks = cli_record_probes_all_lack(probed, n);
	size_t n_lacks = 0;

	if (lacks)
		fprintf(stderr, "podflame record: no process had %s loaded\n", lacks);
	for (size_t i = 0; i < n; i++) {
		const struct record_probed *x = &probed[i];
		_cleanup_free_ char *grown = learn_unseen_text(&x->unseen);
		const char *problem = x->problem && !x->again ? x->problem : NULL;

		if ((!problem && !grown) || n_lacks++ >= LACKS_SHOWN)
			continue;
		fprintf(stderr,
			"podflame record: process %u: the profile lacks a part of it: "
			"%s%s%s\n",
			(unsigned)x->id.tgid, problem ? problem : "", problem && grown ? "; " : "",
			grown ? grown : "");
	}
	if (n_lacks > LACKS_SHOWN)
		fprintf(stderr, "podflame record: the profile lacks a part of %zu more processes\n",
			n_lacks - LACKS_SHOWN);
}
