/* SPDX-License-Identifier: Apache-2.0 */
/* Has the os worker read how much CPU time pods have used. */
#include "node/scrape/internal.h"

#include <stdlib.h>

#define READ_LIMIT_NS (10 * NSEC_PER_SEC) /* if it takes longer, /healthz fails */

struct cpu_reading {
	struct task task;
	const struct scrape_config *config;
	struct cpu_of_pod *pods;
	size_t n;
	cpu_read_fn *done;
	void *arg;
};

static void reading_run(struct task *task)
{
	struct cpu_reading *r = (struct cpu_reading *)task;
	const struct cgroup_hierarchy *h = r->config->hierarchy;

	for (size_t i = 0; i < r->n && *h->mount; i++)
		for (size_t k = 0; k < r->pods[i].n; k++) {
			struct cgroup_cpu cpu;

			if (proc_cgroup_cpu_read(h, r->pods[i].cgroups[k], &cpu) == 0)
				r->pods[i].used_ns += cpu.usage_ns;
		}
}

static void free_pods(struct cpu_of_pod *pods, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(pods[i].uid);
		free(pods[i].cgroups);
	}
	free(pods);
}

static void reading_done(struct task *task)
{
	struct cpu_reading *r = (struct cpu_reading *)task;

	if (!task->work->closing)
		r->done(r->pods, task->refused ? 0 : r->n, r->arg);
	free_pods(r->pods, r->n);
}

static void add_cgroup(uint64_t cgroup_id, struct owner *o, void *arg)
{
	struct cpu_reading *r = arg;

	for (size_t i = 0; i < r->n; i++) {
		struct cpu_of_pod *p = &r->pods[i];

		if (!str_equal(o->pod_uid, p->uid))
			continue;
		GROW(p->cgroups, p->n, p->cap);
		p->cgroups[p->n++] = cgroup_id;
	}
}

void scrape_read_cpu(const struct scrape_config *c, struct cpu_of_pod *pods, size_t n,
		     cpu_read_fn *done, void *arg)
{
	struct cpu_reading *r;

	if (!n) {
		free_pods(pods, n);
		return;
	}
	r = xcalloc(1, sizeof(*r));
	*r = (struct cpu_reading){.config = c, .pods = pods, .n = n, .done = done, .arg = arg};
	proc_containers_each_container(c->containers, add_cgroup, r);
	r->task.run = reading_run;
	r->task.done = reading_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	work_post(c->work, c->work->os, &r->task, n * sizeof(*pods));
}
