// SPDX-License-Identifier: Apache-2.0
/*
 * memory: the events mem-alloc and mem-inuse: what selected processes allocate, and which of that
 * memory lives.
 */
#include "node/probe/sets.h"

#include "memory.skel.h"

#define INUSE (1u << EVENT_MEM_INUSE)

_Static_assert((int)EVENT_MEM_ALLOC == (int)PF_EVENT_MEM_ALLOC, "abi");
_Static_assert((int)EVENT_MEM_INUSE == (int)PF_EVENT_MEM_INUSE, "abi");

/* ---- the probe set ---- */

static int memory_open(struct probe_set_state *s, const struct pf_config *config)
{
	struct memory_bpf *o = memory_bpf__open();

	if (!o)
		return -errno;
	o->rodata->pf_config = *config;
	s->object = (struct set_object){
		.bpf = o,
		.skeleton = o->skeleton,
		.obj = o->obj,
		.of_many = {[PROGRAM_FREE] = o->progs.pf_mem_free,
			    [PROGRAM_RETURN] = o->progs.pf_mem_return,
			    [PROGRAM_SESSION] = o->progs.pf_mem_session,
			    [PROGRAM_ENTRY] = o->progs.pf_mem_entry},
		.of_one = {[PROGRAM_FREE] = o->progs.pf_mem_1_free,
			   [PROGRAM_RETURN] = o->progs.pf_mem_1_return,
			   [PROGRAM_ENTRY] = o->progs.pf_mem_1_entry},
		.procs = o->maps.mem_procs,
		.pending = o->maps.pending,
		.live = o->maps.live,
	};
	s->shares.of[SHARED_LIVE] = &o->bss->pf_live_shares;
	s->shares.of[SHARED_PENDING] = &o->bss->pf_pending_shares;
	return 0;
}

static void memory_destroy(struct probe_set_state *s)
{
	s->shares = (struct shared_tables){};
	memory_bpf__destroy(s->object.bpf);
}

/*
 * Returns whether the return is probed. Only returns of C functions are probed: a C++ exception
 * cannot pass a probed return, and Go moves stacks.
 */
static bool returns_memory(const struct pf_site *s)
{
	if (s->flags & PF_SITE_THROWS)
		return false;
	return s->kind == PF_SITE_ALLOC || s->kind == PF_SITE_REALLOC || s->kind == PF_SITE_OUT;
}

/*
 * Returns how a site is probed. mem-alloc needs no returns, so for mem-alloc alone none is probed.
 * The entry program of a uprobe session can tell the kernel not to probe the return, but only in
 * its own process. In other processes that have the same place probed, and in the child of a fork,
 * the kernel does not run that program, and probes the return (uprobe_prog_run, bpf_trace.c).
 */
static enum site_probed memory_probed(const struct pf_site *s, unsigned event_mask)
{
	if (s->kind == PF_SITE_FREE)
		return event_mask & INUSE ? PROBED_BY_FREE : PROBED_NOT;
	return event_mask & INUSE && returns_memory(s) ? PROBED_AT_BOTH : PROBED_AT_ENTRY;
}

static bool memory_live_needs(const struct pf_site *s)
{
	return s->kind == PF_SITE_FREE || s->kind == PF_SITE_REALLOC;
}

const struct set_ops probes_memory_set = {
	.need_returns = INUSE,
	.has_entries = true,
	.call_ns = 60 * NSEC_PER_SEC,
	.open = memory_open,
	.destroy = memory_destroy,
	.probed = memory_probed,
	.live_needs = memory_live_needs,
};

/* ---- the events ---- */

/* A sample stands for at most 2 GiB: with more, there would be hardly any samples. */
static void alloc_fill(const struct event_probe *e, const struct wanted_events *w,
		       struct pf_filter *f)
{
	(void)e;
	f->alloc_bytes = MIN(w->settings.alloc_sample_bytes, 1ull << 31);
}

static void inuse_fill(const struct event_probe *e, const struct wanted_events *w,
		       struct pf_filter *f)
{
	(void)e;
	f->inuse_bytes = MIN(w->settings.inuse_sample_bytes, 1ull << 31);
}

const struct probe_ops probes_mem_alloc_ops = {
	PROBES_SET_EVENT,
	.fill = alloc_fill,
};
const struct probe_ops probes_mem_inuse_ops = {
	PROBES_SET_EVENT,
	.fill = inuse_fill,
	.collect = probes_live_collect,
	.shares = probes_set_shares,
};
