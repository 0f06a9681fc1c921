/* SPDX-License-Identifier: Apache-2.0 */
/* For *_bench.c: opens probes, and makes a cgroup for this program, whose processes are sampled. */
#pragma once

#include "lib/base/bench.h"
#include "node/probe/probe.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char bench_cgroup[320];

/*
 * Returns probes for the event at hz. *ret_own selects this program's cgroup; the caller passes it
 * to probes_filter().
 */
static inline struct probes *bench_probes(enum event event, unsigned hz,
					  struct container_filter *ret_own)
{
	struct probe_config c = {.use_cgroups = true, .max_sample_hz = hz};
	struct field_error err = {};
	struct probes *p;
	struct stat st;

	if (proc_cgroup_choose("", &c.hierarchy, &err) || probes_new(&c, &p, &err))
		bench_die(err.reason, EINVAL);
	snprintf(bench_cgroup, sizeof(bench_cgroup), "%s/podflame_%s", c.hierarchy.mount,
		 program_invocation_short_name);
	if ((mkdir(bench_cgroup, 0755) && errno != EEXIST) || stat(bench_cgroup, &st))
		bench_die(bench_cgroup, errno);
	*ret_own = (struct container_filter){
		.cgroup_id = st.st_ino, .event_mask = 1u << event, .sample_hz = hz};
	return p;
}

static inline void bench_join(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", bench_cgroup);
	FILE *f = fopen(path, "w");

	if (!f || fprintf(f, "%d", pid) < 0 || fclose(f))
		bench_die(path, errno);
}

/* To be called after the processes of the cgroup have ended. */
static inline void bench_leave(void)
{
	rmdir(bench_cgroup);
}

/* ---- what a program has cost, as the kernel counts it ---- */

struct cost {
	uint64_t ns, runs;
};

static inline struct cost program_cost(int fd)
{
	struct bpf_prog_info info = {};
	uint32_t n = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &n))
		bench_die("program info", errno);
	return (struct cost){info.run_time_ns, info.run_cnt};
}

static inline double ns_a_run(struct cost a, struct cost b)
{
	return b.runs > a.runs ? (double)(b.ns - a.ns) / (b.runs - a.runs) : 0;
}
