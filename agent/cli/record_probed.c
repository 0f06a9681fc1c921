/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: the state of the uprobes of one process, and which of its memory the profile lacks. This
 * file reads no process and attaches no probes: record_probes.c does.
 */
#include "cli/record_probed.h"

#include <stdlib.h>

#define LACKS_SHOWN 8 /* number of processes that a message names */
/* no further text is added then: a process that lies could have a new problem each second */
#define LIBRARY_TEXT_MAX 512
#define YOUNG_NS	 (10 * NSEC_PER_SEC) /* how long a process is likely to load a library */

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

void cli_record_probed_library(struct record_probed *x, const struct on_gpu_status *s,
			       uint64_t attached_ns)
{
	_cleanup_free_ char *problem = learn_library_problem(s, attached_ns);
	_cleanup_free_ char *before = NULL;

	if (!problem || (x->library_problems && (strstr(x->library_problems, problem) ||
						 strlen(x->library_problems) > LIBRARY_TEXT_MAX)))
		return;
	before = TAKE_PTR(x->library_problems);
	x->library_problems = before ? xasprintf("%s; %s", before, problem) : TAKE_PTR(problem);
}

void cli_record_probed_lacks(struct record_probed *x, enum probe_set set,
			     const struct alloc_sites *s, uint64_t now_ns)
{
	x->lacks = learn_sites_lack(set, s);
	if (!learn_sites_may_come(set, s))
		x->lacks_ns = 0;
	else if (!x->lacks_ns)
		x->lacks_ns = now_ns;
}

bool cli_record_probed_loads_soon(const struct record_probed *x, uint64_t now_ns)
{
	return x->lacks_ns && now_ns < x->lacks_ns + YOUNG_NS;
}

void cli_record_probed_forgive(struct record_probed *x)
{
	free(TAKE_PTR(x->problem));
	free(TAKE_PTR(x->library_problems));
}

void cli_record_probed_reset(struct record_probed *x)
{
	x->sites = alloc_sites_free(x->sites);
	x->m = proc_mappings_unref(x->m);
	x->again = false;
	x->lacks_ns = x->library_bytes = 0;
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

/* Returns what the profile of the process lacks; NULL: nothing is known to be missing. */
static char *lack_text(const struct record_probed *x)
{
	_cleanup_free_ char *grown = learn_unseen_text(&x->unseen);
	const char *parts[] = {x->again ? NULL : x->problem, x->library_problems, grown};
	struct buf b = {0};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i])
			buf_printf(&b, "%s%s", b.len ? "; " : "", parts[i]);
	return b.len ? buf_steal(&b) : NULL;
}

void cli_record_probes_print_lack(const struct record_probed *probed, size_t n)
{
	const char *lacks = cli_record_probes_all_lack(probed, n);
	size_t n_lacks = 0;

	if (lacks)
		fprintf(stderr, "podflame record: podflame found %s in no process\n", lacks);
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *text = lack_text(&probed[i]);

		if (!text || n_lacks++ >= LACKS_SHOWN)
			continue;
		fprintf(stderr, "podflame record: process %u: the profile lacks a part of it: %s\n",
			(unsigned)probed[i].id.tgid, text);
	}
	if (n_lacks > LACKS_SHOWN)
		fprintf(stderr, "podflame record: the profile lacks a part of %zu more processes\n",
			n_lacks - LACKS_SHOWN);
}
