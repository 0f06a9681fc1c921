/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read of processes on the files worker, for the pipeline: mappings, names of runtimes' functions. Whatever is
 * read there is the pods', and may not answer: who blocks the worker is told, and left behind.
 */
#include "node/internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MAPPINGS_BYTES	  4096
#define MAPPINGS_LIMIT_NS (5 * NSEC_PER_SEC)

struct reads {
	struct node *node;
	unsigned n; /* asked for and not there yet */
	struct left_behind stuck;
	unsigned generation; /* of the files worker: one more for each that was left behind */
	struct told_list unreadable;
};

/* ---- the files worker ---- */

/* A hash: two pods that share one by chance share their fate. What is no pod's stands for itself. */
static uint64_t pod_of(struct node *n, const struct process_task *p)
{
	uint64_t until_ns, pod = p->cgroup_id ? p->cgroup_id : p->tgid;
	struct owner *o = procs_owner(n->procs, p->cgroup_id, &until_ns);

	if (o && o->pod_uid)
		pod = hash_str(o->pod_uid);
	owner_unref(o);
	return pod ? pod : 1;
}

static _Atomic uint64_t *find_blocked(struct node *n, uint64_t pod)
{
	for (size_t i = 0; i < ARRAY_SIZE(n->blocked); i++)
		if (atomic_load(&n->blocked[i]) == pod)
			return &n->blocked[i];
	return NULL;
}

static void replace_blocked(struct node *n, uint64_t old, uint64_t new)
{
	_Atomic uint64_t *place = find_blocked(n, old);

	if (place)
		atomic_store(place, new);
}

/* Those that were posted before their pod blocked the thread before this one are here, too. */
static void process_run(struct task *t)
{
	struct process_task *p = (struct process_task *)t;

	p->blocked = find_blocked(t->node, p->pod) != NULL;
	t->refused |= p->blocked;
	if (!p->blocked)
		p->run(t);
}

void process_post(struct node *n, struct process_task *p, size_t n_bytes)
{
	p->pod = pod_of(n, p);
	p->run = p->task.run;
	p->task.run = process_run;
	task_post(n, n->files, &p->task, n_bytes);
}

const char *process_refusal(const struct process_task *p)
{
	return p->blocked ? "stuck" : "files_full";
}

/* ---- mappings ---- */

struct reading {
	struct process_task process;
	struct reads *reads;
	uint32_t exec_id, stack;
	uint64_t start_boottime_ns;
	struct mappings *found;
	unsigned generation; /* of the files worker */
	int result;
};

struct learning {
	struct task task;
	struct mappings *mappings;
};

static void learn_run(struct task *t)
{
	struct learning *l = (struct learning *)t;

	pipeline_mappings(t->node->pipeline, l->mappings);
}

static void learn_done(struct task *t)
{
	struct learning *l = (struct learning *)t;

	if (t->refused)
		counter_add(counter("podflame_mappings_dropped_total", "reason", "pipeline_full"),
			    1);
	mappings_unref(l->mappings);
}

static void learn(struct node *n, struct mappings *m)
{
	struct learning *l = xcalloc(1, sizeof(*l));

	l->mappings = m;
	l->task.run = learn_run;
	l->task.done = learn_done;
	task_post(n, n->pipe, &l->task, m->n * sizeof(*m->items));
}

static void read_run(struct task *t)
{
	struct reading *r = (struct reading *)t;
	_stage_("mappings");

	r->result = mappings_read_of(r->process.tgid, r->start_boottime_ns, r->exec_id, r->stack,
				     &r->found);
	if (r->result == 0)
		tables_tag(t->node->known_files, r->found);
}

static const char *read_error(const struct reading *r)
{
	if (r->process.task.refused)
		return process_refusal(&r->process);
	if (r->result == -ESTALE)
		return "another_program";
	return r->result == -ESRCH ? "process_gone" : "unreadable";
}

static void read_done(struct task *t)
{
	struct reading *r = (struct reading *)t;
	struct reads *all = r->reads;

	if (r->generation == all->generation)
		all->n--;
	if (r->found) {
		follow_process(t->node->follow, r->found, r->process.cgroup_id);
		learn(t->node, r->found);
	} else {
		counter_add(counter("podflame_mappings_dropped_total", "reason", read_error(r)), 1);
	}
	drains_advance(t->node->drains);
}

void reads_mappings(struct reads *all, uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id,
		    uint32_t stack, uint64_t cgroup_id)
{
	struct reading *r;

	if (!tgid)
		return;
	if (follow_rests(all->node->follow, tgid, start_boottime_ns, exec_id)) {
		mappings_count_resting();
		return;
	}
	r = xcalloc(1, sizeof(*r));
	r->reads = all;
	r->process.tgid = tgid;
	r->exec_id = exec_id;
	r->stack = stack;
	r->start_boottime_ns = start_boottime_ns;
	r->process.cgroup_id =
		cgroup_id ? cgroup_id : follow_cgroup(all->node->follow, tgid, start_boottime_ns);
	r->generation = all->generation;
	r->process.task.run = read_run;
	r->process.task.done = read_done;
	r->process.task.job.deadline_ns = MAPPINGS_LIMIT_NS;
	all->n++;
	process_post(all->node, &r->process, MAPPINGS_BYTES);
}

/* ---- names of runtimes' functions ---- */

struct naming {
	struct reading reading; /* of the process: who blocks its reader is told as for its files */
	struct names_wanted *wanted;
};
struct taking_in {
	struct task task;
	struct names_wanted *wanted;
};

static void take_in_run(struct task *t)
{
	pipeline_named(t->node->pipeline, ((struct taking_in *)t)->wanted);
}

static void take_in_done(struct task *t)
{
	wanted_free(((struct taking_in *)t)->wanted);
}

static void name_run(struct task *t)
{
	_stage_("runtime_names");

	wanted_read(((struct naming *)t)->wanted);
}

static void name_done(struct task *t)
{
	struct naming *n = (struct naming *)t;
	struct reads *all = n->reading.reads;
	struct taking_in *in = xcalloc(1, sizeof(*in));

	if (n->reading.generation == all->generation)
		all->n--;
	if (t->refused)
		counter_add(counter("podflame_runtime_names_failed_total", "reason",
				    process_refusal(&n->reading.process)),
			    n->wanted->n_asks);
	in->wanted = TAKE_PTR(n->wanted);
	in->task.run = take_in_run;
	in->task.done = take_in_done;
	task_post(t->node, t->node->pipe, &in->task,
		  in->wanted->n_asks * sizeof(*in->wanted->asks));
	drains_advance(t->node->drains);
}

void reads_names(struct reads *all, struct names_wanted *w)
{
	struct naming *n = xcalloc(1, sizeof(*n));

	n->wanted = w;
	n->reading.reads = all;
	n->reading.process.tgid = w->tgid;
	n->reading.process.cgroup_id =
		follow_cgroup(all->node->follow, w->tgid, w->start_boottime_ns);
	n->reading.generation = all->generation;
	n->reading.process.task.run = name_run;
	n->reading.process.task.done = name_done;
	n->reading.process.task.job.deadline_ns = MAPPINGS_LIMIT_NS;
	all->n++;
	process_post(all->node, &n->reading.process, w->n_asks * sizeof(*w->asks));
}

/* ---- who does not come back ---- */

static void add_blocked(struct node *n, const struct job *j, struct told_list *now)
{
	const struct process_task *p = (const struct process_task *)j;
	_cleanup_free_ char *process = NULL, *problem = NULL;
	struct told_what what = {0};
	uint64_t until_ns;
	struct owner *o = j ? procs_owner(n->procs, p->cgroup_id, &until_ns) : NULL;

	if (!o)
		return;
	what.problem = problem =
		xasprintf("reading files of a process takes more than %llu s: it is left out",
			  MAPPINGS_LIMIT_NS / NSEC_PER_SEC);
	what.detail = process = xasprintf("process %u", p->tgid);
	told_add(now, n, o, &what);
	owner_unref(o);
}

/* Who is back, or gone, is told no more. */
static void tell_blocked(struct reads *all)
{
	struct told_list now = {0};

	for (size_t i = 0; i < all->stuck.n; i++)
		add_blocked(all->node, all->stuck.jobs[i], &now);
	add_blocked(all->node, all->stuck.waits, &now);
	told_tell(&all->unreadable, &now, all->node, "ProcessUnreadable");
}

/* Another worker reads now. */
static void go_on(struct reads *all)
{
	all->generation++;
	all->n = 0;
	drains_advance(all->node->drains);
}

static void late_done(struct task *t)
{
	struct process_task *p = (struct process_task *)t;
	struct node *n = t->node;

	replace_blocked(n, p->pod, 0);
	p->late(t);
	if (!n->closing && left_behind_ended(&n->reads->stuck, &n->files, &t->job))
		go_on(n->reads);
}

/*
 * A file of a pod that blocks whoever opens it: that thread is left behind, and
 * the pod's target says so. With too many of them no more files are opened until one is back.
 */
static void on_stuck(struct worker *w, struct job *j, void *arg)
{
	struct process_task *p = (struct process_task *)j;
	struct reads *all = arg;

	(void)w; /* the files worker */
	if (!j)
		return;
	log_warn("reading files of process %u takes more than %llu s: it is left out", p->tgid,
		 MAPPINGS_LIMIT_NS / NSEC_PER_SEC);
	counter_add(counter("podflame_mappings_dropped_total", "reason", "stuck"), 1);
	p->late = p->task.done;
	p->task.done = late_done;
	replace_blocked(all->node, 0, p->pod);
	if (left_behind(&all->stuck, &all->node->files, j))
		go_on(all);
	tell_blocked(all);
}

/* ---- life ---- */

bool reads_under_way(const struct reads *all)
{
	return all->n > 0;
}

void reads_tick(struct reads *all)
{
	if (all->node->closing)
		return;
	if (left_behind_again(&all->stuck, &all->node->files))
		go_on(all);
	tell_blocked(all);
}

struct reads *reads_new(struct node *n)
{
	struct reads *all = xcalloc(1, sizeof(*all));

	all->node = n;
	worker_on_stuck(n->files, on_stuck, all);
	return all;
}

struct reads *reads_free(struct reads *all)
{
	if (!all)
		return NULL;
	told_done(&all->unreadable);
	free(all);
	return NULL;
}
