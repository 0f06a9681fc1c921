/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the heap profiles that Go programs have of their own, while a target asks for mem-alloc or
 * mem-inuse. The files worker has a child read a profile from the memory of its process every 10 s.
 * During the read, the job owns the process's struct alloc_sites. probed.c finds the programs that
 * have such a profile. Loop thread, except for the jobs on the files worker. See docs/memory.md.
 */
#include "node/follow/internal.h"

#include "node/alloc/alloc.h"
#include "node/learn/go_heap_drain.h"

#include <stdlib.h>

#define READ_NS	      (10 * NSEC_PER_SEC)
#define READ_LIMIT_NS (5 * NSEC_PER_SEC) /* a longer read of a heap profile is reported */

struct go_reading {
	struct process_task process;
	struct follow *follow;
	struct process_id id;
	uint32_t exec_id;
	uint64_t charged_ns;
	struct alloc_sites *sites; /* taken from struct probed meanwhile, so no other job uses it */
	unsigned event_mask;
	struct drain *drain;
	int result;
};

static void read_run(struct task *task)
{
	struct go_reading *g = (struct go_reading *)task;
	struct go_process who = {.id = g->id,
				 .exec_id = g->exec_id,
				 .cgroup_id = g->process.cgroup_id,
				 .charged_ns = g->charged_ns,
				 .event_mask = g->event_mask};

	g->result = learn_go_heap(g->sites->go, &who, &g->drain);
}

static void give_back(struct tracked *t, struct go_reading *g)
{
	struct probed *x = &t->probed[PROBES_MEMORY];

	if (!x->lent || t->exec_id != g->exec_id || x->sites)
		return;
	x->lent = false;
	x->sites = TAKE_PTR(g->sites);
	if (g->result == -ENODATA)
		x->looked_mask = 0; /* the profile is off, so the process needs probes */
}

static void read_done(struct task *task)
{
	struct go_reading *g = (struct go_reading *)task;
	struct tracked *t = follow_find(g->follow, g->id);
	struct shares refused = {0};

	if (t)
		give_back(t, g);
	alloc_sites_free(g->sites);
	if (task->refused)
		g->result = -ENOBUFS;
	if (g->result < 0 && g->result != -ESRCH)
		counter_add(counter("podflame_go_heap_reads_failed_total", "reason",
				    strerrorname_np(-g->result)),
			    1);
	alloc_go_refused(&refused);
	kernel_note_shares(g->follow->config.kernel, SHARED_GO_HEAPS, &refused);
	if (g->drain)
		g->follow->config.ops->sampled(g->follow->config.ops_arg, g->drain);
}

static void read_profile(struct tracked *t, unsigned event_mask)
{
	struct probed *x = &t->probed[PROBES_MEMORY];
	struct go_reading *g = xcalloc(1, sizeof(*g));

	if (t->go_heap.anew)
		alloc_go_begin_anew(x->sites->go);
	t->go_heap.anew = false;
	g->follow = t->follow;
	g->id = t->id;
	g->exec_id = t->exec_id;
	g->charged_ns = follow_charged(t).ns;
	g->sites = TAKE_PTR(x->sites);
	g->event_mask = event_mask;
	g->process.tgid = (uint32_t)t->id.tgid;
	g->process.cgroup_id = t->cgroup_id;
	g->process.task.run = read_run;
	g->process.task.done = read_done;
	g->process.task.job.deadline_ns = READ_LIMIT_NS;
	x->lent = true;
	t->go_heap.next_ns = now_mono_ns() + READ_NS;
	work_post_process(t->follow->config.work, &g->process, 4096);
}

void follow_go_heap_advance(struct tracked *t, unsigned asked)
{
	const struct probed *x = &t->probed[PROBES_MEMORY];

	t->go_heap.anew |= !(asked & 1u << EVENT_MEM_ALLOC);
	if (asked && !x->looking && x->sites && x->sites->go && now_mono_ns() >= t->go_heap.next_ns)
		read_profile(t, asked);
}
