/* SPDX-License-Identifier: Apache-2.0 */
/* See agents.h. */
#include "hub/status/agents.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

#define SELECTOR                                                                                   \
	"app.kubernetes.io/name=podflame,app.kubernetes.io/component=agent" /* set by the chart */
#define CONTAINER  "agent"
#define SAYS_BYTES 240

enum pod_state {
	POD_DOWN,
	POD_STARTING, /* the container runs, but has not been ready since its start */
	POD_RUNNING,  /* the container was ready and is not now: the node may lack CPU */
	POD_READY,    /* the container is ready, or was ready when its node became unreachable */
	_POD_STATE_MAX,
};
struct agent_node {
	char *name;
	uint64_t created_ns;  /* wall clock: when the node was created, or the newest agent on it */
	uint64_t reported_ns; /* monotonic: when the hub last saw that the report was written */
	json_t *object;	      /* NULL: the node does not exist, or is not known yet */
	bool reported, lacks;
	unsigned n_pods[_POD_STATE_MAX];
	UT_hash_handle hh;
};
struct pod { /* a pod of an agent */
	char *key, *node, *says;
	enum pod_state state;
	UT_hash_handle hh;
};
struct agents {
	struct agents_ops ops;
	void *arg;
	struct kube_watch *watch;
	struct agent_node *nodes;
	struct pod *pods;
	uint64_t failed_ns; /* monotonic: when the watch began to fail; 0: the watch works */
	bool begun;
};

/* ---- nodes ---- */

static struct agent_node *find(const struct agents *a, const char *name)
{
	struct agent_node *n;

	HASH_FIND_STR(a->nodes, name, n);
	return n;
}

static struct agent_node *find_or_add(struct agents *a, const char *name)
{
	struct agent_node *n = find(a, name);

	if (n)
		return n;
	n = xcalloc(1, sizeof(*n));
	n->name = xstrdup(name);
	HASH_ADD_KEYPTR(hh, a->nodes, n->name, strlen(n->name), n);
	return n;
}

static void node_free(struct agents *a, struct agent_node *n)
{
	HASH_DEL(a->nodes, n);
	json_decref(n->object);
	free(n->name);
	free(n);
}

bool status_agents_pods_known(const struct agents *a)
{
	return kube_watch_synced(a->watch) && !a->failed_ns;
}

/*
 * Whether an agent works on the node. While the pods are not known, a report is the only sign of an
 * agent. If the node lacked an agent before, the report may be the old agent's. Then it counts only
 * after an agent has written it again.
 *
 * An agent that was ready and is not now still counts: it probably runs on a node that lacks CPU.
 * An agent that was never ready does not count: it has no plan yet, so an earlier agent wrote the
 * report.
 */
static bool works(const struct agents *a, const struct agent_node *n)
{
	if (!n->object)
		return true;
	if (!n->reported)
		return false;
	if (!status_agents_pods_known(a))
		return !n->lacks || n->reported_ns >= a->failed_ns;
	if (n->n_pods[POD_READY])
		return true;
	return n->n_pods[POD_RUNNING] && !n->lacks;
}

static bool has_pods(const struct agent_node *n)
{
	unsigned sum = 0;

	for (size_t i = 0; i < _POD_STATE_MAX; i++)
		sum += n->n_pods[i];
	return sum;
}

static void judge(struct agents *a, struct agent_node *n, uint64_t for_ns)
{
	bool lacks;

	if (!a->begun)
		return;
	lacks = !works(a, n);
	if (lacks != n->lacks) {
		n->lacks = lacks;
		if (lacks)
			a->ops.lacks(n->name, for_ns, a->arg);
		else
			a->ops.works(n->name, a->arg);
	}
	if (!n->object && !n->reported && !has_pods(n))
		node_free(a, n);
}

/* Returns the time in the object, on the wall clock; 0: the object has no such time. */
static uint64_t time_at(const json_t *obj, const char *path)
{
	const char *s = json_str_at(obj, path, NULL);
	uint64_t t;

	return s && time_parse(s, &t) == 0 ? t : 0;
}

static uint64_t created_ns(const json_t *obj)
{
	return time_at(obj, "metadata.creationTimestamp");
}

void status_agents_node(struct agents *a, const char *node, const json_t *obj)
{
	struct agent_node *n = find_or_add(a, node);

	json_decref(n->object);
	n->object = json_incref((json_t *)obj);
	n->created_ns = MAX(n->created_ns, created_ns(obj));
	judge(a, n, 0);
}

const json_t *status_agents_object(const struct agents *a, const char *node)
{
	const struct agent_node *n = find(a, node);

	return n ? n->object : NULL;
}

void status_agents_report(struct agents *a, const char *node, bool there)
{
	struct agent_node *n = find_or_add(a, node);

	n->reported = there;
	if (there)
		n->reported_ns = now_mono_ns();
	judge(a, n, 0);
}

void status_agents_begin(struct agents *a)
{
	uint64_t now = now_wall_ns();
	struct agent_node *n, *next;

	if (a->begun)
		return;
	a->begun = true;
	HASH_ITER (hh, a->nodes, n, next)
		judge(a, n, now > n->created_ns ? now - n->created_ns : 0);
}

bool status_agents_known(const struct agents *a)
{
	return a->failed_ns || kube_watch_synced(a->watch);
}

/* ---- the agents' pods ---- */

/*
 * Returns the node of a pod that is not bound yet. The DaemonSet controller writes it into the
 * pod's affinity.
 */
static const char *meant_for(const json_t *pod)
{
	const json_t *terms = json_at(pod, "spec.affinity.nodeAffinity."
					   "requiredDuringSchedulingIgnoredDuringExecution."
					   "nodeSelectorTerms"),
		     *fields = json_object_get(json_array_get(terms, 0), "matchFields"),
		     *name = json_with(fields, "key", "metadata.name");

	return json_string_value(json_array_get(json_object_get(name, "values"), 0));
}

/*
 * Returns the status of the agent's own container. Other containers may have been injected into the
 * pod.
 */
static const json_t *container_of(const json_t *pod)
{
	const json_t *all = json_at(pod, "status.containerStatuses"),
		     *own = json_with(all, "name", CONTAINER);

	return own ?: json_array_get(all, 0);
}

static const json_t *condition(const json_t *pod, const char *type)
{
	return json_with(json_at(pod, "status.conditions"), "type", type);
}

static uint64_t started_ns(const json_t *pod)
{
	return time_at(container_of(pod), "state.running.startedAt");
}

/*
 * Returns the state of the agent's own container. The pod's condition Ready may be false because of
 * a sidecar or a readiness gate. So this function uses that condition only to find out whether a
 * container that is not ready now was ready before.
 */
static enum pod_state state_of(const json_t *pod)
{
	const json_t *c = container_of(pod);
	uint64_t changed = time_at(condition(pod, "Ready"), "lastTransitionTime");

	if (!json_is_object(json_at(c, "state.running")))
		return POD_DOWN;
	if (json_bool_at(c, "ready", false))
		return POD_READY;
	return changed && changed <= started_ns(pod) ? POD_STARTING : POD_RUNNING;
}

static char *with_message(const char *text, const char *reason, const char *message)
{
	return xasprintf("%s%.64s%s%s", text, reason, *message ? ": " : "", message);
}

/*
 * Why the container waits. For a container that crashes again and again, Kubernetes' message has
 * the name of the pod and a time, but not the cause. So the text is made here.
 */
static char *waiting_says(const json_t *c)
{
	const char *reason = json_str_at(c, "state.waiting.reason", "");

	if (streq(reason, "CrashLoopBackOff"))
		return xasprintf("the agent's pod ends again and again (%.64s, exit code %lld): "
				 "see its log",
				 json_str_at(c, "lastState.terminated.reason", reason),
				 (long long)json_int_at(c, "lastState.terminated.exitCode", -1));
	return with_message("the agent's pod waits: ", reason,
			    json_str_at(c, "state.waiting.message", ""));
}

static char *says(const json_t *pod, enum pod_state state)
{
	const json_t *c = container_of(pod), *scheduled = condition(pod, "PodScheduled");
	const char *phase = json_str_at(pod, "status.phase", "Pending");

	if (state == POD_READY)
		return xstrdup("the agent there is ready, and has written no report: see its log");
	if (state == POD_RUNNING || state == POD_STARTING)
		return xstrdup("the agent there runs and is not ready: see its log");
	if (json_at(c, "state.waiting"))
		return waiting_says(c);
	if (streq(json_str_at(scheduled, "status", ""), "False"))
		return with_message(
			"the agent's pod is not scheduled: ", json_str_at(scheduled, "reason", ""),
			json_str_at(scheduled, "message", ""));
	if (json_at(pod, "status.reason"))
		return with_message(
			"the agent's pod has ended: ", json_str_at(pod, "status.reason", ""),
			json_str_at(pod, "status.message", ""));
	return xasprintf("the agent's pod does not run (%.32s)", phase);
}

char *status_agents_pod_says(const struct agents *a, const char *node)
{
	const struct pod *best = NULL;

	for (const struct pod *p = a->pods; p; p = p->hh.next) {
		if (streq(p->node, node) && (!best || p->state > best->state))
			best = p;
	}
	return best ? xstrdup(best->says) : NULL;
}

static struct pod *find_pod(const struct agents *a, const char *key)
{
	struct pod *p;

	HASH_FIND_STR(a->pods, key, p);
	return p;
}

/* Removes the pod from the table. Returns its node. */
static struct agent_node *forget_pod(struct agents *a, struct pod *p)
{
	struct agent_node *n = find(a, p->node);

	n->n_pods[p->state]--;
	HASH_DEL(a->pods, p);
	free(p->key);
	free(p->node);
	free(p->says);
	free(p);
	return n;
}

static struct agent_node *note_pod(struct agents *a, const char *key, const json_t *obj,
				   const char *node)
{
	struct pod *p = xcalloc(1, sizeof(*p));
	struct agent_node *n = find_or_add(a, node);
	_cleanup_free_ char *text = NULL;

	p->key = xstrdup(key);
	p->node = xstrdup(node);
	p->state = state_of(obj);
	text = says(obj, p->state);
	p->says = utf8_shorten(text, SAYS_BYTES);
	HASH_ADD_KEYPTR(hh, a->pods, p->key, strlen(p->key), p);
	n->n_pods[p->state]++;
	n->created_ns = MAX(n->created_ns, MAX(created_ns(obj), started_ns(obj)));
	return n;
}

static void on_pod(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct agents *a = arg;
	struct pod *p = find_pod(a, key);
	const char *node = json_str_at(obj, "spec.nodeName", meant_for(obj));
	struct agent_node *was = p ? forget_pod(a, p) : NULL;
	struct agent_node *is = node ? note_pod(a, key, obj, node) : NULL;

	(void)old;
	if (was && was != is)
		judge(a, was, 0);
	if (is)
		judge(a, is, 0);
}

static void on_pod_gone(const char *key, const json_t *last, void *arg)
{
	struct agents *a = arg;
	struct pod *p = find_pod(a, key);

	(void)last;
	if (p)
		judge(a, forget_pod(a, p), 0);
}

static void judge_all(struct agents *a)
{
	struct agent_node *n, *next;

	HASH_ITER (hh, a->nodes, n, next)
		judge(a, n, 0);
}

static void on_synced(void *arg)
{
	judge_all(arg);
}

/* While the watch fails, the hub judges nodes by their reports alone. */
static void on_state(const char *error, void *arg)
{
	struct agents *a = arg;

	if (error) {
		log_warn("watching the agents' pods: %s", error);
		if (!a->failed_ns)
			a->failed_ns = now_mono_ns();
		return;
	}
	if (a->failed_ns)
		log_info("watching the agents' pods");
	a->failed_ns = 0;
	judge_all(a);
}

/* ---- start and end ---- */

static void trim_pod(json_t *pod)
{
	json_t *status, *c;
	size_t i;

	json_keep(pod, "metadata", "name namespace uid resourceVersion creationTimestamp");
	json_keep(pod, "spec", "nodeName affinity");
	json_keep(pod, "status", "phase reason message conditions containerStatuses");
	status = json_object_get(pod, "status");
	json_keep(status, "conditions", "type status reason message lastTransitionTime");
	json_keep(status, "containerStatuses", "name ready state lastState");
	json_array_foreach (json_object_get(status, "containerStatuses"), i, c) {
		json_keep(c, "state", "running waiting");
		json_keep(c, "lastState", "terminated");
		json_keep(json_object_get(c, "state"), "running", "startedAt");
		json_keep(json_object_get(c, "lastState"), "terminated", "reason exitCode");
	}
}

int status_agents_new(struct kube *k, const char *ns, const struct agents_ops *ops, void *arg,
		      struct agents **ret)
{
	static const struct kube_watch_ops pod_ops = {
		.upsert = on_pod, .remove = on_pod_gone, .synced = on_synced, .state = on_state};
	_cleanup_free_ char *path = xasprintf("/api/v1/namespaces/%s/pods", ns);
	const struct kube_watch_spec spec = {
		.path = path, .label_selector = SELECTOR, .trim = trim_pod};
	struct agents *a = xcalloc(1, sizeof(*a));
	int r;

	a->ops = *ops;
	a->arg = arg;
	r = kube_watch_new(k, &spec, &pod_ops, a, &a->watch);
	if (r < 0) {
		status_agents_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

struct agents *status_agents_free(struct agents *a)
{
	if (!a)
		return NULL;
	kube_watch_free(a->watch);
	while (a->pods)
		forget_pod(a, a->pods);
	while (a->nodes)
		node_free(a, a->nodes);
	free(a);
	return NULL;
}
