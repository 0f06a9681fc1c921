/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drains on their way from the kernel to the pipeline, in order. New processes
 * have their mappings read at once; a drain with samples waits for that, up to a
 * second, and for its files to be parsed, up to two more, so that a process that lives shortly
 * still gets names.
 */
#include "node/overhead.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_WAIT_NS	  NSEC_PER_SEC
#define MAX_PARSE_NS	  (2 * NSEC_PER_SEC) /* more, when it is files that are waited for */
#define MAX_WAITING	  8		     /* full drains */
#define MAX_EXEC_READS	  50
#define MAPPINGS_BYTES	  4096
#define MAPPINGS_LIMIT_NS (5 * NSEC_PER_SEC)

struct feeding {
	struct task task;
	struct drains *drains;
	struct feed feed;
	uint64_t due_ns; /* CLOCK_BOOTTIME: goes on without mappings then */
	struct feeding *next;
};

struct drains {
	struct node *node;
	struct feeding *first, **last;
	size_t n_waiting;      /* of the kernel */
	unsigned n_reading;    /* mappings asked for and not there yet */
	unsigned n_exec_reads; /* this second */
	struct left_behind stuck;
	unsigned generation; /* of the files worker: one more for each that was left behind */
	bool feeding;	     /* the pipeline has one: order is kept */
};

/* ---- mappings ---- */

struct reading {
	struct process_task process;
	struct drains *drains;
	uint32_t exec_id;
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

	r->result = mappings_read(r->process.tgid, r->start_boottime_ns, r->exec_id, &r->found);
}

static const char *read_error(const struct reading *r)
{
	if (r->process.task.refused)
		return "files_full";
	return r->result == -ESRCH ? "process_gone" : "unreadable";
}

static void read_done(struct task *t)
{
	struct reading *r = (struct reading *)t;
	struct drains *d = r->drains;

	if (r->generation == d->generation)
		d->n_reading--;
	if (r->found) {
		follow_process(t->node->follow, r->found, r->process.cgroup_id);
		learn(t->node, r->found);
	} else {
		counter_add(counter("podflame_mappings_dropped_total", "reason", read_error(r)), 1);
	}
	drains_advance(d);
}

void drains_read(struct drains *d, uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id,
		 uint64_t cgroup_id)
{
	struct reading *r;

	if (!tgid)
		return;
	r = xcalloc(1, sizeof(*r));
	r->drains = d;
	r->process.tgid = tgid;
	r->exec_id = exec_id;
	r->start_boottime_ns = start_boottime_ns;
	r->process.cgroup_id =
		cgroup_id ? cgroup_id : follow_cgroup(d->node->follow, tgid, start_boottime_ns);
	r->generation = d->generation;
	r->process.task.run = read_run;
	r->process.task.done = read_done;
	r->process.task.job.deadline_ns = MAPPINGS_LIMIT_NS;
	d->n_reading++;
	task_post(d->node, d->node->files, &r->process.task, MAPPINGS_BYTES);
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
	struct drains *d = n->reading.drains;
	struct taking_in *in = xcalloc(1, sizeof(*in));

	if (n->reading.generation == d->generation)
		d->n_reading--;
	if (t->refused)
		counter_add(counter("podflame_runtime_names_failed_total", "reason", "files_full"),
			    n->wanted->n_asks);
	in->wanted = TAKE_PTR(n->wanted);
	in->task.run = take_in_run;
	in->task.done = take_in_done;
	task_post(t->node, t->node->pipe, &in->task,
		  in->wanted->n_asks * sizeof(*in->wanted->asks));
	drains_advance(d);
}

static void read_names(struct drains *d, struct names_wanted *w)
{
	struct naming *n = xcalloc(1, sizeof(*n));

	n->wanted = w;
	n->reading.drains = d;
	n->reading.process.tgid = w->tgid;
	n->reading.process.cgroup_id =
		follow_cgroup(d->node->follow, w->tgid, w->start_boottime_ns);
	n->reading.generation = d->generation;
	n->reading.process.task.run = name_run;
	n->reading.process.task.done = name_done;
	n->reading.process.task.job.deadline_ns = MAPPINGS_LIMIT_NS;
	d->n_reading++;
	task_post(d->node, d->node->files, &n->reading.process.task, w->n_asks * sizeof(*w->asks));
}

static void tell_stuck(struct node *n, const char *uid, void *arg)
{
	if (n->report)
		report_problem(n->report, uid, "ProcessUnreadable", arg, 1);
}

static void tell_blocked(struct node *n, const struct process_task *p)
{
	_cleanup_free_ char *text =
		xasprintf("reading the files of process %u takes more than %llu s: it is left out",
			  p->tgid, MAPPINGS_LIMIT_NS / NSEC_PER_SEC);
	uint64_t until_ns;
	struct owner *o = procs_owner(n->procs, p->cgroup_id, &until_ns);

	log_warn("%s", text);
	if (o)
		node_targets_of(n, o->container_id, o->pod_uid, tell_stuck, text);
	owner_unref(o);
	counter_add(counter("podflame_mappings_dropped_total", "reason", "stuck"), 1);
}

/* Another worker reads now. */
static void go_on(struct drains *d)
{
	d->generation++;
	d->n_reading = 0;
	drains_advance(d);
}

static void late_done(struct task *t)
{
	struct process_task *p = (struct process_task *)t;
	struct node *n = t->node;

	p->late(t);
	if (!n->closing && left_behind_ended(&n->drains->stuck, &n->files, &t->job))
		go_on(n->drains);
}

/*
 * A file of a pod that blocks whoever opens it: that thread is left behind, and
 * the pod's target says so. With too many of them no more files are opened until one is back.
 */
static void on_stuck(struct worker *w, struct job *j, void *arg)
{
	struct process_task *p = (struct process_task *)j;
	struct drains *d = arg;

	(void)w; /* the files worker */
	if (!j)
		return;
	tell_blocked(d->node, p);
	p->late = p->task.done;
	p->task.done = late_done;
	if (left_behind(&d->stuck, &d->node->files, j))
		go_on(d);
}

/* ---- owners ---- */

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The distinct cgroups of the samples; neighbours are mostly the same. */
static uint64_t *distinct_cgroups(const struct drain *drain, size_t *ret_n)
{
	uint64_t *ids = xcalloc(drain->n_samples + 1, sizeof(*ids));
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < drain->n_samples; i++)
		if (n == 0 || ids[n - 1] != drain->samples[i].cgroup_id)
			ids[n++] = drain->samples[i].cgroup_id;
	qsort(ids, n, sizeof(*ids), compare_ids);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || ids[i] != ids[i - 1])
			ids[kept++] = ids[i];
	*ret_n = kept;
	return ids;
}

static void attribute(struct node *n, struct feed *f)
{
	size_t n_ids;
	_cleanup_free_ uint64_t *ids = distinct_cgroups(f->drain, &n_ids);

	f->owners = xcalloc(n_ids + 1, sizeof(*f->owners));
	for (size_t i = 0; i < n_ids; i++) {
		struct attribution a = {.cgroup_id = ids[i]};

		a.owner = procs_owner(n->procs, ids[i], &a.until_ns);
		for (enum event e = 0; !f->whole && e < _EVENT_MAX; e++) {
			struct estimate x = overhead_estimate(n->overhead, ids[i], e);

			a.share_ppm[e] = x.ppm;
			a.error_ppm[e] = x.error_ppm;
		}
		if (a.owner)
			f->owners[f->n_owners++] = a;
	}
	if (n->hosts) {
		f->hosts = hosts_list(n->hosts);
		f->host_names = n->hosts;
	}
}

/* ---- the queue ---- */

static void feed_handled(struct task *t);

static void feed_run(struct task *t)
{
	struct feeding *f = (struct feeding *)t;
	_stage_("fold");

	pipeline_feed(t->node->pipeline, &f->feed);
}

static void tell_target(struct report *r, const char *uid, const struct attribution *a)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (a->n_samples[e])
			report_sampled(r, uid, e, a->n_samples[e]);
	report_stacks(r, uid, a->n_stacks, a->n_finished);
}

static void tell_sampled(struct node *n, const struct feed *f)
{
	if (!n->report)
		return;
	for (size_t i = 0; i < f->n_owners; i++)
		for (size_t k = 0; k < f->owners[i].owner->n_targets; k++)
			tell_target(n->report, f->owners[i].owner->target_uids[k], &f->owners[i]);
}

static void read_wanted(struct drains *d, struct feed *f)
{
	for (size_t i = 0; i < f->n_wanted; i++)
		read_names(d, f->wanted[i]);
	free(f->wanted);
	f->wanted = NULL;
	f->n_wanted = 0;
}

/* Mappings or names were missing: they are read, and the same drain comes a second time. */
static void come_again(struct drains *d, struct feed *from)
{
	struct feeding *f = xcalloc(1, sizeof(*f));

	*f = (struct feeding){.drains = d, .feed = *from};
	f->task.run = feed_run;
	f->task.done = feed_handled;
	*from = (struct feed){0};
	f->feed.last_pass = true;
	f->due_ns = now_boot_ns() + MAX_WAIT_NS;
	f->next = d->first;
	if (!d->first)
		d->last = &f->next;
	d->first = f;
	d->n_waiting += !f->feed.whole;
	for (size_t i = 0; i < f->feed.n_missing; i++)
		drains_read(d, f->feed.missing[i].tgid, f->feed.missing[i].start_boottime_ns,
			    f->feed.missing[i].exec_id, 0);
	f->feed.n_missing = 0;
	read_wanted(d, &f->feed);
}

static void feed_handled(struct task *t)
{
	struct feeding *f = (struct feeding *)t;
	struct drains *d = f->drains;

	if (t->refused) {
		counter_add(counter("podflame_drains_skipped_total", "reason", "pipeline_full"), 1);
		gap_untold(t->node, f->feed.gap_ns);
	} else if (!f->feed.full) {
		read_wanted(d, &f->feed);
	} else if (f->feed.waits) {
		come_again(d, &f->feed);
	} else {
		tell_sampled(t->node, &f->feed);
		read_wanted(d, &f->feed);
		node_batch(t->node, TAKE_PTR(f->feed.batch));
		if (f->feed.left_ns)
			gap_left(t->node, f->feed.left_ns);
	}
	feed_done(&f->feed);
	/* Only now: while the node closes, what was posted above has ended, and its end would have come to the next. */
	d->feeding = false;
	drains_advance(d);
}

static size_t feed_bytes(const struct feed *f)
{
	const struct drain *d = f->drain;

	if (!d)
		return 0;
	return d->n_samples * sizeof(*d->samples) + d->n_stacks * sizeof(*d->stacks) +
	       (d->memory ? d->memory->cap : 0);
}

static bool is_due(const struct drains *d, const struct feeding *f)
{
	uint64_t now_ns = now_boot_ns();

	if (!f->feed.full || !f->feed.drain || d->node->closing || d->n_waiting > MAX_WAITING ||
	    now_ns >= f->due_ns + MAX_PARSE_NS)
		return true;
	return (d->n_reading == 0 || now_ns >= f->due_ns) && !follow_parses(d->node->follow);
}

/* While the node closes a task is done before task_post returns, and its end comes here again. */
void drains_advance(struct drains *d)
{
	while (d->first && !d->feeding && is_due(d, d->first)) {
		struct feeding *f = d->first;

		d->first = f->next;
		if (!d->first)
			d->last = &d->first;
		d->n_waiting -= !f->feed.whole;
		d->feeding = true;
		task_post(d->node, d->node->pipe, &f->task, feed_bytes(&f->feed));
	}
}

/*
 * Most processes are read at their first sample. At exec, too, so that one that ends soon after
 * has names, as long as not too many are started.
 */
static void read_process(struct drains *d, const struct raw_proc *p)
{
	if (p->what == RAW_PROC_EXIT)
		return;
	if (p->what == RAW_PROC_EXEC && d->n_exec_reads++ >= MAX_EXEC_READS)
		return;
	drains_read(d, p->tgid, p->start_boottime_ns, p->exec_id, p->cgroup_id);
}

static void tick(struct drains *d)
{
	d->n_exec_reads = 0;
	if (!d->node->closing && left_behind_again(&d->stuck, &d->node->files))
		go_on(d);
}

static void add(struct drains *d, struct drain *drain, bool full, bool whole)
{
	struct feeding *f;

	if (full && !whole)
		tick(d);
	for (size_t i = 0; drain && i < drain->n_procs; i++)
		read_process(d, &drain->procs[i]);
	if (drain && drain->n_procs)
		follow_exits(d->node->follow, drain);
	if (!full && !drain->n_procs && !drain->n_young) {
		drain_free(drain);
		return;
	}
	f = xcalloc(1, sizeof(*f));
	f->drains = d;
	f->feed.drain = drain;
	f->feed.full = full;
	f->feed.whole = whole;
	f->feed.gap_ns = full && !whole ? gap_take(d->node) : 0;
	if (drain && full) {
		attribute(d->node, &f->feed);
		throttle_take(d->node->throttle, &f->feed);
	}
	f->due_ns = now_boot_ns() + MAX_WAIT_NS;
	f->task.run = feed_run;
	f->task.done = feed_handled;
	*d->last = f;
	d->last = &f->next;
	d->n_waiting += !whole;
	drains_advance(d);
}

void drains_add(struct drains *d, struct drain *drain, bool full)
{
	add(d, drain, full, false);
}

void drains_add_whole(struct drains *d, struct drain *drain)
{
	add(d, drain, true, true);
}

/* ---- life ---- */

struct drains *drains_new(struct node *n)
{
	struct drains *d = xcalloc(1, sizeof(*d));

	d->node = n;
	d->last = &d->first;
	worker_on_stuck(n->files, on_stuck, d);
	return d;
}

struct drains *drains_free(struct drains *d)
{
	struct feeding *next;

	if (!d)
		return NULL;
	for (struct feeding *f = d->first; f; f = next) {
		next = f->next;
		feed_done(&f->feed);
		free(f);
	}
	free(d);
	return NULL;
}
