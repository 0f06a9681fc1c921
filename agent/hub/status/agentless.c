/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when the hub counts the pods of which node without an agent, and what it tells of nodes
 * whose pods are not all known.
 */
#include "hub/status/agentless.h"

#include "hub/status/agentless_pods.h"
#include "hub/status/agents.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

/* a node may lack an agent for this long: to download the agent's image, or for a rollout */
#define GRACE_NS    (90 * NSEC_PER_SEC)
#define AGAIN_NS    (60 * NSEC_PER_SEC)	 /* time between two counts of a node's pods */
#define COUNTING_NS (50 * NSEC_PER_MSEC) /* for so long a tick counts; the loop waits meanwhile */
#define TEXT_NS	    (60 * NSEC_PER_SEC)	 /* minimum time between two changes of the text */
/* longest wait for a first count; after that the status names the node */
#define WAIT_NS	     (10 * NSEC_PER_SEC)
#define UNSEEN_NODES 3

struct lack { /* a node on which no agent works */
	char *node;
	/* on the monotonic clock: since when no agent works there; when the next count is due */
	uint64_t since_ns, due_ns;
	bool told;  /* the pods were counted, perhaps not all of them */
	bool whole; /* all pods were known when they were counted last */
	char *why;  /* why the node may have no agent, as of the last count */
	UT_hash_handle hh;
};
struct agentless {
	struct pods *pods;
	struct agents *agents;
	struct agentless_ops ops;
	void *arg;
	bool opt_in_required, begun;
	/* status_agentless_hurry() was called, and not all pods have been known since then */
	bool hurried;
	uint64_t begun_ns;
	struct lack *lacks; /* the one that was counted last is last */
	unsigned n_told;
	char *unseen;
	uint64_t unseen_ns; /* when `unseen` changed last */
};

/* ---- nodes ---- */

static struct lack *find(const struct agentless *a, const char *node)
{
	struct lack *l;

	HASH_FIND_STR(a->lacks, node, l);
	return l;
}

static void set_told(struct agentless *a, struct lack *l, bool told)
{
	a->n_told += told;
	a->n_told -= l->told;
	l->told = told;
	counter_set(counter("nodes_without_agent", NULL, NULL), a->n_told);
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
	free(l->node);
	free(l->why);
	free(l);
}

static void on_works(const char *node, void *arg)
{
	struct agentless *a = arg;
	struct lack *l = find(a, node);
	bool told = l && l->told;

	if (!l)
		return;
	set_told(a, l, false);
	lack_free(a, l);
	if (told)
		a->ops.changed(node, a->arg);
}

/* ---- counts ---- */

/* Whether the node is one without an agent, and not only one whose agent starts. */
static bool past_grace(const struct lack *l, uint64_t now)
{
	return l->since_ns + GRACE_NS <= now;
}

static void count(struct agentless *a, struct lack *l, bool whole)
{
	_cleanup_free_ char *says = status_agents_pod_says(a->agents, l->node);

	free(l->why);
	l->why = status_agentless_pods_why(status_agents_object(a->agents, l->node),
					   status_agents_pods_known(a->agents), says);
	l->whole = whole;
	l->due_ns = now_mono_ns() + AGAIN_NS;
	set_told(a, l, true);
	HASH_DEL(a->lacks, l);
	HASH_ADD_KEYPTR(hh, a->lacks, l->node, strlen(l->node), l);
	a->ops.changed(l->node, a->arg);
}

/* Counts the pods of the nodes that are due. whole: whether all pods are known. */
static void count_due(struct agentless *a, bool whole)
{
	uint64_t began = now_mono_ns(), now = began;
	struct lack *l, *next;

	HASH_ITER (hh, a->lacks, l, next) {
		if (!past_grace(l, now) || (l->due_ns > now && (l->whole || !whole)))
			continue;
		count(a, l, whole);
		now = now_mono_ns();
		if (now >= began + COUNTING_NS)
			return;
	}
}

/* ---- what is not known ---- */

/*
 * Returns the text that says why some pods are unknown; NULL: all are known. problem is the result
 * of pods_unknown.
 */
static char *unseen_text(const struct agentless *a, const char *problem)
{
	_cleanup_buf_ struct buf nodes = {0};
	uint64_t now = now_mono_ns();
	bool late = problem || a->hurried;
	unsigned n = 0;

	if (!a->begun)
		return a->hurried ? xstrdup("the hub does not know yet which nodes have no agent")
				  : NULL;
	for (const struct lack *l = a->lacks; l; l = l->hh.next) {
		if (!past_grace(l, now) || (l->whole && !problem))
			continue;
		late |= l->told || MAX(l->since_ns + GRACE_NS, a->begun_ns) + WAIT_NS <= now;
		if (n++ < UNSEEN_NODES)
			buf_printf(&nodes, "%s%.253s", nodes.len ? ", " : "", l->node);
	}
	if (!n || !late)
		return NULL;
	return xasprintf("not all pods of %u node%s without an agent (%s%s) are known: %s", n,
			 n == 1 ? "" : "s", nodes.data, n > UNSEEN_NODES ? ", ..." : "",
			 problem ?: "the hub has not counted them yet");
}

/*
 * Logs when some pods become unknown, and when all are known again, but not the changes in between.
 * Each change costs a write of every target, so the text changes at most once a minute.
 */
static void note_unseen(struct agentless *a)
{
	_cleanup_free_ char *problem = pods_unknown(a->pods), *text = unseen_text(a, problem);

	a->hurried &= text != NULL;
	if (str_equal(text, a->unseen) ||
	    (text && a->unseen && now_mono_ns() < a->unseen_ns + TEXT_NS))
		return;
	if (text && !a->unseen)
		log_warn("%s", text);
	else if (!text)
		log_info("the pods of all nodes without an agent are known");
	free(a->unseen);
	a->unseen = TAKE_PTR(text);
	a->unseen_ns = now_mono_ns();
	a->ops.unseen(a->arg);
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

/*
 * As long as the hub waits for its first list of pods, it counts none. If the list fails, it counts
 * nevertheless, because a report that a dead agent has left must not count.
 */
void status_agentless_tick(struct agentless *a, bool all_known)
{
	_cleanup_free_ char *problem = pods_unknown(a->pods);

	if (!begin(a, all_known))
		return;
	if (problem || pods_synced(a->pods))
		count_due(a, !problem);
	note_unseen(a);
}

/* ---- results ---- */

bool status_agentless_settled(struct agentless *a, bool all_known)
{
	uint64_t now = now_mono_ns();

	if (!begin(a, all_known))
		return false;
	for (const struct lack *l = a->lacks; l; l = l->hh.next)
		if (past_grace(l, now) && !l->told)
			return false;
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
	const struct agentless_node of = {node, status_agents_object(a->agents, node),
					  l ? l->why : NULL};

	return l && l->told ? status_agentless_pods_entry(a->pods, &of, target, a->opt_in_required)
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

	a->pods = c->pods;
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
	status_agents_free(a->agents);
	while (a->lacks)
		lack_free(a, a->lacks);
	free(a->unseen);
	free(a);
	return NULL;
}
