/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's end in the kernel: programs are loaded while somebody is selected
 * and unloaded when nobody is; the filter follows procs; drains are cut at whole
 * seconds of wall time, so that a window gets what belongs to it.
 */
#include "node/internal.h"

#include <stdlib.h>

#define WAKE_DELAY_NS	(5 * NSEC_PER_MSEC)
#define RETRY_NS	(60 * NSEC_PER_SEC)
#define SCAN_NS		(30 * NSEC_PER_SEC)
#define SCAN_BLIND_NS	(5 * NSEC_PER_SEC) /* the kernel does not tell of new cgroups */
#define SCAN_EARLY_NS	(200 * NSEC_PER_MSEC)
#define DRAIN_LIMIT_NS	(10 * NSEC_PER_SEC)
#define CHANGE_LIMIT_NS (30 * NSEC_PER_SEC)
#define MAX_SUPPORT	16

enum state { OFF, LOADING, ON, UNLOADING };

struct kernel {
	struct node *node;
	struct cgroup_hierarchy hierarchy; /* mount "": none */
	struct probes *probes;		   /* os worker's, from load to unload */
	enum state state;
	uint64_t retry_ns, scanned_ns; /* CLOCK_BOOTTIME */
	bool filter_stale, filter_busy, scan_busy, drain_busy, wake_waits;
	bool blind; /* cgroup events do not work */
	struct watch *wake;
	int wake_fd;
	struct timer tick, wake_timer, scan_timer;
	char last_error[512];
};

/* What worked, copied on the os worker: probes may change it there. */
struct support_copy {
	struct support items[MAX_SUPPORT];
	char reasons[MAX_SUPPORT][256];
	size_t n;
};

static void support_take(struct support_copy *c, const struct probes *p)
{
	size_t n;
	const struct support *s = probes_support(p, &n);

	c->n = MIN(n, MAX_SUPPORT);
	for (size_t i = 0; i < c->n; i++) {
		c->items[i] = s[i];
		snprintf(c->reasons[i], sizeof(c->reasons[i]), "%s",
			 s[i].reason ? s[i].reason : "");
	}
}

static void support_tell(struct kernel *k, struct support_copy *c)
{
	_cleanup_free_ char *mode = NULL;

	for (size_t i = 0; i < c->n; i++) {
		c->items[i].reason = *c->reasons[i] ? c->reasons[i] : NULL;
		if (streq(c->items[i].feature, "cgroup-events"))
			k->blind = !c->items[i].ok;
	}
	mode = !k->hierarchy.mount[0] ? xstrdup("none")
	       : k->hierarchy.v2      ? xstrdup("v2")
				      : xasprintf("v1:%s", k->hierarchy.controller);
	if (k->node->report)
		report_support(k->node->report, c->items, c->n, mode);
}

/* Each text once, until another comes. */
static void complain(struct kernel *k, const char *what, const char *why)
{
	_cleanup_free_ char *text = xasprintf("%s: %s", what, why);

	if (streq(text, k->last_error))
		return;
	snprintf(k->last_error, sizeof(k->last_error), "%s", text);
	log_err("%s", text);
}

static bool is_wanted(const struct kernel *k)
{
	const struct plan *plan = procs_plan(k->node->procs);

	return node_total(k->node) || k->node->hosts || (plan && plan->n_pods > 0);
}

bool kernel_active(const struct kernel *k)
{
	return k->state == ON && is_wanted(k);
}

bool kernel_loaded(const struct kernel *k)
{
	return k->state != OFF;
}

/* ---- load and unload ---- */

struct load {
	struct task task;
	struct kernel *kernel;
	struct field_error error;
	struct support_copy support;
	struct drain *drain; /* unload: the last one */
	int result;
};

static void load_run(struct task *t)
{
	struct load *l = (struct load *)t;
	struct kernel *k = l->kernel;
	const struct config *conf = k->node->conf;
	struct probe_config c = {
		.hierarchy = k->hierarchy,
		.use_cgroups = node_has_pods(k->node) && k->hierarchy.mount[0],
		.use_list = k->node->hosts != NULL,
		.total = node_total(k->node),
		.per_cpu = conf->on_cpu_per_cpu,
		.max_sample_hz = k->node->hosts ? MAX(conf->max_sample_hz, conf->on_cpu_hz)
						: conf->max_sample_hz,
	};

	l->result = probes_new(&c, &k->probes, &l->error);
	if (l->result == 0)
		support_take(&l->support, k->probes);
}

static void watch_wake(struct kernel *k);

static void load_done(struct task *t)
{
	struct load *l = (struct load *)t;
	struct kernel *k = l->kernel;

	if (t->refused)
		l->result = -ENOBUFS;
	if (l->result < 0) {
		const char *why = *l->error.reason ? l->error.reason : strerror(-l->result);

		k->state = OFF;
		k->retry_ns = now_boot_ns() + RETRY_NS;
		complain(k, "cannot load the BPF programs", why);
		node_problem_all(k->node, "ProfilerNotLoaded", why);
		return;
	}
	k->state = ON;
	k->filter_stale = true;
	k->scanned_ns = 0;
	node_problem_all(k->node, "ProfilerNotLoaded", "");
	support_tell(k, &l->support);
	k->wake_fd = probes_wake_fd(k->probes);
	if (k->node->closing)
		return;
	watch_wake(k);
	kernel_sync(k);
}

static struct load *load_new(struct kernel *k)
{
	struct load *l = xcalloc(1, sizeof(*l));

	l->kernel = k;
	l->task.job.deadline_ns = CHANGE_LIMIT_NS;
	return l;
}

static void load(struct kernel *k)
{
	struct load *l = load_new(k);

	k->state = LOADING;
	l->task.run = load_run;
	l->task.done = load_done;
	task_post(k->node, k->node->os, &l->task, 0);
}

static void unload_run(struct task *t)
{
	struct load *l = (struct load *)t;

	probes_filter(l->kernel->probes, NULL, 0);
	l->result = probes_drain(l->kernel->probes, true, &l->drain);
	l->kernel->probes = probes_free(l->kernel->probes);
}

static void unload_done(struct task *t)
{
	struct load *l = (struct load *)t;
	struct kernel *k = l->kernel;

	if (t->refused) {
		k->state = ON;
		return;
	}
	k->state = OFF;
	if (l->drain)
		drains_add(k->node->drains, l->drain, true);
	if (!k->node->closing)
		kernel_sync(k);
}

static void unload(struct kernel *k)
{
	struct load *l = load_new(k);

	k->state = UNLOADING;
	k->wake = watch_free(k->wake);
	timer_cancel(&k->wake_timer);
	l->task.run = unload_run;
	l->task.done = unload_done;
	task_post(k->node, k->node->os, &l->task, 0);
}

/* ---- filter ---- */

struct push {
	struct task task;
	struct kernel *kernel;
	struct procs_filter *want;
	size_t n;
	struct support_copy support;
	int result;
};

static void push_run(struct task *t)
{
	struct push *p = (struct push *)t;

	p->result = probes_filter(p->kernel->probes, p->want, p->n);
	support_take(&p->support, p->kernel->probes);
}

static void push_done(struct task *t)
{
	struct push *p = (struct push *)t;
	struct kernel *k = p->kernel;

	k->filter_busy = false;
	k->filter_stale |= t->refused;
	free(p->want);
	if (t->refused)
		return;
	support_tell(k, &p->support);
	if (p->result < 0)
		complain(k, "filter", strerror(-p->result));
	if (!k->node->closing)
		kernel_sync(k);
}

static void push_filter(struct kernel *k)
{
	const struct procs_filter *want;
	struct push *p;
	bool changed;
	size_t n;

	if (k->filter_busy)
		return;
	want = procs_filter(k->node->procs, now_boot_ns(), &n, &changed);
	if (!changed && !k->filter_stale)
		return;
	p = xcalloc(1, sizeof(*p));
	p->kernel = k;
	p->want = n ? xmemdup(want, n * sizeof(*want)) : NULL;
	p->n = n;
	p->task.run = push_run;
	p->task.done = push_done;
	p->task.job.deadline_ns = CHANGE_LIMIT_NS;
	k->filter_busy = true;
	k->filter_stale = false;
	task_post(k->node, k->node->os, &p->task, n * sizeof(*want));
}

int kernel_list(struct kernel *k, const struct listed_process *want, size_t n)
{
	return k->probes ? probes_list(k->probes, want, n) : -EAGAIN;
}

/* ---- scan ---- */

struct scan {
	struct task task;
	struct kernel *kernel;
	struct cgroup_scan *found;
	int result;
};

static void scan_run(struct task *t)
{
	struct scan *s = (struct scan *)t;

	s->result = cgroup_scan(&s->kernel->hierarchy, &s->found);
}

static void scan_done(struct task *t)
{
	struct scan *s = (struct scan *)t;
	struct kernel *k = s->kernel;

	k->scan_busy = false;
	k->scanned_ns = now_boot_ns();
	if (s->result < 0)
		complain(k, k->hierarchy.mount, strerror(-s->result));
	if (s->found)
		procs_scanned(k->node->procs, s->found, now_boot_ns());
	cgroup_scan_free(s->found);
	if (!k->node->closing)
		kernel_sync(k);
}

static void scan_again(void *arg)
{
	kernel_sync(arg);
}

static void scan(struct kernel *k)
{
	uint64_t now_ns = now_boot_ns(), wait_ns = k->blind ? SCAN_BLIND_NS : SCAN_NS;
	struct scan *s;

	if (k->scan_busy || !k->hierarchy.mount[0] || !node_has_pods(k->node))
		return;
	if (procs_wants_scan(k->node->procs))
		wait_ns = SCAN_EARLY_NS;
	if (k->scanned_ns && now_ns < k->scanned_ns + wait_ns) {
		timer_set(k->node->loop, &k->scan_timer, k->scanned_ns + wait_ns - now_ns,
			  scan_again, k);
		return;
	}
	s = xcalloc(1, sizeof(*s));
	s->kernel = k;
	s->task.run = scan_run;
	s->task.done = scan_done;
	s->task.job.deadline_ns = CHANGE_LIMIT_NS;
	k->scan_busy = true;
	task_post(k->node, k->node->os, &s->task, 0);
}

void kernel_sync(struct kernel *k)
{
	bool wanted = is_wanted(k);

	if (k->node->closing || !k->node->pipeline)
		return;
	if (k->state == OFF && wanted && now_boot_ns() >= k->retry_ns)
		load(k);
	else if (k->state == ON && !wanted)
		unload(k);
	if (k->state != ON)
		return;
	push_filter(k);
	scan(k);
}

/* ---- drains ---- */

struct draining {
	struct task task;
	struct kernel *kernel;
	bool full;
	struct drain *drain;
	struct probes_stats stats;
	int result, stats_result;
};

static void drain_run(struct task *t)
{
	struct draining *d = (struct draining *)t;

	d->result = probes_drain(d->kernel->probes, d->full, &d->drain);
	d->stats_result = d->full ? probes_stats(d->kernel->probes, &d->stats) : -ENODATA;
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

		procs_cgroup(k->node->procs, c->id, c->parent_id, c->path, c->removed,
			     now_boot_ns());
	}
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
		complain(k, "drain", strerror(-d->result));
	if (d->stats_result == 0) {
		show_stats(&d->stats);
		limit_stats(k->node->limit, &d->stats);
	}
	if (d->drain) {
		cgroups_take(k, d->drain);
		drains_add(k->node->drains, d->drain, d->full);
	}
	if (k->node->closing)
		return;
	if (k->state == ON && !k->wake)
		watch_wake(k);
	kernel_sync(k);
}

static void drain(struct kernel *k, bool full)
{
	struct draining *d = xcalloc(1, sizeof(*d));

	d->kernel = k;
	d->full = full;
	d->task.run = drain_run;
	d->task.done = drain_done;
	d->task.job.deadline_ns = DRAIN_LIMIT_NS;
	k->drain_busy = true;
	task_post(k->node, k->node->os, &d->task, 0);
}

static void wake_late(void *arg)
{
	struct kernel *k = arg;

	if (k->state != ON)
		return;
	if (k->drain_busy)
		watch_wake(k); /* that drain may be past the ring already */
	else
		drain(k, false);
}

/* Readable until the ring is empty: not watched again before a drain has been there. */
static void on_wake(int fd, void *arg)
{
	struct kernel *k = arg;

	(void)fd;
	k->wake = watch_free(k->wake);
	timer_set(k->node->loop, &k->wake_timer, WAKE_DELAY_NS, wake_late, k);
}

static void watch_wake(struct kernel *k)
{
	int r = k->wake ? 0 : watch_new(k->node->loop, k->wake_fd, on_wake, k, &k->wake);

	if (r < 0)
		complain(k, "watching the ring", strerror(-r));
}

static void tick(void *arg)
{
	struct kernel *k = arg;
	struct node *n = k->node;

	timer_set(n->loop, &k->tick, NSEC_PER_SEC - now_wall_ns() % NSEC_PER_SEC + NSEC_PER_MSEC,
		  tick, k);
	counter_set(counter("podflame_loop_stall_longest_ns", NULL, NULL),
		    loop_longest_stall_ns(n->loop));
	if (!n->pipeline)
		return;
	kernel_sync(k);
	if (k->state == ON && !k->drain_busy)
		drain(k, true);
	else if (k->state == ON)
		counter_add(counter("podflame_drains_skipped_total", "reason", "busy"), 1);
	else
		drains_add(n->drains, NULL, true);
	drains_advance(n->drains);
}

/* ---- life ---- */

int kernel_new(struct node *n, struct kernel **ret, struct field_error *reterr)
{
	struct kernel *k = xcalloc(1, sizeof(*k));
	struct field_error err = {0};
	int r = cgroup_choose(n->conf->cgroup_hierarchy, &k->hierarchy, &err);

	k->node = n;
	/* Without Kubernetes nobody asks for cgroups, unless the user said which. */
	if (r < 0 && (node_has_pods(n) || *n->conf->cgroup_hierarchy)) {
		if (reterr)
			*reterr = err;
		free(k);
		return r;
	}
	timer_set(n->loop, &k->tick, 0, tick, k);
	*ret = k;
	return 0;
}

int kernel_load_now(struct kernel *k, struct field_error *reterr)
{
	_cleanup_free_ struct load *l = load_new(k);

	load_run(&l->task);
	if (l->result < 0) {
		if (reterr)
			*reterr = l->error;
		return l->result;
	}
	load_done(&l->task);
	return 0;
}

void kernel_close(struct kernel *k)
{
	struct draining *d;

	k->wake = watch_free(k->wake);
	timer_cancel(&k->tick);
	timer_cancel(&k->wake_timer);
	timer_cancel(&k->scan_timer);
	if (!k->probes)
		return;
	d = xcalloc(1, sizeof(*d));
	d->kernel = k;
	d->full = true;
	d->task.run = drain_run;
	d->task.done = drain_done;
	task_post(k->node, NULL, &d->task, 0);
	k->probes = probes_free(k->probes);
	k->state = OFF;
}

struct kernel *kernel_free(struct kernel *k)
{
	if (!k)
		return NULL;
	k->wake = watch_free(k->wake);
	timer_cancel(&k->tick);
	timer_cancel(&k->wake_timer);
	timer_cancel(&k->scan_timer);
	probes_free(k->probes);
	free(k);
	return NULL;
}
