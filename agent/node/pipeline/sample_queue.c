/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of drains between the kernel and the pipeline worker. Drains keep their order. The
 * mappings of new processes are read at once. A drain with samples waits for them for up to a
 * second, and for up to two more seconds until its files are parsed. So even a process with a short
 * life gets names. It does not wait so for a namespace that starts processes all the time:
 * patience.c. And it waits no longer than MAX_DELAY_NS in all, for however many namespaces. Runs on
 * the loop thread.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_WAIT_NS  NSEC_PER_SEC	/* time that a drain waits for mappings */
#define MAX_PARSE_NS (2 * NSEC_PER_SEC) /* time that a drain waits for files, after MAX_WAIT_NS */
#define MAX_WAITING  8			/* limit for full drains that wait */
/*
 * How long a drain, and with it the windows of all namespaces, may wait for names. The queue looks
 * at the time with each drain and each answer, so a drain may wait up to a second longer. That is
 * less than LATE_NS, so that no sample is lost because drains wait for names.
 */
#define MAX_DELAY_NS (4 * NSEC_PER_SEC)
/* reads of mappings per second at the exec of a process; each namespace has a share */
#define MAX_EXEC_READS 50

#define MAX_WAITING_BYTES (256u << 20) /* of the drains in the queue */

/*
 * If a drain gets its names later than that, or if many bytes wait, the pipeline worker is too
 * slow, and each drain may take only a part of the time that it covers: see room_for().
 */
#define LATE_NS	   (6 * NSEC_PER_SEC)
#define LATE_BYTES (MAX_WAITING_BYTES / 4)
#define LATE_PART  2
#define MIN_ROOM   16384 /* work (pipeline_work()) that a drain may always be */

struct feeding {
	struct task task;
	struct sample_queue *queue;
	struct feed feed;
	struct feed_answer answer;
	/*
	 * CLOCK_BOOTTIME: after these times the drain does not wait for mappings any more, and for
	 * nothing any more
	 */
	uint64_t due_ns, last_ns;
	uint64_t took_ns; /* how long the worker was busy with it, in all passes */
	struct feeding *next;
};

struct sample_queue {
	struct pipeline *pipeline;
	const struct queue_ops *ops;
	struct feeding *first, **last;
	size_t n_waiting;     /* drains in the queue, without those of pipeline_queue_add_whole() */
	size_t waiting_bytes; /* of the drains in the queue */
	uint64_t work_ns;     /* how long the worker took lately for a piece of work; 0: none */
	/*
	 * how long the machine slept during drains that the worker refused (struct task); the next
	 * request takes this time, and `lost`
	 */
	uint64_t asleep_ns;
	struct losses lost;
	uint64_t n_lost;	  /* number of lost samples of drains, since the start */
	struct shares exec_reads; /* processes that were read at their exec in this second */
	struct learn_later *later;
	struct patience *patience;
	struct process_exit *exits; /* the processes that have ended; the next request takes them */
	size_t n_exits, cap_exits;
	/*
	 * The pipeline worker has a request. The worker gets one at a time, so the order is kept.
	 */
	bool feeding;
};

/* ---- the queue ---- */

static void feed_handled(struct task *t);

static void feed_run(struct task *t)
{
	struct feeding *f = (struct feeding *)t;
	uint64_t began_ns = now_mono_ns();
	_stage_("fold");

	f->queue->ops->fold(f->queue->pipeline->windows, &f->feed, &f->answer);
	f->took_ns += now_mono_ns() - began_ns;
}

static void tell_target(struct report *r, const char *uid, const struct taken *a)
{
	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (a->n_samples[e])
			report_sampled(r, uid, e, a->n_samples[e]);
	report_stacks(r, uid, a->n_stacks, a->n_finished);
}

static void tell_sampled(struct report *r, const struct feed *f, const struct taken *taken)
{
	if (!r || !taken)
		return;
	for (size_t i = 0; i < f->n_owners; i++)
		for (size_t k = 0; k < f->owners[i].owner->n_targets; k++)
			tell_target(r, f->owners[i].owner->target_uids[k], &taken[i]);
}

static void read_wanted(struct sample_queue *d, struct feed_answer *f)
{
	for (size_t i = 0; i < f->n_wanted; i++)
		d->ops->read_names(d->pipeline->reader, f->wanted[i]);
	free(f->wanted);
	f->wanted = NULL;
	f->n_wanted = 0;
}

static void parse(struct sample_queue *d, struct feed_answer *f)
{
	d->ops->parse(d->pipeline->config.follow, f->unparsed, f->n_unparsed);
	stacks_unparsed_free(TAKE_PTR(f->unparsed), f->n_unparsed);
	f->n_unparsed = 0;
}

static size_t feed_bytes(const struct feed *f)
{
	const struct drain *d = f->drain;

	if (!d)
		return 0;
	return d->n_samples * sizeof(*d->samples) + d->n_stacks * sizeof(*d->stacks) +
	       (d->memory ? d->memory->cap : 0);
}

static void note_waiting(struct sample_queue *d, const struct feeding *f, bool waits)
{
	const size_t bytes = feed_bytes(&f->feed);

	d->n_waiting += f->feed.whole ? 0 : waits ? 1 : -1;
	d->waiting_bytes += waits ? bytes : -bytes;
}

/*
 * Has the missing mappings, names and files read, and puts the same drain at the front of the queue
 * for its last pass.
 */
static void come_again(struct sample_queue *d, struct feeding *from)
{
	struct feed_answer *answer = &from->answer;
	struct feeding *f = xcalloc(1, sizeof(*f));

	*f = (struct feeding){
		.queue = d, .feed = from->feed, .took_ns = from->took_ns, .last_ns = from->last_ns};
	f->task.run = feed_run;
	f->task.done = feed_handled;
	from->feed = (struct feed){0};
	f->feed.last_pass = true;
	f->feed.files_asked = answer->files_asked;
	f->feed.gap_ns = 0;
	f->due_ns = now_boot_ns() + MAX_WAIT_NS;
	f->next = d->first;
	if (!d->first)
		d->last = &f->next;
	d->first = f;
	note_waiting(d, f, true);
	for (size_t i = 0; i < answer->n_missing; i++) {
		const struct missing *m = &answer->missing[i];

		d->ops->read_mappings(d->pipeline->reader, m->id, m->exec_id, m->stack,
				      m->cgroup_id);
	}
	read_wanted(d, answer);
	parse(d, answer);
}

/*
 * The samples of a refused drain are lost and count as a loss of the node. A snapshot of memory in
 * use is not lost, because the next one contains it.
 */
static void lose_refused(struct sample_queue *d, struct feed *f)
{
	uint64_t n[_EVENT_MAX] = {0};

	counter_add(counter("podflame_drains_skipped_total", "reason", "pipeline_full"), 1);
	for (size_t i = 0; f->drain && !f->whole && i < f->drain->n_samples; i++)
		n[f->drain->samples[i].event] += f->drain->samples[i].n;
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		profile_samples_lost(&d->lost, 1u << e, "pipeline_full", n[e]);
		d->n_lost += n[e];
	}
	profile_losses_move(&d->lost, &f->lost);
}

static void refuse(struct sample_queue *d, struct feed *f)
{
	lose_refused(d, f);
	pipeline_downtime_untold(d->pipeline, f->gap_ns);
	d->asleep_ns += f->asleep_ns;
	pipeline_queue_exited(d, f->exits, f->n_exits);
}

static void note_speed(struct sample_queue *d, const struct feeding *f)
{
	uint64_t ns = f->took_ns / MAX(f->answer.work, 1ull);

	if (f->answer.work >= MIN_ROOM / 2) /* less says little */
		d->work_ns = d->work_ns ? (d->work_ns + ns) / 2 : ns;
}

/* Tells the targets of namespaces that had more than their shares. */
static void tell_refused(struct kernel *k, struct feed_answer *a)
{
	struct shares unmapped = {0}, unnamed = {0};

	runtime_perf_maps_refused(&unmapped);
	stacks_names_refused(&unnamed);
	kernel_note_refused(k, a->refused, a->n_refused);
	kernel_note_shares(k, SHARED_PROCESSES, &a->crowded);
	kernel_note_shares(k, SHARED_LINKS, &a->unlinked);
	kernel_note_shares(k, SHARED_ROWS, &a->rows_refused);
	kernel_note_shares(k, SHARED_PERF_MAPS, &unmapped);
	kernel_note_shares(k, SHARED_NAMES, &unnamed);
}

static void feed_handled(struct task *t)
{
	struct feeding *f = (struct feeding *)t;
	struct sample_queue *d = f->queue;

	assert_se(d->feeding);
	tell_refused(d->pipeline->config.kernel, &f->answer);
	if (t->refused) {
		refuse(d, &f->feed);
	} else if (!f->feed.full) {
		read_wanted(d, &f->answer);
	} else if (f->answer.waits) {
		come_again(d, f);
	} else {
		note_speed(d, f);
		tell_sampled(d->pipeline->config.report, &f->feed, f->answer.taken);
		read_wanted(d, &f->answer);
		parse(d, &f->answer);
		pipeline_send(d->pipeline, TAKE_PTR(f->answer.batch));
		if (f->answer.left_ns)
			pipeline_downtime_left(d->pipeline, f->answer.left_ns);
	}
	pipeline_feed_done(&f->feed);
	pipeline_feed_answer_done(&f->answer);
	/*
	 * Only now, after all of the above: while the node closes, a task that was posted above has
	 * ended before work_post() returns, and its end calls pipeline_queue_advance(). If feeding
	 * were false by then, that call would post the next drain while this one is not done.
	 */
	d->feeding = false;
	pipeline_queue_advance(d);
}

/*
 * Returns feed.room of a drain. If the worker is late, the drain may take half of the time that it
 * covers, as far as can be told from the drains before. So the queue becomes shorter.
 */
static uint64_t room_for(const struct sample_queue *d, const struct feeding *f)
{
	const struct drain *drain = f->feed.drain;
	uint64_t behind_ns, ns;

	if (!drain || !f->feed.full || f->feed.whole)
		return 0;
	behind_ns = now_boot_ns() - MIN(drain->to_ns, now_boot_ns());
	counter_set(counter("podflame_samples_behind_ns", NULL, NULL), behind_ns);
	if (d->pipeline->config.work->closing || !d->work_ns ||
	    (behind_ns < LATE_NS && d->waiting_bytes < LATE_BYTES))
		return 0;
	ns = MAX(drain->to_ns - drain->from_ns, NSEC_PER_SEC) / LATE_PART;
	return MAX(ns / d->work_ns, (uint64_t)MIN_ROOM);
}

static bool is_due(struct sample_queue *d, const struct feeding *f)
{
	const struct shares *reads = d->ops->reads(d->pipeline->reader),
			    *parses = d->ops->parses(d->pipeline->config.follow);
	uint64_t now_ns = now_boot_ns();
	bool waits;

	pipeline_patience_spend(d->patience, now_ns);
	if (!f->feed.full || !f->feed.drain || d->pipeline->config.work->closing ||
	    d->n_waiting > MAX_WAITING || now_ns >= f->due_ns + MAX_PARSE_NS)
		return true;
	if (now_ns >= f->last_ns) {
		if ((now_ns < f->due_ns && reads->all) || parses->all)
			counter_add(counter("podflame_drains_hurried_total", NULL, NULL), 1);
		return true;
	}
	waits = now_ns < f->due_ns && pipeline_patience_waits(d->patience, reads);
	waits |= pipeline_patience_waits(d->patience, parses);
	return !waits;
}

uint64_t pipeline_queue_n_lost(const struct sample_queue *d)
{
	return d->n_lost;
}

struct losses *pipeline_queue_lost(struct sample_queue *d)
{
	return &d->lost;
}

/*
 * Adds the losses and the sleep that no request contains yet. After a sleep, the open window is
 * still the one from before the sleep. This request ends that window, even if the request has no
 * drain.
 */
static void add_earlier(struct sample_queue *d, struct feed *f)
{
	if (!f->full || f->whole)
		return;
	f->asleep_ns += d->asleep_ns;
	d->asleep_ns = 0;
	profile_losses_move(&f->lost, &d->lost);
}

/*
 * This function may call itself: while the node closes, work_post() returns after the task has
 * ended, and the end of a task calls this function.
 */
void pipeline_queue_advance(struct sample_queue *d)
{
	loop_assert(d->pipeline->config.work->loop);
	while (d->first && !d->feeding && is_due(d, d->first)) {
		struct feeding *f = d->first;

		d->first = f->next;
		if (!d->first)
			d->last = &d->first;
		f->feed.room = room_for(d, f);
		note_waiting(d, f, false);
		d->feeding = true;
		add_earlier(d, &f->feed);
		pipeline_tell_again(d->pipeline);
		work_post(d->pipeline->config.work, d->pipeline->config.work->pipe, &f->task,
			  feed_bytes(&f->feed));
	}
}

/* Whether the mappings of one more process may be read at its exec. */
static bool may_read_at_exec(struct sample_queue *d, const struct raw_proc *p)
{
	const struct pipeline_config *c = &d->pipeline->config;
	const uint64_t ns = proc_containers_charged(c->containers, p->cgroup_id).ns;

	if (shares_may_add(&d->exec_reads, ns, MAX_EXEC_READS)) {
		shares_add(&d->exec_reads, ns);
		return true;
	}
	counter_add(counter("podflame_mappings_dropped_total", "reason", "many_execs"), 1);
	kernel_note_share(c->kernel, SHARED_READS, ns);
	return false;
}

static void read_now(const struct raw_proc *p, void *queue)
{
	struct sample_queue *d = queue;

	d->ops->read_mappings(d->pipeline->reader, process_id_of(p), p->exec_id, p->stack,
			      p->cgroup_id);
}

/*
 * Has the mappings of a process read. This usually happens at its first sample. It also happens at
 * exec, unless too many processes of its namespace start, so that a process that ends soon has
 * names. A process whose files are all known has names anyway: it is read only if it lives longer.
 */
static void read_process(struct sample_queue *d, const struct raw_proc *p)
{
	if (learn_later_takes(d->later, p))
		return;
	if (p->what == RAW_PROC_EXIT)
		return;
	if (p->what == RAW_PROC_EXEC && !may_read_at_exec(d, p))
		return;
	read_now(p, d);
}

void pipeline_queue_exited(struct sample_queue *d, const struct process_exit *exits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		GROW(d->exits, d->n_exits, d->cap_exits);
		d->exits[d->n_exits++] = exits[i];
	}
}

static void add(struct sample_queue *d, struct drain *drain, bool full, bool whole)
{
	struct feeding *f;

	if (full && !whole) {
		shares_done(&d->exec_reads);
		learn_later_round(d->later, read_now, d);
	}
	for (size_t i = 0; drain && i < drain->n_procs; i++)
		read_process(d, &drain->procs[i]);
	if (!full && !drain->n_procs && !drain->n_young) {
		sample_drain_free(drain);
		return;
	}
	f = xcalloc(1, sizeof(*f));
	f->queue = d;
	f->feed.drain = drain;
	f->feed.full = full;
	f->feed.whole = whole;
	f->feed.exits = TAKE_PTR(d->exits);
	f->feed.n_exits = d->n_exits;
	d->n_exits = d->cap_exits = 0;
	f->feed.gap_ns = full && !whole ? pipeline_downtime_take(d->pipeline) : 0;
	f->feed.asleep_ns = drain ? drain->asleep_ns : 0;
	if (drain) {
		d->n_lost += profile_losses_sum(&drain->lost);
		profile_losses_move(&f->feed.lost, &drain->lost);
		pipeline_charge_processes(d->pipeline, &f->feed);
	}
	if (drain && full) {
		pipeline_attribute(d->pipeline, &f->feed);
		pipeline_throttle_take(d->pipeline->throttle, &f->feed);
	}
	f->due_ns = now_boot_ns() + MAX_WAIT_NS;
	f->last_ns = now_boot_ns() + MAX_DELAY_NS;
	f->task.run = feed_run;
	f->task.done = feed_handled;
	if (d->waiting_bytes + feed_bytes(&f->feed) > MAX_WAITING_BYTES) {
		refuse(d, &f->feed);
		pipeline_feed_done(&f->feed);
		free(f);
		return;
	}
	*d->last = f;
	d->last = &f->next;
	note_waiting(d, f, true);
	pipeline_queue_advance(d);
}

void pipeline_queue_add(struct sample_queue *d, struct drain *drain, bool full)
{
	add(d, drain, full, false);
}

void pipeline_queue_add_whole(struct sample_queue *d, struct drain *drain)
{
	add(d, drain, true, true);
}

/* ---- creation and end ---- */

static void patience_over(uint64_t ns, void *arg)
{
	struct sample_queue *d = arg;

	counter_add(counter("podflame_names_not_awaited_total", NULL, NULL), 1);
	kernel_note_share(d->pipeline->config.kernel, SHARED_WAITING, ns);
}

struct sample_queue *pipeline_queue_new(struct pipeline *p, const struct queue_ops *ops)
{
	struct sample_queue *d = xcalloc(1, sizeof(*d));

	d->pipeline = p;
	d->ops = ops;
	d->last = &d->first;
	d->later = learn_later_new();
	d->patience = pipeline_patience_new(patience_over, d);
	return d;
}

struct sample_queue *pipeline_queue_free(struct sample_queue *d)
{
	struct feeding *next;

	if (!d)
		return NULL;
	for (struct feeding *f = d->first; f; f = next) {
		next = f->next;
		pipeline_feed_done(&f->feed);
		free(f);
	}
	free(d->exits);
	profile_losses_done(&d->lost);
	shares_done(&d->exec_reads);
	learn_later_free(d->later);
	pipeline_patience_free(d->patience);
	free(d);
	return NULL;
}
