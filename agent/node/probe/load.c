// SPDX-License-Identifier: Apache-2.0
/*
 * load: loads the BPF objects into the kernel. core owns the maps, and the other objects use them.
 * If the kernel or the agent's capabilities lack something, only the feature that needs it is
 * missing, and its state has the reason.
 */
#include "node/probe/sets.h"

#include <bpf/btf.h>
#include <unistd.h>

#include "core.skel.h"
#include "proc.skel.h"

/*
 * Number of free entries of an LRU hash map that only one CPU can use (kernel/bpf/bpf_lru_list.c).
 * Since 6.16, a small map keeps fewer.
 */
#define LRU_KEPT_BY_A_CPU 128
/* The sizes of maps grow with the number of CPUs and the rate, up to these limits. */
#define COUNTS_MAX     (1u << 20)
#define RING_MAX_BYTES (64u << 20)
#define SEEN_MAX       (1u << 20) /* stacks that the kernel remembers as sent */

/* ---- libbpf's warnings become the reasons of missing features ---- */

static _Thread_local char last_warning[256];

static int keep_warning(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	char line[sizeof(last_warning)];

	/* RLIMIT_MEMLOCK does not limit BPF memory that is charged to the cgroup (since 5.11). */
	if (level != LIBBPF_WARN || strstr(fmt, "RLIMIT_MEMLOCK"))
		return 0;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = 0;
	/* The first warning has the cause; later ones report only that loading failed. */
	if (!last_warning[0])
		snprintf(last_warning, sizeof(last_warning), "%s",
			 line + (str_has_prefix(line, "libbpf: ") ? 8 : 0));
	return 0;
}

void probes_feature_missing(struct probes *p, int f, const char *fmt, ...)
{
	va_list ap;
	char text[512];

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	free(p->reasons[f]);
	p->reasons[f] = xstrdup(text);
	p->support[f].ok = false;
	p->support[f].reason = p->reasons[f];
}

static const char *why(int err)
{
	switch (-err) {
	case EPERM:
	case EACCES:
		return "not permitted: CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, are needed";
	case ENOMEM:
		return "out of memory: BPF maps count against the memory limit of the container";
	}
	return strerror(-err);
}

/* ---- core ---- */

static uint32_t power_of_two(uint64_t at_least, uint64_t min, uint64_t max)
{
	uint64_t n = min;

	while (n < at_least && n < max)
		n *= 2;
	return n;
}

static void core_sizes(struct probes *p)
{
	struct core_bpf *o = p->core;
	const struct probe_config *c = &p->config;
	uint64_t cpus = p->n_possible_cpus, hz = c->max_sample_hz;
	/*
	 * Every tick may have a new key. If one namespace takes all that it gets, an eighth is left
	 * for the others (PF_SHARES_MAX).
	 */
	uint32_t counts =
		c->count_entries ? c->count_entries : power_of_two(cpus * hz * 8, 8192, COUNTS_MAX);
	/* Room for one second in which all ticks have different stacks of 1 KiB. */
	uint32_t ring = c->ring_bytes ? power_of_two(c->ring_bytes, 4096, 1 << 30)
				      : power_of_two(cpus * hz * 1024, 1 << 20, RING_MAX_BYTES);
	uint32_t seen = power_of_two(cpus * 16384, 32768, SEEN_MAX);

	bpf_map__set_max_entries(o->maps.counts_0, counts);
	bpf_map__set_max_entries(o->maps.counts_1, counts);
	bpf_map__set_max_entries(o->maps.totals_0, c->total ? PF_TOTALS_MAX : 1);
	bpf_map__set_max_entries(o->maps.totals_1, c->total ? PF_TOTALS_MAX : 1);
	bpf_map__set_max_entries(o->maps.ring, ring);
	bpf_map__set_max_entries(o->maps.seen, seen);
	bpf_map__set_max_entries(o->maps.unselected, cpus);
	bpf_map__set_max_entries(o->maps.procs, bpf_map__max_entries(o->maps.procs) +
							(uint32_t)cpus * LRU_KEPT_BY_A_CPU);
	if (!c->use_cgroups)
		bpf_map__set_max_entries(o->maps.filter_cgroups, 1);
	if (!c->use_list)
		bpf_map__set_max_entries(o->maps.filter_tgids, 1);
	p->bpf_config.counts_max = counts;
	p->bpf_config.seen_mask = seen - 1;
	p->bpf_config.ring_bytes = ring;
	p->bpf_config.ring_wake_bytes = ring / 2;
}

/*
 * Finds the controller's index into task->cgroups->subsys[], which depends on the kernel's
 * configuration.
 */
static int find_subsys(const struct btf *btf, const char *controller, uint32_t *ret_index)
{
	_cleanup_free_ char *want = xasprintf("%s_cgrp_id", controller);
	int id = btf__find_by_name_kind(btf, "cgroup_subsys_id", BTF_KIND_ENUM);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, id) : NULL;
	const struct btf_enum *values = t ? btf_enum(t) : NULL;

	for (size_t i = 0; t && i < btf_vlen(t); i++)
		if (streq(btf__name_by_offset(btf, values[i].name_off), want)) {
			*ret_index = values[i].val;
			return 0;
		}
	return -ENOENT;
}

static int core_config(struct probes *p, const struct btf *btf)
{
	const struct probe_config *c = &p->config;
	bool v1 = c->hierarchy.mount[0] && !c->hierarchy.v2;

	p->bpf_config = (struct pf_config){
		.use_cgroups = c->use_cgroups,
		.use_list = c->use_list,
		.total = c->total,
		.per_cpu = c->per_cpu,
		.have_hierarchy = c->hierarchy.mount[0] != 0,
		.v2 = c->hierarchy.v2,
		.hierarchy_id = c->hierarchy.hierarchy_id,
	};
	random_bytes(&p->bpf_config.seed, sizeof(p->bpf_config.seed));
	p->bpf_config.tag_seed = probes_tags_seed();
	return v1 ? find_subsys(btf, c->hierarchy.controller, &p->bpf_config.subsys_index) : 0;
}

/* Reads the agent's PID namespace: the programs translate PIDs into that namespace. */
static int who_am_i(struct probes *p)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);
	struct pf_self self;
	uint32_t zero = 0;
	int r;

	r = bpf_prog_test_run_opts(bpf_program__fd(p->core->progs.pf_whoami), &opts);
	if (r)
		return r;
	if (opts.retval)
		return -EIO;
	r = bpf_map_lookup_elem(bpf_map__fd(p->core->maps.self), &zero, &self);
	if (r)
		return r;
	p->bpf_config.pid_level = self.pid_level;
	p->bpf_config.pid_ns_inum = self.pid_ns_inum;
	bpf_program__unload(p->core->progs.pf_whoami);
	return 0;
}

static int core_load(struct probes *p, const struct btf *btf, struct field_error *reterr)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts,
		    .btf_custom_path = probes_kernel_types_path(p->types));
	int r;

	p->core = core_bpf__open_opts(&opts);
	if (!p->core)
		return field_error_set(reterr, "bpf", "cannot open: %s", strerror(errno)), -errno;
	r = core_config(p, btf);
	if (r)
		return field_error_set(
			       reterr, "cgroup",
			       "this kernel's types (BTF) do not say where controller %s is: %s",
			       p->config.hierarchy.controller, strerror(-r)),
		       r;
	core_sizes(p);
	p->core->rodata->pf_config = p->bpf_config;
	r = probes_kernel_types_for(p->types, p->core->obj);
	if (!r)
		r = core_bpf__load(p->core);
	if (!r)
		r = who_am_i(p);
	if (!r)
		r = probes_tags_open(p);
	if (r)
		field_error_set(reterr, "bpf", "%s%s%s", why(r), last_warning[0] ? "; " : "",
				last_warning);
	return r;
}

/* ---- the objects that use core's maps ---- */

int probes_lend_maps(struct probes *p, struct bpf_object *to)
{
	struct bpf_map *m;

	bpf_object__for_each_map(m, to)
	{
		struct bpf_map *own;
		int r;

		if (bpf_map__is_internal(m))
			continue;
		own = bpf_object__find_map_by_name(p->core->obj, bpf_map__name(m));
		if (!own) /* a map that only this event has */
			continue;
		r = bpf_map__reuse_fd(m, bpf_map__fd(own));
		if (r)
			return r;
	}
	return 0;
}

int probes_iterator_run(struct bpf_link *iterator)
{
	_cleanup_close_ int fd = bpf_iter_create(bpf_link__fd(iterator));
	char nothing[64];
	ssize_t n;

	if (fd < 0)
		return -errno;
	do
		n = read(fd, nothing, sizeof(nothing));
	while (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)));
	return n < 0 ? -errno : 0;
}

void probes_feature_works(struct probes *p, int f)
{
	free(p->reasons[f]);
	p->reasons[f] = NULL;
	p->support[f].ok = true;
	p->support[f].reason = NULL;
}

int probes_feature_try(struct probes *p, int f, struct event_probe *e,
		       int (*step)(struct probes *p, struct event_probe *e))
{
	libbpf_print_fn_t before = libbpf_set_print(keep_warning);
	int r;

	last_warning[0] = 0;
	r = step(p, e);
	libbpf_set_print(before);
	if (r)
		probes_feature_missing(p, f, "%s%s%s", why(r), last_warning[0] ? "; " : "",
				       last_warning);
	else
		probes_feature_works(p, f);
	return r;
}

int probes_event_try(struct probes *p, enum event event,
		     int (*step)(struct probes *p, struct event_probe *e))
{
	return probes_feature_try(p, event, &p->events[event], step);
}

#define AGAIN_NS (30 * NSEC_PER_SEC)

uint64_t probes_again_at_ns(int r)
{
	return probes_may_pass(r) ? now_mono_ns() + AGAIN_NS : 0;
}

void probes_event_again_later(struct event_probe *e, int r)
{
	e->again_ns = probes_again_at_ns(r);
}

bool probes_event_again(struct probes *p, struct event_probe *e)
{
	if (!e->hz || !e->again_ns || now_mono_ns() < e->again_ns)
		return false;
	(void)e->ops->attach(p, e); /* the result is in the event's state */
	return true;
}

/*
 * If the kernel lacks a feature, the feature stays missing until the objects are loaded again. So
 * if an error may pass, this function fails, and the caller loads all objects again.
 */
static int events_load(struct probes *p, struct field_error *reterr)
{
	for (int i = 0; i < _EVENT_MAX; i++) {
		int r = probes_event_try(p, i, p->events[i].ops->load);

		p->events[i].loaded = !r;
		if (r && probes_may_pass(r))
			return field_error_set(reterr, profile_event_info(i)->name, "%s",
					       p->reasons[i]),
			       r;
	}
	return 0;
}

/*
 * The programs of proc.bpf.c. They are attached one by one, so that one can fail and the others
 * work.
 */
struct tracer {
	struct bpf_program *program;
	const char *needs; /* name of a type that the kernel's BTF must have */
	enum feature feature;
	bool wanted;
};
#define N_TRACERS 7

static void tracers(struct probes *p, struct tracer ret[N_TRACERS])
{
	const struct probe_config *c = &p->config;
	bool procs = c->use_cgroups || c->use_list;
	struct tracer t[N_TRACERS] = {
		{p->proc->progs.pf_exec, "btf_trace_sched_process_exec", FEATURE_PROCESS_EVENTS,
		 procs},
		{p->proc->progs.pf_exit, "btf_trace_sched_process_exit", FEATURE_PROCESS_EVENTS,
		 procs},
		{p->proc->progs.pf_cgroup_mkdir, "btf_trace_cgroup_mkdir", FEATURE_CGROUP_EVENTS,
		 c->use_cgroups},
		{p->proc->progs.pf_cgroup_rmdir, "btf_trace_cgroup_rmdir", FEATURE_CGROUP_EVENTS,
		 c->use_cgroups},
		{p->proc->progs.pf_cgroup_attach, "btf_trace_cgroup_attach_task",
		 FEATURE_CGROUP_EVENTS, c->use_cgroups},
		{p->proc->progs.pf_fork, "btf_trace_sched_process_fork", FEATURE_CGROUP_EVENTS,
		 c->use_cgroups},
		{p->proc->progs.pf_announce, "bpf_iter__task", FEATURE_PROCESS_LIST, procs},
	};

	memcpy(ret, t, sizeof(t));
}

static bool has_type(const struct btf *btf, const char *name)
{
	return btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF) > 0 ||
	       btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT) > 0;
}

static void tracers_choose(struct probes *p, const struct btf *btf, struct tracer t[N_TRACERS])
{
	for (size_t i = 0; i < N_TRACERS; i++) {
		if (t[i].wanted && !has_type(btf, t[i].needs)) {
			probes_feature_missing(p, t[i].feature, "this kernel's BTF has no %s",
					       t[i].needs);
			t[i].wanted = false;
		}
		bpf_program__set_autoload(t[i].program, t[i].wanted);
	}
}

/* Errors are treated as in events_load(). */
static int tracers_attach(struct probes *p, const struct tracer t[N_TRACERS],
			  struct field_error *reterr)
{
	for (size_t i = 0; i < N_TRACERS; i++) {
		struct bpf_link *l;
		int r;

		if (!t[i].wanted)
			continue;
		l = bpf_program__attach(t[i].program);
		r = l ? 0 : -errno;
		if (r)
			probes_feature_missing(p, t[i].feature, "cannot attach %s: %s",
					       bpf_program__name(t[i].program), why(r));
		else if (t[i].feature == FEATURE_PROCESS_LIST)
			p->announce = l;
		else
			p->links[p->n_links++] = l;
		if (probes_may_pass(r))
			return field_error_set(reterr, "bpf", "%s", p->reasons[t[i].feature]), r;
	}
	return 0;
}

static int proc_load(struct probes *p, const struct btf *btf, struct field_error *reterr)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts,
		    .btf_custom_path = probes_kernel_types_path(p->types));
	struct tracer t[N_TRACERS];
	int r;

	p->proc = proc_bpf__open_opts(&opts);
	if (!p->proc) {
		probes_feature_missing(p, FEATURE_PROCESS_EVENTS, "cannot open: %s", why(-errno));
		probes_feature_missing(p, FEATURE_CGROUP_EVENTS, "cannot open: %s", why(-errno));
		probes_feature_missing(p, FEATURE_PROCESS_LIST, "cannot open: %s", why(-errno));
		return 0;
	}
	p->proc->rodata->pf_config = p->bpf_config;
	tracers(p, t);
	tracers_choose(p, btf, t);
	r = probes_lend_maps(p, p->proc->obj);
	if (!r)
		r = probes_kernel_types_for(p->types, p->proc->obj);
	if (!r)
		r = proc_bpf__load(p->proc);
	if (r) {
		probes_feature_missing(p, FEATURE_PROCESS_EVENTS, "%s; %s", why(r), last_warning);
		probes_feature_missing(p, FEATURE_CGROUP_EVENTS, "%s; %s", why(r), last_warning);
		probes_feature_missing(p, FEATURE_PROCESS_LIST, "%s; %s", why(r), last_warning);
		if (!probes_may_pass(r))
			return 0;
		return field_error_set(reterr, "bpf", "%s", p->reasons[FEATURE_PROCESS_EVENTS]), r;
	}
	return tracers_attach(p, t, reterr);
}

/* ---- all objects ---- */

static int load_all(struct probes *p, const struct btf *btf, struct field_error *reterr)
{
	int r;

	last_warning[0] = 0;
	r = core_load(p, btf, reterr);
	if (r)
		return r;
	p->uprobes = probes_uprobes_new(p->n_possible_cpus);
	r = events_load(p, reterr);
	if (r)
		return r;
	if (btf__find_by_name_kind(btf, "bpf_task_from_pid", BTF_KIND_FUNC) < 0)
		probes_feature_missing(
			p, FEATURE_WHOLE_WAITS,
			"this kernel has no bpf_task_from_pid (6.2): long waits have a larger "
			"error when only a part of the waits is taken");
	last_warning[0] = 0;
	return proc_load(p, btf, reterr);
}

int probes_objects_load(struct probes *p, struct field_error *reterr)
{
	libbpf_print_fn_t before = libbpf_set_print(keep_warning);
	struct btf *btf = btf__load_vmlinux_btf();
	int r;

	if (btf) {
		p->types = probes_kernel_types_new(btf);
		r = load_all(p, btf, reterr);
	} else {
		r = -errno;
		field_error_set(reterr, "bpf", "this kernel has no type information (BTF): %s",
				strerror(-r));
	}
	p->types = probes_kernel_types_free(p->types);
	libbpf_set_print(before);
	return r;
}

void probes_objects_unload(struct probes *p)
{
	for (size_t i = 0; i < p->n_links; i++)
		bpf_link__destroy(p->links[i]);
	p->n_links = 0;
	bpf_link__destroy(p->announce);
	p->announce = NULL;
	for (size_t i = 0; i < _EVENT_MAX; i++)
		if (p->events[i].own)
			p->events[i].ops->unload(&p->events[i]);
	p->uprobes = probes_uprobes_free(p->uprobes);
	proc_bpf__destroy(p->proc);
	core_bpf__destroy(p->core);
	p->proc = NULL;
	p->core = NULL;
}
