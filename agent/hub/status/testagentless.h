/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of agentless only: makes nodes, agents and pods. It replaces watches, and the test sets
 * the clock.
 */
#pragma once

#include "hub/status/agentless.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testwatches.h"
#include "lib/loop/testtimer.h"

/* the time at which each test begins; only the test changes the clock */
#define BEGAN_NS (1800000000 * NSEC_PER_SEC)

static struct agentless *a;
static struct pods *pods;
static unsigned n_changed, n_unseen;
static char changed_node[64];
static uint64_t change_takes_ns; /* how long each call of on_changed takes */
static json_t *objects;		 /* the pods' objects */

static inline void on_changed(const char *node, void *arg)
{
	(void)arg;
	n_changed++;
	test_clock.stands_ns += change_takes_ns;
	snprintf(changed_node, sizeof(changed_node), "%s", node);
}

static inline void on_unseen(void *arg)
{
	(void)arg;
	n_unseen++;
}

/* ---- nodes, agents and pods ---- */

static inline void start(void)
{
	struct agentless_config c = {"podflame-system", true, NULL};
	static const struct agentless_ops ops = {on_changed, on_unseen};

	status_agentless_free(a); /* left by a test that failed */
	pods_free(pods);
	test_clock.stands_ns = BEGAN_NS;
	n_changed = n_unseen = 0;
	change_takes_ns = 0;
	objects = json_array();
	assert_int_equal(pods_new(timer_loop(), testwatches(NULL), &pods), 0);
	c.pods = pods;
	assert_int_equal(status_agentless_new(testwatches(NULL), &c, &ops, NULL, &a), 0);
	watch_of("/api/v1/pods")->synced = true;
	watch_of("/api/v1/namespaces")->synced = true;
}

static inline void end(void)
{
	a = status_agentless_free(a);
	pods = pods_free(pods);
	assert_null(find_watch("/"));
	json_decref(objects);
	objects = NULL;
}

/* Puts a pod of namespace app on the node. */
static inline void add_pod(const char *node)
{
	struct kube_watch *w = watch_of("/api/v1/pods");
	_cleanup_free_ char *name = xasprintf("p-%s", node), *key = xasprintf("app/%s", name);
	json_t *obj = json_pack("{s:{s:s, s:s, s:s}, s:{s:s}}", "metadata", "namespace", "app",
				"name", name, "uid", name, "spec", "nodeName", node);

	json_array_append_new(objects, obj);
	keep(w, key, obj);
	w->ops.upsert(key, obj, NULL, w->arg);
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

static inline void pass(unsigned seconds)
{
	for (unsigned i = 0; i < seconds; i++) {
		test_clock.stands_ns += NSEC_PER_SEC;
		status_agentless_tick(a, true);
	}
}

/* ---- counts ---- */

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
	for (unsigned i = 1; i <= n; i++) {
		_cleanup_free_ char *name = xasprintf("n%u", i);

		add_node(name, 1000);
		add_pod(name);
	}
	agents();
}
