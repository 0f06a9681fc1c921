/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drains: they fetch what the programs in the kernel recorded. A full drain runs every second of
 * wall time, so that a window gets the samples of its own time. A quick drain runs when the kernel
 * reports a new process or cgroup. This file owns no samples: kernel_ops.drained takes ownership of
 * the drain. It runs on the loop thread, except what is posted to the os worker.
 */
#include "node/kernel/internal.h"

#include <stdlib.h>

#define WAKE_DELAY_NS  (5 * NSEC_PER_MSEC)
#define DRAIN_LIMIT_NS (10 * NSEC_PER_SEC) /* if a drain takes longer, /healthz fails */
#define ANNOUNCE_NS    (5 * NSEC_PER_SEC)
/* least time between two lists of all processes because of forks: a list looks at all tasks */
#define FORKS_REST_NS (200 * NSEC_PER_MSEC)

struct draining {
	struct task task;
	struct kernel *kernel;
	bool full, traps;
	bool announce, announce_forks; /* forks: announces if a selected process has forked */
	bool forks_wait;	       /* a process has forked, and has not been announced */
	struct drain *drain;
	struct probes_stats stats;
	struct probe_usage *usage;
	size_t n_usage;
	uint64_t trap_ns; /* cost of a trap; 0: not measured */
	int result, stats_result;
};

static void announce(struct draining *d)
{
	d->forks_wait = probes_forked(d->kernel->probes);
	d->announce |= d->announce_forks && d->forks_wait;
	if (!d->announce)
		return;
	kernel_announce(d->kernel);
	d->forks_wait = false;
}

static void drain_run(struct task *t)
{
	struct draining *d = (struct draining *)t;
	struct probes *p = d->kernel->probes;
	_stage_("drain");

	work_assert_on(t->work, os);
	announce(d);
	d->result = probes_drain(p, d->full, &d->drain);
	d->stats_result = d->full ? probes_stats(p, &d->stats) : -ENODATA;
	if (d->full && probes_usage(p, &d->usage, &d->n_usage) < 0)
		counter_add(counter("podflame_usage_unread_total", NULL, NULL), 1);
	if (d->traps)
		d->trap_ns = probes_trap_ns(p);
}

static void note_costs(struct kernel *k, const struct draining *d)
{
	struct shares crowded = {0};

	limit_usage(k->config.limit, d->usage, d->n_usage, d->trap_ns);
	limit_crowded(k->config.limit, &crowded);
	kernel_note_shares(k, SHARED_COSTS, &crowded);
}

static void show_stats(const struct probes_stats *s)
{
	static const char name[] = "podflame_samples_total";

	counter_set(counter(name, "state", "ticks"), s->ticks);
	counter_set(counter(name, "state", "filtered"), s->filtered);
	counter_set(counter(name, "state", "thinned"), s->thinned);
	counter_set(counter(name, "state", "delivered"), s->delivered);
	counter_set(counter(name, "state", "crossed"), s->crossed);
	counter_set(counter("podflame_bpf_run_ns_total", NULL, NULL), s->run_ns);
	counter_set(counter("podflame_bpf_programs", NULL, NULL), s->n_programs);
	counter_set(counter("podflame_bpf_links", NULL, NULL), s->n_links);
	counter_set(counter("podflame_node_hz", NULL, NULL), s->node_hz);
}

static void cgroups_take(struct kernel *k, const struct drain *d)
{
	for (size_t i = 0; i < d->n_cgroups; i++) {
		const struct raw_cgroup *c = &d->cgroups[i];

		proc_containers_cgroup(k->config.containers, c->id, c->parent_id, c->path,
				       c->removed, now_boot_ns());
		/*
		 * A filter change that is under way does not contain this cgroup. The cgroup stays
		 * selected, and the next change adds it.
		 */
		k->filter_stale |= c->armed && !c->removed;
	}
}

static void wake_late(void *arg)
{
	struct kernel *k = arg;

	if (k->state != ON)
		return;
	if (k->drain_busy)
		kernel_watch_wake(k); /* the drain under way may have read the ring already */
	else
		kernel_drain(k, false);
}

/* Has the processes that were forked in the meantime announced when the rest is over. */
static void announce_later(struct kernel *k, const struct draining *d)
{
	if (d->announce)
		k->announced_ns = now_boot_ns();
	else if (d->forks_wait && k->probed)
		timer_set(k->config.work->loop, &k->wake_timer, FORKS_REST_NS, wake_late, k);
}

static void drain_done(struct task *t)
{
	struct draining *d = (struct draining *)t;
	struct kernel *k = d->kernel;

	k->drain_busy = false;
	if (t->refused) {
		counter_add(counter("podflame_drains_skipped_total", "reason", "refused"), 1);
		return;
	}
	if (d->result < 0)
		kernel_complain(k, "drain", strerror(-d->result));
	if (d->stats_result == 0) {
		show_stats(&d->stats);
		limit_stats(k->config.limit, &d->stats, d->drain);
		note_costs(k, d);
	}
	free(d->usage);
	if (d->drain) {
		cgroups_take(k, d->drain);
		if (d->full)
			kernel_shares_take(k, d->drain, now_boot_ns());
		k->drain_number = d->drain->number;
		/*
		 * an event was attached again: a new filter change reports which features work now
		 */
		k->filter_stale |= d->drain->tried_again;
		k->config.ops->drained(k->config.ops_arg, d->drain, d->full);
	}
	if (k->config.work->closing)
		return;
	if (k->state == ON)
		announce_later(k, d);
	if (k->state == ON && !k->wake)
		kernel_watch_wake(k);
	kernel_sync(k);
}

unsigned kernel_probe_sets(const struct kernel *kernel)
{
	const struct plan *plan = proc_containers_plan(kernel->config.containers);
	unsigned events = 0, sets = 0;

	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++)
			events |= plan->pods[i].containers[k].event_mask;
	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		if (events & probes_set_events(set))
			sets |= 1u << set;
	return sets;
}

/*
 * Has all selected processes reported soon after a fork, and from time to time in case the kernel
 * cannot report forks. The kernel reports a process when it calls exec or has its first sample. A
 * process that was forked and has not called exec gets uprobes only after a report, and without
 * uprobes it may have no sample.
 */
static void find_processes(struct kernel *k, struct draining *d)
{
	uint64_t ago_ns = now_boot_ns() - k->announced_ns;

	if (d->full)
		k->probed = kernel_probe_sets(k) != 0;
	d->traps = d->full && k->probed;
	d->announce = d->traps && ago_ns >= ANNOUNCE_NS;
	d->announce_forks = k->probed && ago_ns >= FORKS_REST_NS;
}

void kernel_drain(struct kernel *k, bool full)
{
	struct draining *d = xcalloc(1, sizeof(*d));

	assert_se(!k->drain_busy);
	d->kernel = k;
	d->full = full;
	find_processes(k, d);
	d->task.run = drain_run;
	d->task.done = drain_done;
	d->task.job.deadline_ns = DRAIN_LIMIT_NS;
	k->drain_busy = true;
	work_post(k->config.work, k->config.work->os, &d->task, 0);
}

/*
 * Called when the ring has data. The descriptor stays readable until the ring is empty. So it is
 * watched again only after a drain.
 */
static void on_wake(int fd, void *arg)
{
	struct kernel *k = arg;

	(void)fd;
	k->wake = watch_free(k->wake);
	timer_set(k->config.work->loop, &k->wake_timer, WAKE_DELAY_NS, wake_late, k);
}

void kernel_watch_wake(struct kernel *k)
{
	int r = k->wake ? 0 : watch_new(k->config.work->loop, k->wake_fd, on_wake, k, &k->wake);

	if (r < 0)
		kernel_complain(k, "watching the ring", strerror(-r));
}

bool kernel_filtered(const struct kernel *k)
{
	bool looks = k->config.hierarchy->mount[0] && k->config.has_pods;

	return !k->filter_busy && !k->scan_busy && (k->scanned_ns || !looks);
}

bool kernel_tick(struct kernel *k)
{
	loop_assert(k->config.work->loop);
	if (k->state != ON)
		return false;
	if (k->drain_busy)
		counter_add(counter("podflame_drains_skipped_total", "reason", "busy"), 1);
	else
		kernel_drain(k, true);
	return true;
}
