// SPDX-License-Identifier: Apache-2.0
/*
 * shares: gives each namespace a number, by which the programs count its entries in tables that all
 * selected processes fill (PF_SHARES_MAX of bpf/abi.h), and tells which namespaces were refused
 * entries. A number is given to another namespace only when no cgroup of the filter has it and no
 * table has entries of it. os worker.
 */
#include "lib/base/shares.h"
#include "node/probe/internal.h"

struct share {
	uint64_t ns; /* struct charged */
	uint32_t number;
	uint64_t filter; /* the last filter that had it: shares.n_filters */
	UT_hash_handle hh;
};

/* The tables of an event's programs. NULL: it has none, or they are not loaded. */
static struct pf_shares *const *tables_of(const struct probes *p, enum event e)
{
	const struct event_probe *event = &p->events[e];

	return event->ops->shares && event->own ? event->ops->shares(event)->of : NULL;
}

/* Calls fn for each table. `what` says what a namespace lacks that is refused entries of it. */
static void each_table(struct probes *p,
		       void (*fn)(struct probes *p, enum shared_table what, struct pf_shares *table,
				  void *arg),
		       void *arg)
{
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		struct pf_shares *const *tables = tables_of(p, e);

		for (enum shared_table t = 0; tables && t < _SHARED_MAX; t++)
			if (tables[t])
				fn(p, t, tables[t], arg);
	}
	if (p->ring_shares)
		fn(p, SHARED_RING, p->ring_shares, arg);
	if (p->held)
		fn(p, SHARED_RING, probes_cache_shares(p->held), arg);
	for (size_t i = 0; i < PF_GENERATIONS; i++)
		fn(p, SHARED_RING, &p->frame_shares[i], arg);
	fn(p, SHARED_YOUNG, &p->young_shares, arg);
	if (p->usage_shares)
		fn(p, SHARED_COSTS, p->usage_shares, arg);
}

struct holder {
	uint32_t number;
	bool holds;
};

static void look_at(struct probes *p, enum shared_table what, struct pf_shares *table, void *arg)
{
	struct holder *h = arg;

	(void)p;
	(void)what;
	h->holds |= __atomic_load_n(&table->held[h->number], __ATOMIC_RELAXED) != 0;
}

static bool has_entries(struct probes *p, uint32_t number)
{
	struct holder h = {.number = number};

	each_table(p, look_at, &h);
	for (size_t i = 0; p->count_shares && i < PF_GENERATIONS; i++)
		look_at(p, SHARED_COUNTS, &p->count_shares[i], &h);
	return h.holds;
}

/* Returns a share that no other namespace needs any more; NULL: there is none. */
static struct share *take_unused(struct probes *p)
{
	struct share *s, *next;

	HASH_ITER (hh, p->shares.by_ns, s, next)
		if (s->filter != p->shares.n_filters && !has_entries(p, s->number)) {
			HASH_DEL(p->shares.by_ns, s);
			return s;
		}
	return NULL;
}

static struct share *make(struct probes *p)
{
	struct share *s;

	if (HASH_COUNT(p->shares.by_ns) == PF_SHARE_CGROUPS - 1)
		return take_unused(p);
	s = xcalloc(1, sizeof(*s));
	s->number = HASH_COUNT(p->shares.by_ns) + 1;
	return s;
}

void probes_shares_begin(struct probes *p)
{
	p->shares.n_filters++;
}

uint32_t probes_share_of(struct probes *p, uint64_t ns)
{
	struct share *s;

	HASH_FIND(hh, p->shares.by_ns, &ns, sizeof(ns), s);
	if (!s) {
		s = make(p);
		if (!s)
			return 0;
		s->ns = ns;
		HASH_ADD(hh, p->shares.by_ns, ns, sizeof(s->ns), s);
	}
	s->filter = p->shares.n_filters;
	return s->number;
}

void probes_share_more_by(struct pf_shares *table, uint32_t share, uint32_t more)
{
	__atomic_fetch_add(&table->held[0], (int32_t)more, __ATOMIC_RELAXED);
	if (share)
		__atomic_fetch_add(&table->held[share], (int32_t)more, __ATOMIC_RELAXED);
}

void probes_share_less_by(struct pf_shares *table, uint32_t share, uint32_t less)
{
	probes_share_more_by(table, share, -less);
}

void probes_share_less(struct pf_shares *table, uint32_t share)
{
	probes_share_less_by(table, share, 1);
}

bool probes_share_may_add(struct pf_shares *table, uint32_t share, size_t more, size_t max)
{
	if (!shares_have_room((size_t)table->held[0], (size_t)table->held[share], more, max)) {
		table->refused[share] = PF_ALL_EVENTS;
		return false;
	}
	probes_share_more_by(table, share, (uint32_t)more);
	return true;
}

static void take_refused(struct probes *p, enum shared_table what, struct pf_shares *table,
			 void *arg)
{
	struct drain *d = arg;
	size_t cap = d->n_refused;

	for (const struct share *s = p->shares.by_ns; s; s = s->hh.next) {
		uint32_t events =
			__atomic_exchange_n(&table->refused[s->number], 0, __ATOMIC_RELAXED);

		for (enum event e = 0; events && e < _EVENT_MAX; e++) {
			if (!(events & 1u << e))
				continue;
			GROW(d->refused, d->n_refused, cap);
			d->refused[d->n_refused++] = (struct raw_refused){what, e, s->ns};
		}
	}
}

void probes_shares_take_refused(struct probes *p, struct drain *d)
{
	each_table(p, take_refused, d);
}

void probes_shares_take_counts(struct probes *p, uint32_t generation, struct drain *d)
{
	const uint32_t slot = generation % PF_GENERATIONS;

	take_refused(p, SHARED_COUNTS, &p->count_shares[slot], d);
	memset(&p->count_shares[slot], 0, sizeof(p->count_shares[slot]));
	memset(&p->total_shares[slot], 0, sizeof(p->total_shares[slot]));
}

void probes_shares_done(struct probes *p)
{
	struct share *s, *next;

	HASH_ITER (hh, p->shares.by_ns, s, next) {
		HASH_DEL(p->shares.by_ns, s);
		free(s);
	}
}
