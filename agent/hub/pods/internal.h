/* SPDX-License-Identifier: Apache-2.0 */
/* Private to pods/: pods.c (where pods are), unverified.c (of which pods the hub did not know). */
#pragma once

#include "hub/pods/pods.h"

#include <pthread.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>
#include <utlist.h>

struct pod {
	char *uid;
	struct pod_name *name;
	struct pod_node *node;
	uint64_t ended_ns; /* CLOCK_MONOTONIC; 0: it has not ended */
	struct pod *next;  /* in pod_name.pods */
	/* in pod_node.pods or, if the pod has ended, in pods.ended */
	struct pod *prev_listed, *next_listed;
};
struct pod_name {
	char *key;	  /* "namespace/name", as the key of the watch */
	struct pod *pods; /* those that have, or had, this name */
	UT_hash_handle hh;
};
struct pod_node {
	char *name;
	unsigned n_refs;  /* pods that point to the node */
	struct pod *pods; /* those that have not ended */
	UT_hash_handle hh;
};

struct unverified_pod {
	char *name, *node;
	uint64_t until_ns; /* CLOCK_MONOTONIC: when it is forgotten */
};
#define UNVERIFIED_PODS	      8	   /* of one namespace that are remembered */
#define UNVERIFIED_NAMESPACES 1000 /* that are remembered */
struct unverified_ns {
	char *ns;
	struct unverified_pod pods[UNVERIFIED_PODS];
	unsigned n;
	UT_hash_handle hh;
};

struct failure { /* of a watch */
	char *error;	   /* NULL: the watch works */
	uint64_t since_ns; /* CLOCK_MONOTONIC */
};
struct pods {
	struct loop *loop;
	struct kube_watch *watch, *namespaces;
	struct failure failure, namespaces_failure;
	struct pods_ops ops;
	void *ops_arg;
	struct timer timer;
	pthread_mutex_t lock; /* guards the members below; only the loop thread changes pods */
	struct pod_name *names;
	struct pod_node *nodes;
	struct pod *ended; /* the one that ended first is first */
	size_t n_ended;
	bool works; /* the watch of pods */
	struct unverified_ns *unverified;
	bool unverified_changed;
};

/* ---- unverified.c ---- */
/* To be called every few seconds, on the loop thread. Calls ops.unverified. */
void pods_unverified_tick(struct pods *p);
void pods_unverified_done(struct pods *p);
