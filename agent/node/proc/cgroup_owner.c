/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out from the plan what a cgroup is: a container, the sandbox of a pod, a part of a
 * container, or none of these. This decides which owner its samples get and which entry it has in
 * the kernel's filter. Loop thread.
 */
#include "node/proc/internal.h"

/*
 * The API server reports the id of a container some seconds after its cgroup was made. If it has
 * not reported an id after this time, the container is the pod's sandbox.
 */
#define UNNAMED_NS (30 * NSEC_PER_SEC)

/*
 * Whether the path of the cgroup k may belong to more than one pod: two nodes on one kernel (kind)
 * may run static pods with the same hash.
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

/*
 * Returns the filter for a container whose id the API server has not reported yet, or for the pod's
 * own cgroup (container_id "").
 */
static struct container_filter filter_of_pod(const struct containers *p, const struct plan_pod *pod,
					     const char *container_id)
{
	const struct cap *cap = proc_caps_of(&p->caps, container_id);

	return (struct container_filter){
		.ns = proc_ns_hash(pod->ns),
		.event_mask = pod->arm_event_mask,
		.sample_hz = capped(cap, pod->arm_sample_hz),
		.settings = pod->arm_settings,
		.off_note = cap->off_note,
		.off_keep = cap->off_keep,
		.context = pod->arm_trace_context,
	};
}

static struct container_filter filter_of_container(const struct containers *p,
						   const struct plan_container *c, uint64_t ns)
{
	const struct cap *cap = proc_caps_of(&p->caps, c->id);

	return (struct container_filter){
		.ns = ns,
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
		/*
		 * deeper cgroups may have counted as the real one, so all cgroups are judged again
		 */
		p->next_ns = 0;
	if (!*pods_depth || k->ref.pods_depth < *pods_depth)
		*pods_depth = k->ref.pods_depth;
	return k->ref.pods_depth == *pods_depth;
}

/*
 * Notes the depth of a container's cgroup. A container's id is unique. A pod's uid is not used
 * here: this node may itself run in a container of a larger node, which may have a static pod with
 * the same hash.
 */
static void note_depth(struct containers *p, const struct known_container *k)
{
	if (p->pods_depth && k->ref.pods_depth < p->pods_depth)
		p->next_ns = 0;
	/* never greater than a depth that was noted before: see is_outermost() */
	p->pods_depth = k->ref.pods_depth;
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

void proc_cgroup_judge(struct containers *p, const struct known_container *k,
		       const struct known_container *parent, uint64_t now_ns,
		       struct container_verdict *ret)
{
	struct planned_container *c;

	*ret = (struct container_verdict){0};
	if (k->ref.runtime_helper)
		return;
	/*
	 * All cgroups below a container belong to it, whatever their names are, even those of a
	 * cluster inside the container.
	 */
	if (parent && parent->owner && parent->until_ns == UINT64_MAX) {
		ret->inherited = true;
		ret->owner = proc_owner_ref(parent->owner);
		ret->filter = parent->filter;
		return;
	}
	c = k->ref.container_id[0] ? proc_planned_container(&p->planned, k->ref.container_id)
				   : NULL;
	if (!c) {
		judge_of_pod(p, k, now_ns, ret);
	} else if (is_outermost(p, k, &c->pods_depth)) {
		note_depth(p, k);
		ret->owner = proc_owner_ref(c->owner);
		ret->filter = filter_of_container(p, c->container, c->owner->ns_hash);
	}
}
