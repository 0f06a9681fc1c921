// SPDX-License-Identifier: Apache-2.0
/*
 * sets: the probe sets (probe.h), and what their events have in common. The events of a set share
 * one BPF object. It is loaded when one of them is first wanted, because its programs and maps need
 * memory. attach.c attaches it to processes, and live_memory.c reads the map.
 */
#include "node/probe/sets.h"

#include <unistd.h>

static const struct probe_set_info infos[_PROBES_SET_MAX] = {
	[PROBES_MEMORY] = {"memory", EVENT_MEM_ALLOC, EVENT_MEM_INUSE},
	[PROBES_GPU_MEMORY] = {"gpu_memory", EVENT_HBM_ALLOC, EVENT_HBM_INUSE},
	[PROBES_GPU] = {"gpu", EVENT_ON_GPU, _EVENT_MAX},
	[PROBES_RDMA] = {"rdma", EVENT_RDMA, _EVENT_MAX},
	[PROBES_RDMA_LATENCY] = {"rdma_latency", EVENT_RDMA_LATENCY, _EVENT_MAX},
};
static const struct set_ops *const ops[_PROBES_SET_MAX] = {
	[PROBES_MEMORY] = &probes_memory_set,
	[PROBES_GPU_MEMORY] = &probes_gpu_memory_set,
	[PROBES_GPU] = &probes_gpu_set,
	[PROBES_RDMA] = &probes_rdma_set,
	[PROBES_RDMA_LATENCY] = &probes_rdma_latency_set,
};

const struct probe_set_info *probes_set_info(enum probe_set s)
{
	return &infos[s];
}

unsigned probes_set_events(enum probe_set s)
{
	unsigned live = infos[s].live < _EVENT_MAX ? 1u << infos[s].live : 0;

	return 1u << infos[s].counted | live;
}

enum probe_set probes_set_of(enum event e)
{
	for (enum probe_set s = 0; s < _PROBES_SET_MAX; s++)
		if (probes_set_events(s) & 1u << e)
			return s;
	return _PROBES_SET_MAX;
}

unsigned probes_site_hits(enum probe_set s, const struct pf_site *site, unsigned event_mask)
{
	switch (ops[s]->probed(site, event_mask)) {
	case PROBED_NOT:
		return 0;
	case PROBED_BY_FREE:
	case PROBED_AT_ENTRY:
	case PROBED_AS_OBJECT:
		return 1;
	case PROBED_AT_BOTH:
	case PROBED_AS_QUERY:
		break;
	}
	return 2;
}

/* ---- what all sets share ---- */

struct uprobes *probes_uprobes_new(int n_cpus)
{
	struct uprobes *u = xcalloc(1, sizeof(*u));

	u->mode = probes_uprobe_mode();
	u->max_single = UPROBE_SINGLE_MAX_OF_ATTACH;
	u->n_cpus = n_cpus;
	u->returns = -EAGAIN;
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++) {
		struct probe_set_state *s = &u->sets[i];

		s->info = &infos[i];
		s->ops = ops[i];
		s->uprobes = u;
		pthread_mutex_init(&s->lock, NULL);
		(void)probes_slept_now(&s->slept);
	}
	return u;
}

struct uprobes *probes_uprobes_free(struct uprobes *u)
{
	if (!u)
		return NULL;
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++) {
		pthread_mutex_destroy(&u->sets[i].lock);
		profile_losses_done(&u->sets[i].lost);
	}
	if (u->trap_link > 0)
		close(u->trap_link);
	free(u);
	return NULL;
}

/* ---- a set's object ---- */

static enum probe_set set_of(const struct probes *p, const struct event_probe *e)
{
	return probes_set_of((enum event)(e - p->events));
}

int probes_set_open(struct probes *p, struct event_probe *e)
{
	if (p->uprobes->mode == UPROBE_NONE)
		return -EOPNOTSUPP;
	e->own = &p->uprobes->sets[set_of(p, e)];
	return 0;
}

struct probe_set_state *probes_set_loaded(struct probes *p, enum probe_set set)
{
	struct probe_set_state *s = p->events[infos[set].counted].own;

	return s && __atomic_load_n(&s->loaded, __ATOMIC_ACQUIRE) ? s : NULL;
}

int probes_set_missing(struct probes *p, enum probe_set set)
{
	struct probe_set_state *s = p->events[infos[set].counted].own;
	int r = s ? __atomic_load_n(&s->load_error, __ATOMIC_ACQUIRE) : 0;

	if (!s)
		return -EOPNOTSUPP;
	return !r ? -EAGAIN : probes_may_pass(r) ? r : -EOPNOTSUPP;
}

/*
 * Selects which programs for links of many places will be loaded: those that the form of probes on
 * this kernel needs, as far as the set has them.
 */
static void choose_form(const struct set_object *o, enum uprobe_mode mode, bool has_entries)
{
	const bool used[] = {
		[PROGRAM_FREE] = mode != UPROBE_SINGLE,
		[PROGRAM_RETURN] = mode == UPROBE_MULTI,
		[PROGRAM_SESSION] = mode == UPROBE_SESSION,
		[PROGRAM_ENTRY] = mode == UPROBE_MULTI || (mode == UPROBE_SESSION && has_entries),
	};

	for (size_t i = 0; i < _PROGRAM_MAX; i++) {
		if (!o->of_many[i])
			continue;
		bpf_program__set_autoload(o->of_many[i], used[i]);
		bpf_program__set_expected_attach_type(o->of_many[i], i == PROGRAM_SESSION
									     ? ATTACH_UPROBE_SESSION
									     : ATTACH_UPROBE_MULTI);
	}
}

/* Returns the program's descriptor, or -1 if the program is not loaded. */
static int loaded_fd(const struct bpf_program *program)
{
	return program && bpf_program__autoload(program) ? bpf_program__fd(program) : -1;
}

static void take_descriptors(struct probe_set_state *s)
{
	const struct set_object *o = &s->object;

	for (size_t i = 0; i < _PROGRAM_MAX; i++) {
		s->of_many[i] = loaded_fd(o->of_many[i]);
		s->of_one[i] = loaded_fd(o->of_one[i]);
	}
	s->procs = bpf_map__fd(o->procs);
	s->pending = bpf_map__fd(o->pending);
	s->live = bpf_map__fd(o->live);
}

/*
 * Loads the set's object. The programs for probes of one place are always loaded, because attach.c
 * uses them if links of many places cannot work.
 */
static int object_load(struct probes *p, struct probe_set_state *s)
{
	int r = s->ops->open(s, &p->bpf_config);

	if (r)
		return r;
	choose_form(&s->object, p->uprobes->mode, s->ops->has_entries);
	r = probes_lend_maps(p, s->object.obj);
	if (!r)
		r = bpf_object__load_skeleton(s->object.skeleton);
	if (r)
		s->ops->destroy(s);
	return r;
}

static int set_load(struct probes *p, struct event_probe *e)
{
	struct probe_set_state *s = e->own;
	int r;

	if (s->loaded) /* another event has loaded it */
		return 0;
	r = object_load(p, s);
	if (r)
		return r;
	take_descriptors(s);
	p->events[s->info->counted].obj = s->object.obj;
	__atomic_store_n(&s->loaded, true, __ATOMIC_RELEASE); /* other threads may attach now */
	return 0;
}

void probes_set_unload(struct event_probe *e)
{
	struct probe_set_state *s = e->own;

	if (s->loaded)
		s->ops->destroy(s);
	s->loaded = false;
	e->own = e->obj = NULL;
}

/* ---- events ---- */

/* Tries whether probed returns are safe. After an error that may pass, this is still not known. */
static int try_returns(struct uprobes *u, struct event_probe *e)
{
	int r = u->returns_tried ? u->returns : probes_uprobe_try_return(u->mode);

	probes_event_again_later(e, r);
	u->returns_tried = !probes_may_pass(r);
	__atomic_store_n(&u->returns, r, __ATOMIC_RELEASE);
	return r;
}

static int need_returns(struct probes *p, struct event_probe *e)
{
	int event = (int)(e - p->events), r = try_returns(p->uprobes, e);

	if (!r)
		return 0;
	if (r == -EPERM)
		probes_feature_missing(
			p, event,
			"on this kernel a probed return kills a process with a seccomp "
			"filter: 6.14 and later are safe");
	else
		probes_feature_missing(
			p, event,
			"podflame could not try whether probed returns are safe on this kernel: %s",
			strerror(-r));
	return -EOPNOTSUPP;
}

/*
 * Loads the object, because the event is wanted. It attaches no uprobe: probes_attach() does that
 * for each process.
 */
int probes_set_attach(struct probes *p, struct event_probe *e)
{
	struct probe_set_state *s = e->own;
	enum event event = e - p->events;
	int r = probes_event_try(p, event, set_load);

	__atomic_store_n(&s->load_error, r, __ATOMIC_RELEASE);
	probes_event_again_later(e, r);
	return !r && s->ops->need_returns & 1u << event ? need_returns(p, e) : r;
}

const struct shared_tables *probes_set_shares(const struct event_probe *e)
{
	const struct probe_set_state *s = e->own;

	return &s->shares;
}

void probes_set_detach(struct event_probe *e)
{
	(void)e;
}

/* Updates the number of links. The links of the set are counted at one of its events only. */
int probes_set_check(struct probes *p, struct event_probe *e)
{
	struct probe_set_state *s = e->own;

	if (e == &p->events[s->info->counted])
		e->n_links = __atomic_load_n(&s->n_links, __ATOMIC_RELAXED);
	return 0;
}
