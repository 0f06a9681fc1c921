/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whose the samples and the processes of a drain are. Loop thread. */
#include "node/pipeline/internal.h"

#include <stdlib.h>

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Returns the cgroup ids of the samples, each once. Adjacent samples usually have the same id. */
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

void pipeline_attribute(struct pipeline *p, struct feed *f)
{
	struct hosts *hosts = kernel_hosts(p->config.kernel);
	size_t n_ids;
	_cleanup_free_ uint64_t *ids = distinct_cgroups(f->drain, &n_ids);

	f->owners = xcalloc(n_ids + 1, sizeof(*f->owners));
	for (size_t i = 0; i < n_ids; i++) {
		struct attribution a = {.cgroup_id = ids[i]};

		a.owner = proc_containers_owner(p->config.containers, ids[i], &a.until_ns);
		for (enum event e = 0; !f->whole && e < _EVENT_MAX; e++) {
			struct estimate x = limit_estimate(p->config.limit, ids[i], e);

			a.share_ppm[e] = x.ppm;
			a.error_ppm[e] = x.error_ppm;
		}
		if (a.owner)
			f->owners[f->n_owners++] = a;
	}
	if (hosts) {
		f->hosts = kernel_hosts_list(hosts);
		f->host_names = hosts;
	}
}

void pipeline_charge_processes(const struct pipeline *p, struct feed *f)
{
	const struct drain *d = f->drain;

	f->proc_ns = xcalloc(d->n_procs + 1, sizeof(*f->proc_ns));
	for (size_t i = 0; i < d->n_procs; i++)
		f->proc_ns[i] =
			proc_containers_charged(p->config.containers, d->procs[i].cgroup_id).ns;
}
