/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the node's cgroups. From the plan and the known cgroups, this file makes the
 * contents of the kernel's filter, and finds the container that owns the samples of a cgroup. The
 * key is the cgroup's id: kernfs never uses an id twice. So if a container id or a PID is used
 * again, another container does not get the samples. This file owns the plan and the owners. It
 * does not read cgroups. Loop thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_CGROUPS   65536
#define MAX_ENDED     4096
#define KEEP_ENDED_NS (60 * NSEC_PER_SEC)
/*
 * The API server reports the id of a container some seconds after its cgroup was made. If it has
 * not reported an id after this time, the container is the pod's sandbox.
 */
#define UNNAMED_NS (30 * NSEC_PER_SEC)

struct known_container {
	uint64_t id, parent_id, seen_ns;
	struct cgroup_ref ref;
	bool by_event; /* the kernel has reported its creation; false: only a scan found it */
	bool removed;
	struct owner *owner; /* kept for a while after the end, for late samples */
	/* when it ended to be selected; UINT64_MAX while it is selected */
	uint64_t until_ns;
	struct container_filter filter; /* event_mask 0: this cgroup is not in the filter */
	UT_hash_handle hh;
};

struct containers {
	struct plan *plan;
	struct planned planned; /* the plan's containers and pods, by id */
	struct known_container *known;
	struct cap *caps;
	struct container_filter *filter;
	size_t n_filter, cap_filter;
	size_t n_ended;
	/* The lowest cgroup_ref.pods_depth of planned containers' cgroups; 0: not known yet. */
	unsigned pods_depth;
	bool dirty;
	uint64_t next_ns; /* when the cgroups must be judged again; 0: now; UINT64_MAX: never */
};

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

/* ---- judging one cgroup: its owner and its filter by the plan ---- */

struct container_verdict {
	struct owner *owner; /* a reference; NULL: the cgroup has no owner */
	struct container_filter filter;
};

/*
 * Two nodes on one kernel (kind) may run static pods with the same hash. Then the path of a pod's
 * cgroup does not show which of the pods it belongs to.
 */
static bool pod_is_ambiguous(const struct containers *p, const struct known_container *k)
{
	unsigned n = 0;

	if (strchr(k->ref.pod_uid, '-'))
		return false;
	for (const struct known_container *other = p->known; other; other = other->hh.next)
		n += !other->removed && !other->ref.container_id[0] &&
		     streq(other->ref.pod_uid, k->ref.pod_uid);
	return n > 1;
}

static bool has_unstarted(const struct plan_pod *pod)
{
	for (size_t i = 0; i < pod->n_containers; i++)
		if (!pod->containers[i].id)
			return true;
	return false;
}

static unsigned capped(const struct cap *c, unsigned hz)
{
	return c->hz ? MIN(c->hz, hz) : hz;
}

/* container_id "": the filter is for the pod's own cgroup. */
static struct container_filter filter_of_pod(const struct containers *p, const struct plan_pod *pod,
					     const char *container_id)
{
	const struct cap *cap = proc_caps_of(p->caps, container_id);

	return (struct container_filter){
		.event_mask = pod->arm_event_mask,
		.sample_hz = capped(cap, pod->arm_sample_hz),
		.settings = pod->arm_settings,
		.off_note = cap->off_note,
		.off_keep = cap->off_keep,
		.context = pod->arm_trace_context,
	};
}

static struct container_filter filter_of_container(const struct containers *p,
						   const struct plan_container *c)
{
	const struct cap *cap = proc_caps_of(p->caps, c->id);

	return (struct container_filter){
		.event_mask = c->event_mask,
		.sample_hz = capped(cap, c->sample_hz),
		.settings = c->settings,
		.off_note = cap->off_note,
		.off_keep = cap->off_keep,
		.context = c->trace_context,
	};
}

/*
 * Judges a container whose id the API server has not reported: it has just started, or it is the
 * sandbox.
 */
static void judge_unnamed(struct containers *p, const struct known_container *k,
			  const struct plan_pod *pod, uint64_t now_ns, struct container_verdict *v)
{
	if (!k->by_event && !has_unstarted(pod))
		return;
	if (now_ns >= k->seen_ns + UNNAMED_NS)
		return;
	p->next_ns = MIN(p->next_ns, k->seen_ns + UNNAMED_NS);
	v->filter = filter_of_pod(p, pod, k->ref.container_id);
	v->owner = proc_owner_make(p->plan, pod, NULL, k->ref.container_id, v->filter.off_keep,
				   k->owner);
}

/*
 * Returns whether k is the outermost cgroup with its name. A pod that may make cgroups below its
 * own can give them any name, even that of another pod or container. The real one is the outermost.
 * All containers of a node have the same depth, even if the node itself is a container. So a deeper
 * cgroup belongs to no container, even if the real one of that name ended before this agent
 * started.
 */
static bool is_outermost(struct containers *p, const struct known_container *k,
			 unsigned *pods_depth)
{
	if (p->pods_depth && k->ref.pods_depth > p->pods_depth)
		return false;
	if (*pods_depth && k->ref.pods_depth < *pods_depth)
		/* deeper cgroups were judged as the real one, so all are judged again */
		p->next_ns = 0;
	if (!*pods_depth || k->ref.pods_depth < *pods_depth)
		*pods_depth = k->ref.pods_depth;
	return k->ref.pods_depth == *pods_depth;
}

/*
 * Notes the depth of a container's cgroup. A container's id is unique. A pod's uid is not used
 * here, because a node around this one may have a static pod with the same hash.
 */
static void note_depth(struct containers *p, const struct known_container *k)
{
	if (p->pods_depth && k->ref.pods_depth < p->pods_depth)
		p->next_ns = 0;
	p->pods_depth = k->ref.pods_depth; /* never greater than before: see is_outermost() */
}

static void judge_of_pod(struct containers *p, const struct known_container *k, uint64_t now_ns,
			 struct container_verdict *v)
{
	struct planned_pod *planned = proc_planned_pod(&p->planned, k->ref.pod_uid);
	const struct plan_pod *pod = planned ? planned->pod : NULL;

	if (!pod || !is_outermost(p, k, &planned->pods_depth) || !pod->arm_pod ||
	    pod_is_ambiguous(p, k))
		return;
	if (k->ref.container_id[0])
		judge_unnamed(p, k, pod, now_ns, v);
	else
		v->filter = filter_of_pod(p, pod, "");
}

static void judge(struct containers *p, const struct known_container *k, uint64_t now_ns,
		  struct container_verdict *v)
{
	const struct known_container *parent = find_known(p, k->parent_id);
	struct planned_container *c;

	*v = (struct container_verdict){0};
	if (k->ref.runtime_helper)
		return;
	/*
	 * All cgroups below a container belong to it, whatever their names are, even those of a
	 * cluster inside the container.
	 */
	if (parent && parent->owner && parent->until_ns == UINT64_MAX) {
		v->owner = proc_owner_ref(parent->owner);
		v->filter = parent->filter;
		return;
	}
	c = k->ref.container_id[0] ? proc_planned_container(&p->planned, k->ref.container_id)
				   : NULL;
	if (!c) {
		judge_of_pod(p, k, now_ns, v);
	} else if (is_outermost(p, k, &c->pods_depth)) {
		note_depth(p, k);
		v->owner = proc_owner_ref(c->owner);
		v->filter = filter_of_container(p, c->container);
	}
}

/* Compares all members but cgroup_id. */
static bool same_filter(const struct container_filter *a, const struct container_filter *b)
{
	return a->event_mask == b->event_mask && a->sample_hz == b->sample_hz &&
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
	struct container_verdict v;

	if (k->removed)
		return;
	judge(p, k, now_ns, &v);
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
 * Makes a new owner for a planned container if off_keep changes. Owners of other containers are
 * made when cgroups are judged.
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
	for (const struct cap *c = p->caps; c; c = c->hh.next)
		tell_owner(p, c->id, c->off_keep);
	update_all(p, now_ns);
	proc_planned_done(&old);
	plan_free(old_plan);
}

/*
 * Whether a planned container still needs a scan. It does not if a scan began after it was planned:
 * if this scan did not find its cgroup, the container has ended.
 */
bool proc_containers_wants_scan(const struct containers *p)
{
	for (const struct planned_container *c = p->planned.containers; c; c = c->hh.next)
		if (!c->looked_for)
			return true;
	return false;
}

/* ---- cgroups that are made and removed ---- */

static void add(struct containers *p, uint64_t id, uint64_t parent_id, const struct cgroup_ref *ref,
		bool by_event, uint64_t now_ns)
{
	struct known_container *k = find_known(p, id);

	if (k) {
		k->parent_id = parent_id;
		/* a scan has found the cgroup before the kernel's report was read */
		if (by_event && !k->by_event) {
			k->by_event = true;
			update(p, k, now_ns);
		}
		return;
	}
	if (HASH_COUNT(p->known) >= MAX_CGROUPS) {
		counter_add(counter("podflame_cgroups_dropped_total", "reason", "table_full"), 1);
		return;
	}
	k = xcalloc(1, sizeof(*k));
	*k = (struct known_container){.id = id,
				      .parent_id = parent_id,
				      .seen_ns = now_ns,
				      .ref = *ref,
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

static bool set_cap(struct containers *p, const char *container_id, unsigned hz, uint32_t off_note,
		    uint32_t off_keep)
{
	if (!proc_caps_set(&p->caps, container_id, hz, off_note, off_keep))
		return false;
	p->next_ns = 0; /* all cgroups are judged again with the next filter */
	return true;
}

bool proc_containers_cap_hz(struct containers *p, const char *container_id, unsigned hz)
{
	const struct cap *c = proc_caps_of(p->caps, container_id);

	return set_cap(p, container_id, hz, c->off_note, c->off_keep);
}

bool proc_containers_keep_off(struct containers *p, const char *container_id, uint32_t note,
			      uint32_t keep)
{
	bool kept = set_cap(p, container_id, proc_caps_of(p->caps, container_id)->hz, note, keep);

	tell_owner(p, container_id, proc_caps_of(p->caps, container_id)->off_keep);
	return kept;
}

/* ---- queries ---- */

static void filter_build(struct containers *p)
{
	p->n_filter = 0;
	HASH_SORT(p->known, by_id);
	for (const struct known_container *k = p->known; k; k = k->hh.next) {
		if (!k->filter.event_mask)
			continue;
		GROW(p->filter, p->n_filter, p->cap_filter);
		p->filter[p->n_filter] = k->filter;
		p->filter[p->n_filter++].cgroup_id = k->id;
	}
}

const struct container_filter *proc_containers_filter(struct containers *p, uint64_t now_ns,
						      size_t *ret_n, bool *ret_changed)
{
	if (now_ns >= p->next_ns)
		update_all(p, now_ns);
	*ret_changed = p->dirty;
	if (p->dirty)
		filter_build(p);
	p->dirty = false;
	*ret_n = p->n_filter;
	return p->filter;
}

void proc_containers_each_container(const struct containers *p, procs_container_fn *fn, void *arg)
{
	for (const struct known_container *k = p->known; k; k = k->hh.next)
		if (k->owner && k->until_ns == UINT64_MAX && k->ref.container_id[0] &&
		    !k->ref.nested && str_equal(k->owner->container_id, k->ref.container_id))
			fn(k->id, k->owner, arg);
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
