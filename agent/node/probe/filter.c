// SPDX-License-Identifier: Apache-2.0
/*
 * filter: writes the selected cgroups and processes into the kernel's filter maps. It attaches each
 * event at the rate that they need, or detaches it.
 */
#include "node/probe/internal.h"

#include "core.skel.h"

_Static_assert(CONTAINERS_FILTER_MAX == PF_FILTER_MAX, "what the filter can hold");

static int by_key(const void *a, const void *b)
{
	const struct wanted_events *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

static const struct wanted_events *wanted_find(const struct wanted_set *s, uint64_t key)
{
	struct wanted_events k = {.key = key};

	return s->n ? bsearch(&k, s->items, s->n, sizeof(k), by_key) : NULL;
}

bool probes_filter_has(const struct probes *p, uint64_t cgroup_id)
{
	return wanted_find(&p->cgroups, cgroup_id);
}

static void wanted_replace(struct wanted_set *s, struct wanted_events *items, size_t n)
{
	free(s->items);
	*s = (struct wanted_set){items, n};
	if (n)
		qsort(items, n, sizeof(*items), by_key);
}

static bool has_event(const struct wanted_set *s, enum event event)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].event_mask & 1u << event)
			return true;
	return false;
}

static bool is_wanted(const struct probes *p, enum event event)
{
	return has_event(&p->cgroups, event) || has_event(&p->list, event);
}

static struct pf_filter to_filter(struct probes *p, const struct wanted_events *w)
{
	struct pf_filter f = {
		.event_mask = w->event_mask,
		.share = probes_share_of(p, w->ns),
		.flags = (w->listed ? PF_FILTER_LISTED : 0) | (w->context ? PF_FILTER_CONTEXT : 0),
	};

	for (size_t i = 0; i < _EVENT_MAX; i++)
		if (p->events[i].ops->fill)
			p->events[i].ops->fill(&p->events[i], w, &f);
	return f;
}

/* ---- cgroups ---- */

static struct told_cgroup *told_find(struct probes *p, uint64_t id)
{
	struct told_cgroup *t;

	HASH_FIND(hh, p->told, &id, sizeof(id), t);
	return t;
}

static void told_remove(struct probes *p, uint64_t id)
{
	struct told_cgroup *t = told_find(p, id);

	if (!t)
		return;
	HASH_DEL(p->told, t);
	free(t);
}

/*
 * Handles the record of a cgroup that was made or removed, which also goes into a drain. If the
 * kernel has selected a new cgroup, from now on the agent decides whether it stays selected.
 */
void probes_filter_told(struct probes *p, const struct pf_rec_cgroup *r)
{
	int map = bpf_map__fd(p->core->maps.filter_cgroups);
	struct pf_filter f;
	struct told_cgroup *t;

	if (r->removed) {
		told_remove(p, r->id);
		return;
	}
	if (!r->armed)
		return;
	/*
	 * The cgroup's parent was deselected meanwhile, so no later change would remove the cgroup.
	 */
	if (bpf_map_lookup_elem(map, &r->parent_id, &f)) {
		bpf_map_delete_elem(map, &r->id);
		return;
	}
	if (told_find(p, r->id) || HASH_COUNT(p->told) >= PF_FILTER_MAX)
		return;
	t = xcalloc(1, sizeof(*t));
	t->id = r->id;
	t->drain = p->drain_number;
	HASH_ADD(hh, p->told, id, sizeof(t->id), t);
}

/*
 * Returns the keys of the map, which the caller frees. The map may change meanwhile, so the result
 * may lack a key, or have a key that the map does not have any more.
 */
static uint64_t *map_keys(int map, size_t key_bytes, size_t *ret_n)
{
	uint64_t *keys = NULL, key = 0;
	size_t n = 0, cap = 0;
	void *at = NULL;

	while (n < 2 * PF_FILTER_MAX && !bpf_map_get_next_key(map, at, &key)) {
		GROW(keys, n, cap);
		keys[n] = 0;
		memcpy(&keys[n++], &key, key_bytes);
		at = &key;
	}
	*ret_n = n;
	return keys;
}

/*
 * Returns whether a drain had reported the cgroup before the caller of probes_filter() made its
 * list.
 */
static bool is_known(struct probes *p, uint64_t id)
{
	const struct told_cgroup *t = told_find(p, id);

	return t && t->drain <= p->known_drain;
}

/* before NULL: removes also the cgroups that the kernel has just selected by itself. */
static void remove_cgroups(struct probes *p, int map, const struct wanted_set *before)
{
	size_t n;
	_cleanup_free_ uint64_t *keys = map_keys(map, sizeof(uint64_t), &n);

	for (size_t i = 0; i < n; i++) {
		if (wanted_find(&p->cgroups, keys[i]))
			continue;
		/*
		 * The agent did not select this cgroup, and no drain has reported it in time. So
		 * the kernel has just selected it, below a selected one, and it stays selected.
		 */
		if (before && !wanted_find(before, keys[i]) && !is_known(p, keys[i]))
			continue;
		bpf_map_delete_elem(map, &keys[i]);
		told_remove(p, keys[i]);
	}
}

/*
 * Makes the programs ask the filter again about cgroups that they remember as not selected:
 * bpf/filter.h.
 */
static void tell_added(struct probes *p)
{
	for (int cpu = 0; cpu < p->n_possible_cpus; cpu++)
		__atomic_add_fetch(&p->unselected[cpu].additions, 1, __ATOMIC_SEQ_CST);
}

/*
 * Writes an entry. If the map is full, those that the kernel has selected by itself make room: a
 * pod that makes cgroups faster than the agent reads of them takes no place of another one.
 */
static int put_cgroup(struct probes *p, int map, uint64_t key, const struct pf_filter *f)
{
	int r = bpf_map_update_elem(map, &key, f, BPF_ANY);

	if (r != -E2BIG)
		return r;
	remove_cgroups(p, map, NULL);
	return bpf_map_update_elem(map, &key, f, BPF_ANY);
}

static int sync_cgroups(struct probes *p, const struct wanted_set *before)
{
	int map = bpf_map__fd(p->core->maps.filter_cgroups), first_error = 0;
	bool added = false;

	if (!p->config.use_cgroups)
		return p->cgroups.n ? -EOPNOTSUPP : 0;
	remove_cgroups(p, map, before);
	for (size_t i = 0; i < p->cgroups.n; i++) {
		const struct wanted_events *w = &p->cgroups.items[i];
		struct pf_filter f = to_filter(p, w), is;
		int r;

		if (!bpf_map_lookup_elem(map, &w->key, &is) && !memcmp(&f, &is, sizeof(f)))
			continue;
		r = put_cgroup(p, map, w->key, &f);
		if (r && !first_error)
			first_error = r;
		added |= !r;
	}
	if (added)
		tell_added(p);
	return first_error;
}

/* ---- listed processes ---- */

static int sync_list(struct probes *p)
{
	int map = bpf_map__fd(p->core->maps.filter_tgids), first_error = 0;
	_cleanup_free_ uint64_t *keys = NULL;
	size_t n;

	if (!p->config.use_list)
		return p->list.n ? -EOPNOTSUPP : 0;
	keys = map_keys(map, sizeof(uint32_t), &n);
	for (size_t i = 0; i < n; i++) {
		uint32_t tgid = keys[i];

		if (!wanted_find(&p->list, keys[i]))
			bpf_map_delete_elem(map, &tgid);
	}
	for (size_t i = 0; i < p->list.n; i++) {
		const struct wanted_events *w = &p->list.items[i];
		struct pf_listed l = {.start_boottime_ns = w->start_boottime_ns,
				      .filter = to_filter(p, w)};
		uint32_t tgid = w->key;
		int r = bpf_map_update_elem(map, &tgid, &l, BPF_ANY);

		if (r && !first_error)
			first_error = r;
	}
	return first_error;
}

/* ---- cgroups and listed processes ---- */

static int sync_both(struct probes *p, const struct wanted_set *cgroups_before)
{
	int r, r2;

	probes_shares_begin(p);
	r = sync_cgroups(p, cgroups_before);
	r2 = sync_list(p);
	p->filter_lacks = probes_may_pass(r) || probes_may_pass(r2);
	return r ? r : r2;
}

/*
 * Writes the filter again if the machine lacked something for a moment. Else a selected cgroup
 * would be missing until the selection changes.
 */
void probes_filter_again(struct probes *p)
{
	if (p->filter_lacks)
		(void)sync_both(p, &p->cgroups);
}

void probes_event_stop(struct event_probe *e)
{
	if (e->hz)
		e->ops->detach(e);
	e->hz = 0;
}

static int event_tick(struct probes *p, struct event_probe *e)
{
	if (!e->want_hz)
		return 0;
	if (e->hz)
		return e->ops->check(p, e);
	if (!e->loaded)
		return -EOPNOTSUPP;
	e->hz = e->want_hz;
	return e->ops->attach(p, e);
}

/*
 * The filter's entries are relative to the rate of the event. So while the rate changes, the event
 * must be detached, or some samples would stand for too much time.
 */
static int apply(struct probes *p, const struct wanted_set *cgroups_before)
{
	int r, r2;

	for (size_t i = 0; i < _EVENT_MAX; i++) {
		struct event_probe *e = &p->events[i];

		e->want_hz = e->ops->rate ? e->ops->rate(p) : is_wanted(p, i);
		if (e->want_hz != e->hz)
			probes_event_stop(e);
	}
	r = sync_both(p, cgroups_before);
	for (size_t i = 0; i < _EVENT_MAX; i++) {
		r2 = event_tick(p, &p->events[i]);
		r = r ? r : r2;
	}
	return r;
}

static unsigned held_hz(const struct probes *p, unsigned hz)
{
	return MAX(1u, MIN(hz, p->config.max_sample_hz));
}

void probes_knows(struct probes *p, uint64_t drain_number)
{
	p->known_drain = drain_number;
}

int probes_filter(struct probes *p, const struct container_filter *want, size_t n)
{
	const size_t n_kept = MIN(n, (size_t)PF_FILTER_MAX);
	struct wanted_events *items = xcalloc(n_kept + 1, sizeof(*items));
	struct wanted_set before = p->cgroups;
	int r;

	for (size_t i = 0; i < n_kept; i++)
		items[i] = (struct wanted_events){
			.key = want[i].cgroup_id,
			.ns = want[i].ns,
			.event_mask = want[i].event_mask,
			.sample_hz = held_hz(p, want[i].sample_hz),
			.settings = want[i].settings,
			.off_note = want[i].off_note,
			.off_keep = want[i].off_keep,
			.listed = want[i].listed,
			.context = want[i].context,
		};
	p->cgroups = (struct wanted_set){};
	wanted_replace(&p->cgroups, items, n_kept);
	r = apply(p, &before);
	free(before.items);
	return n > n_kept ? -E2BIG : r;
}

int probes_list(struct probes *p, const struct listed_process *want, size_t n)
{
	const size_t n_kept = MIN(n, (size_t)PF_FILTER_MAX);
	struct wanted_events *items = xcalloc(n_kept + 1, sizeof(*items));
	int r;

	for (size_t i = 0; i < n_kept; i++) {
		uint64_t start = want[i].id.start_boottime_ns;

		items[i] = (struct wanted_events){
			.key = want[i].id.tgid,
			.start_boottime_ns = start - start % PF_USER_HZ_NS,
			.ns = want[i].ns,
			.event_mask = want[i].event_mask,
			.sample_hz = held_hz(p, want[i].sample_hz),
			.settings = want[i].settings,
			.off_note = want[i].off_note,
			.off_keep = want[i].off_keep,
			.context = want[i].context,
		};
	}
	wanted_replace(&p->list, items, n_kept);
	r = apply(p, &p->cgroups);
	return n > n_kept ? -E2BIG : r;
}

void probes_filter_done(struct probes *p)
{
	struct told_cgroup *t, *next;

	HASH_ITER (hh, p->told, t, next) {
		HASH_DEL(p->told, t);
		free(t);
	}
	free(p->cgroups.items);
	free(p->list.items);
}
