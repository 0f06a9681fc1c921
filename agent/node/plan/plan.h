/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: a pure function of (targets, pods, namespaces, node, settings, now). It says which
 * container is profiled, for which event, how, and with which tags, and for each target what it
 * matched and why it does not work. No I/O, no clock, no globals. controller-spec/ describes the
 * behaviour as text and cases.
 */
#pragma once

#include "lib/profile/profile.h"
#include "lib/reason/reason.h"

/* Settings of the install that the plan depends on. Strings are borrowed. */
struct plan_settings {
	const char *cluster_name;
	const char *node_name;
	const char *own_namespace;	/* podflame's own; the built-in target never selects it */
	bool opt_in_required; /* ClusterProfilingTarget reaches labelled namespaces only */
	bool default_target;		/* labelled namespaces are profiled without any target */
	unsigned default_sample_hz;	/* 99 */
	unsigned max_sample_hz;		/* cap, 199 */
};

/* Targets as they were decoded for the previous plan. It does not change what a plan says. */
struct plan_cache;
struct plan_cache *plan_cache_new(void);
struct plan_cache *plan_cache_free(struct plan_cache *c);

/* The API objects as they came, borrowed. Pods are those of this node only. */
struct plan_world {
	/*
	 * May be NULL. With a cache, an object of a target must not change, except for its
	 * resourceVersion.
	 */
	struct plan_cache *cache;
	const json_t *const *targets;		/* ProfilingTarget and ClusterProfilingTarget */
	size_t n_targets;
	const json_t *const *pods;
	size_t n_pods;
	const json_t *const *namespaces;	/* name and labels */
	size_t n_namespaces;
	const json_t *node; /* NULL: not known yet; then node selectors match nothing */
	struct plan_settings settings;
	uint64_t now_ns;			/* wall time, for stopAfter */
};

struct plan_event {
	enum event event;
	unsigned sample_hz;
};
/*
 * Settings of events other than on-cpu. If several targets set one, the finest counts: the smallest
 * value, but for max_block the greatest. For events that no target asks for: 0.
 */
struct event_settings {
	uint32_t min_block_us;		/* off-cpu: shorter waits are left out */
	uint64_t max_block_us;		/* off-cpu: of a longer wait only so much counts */
	uint64_t alloc_sample_bytes; /* mem-alloc: mean distance of samples; 1: each allocation */
	uint64_t inuse_sample_bytes;	/* mem-inuse */
	uint32_t max_stall_us;		/* mem-alloc: the latency that an attached span may add */
};
bool plan_event_settings_equal(const struct event_settings *a, const struct event_settings *b);
struct plan_container {
	char *id; /* 64 hex digits, without "containerd://"; NULL: not started yet */
	char *name;
	unsigned event_mask;		/* 1 << enum event */
	unsigned sample_hz;		/* for on-cpu */
	struct event_settings settings;
	double overhead_percent;	/* the smallest of its targets' limits; 0: none */
	bool java_attach; /* a target allows the agent to ask JVMs for their perf maps */
	/* a target asks for samples that name the call in which they were taken */
	bool trace_context;
	struct tags tags; /* owned: pod_cluster, pod_ns, pod, ..., container, container_id, image */
	size_t *targets;		/* indexes into plan.targets */
	size_t n_targets;
};
struct plan_pod {
	char *uid;			/* metadata.uid */
	char *cgroup_uid; /* the one in the cgroup's path: uid, or config.hash of a static pod */
	char *ns, *name;
	/* all of its containers are selected, so the filter may select the pod's own cgroup */
	bool arm_pod;
	unsigned arm_event_mask, arm_sample_hz;	/* set with arm_pod */
	struct event_settings arm_settings;
	bool arm_trace_context;			/* all of its containers ask for it */
	/* owned: the tags of the pod, for containers whose names are not known yet */
	struct tags tags;
	struct plan_container *containers;
	size_t n_containers;
};
struct plan_reason {
	enum reason reason;
	char *message;			/* for the user; at most 1024 bytes */
	unsigned n_pods;		/* how many pods it concerns */
};
struct plan_target {
	/* ns "" for the cluster kind; the built-in one has uid "builtin" */
	char *uid, *kind, *ns, *name;
	int64_t generation;
	bool accepted;			/* false: reasons[0] says why the target has no effect */
	bool on_this_node;		/* nodeSelector matches */
	bool suspended, completed;
	unsigned event_mask;
	unsigned pods_matched, pods_planned, containers_planned;
	struct plan_reason *reasons;
	size_t n_reasons;
};
struct plan {
	struct plan_pod *pods;		/* only those with something to profile; sorted by uid */
	size_t n_pods;
	struct plan_target *targets;	/* sorted by uid; all that exist, matched or not */
	size_t n_targets;
	unsigned pods_unreadable;	/* without uid, namespace or name: no target counts them */
	/* wall time when the plan changes by itself (stopAfter); 0: never */
	uint64_t next_change_ns;
};

/* An object that it cannot read becomes a reason. Returns 0 or a negative errno. */
int plan_build(const struct plan_world *w, struct plan **ret);
struct plan *plan_free(struct plan *p);
/* Removes what plan_build() does not read: a pod of 800 KB may take 16 MB of memory. */
void plan_trim_target(json_t *target);
void plan_trim_pod(json_t *pod);
void plan_trim_named(json_t *obj);		/* a namespace or node */
/*
 * Calls fn with the uid of each target that selected a container, by its id, or by its pod's uid if
 * container_id is NULL or "". A container that runs before the API server has reported its id
 * counts as one of its pod's containers without an id. plan NULL: no target.
 */
void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg);
json_t *plan_to_json(const struct plan *p);	/* tests, GET /debug/plan */

/*
 * For a list with room for some targets only: sorts them so that among the first n each namespace
 * has as many targets as the others, or all of its own. index: the order within a namespace, and
 * among equals. rank: 0.
 */
struct plan_share {
	const char *ns;			/* "": a cluster target; borrowed */
	size_t index;
	unsigned rank;			/* within its namespace */
};
void plan_share(struct plan_share *list, size_t n);

/* Decodes one target to check input. The path in *reterr is the field ("spec.podSelector"). */
int plan_check_target(const json_t *target, struct field_error *reterr);
