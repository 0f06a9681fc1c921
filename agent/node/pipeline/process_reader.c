/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the mappings of processes, and from their memory the names of functions that runtimes run,
 * on the files worker, and passes them to the pipeline worker and to follow. Loop thread, except
 * for the reading itself.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

#define MAPPINGS_BYTES 4096

struct process_reader {
	struct pipeline *pipeline;
	const struct reader_ops *ops;
	struct shares reads; /* requests without an answer yet, by namespace */
	unsigned generation; /* how many times the files worker got a new thread */
};

/* ---- mappings ---- */

struct mappings_reading {
	struct process_task process;
	struct process_reader *reader;
	uint32_t exec_id, stack;
	struct process_id id;
	struct mappings *found;
	uint64_t ns;	     /* struct charged, when the request was made */
	unsigned generation; /* the reader's generation when the request was made */
	int result;
};

struct learning {
	struct task task;
	struct windows *windows;
	struct mappings *mappings;
	uint64_t ns; /* struct charged */
};

static void learn_run(struct task *t)
{
	struct learning *l = (struct learning *)t;

	pipeline_windows_mappings(l->windows, l->mappings, l->ns);
}

static void learn_done(struct task *t)
{
	struct learning *l = (struct learning *)t;

	if (t->refused)
		counter_add(counter("podflame_mappings_dropped_total", "reason", "pipeline_full"),
			    1);
	proc_mappings_unref(l->mappings);
}

static void learn(struct pipeline *p, struct mappings *m, uint64_t ns)
{
	struct learning *l = xcalloc(1, sizeof(*l));

	l->windows = p->windows;
	l->mappings = m;
	l->ns = ns;
	l->task.run = learn_run;
	l->task.done = learn_done;
	work_post(p->config.work, p->config.work->pipe, &l->task, m->n * sizeof(*m->items));
}

static uint64_t charged_ns(const struct process_reader *all, uint64_t cgroup_id)
{
	return proc_containers_charged(all->pipeline->config.containers, cgroup_id).ns;
}

/* Counts a reading as under way. */
static void begin(struct process_reader *all, struct mappings_reading *r, uint64_t cgroup_id)
{
	r->reader = all;
	r->process.cgroup_id = cgroup_id;
	r->ns = charged_ns(all, cgroup_id);
	r->generation = all->generation;
	shares_add(&all->reads, r->ns);
}

static void end(const struct mappings_reading *r)
{
	if (r->generation == r->reader->generation)
		shares_remove(&r->reader->reads, r->ns);
}

static void read_run(struct task *t)
{
	struct mappings_reading *r = (struct mappings_reading *)t;
	_stage_("mappings");

	r->result = proc_mappings_read_of(r->id, r->exec_id, r->stack, &r->found);
	if (r->result == 0)
		learn_tags(r->reader->pipeline->config.files, r->found);
}

static const char *read_error(const struct mappings_reading *r)
{
	if (r->process.task.refused)
		return work_process_refusal(&r->process);
	if (r->result == -ESTALE)
		return "another_program";
	return r->result == -ESRCH ? "process_gone" : "unreadable";
}

static void read_done(struct task *t)
{
	struct mappings_reading *r = (struct mappings_reading *)t;
	struct process_reader *all = r->reader;

	end(r);
	if (r->found) {
		r->found->cgroup_id = r->process.cgroup_id;
		/* r->ns may be from before its container was known */
		const uint64_t ns = charged_ns(all, r->process.cgroup_id);

		processes_add(all->pipeline->config.processes, r->id, ns);
		all->ops->follow(all->pipeline->config.follow, r->found, r->process.cgroup_id);
		learn(all->pipeline, r->found, ns);
	} else {
		counter_add(counter("podflame_mappings_dropped_total", "reason", read_error(r)), 1);
	}
	pipeline_queue_advance(all->pipeline->queue);
}

void pipeline_reader_mappings(struct process_reader *all, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id)
{
	struct mappings_reading *r;

	if (!id.tgid)
		return;
	if (all->ops->rests(all->pipeline->config.follow, id, exec_id)) {
		mappings_count_resting();
		return;
	}
	r = xcalloc(1, sizeof(*r));
	begin(all, r, cgroup_id ? cgroup_id : all->ops->cgroup(all->pipeline->config.follow, id));
	r->process.tgid = (uint32_t)id.tgid;
	r->exec_id = exec_id;
	r->stack = stack;
	r->id = id;
	r->process.task.run = read_run;
	r->process.task.done = read_done;
	r->process.task.job.deadline_ns = WORK_READ_LIMIT_NS;
	work_post_process(all->pipeline->config.work, &r->process, MAPPINGS_BYTES);
}

/* ---- names of runtimes' functions ---- */

struct naming {
	/*
	 * If reading the process blocks the worker, the process is reported as one whose files
	 * block it.
	 */
	struct mappings_reading reading;
	struct names_wanted *wanted;
};
struct taking_in {
	struct task task;
	struct windows *windows;
	struct names_wanted *wanted;
};

static void take_in_run(struct task *t)
{
	struct taking_in *in = (struct taking_in *)t;

	pipeline_windows_named(in->windows, in->wanted);
}

static void take_in_done(struct task *t)
{
	stacks_wanted_free(((struct taking_in *)t)->wanted);
}

static void name_run(struct task *t)
{
	_stage_("runtime_names");

	stacks_wanted_read(((struct naming *)t)->wanted);
}

static void name_done(struct task *t)
{
	struct naming *n = (struct naming *)t;
	struct process_reader *all = n->reading.reader;
	struct taking_in *in = xcalloc(1, sizeof(*in));

	end(&n->reading);
	if (t->refused)
		counter_add(counter("podflame_runtime_names_failed_total", "reason",
				    work_process_refusal(&n->reading.process)),
			    n->wanted->n_asks);
	in->windows = all->pipeline->windows;
	in->wanted = TAKE_PTR(n->wanted);
	in->task.run = take_in_run;
	in->task.done = take_in_done;
	work_post(t->work, t->work->pipe, &in->task,
		  in->wanted->n_asks * sizeof(*in->wanted->asks));
	pipeline_queue_advance(all->pipeline->queue);
}

void pipeline_reader_names(struct process_reader *all, struct names_wanted *w)
{
	struct naming *n = xcalloc(1, sizeof(*n));

	n->wanted = w;
	begin(all, &n->reading, all->ops->cgroup(all->pipeline->config.follow, w->process));
	n->reading.process.tgid = (uint32_t)w->process.tgid;
	n->reading.process.task.run = name_run;
	n->reading.process.task.done = name_done;
	n->reading.process.task.job.deadline_ns = WORK_READ_LIMIT_NS;
	work_post_process(all->pipeline->config.work, &n->reading.process,
			  w->n_asks * sizeof(*w->asks));
}

/* ---- creation and end ---- */

/*
 * Called when a new thread has become the files worker. The reader does not wait for the answers of
 * the old thread, because they may never come.
 */
static void begin_anew(void *arg)
{
	struct process_reader *all = arg;

	all->generation++;
	shares_done(&all->reads);
	pipeline_queue_advance(all->pipeline->queue);
}

const struct shares *pipeline_reader_reads(const struct process_reader *all)
{
	return &all->reads;
}

struct process_reader *pipeline_reader_new(struct pipeline *p, const struct reader_ops *ops)
{
	struct process_reader *all = xcalloc(1, sizeof(*all));

	all->pipeline = p;
	all->ops = ops;
	work_on_files_replaced(p->config.work, begin_anew, all);
	return all;
}

struct process_reader *pipeline_reader_free(struct process_reader *all)
{
	shares_done(&all->reads);
	free(all);
	return NULL;
}
