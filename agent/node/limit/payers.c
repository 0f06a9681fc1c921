/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the accounts of off-cpu and uprobes: for each cgroup, its hits, and the CPU time that it
 * used, which the os worker reads in rounds. This file owns the payers. rules.h has the rules that
 * use the accounts, and trap_mode.c applies them to the sets of uprobes. Loop thread.
 */
#include "node/limit/internal.h"

#include <stdlib.h>

#define ROUND_NS      (2 * NSEC_PER_SEC)
#define READ_LIMIT_NS (10 * NSEC_PER_SEC) /* if a read of CPU times takes longer, /healthz fails */
#define MAX_PAYERS    8192		  /* each namespace has a share */

/* ---- payers ---- */

/* Returns the growth of a counter. A counter starts at 0 when the programs are loaded again. */
static uint64_t since(uint64_t last, uint64_t now)
{
	return now >= last ? now - last : now;
}

struct payer *limit_payer(const struct limit *o, uint64_t cgroup_id)
{
	struct payer *p;

	loop_assert(o->config.work->loop);
	HASH_FIND(hh, o->payers, &cgroup_id, sizeof(cgroup_id), p);
	return p;
}

/* Returns NULL if the cgroup is not selected, or not selected any more. */
static struct owner *owner_now(const struct limit *o, uint64_t cgroup_id)
{
	uint64_t until_ns;
	struct owner *owner = proc_containers_owner(o->config.containers, cgroup_id, &until_ns);

	return owner && until_ns == UINT64_MAX ? owner : proc_owner_unref(owner);
}

struct payer *limit_payer_get(struct limit *o, uint64_t cgroup_id)
{
	struct payer *p = limit_payer(o, cgroup_id);
	struct owner *owner;

	if (p)
		return p;
	owner = owner_now(o, cgroup_id);
	if (!owner)
		return NULL;
	if (!shares_may_add(&o->payer_shares, owner->ns_hash, MAX_PAYERS)) {
		counter_add(counter("podflame_container_limits_dropped_total", NULL, NULL), 1);
		shares_add(&o->crowded, owner->ns_hash);
		proc_owner_unref(owner);
		return NULL;
	}
	p = xcalloc(1, sizeof(*p));
	p->cgroup_id = cgroup_id;
	p->owner = owner;
	p->off = OFF_SHARES_ALL;
	p->ns = owner->ns_hash;
	HASH_ADD(hh, o->payers, cgroup_id, sizeof(p->cgroup_id), p);
	shares_add(&o->payer_shares, p->ns);
	return p;
}

static void forget(struct limit *o, struct payer *p)
{
	HASH_DEL(o->payers, p);
	shares_remove(&o->payer_shares, p->ns);
	proc_owner_unref(p->owner);
	free(p);
}

/*
 * Returns the part of the limit that off-cpu or one set of uprobes may use. Off-cpu and the sets
 * that targets ask for get equal parts, so all together stay within the limit. The events of a set
 * use the same traps, so they share the part of the set. A limit of 100 % is no limit, so it is not
 * divided.
 */
double limit_percent(const struct payer *p)
{
	double percent = p->owner->overhead_percent;
	unsigned asked = p->owner->event_mask, n_parts = (asked & 1u << EVENT_OFF_CPU) != 0;

	for (enum probe_set set = 0; set < _PROBES_SET_MAX; set++)
		n_parts += (asked & probes_set_events(set)) != 0;
	if (percent <= 0)
		percent = PLAN_OVERHEAD_PERCENT;
	return percent < 100 ? percent / MAX(n_parts, 1u) : percent;
}

/* ---- off-cpu ---- */

/*
 * Gives the container's shares to the filter. The filter knows only containers, so all cgroups of
 * one container get the smallest shares.
 */
static bool keep(struct limit *o, const struct payer *p)
{
	struct off_shares least = p->off;

	for (const struct payer *x = o->payers; x; x = x->hh.next)
		if (str_equal(x->owner->container_id, p->owner->container_id))
			least = OFF_SHARES(MIN(least.note, x->off.note),
					   MIN(least.keep, x->off.keep));
	return !p->owner->container_id ||
	       proc_containers_keep_off(o->config.containers, p->ns, p->owner->container_id,
					least.note, least.keep);
}

static void watch_switches(struct limit *o, struct payer *p, uint64_t cpu_ns)
{
	const struct account *a = &p->of[EVENT_OFF_CPU];
	struct switches s = {a->round.hits, cpu_ns};
	bool asked = p->owner->event_mask & 1u << EVENT_OFF_CPU;
	struct off_shares before = p->off;

	p->off = asked ? limit_off_shares(before, &s, limit_percent(p)) : OFF_SHARES_ALL;
	if ((p->off.note != before.note || p->off.keep != before.keep) && !keep(o, p)) {
		p->off = before;
		shares_add(&o->crowded, p->ns);
	}
}

/* ---- rounds: CPU time, read on the os worker ---- */

struct cpu_time {
	uint64_t cgroup_id;
	struct cgroup_cpu cpu;
	struct probe_usage round[_EVENT_MAX];
	bool known;
};
struct cpu_reading {
	struct task task;
	struct limit *limit;
	struct cpu_time *items;
	size_t n;
	uint64_t at_ns;
};

static void read_run(struct task *task)
{
	struct cpu_reading *r = (struct cpu_reading *)task;
	const struct cgroup_hierarchy *h = r->limit->config.hierarchy;

	r->at_ns = now_mono_ns();
	for (size_t i = 0; i < r->n && h->mount[0]; i++)
		r->items[i].known =
			proc_cgroup_cpu_read(h, r->items[i].cgroup_id, &r->items[i].cpu) == 0;
}

/*
 * Returns the CPU time that the cgroup used since the last round. If it is not known, assumes that
 * the cgroup used one CPU all the time.
 */
static uint64_t take_cpu(struct payer *p, const struct cpu_time *x, uint64_t elapsed_ns)
{
	uint64_t before_ns = p->cpu_ns;

	p->cpu_ns = x->known ? x->cpu.usage_ns : 0;
	if (!x->known)
		counter_add(counter("podflame_cgroup_cpu_unread_total", NULL, NULL), 1);
	return x->known && before_ns && p->cpu_ns >= before_ns ? p->cpu_ns - before_ns : elapsed_ns;
}

static void end_round(struct limit *o, struct payer *p, const struct cpu_reading *r,
		      const struct cpu_time *x)
{
	uint64_t elapsed_ns = r->at_ns - p->cpu_at_ns, cpu_ns;
	bool first = !p->cpu_at_ns;

	cpu_ns = take_cpu(p, x, elapsed_ns);
	p->cpu_at_ns = r->at_ns;
	for (enum event e = 0; e < _EVENT_MAX; e++)
		p->of[e].round = x->round[e];
	if (!first) {
		watch_switches(o, p, cpu_ns);
		limit_watch_traps(o, p, elapsed_ns, cpu_ns);
	}
	for (enum event e = 0; e < _EVENT_MAX; e++)
		p->of[e].round = (struct probe_usage){0};
}

static void read_done(struct task *task)
{
	struct cpu_reading *r = (struct cpu_reading *)task;
	struct limit *o = r->limit;

	o->reading = false;
	for (size_t i = 0; !task->refused && i < r->n; i++) {
		struct payer *p = limit_payer(o, r->items[i].cgroup_id);

		if (p && !task->work->closing)
			end_round(o, p, r, &r->items[i]);
	}
	free(r->items);
	if (!task->work->closing)
		limit_tell(o);
}

/*
 * Forgets a payer. First takes its shares back, because its container may have other cgroups, or
 * may be selected again.
 */
static void let_go(struct limit *o, struct payer *p)
{
	if (p->off.note != UINT32_MAX || p->off.keep != UINT32_MAX) {
		p->off = OFF_SHARES_ALL;
		keep(o, p);
	}
	forget(o, p);
}

/*
 * Forgets containers that have ended or are not selected any more. Of the other containers, forgets
 * events that no target asks for any more.
 */
static void refresh_owners(struct limit *o)
{
	struct payer *p, *next;

	HASH_ITER (hh, o->payers, p, next) {
		struct owner *owner = owner_now(o, p->cgroup_id);

		if (!owner) {
			let_go(o, p);
			continue;
		}
		proc_owner_unref(p->owner);
		p->owner = owner;
		for (enum event e = 0; e < _EVENT_MAX; e++)
			if (!(owner->event_mask & 1u << e))
				p->of[e] = (struct account){.last = p->of[e].last};
	}
}

static void begin_round(struct limit *o)
{
	struct cpu_reading *r;
	size_t i = 0;

	refresh_owners(o);
	if (!o->payers) {
		limit_tell(o);
		return;
	}
	r = xcalloc(1, sizeof(*r));
	r->limit = o;
	r->n = HASH_COUNT(o->payers);
	r->items = xcalloc(r->n, sizeof(*r->items));
	for (struct payer *p = o->payers; p; p = p->hh.next, i++) {
		r->items[i].cgroup_id = p->cgroup_id;
		for (enum event e = 0; e < _EVENT_MAX; e++) {
			r->items[i].round[e] = p->of[e].round;
			p->of[e].round = (struct probe_usage){0};
		}
	}
	r->task.run = read_run;
	r->task.done = read_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	assert_se(!o->reading);
	o->reading = true;
	work_post(o->config.work, o->config.work->os, &r->task, r->n * sizeof(*r->items));
}

/* ---- the kernel's counters ---- */

static void add_usage(struct account *a, const struct probe_usage *u)
{
	a->drain.hits = since(a->last.hits, u->hits);
	a->drain.taken = since(a->last.taken, u->taken);
	a->drain.value = since(a->last.value, u->value);
	a->drain.square = since(a->last.square, u->square);
	a->drain.own_ns = since(a->last.own_ns, u->own_ns);
	a->round.hits += a->drain.hits;
	a->round.taken += a->drain.taken;
	a->round.own_ns += a->drain.own_ns;
	a->library_ns += a->drain.own_ns;
	a->last = *u;
}

void limit_usage(struct limit *o, const struct probe_usage *u, size_t n, uint64_t trap_ns)
{
	for (struct payer *p = o->payers; p; p = p->hh.next)
		for (enum event e = 0; e < _EVENT_MAX; e++) {
			p->of[e].drain = (struct probe_usage){0};
			p->of[e].n_spans_drained = p->of[e].n_spans;
			p->of[e].n_spans = 0;
		}
	if (trap_ns)
		o->trap_ns = trap_ns + LIMIT_PROGRAM_NS;
	counter_set(counter("podflame_trap_ns", NULL, NULL), o->trap_ns);
	for (size_t i = 0; i < n; i++) {
		struct payer *p =
			u[i].event < _EVENT_MAX ? limit_payer_get(o, u[i].cgroup_id) : NULL;

		if (p)
			add_usage(&p->of[u[i].event], &u[i]);
	}
	if (o->reading || now_mono_ns() < o->round_ns)
		return;
	o->round_ns = now_mono_ns() + ROUND_NS;
	begin_round(o);
}

void limit_crowded(struct limit *o, struct shares *to)
{
	loop_assert(o->config.work->loop);
	shares_move_owners(to, &o->crowded);
}

/* ---- estimates ---- */

struct estimate limit_estimate(const struct limit *o, uint64_t cgroup_id, enum event e)
{
	const struct payer *p = limit_payer(o, cgroup_id);

	return p ? limit_estimate_of(o, p, e) : (struct estimate){0};
}

/* ---- creation and end ---- */

struct limit *limit_new(const struct limit_config *c)
{
	struct limit *o = xcalloc(1, sizeof(*o));

	o->config = *c;
	o->rates = limit_rates_new(&o->config);
	o->trap_ns = LIMIT_TRAP_NS;
	return o;
}

struct limit *limit_free(struct limit *o)
{
	struct payer *p, *next;

	if (!o)
		return NULL;
	loop_assert(o->config.work->loop);
	limit_rates_free(o->rates);
	shares_done(&o->crowded);
	HASH_ITER (hh, o->payers, p, next)
		forget(o, p);
	report_problems_done(&o->refused);
	report_problems_done(&o->estimated);
	free(o);
	return NULL;
}
