/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when the hub looks at which node without an agent. A look lists the namespaces (if their
 * last list is older than a minute), then the node, for its labels and taints, then its pods.
 */
#include "hub/status/agentless.h"

#include "hub/status/agentless_pods.h"
#include "hub/status/agents.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* a node may lack an agent for this long: to download the agent's image, or for a rollout */
#define GRACE_NS       (90 * NSEC_PER_SEC)
#define LOOK_NS	       (60 * NSEC_PER_SEC)  /* minimum time between two lists of a node's pods */
#define LOOK_LATE_NS   (120 * NSEC_PER_SEC) /* time limit for one list */
#define LOOKS_A_SECOND 8
/* failed first looks that are reported per second; a report costs work for all targets */
#define SAID_A_SECOND 16
/* longest wait for a first look; after that the status names the node */
#define WAIT_NS	       (10 * NSEC_PER_SEC)
#define MAX_PODS_BYTES (128u << 20) /* memory for the pods of all nodes without an agent */
#define MIN_ROOM_BYTES (64u << 10)
#define UNSEEN_NODES   3
#define UNSEEN_BYTES   300

struct lack { /* a node on which no agent works */
	char *node;
	/*
	 * on the monotonic clock; since_ns: since when no agent works on the node; due_ns: when the
	 * next look is due
	 */
	uint64_t since_ns, due_ns;
	bool told;	   /* the first look has ended, with or without an error */
	bool unsaid;	   /* the first look has failed, and ops.changed was not called yet */
	unsigned n_failed; /* how many looks have failed since the last good one */
	char *error;	   /* why some pods are unknown; NULL: all are known */
	struct agentless_pods pods;
	UT_hash_handle hh;
};
enum step { STEP_NONE, STEP_NAMESPACES, STEP_NODE, STEP_PODS };
struct agentless {
	struct kube *kube;
	struct agents *agents;
	struct agentless_ops ops;
	void *arg;
	bool opt_in_required, begun;
	/* status_agentless_hurry() was called, and not all pods have been known since then */
	bool hurried;
	uint64_t begun_ns;
	struct lack *lacks;
	size_t bytes; /* memory of the pods of all nodes */
	char *unseen;
	bool unseen_waits;  /* `unseen` counts nodes that wait for their first look */
	uint64_t unseen_ns; /* when `unseen` changed last */

	struct kube_watch *namespaces; /* the last list; NULL: not listed yet */
	uint64_t namespaces_ns;
	enum step step;		 /* which list the hub requests now */
	struct lack *at;	 /* the node at which the hub looks now */
	struct kube_watch *list; /* the request for that list */
	json_t *object;		 /* the object of the node `at` */
	uint64_t step_ns;
	unsigned n_looks; /* looks in this second */
};

static void next_look(struct agentless *a);

/* ---- nodes ---- */

static struct lack *find(const struct agentless *a, const char *node)
{
	struct lack *l;

	HASH_FIND_STR(a->lacks, node, l);
	return l;
}

static void end_step(struct agentless *a)
{
	a->list = kube_watch_free(a->list);
	a->step = STEP_NONE;
}

static void end_look(struct agentless *a)
{
	end_step(a);
	a->at = NULL;
	json_decref(a->object);
	a->object = NULL;
}

/* Whether the node waits for its first look. */
static bool waits(const struct lack *l, uint64_t now)
{
	return !l->told && l->since_ns + GRACE_NS <= now;
}

static bool waits_long(const struct agentless *a, const struct lack *l, uint64_t now)
{
	return waits(l, now) &&
	       (a->hurried || MAX(l->since_ns + GRACE_NS, a->begun_ns) + WAIT_NS <= now);
}

/*
 * Returns the text that says why some pods are unknown; NULL: all are known. The text also counts
 * the nodes that wait for their first look. Else the number in it would change with each look.
 * *ret_waits: whether some nodes wait.
 */
static char *unseen_text(const struct agentless *a, bool *ret_waits)
{
	_cleanup_buf_ struct buf nodes = {0};
	const char *error = NULL;
	uint64_t now = now_mono_ns();
	unsigned n = 0;
	bool late = false;

	*ret_waits = !a->begun;
	if (!a->begun)
		return a->hurried ? xstrdup("the hub does not know yet which nodes have no agent")
				  : NULL;
	for (const struct lack *l = a->lacks; l; l = l->hh.next) {
		if (!l->error && !waits(l, now))
			continue;
		*ret_waits |= waits(l, now);
		late |= waits_long(a, l, now);
		error = error ? error : l->error;
		if (n++ < UNSEEN_NODES)
			buf_printf(&nodes, "%s%.253s", nodes.len ? ", " : "", l->node);
	}
	if (!error && !late)
		return NULL;
	return xasprintf("not all pods of %u node%s without an agent (%s%s) are known: %s", n,
			 n == 1 ? "" : "s", nodes.data, n > UNSEEN_NODES ? ", ..." : "",
			 error ? error : "the hub has not listed them yet");
}

/*
 * Whether the new text must wait before it is reported. Each change costs a write of every target,
 * so the text changes at most once a minute. But if the old text counts nodes that waited and none
 * waits now, the new text is used at once, because most nodes may be known now.
 */
static bool is_told_later(const struct agentless *a, const char *text, bool waits)
{
	return text && a->unseen && !(a->unseen_waits && !waits) &&
	       now_mono_ns() < a->unseen_ns + LOOK_NS;
}

/*
 * Logs when some pods become unknown, and when all are known again, but not the changes in between.
 */
static void note_unseen(struct agentless *a)
{
	bool waits;
	_cleanup_free_ char *text = unseen_text(a, &waits);

	a->hurried &= text != NULL;
	if (str_equal(text, a->unseen)) {
		a->unseen_waits &= waits;
		return;
	}
	if (is_told_later(a, text, waits))
		return;
	if (text && !a->unseen)
		log_warn("%s", text);
	else if (!text)
		log_info("the pods of all nodes without an agent are known");
	free(a->unseen);
	a->unseen = TAKE_PTR(text);
	a->unseen_waits = waits;
	a->unseen_ns = now_mono_ns();
	a->ops.unseen(a->arg);
}

static void count_nodes(const struct agentless *a)
{
	uint64_t n = 0;

	for (const struct lack *l = a->lacks; l; l = l->hh.next)
		n += l->told;
	counter_set(counter("nodes_without_agent", NULL, NULL), n);
}

static void on_lacks(const char *node, uint64_t for_ns, void *arg)
{
	struct agentless *a = arg;
	struct lack *l = xcalloc(1, sizeof(*l));
	uint64_t now = now_mono_ns();

	l->node = xstrdup(node);
	l->since_ns = now > for_ns ? now - for_ns : 0;
	HASH_ADD_KEYPTR(hh, a->lacks, l->node, strlen(l->node), l);
}

static void lack_free(struct agentless *a, struct lack *l)
{
	HASH_DEL(a->lacks, l);
	a->bytes -= l->pods.n_bytes;
	status_agentless_pods_done(&l->pods);
	free(l->node);
	free(l->error);
	free(l);
}

static void on_works(const char *node, void *arg)
{
	struct agentless *a = arg;
	struct lack *l = find(a, node);
	bool told = l && l->told;

	if (!l)
		return;
	if (a->at == l)
		end_look(a);
	lack_free(a, l);
	if (!told)
		return;
	count_nodes(a);
	a->ops.changed(node, a->arg);
	note_unseen(a);
}

/* ---- looks ---- */

/*
 * Ends a look at the node. The next look is due in a minute, plus up to 10 s at random, so that the
 * looks at different nodes do not come at the same time.
 */
static void end_turn(struct lack *l)
{
	l->due_ns = now_mono_ns() + LOOK_NS + random_below(LOOK_NS / 6);
}

static void count_looks(const char *result, unsigned n)
{
	counter_add(counter("agentless_looks_total", "result", result), n);
}

/* Notes the result of a look. error NULL: all pods of the node are known. */
static void note_look(struct lack *l, const char *error)
{
	free(l->error);
	l->error = error ? utf8_shorten(error, UNSEEN_BYTES) : NULL;
	l->told = true;
}

static void finish_look(struct agentless *a, struct lack *l, const char *error)
{
	end_turn(l);
	note_look(l, error);
	l->unsaid = false;
	count_looks(error ? "incomplete" : "whole", 1);
	count_nodes(a);
	a->ops.changed(l->node, a->arg);
	note_unseen(a);
}

/*
 * Notes a failed look. The pods from an earlier look stay. If there are such pods, a single failure
 * is not reported, because the API server may fail only for a moment.
 */
static void note_failure(struct lack *l, const char *error)
{
	end_turn(l);
	l->n_failed++;
	if (l->n_failed == 1 && l->pods.why)
		return;
	l->unsaid |= !l->told;
	note_look(l, error);
}

static void fail_look(struct agentless *a, const char *error)
{
	struct lack *l = a->at;

	end_look(a);
	note_failure(l, error);
	count_looks("incomplete", 1);
	count_nodes(a);
	note_unseen(a);
}

/*
 * The request for the namespaces failed. No look can end without their list, so this counts as a
 * failed look for each node that is due.
 */
static void fail_all(struct agentless *a, const char *error)
{
	_cleanup_free_ char *text = xstrdup(error);
	uint64_t now = now_mono_ns();
	unsigned n = 0;

	end_look(a);
	for (struct lack *l = a->lacks; l; l = l->hh.next) {
		if (l->since_ns + GRACE_NS > now || l->due_ns > now)
			continue;
		note_failure(l, text);
		n++;
	}
	count_looks("incomplete", n);
	count_nodes(a);
	note_unseen(a);
}

/*
 * Reports nodes whose first look has failed, but only a few per second, because there may be many.
 */
static void say_changed(struct agentless *a)
{
	unsigned n = 0;

	for (struct lack *l = a->lacks; l && n < SAID_A_SECOND; l = l->hh.next) {
		if (!l->unsaid)
			continue;
		l->unsaid = false;
		n++;
		a->ops.changed(l->node, a->arg);
	}
}

static void fail(struct agentless *a, const char *error)
{
	if (a->step == STEP_NAMESPACES)
		fail_all(a, error);
	else
		fail_look(a, error);
}

static void take_pods(struct agentless *a)
{
	struct lack *l = a->at;
	size_t left_out = kube_watch_left_out(a->list);
	_cleanup_free_ char *says = status_agents_pod_says(a->agents, l->node);
	_cleanup_free_ char *error =
		left_out ? xasprintf("%zu of them could not be read, or do not fit into %u MiB",
				     left_out, MAX_PODS_BYTES >> 20)
			 : NULL;

	l->n_failed = 0;
	a->bytes -= l->pods.n_bytes;
	status_agentless_pods_done(&l->pods);
	status_agentless_pods_take(&l->pods, a->list, a->object,
				   status_agents_pods_known(a->agents), says);
	a->bytes += l->pods.n_bytes;
	end_look(a);
	finish_look(a, l, error);
}

static void start_step(struct agentless *a, enum step step);

static void on_listed(void *arg)
{
	struct agentless *a = arg;

	switch (a->step) {
	case STEP_NAMESPACES:
		if (!kube_watch_left_out(a->list)) {
			kube_watch_free(a->namespaces);
			a->namespaces = TAKE_PTR(a->list);
			a->namespaces_ns = now_mono_ns();
			start_step(a, STEP_NODE);
			return;
		}
		fail_all(a, "the hub has no room for all namespaces");
		break;
	case STEP_NODE:
		a->object = json_incref((json_t *)kube_watch_get(a->list, a->at->node));
		if (a->object) {
			end_step(a);
			start_step(a, STEP_PODS);
			return;
		}
		fail_look(a, "the API server does not find the node");
		break;
	case STEP_PODS:
		take_pods(a);
		break;
	case STEP_NONE:
		break;
	}
	next_look(a);
}

static void on_state(const char *error, void *arg)
{
	struct agentless *a = arg;

	if (!error)
		return;
	fail(a, error);
	next_look(a);
}

/* How many bytes of memory are left for the pods of this node. */
static size_t room_for(const struct agentless *a, const struct lack *l)
{
	size_t others = a->bytes - l->pods.n_bytes;

	return others < MAX_PODS_BYTES ? MAX_PODS_BYTES - others : 0;
}

static void start_step(struct agentless *a, enum step step)
{
	static const struct kube_watch_ops ops = {.synced = on_listed, .state = on_state};
	const char *node = a->at->node;
	_cleanup_free_ char *name = xasprintf("metadata.name=%s", node),
			    *pods = xasprintf("spec.nodeName=%s,status.phase!=Succeeded,"
					      "status.phase!=Failed",
					      node);
	const struct kube_watch_spec specs[] = {
		[STEP_NAMESPACES] = {.path = "/api/v1/namespaces",
				     .metadata_only = true,
				     .trim = status_agentless_trim_named},
		[STEP_NODE] = {.path = "/api/v1/nodes",
			       .field_selector = name,
			       .trim = status_agentless_trim_node},
		[STEP_PODS] = {.path = "/api/v1/pods",
			       .field_selector = pods,
			       .metadata_only = true,
			       .trim = status_agentless_trim_pod,
			       .max_bytes = room_for(a, a->at)},
	};
	struct kube_watch_spec spec = specs[step];

	a->step = step;
	a->step_ns = now_mono_ns();
	spec.once = true;
	if (kube_watch_new(a->kube, &spec, &ops, a, &a->list) < 0)
		fail(a, "no request could be made");
}

static struct lack *most_due(const struct agentless *a)
{
	uint64_t now = now_mono_ns();
	struct lack *best = NULL;

	for (struct lack *l = a->lacks; l; l = l->hh.next) {
		if (l->since_ns + GRACE_NS <= now && l->due_ns <= now &&
		    (!best || l->due_ns < best->due_ns))
			best = l;
	}
	return best;
}

static void next_look(struct agentless *a)
{
	struct lack *l = a->n_looks < LOOKS_A_SECOND ? most_due(a) : NULL;

	if (!l)
		return;
	a->n_looks++;
	a->at = l;
	if (room_for(a, l) < MIN_ROOM_BYTES)
		fail_look(a, "the hub has no room for more pods");
	else if (!a->namespaces || a->namespaces_ns + LOOK_NS <= now_mono_ns())
		start_step(a, STEP_NAMESPACES);
	else
		start_step(a, STEP_NODE);
}

static bool begin(struct agentless *a, bool all_known)
{
	if (all_known && status_agents_known(a->agents)) {
		status_agents_begin(a->agents);
		a->begun_ns = a->begun ? a->begun_ns : now_mono_ns();
		a->begun = true;
	}
	return a->begun;
}

void status_agentless_tick(struct agentless *a, bool all_known)
{
	if (!begin(a, all_known))
		return;
	a->n_looks = 0;
	say_changed(a);
	if (a->step == STEP_NONE)
		next_look(a);
	else if (a->step_ns + LOOK_LATE_NS <= now_mono_ns())
		fail(a, "the API server's answer takes too long");
	note_unseen(a);
}

/* ---- results ---- */

bool status_agentless_settled(struct agentless *a, bool all_known)
{
	uint64_t now = now_mono_ns();

	if (!begin(a, all_known))
		return false;
	for (const struct lack *l = a->lacks; l; l = l->hh.next) {
		if (l->unsaid || waits(l, now))
			return false;
	}
	return true;
}

void status_agentless_hurry(struct agentless *a)
{
	a->hurried = true;
	note_unseen(a);
}

bool status_agentless_is(const struct agentless *a, const char *node)
{
	const struct lack *l = find(a, node);

	return l && l->told;
}

void status_agentless_each(const struct agentless *a, void (*fn)(const char *node, void *arg),
			   void *arg)
{
	for (const struct lack *l = a->lacks; l; l = l->hh.next) {
		if (l->told)
			fn(l->node, arg);
	}
}

json_t *status_agentless_entry(const struct agentless *a, const char *node, const json_t *target)
{
	const struct lack *l = find(a, node);

	return l && l->told && l->pods.why
		       ? status_agentless_pods_entry(&l->pods, target, a->namespaces,
						     a->opt_in_required)
		       : NULL;
}

const char *status_agentless_unseen(const struct agentless *a)
{
	return a->unseen;
}

void status_agentless_node(struct agentless *a, const char *node, const json_t *obj)
{
	status_agents_node(a->agents, node, obj);
}

void status_agentless_report(struct agentless *a, const char *node, bool there)
{
	status_agents_report(a->agents, node, there);
}

/* ---- start and end ---- */

int status_agentless_new(struct kube *k, const struct agentless_config *c,
			 const struct agentless_ops *ops, void *arg, struct agentless **ret)
{
	static const struct agents_ops agents_ops = {on_lacks, on_works};
	struct agentless *a = xcalloc(1, sizeof(*a));
	int r;

	a->kube = k;
	a->ops = *ops;
	a->arg = arg;
	a->opt_in_required = c->opt_in_required;
	r = status_agents_new(k, c->ns, &agents_ops, a, &a->agents);
	if (r < 0) {
		status_agentless_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

struct agentless *status_agentless_free(struct agentless *a)
{
	if (!a)
		return NULL;
	end_look(a);
	kube_watch_free(a->namespaces);
	status_agents_free(a->agents);
	while (a->lacks)
		lack_free(a, a->lacks);
	free(a->unseen);
	free(a);
	return NULL;
}
