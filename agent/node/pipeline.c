/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline worker: which samples count, their frames, their window. Everything
 * that is left out is counted by reason; what the kernel lost is put into the
 * window it was lost in.
 */
#include "node/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_PROCESSES  32768
#define HOLD_EXITED_NS (10 * NSEC_PER_SEC)
#define MAX_LOSSES     64
#define LOST_COUNTER   "podflame_samples_dropped_total"

struct process_key {
	uint64_t start_boottime_ns;
	uint64_t tgid;
};
struct process {
	struct process_key key;
	uint32_t container_pid;
	bool nodes_pid_ns; /* it sees itself as the agent sees it: of the node, not of a container */
	char comm[16];
	uint64_t exited_ns; /* 0: lives */
	UT_hash_handle hh;
};
struct known_loss {
	const char *reason; /* the counter's, lives as long as the program */
	uint64_t value;
};
struct pipeline {
	struct stacks *stacks;
	struct fold *fold;
	struct process *processes;
	struct known_loss losses[MAX_LOSSES];
	size_t n_losses;
};

static void exclude(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_samples_excluded_total", "reason", reason), n);
}

/* ---- losses that the kernel's side counted ---- */

static void look_at_loss(const char *name, const char *label, const char *reason, uint64_t value,
			 void *arg)
{
	struct pipeline *p = arg;
	size_t i = 0;

	(void)label;
	if (!streq(name, LOST_COUNTER))
		return;
	while (i < p->n_losses && p->losses[i].reason != reason)
		i++;
	if (i == MAX_LOSSES)
		return;
	if (i == p->n_losses)
		p->losses[p->n_losses++] = (struct known_loss){reason, 0};
	if (value > p->losses[i].value)
		fold_lose(p->fold, NULL, reason, value - p->losses[i].value, 0);
	p->losses[i].value = value;
}

/* ---- life ---- */

int pipeline_new(const struct pipeline_config *c, struct pipeline **ret)
{
	struct pipeline *p = xcalloc(1, sizeof(*p));
	struct stacks_config stacks = {.files = c->files};
	int r = stacks_new(&stacks, &p->stacks);

	if (r == 0)
		r = fold_new(&c->fold, &p->fold);
	if (r < 0) {
		pipeline_free(p);
		return r;
	}
	if (c->gap_ns)
		fold_lose(p->fold, NULL, "agent_down", 0, c->gap_ns);
	*ret = p;
	return 0;
}

struct pipeline *pipeline_free(struct pipeline *p)
{
	struct process *proc, *tmp;

	if (!p)
		return NULL;
	HASH_ITER (hh, p->processes, proc, tmp) {
		HASH_DEL(p->processes, proc);
		free(proc);
	}
	fold_free(p->fold);
	stacks_free(p->stacks);
	free(p);
	return NULL;
}

void feed_done(struct feed *f)
{
	for (size_t i = 0; i < f->n_owners; i++)
		owner_unref(f->owners[i].owner);
	free(f->owners);
	drain_free(f->drain);
	host_list_unref(f->hosts);
	for (size_t i = 0; i < f->n_wanted; i++)
		wanted_free(f->wanted[i]);
	free(f->wanted);
	batch_free(f->batch);
}

/* ---- processes ---- */

static struct process *find_process(const struct pipeline *p, uint32_t tgid, uint64_t start)
{
	struct process_key key = {start, tgid};
	struct process *proc;

	HASH_FIND(hh, p->processes, &key, sizeof(key), proc);
	return proc;
}

static void note_process(struct pipeline *p, const struct raw_proc *r)
{
	struct process *proc = find_process(p, r->tgid, r->start_boottime_ns);

	if (!proc) {
		if (HASH_COUNT(p->processes) >= MAX_PROCESSES) {
			counter_add(
				counter("podflame_processes_dropped_total", "reason", "table_full"),
				1);
			return;
		}
		proc = xcalloc(1, sizeof(*proc));
		proc->key = (struct process_key){r->start_boottime_ns, r->tgid};
		HASH_ADD(hh, p->processes, key, sizeof(proc->key), proc);
	}
	proc->container_pid = r->tgid_own;
	proc->nodes_pid_ns = r->tgid_own == r->tgid;
	memcpy(proc->comm, r->comm, sizeof(proc->comm));
	proc->comm[sizeof(proc->comm) - 1] = '\0';
}

static void note_processes(struct pipeline *p, const struct drain *d)
{
	for (size_t i = 0; i < d->n_procs; i++) {
		const struct raw_proc *r = &d->procs[i];
		struct process *proc;

		if (r->what != RAW_PROC_EXIT) {
			note_process(p, r);
			continue;
		}
		proc = find_process(p, r->tgid, r->start_boottime_ns);
		if (proc)
			proc->exited_ns = r->time_ns;
		stacks_exited(p->stacks, r->tgid, r->start_boottime_ns, HOLD_EXITED_NS);
	}
}

static void forget_exited(struct pipeline *p, uint64_t now_boot_ns)
{
	struct process *proc, *tmp;

	HASH_ITER (hh, p->processes, proc, tmp) {
		if (!proc->exited_ns || now_boot_ns < proc->exited_ns + HOLD_EXITED_NS)
			continue;
		HASH_DEL(p->processes, proc);
		free(proc);
	}
}

void pipeline_mappings(struct pipeline *p, struct mappings *m)
{
	stacks_mappings(p->stacks, m);
}

void pipeline_runtimes(struct pipeline *p, uint32_t tgid, uint64_t start_boottime_ns,
		       uint32_t exec_id, struct runtime_process *r)
{
	stacks_runtimes(p->stacks, tgid, start_boottime_ns, exec_id, r);
}

void pipeline_named(struct pipeline *p, struct names_wanted *w)
{
	stacks_named(p->stacks, w);
}

/* ---- which samples count ---- */

static int compare_attribution(const void *key, const void *item)
{
	uint64_t id = *(const uint64_t *)key;
	const struct attribution *a = item;

	return (id > a->cgroup_id) - (id < a->cgroup_id);
}

/* The start of a container runs the runtime's own code inside the container's cgroup. */
static bool is_runtime_helper(const struct process *proc, const char *comm)
{
	if (str_has_prefix(comm, "runc:["))
		return true;
	return proc && proc->nodes_pid_ns && (streq(comm, "runc") || streq(comm, "crun"));
}

struct accepted {
	struct owner *owner; /* NULL: a host process */
	struct attribution *attribution;
	const struct process *process;
	struct raw_names names;
	bool have_names;
};

static void take_names(const struct drain *d, const struct raw_sample *s, struct accepted *a)
{
	const struct raw_names *n = drain_names(d, s->names);

	a->have_names = n != NULL;
	if (n)
		a->names = *n;
	else if (a->process)
		memcpy(a->names.leader_comm, a->process->comm, sizeof(a->names.leader_comm));
	a->names.leader_comm[15] = a->names.thread_comm[15] = '\0';
}

/* NULL: counts; else the reason why not. */
static const char *judge(struct pipeline *p, const struct feed *f, const struct raw_sample *s,
			 struct accepted *ret)
{
	struct accepted a = {0};

	if (s->event < 0 || s->event >= _EVENT_MAX)
		return "unknown_event";
	a.process = find_process(p, s->tgid, s->start_boottime_ns);
	take_names(f->drain, s, &a);
	a.attribution = f->n_owners ? bsearch(&s->cgroup_id, f->owners, f->n_owners,
					      sizeof(*f->owners), compare_attribution)
				    : NULL;
	if (a.attribution && s->last_ns > a.attribution->until_ns)
		a.attribution = NULL;
	*ret = a;
	if (!a.attribution) {
		if (host_list_has(f->hosts, s->tgid, s->start_boottime_ns, s->last_ns) &&
		    hosts_match(f->host_names, a.names.leader_comm))
			return NULL;
		return "not_selected";
	}
	ret->owner = a.attribution->owner;
	if (is_runtime_helper(a.process, a.names.leader_comm))
		return "runtime_helper";
	if (ret->owner->unnamed && streq(a.names.leader_comm, "pause"))
		return "sandbox";
	return NULL;
}

/* ---- frames and folding ---- */

/* Whether the walk of the user's stack came to its end, and why not. */
static void count_end(struct pipeline *p, const struct accepted *a, const struct raw_sample *s,
		      const struct raw_stack *user)
{
	const char *reason =
		user ? stacks_end(p->stacks, s->tgid, s->start_boottime_ns, user) : "lost";

	if (!s->ustack)
		return;
	counter_add(counter("podflame_stacks_total", NULL, NULL), s->n);
	if (reason)
		counter_add(counter("podflame_stacks_unfinished_total", "reason", reason), s->n);
	if (!a->attribution)
		return;
	a->attribution->n_stacks += s->n;
	a->attribution->n_finished += reason ? 0 : s->n;
}

static void fold_sample(struct pipeline *p, const struct drain *d, const struct raw_sample *s,
			const struct accepted *a)
{
	const struct raw_stack *user = s->ustack ? drain_stack(d, s->ustack) : NULL;
	const struct raw_stack *kernel = s->kstack ? drain_stack(d, s->kstack) : NULL;
	bool lost = (s->ustack && !user) || (s->kstack && !kernel);
	struct fold_process who = {
		.tgid = s->tgid,
		.container_pid = a->owner && a->process ? a->process->container_pid : 0,
		.start_boottime_ns = s->start_boottime_ns,
		.comm = a->names.leader_comm[0] ? a->names.leader_comm : "unknown",
		.owner = a->owner,
	};
	uint32_t stack;
	int r = stacks_resolve(p->stacks, fold_batch(p->fold), s->tgid, s->start_boottime_ns, user,
			       kernel, lost, &stack);

	if (r < 0) {
		fold_lose(p->fold, a->owner, r == -E2BIG ? "window_full" : "resolve", s->n, 0);
		return;
	}
	fold_add(p->fold, &who, s, a->have_names ? &a->names : NULL, stack);
	count_end(p, a, s, user);
	if (a->attribution)
		a->attribution->n_samples[s->event] += s->n;
	counter_add(counter("podflame_samples_folded_total", NULL, NULL), s->n);
}

static uint32_t leaf_exec_id(const struct raw_stack *s)
{
	return s->n ? s->frames[0].exec_id : 0;
}

static void note_missing(struct feed *f, const struct raw_sample *s, const struct raw_stack *user)
{
	uint32_t exec_id = leaf_exec_id(user);

	for (size_t i = 0; i < f->n_missing; i++)
		if (f->missing[i].tgid == s->tgid && f->missing[i].exec_id == exec_id &&
		    f->missing[i].start_boottime_ns == s->start_boottime_ns)
			return;
	if (f->n_missing < MAX_MISSING)
		f->missing[f->n_missing++] =
			(struct missing){s->tgid, exec_id, s->start_boottime_ns};
}

/* A library that was loaded since the mappings were read: they are read again before names are
 * made, and names of runtimes' functions are read, at most once a drain. */
static void find_missing(struct pipeline *p, struct feed *f)
{
	for (size_t i = 0; i < f->drain->n_samples; i++) {
		const struct raw_sample *s = &f->drain->samples[i];
		const struct raw_stack *user = s->ustack ? drain_stack(f->drain, s->ustack) : NULL;
		struct accepted a;

		if (!user || judge(p, f, s, &a))
			continue;
		if (stacks_misses(p->stacks, s->tgid, s->start_boottime_ns, user))
			note_missing(f, s, user);
		stacks_want(p->stacks, s->tgid, s->start_boottime_ns, user);
	}
	f->wanted = stacks_wanted(p->stacks, &f->n_wanted);
	f->waits = f->n_missing > 0;
	for (size_t i = 0; i < f->n_wanted; i++)
		f->waits |= f->wanted[i]->fresh;
}

/* Who may end soon has its names read now. */
static void want_young(struct pipeline *p, struct feed *f)
{
	const struct drain *d = f->drain;

	for (size_t i = 0; i < d->n_young; i++)
		stacks_want(p->stacks, d->young[i].tgid, d->young[i].start_boottime_ns,
			    &d->young[i].stack);
	f->wanted = stacks_wanted(p->stacks, &f->n_wanted);
}

static void fold_drain(struct pipeline *p, struct feed *f)
{
	const struct drain *d = f->drain;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		struct accepted a;
		const char *reason = judge(p, f, s, &a);

		if (reason)
			exclude(reason, s->n);
		else
			fold_sample(p, d, s, &a);
	}
	for (size_t i = 0; i < d->n_totals; i++)
		fold_total(p->fold, &d->totals[i], d->to_ns);
	counter_each(look_at_loss, p);
}

static void end_window(struct pipeline *p, struct feed *f, uint64_t now_ns)
{
	uint64_t end_ns = fold_next_flush_ns(p->fold);
	uint64_t offset_ns = now_wall_ns() - now_boot_ns();

	if (fold_flush(p->fold, now_ns, now_ns + offset_ns, false, &f->batch) < 0)
		f->batch = NULL;
	if (fold_next_flush_ns(p->fold) != end_ns)
		f->left_ns = MIN(end_ns, now_ns) + offset_ns;
}

void pipeline_feed(struct pipeline *p, struct feed *f)
{
	uint64_t now_ns = now_boot_ns();

	f->n_missing = 0;
	f->waits = false;
	if (f->drain && !f->last_pass)
		note_processes(p, f->drain);
	if (f->drain && f->full) {
		if (!f->last_pass)
			find_missing(p, f);
		if (f->waits)
			return;
		(void)stacks_refresh_kernel(p->stacks); /* unresolved addresses say so themselves */
		fold_drain(p, f);
		now_ns = f->drain->to_ns;
	}
	if (f->drain && !f->full) {
		want_young(p, f);
		return;
	}
	forget_exited(p, now_ns);
	end_window(p, f, now_ns);
}

const char *pipeline_kernel_problem(const struct pipeline *p)
{
	return stacks_kernel_problem(p->stacks);
}

struct batch *pipeline_flush(struct pipeline *p)
{
	struct batch *b;

	if (fold_flush(p->fold, now_boot_ns(), now_wall_ns(), true, &b) < 0)
		return NULL;
	return b;
}
