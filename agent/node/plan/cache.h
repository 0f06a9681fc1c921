/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plans remember from one to the next, so that the next one costs what has changed: decoded
 * targets, pods and namespaces, which target selects which pod, and what became of it. An object
 * never changes, except for its resourceVersion: a new version is a new object. The cache has a
 * reference to each object, so that no other object can have its address. Loop thread.
 */
#pragma once

#include "node/plan/internal.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* ---- sets of targets ---- */
/* Each target that the plan accepts has a slot, and so has the built-in target. */
#define PLAN_SLOTS   (PLAN_MAX_TARGETS + 64)
#define PLAN_WORDS   (PLAN_SLOTS / 64)
#define PLAN_NO_SLOT (~0u)
struct slots {
	uint64_t words[PLAN_WORDS];
};
static inline bool plan_slots_have(const struct slots *s, unsigned slot)
{
	return s->words[slot / 64] >> slot % 64 & 1;
}
static inline void plan_slots_put(struct slots *s, unsigned slot)
{
	s->words[slot / 64] |= 1ull << slot % 64;
}

/* ---- order.c: lists that stay sorted ---- */
/* The first member of what such a list is of. */
struct in_order {
	size_t rank; /* in the last list; PLAN_NO_RANK: it is new */
	bool asked;  /* it is in the list of this plan */
};
#define PLAN_NO_RANK SIZE_MAX
/*
 * Sorts the list and sets the ranks. n_before: how long the last list was. Sorts only what is new;
 * if nothing is, it compares nothing.
 */
void plan_order(struct in_order **list, size_t n, size_t n_before,
		int (*compare)(const void *a, const void *b));

/* ---- target_reasons.c: what became of the pods that a target selects ---- */
#define TALLY_FIRST REASON_NAMESPACE_DISABLED
#define N_TALLIED   (REASON_TOO_MANY_CONTAINERS - TALLY_FIRST + 1)
struct tally { /* counts of pods */
	unsigned pods_matched, pods_planned, containers_planned;
	struct tally_of {
		unsigned n;
		/*
		 * The first of these pods; NULL: it is to be found. what: the state of its
		 * container, borrowed. Of pods without room: their namespace, and no pod.
		 */
		const struct known_pod *pod;
		const char *what;
	} of[N_TALLIED]; /* by reason */
};
void plan_tally_add(struct tally *t, enum reason why, const struct known_pod *p, const char *what);
/* Returns whether the tally has no first pod any more, although there are others. */
bool plan_tally_remove(struct tally *t, enum reason why, const struct known_pod *p);
/* Makes the pod the first one if there is none. Returns whether it did. */
bool plan_tally_found(struct tally *t, enum reason why, const struct known_pod *p,
		      const char *what);
/* n pods of the namespace have no room, and may be the target's. */
void plan_tally_without_room(struct tally *t, const char *ns, unsigned n);
unsigned plan_tally_pods_without_room(const struct tally *t);
void plan_tally_no_pods_without_room(struct tally *t);

struct reason_facts {
	const struct target *target, *asked; /* asked: before plan_target_limit() */
	const struct plan_target *plan_target;
	const struct plan_settings *settings;
	bool node_known;
};
/*
 * Fills out->reasons: first the reason that stops the whole target, then the reasons of pods,
 * sorted by the number of pods.
 */
void plan_reasons_write(const struct reason_facts *f, const struct tally *t,
			struct plan_target *out);

/* ---- what is known ---- */

struct known_target {
	struct in_order order;
	const json_t *obj;     /* a reference; NULL: the built-in target */
	struct target asked;   /* as its spec says */
	struct target allowed; /* as the installation allows it */
	unsigned slot;	       /* PLAN_NO_SLOT: it is refused */
	unsigned place;	       /* in the list of this plan's accepted targets */
	bool on_this_node, completed;
	struct tally tally;
	struct plan_target result;
	bool is_stale; /* the result is not what this plan says */
	UT_hash_handle hh;
};

struct known_namespace {
	char *name;
	const json_t *obj; /* a reference; NULL: the namespace is not known */
	bool asked;	   /* it is in the world of this plan */
	unsigned changed;  /* in which plan obj changed */
	unsigned n_kept;   /* kept pods; if there are none, the next three are not used */
	struct select_labels labels;
	/* the targets that were asked whether they select the namespace, and those that do */
	struct ns_targets {
		struct slots known, takes;
	} *targets;
	unsigned looked; /* the last plan that asked them */
	UT_hash_handle hh, by_obj;
};

/* What a target does with a pod that it selects. */
struct outcome {
	uint16_t slot;
	uint16_t n_containers; /* that are profiled */
	uint8_t why;	       /* enum reason */
	bool cut;	       /* the pod has more containers than the plan takes */
	uint16_t waits;	       /* 1 + the index of the container whose state is told; 0: none */
};
/* What is kept of a pod. Of those beyond PLAN_MAX_PODS nothing is, so that it has a limit. */
struct kept_pod {
	struct known_namespace *ns;
	struct select_labels labels;
	/* the targets whose pod selector was compared, and those that match */
	struct slots known, matches;
	bool is_new, ambiguous;
	struct slots selected;	  /* the targets that select the pod */
	struct outcome *outcomes; /* of these, in the order of the targets */
	size_t n_outcomes;
	struct plan_pod result; /* refs NULL: nothing of the pod is profiled */
};
struct cgroup_claim { /* pods that claim the same cgroup */
	char *uid;
	unsigned n;
	UT_hash_handle hh;
};
struct known_pod {
	struct in_order order;
	const json_t *obj;    /* a reference */
	int state;	      /* of plan_pod_decode(); unless it is 1, the rest is not used */
	struct pod_view view; /* of a pod that is not kept: without containers and tags */
	struct cgroup_claim *claim;
	bool over_limit;       /* it is beyond PLAN_MAX_PODS */
	struct kept_pod *kept; /* NULL: it is over the limit, or new */
	UT_hash_handle hh;
};

struct plan_cache {
	unsigned n_plans;
	struct known_target *targets, *builtin;
	struct known_namespace *namespaces, *by_obj; /* all; those with an object, by its address */
	struct known_pod *pods;
	struct cgroup_claim *claims;
	size_t n_targets, n_pods; /* in the lists of the last plan */
	struct known_target *of_slot[PLAN_SLOTS];
	unsigned first_free; /* all slots below are taken */
	unsigned n_words;    /* of sets of slots; the rest is 0 */
	bool node_known, had_without_room, had_over_limit;
};

/* ---- one plan ---- */

struct planning {
	const struct plan_world *w;
	const struct plan_settings *s;
	struct plan_cache *c;
	struct plan *plan;
	/* in order; of pods: those that the plan can read */
	struct known_target **targets, **accepted;
	struct known_pod **pods;
	size_t n_targets, n_accepted, n_pods;
	/*
	 * active: targets that may select pods of this node. changed: those that do something else
	 * with their pods than in the last plan, or are new in their slots. gone: slots that a
	 * target of the last plan has no more. lost: targets whose tally has no first pod.
	 */
	struct slots active, changed, gone, lost;
	/* all tallies begin at 0, because those of the last plan count pods that are not kept */
	bool recount;
};

/* cache_targets.c: fills targets, accepted, active, changed and gone */
void plan_read_targets(struct planning *p);
void plan_targets_free(struct plan_cache *c);

/* cache_namespaces.c */
void plan_read_namespaces(struct planning *p);
/* Returns the namespace, also if the API server did not tell of it. */
struct known_namespace *plan_namespace(struct plan_cache *c, const char *name);
/* n NULL: not known */
const json_t *plan_namespace_labels(const struct known_namespace *n);
bool plan_takes_namespace(const struct planning *p, const struct known_target *t, const char *ns,
			  const struct select_labels *labels);
/* A pod of the namespace is kept, or not kept any more. */
void plan_namespace_join(struct known_namespace *n);
void plan_namespace_leave(struct known_namespace *n);
/* Asks the targets whether they select the namespace, as far as it is not known. */
void plan_look_at_namespace(struct planning *p, struct known_namespace *n);
void plan_namespaces_free(struct plan_cache *c);

/* cache_pods.c: fills pods. Pods that are not kept any more are no longer counted. */
void plan_read_pods(struct planning *p);
void plan_pods_free(struct plan_cache *c);

/* over_limit.c: chooses the pods that are over the limit */
void plan_pods_choose(struct known_pod **pods, size_t n);

/* outcomes.c: what targets do with a pod */
/* Makes the pod's outcomes and result anew, if they are not those of this plan. */
void plan_pod_update(struct planning *p, struct known_pod *pod);
/* Counts what became of the pod in the tallies of its targets, or no longer counts it. */
void plan_pod_count(struct planning *p, struct known_pod *pod);
void plan_pod_uncount(struct planning *p, struct known_pod *pod);
/* Finds the first pods of tallies that have lost theirs. */
void plan_find_first_pods(struct planning *p);
/* Counts a pod that is over the limit. */
void plan_count_over_limit(struct planning *p, struct known_pod *pod);

/* merge.c */
/* Returns why the target must not profile a pod that it selects, if so. */
enum reason plan_pod_refusal(const struct planning *p, const struct known_target *t,
			     const struct known_pod *pod, const struct selected *selected);
/* Makes the outcomes and the result of a pod that is kept. */
void plan_merge(struct planning *p, struct known_pod *pod);

/* free.c: for a pod or target without refs, too */
void plan_pod_release(struct plan_pod *p);
void plan_target_release(struct plan_target *t);
