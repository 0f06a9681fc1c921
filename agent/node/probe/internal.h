/* SPDX-License-Identifier: Apache-2.0 */
/* internal: what the files of probe/ share and nobody else sees. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <uthash.h>

#include "bpf/abi.h"
#include "node/probe/probe.h"

/* ---- the set that the filter should hold, sorted by key ---- */
struct wanted {
	uint64_t key; /* cgroup id, or tgid */
	uint64_t start_boottime_ns;
	unsigned event_mask, sample_hz;
	bool listed;
};
struct wanted_set {
	struct wanted *items;
	size_t n;
};

/* A cgroup that the kernel selected by itself and that a drain has told of. */
struct told {
	uint64_t id;
	UT_hash_handle hh;
};

/* ---- drain: records of one generation, still growing ---- */
struct pending {
	struct drain *d; /* .frames of stacks are offsets into memory until the end */
	size_t cap_stacks, cap_names, cap_procs, cap_cgroups;
};

/* ---- the event as it ticks ---- */
struct sampler {
	struct bpf_link **links; /* by CPU; NULL: not attached there */
	size_t n_cpus;
	unsigned hz; /* 0: detached */
};

enum feature {
	FEATURE_ON_CPU,
	FEATURE_KERNEL_STACKS,
	FEATURE_PROCESS_EVENTS,
	FEATURE_CGROUP_EVENTS,
	_FEATURE_MAX,
};

#define MAX_PROGRAM_LINKS 8

struct probes {
	struct probe_config config;
	struct pf_config bpf_config;
	struct core_bpf *core;
	struct oncpu_bpf *oncpu;
	struct proc_bpf *proc;
	bool oncpu_loaded;
	struct bpf_link *links[MAX_PROGRAM_LINKS];
	size_t n_links;
	struct support support[_FEATURE_MAX];
	char *reasons[_FEATURE_MAX];

	struct pf_settings *settings; /* mmapped from the kernel */
	int n_possible_cpus;

	struct wanted_set cgroups, list;
	struct told *told;
	struct sampler sampler;

	struct ring_buffer *ring;
	struct pending generations[PF_GENERATIONS]; /* stacks and names */
	struct pending now;			    /* processes and cgroups */
	uint64_t swapped_ns;
	struct pf_stats last_stats; /* what the counters already know */
};

/* load.c: objects, features, log of libbpf */
int objects_load(struct probes *p, struct field_error *reterr);
void objects_unload(struct probes *p);
void feature_missing(struct probes *p, enum feature f, const char *fmt, ...) _printf_(3, 4);

/* filter.c */
void filter_told(struct probes *p, const struct pf_rec_cgroup *r);
void filter_done(struct probes *p);

/* sampler.c: attaches the on-CPU program to every online CPU */
int sampler_start(struct probes *p, unsigned hz);
void sampler_stop(struct probes *p);
int sampler_check_cpus(struct probes *p);

/* drain.c */
int drain_open(struct probes *p);
void drain_close(struct probes *p);

/* stats.c: sums the per-CPU statistics */
int stats_read(struct probes *p, struct pf_stats *ret);
void stats_count_drops(struct probes *p);
