/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pods: which pods the API server has placed on which nodes. The hub believes a sender's profile
 * only if its pod is, or was, on the sender's node. It watches all pods that have a node, and
 * remembers pods that have ended, because a node's spool may still have their profiles.
 */
#pragma once

#include "lib/kube/kube.h"
#include "lib/select/select.h"

/* how long, and how many, ended pods are remembered; the one that ended first is forgotten first */
#define PODS_KEEP_ENDED_NS (24 * 3600 * NSEC_PER_SEC)
#define PODS_MAX_ENDED	   100000

struct pods;
struct pods_ops {
	/* A pod has come to the node, or its object has changed. Loop thread; may be NULL. */
	void (*came)(const char *node, void *arg);
	/* The result of pods_unverified() has changed for some namespaces. May be NULL. */
	void (*unverified)(void *arg);
};
int pods_new(struct loop *l, struct kube *k, struct pods **ret);
struct pods *pods_free(struct pods *p);
void pods_set_ops(struct pods *p, const struct pods_ops *ops, void *arg);
/*
 * A text for /healthz, which anybody may read: the watch does not work, or leaves pods out; "": all
 * is well. The caller frees it.
 */
char *pods_problem(const struct pods *p);
/*
 * Why some pods or namespaces are not known: a text for users of targets, which may quote the API
 * server. NULL: all are known, or a watch that has shown its objects fails for less than a
 * minute. Before pods_synced(), NULL says nothing. The caller frees it.
 */
char *pods_unknown(const struct pods *p);
/* Whether the first list of pods, and that of namespaces, are complete. */
bool pods_synced(const struct pods *p);

/* ---- where a pod is: any thread ---- */
struct pods_claim {		/* what a sender says of a pod */
	const char *node, *ns, *name;
	const char *uid;	/* NULL: the sender does not say it */
};
enum pods_place {
	PODS_HERE,		/* the pod is, or was, on this node */
	PODS_ELSEWHERE,		/* it is, or was, on another node */
	PODS_UNKNOWN,		/* the hub has never seen it */
	/* the hub does not know it, and its watch does not work now: the caller asks again later */
	PODS_NOT_NOW,
};
enum pods_place pods_find(struct pods *p, const struct pods_claim *c);
/*
 * Where the pod of this name is, or was last. Returns false if the hub knows none. The caller frees
 * the texts.
 */
bool pods_where(struct pods *p, const char *ns, const char *name, char **ret_node, char **ret_uid);
/* Remembers a pod that the API server has shown to an earlier run of the hub, as one that ended. */
void pods_remember(struct pods *p, const struct pods_claim *c);
/*
 * Remembers for 10 minutes that the hub has stored a profile of this pod without being able to
 * verify it.
 */
void pods_note_unverified(struct pods *p, const struct pods_claim *c);

/* ---- what targets select: loop thread ---- */

/* Whether the target selects a pod that is on the node now, and the pod may be profiled. */
bool pods_select(const struct pods *p, const char *node, const struct target_selection *s,
		 bool opt_in_required);
/*
 * Calls fn for each pod that is on the node now and whose phase is not Succeeded or Failed. ns
 * NULL: for those of all namespaces. What fn gets is valid until the caller returns to the loop.
 */
void pods_each_running(const struct pods *p, const char *node, const char *ns,
		       void (*fn)(const char *name, const struct selected *of, void *arg),
		       void *arg);
/*
 * Returns a text such as "app/web-1 on node n1 and 2 more": pods of the namespaces that the target
 * selects, whose profiles could not be verified in the last 10 minutes. NULL: there are none. The
 * caller frees it.
 */
char *pods_unverified(struct pods *p, const struct target_selection *s);
