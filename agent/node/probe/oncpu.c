// SPDX-License-Identifier: Apache-2.0
/*
 * oncpu: samples by the CPU clock of every online CPU. The clock ticks only while something is
 * selected. Its period is fixed (software clock): 1e9 / hz ns of CPU time, without idle time. The
 * clock ticks at the highest rate that is asked for. A process that wants a lower rate gets only
 * some of its samples, chosen at random.
 */
#include "node/probe/internal.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "oncpu.skel.h"

/* what a user can do against EACCES */
#define NEEDS_ADMIN                                                                                \
	" (the agent needs SYS_ADMIN, or the node needs the sysctl kernel.perf_event_paranoid=2)"

#define MAX_CPUS  8192 /* the most that CONFIG_NR_CPUS of x86-64 can be */
#define TOTAL_HZ  99   /* the rate if only `total` wants the event: that of the built-in target */
#define BEHIND_NS (100 * NSEC_PER_MSEC)

_Static_assert((int)EVENT_ON_CPU == (int)PF_EVENT_ON_CPU, "abi");

struct oncpu_cpu {
	struct bpf_link *link; /* NULL: not attached to this CPU */
	int fd;		       /* descriptor of the perf event, which the link owns */
	uint64_t enabled_ns;   /* how long the event had been enabled at the last check */
	uint64_t looked_ns;    /* CLOCK_MONOTONIC at the last check */
};
struct oncpu {
	struct oncpu_bpf *bpf;
	struct oncpu_cpu *cpus;
	size_t n_cpus;
};

static int oncpu_load(struct probes *p, struct event_probe *e)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts,
		    .btf_custom_path = probes_kernel_types_path(p->types));
	struct oncpu *o = e->own = xcalloc(1, sizeof(*o));
	int r;

	o->n_cpus = MIN(p->n_possible_cpus, MAX_CPUS);
	o->cpus = xcalloc(o->n_cpus, sizeof(*o->cpus));
	o->bpf = oncpu_bpf__open_opts(&opts);
	r = o->bpf ? 0 : -errno;
	if (!r) {
		e->obj = o->bpf->obj;
		o->bpf->rodata->pf_config = p->bpf_config;
		r = probes_lend_maps(p, e->obj);
	}
	if (!r)
		r = probes_kernel_types_for(p->types, e->obj);
	if (!r)
		r = oncpu_bpf__load(o->bpf);
	if (r)
		probes_feature_missing(p, FEATURE_KERNEL_STACKS, "on-cpu does not work");
	return r;
}

static void oncpu_unload(struct event_probe *e)
{
	struct oncpu *o = e->own;

	oncpu_bpf__destroy(o->bpf);
	free(o->cpus);
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

static void oncpu_fill(const struct event_probe *e, const struct wanted_events *w,
		       struct pf_filter *f)
{
	f->keep = w->sample_hz >= e->want_hz
			  ? PF_KEEP_ALL
			  : (uint32_t)(((uint64_t)w->sample_hz << 32) / e->want_hz - 1);
	f->period_us = USEC_PER_SEC / w->sample_hz;
}

/* ---- CPUs ---- */

/* Parses "0-3,5" into one byte for each CPU. */
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
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
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
	o->cpus[cpu] = (struct oncpu_cpu){.link = l, .fd = fd, .looked_ns = now_mono_ns()};
	e->n_links++;
	return 0;
}

static void detach_cpu(struct event_probe *e, size_t cpu)
{
	struct oncpu *o = e->own;

	bpf_link__destroy(o->cpus[cpu].link);
	o->cpus[cpu] = (struct oncpu_cpu){};
	e->n_links--;
}

/* Reads how long the event has been enabled. */
static int enabled_time(const struct oncpu_cpu *c, uint64_t *ret_ns)
{
	struct {
		uint64_t count, enabled_ns;
	} v;
	ssize_t n = read(c->fd, &v, sizeof(v));

	if (n < 0)
		return -errno;
	if (n != 0 && n != sizeof(v))
		return -EIO;
	/* read 0 bytes: the event is in an error state, and its time stands still */
	*ret_ns = n ? v.enabled_ns : c->enabled_ns;
	return 0;
}

/*
 * Returns whether the event does not tick any more. A CPU that goes offline removes its events and
 * does not restore them. So if a CPU was offline between two checks, its event is stopped. This
 * happens to all CPUs but the first while the machine is suspended. The enabled time of such an
 * event stands still. The event's clock may also fall behind CLOCK_MONOTONIC, for example in a
 * virtual machine that was paused. So an event that is behind is read once more: it is stopped only
 * if its time does not move.
 */
static bool is_stopped(struct oncpu_cpu *c)
{
	uint64_t before_ns = now_mono_ns(), was_ns = c->enabled_ns, now_ns;

	if (enabled_time(c, &c->enabled_ns))
		return false; /* it is not known how long the event was enabled */
	if (c->enabled_ns - was_ns + BEHIND_NS >= before_ns - c->looked_ns) {
		c->looked_ns = now_mono_ns();
		return false;
	}
	c->looked_ns = now_mono_ns();
	return !enabled_time(c, &now_ns) && now_ns == c->enabled_ns;
}

static int check_cpu(struct event_probe *e, size_t cpu, bool online)
{
	struct oncpu_cpu *c = &((struct oncpu *)e->own)->cpus[cpu];
	int r = 0;

	if (c->link && !online) {
		detach_cpu(e, cpu);
	} else if (c->link && is_stopped(c)) {
		detach_cpu(e, cpu);
		counter_add(counter("podflame_cpus_reattached_total", NULL, NULL), 1);
	}
	if (!c->link && online)
		r = attach_cpu(e, cpu);
	/* the CPU went offline after the list of online CPUs was read */
	return r == -ENODEV ? 0 : r;
}

/*
 * Attaches to all online CPUs, and detaches from the others. If this fails for a CPU, goes on with
 * the rest, and returns the first error.
 */
static int oncpu_check(struct probes *p, struct event_probe *e)
{
	_cleanup_free_ bool *online = xcalloc(MAX_CPUS, sizeof(*online));
	struct oncpu *o = e->own;
	int first_error = online_cpus(online);
	size_t n_failed = 0, first = 0;

	if (first_error) {
		probes_feature_missing(p, EVENT_ON_CPU, "which CPUs are online cannot be read: %s",
				       strerror(-first_error));
		return first_error;
	}
	for (size_t cpu = 0; cpu < o->n_cpus; cpu++) {
		int r = check_cpu(e, cpu, online[cpu]);

		if (r && !n_failed++) {
			first_error = r;
			first = cpu;
		}
	}
	if (n_failed)
		probes_feature_missing(
			p, EVENT_ON_CPU,
			"%zu of %zu CPUs are not sampled: perf event on CPU %zu: %s%s", n_failed,
			n_failed + e->n_links, first, strerror(-first_error),
			first_error == -EACCES ? NEEDS_ADMIN : "");
	else
		probes_feature_works(p, EVENT_ON_CPU);
	return first_error;
}

static int oncpu_attach(struct probes *p, struct event_probe *e)
{
	__atomic_store_n(&p->settings->node_period_us, USEC_PER_SEC / e->hz, __ATOMIC_RELEASE);
	return oncpu_check(p, e); /* the result is in the event's state */
}

static void oncpu_detach(struct event_probe *e)
{
	struct oncpu *o = e->own;

	for (size_t cpu = 0; cpu < o->n_cpus; cpu++)
		if (o->cpus[cpu].link)
			detach_cpu(e, cpu);
}

const struct probe_ops probes_oncpu_ops = {
	.load = oncpu_load,
	.unload = oncpu_unload,
	.rate = oncpu_rate,
	.fill = oncpu_fill,
	.attach = oncpu_attach,
	.detach = oncpu_detach,
	.check = oncpu_check,
};
