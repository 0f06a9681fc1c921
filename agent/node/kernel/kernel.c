/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when programs are loaded and unloaded, keeps the filter in the kernel equal to the plan,
 * and scans for cgroups. It owns struct kernel. load.c loads, drain.c drains. Everything runs on
 * the loop thread, except what is posted to the os worker.
 */
#include "node/kernel/internal.h"

#include <stdlib.h>

#define SCAN_NS	      (30 * NSEC_PER_SEC)
#define SCAN_BLIND_NS (5 * NSEC_PER_SEC) /* time between scans if new cgroups are not reported */
#define SCAN_EARLY_NS (200 * NSEC_PER_MSEC)

void kernel_complain(struct kernel *k, const char *what, const char *why)
{
	_cleanup_free_ char *text = xasprintf("%s: %s", what, why);

	if (streq(text, k->last_error))
		return;
	snprintf(k->last_error, sizeof(k->last_error), "%s", text);
	log_err("%s", text);
}

void kernel_tell_targets(struct kernel *k, enum reason reason, const char *message)
{
	const struct plan *plan = proc_containers_plan(k->config.containers);

	for (size_t i = 0; k->config.report && plan && i < plan->n_targets; i++)
		if (plan->targets[i].containers_planned || !*message)
			report_problem(k->config.report, plan->targets[i].uid, reason, message, 0);
}

bool kernel_is_asked(const struct kernel *k)
{
	return k->config.total || k->hosts;
}

static bool is_selected(const struct kernel *k)
{
	const struct plan *plan = proc_containers_plan(k->config.containers);

	return kernel_is_asked(k) || (plan && plan->n_pods > 0);
}

/*
 * Whether the programs should be loaded. Loading takes a tenth of a second of CPU, and much longer
 * on a busy node. In this time a short job would end. So the agent loads the programs already when
 * a target could select a pod. The built-in target does not count here, because it could always
 * select one.
 */
static bool is_wanted(const struct kernel *k)
{
	const struct plan *plan = proc_containers_plan(k->config.containers);

	if (is_selected(k))
		return true;
	for (size_t i = 0; plan && i < plan->n_targets; i++) {
		const struct plan_target *t = &plan->targets[i];

		if (t->accepted && t->on_this_node && !t->suspended && !t->completed &&
		    !streq(t->uid, "builtin"))
			return true;
	}
	return false;
}

bool kernel_active(const struct kernel *k)
{
	return k->state == ON && is_selected(k);
}

bool kernel_idle(const struct kernel *k)
{
	return !is_selected(k) &&
	       (proc_containers_plan(k->config.containers) || !k->config.has_api_server);
}

bool kernel_loaded(const struct kernel *k)
{
	return k->state != OFF;
}

bool kernel_on(const struct kernel *k)
{
	return k->state == ON;
}

bool kernel_refused(const struct kernel *k)
{
	return k->load_refused;
}

bool kernel_settled(const struct kernel *k)
{
	if (k->state == OFF)
		return !is_wanted(k) || k->load_error[0];
	return k->state == ON && !k->filter_busy && !k->filter_stale;
}

/* ---- filter ---- */

struct push {
	struct task task;
	struct kernel *kernel;
	struct container_filter *want;
	size_t n;
	uint64_t drain_number;
	struct support_copy support;
	int result;
};

/*
 * Has the kernel report the selected processes, so that a process in a newly selected cgroup gets
 * its unwind tables before its first sample. If this fails, the process gets the tables later.
 */
void kernel_announce(struct kernel *k)
{
	work_assert_on(k->config.work, os);
	if (probes_announce(k->probes) < 0)
		counter_add(counter("podflame_process_lists_failed_total", NULL, NULL), 1);
}

static void push_run(struct task *t)
{
	struct push *p = (struct push *)t;

	work_assert_on(t->work, os);
	/*
	 * Drains of the os worker after the filter was made may have found cgroups that this filter
	 * does not contain. These cgroups stay selected.
	 */
	probes_knows(p->kernel->probes, p->drain_number);
	p->result = probes_filter(p->kernel->probes, p->want, p->n);
	if (p->result == 0)
		kernel_announce(p->kernel);
	kernel_support_take(&p->support, p->kernel->probes);
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
	kernel_support_tell(k, &p->support);
	if (p->result < 0)
		kernel_complain(k, "filter", strerror(-p->result));
	if (!k->config.work->closing)
		kernel_sync(k);
}

struct cuts {
	const struct plan *plan;
	struct problem_list now;
};

static void add_cut(uint64_t cgroup_id, struct owner *o, void *arg)
{
	static const struct problem what = {
		.problem = "has more cgroups than the agent's filter has room for"};
	struct cuts *c = arg;

	(void)cgroup_id;
	report_problems_add(&c->now, c->plan, o, &what);
}

/* Tells targets of containers that have cgroups for which the filter has no room. */
static void tell_cuts(struct kernel *k)
{
	struct cuts c = {.plan = proc_containers_plan(k->config.containers)};

	proc_containers_each_cut(k->config.containers, add_cut, &c);
	report_problems_tell(&k->cut, &c.now, k->config.report, REASON_CGROUPS_NOT_SEEN);
}

static void push_filter(struct kernel *k)
{
	const struct container_filter *want;
	struct push *p;
	bool changed;
	size_t n;

	if (k->filter_busy)
		return;
	want = proc_containers_filter(k->config.containers, now_boot_ns(), &n, &changed);
	if (!changed && !k->filter_stale)
		return;
	tell_cuts(k);
	p = xcalloc(1, sizeof(*p));
	p->kernel = k;
	p->want = n ? xmemdup(want, n * sizeof(*want)) : NULL;
	p->n = n;
	p->drain_number = k->drain_number;
	p->task.run = push_run;
	p->task.done = push_done;
	p->task.job.deadline_ns = CHANGE_LIMIT_NS;
	k->filter_busy = true;
	k->filter_stale = false;
	work_post(k->config.work, k->config.work->os, &p->task, n * sizeof(*want));
}

static int list_processes(struct kernel *k, const struct listed_process *want, size_t n)
{
	int r;

	work_assert_on(k->config.work, os);
	r = k->probes ? probes_list(k->probes, want, n) : -EAGAIN;
	if (r == 0)
		kernel_announce(k);
	return r;
}

struct unwind *kernel_unwind(const struct kernel *k)
{
	work_assert_on(k->config.work, os);
	return k->unwind;
}

struct probes *kernel_probes(const struct kernel *k)
{
	return k->probes;
}

struct hosts *kernel_hosts(const struct kernel *k)
{
	return k->hosts;
}

/* ---- scan ---- */

struct cgroups_scan {
	struct task task;
	struct kernel *kernel;
	struct cgroup_scan *found;
	int result;
};

static void scan_run(struct task *t)
{
	struct cgroups_scan *s = (struct cgroups_scan *)t;

	s->result = proc_cgroup_scan(s->kernel->config.hierarchy, &s->found);
}

static void scan_done(struct task *t)
{
	struct cgroups_scan *s = (struct cgroups_scan *)t;
	struct kernel *k = s->kernel;

	k->scan_busy = false;
	k->scanned_ns = now_boot_ns();
	if (s->result < 0)
		kernel_complain(k, k->config.hierarchy->mount, strerror(-s->result));
	if (s->found)
		proc_containers_scanned(k->config.containers, s->found, now_boot_ns());
	proc_cgroup_scan_free(s->found);
	if (!k->config.work->closing)
		kernel_sync(k);
}

static void scan_again(void *arg)
{
	kernel_sync(arg);
}

static void scan(struct kernel *k)
{
	uint64_t now_ns = now_boot_ns(), wait_ns = k->blind ? SCAN_BLIND_NS : SCAN_NS;
	struct cgroups_scan *s;

	if (k->scan_busy || !k->config.hierarchy->mount[0] || !k->config.has_pods)
		return;
	if (proc_containers_wants_scan(k->config.containers))
		wait_ns = SCAN_EARLY_NS;
	if (k->scanned_ns && now_ns < k->scanned_ns + wait_ns) {
		timer_set(k->config.work->loop, &k->scan_timer, k->scanned_ns + wait_ns - now_ns,
			  scan_again, k);
		return;
	}
	s = xcalloc(1, sizeof(*s));
	s->kernel = k;
	s->task.run = scan_run;
	s->task.done = scan_done;
	s->task.job.deadline_ns = CHANGE_LIMIT_NS;
	k->scan_busy = true;
	work_post(k->config.work, k->config.work->os, &s->task, 0);
}

void kernel_sync(struct kernel *k)
{
	bool wanted = is_wanted(k);

	loop_assert(k->config.work->loop);
	if (k->config.work->closing || !k->started)
		return;
	if (k->state == OFF && wanted && k->load_error[0])
		kernel_tell_targets(k, REASON_PROFILER_NOT_LOADED, k->load_error);
	if (k->state == OFF && wanted && now_boot_ns() >= k->retry_ns)
		kernel_load(k);
	else if (k->state == ON && !wanted && k->config.ops->detach(k->config.ops_arg))
		kernel_unload(k);
	if (k->state != ON)
		return;
	push_filter(k);
	scan(k);
}

/* ---- creation and end ---- */

int kernel_new(const struct kernel_config *c, struct kernel **ret, struct field_error *reterr)
{
	struct kernel *k = xcalloc(1, sizeof(*k));
	int r;

	k->config = *c;
	r = c->by_name ? kernel_hosts_new(k, list_processes, &k->hosts, reterr) : 0;
	if (r < 0) {
		free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void kernel_start(struct kernel *k, const char *kernel_symbols_problem)
{
	loop_assert(k->config.work->loop);
	assert_se(!k->started);
	k->started = true;
	snprintf(k->symbols_problem, sizeof(k->symbols_problem), "%s", kernel_symbols_problem);
}

void kernel_close(struct kernel *k)
{
	assert_se(k->config.work->closing);
	k->wake = watch_free(k->wake);
	timer_cancel(&k->wake_timer);
	timer_cancel(&k->scan_timer);
	if (!k->probes)
		return;
	k->left_behind = k->drain_busy || k->state != ON;
	if (k->left_behind)
		return;
	kernel_drain(k, true);
	k->unwind = unwind_free(k->unwind);
	/*
	 * If detach returns false, a thread is blocked in a detach. Then the probes are not freed,
	 * and end with the agent.
	 */
	k->probes = k->config.ops->detach(k->config.ops_arg) ? probes_free(k->probes) : NULL;
	k->state = OFF;
}

struct kernel *kernel_free(struct kernel *k)
{
	if (!k)
		return NULL;
	k->wake = watch_free(k->wake);
	timer_cancel(&k->wake_timer);
	timer_cancel(&k->scan_timer);
	if (k->left_behind)
		return NULL;
	kernel_hosts_free(k->hosts);
	unwind_free(k->unwind);
	probes_free(k->probes);
	report_problems_done(&k->cut);
	kernel_shares_done(&k->shares);
	free(k);
	return NULL;
}
