/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spans: waits until the span ends during which a process is probed, handles urgent detaching, and
 * counts the progress of attaching.
 */
#include "node/probe/sets.h"

#include <time.h>

#define QUERY_HITS_MAX	     1000 /* GPU queries of a process: some ms of its time */
#define OBJECT_HITS_A_SECOND 4000 /* of a process: 2 ms of its time */

uint64_t probes_attached_hits(const struct attached *a)
{
	struct pf_mem_proc v = {};

	bpf_map_lookup_elem(a->set->procs, &a->key, &v);
	return v.hits;
}

static bool queries_often(const struct attached *a, const struct pf_mem_proc *v)
{
	return !a->no_queries && v->query_hits > QUERY_HITS_MAX;
}

/* Whether objects cost more than they may, on average since the process was attached. */
static bool objects_often(const struct attached *a, const struct pf_mem_proc *v)
{
	uint64_t seconds = 1 + (now_boot_ns() - v->attached_ns) / NSEC_PER_SEC;

	return !a->no_objects && v->object_hits > seconds * OBJECT_HITS_A_SECOND;
}

bool probes_attached_queried(const struct attached *a)
{
	struct pf_mem_proc v = {};

	if (!a->no_queries || !a->no_objects)
		bpf_map_lookup_elem(a->set->procs, &a->key, &v);
	return queries_often(a, &v) || objects_often(a, &v);
}

void probes_note_often(struct attached *a)
{
	struct pf_mem_proc v = {};

	bpf_map_lookup_elem(a->set->procs, &a->key, &v);
	a->no_queries |= queries_often(a, &v);
	a->no_objects |= objects_often(a, &v);
}

uint64_t probes_attached_bytes(const struct attached *a)
{
	struct pf_mem_proc v = {};

	bpf_map_lookup_elem(a->set->procs, &a->key, &v);
	return v.seen_bytes;
}

void probes_leave(struct attached *a)
{
	a->leaving = true;
	__atomic_fetch_add(&a->set->uprobes->n_leaving, 1, __ATOMIC_RELAXED);
}

void probes_attach_no_more(struct probes *p)
{
	__atomic_fetch_add(&p->uprobes->n_leaving, 1, __ATOMIC_RELAXED);
}

bool probes_is_urgent(const struct uprobes *u)
{
	return __atomic_load_n(&u->n_leaving, __ATOMIC_RELAXED) > 0;
}

void probes_moved(struct uprobes *u)
{
	__atomic_fetch_add(&u->n_moves, 1, __ATOMIC_RELAXED);
}

uint64_t probes_moves(struct probes *p)
{
	return __atomic_load_n(&p->uprobes->n_moves, __ATOMIC_RELAXED);
}

static void nap_until(uint64_t mono_ns)
{
	uint64_t now = now_mono_ns(), ns = mono_ns > now ? MIN(mono_ns - now, NSEC_PER_MSEC) : 0;

	nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits)
{
	uint64_t from = now_mono_ns(), end = from + max_ns, before_ns = now_boot_ns() - a->since_ns;
	struct pf_mem_proc v = {};

	while (now_mono_ns() < end && !probes_is_urgent(a->set->uprobes) &&
	       !probes_attached_lost(a) && !bpf_map_lookup_elem(a->set->procs, &a->key, &v) &&
	       v.hits < max_hits)
		nap_until(end);
	/*
	 * The entry is removed, so that hits during detaching do not count: the measured time ends
	 * here.
	 */
	bpf_map_lookup_and_delete_elem(a->set->procs, &a->key, &v);
	/* uses CLOCK_MONOTONIC: while the machine is suspended, the process allocates nothing */
	*ret_ns = before_ns + now_mono_ns() - from;
	*ret_hits = v.hits;
}
