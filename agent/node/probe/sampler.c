// SPDX-License-Identifier: Apache-2.0
/*
 * sampler: the CPU clock of every online CPU, ticking only while somebody is
 * selected. Its period is fixed (software clock): 1e9 / hz of CPU time, idle
 * excluded.
 */
#include "node/probe/internal.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "oncpu.skel.h"

#define MAX_CPUS 8192 /* CONFIG_NR_CPUS of x86-64 */

/* "0-3,5" -> one byte a CPU. */
static int parse_cpus(char *text, bool online[MAX_CPUS])
{
	char *save = NULL;

	for (char *s = strtok_r(text, ",\n", &save); s; s = strtok_r(NULL, ",\n", &save)) {
		char *dash = strchr(s, '-');
		uint64_t first, last;

		if (dash)
			*dash++ = 0;
		if (str_to_u64(s, MAX_CPUS - 1, &first))
			return -EBADMSG;
		last = first;
		if (dash && str_to_u64(dash, MAX_CPUS - 1, &last))
			return -EBADMSG;
		for (uint64_t cpu = first; cpu <= last; cpu++)
			online[cpu] = true;
	}
	return 0;
}

static int online_cpus(bool online[MAX_CPUS])
{
	_cleanup_free_ char *text = NULL;
	int r = file_read(-1, "/sys/devices/system/cpu/online", 65536, &text, NULL);

	return r ? r : parse_cpus(text, online);
}

static int attach_cpu(struct probes *p, size_t cpu, unsigned hz)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.size = sizeof(attr),
		.sample_period = NSEC_PER_SEC / hz,
		.exclude_idle = 1,
	};
	struct bpf_link *l;
	int fd, r;

	fd = syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	l = bpf_program__attach_perf_event(p->oncpu->progs.pf_oncpu, fd);
	if (!l) {
		r = -errno;
		close(fd);
		return r;
	}
	p->sampler.links[cpu] = l; /* owns fd */
	return 0;
}

static void detach_cpu(struct probes *p, size_t cpu)
{
	bpf_link__destroy(p->sampler.links[cpu]);
	p->sampler.links[cpu] = NULL;
}

/* Makes the attached CPUs equal to the online ones. The first error is told, the rest is done. */
static int attach_online(struct probes *p, unsigned hz)
{
	_cleanup_free_ bool *online = xcalloc(MAX_CPUS, sizeof(*online));
	struct sampler *s = &p->sampler;
	int first_error = online_cpus(online);

	if (first_error)
		return first_error;
	for (size_t cpu = 0; cpu < s->n_cpus; cpu++) {
		int r = 0;

		if (!online[cpu] && s->links[cpu])
			detach_cpu(p, cpu);
		else if (online[cpu] && !s->links[cpu])
			r = attach_cpu(p, cpu, hz);
		/* -ENODEV: went offline since the file was read */
		if (r && r != -ENODEV && !first_error)
			first_error = r;
	}
	return first_error;
}

int sampler_start(struct probes *p, unsigned hz)
{
	struct sampler *s = &p->sampler;
	int r;

	if (!p->oncpu_loaded)
		return -EOPNOTSUPP;
	if (!s->links) {
		s->n_cpus = MIN(p->n_possible_cpus, MAX_CPUS);
		s->links = xcalloc(s->n_cpus, sizeof(struct bpf_link *));
	}
	s->hz = hz;
	__atomic_store_n(&p->settings->node_period_us, USEC_PER_SEC / hz, __ATOMIC_RELEASE);
	r = attach_online(p, hz);
	if (r)
		feature_missing(p, FEATURE_ON_CPU, "perf_event_open: %s", strerror(-r));
	else
		p->support[FEATURE_ON_CPU].ok = true;
	return r;
}

void sampler_stop(struct probes *p)
{
	struct sampler *s = &p->sampler;

	for (size_t cpu = 0; cpu < s->n_cpus; cpu++)
		if (s->links[cpu])
			detach_cpu(p, cpu);
	free(s->links);
	*s = (struct sampler){};
}

int sampler_check_cpus(struct probes *p)
{
	return p->sampler.hz ? attach_online(p, p->sampler.hz) : 0;
}
