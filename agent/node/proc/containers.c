/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the node's cgroups. From the plan and the known cgroups, this file makes the
 * contents of the kernel's filter, and keeps the container that owns the samples of a cgroup
 * (cgroup_owner.c finds it). The key is the cgroup's id: kernfs never uses an id twice. So if a
 * container id or a PID is used again, another container does not get the samples. To judge a
 * cgroup means to find its owner and its entry in the filter. This file owns the plan and the
 * owners. It does not read cgroups. Loop thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_CGROUPS   65536
#define MAX_ENDED     4096 /* ended cgroups that are kept; above it, the oldest is forgotten */
#define KEEP_ENDED_NS (60 * NSEC_PER_SEC)

int proc_containers_new(struct containers **ret)
{
	struct containers *p = xcalloc(1, sizeof(*p));

	p->next_ns = UINT64_MAX;
	*ret = p;
	return 0;
}

static void forget(struct containers *p, struct known_container *k)
{
	HASH_DEL(p->known, k);
	p->n_ended -= k->removed;
	proc_owner_unref(k->owner);
	free(k);
}

struct containers *proc_containers_free(struct containers *p)
{
	struct known_container *k, *ktmp;

	if (!p)
		return NULL;
	HASH_ITER (hh, p->known, k, ktmp)
		forget(p, k);
	proc_caps_done(&p->caps);
	proc_planned_done(&p->planned);
	plan_free(p->plan);
	free(p->filter);
	free(p->cuts);
	free(p);
	return NULL;
}

const struct plan *proc_containers_plan(const struct containers *p)
{
	return p->plan;
}

static struct known_container *find_known(const struct containers *p, uint64_t id)
{
	struct known_container *k;

	HASH_FIND(hh, p->known, &id, sizeof(id), k);
	return k;
}

/* ---- judging the cgroups ---- */

/* Compares all members but cgroup_id. */
static bool same_filter(const struct container_filter *a, const struct container_filter *b)
{
	return a->ns == b->ns && a->event_mask == b->event_mask && a->sample_hz == b->sample_hz &&
	       plan_event_settings_equal(&a->settings, &b->settings) &&
	       a->off_note == b->off_note && a->off_keep == b->off_keep && a->listed == b->listed &&
	       a->context == b->context;
}

/*
 * Judges one cgroup. Ids grow with time, so if cgroups are judged in the order of their ids, a
 * parent is judged before its children.
 */
static void update(struct containers *p, struct known_container *k, uint64_t now_ns)
{
	const struct known_container *parent = find_known(p, k->parent_id);
	struct container_verdict v;

	if (k->removed)
		return;
	proc_cgroup_judge(p, k, parent, now_ns, &v);
	k->of = v.inherited ? parent->of : k->id;
	if (!same_filter(&v.filter, &k->filter)) {
		k->filter = v.filter;
		p->dirty = true;
	}
	if (v.owner) {
		proc_owner_unref(k->owner);
		k->owner = v.owner;
		k->until_ns = UINT64_MAX;
	} else if (k->owner && k->until_ns == UINT64_MAX) {
		k->until_ns = now_ns;
	}
}

static int by_id(const struct known_container *a, const struct known_container *b)
{
	return a->id < b->id ? -1 : a->id > b->id;
}

static void forget_ended(struct containers *p, uint64_t now_ns)
{
	struct known_container *k, *tmp;

	/* in the order of ids, so the oldest are removed first */
	HASH_ITER (hh, p->known, k, tmp) {
		if (!k->owner || k->until_ns == UINT64_MAX)
			continue;
		if (k->removed &&
		    (p->n_ended > MAX_ENDED || now_ns >= k->until_ns + KEEP_ENDED_NS)) {
			forget(p, k);
		} else if (now_ns >= k->until_ns + KEEP_ENDED_NS) {
			k->owner = proc_owner_unref(k->owner);
		} else {
			p->next_ns = MIN(p->next_ns, k->until_ns + KEEP_ENDED_NS);
		}
	}
}

static void update_all(struct containers *p, uint64_t now_ns)
{
	struct known_container *k, *tmp;

	p->next_ns = UINT64_MAX;
	HASH_SORT(p->known, by_id);
	HASH_ITER (hh, p->known, k, tmp)
		update(p, k, now_ns);
	forget_ended(p, now_ns);
}

/* ---- the plan ---- */

/*
 * Makes a new owner for a planned container if its share of recorded context switches (off_keep)
 * changes. The owners of other containers are made when cgroups are judged.
 */
static void tell_owner(struct containers *p, const char *container_id, uint32_t off_keep)
{
	struct planned_container *c = proc_planned_container(&p->planned, container_id);
	struct owner *old;

	if (!c || c->owner->off_keep == off_keep)
		return;
	old = c->owner;
	c->owner = proc_owner_make(p->plan, c->pod, c->container, NULL, off_keep, old);
	proc_owner_unref(old);
}

void proc_containers_apply(struct containers *p, struct plan *plan, uint64_t now_ns)
{
	struct planned old = p->planned;
	struct plan *old_plan = p->plan;

	p->plan = plan;
	proc_planned_fill(&p->planned, plan, &old, now_ns);
	for (const struct cap *c = p->caps.by_id; c; c = c->hh.next)
		tell_owner(p, c->id, c->off_keep);
	update_all(p, now_ns);
	proc_planned_done(&old);
	plan_free(old_plan);
}

/*
 * Whether a planned container still needs a scan. It needs none if a scan began after it was
 * planned: if this scan did not find the cgroup of the container, the container has ended.
 */
bool proc_containers_wants_scan(const struct containers *p)
{
	for (const struct planned_container *c = p->planned.containers; c; c = c->hh.next)
		if (!c->looked_for)
			return true;
	return false;
}

/* ---- cgroups that are made and removed ---- */

static bool is_below_container(const struct known_container *parent)
{
	return parent && (parent->below || parent->ref.container_id[0]);
}

static void count_no_room(void)
{
	counter_add(counter("podflame_cgroups_dropped_total", "reason", "table_full"), 1);
}

/*
 * Forgets the newest cgroup below a container, so that a pod that makes many cgroups does not take
 * the place of another one's container. False: there is none.
 */
static bool make_room(struct containers *p)
{
	struct known_container *newest = NULL;

	for (struct known_container *k = p->known; k; k = k->hh.next)
		if (k->below && (!newest || k->id > newest->id))
			newest = k;
	if (!newest)
		return false;
	p->dirty |= newest->filter.event_mask != 0;
	forget(p, newest);
	count_no_room();
	return true;
}

static void add(struct containers *p, uint64_t id, uint64_t parent_id, const struct cgroup_ref *ref,
		bool by_event, uint64_t now_ns)
{
	struct known_container *k = find_known(p, id);
	bool below;

	if (k) {
		k->parent_id = parent_id;
		/* a scan has found the cgroup before the kernel's report was read */
		if (by_event && !k->by_event) {
			k->by_event = true;
			update(p, k, now_ns);
		}
		return;
	}
	below = is_below_container(find_known(p, parent_id));
	if (HASH_COUNT(p->known) >= MAX_CGROUPS && !(!below && make_room(p))) {
		count_no_room();
		return;
	}
	k = xcalloc(1, sizeof(*k));
	*k = (struct known_container){.id = id,
				      .parent_id = parent_id,
				      .seen_ns = now_ns,
				      .ref = *ref,
				      .below = below,
				      .by_event = by_event};
	HASH_ADD(hh, p->known, id, sizeof(k->id), k);
	update(p, k, now_ns);
}

static void end(struct containers *p, struct known_container *k, uint64_t now_ns)
{
	if (k->removed)
		return;
	p->dirty |= k->filter.event_mask != 0;
	k->removed = true;
	p->n_ended++;
	k->filter = (struct container_filter){0};
	if (!k->owner) {
		forget(p, k);
		return;
	}
	k->until_ns = MIN(k->until_ns, now_ns);
	p->next_ns = p->n_ended > MAX_ENDED ? 0 : MIN(p->next_ns, k->until_ns + KEEP_ENDED_NS);
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void proc_containers_scanned(struct containers *p, const struct cgroup_scan *s, uint64_t now_ns)
{
	uint64_t *ids = xcalloc(s->n + 1, sizeof(*ids));
	struct planned_container *c, *ctmp;
	struct known_container *k, *tmp;

	for (size_t i = 0; i < s->n; i++)
		ids[i] = s->items[i].id;
	qsort(ids, s->n, sizeof(*ids), compare_ids);
	/*
	 * The scan did not find these cgroups, so they were removed without a report. A cgroup that
	 * was made after the scan began is not removed here.
	 */
	HASH_ITER (hh, p->known, k, tmp)
		if (!s->truncated && k->seen_ns < s->started_ns &&
		    !bsearch(&k->id, ids, s->n, sizeof(*ids), compare_ids))
			end(p, k, now_ns);
	free(ids);
	HASH_ITER (hh, p->planned.containers, c, ctmp)
		c->looked_for |= s->started_ns >= c->planned_ns;
	for (size_t i = 0; i < s->n; i++)
		add(p, s->items[i].id, s->items[i].parent_id, &s->items[i].ref, false, now_ns);
	update_all(p, now_ns);
}

void proc_containers_cgroup(struct containers *p, uint64_t id, uint64_t parent_id, const char *path,
			    bool removed, uint64_t now_ns)
{
	struct cgroup_ref ref;
	struct known_container *k;

	if (removed) {
		k = find_known(p, id);
		if (k)
			end(p, k, now_ns);
		return;
	}
	if (proc_cgroup_parse_path(path, &ref) < 0)
		return;
	add(p, id, parent_id, &ref, true, now_ns);
}

/* ---- limits that are lower than in the plan ---- */

/* Returns the limits that the container has now. */
static struct cap cap_now(const struct containers *p, uint64_t ns, const char *container_id)
{
	struct cap c = *proc_caps_of(&p->caps, container_id);

	snprintf(c.id, sizeof(c.id), "%s", container_id);
	c.ns = ns;
	return c;
}

static bool set_cap(struct containers *p, const struct cap *c)
{
	if (!proc_caps_set(&p->caps, c))
		return false;
	p->next_ns = 0; /* all cgroups are judged again with the next filter */
	return true;
}

bool proc_containers_cap_hz(struct containers *p, uint64_t ns, const char *container_id,
			    unsigned hz)
{
	struct cap c = cap_now(p, ns, container_id);

	c.hz = hz;
	return set_cap(p, &c);
}

bool proc_containers_keep_off(struct containers *p, uint64_t ns, const char *container_id,
			      uint32_t note, uint32_t keep)
{
	struct cap c = cap_now(p, ns, container_id);
	bool kept;

	c.off_note = note;
	c.off_keep = keep;
	kept = set_cap(p, &c);
	tell_owner(p, container_id, proc_caps_of(&p->caps, container_id)->off_keep);
	return kept;
}

/* ---- queries ---- */

const struct container_filter *proc_containers_filter(struct containers *p, uint64_t now_ns,
						      size_t *ret_n, bool *ret_changed)
{
	if (now_ns >= p->next_ns)
		update_all(p, now_ns);
	*ret_changed = p->dirty;
	if (p->dirty) {
		HASH_SORT(p->known, by_id);
		proc_filter_build(p);
	}
	p->dirty = false;
	*ret_n = p->n_filter;
	return p->filter;
}

void proc_containers_each_cut(const struct containers *p, procs_container_fn *fn, void *arg)
{
	for (size_t i = 0; i < p->n_cuts; i++) {
		const struct known_container *k = find_known(p, p->cuts[i]);

		if (k && k->owner)
			fn(k->id, k->owner, arg);
	}
}

void proc_containers_each_container(const struct containers *p, procs_container_fn *fn, void *arg)
{
	for (const struct known_container *k = p->known; k; k = k->hh.next)
		if (k->owner && k->until_ns == UINT64_MAX && k->ref.container_id[0] &&
		    !k->ref.nested && str_equal(k->owner->container_id, k->ref.container_id))
			fn(k->id, k->owner, arg);
}

struct charged proc_containers_charged(const struct containers *p, uint64_t cgroup_id)
{
	const struct known_container *k = find_known(p, cgroup_id);

	return (struct charged){k && k->owner ? k->owner->ns_hash : proc_ns_hash(""), cgroup_id};
}

struct owner *proc_containers_owner(struct containers *p, uint64_t cgroup_id,
				    uint64_t *ret_until_ns)
{
	struct known_container *k = find_known(p, cgroup_id);

	if (!k || !k->owner)
		return NULL;
	*ret_until_ns = k->until_ns;
	return proc_owner_ref(k->owner);
}
