/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: pure function of (targets, pods, namespaces, node, settings, now): which
 * container is profiled, for which event, how, and with which tags; and for each
 * target what it matched and why it does not work. No I/O, no clock, no globals.
 * The behaviour as text and cases: controller-spec/.
 */
#pragma once

#include "lib/profile/profile.h"
#include "lib/reason/reason.h"

/* Settings of the install that the plan depends on. Strings borrowed. */
struct plan_settings {
	const char *cluster_name;
	const char *node_name;
	const char *own_namespace;	/* podflame's own: never by the built-in target */
	bool opt_in_required;		/* ClusterProfilingTarget reaches labelled namespaces only */
	bool default_target;		/* labelled namespaces are profiled without any target */
	unsigned default_sample_hz;	/* 99 */
	unsigned max_sample_hz;		/* cap, 199 */
};

/* Targets as they were decoded for the plan before. What a plan says does not depend on it. */
struct plan_cache;
struct plan_cache *plan_cache_new(void);
struct plan_cache *plan_cache_free(struct plan_cache *c);

/* The API objects as they came; borrowed. Pods are this node's only. */
struct plan_world {
	struct plan_cache *cache;		/* then of no target's object more than the resourceVersion may change; may be NULL */
	const json_t *const *targets;		/* ProfilingTarget and ClusterProfilingTarget */
	size_t n_targets;
	const json_t *const *pods;
	size_t n_pods;
	const json_t *const *namespaces;	/* name + labels */
	size_t n_namespaces;
	const json_t *node;			/* NULL: not known yet, node selectors fail closed */
	struct plan_settings settings;
	uint64_t now_ns;			/* wall time, for stopAfter */
};

struct plan_event {
	enum event event;
	unsigned sample_hz;
};
/*
 * What events besides on-cpu are set to; of several targets the finest counts: the smallest, of max_block the
 * greatest. Of events that nobody asks for: 0.
 */
struct event_settings {
	uint32_t min_block_us;		/* off-cpu: shorter waits are left out */
	uint64_t max_block_us;		/* a wait counts until it is so long */
	uint64_t alloc_sample_bytes;	/* mem-alloc: mean distance of samples; 1: each allocation */
	uint64_t inuse_sample_bytes;	/* mem-inuse */
	uint32_t max_stall_us;		/* mem-alloc: latency that an attached span may add */
};
bool plan_event_settings_equal(const struct event_settings *a, const struct event_settings *b);
struct plan_container {
	char *id;			/* 64 hex, without "containerd://"; NULL: not started yet */
	char *name;
	unsigned event_mask;		/* 1 << enum event */
	unsigned sample_hz;		/* on-cpu */
	struct event_settings settings;
	double overhead_percent;	/* smallest of its targets' limits; 0: none */
	bool java_attach;		/* a target allows to ask JVMs for their perf maps */
	bool trace_context;		/* a target wants samples to carry the call they were taken in */
	struct tags tags;		/* owned: pod_cluster, pod_ns, pod, ..., container, container_id, image */
	size_t *targets;		/* indexes into plan.targets */
	size_t n_targets;
};
struct plan_pod {
	char *uid;			/* metadata.uid */
	char *cgroup_uid;		/* what the cgroup path says: uid, or config.hash of a static pod */
	char *ns, *name;
	bool arm_pod;			/* every container of it is wanted: the pod-level cgroup may arm the filter */
	unsigned arm_event_mask, arm_sample_hz;	/* with arm_pod */
	struct event_settings arm_settings;
	bool arm_trace_context;			/* all of its containers want it */
	struct tags tags;		/* pod-level tags, owned: for containers not named yet */
	struct plan_container *containers;
	size_t n_containers;
};
struct plan_reason {
	enum reason reason;
	char *message;			/* for a person; <= 1024 bytes */
	unsigned n_pods;		/* how many pods it concerns */
};
struct plan_target {
	char *uid, *kind, *ns, *name;	/* ns "" for cluster kind; the built-in one: uid "builtin" */
	int64_t generation;
	bool accepted;			/* false: reasons[0] says why nothing of it is done */
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
	struct plan_target *targets;	/* sorted by uid; those that exist, matched or not */
	size_t n_targets;
	unsigned pods_unreadable;	/* without uid, namespace or name: in no target's counts */
	uint64_t next_change_ns;	/* wall time when the plan changes by itself (stopAfter); 0: never */
};

int plan_build(const struct plan_world *w, struct plan **ret);	/* objects it cannot read become reasons */
struct plan *plan_free(struct plan *p);
/* Takes away what plan_build does not read: a pod of 800 KB may be 16 MB in memory. */
void plan_trim_target(json_t *target);
void plan_trim_pod(json_t *pod);
void plan_trim_named(json_t *obj);		/* a namespace or node */
/*
 * Calls fn with the uid of each target that selected a container, by its id; by its pod's where container_id is NULL or
 * "". A container that runs before the API server has said its id is one of its pod's without. plan NULL: no target.
 */
void plan_targets_of(const struct plan *plan, const char *container_id, const char *pod_uid,
		     void (*fn)(const char *uid, void *arg), void *arg);
json_t *plan_to_json(const struct plan *p);	/* tests, GET /debug/plan */

/*
 * Where there is room for some targets only: sorts them so that of the first n each namespace has as many as the
 * others, or all of its own. index: the order within a namespace, and of equals; rank: 0.
 */
struct plan_share {
	const char *ns;			/* "": of the cluster; borrowed */
	size_t index;
	unsigned rank;			/* within its namespace */
};
void plan_share(struct plan_share *list, size_t n);

/* Decoding of one target, for checks of input; path is the field ("spec.podSelector"). */
int plan_check_target(const json_t *target, struct field_error *reterr);
