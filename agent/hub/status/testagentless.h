/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of agentless only: makes nodes, agents and their pods. It replaces watches and lists,
 * and the test sets the clock.
 */
#pragma once

#include "hub/status/agentless.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testwatches.h"

/* the time at which each test begins; only the test changes the clock */
#define BEGAN_NS (1800000000 * NSEC_PER_SEC)

static struct agentless *a;
static unsigned n_changed, n_unseen, n_listed;
static char changed_node[64];
/* what the API server returns for every node, and for its pods; NULL: nothing */
static json_t *node_object, *pod_object;
static size_t left_out;			 /* how many pods the list lacks */

static inline void on_changed(const char *node, void *arg)
{
	(void)arg;
	n_changed++;
	snprintf(changed_node, sizeof(changed_node), "%s", node);
}

static inline void on_unseen(void *arg)
{
	(void)arg;
	n_unseen++;
}

/* ---- nodes, agents and lists ---- */

static inline void start(void)
{
	static const struct agentless_config c = {"podflame-system", true};
	static const struct agentless_ops ops = {on_changed, on_unseen};

	status_agentless_free(a); /* left by a test that failed */
	test_clock.stands_ns = BEGAN_NS;
	n_changed = n_unseen = n_listed = 0;
	assert_int_equal(status_agentless_new(testwatches(NULL), &c, &ops, NULL, &a), 0);
}

static inline void end(void)
{
	a = status_agentless_free(a);
	assert_null(find_watch("/"));
	json_decref(node_object);
	json_decref(pod_object);
	node_object = pod_object = NULL;
	left_out = 0;
}

/*
 * Marks the agents' pods as listed, and returns the watch of them. Before they are listed, no node
 * counts as one without an agent.
 */
static inline struct kube_watch *agents(void)
{
	struct kube_watch *w = watch_of("/namespaces/podflame-system/pods");

	assert_string_equal(w->label_selector,
			    "app.kubernetes.io/name=podflame,app.kubernetes.io/component=agent");
	w->synced = true;
	return w;
}

static inline char *age(unsigned s)
{
	char text[32];

	time_format(BEGAN_NS - s * NSEC_PER_SEC, text);
	return xstrdup(text);
}

static inline void add_node(const char *name, unsigned age_s)
{
	_cleanup_free_ char *created = age(age_s);
	_cleanup_json_ json_t *obj =
		json_pack("{s:{s:s, s:s}}", "metadata", "name", name, "creationTimestamp", created);

	status_agentless_node(a, name, obj);
}

#define RUNNING "{\"name\": \"agent\", \"state\": {\"running\": {}}}"
/*
 * A container of an agent that was started at 12:00, and a pod's condition that is false since a
 * time.
 */
#define READY                                                                                      \
	"{\"name\": \"agent\", \"ready\": true, \"state\": {\"running\": {\"startedAt\": "         \
	"\"2020-01-21T12:00:00Z\"}}}"
#define STARTED                                                                                    \
	"{\"name\": \"agent\", \"state\": {\"running\": {\"startedAt\": "                          \
	"\"2020-01-21T12:00:00Z\"}}}"
#define NOT_READY_SINCE(time)                                                                      \
	"{\"type\": \"Ready\", \"status\": \"False\", \"lastTransitionTime\": \"2020-01-21T" time  \
	"Z\"}"
#define WAITING(reason, message)                                                                   \
	"{\"name\": \"agent\", \"state\": {\"waiting\": {\"reason\": \"" reason                    \
	"\", \"message\": \"" message "\"}}}"

/* Puts the pod of an agent on the node. container, condition: JSON or "". */
static inline void agent(const char *node, const char *container, const char *condition)
{
	struct kube_watch *w = agents();
	_cleanup_free_ char *created = age(1000);
	_cleanup_free_ char *text = xasprintf(
		"{\"metadata\": {\"name\": \"a\", \"creationTimestamp\": \"%s\"}, \"spec\": "
		"{\"nodeName\": \"%s\"}, \"status\": {\"phase\": \"Running\", "
		"\"conditions\": [%s], \"containerStatuses\": [%s]}}",
		created, node, condition, container);
	_cleanup_free_ char *key = xasprintf("podflame-system/a-%s", node);
	_cleanup_json_ json_t *pod = json_loads(text, 0, NULL);

	assert_non_null(pod);
	w->trim(pod);
	w->ops.upsert(key, pod, NULL, w->arg);
}

/* Adds a node on which an agent works. */
static inline void add_working(const char *name)
{
	add_node(name, 1000);
	status_agentless_report(a, name, true);
	agent(name, READY, "");
}

/* The list that the hub waits for; NULL: none. */
static inline struct kube_watch *list_under_way(void)
{
	static const char *const paths[] = {"/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"};

	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		for (size_t k = 0; k < ARRAY_SIZE(paths); k++)
			if (watches[i].used && streq(watches[i].path, paths[k]) &&
			    !watches[i].synced)
				return &watches[i];
	return NULL;
}

/*
 * Answers a list; no namespace is listed. If the list's path is fails, the API server refuses the
 * list.
 */
static inline void answer_list(struct kube_watch *w, const char *fails)
{
	n_listed++;
	assert_true(w->once);
	if (fails && streq(w->path, fails)) {
		w->ops.state("list: HTTP 403: forbidden", w->arg);
		return;
	}
	if (streq(w->path, "/api/v1/nodes")) {
		if (!node_object)
			node_object = json_object();
		keep(w, w->field_selector + strlen("metadata.name="), node_object);
	} else if (streq(w->path, "/api/v1/pods")) {
		keep(w, "app/p", pod_object);
		w->n_left_out = left_out;
	}
	w->synced = true;
	w->ops.synced(w->arg);
}

static inline void answer_lists(const char *fails)
{
	for (struct kube_watch *w; (w = list_under_way());)
		answer_list(w, fails);
}

static inline void pass(unsigned seconds, const char *fails)
{
	for (unsigned i = 0; i < seconds; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		status_agentless_tick(a, true);
		answer_lists(fails);
	}
}

/* ---- results of looks ---- */

static inline json_t *entry_of(const char *node)
{
	_cleanup_json_ json_t *target =
		json_loads("{\"metadata\": {\"uid\": \"u\", \"namespace\": \"app\", "
			   "\"generation\": 3}, \"spec\": {\"podSelector\": {}}}",
			   0, NULL);

	return status_agentless_entry(a, node, target);
}

/* Makes nodes n1 to nN without an agent, each with one pod. */
static inline void start_with_pods(unsigned n)
{
	start();
	pod_object = json_loads("{\"metadata\": {\"name\": \"p\", \"namespace\": \"app\", "
				"\"labels\": {\"a\": \"b\"}}}",
				0, NULL);
	for (unsigned i = 1; i <= n; i++) {
		_cleanup_free_ char *name = xasprintf("n%u", i);

		add_node(name, 1000);
	}
	agents();
}
