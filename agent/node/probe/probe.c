// SPDX-License-Identifier: Apache-2.0
/*
 * probe: makes struct probes from the configuration and frees it. It also returns which features
 * work here and what the programs cost.
 */
#include "node/probe/internal.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core.skel.h"
#include "proc.skel.h"

/* The programs of each event. profile_event_info() has the names of events. */
static const struct probe_ops *const table[] = {
	[EVENT_ON_CPU] = &probes_oncpu_ops,
	[EVENT_OFF_CPU] = &probes_offcpu_ops,
	[EVENT_MEM_ALLOC] = &probes_mem_alloc_ops,
	[EVENT_MEM_INUSE] = &probes_mem_inuse_ops,
	[EVENT_HBM_ALLOC] = &probes_hbm_alloc_ops,
	[EVENT_HBM_INUSE] = &probes_hbm_inuse_ops,
	[EVENT_ON_GPU] = &probes_on_gpu_ops,
	[EVENT_RDMA] = &probes_rdma_ops,
	[EVENT_RDMA_LATENCY] = &probes_rdma_latency_ops,
};
_Static_assert(ARRAY_SIZE(table) == _EVENT_MAX, "an event without a probe");

static const char *const feature_names[_FEATURE_MAX] = {
	[FEATURE_KERNEL_STACKS] = "kernel-stacks",     [FEATURE_PROCESS_EVENTS] = "process-events",
	[FEATURE_CGROUP_EVENTS] = "cgroup-events",     [FEATURE_PROCESS_LIST] = "process-list",
	[FEATURE_WHOLE_WAITS] = "off-cpu-whole-waits", [FEATURE_MAPPINGS] = "mapping-checks",
};

static const char *feature_name(int f)
{
	return f < _EVENT_MAX ? profile_event_info(f)->name : feature_names[f];
}

static size_t unselected_bytes(const struct probes *p)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (p->n_possible_cpus * sizeof(struct pf_unselected) + page - 1) / page * page;
}

static int map_mmap(const struct bpf_map *map, size_t bytes, void *ret)
{
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (m == MAP_FAILED)
		return -errno;
	*(void **)ret = m;
	return 0;
}

static int maps_mmap(struct probes *p)
{
	int r = map_mmap(p->core->maps.settings, sysconf(_SC_PAGESIZE), &p->settings);

	if (r)
		return r;
	p->settings->tables = 1; /* 0 is the number that an empty cache of rules has */
	r = map_mmap(p->core->maps.count_shares, PF_GENERATIONS * sizeof(*p->count_shares),
		     &p->count_shares);
	if (r)
		return r;
	r = map_mmap(p->core->maps.total_shares, PF_GENERATIONS * sizeof(*p->total_shares),
		     &p->total_shares);
	if (r)
		return r;
	r = map_mmap(p->core->maps.ring_shares, sizeof(*p->ring_shares), &p->ring_shares);
	if (r)
		return r;
	r = map_mmap(p->core->maps.usage_shares, sizeof(*p->usage_shares), &p->usage_shares);
	if (r)
		return r;
	return map_mmap(p->core->maps.unselected, unselected_bytes(p), &p->unselected);
}

static int probes_open(struct probes *p, struct field_error *reterr)
{
	int r = probes_objects_load(p, reterr);

	if (r)
		return r;
	r = maps_mmap(p);
	if (!r)
		r = probes_counts_open(p);
	/* `total` needs the CPU clock even if nothing is selected. */
	if (!r && p->config.total)
		r = probes_filter(p, NULL, 0);
	if (r)
		field_error_set(reterr, "bpf", "%s", strerror(-r));
	return r;
}

int probes_new(const struct probe_config *c, struct probes **ret, struct field_error *reterr)
{
	struct probes *p = xcalloc(1, sizeof(*p));
	int r;

	p->config = *c;
	probes_tables_open(p);
	if (!p->config.max_sample_hz)
		p->config.max_sample_hz = 199;
	p->n_possible_cpus = libbpf_num_possible_cpus();
	for (int i = 0; i < _FEATURE_MAX; i++)
		p->support[i] = (struct support){feature_name(i), true, NULL};
	for (size_t i = 0; i < _EVENT_MAX; i++)
		p->events[i].ops = table[i];
	if (p->n_possible_cpus < 1) {
		r = p->n_possible_cpus;
		field_error_set(reterr, "/sys/devices/system/cpu/possible", "cannot be read");
	} else {
		r = probes_open(p, reterr);
	}
	if (r) {
		probes_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct probes *probes_free(struct probes *p)
{
	if (!p)
		return NULL;
	for (size_t i = 0; i < _EVENT_MAX; i++)
		probes_event_stop(&p->events[i]);
	probes_counts_close(p);
	probes_filter_done(p);
	probes_shares_done(p);
	probes_tables_close(p);
	probes_tags_close(p);
	if (p->settings)
		munmap(p->settings, sysconf(_SC_PAGESIZE));
	if (p->count_shares)
		munmap(p->count_shares, PF_GENERATIONS * sizeof(*p->count_shares));
	if (p->total_shares)
		munmap(p->total_shares, PF_GENERATIONS * sizeof(*p->total_shares));
	if (p->ring_shares)
		munmap(p->ring_shares, sizeof(*p->ring_shares));
	if (p->usage_shares)
		munmap(p->usage_shares, sizeof(*p->usage_shares));
	if (p->unselected)
		munmap(p->unselected, unselected_bytes(p));
	probes_objects_unload(p);
	for (size_t i = 0; i < _FEATURE_MAX; i++)
		free(p->reasons[i]);
	free(p);
	return NULL;
}

const struct support *probes_support(const struct probes *p, size_t *ret_n)
{
	*ret_n = _FEATURE_MAX;
	return p->support;
}

/* ---- statistics ---- */

int probes_stats_read(struct probes *p, struct pf_stats *ret)
{
	_cleanup_free_ struct pf_stats *cpus = xcalloc(p->n_possible_cpus, sizeof(*cpus));
	struct pf_stats sum = {};
	uint32_t zero = 0;
	int r = bpf_map_lookup_elem(bpf_map__fd(p->core->maps.stats), &zero, cpus);

	if (r)
		return r;
	for (int cpu = 0; cpu < p->n_possible_cpus; cpu++) {
		sum.thinned += cpus[cpu].thinned;
		sum.taken += cpus[cpu].taken;
		sum.delivered += cpus[cpu].delivered;
		sum.crossed += cpus[cpu].crossed;
		sum.contexts_unread += cpus[cpu].contexts_unread;
		sum.contexts_cut += cpus[cpu].contexts_cut;
		sum.usage_full += cpus[cpu].usage_full;
		for (size_t e = 0; e < _PF_EVENT_MAX; e++)
			for (size_t i = 0; i < _PF_DROP_MAX; i++)
				sum.drop[e][i] += cpus[cpu].drop[e][i];
	}
	*ret = sum;
	return 0;
}

void probes_stats_take_drops(struct probes *p, struct drain *d)
{
	static const struct {
		const char *text;
		bool sample;
	} reasons[] = {
#define X(name, reason, is_sample) {reason, is_sample},
		PF_DROP_REASONS(X)
#undef X
	};
	struct pf_stats s;

	if (probes_stats_read(p, &s))
		return;
	for (size_t i = 0; i < _PF_DROP_MAX; i++)
		for (enum event e = 0; e < _EVENT_MAX; e++) {
			uint64_t n = s.drop[e][i] - p->last_stats.drop[e][i];

			if (reasons[i].sample)
				profile_samples_lost(&d->lost, 1u << e, reasons[i].text, n);
			else
				sample_drain_lose_records(d, reasons[i].text, n);
		}
	counter_add(counter("podflame_contexts_failed_total", "reason", "not_in_memory"),
		    s.contexts_unread - p->last_stats.contexts_unread);
	counter_add(counter("podflame_contexts_failed_total", "reason", "too_many_labels"),
		    s.contexts_cut - p->last_stats.contexts_cut);
	counter_add(counter("podflame_usage_full_total", NULL, NULL),
		    s.usage_full - p->last_stats.usage_full);
	p->last_stats = s;
}

/* The kernel counts a program's runs only while kernel.bpf_stats_enabled is 1. */
static void show_program(const struct bpf_program *prog, const struct bpf_prog_info *info)
{
	const char *name = bpf_program__name(prog);

	if (!info->run_cnt)
		return;
	counter_set(counter("bpf_program_run_ns_total", "program", name), info->run_time_ns);
	counter_set(counter("bpf_program_runs_total", "program", name), info->run_cnt);
}

static void program_stats(struct bpf_object *o, struct probes_stats *s)
{
	struct bpf_program *prog;

	if (!o)
		return;
	bpf_object__for_each_program(prog, o)
	{
		struct bpf_prog_info info = {};
		uint32_t n = sizeof(info);
		int fd = bpf_program__fd(prog);

		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &n))
			continue;
		show_program(prog, &info);
		s->n_programs++;
		s->run_ns += info.run_time_ns;
		s->run_count += info.run_cnt;
	}
}

int probes_stats(struct probes *p, struct probes_stats *ret)
{
	struct probes_stats s = {.n_links = p->n_links};
	struct pf_stats k;
	int r = probes_stats_read(p, &k);

	if (r)
		return r;
	for (int cpu = 0; cpu < p->n_possible_cpus; cpu++)
		s.filtered += *(volatile uint64_t *)&p->unselected[cpu].ticks;
	s.thinned = k.thinned;
	s.delivered = k.delivered;
	s.crossed = k.crossed;
	s.ticks = s.filtered + s.thinned + k.taken;
	s.node_hz = p->events[EVENT_ON_CPU].hz;
	program_stats(p->core->obj, &s);
	for (size_t i = 0; i < _EVENT_MAX; i++) {
		uint64_t before_ns = s.run_ns;

		s.n_links += p->events[i].n_links;
		program_stats(p->events[i].obj, &s);
		if (i == EVENT_ON_CPU)
			s.ticks_ns = s.run_ns - before_ns;
	}
	program_stats(p->proc ? p->proc->obj : NULL, &s);
	*ret = s;
	return 0;
}
