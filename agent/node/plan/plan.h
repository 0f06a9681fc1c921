/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: a pure function of (targets, pods, namespaces, node, settings, now). Its result has, for
 * each container that is profiled, the events, their settings and the tags. For each target it has
 * the number of pods that it matches, and the reasons why pods are not profiled. No I/O, no clock,
 * no globals. controller-spec/ describes the behaviour as text and cases.
 */
#pragma once

#include "lib/profile/profile.h"
#include "lib/reason/reason.h"

#define PLAN_MAX_PODS 2000 /* of one node; the kubelet's own default is 110 */

/*
 * What a ProfilingTarget may ask for; a ClusterProfilingTarget and the built-in target may ask for
 * more. 0: there is no limit.
 */
struct plan_tenant_limits {
	unsigned max_sample_hz;
	double max_overhead_percent;
	unsigned refused_events;	/* mask of the events that it must not ask for */
	uint64_t min_sample_bytes;	/* of mem-alloc and mem-inuse */
	unsigned max_targets;		/* of one namespace */
};
/*
 * Returns the mask of the events that are not in the list: fields of spec.events ("onCpu"), or
 * "all". NULL is behind the last one.
 */
unsigned plan_events_not_listed(char *const *list);

/* Settings of the installation that the plan depends on. Strings are borrowed. */
struct plan_settings {
	const char *cluster_name;
	const char *node_name;
	/* podflame's namespace; the built-in target never selects it */
	const char *own_namespace;
	/* a ClusterProfilingTarget selects only pods in labelled namespaces */
	bool opt_in_required;
	/* pods in labelled namespaces are profiled without any target */
	bool default_target;
	unsigned default_sample_hz;	/* usually 99 */
	unsigned max_sample_hz;		/* limit of sample_hz of every target; usually 199 */
	struct plan_tenant_limits tenant;
};

/*
 * What the last plan found. It only makes the next plan faster: its cost grows with what has
 * changed.
 */
struct plan_cache;
struct plan_cache *plan_cache_new(void);
struct plan_cache *plan_cache_free(struct plan_cache *c);

/* The objects of the API server, borrowed. Pods are those of this node only. */
struct plan_world {
	/*
	 * May be NULL. If there is a cache, the caller must not change the object of a target, pod
	 * or namespace, except for its resourceVersion, and all plans must have the same settings.
	 */
	struct plan_cache *cache;
	const json_t *const *targets;		/* ProfilingTarget and ClusterProfilingTarget */
	size_t n_targets;
	const json_t *const *pods;
	size_t n_pods;
	const json_t *const *namespaces;	/* only names and labels are read */
	size_t n_namespaces;
	/*
	 * an object: the namespaces with pods of this node that are not in pods, because the agent
	 * has no room for them, and the number of these; NULL: none
	 */
	const json_t *without_room;
	const json_t *node; /* NULL: not known yet; then a node selector does not match */
	struct plan_settings settings;
	uint64_t now_ns;			/* wall time, for stopAfter */
};

struct plan_event {
	enum event event;
	unsigned sample_hz;
};
/*
 * Settings of events other than on-cpu. If several targets have the same setting, the plan uses the
 * finest value: the smallest one, but for max_block_us the greatest. If no target asks for an
 * event, its settings are 0.
 */
struct event_settings {
	uint32_t min_block_us;		/* off-cpu: shorter waits are not recorded */
	uint64_t max_block_us;		/* off-cpu: a longer wait counts as one of this length */
	/* mem-alloc: mean number of bytes between samples; 1: each allocation is a sample */
	uint64_t alloc_sample_bytes;
	uint64_t inuse_sample_bytes;	/* mem-inuse: the same for memory in use */
	/* mem-alloc: limit of the time by which one span of probing may delay the container */
	uint32_t max_stall_us;
};
bool plan_event_settings_equal(const struct event_settings *a, const struct event_settings *b);
#define PLAN_OVERHEAD_PERCENT 1.0	/* limits.overheadPercent, if no target has it */
struct plan_container {
	char *id; /* 64 hex digits, without "containerd://"; NULL: not started yet */
	char *name;
	unsigned event_mask;		/* 1 << enum event */
	unsigned sample_hz;		/* samples per second, for on-cpu */
	struct event_settings settings;
	/*
	 * The smallest limit of its targets. overhead_percent: of events other than on-cpu; 0:
	 * PLAN_OVERHEAD_PERCENT. on_cpu_percent: of on-cpu; 0: there is none.
	 */
	double overhead_percent, on_cpu_percent;
	bool java_attach; /* a target allows the agent to ask JVMs for their perf maps */
	/* a target asks for samples with the trace ids of the request on which the thread works */
	bool trace_context;
	struct tags tags; /* owned: pod_cluster, pod_ns, pod, ..., container, container_id, image */
	uint16_t *targets;		/* plan_target_of() */
	size_t n_targets;
};
/* What a Go program answers at /debug/pprof: the choices of spec.scrape.profiles. */
enum plan_profile {
	PLAN_PROFILE_HEAP,
	PLAN_PROFILE_ALLOCS,
	PLAN_PROFILE_MUTEX,
	PLAN_PROFILE_BLOCK,
	PLAN_PROFILE_GOROUTINE,
	PLAN_PROFILE_CPU,
	_PLAN_PROFILE_MAX
};
const char *plan_profile_name(enum plan_profile p);
/* The profiles of its own for which the agent asks a pod's program. Owns its strings. */
struct plan_scrape {
	char *address; /* the pod's; NULL only if it is refused */
	uint16_t port;
	unsigned profiles; /* mask: 1 << enum plan_profile */
	uint64_t interval_ns;
	/* why the agent must not ask this pod; a constant. NULL: it may ask */
	const char *refused;
	char **target_uids;
	size_t n_targets;
};
/*
 * Plans share pods and targets that have not changed: nobody may change what plan_build() has made,
 * and plans of one cache belong to one thread. refs: how many have it; NULL: only this plan.
 */
struct plan_pod {
	unsigned *refs;
	char *uid;			/* metadata.uid */
	/* the uid in the cgroup's path: that of the pod, or config.hash for a static pod */
	char *cgroup_uid;
	char *ns, *name;
	/*
	 * whether the filter may select the pod's own cgroup, because all its containers are
	 * selected
	 */
	bool arm_pod;
	unsigned arm_event_mask, arm_sample_hz;	/* 0 unless arm_pod */
	struct event_settings arm_settings;
	/* all containers of the pod ask for trace contexts */
	bool arm_trace_context;
	/* owned: tags for samples whose container is not known yet */
	struct tags tags;
	struct plan_container *containers;
	size_t n_containers;
	struct plan_scrape *scrape; /* owned; NULL: no target asks for it */
};
struct plan_reason {
	enum reason reason;
	char *message;			/* for the user; at most 1024 bytes */
	unsigned n_pods;		/* the number of pods that this reason concerns */
};
struct plan_target {
	unsigned *refs;			/* as those of a pod */
	/* ns is "" for a ClusterProfilingTarget; the built-in target has the uid "builtin" */
	char *uid, *kind, *ns, *name;
	int64_t generation;
	/* false: the target has no effect, and reasons[0] has the cause */
	bool accepted;
	bool on_this_node;		/* whether the target's nodeSelector selects this node */
	bool suspended, completed;
	unsigned event_mask;
	unsigned pods_matched, pods_planned, containers_planned;
	/* pods in namespaces in which it selects, for which the agent has no room */
	unsigned pods_without_room;
	struct plan_reason *reasons;
	size_t n_reasons;
};
struct plan {
	struct plan_pod *pods;		/* only pods with something to profile; sorted by uid */
	size_t n_pods;
	/* all targets, also those that match no pod; sorted by uid */
	struct plan_target *targets;
	size_t n_targets;
	/* by the numbers in plan_container.targets: an index in targets; NULL: each is its index */
	uint32_t *slots;
	/* number of pods without uid, namespace or name; no target counts them */
	unsigned pods_unreadable;
	/* wall time at which the next stopAfter ends, so that the plan changes; 0: none */
	uint64_t next_change_ns;
};

/*
 * Builds the plan. It has a reason for each target that cannot be read, and the number of pods that
 * cannot be read. Returns 0 or a negative errno.
 */
int plan_build(const struct plan_world *w, struct plan **ret);
struct plan *plan_free(struct plan *p);
/* Returns the target with index i of the container, which must be less than its n_targets. */
const struct plan_target *plan_target_of(const struct plan *p, const struct plan_container *c,
					 size_t i);
/*
 * Remove the members that plan_build() does not read, because a pod of 800 KB may need 16 MB of
 * memory as json_t.
 */
void plan_trim_target(json_t *target);
void plan_trim_pod(json_t *pod);
void plan_trim_named(json_t *obj);		/* for a namespace or a node */
/*
 * Calls fn with the uid of each target that selected a container. The container is given by its id,
 * or by its pod's uid if container_id is NULL or "". If the plan does not know container_id (a
 * container may run before the API server has reported its id), fn gets the targets of all
 * containers of the pod whose id is not known yet. plan NULL: fn is not
 * called.
 */
void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg);
json_t *plan_to_json(const struct plan *p);	/* for tests and GET /debug/plan */

/*
 * Sorts targets or pods for a list that has no room for all. If only the head of the list is used,
 * each namespace has as many there as the other namespaces, or all that it has. index: the order
 * within a namespace, and between objects of the same rank. The caller sets rank to 0.
 */
struct plan_share {
	const char *ns;			/* borrowed; "": a ClusterProfilingTarget */
	size_t index;
	unsigned rank;			/* position among those of its namespace */
};
void plan_share(struct plan_share *list, size_t n);

/*
 * Checks one target, as plan_build() does. Returns 0 or -EINVAL. The path in *reterr is the field
 * ("spec.podSelector").
 */
int plan_check_target(const json_t *target, struct field_error *reterr);
