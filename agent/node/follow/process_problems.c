/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the problems of the followed processes to the targets. It owns the list of the problems
 * that were reported last. The other files of this module find the problems. Loop thread.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

typedef const char *problem_of(const struct tracked *t); /* NULL: the process has no problem */
/* Adds the containers that have the problem. */
typedef void containers_with(const struct follow *f, struct problem_list *now);

static const char *no_tables(const struct tracked *t)
{
	return t->missing;
}

static const char *not_walked(const struct tracked *t)
{
	return t->runs.problem;
}

static const char *not_named(const struct tracked *t)
{
	return t->runs.unnamed;
}

static const char *not_attached(const struct tracked *t)
{
	return t->java.problem;
}

static const char *not_probed(const struct tracked *t)
{
	return t->probed[PROBES_MEMORY].problem;
}

static const char *gpu_memory_not_probed(const struct tracked *t)
{
	return t->probed[PROBES_GPU_MEMORY].problem;
}

static const char *gpu_not_probed(const struct tracked *t)
{
	return t->probed[PROBES_GPU].problem;
}

static const char *gpu_not_reported(const struct tracked *t)
{
	return t->library_problem;
}

static const char *rdma_not_probed(const struct tracked *t)
{
	return t->probed[PROBES_RDMA].problem;
}

static const char *rdma_latency_not_probed(const struct tracked *t)
{
	return t->probed[PROBES_RDMA_LATENCY].problem;
}

static const char *not_seen(const struct tracked *t)
{
	return t->compared.text;
}

static void without_driver(const struct follow *f, struct problem_list *now)
{
	follow_lacking_tell(f, PROBES_GPU_MEMORY, now);
}

static void without_cuda_driver(const struct follow *f, struct problem_list *now)
{
	follow_lacking_tell(f, PROBES_GPU, now);
}

static void without_verbs(const struct follow *f, struct problem_list *now)
{
	follow_lacking_tell(f, PROBES_RDMA, now);
	follow_lacking_tell(f, PROBES_RDMA_LATENCY, now);
}

static const struct {
	enum reason reason;
	problem_of *texts[2];
	containers_with *containers; /* NULL: it is a problem of processes only */
} kinds[] = {
	{REASON_UNWIND_TABLES_MISSING, {no_tables}, NULL},
	{REASON_RUNTIME_NOT_WALKED, {not_walked}, NULL},
	{REASON_RUNTIME_NOT_NAMED, {not_named}, NULL},
	{REASON_JAVA_ATTACH_FAILED, {not_attached}, NULL},
	{REASON_MEMORY_NOT_SEEN, {not_probed, not_seen}, NULL},
	{REASON_GPU_MEMORY_NOT_SEEN, {gpu_memory_not_probed}, without_driver},
	{REASON_ON_GPU_NOT_SEEN, {gpu_not_probed, gpu_not_reported}, without_cuda_driver},
	{REASON_RDMA_NOT_SEEN, {rdma_not_probed, rdma_latency_not_probed}, without_verbs},
};

struct process_problems {
	struct problem_list last[ARRAY_SIZE(kinds)], parked;
};

static void collect(struct follow *f, struct problem_list *now, problem_of *text)
{
	uint64_t until_ns;

	for (struct tracked *t = f->tracked; t; t = t->hh.next) {
		struct problem what = {.problem = text(t)};
		_cleanup_free_ char *detail = NULL;
		struct owner *o;

		if (!what.problem)
			continue;
		what.detail = detail = xasprintf("process %llu", (unsigned long long)t->id.tgid);
		o = proc_containers_owner(f->config.containers, t->cgroup_id, &until_ns);
		if (o)
			report_problems_add(now, proc_containers_plan(f->config.containers), o,
					    &what);
		proc_owner_unref(o);
	}
}

/*
 * Reports processes with goroutines, because off-cpu does not see those that Go parks. This is no
 * failure: the targets get the text because their users cannot see it otherwise.
 */
static void tell_parked(struct follow *f)
{
	static const struct problem what = {
		.event = "off-cpu",
		.problem = "is that of its threads: goroutines that Go parks itself (channels, "
			   "mutexes, timers, network) are not seen",
	};
	struct problem_list now = {0};
	uint64_t until_ns;

	for (struct tracked *t = f->tracked; t; t = t->hh.next) {
		struct owner *o =
			t->go ? proc_containers_owner(f->config.containers, t->cgroup_id, &until_ns)
			      : NULL;

		if (o && o->event_mask & 1u << EVENT_OFF_CPU)
			report_problems_add(&now, proc_containers_plan(f->config.containers), o,
					    &what);
		proc_owner_unref(o);
	}
	report_problems_tell(&f->problems->parked, &now, f->config.report,
			     REASON_GOROUTINES_NOT_SEEN);
}

void follow_problems_tell(struct follow *f)
{
	if (!f->config.report)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct problem_list now = {0};

		for (size_t k = 0; k < ARRAY_SIZE(kinds[i].texts) && kinds[i].texts[k]; k++)
			collect(f, &now, kinds[i].texts[k]);
		if (kinds[i].containers)
			kinds[i].containers(f, &now);
		report_problems_tell(&f->problems->last[i], &now, f->config.report,
				     kinds[i].reason);
	}
	tell_parked(f);
}

struct process_problems *follow_problems_new(void)
{
	return xcalloc(1, sizeof(struct process_problems));
}

struct process_problems *follow_problems_free(struct process_problems *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		report_problems_done(&p->last[i]);
	report_problems_done(&p->parked);
	free(p);
	return NULL;
}
