// SPDX-License-Identifier: Apache-2.0
/*
 * memory: the events mem-alloc and mem-inuse: what selected processes allocate, and which of that
 * memory lives. Both events share one BPF object. It is loaded when one of the events is first
 * wanted, because its map of living memory needs 12 MiB. attach.c attaches it to processes, and
 * live_memory.c reads the map.
 */
#include "node/probe/sets.h"

#include <unistd.h>

#include "memory.skel.h"

_Static_assert((int)EVENT_MEM_ALLOC == (int)PF_EVENT_MEM_ALLOC, "abi");
_Static_assert((int)EVENT_MEM_INUSE == (int)PF_EVENT_MEM_INUSE, "abi");

/* The data of both events is `own` of mem-alloc. */
static struct memory_probes *own(struct probes *p)
{
	return p->events[EVENT_MEM_ALLOC].own;
}

struct memory_probes *probes_memory_of(struct probes *p)
{
	struct memory_probes *m = own(p);

	return m && __atomic_load_n(&m->bpf, __ATOMIC_ACQUIRE) ? m : NULL;
}

int probes_memory_missing(struct probes *p)
{
	struct memory_probes *m = own(p);
	int r = m ? __atomic_load_n(&m->load_error, __ATOMIC_ACQUIRE) : 0;

	if (!m || m->mode == UPROBE_NONE)
		return -EOPNOTSUPP;
	return !r ? -EAGAIN : probes_may_pass(r) ? r : -EOPNOTSUPP;
}

const char *probes_uprobe_form(const struct probes *p)
{
	static const char *const forms[] = {
		[UPROBE_NONE] = "none: not permitted, or this kernel has none",
		[UPROBE_SINGLE] =
			"one perf event per place (before 6.6): at most 128 places per process",
		[UPROBE_MULTI] = "one link for many places of a file (6.6)",
		[UPROBE_SESSION] = "one link for many places and their returns (6.13)",
	};
	const struct memory_probes *m = p->events[EVENT_MEM_ALLOC].own;

	return forms[m ? m->mode : UPROBE_NONE];
}

static int memory_open(struct probes *p, struct event_probe *e)
{
	struct memory_probes *m = xcalloc(1, sizeof(*m));

	pthread_mutex_init(&m->lock, NULL);
	m->mode = probes_uprobe_mode();
	m->max_single = UPROBE_SINGLE_MAX_OF_ATTACH;
	m->returns = -EAGAIN;
	m->n_cpus = p->n_possible_cpus;
	(void)probes_slept_now(&m->slept);
	e->own = m;
	return m->mode == UPROBE_NONE ? -EOPNOTSUPP : 0;
}

static int memory_shared(struct probes *p, struct event_probe *e)
{
	(void)e;
	return p->events[EVENT_MEM_ALLOC].loaded ? 0 : -EOPNOTSUPP;
}

/*
 * The programs for probes of one place are always loaded, because attach.c uses them if links of
 * many places cannot work.
 */
static void choose_form(struct memory_probes *m, struct memory_bpf *o)
{
	bool session = m->mode == UPROBE_SESSION, single = m->mode == UPROBE_SINGLE;

	bpf_program__set_autoload(o->progs.pf_mem_session, session);
	bpf_program__set_autoload(o->progs.pf_mem_return, !session && !single);
	bpf_program__set_autoload(o->progs.pf_mem_entry, !single);
	bpf_program__set_autoload(o->progs.pf_mem_free, !single);
	bpf_program__set_expected_attach_type(o->progs.pf_mem_session, ATTACH_UPROBE_SESSION);
	bpf_program__set_expected_attach_type(o->progs.pf_mem_entry, ATTACH_UPROBE_MULTI);
	bpf_program__set_expected_attach_type(o->progs.pf_mem_return, ATTACH_UPROBE_MULTI);
	bpf_program__set_expected_attach_type(o->progs.pf_mem_free, ATTACH_UPROBE_MULTI);
}

/* Returns the program's descriptor, or -1 if the program is not loaded. */
static int loaded_fd(const struct bpf_program *program)
{
	return bpf_program__autoload(program) ? bpf_program__fd(program) : -1;
}

static void take_descriptors(struct memory_probes *m, struct memory_bpf *o)
{
	const int of_one[] = {
		[MEMORY_FREE] = bpf_program__fd(o->progs.pf_mem_1_free),
		[MEMORY_RETURN] = bpf_program__fd(o->progs.pf_mem_1_return),
		[MEMORY_SESSION] = -1,
		[MEMORY_ENTRY] = bpf_program__fd(o->progs.pf_mem_1_entry),
	};
	const int of_many[] = {
		[MEMORY_FREE] = loaded_fd(o->progs.pf_mem_free),
		[MEMORY_RETURN] = loaded_fd(o->progs.pf_mem_return),
		[MEMORY_SESSION] = loaded_fd(o->progs.pf_mem_session),
		[MEMORY_ENTRY] = loaded_fd(o->progs.pf_mem_entry),
	};

	memcpy(m->programs_of_one, of_one, sizeof(of_one));
	memcpy(m->programs, m->mode == UPROBE_SINGLE ? of_one : of_many, sizeof(of_many));
	m->procs = bpf_map__fd(o->maps.mem_procs);
	m->live = bpf_map__fd(o->maps.live);
	m->pending = bpf_map__fd(o->maps.pending);
	m->live_stats = bpf_map__fd(o->maps.live_stats);
}

static int memory_load(struct probes *p, struct event_probe *e)
{
	struct memory_probes *m = own(p);
	struct memory_bpf *o;
	int r;

	(void)e;
	if (m->bpf) /* the other event has loaded it */
		return 0;
	o = memory_bpf__open();
	if (!o)
		return -errno;
	choose_form(m, o);
	o->rodata->pf_config = p->bpf_config;
	r = probes_lend_maps(p, o->obj);
	if (!r)
		r = memory_bpf__load(o);
	if (r) {
		memory_bpf__destroy(o);
		return r;
	}
	take_descriptors(m, o);
	p->events[EVENT_MEM_ALLOC].obj = o->obj;
	__atomic_store_n(&m->bpf, o, __ATOMIC_RELEASE); /* other threads may attach from now on */
	return 0;
}

/*
 * Loads the object, because the event is wanted. It attaches no uprobe: probes_attach() does that
 * for each process.
 */
static int memory_attach(struct probes *p, struct event_probe *e)
{
	struct memory_probes *m = own(p);
	int r = probes_event_try(p, e - p->events, memory_load);

	__atomic_store_n(&m->load_error, r, __ATOMIC_RELEASE);
	probes_event_again_later(e, r);
	return r;
}

/* Tries whether probed returns are safe. After an error that may pass, this is still not known. */
static int try_returns(struct memory_probes *m, struct event_probe *e)
{
	int r = m->returns_tried ? m->returns : probes_uprobe_try_return(m->mode);

	probes_event_again_later(e, r);
	m->returns_tried = !probes_may_pass(r);
	__atomic_store_n(&m->returns, r, __ATOMIC_RELEASE);
	return r;
}

static int inuse_attach(struct probes *p, struct event_probe *e)
{
	struct memory_probes *m = own(p);
	int r = memory_attach(p, e);

	if (r)
		return r;
	r = try_returns(m, e);
	if (!r)
		return 0;
	if (r == -EPERM)
		probes_feature_missing(
			p, EVENT_MEM_INUSE,
			"on this kernel a probed return kills a process with a seccomp "
			"filter: 6.14 and later are safe");
	else
		probes_feature_missing(
			p, EVENT_MEM_INUSE,
			"podflame could not try whether probed returns are safe on this kernel: %s",
			strerror(-r));
	return -EOPNOTSUPP;
}

static void memory_detach(struct event_probe *e)
{
	(void)e;
}

static int memory_check(struct probes *p, struct event_probe *e)
{
	struct memory_probes *m = e->own;

	(void)p;
	if (m)
		e->n_links = __atomic_load_n(&m->n_links, __ATOMIC_RELAXED);
	return 0;
}

static void memory_unload(struct event_probe *e)
{
	struct memory_probes *m = e->own;

	if (m->trap_link > 0)
		close(m->trap_link);
	memory_bpf__destroy(m->bpf);
	pthread_mutex_destroy(&m->lock);
	profile_losses_done(&m->lost);
	free(m);
	e->own = e->obj = NULL;
}

static unsigned alloc_rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_MEM_ALLOC);
}

static unsigned inuse_rate(const struct probes *p)
{
	return probes_event_is_wanted(p, EVENT_MEM_INUSE);
}

/* A sample stands for at most 2 GiB: with more, there would be hardly any samples. */
static void alloc_fill(const struct event_probe *e, const struct wanted_events *w,
		       struct pf_filter *f)
{
	(void)e;
	f->alloc_bytes = MIN(w->settings.alloc_sample_bytes, 1ull << 31);
}

static void inuse_fill(const struct event_probe *e, const struct wanted_events *w,
		       struct pf_filter *f)
{
	(void)e;
	f->inuse_bytes = MIN(w->settings.inuse_sample_bytes, 1ull << 31);
}

const struct probe_ops probes_mem_alloc_ops = {
	.load = memory_open,
	.unload = memory_unload,
	.rate = alloc_rate,
	.fill = alloc_fill,
	.attach = memory_attach,
	.detach = memory_detach,
	.check = memory_check,
};
const struct probe_ops probes_mem_inuse_ops = {
	.load = memory_shared,
	.unload = memory_detach,
	.rate = inuse_rate,
	.fill = inuse_fill,
	.attach = inuse_attach,
	.detach = memory_detach,
	.check = memory_check,
	.collect = probes_live_collect,
};
