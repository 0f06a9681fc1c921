// SPDX-License-Identifier: Apache-2.0
/*
 * offcpu: where threads of selected processes wait. Its programs run at every task switch of the
 * node. So they are loaded when the event is first wanted, and attached only while it is wanted.
 */
#include "node/probe/long_waits.h"

#include <unistd.h>

#include "offcpu.skel.h"

#define MAX_WAIT_US (3600ull * USEC_PER_SEC) /* of a longer wait, only this time counts */

_Static_assert((int)EVENT_OFF_CPU == (int)PF_EVENT_OFF_CPU, "abi");
_Static_assert((int)_WAIT_MAX == (int)PF_WAIT_GPU + 1, "abi");

enum { SWITCH, WAKEUP, EXEC, EXIT, DRAIN, _LINK_MAX };

struct offcpu {
	struct offcpu_bpf *bpf;
	struct bpf_link *links[_LINK_MAX];
	struct shared_tables shares;
	/* NULL: no filter has kept only a part of the waits yet, or the thread did not start */
	struct long_waits *long_waits;
	uint64_t look_again_ns; /* CLOCK_MONOTONIC: when to try again after a failure; 0: never */
};

static int offcpu_open(struct probes *p, struct event_probe *e)
{
	(void)p;
	e->own = xcalloc(1, sizeof(struct offcpu));
	return 0;
}

static int offcpu_load(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;
	struct offcpu_bpf *b = offcpu_bpf__open();
	uint32_t n_waits = p->config.wait_entries ?: PF_WAITS_MAX;
	int r;

	if (!b)
		return -errno;
	b->rodata->pf_config = p->bpf_config;
	b->rodata->pf_waits_max = n_waits;
	r = bpf_map__set_max_entries(b->maps.waits, n_waits);
	if (!r)
		r = probes_lend_maps(p, b->obj);
	if (!r)
		r = offcpu_bpf__load(b);
	if (r) {
		offcpu_bpf__destroy(b);
		return r;
	}
	o->bpf = b;
	o->shares.of[SHARED_WAITS] = &b->bss->pf_wait_shares;
	e->obj = b->obj;
	return 0;
}

static void offcpu_unload(struct event_probe *e)
{
	struct offcpu *o = e->own;

	offcpu_bpf__destroy(o->bpf);
	free(o);
	e->own = e->obj = NULL;
}

/* ---- settings ---- */

static void offcpu_fill(const struct event_probe *e, const struct wanted_events *w,
			struct pf_filter *f)
{
	uint64_t max_us = w->settings.max_block_us;

	(void)e;
	f->off_keep = w->off_keep ? w->off_keep : PF_KEEP_ALL;
	f->off_note = MAX(w->off_note ? w->off_note : PF_KEEP_ALL, f->off_keep);
	f->off_min_us = w->settings.min_block_us;
	f->off_max_us = max_us && max_us < MAX_WAIT_US ? max_us : MAX_WAIT_US;
}

/* ---- waits that go on ---- */

static void count_waits(struct offcpu *o)
{
	if (o->links[DRAIN] && probes_iterator_run(o->links[DRAIN]) < 0)
		counter_add(counter("podflame_drain_failures_total", NULL, NULL), 1);
}

static bool is_thinned(const struct wanted_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].event_mask & 1u << EVENT_OFF_CPU && s->items[i].off_keep &&
		    s->items[i].off_keep != PF_KEEP_ALL)
			return true;
	return false;
}

static int make_long_waits(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;

	return probes_long_waits_new(p, o->bpf->obj, &o->long_waits);
}

/* ---- while the event is attached ---- */

/*
 * Removes the waits that were seen before the event was detached. They may be over: no program was
 * attached to see their end.
 */
static void forget_waits(struct offcpu *o)
{
	int waits = bpf_map__fd(o->bpf->maps.waits), threads = bpf_map__fd(o->bpf->maps.threads);
	uint32_t tid, next, slots = bpf_map__max_entries(o->bpf->maps.threads);
	int r = bpf_map_get_next_key(waits, NULL, &next);

	if (r)
		return; /* the map is empty: no program has seen a wait */
	/*
	 * After a key that was deleted, the next key is the first one again. So each key is deleted
	 * after its next one is known.
	 */
	while (!r) {
		tid = next;
		r = bpf_map_get_next_key(waits, &tid, &next);
		bpf_map_delete_elem(waits, &tid);
	}
	for (uint32_t slot = 0, none = 0; slot < slots; slot++)
		bpf_map_update_elem(threads, &slot, &none, BPF_ANY);
	memset(o->bpf->bss->pf_wait_shares.held, 0, sizeof(o->bpf->bss->pf_wait_shares.held));
}

static void offcpu_detach(struct event_probe *e)
{
	struct offcpu *o = e->own;

	count_waits(o);
	o->long_waits = probes_long_waits_free(o->long_waits);
	for (int i = 0; i < _LINK_MAX; i++) {
		bpf_link__destroy(o->links[i]);
		o->links[i] = NULL;
	}
	e->n_links = 0;
}

/*
 * The programs for ends and wake-ups are attached first. So if the programs see the beginning of a
 * wait, they also see its end.
 */
static int attach_all(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;
	struct bpf_program *const programs[_LINK_MAX] = {
		[EXIT] = o->bpf->progs.pf_thread_exit,
		/* because a thread may get another id in an exec */
		[EXEC] = o->bpf->progs.pf_thread_exec,
		[WAKEUP] = o->bpf->progs.pf_wakeup,
		[SWITCH] = o->bpf->progs.pf_switch,
		[DRAIN] = o->bpf->progs.pf_waits_now,
	};

	forget_waits(o);
	probes_gpu_majors_read(p);
	for (int i = _LINK_MAX - 1; i >= 0; i--) {
		o->links[i] = bpf_program__attach(programs[i]);
		if (!o->links[i])
			return -errno;
		e->n_links++;
	}
	return 0;
}

/*
 * Returns whether the object may be loaded: only if on-cpu is loaded. The programs of off-cpu
 * allocate while the scheduler holds its lock. Kernels before 6.1 have no allocator that may be
 * used under that lock, so they could lock up. Such a kernel refuses the programs of on-cpu,
 * because they use these maps, but it would not refuse those of off-cpu.
 */
static int may_load(struct probes *p)
{
	if (p->events[EVENT_ON_CPU].loaded)
		return 0;
	probes_feature_missing(
		p, EVENT_OFF_CPU,
		"podflame does not try it, because a kernel that refuses on-cpu (before 6.1) could "
		"lock up: %s",
		p->reasons[EVENT_ON_CPU] ?: "on-cpu is not loaded");
	return -EOPNOTSUPP;
}

static int offcpu_attach(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;
	int r = may_load(p);

	if (!r && !o->bpf)
		r = probes_event_try(p, EVENT_OFF_CPU, offcpu_load);
	if (!r)
		r = probes_event_try(p, EVENT_OFF_CPU, attach_all);
	if (r)
		offcpu_detach(e);
	probes_event_again_later(e, r);
	/*
	 * not r: probes_event_try() has set the event's state, and the rest of the filter works
	 * without this event
	 */
	return 0;
}

/*
 * Starts long_waits.c once the filter has an entry of which not all waits are kept. If the machine
 * lacked something for a moment, a later call tries again.
 */
static void need_long_waits(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;
	bool is_time = o->look_again_ns && now_mono_ns() >= o->look_again_ns;

	if (o->long_waits || !(p->support[FEATURE_WHOLE_WAITS].ok || is_time))
		return;
	if (is_thinned(&p->cgroups) || is_thinned(&p->list))
		o->look_again_ns = probes_again_at_ns(
			probes_feature_try(p, FEATURE_WHOLE_WAITS, e, make_long_waits));
}

static void offcpu_before_swap(struct probes *p, struct event_probe *e)
{
	struct offcpu *o = e->own;

	if (!e->n_links)
		return;
	probes_gpu_majors_read(p); /* the driver of a GPU may be loaded at any time */
	need_long_waits(p, e);
	if (o->long_waits)
		probes_long_waits_look(o->long_waits);
	count_waits(o);
}

static const struct shared_tables *offcpu_shares(const struct event_probe *e)
{
	const struct offcpu *o = e->own;

	return &o->shares;
}

static int offcpu_check(struct probes *p, struct event_probe *e)
{
	(void)p;
	(void)e;
	return 0;
}

const struct probe_ops probes_offcpu_ops = {
	.load = offcpu_open,
	.unload = offcpu_unload,
	.fill = offcpu_fill,
	.attach = offcpu_attach,
	.detach = offcpu_detach,
	.check = offcpu_check,
	.before_swap = offcpu_before_swap,
	.shares = offcpu_shares,
};
