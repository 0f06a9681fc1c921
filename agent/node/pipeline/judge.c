/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps what the pipeline knows of processes, and decides which samples count and to which
 * container they belong. It folds nothing. Runs on the pipeline worker.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

#define MAX_PROCESSES 32768
/* longest time that the container runtime's own code runs in a new container, on a busy node */
#define RUNTIME_START_NS (10 * NSEC_PER_SEC)

/* ---- processes ---- */

static struct sampled_process *find_process(const struct windows *p, struct process_id id)
{
	struct sampled_process *proc;

	HASH_FIND(hh, p->processes, &id, sizeof(id), proc);
	return proc;
}

/* Returns NULL if the namespace has more than its share. */
static struct sampled_process *make_process(struct windows *p, struct process_id id, uint64_t ns)
{
	struct sampled_process *proc;

	if (!shares_may_add(&p->process_shares, ns, MAX_PROCESSES)) {
		counter_add(counter("podflame_processes_dropped_total", "reason", "table_full"), 1);
		shares_add(&p->crowded, ns);
		return NULL;
	}
	proc = xcalloc(1, sizeof(*proc));
	proc->id = id;
	proc->ns = ns;
	HASH_ADD(hh, p->processes, id, sizeof(proc->id), proc);
	shares_add(&p->process_shares, ns);
	return proc;
}

static void note_process(struct windows *p, const struct raw_proc *r, uint64_t ns)
{
	struct sampled_process *proc = find_process(p, process_id_of(r));

	if (!proc)
		proc = make_process(p, process_id_of(r), ns);
	if (!proc)
		return;
	if (proc->ns != ns) { /* its container was not known yet */
		shares_remove(&p->process_shares, proc->ns);
		shares_add(&p->process_shares, ns);
		proc->ns = ns;
	}
	proc->container_pid = r->tgid_own;
	proc->exec_id = r->exec_id;
	proc->stack = r->stack;
	proc->nodes_pid_ns = r->tgid_own == r->tgid;
	/*
	 * the process is alive; it may have been taken for ended, if the table of processes was
	 * full
	 */
	proc->exited_ns = 0;
	memcpy(proc->comm, r->comm, sizeof(proc->comm));
	proc->comm[sizeof(proc->comm) - 1] = '\0';
}

void pipeline_note_processes(struct windows *p, const struct feed *f)
{
	const struct drain *d = f->drain;

	for (size_t i = 0; i < d->n_procs; i++)
		if (d->procs[i].what != RAW_PROC_EXIT)
			note_process(p, &d->procs[i], f->proc_ns ? f->proc_ns[i] : 0);
}

void pipeline_note_exits(struct windows *p, const struct process_exit *exits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sampled_process *proc = find_process(p, exits[i].id);

		if (proc)
			proc->exited_ns = exits[i].exited_ns;
		stacks_exited(p->stacks, exits[i].id, exits[i].ns, exits[i].exited_ns,
			      HOLD_EXITED_NS);
	}
}

void pipeline_forget_exited(struct windows *p, uint64_t now_boot_ns)
{
	struct sampled_process *proc, *tmp;

	stacks_purge(p->stacks);
	HASH_ITER (hh, p->processes, proc, tmp) {
		if (now_boot_ns != UINT64_MAX &&
		    (!proc->exited_ns || now_boot_ns < proc->exited_ns + HOLD_EXITED_NS))
			continue;
		HASH_DEL(p->processes, proc);
		shares_remove(&p->process_shares, proc->ns);
		free(proc);
	}
}

/* ---- which samples count ---- */

static int compare_attribution(const void *key, const void *item)
{
	uint64_t id = *(const uint64_t *)key;
	const struct attribution *a = item;

	return (id > a->cgroup_id) - (id < a->cgroup_id);
}

/*
 * Whether a process of the container runtime (runc 1.1 or 1.2, or crun) may have this name, before
 * its name is runc:[...] or it becomes the container's program. runc and crun execute
 * /proc/self/exe, and that program executes a copy of itself through a file descriptor. The name of
 * the copy is the number of the descriptor or, from Linux 6.14 on, the name of the file.
 */
static bool is_runtime_name(const char *comm)
{
	return streq(comm, "runc") || streq(comm, "crun") || streq(comm, "exe") ||
	       (*comm && !comm[strspn(comm, "0123456789")]);
}

/*
 * Whether the sample is of the container runtime's own code. This code runs in the container's
 * cgroup for a moment when the container starts, and each time a user starts a program in it
 * (kubectl exec). A program of a pod with hostPID may have the same name, so the age of the process
 * counts, too.
 */
static bool is_runtime_helper(const struct sampled_process *proc, const char *comm,
			      const struct raw_sample *s)
{
	if (str_has_prefix(comm, "runc:[") || str_has_prefix(comm, "memfd:runc_"))
		return true;
	return proc && proc->nodes_pid_ns && is_runtime_name(comm) &&
	       s->first_ns < s->start_boottime_ns + RUNTIME_START_NS;
}

static void take_names(const struct drain *d, const struct raw_sample *s, struct accepted *a)
{
	const struct raw_names *n = sample_drain_names(d, s->names);

	a->have_names = n != NULL;
	if (n)
		a->names = *n;
	else if (a->process)
		memcpy(a->names.leader_comm, a->process->comm, sizeof(a->names.leader_comm));
	a->names.leader_comm[15] = a->names.thread_comm[15] = '\0';
}

const struct attribution *pipeline_attribution(const struct feed *f, const struct raw_sample *s)
{
	return f->n_owners ? bsearch(&s->cgroup_id, f->owners, f->n_owners, sizeof(*f->owners),
				     compare_attribution)
			   : NULL;
}

static const char *select_sample(struct windows *p, const struct feed *f,
				 const struct raw_sample *s, struct accepted *ret)
{
	struct accepted a = {0};

	if (s->event < 0 || s->event >= _EVENT_MAX)
		return "unknown_event";
	a.process = find_process(p, process_id_of(s));
	take_names(f->drain, s, &a);
	a.attribution = pipeline_attribution(f, s);
	if (a.attribution && s->last_ns > a.attribution->until_ns)
		a.attribution = NULL;
	*ret = a;
	if (!a.attribution) {
		if (kernel_host_list_has(f->hosts, process_id_of(s), s->last_ns) &&
		    kernel_hosts_match(f->host_names, a.names.leader_comm, s->event))
			return NULL;
		return "not_selected";
	}
	ret->owner = a.attribution->owner;
	if (is_runtime_helper(a.process, a.names.leader_comm, s))
		return "runtime_helper";
	if (ret->owner->unnamed && streq(a.names.leader_comm, "pause"))
		return "sandbox";
	return NULL;
}

/*
 * Whether the stack of a wait has user code. The stack of a kernel thread has none, and a stack may
 * have frames of the kernel only. A user stack that was lost counts as user code.
 */
static bool has_user_code(const struct drain *d, const struct raw_sample *s)
{
	const struct raw_stack *user = s->ustack ? sample_drain_stack(d, s->ustack) : NULL;

	return user ? user->n > 0 : s->ustack != 0;
}

const char *pipeline_judge(struct windows *p, const struct feed *f, const struct raw_sample *s,
			   struct accepted *ret)
{
	const char *reason = select_sample(p, f, s, ret);

	if (!reason && s->event == EVENT_OFF_CPU && !has_user_code(f->drain, s))
		reason = "no_user_stack";
	return reason;
}
