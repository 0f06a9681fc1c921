/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the programs when there is a target, and unloads them after a last drain when there is
 * none. It also reports which features of the kernel work. Calls to the kernel run on the os
 * worker, everything else on the loop thread.
 */
#include "node/kernel/internal.h"

#include <stdlib.h>

#define RETRY_NS (60 * NSEC_PER_SEC)

void kernel_support_take(struct support_copy *c, const struct probes *p)
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

static void add_confinement(struct support_copy *c, const char *feature, const char *problem)
{
	if (c->n < MAX_SUPPORT && problem)
		c->items[c->n++] = (struct support){feature, !*problem, *problem ? problem : NULL};
}

void kernel_support_tell(struct kernel *k, struct support_copy *c)
{
	_cleanup_free_ char *mode = NULL;

	for (size_t i = 0; i < c->n; i++) {
		c->items[i].reason = *c->reasons[i] ? c->reasons[i] : NULL;
		if (streq(c->items[i].feature, "cgroup-events"))
			k->blind = !c->items[i].ok;
	}
	mode = !k->config.hierarchy->mount[0] ? xstrdup("none")
	       : k->config.hierarchy->v2      ? xstrdup("v2")
					      : xasprintf("v1:%s", k->config.hierarchy->controller);
	if (c->n < MAX_SUPPORT)
		c->items[c->n++] = (struct support){
			.feature = "kernel-symbols",
			.ok = !k->symbols_problem[0],
			.reason = k->symbols_problem[0] ? k->symbols_problem : NULL,
		};
	if (c->n < MAX_SUPPORT)
		c->items[c->n++] = (struct support){
			.feature = "process-files",
			.ok = !*proc_mappings_problem(),
			.reason = *proc_mappings_problem() ? proc_mappings_problem() : NULL,
		};
	if (c->n < MAX_SUPPORT)
		c->items[c->n++] = (struct support){
			.feature = "unwind-tables",
			.ok = !k->tables_problem[0],
			.reason = k->tables_problem[0] ? k->tables_problem : NULL,
		};
	add_confinement(c, "own-system-calls", confine_calls_problem());
	add_confinement(c, "own-mounts", confine_mounts_problem());
	add_confinement(c, "own-user", confine_user_problem());
	if (k->config.report)
		report_support(k->config.report, c->items, c->n, mode);
}

struct load {
	struct task task;
	struct kernel *kernel;
	struct field_error error;
	struct support_copy support;
	struct drain *drain; /* at unloading: the last drain */
	int result, tables_result;
};

static void load(struct load *l)
{
	struct kernel *k = l->kernel;
	const struct config *conf = k->config.conf;
	struct probe_config c = {
		.hierarchy = *k->config.hierarchy,
		.use_cgroups = k->config.has_pods && k->config.hierarchy->mount[0],
		.use_list = k->hosts != NULL,
		.total = k->config.total,
		.per_cpu = conf->on_cpu_per_cpu,
		.max_sample_hz =
			k->hosts ? MAX(conf->max_sample_hz, conf->on_cpu_hz) : conf->max_sample_hz,
	};

	l->result = probes_new(&c, &k->probes, &l->error);
	if (l->result < 0)
		return;
	l->tables_result = learn_unwind_new(k->probes, k->config.table_bytes, &k->unwind);
	kernel_support_take(&l->support, k->probes);
}

static void load_run(struct task *t)
{
	work_assert_on(t->work, os);
	load((struct load *)t);
}

static void load_done(struct task *t)
{
	struct load *l = (struct load *)t;
	struct kernel *k = l->kernel;

	if (t->refused)
		l->result = -ENOBUFS;
	if (l->result < 0) {
		const char *why = *l->error.reason ? l->error.reason : strerror(-l->result);

		k->state = OFF;
		k->load_refused = l->result != -ENOBUFS && l->result != -ENOMEM;
		k->retry_ns = now_boot_ns() + RETRY_NS;
		snprintf(k->load_error, sizeof(k->load_error), "%s", why);
		kernel_complain(k, "cannot load the BPF programs", why);
		kernel_tell_targets(k, REASON_PROFILER_NOT_LOADED, why);
		return;
	}
	k->state = ON;
	k->filter_stale = true;
	k->scanned_ns = 0;
	if (k->load_error[0])
		kernel_tell_targets(k, REASON_PROFILER_NOT_LOADED, "");
	k->load_error[0] = '\0';
	k->load_refused = false;
	snprintf(k->tables_problem, sizeof(k->tables_problem), "%s",
		 l->tables_result < 0 ? strerror(-l->tables_result) : "");
	kernel_support_tell(k, &l->support);
	k->wake_fd = probes_wake_fd(k->probes);
	if (k->config.work->closing)
		return;
	kernel_watch_wake(k);
	kernel_sync(k);
}

static struct load *load_new(struct kernel *k)
{
	struct load *l = xcalloc(1, sizeof(*l));

	l->kernel = k;
	l->task.job.deadline_ns = CHANGE_LIMIT_NS;
	return l;
}

void kernel_load(struct kernel *k)
{
	struct load *l = load_new(k);

	assert_se(k->state == OFF && !k->probes);
	k->drain_number = 0;
	k->state = LOADING;
	l->task.run = load_run;
	l->task.done = load_done;
	work_post(k->config.work, k->config.work->os, &l->task, 0);
}

static void unload_run(struct task *t)
{
	struct load *l = (struct load *)t;

	work_assert_on(t->work, os);
	probes_filter(l->kernel->probes, NULL, 0);
	l->result = probes_drain(l->kernel->probes, true, &l->drain);
	l->kernel->unwind = unwind_free(l->kernel->unwind);
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
	counter_set(counter("podflame_bpf_programs", NULL, NULL), 0);
	counter_set(counter("podflame_bpf_links", NULL, NULL), 0);
	counter_set(counter("podflame_node_hz", NULL, NULL), 0);
	k->config.ops->unloaded(k->config.ops_arg);
	if (l->drain)
		k->config.ops->drained(k->config.ops_arg, l->drain, true);
	if (!k->config.work->closing)
		kernel_sync(k);
}

void kernel_unload(struct kernel *k)
{
	struct load *l = load_new(k);

	assert_se(k->state == ON);
	k->state = UNLOADING;
	k->wake = watch_free(k->wake);
	timer_cancel(&k->wake_timer);
	l->task.run = unload_run;
	l->task.done = unload_done;
	work_post(k->config.work, k->config.work->os, &l->task, 0);
}

int kernel_load_now(struct kernel *k, struct field_error *reterr)
{
	_cleanup_free_ struct load *l = load_new(k);

	loop_assert(k->config.work->loop);
	assert_se(k->state == OFF && k->started);
	load(l);
	if (l->result < 0) {
		if (reterr)
			*reterr = l->error;
		return l->result;
	}
	load_done(&l->task);
	return 0;
}
