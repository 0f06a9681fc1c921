// SPDX-License-Identifier: Apache-2.0
/*
 * oncpu: the CPU clock of every online CPU, ticking only while somebody is
 * selected. Its period is fixed (software clock): 1e9 / hz of CPU time, idle
 * excluded. It ticks at the highest rate asked for; who asked for less is thinned.
 */
#include "node/probe/internal.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "oncpu.skel.h"

#define MAX_CPUS 8192 /* CONFIG_NR_CPUS of x86-64 */
#define TOTAL_HZ 99   /* Total alone: the rate of the built-in target */

_Static_assert((int)EVENT_ON_CPU == (int)PF_EVENT_ON_CPU, "abi");

struct oncpu {
	struct oncpu_bpf *bpf;
	struct bpf_link **links; /* by CPU; NULL: not attached there */
	size_t n_cpus;
};

static int oncpu_load(struct probes *p, struct event_probe *e)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = kernel_types_path(p->types));
	struct oncpu *o = e->own = xcalloc(1, sizeof(*o));
	int r;

	o->n_cpus = MIN(p->n_possible_cpus, MAX_CPUS);
	o->links = xcalloc(o->n_cpus, sizeof(struct bpf_link *));
	o->bpf = oncpu_bpf__open_opts(&opts);
	r = o->bpf ? 0 : -errno;
	if (!r) {
		e->obj = o->bpf->obj;
		o->bpf->rodata->pf_config = p->bpf_config;
		r = lend_maps(p, e->obj);
	}
	if (!r)
		r = kernel_types_for(p->types, e->obj);
	if (!r)
		r = oncpu_bpf__load(o->bpf);
	if (r)
		feature_missing(p, FEATURE_KERNEL_STACKS, "on-cpu does not work");
	return r;
}

static void oncpu_unload(struct event_probe *e)
{
	struct oncpu *o = e->own;

	oncpu_bpf__destroy(o->bpf);
	free(o->links);
	free(o);
	e->own = e->obj = NULL;
}

/* ---- rates ---- */

static unsigned highest_hz(const struct wanted_set *s)
{
	unsigned hz = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].event_mask & 1 << EVENT_ON_CPU && s->items[i].sample_hz > hz)
			hz = s->items[i].sample_hz;
	return hz;
}

static unsigned oncpu_rate(const struct probes *p)
{
	unsigned hz = MAX(highest_hz(&p->cgroups), highest_hz(&p->list));

	return hz || !p->config.total ? hz : MIN(TOTAL_HZ, p->config.max_sample_hz);
}

static void oncpu_fill(const struct event_probe *e, const struct wanted *w, struct pf_filter *f)
{
	f->keep = w->sample_hz >= e->want_hz
			  ? PF_KEEP_ALL
			  : (uint32_t)(((uint64_t)w->sample_hz << 32) / e->want_hz - 1);
	f->period_us = USEC_PER_SEC / w->sample_hz;
}

/* ---- CPUs ---- */

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

static int attach_cpu(struct event_probe *e, size_t cpu)
{
	struct oncpu *o = e->own;
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.size = sizeof(attr),
		.sample_period = NSEC_PER_SEC / e->hz,
		.exclude_idle = 1,
	};
	struct bpf_link *l;
	int fd, r;

	fd = syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	l = bpf_program__attach_perf_event(o->bpf->progs.pf_oncpu, fd);
	if (!l) {
		r = -errno;
		close(fd);
		return r;
	}
	o->links[cpu] = l; /* owns fd */
	e->n_links++;
	return 0;
}

static void detach_cpu(struct event_probe *e, size_t cpu)
{
	struct oncpu *o = e->own;

	bpf_link__destroy(o->links[cpu]);
	o->links[cpu] = NULL;
	e->n_links--;
}

/* Makes the attached CPUs equal to the online ones. The first error is told, the rest is done. */
static int oncpu_check(struct event_probe *e)
{
	_cleanup_free_ bool *online = xcalloc(MAX_CPUS, sizeof(*online));
	struct oncpu *o = e->own;
	int first_error = online_cpus(online);

	if (first_error)
		return first_error;
	for (size_t cpu = 0; cpu < o->n_cpus; cpu++) {
		int r = 0;

		if (!online[cpu] && o->links[cpu])
			detach_cpu(e, cpu);
		else if (online[cpu] && !o->links[cpu])
			r = attach_cpu(e, cpu);
		/* -ENODEV: went offline since the file was read */
		if (r && r != -ENODEV && !first_error)
			first_error = r;
	}
	return first_error;
}

static int oncpu_attach(struct probes *p, struct event_probe *e)
{
	int r;

	__atomic_store_n(&p->settings->node_period_us, USEC_PER_SEC / e->hz, __ATOMIC_RELEASE);
	r = oncpu_check(e);
	if (r)
		feature_missing(p, EVENT_ON_CPU, "perf_event_open: %s", strerror(-r));
	else
		p->support[EVENT_ON_CPU].ok = true;
	return r;
}

static void oncpu_detach(struct event_probe *e)
{
	struct oncpu *o = e->own;

	for (size_t cpu = 0; cpu < o->n_cpus; cpu++)
		if (o->links[cpu])
			detach_cpu(e, cpu);
}

const struct probe_ops oncpu_ops = {
	.load = oncpu_load,
	.unload = oncpu_unload,
	.rate = oncpu_rate,
	.fill = oncpu_fill,
	.attach = oncpu_attach,
	.detach = oncpu_detach,
	.check = oncpu_check,
};
