/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes the reports of nodes that were deleted; see reports.h. A report has the name of its node.
 */
#include "hub/status/reports.h"

#include <stdlib.h>

#define uthash_fatal(msg) abort()
#include <uthash.h>

#define API "/apis/podflame.io/v1alpha1/namespaces/"
/* 5,000 nodes with 20 targets each; a limit, because agents write the reports */
#define MAX_REPORTS_BYTES (512 << 20)
#define MAX_NODES_BYTES	  (256 << 20)	      /* 30,000 nodes with 40 labels each */
#define AGAIN_NS	  (60 * NSEC_PER_SEC) /* time after which both watches show the same */

struct orphan { /* a report that the owner does not see */
	char *name, *uid;
	uint64_t due_ns;
	UT_hash_handle hh;
};
struct query {			 /* may stay after struct reports is freed */
	struct reports *reports; /* NULL: the reports were freed meanwhile */
	char *name, *uid;
};
struct reports {
	struct kube *kube;
	char *ns;
	struct reports_ops ops;
	void *arg;
	struct kube_watch *watch, *nodes;
	/* reports of nodes that the watch of nodes does not show, and those that are hidden */
	struct orphan *orphans;
	/*
	 * One request at a time, so that the removal of many nodes does not cause many requests at
	 * once.
	 */
	struct query *query;
};

/* ---- orphans ---- */

static struct orphan *find(const struct reports *r, const char *name)
{
	struct orphan *o;

	HASH_FIND_STR(r->orphans, name, o);
	return o;
}

/* Returns true if the report was an orphan. */
static bool forget(struct reports *r, const char *name)
{
	struct orphan *o = find(r, name);

	if (!o)
		return false;
	HASH_DEL(r->orphans, o);
	free(o->name);
	free(o->uid);
	free(o);
	return true;
}

static void hide(struct reports *r, const char *name, const json_t *report)
{
	struct orphan *o = xcalloc(1, sizeof(*o));

	o->name = xstrdup(name);
	o->uid = xstrdup(json_str_at(report, "metadata.uid", ""));
	HASH_ADD_KEYPTR(hh, r->orphans, o->name, strlen(o->name), o);
}

/* ---- deletion ---- */

static struct reports *query_free(struct query *q)
{
	struct reports *r = q->reports;

	if (r)
		r->query = NULL;
	free(q->name);
	free(q->uid);
	free(q);
	return r;
}

static void on_deleted(int http, const json_t *body, const char *error, void *arg)
{
	struct query *q = arg;
	struct reports *r;

	(void)body;
	if (http >= 200 && http < 300)
		log_info("the report of node %s is deleted: the node is gone", q->name);
	/* 409: the object is a new report with the same name, or has changed */
	else if (http != 404 && http != 409)
		log_warn("the report of node %s, which is gone, could not be deleted: %s", q->name,
			 error ? error : "refused");
	r = query_free(q);
	if (r)
		status_reports_tick(r);
}

/*
 * Only as it is now: if its agent writes it again, the node is back. So another hub that leads
 * meanwhile, and this hub's own request when it is late, delete no report that counts.
 */
static void delete_report(struct query *q)
{
	_cleanup_free_ char *key = xasprintf("%s/%s", q->reports->ns, q->name),
			    *path = xasprintf(API "%s/profilingnodereports/%s", q->reports->ns,
					      q->name);
	const json_t *report = kube_watch_get(q->reports->watch, key);
	_cleanup_json_ json_t *options =
		json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
			  "preconditions", "uid", q->uid, "resourceVersion",
			  json_str_at(report, "metadata.resourceVersion", ""));

	if (kube_request(q->reports->kube, "DELETE", path, NULL, options, on_deleted, q) < 0)
		query_free(q);
}

static void on_asked(int http, const json_t *body, const char *error, void *arg)
{
	struct query *q = arg;
	struct reports *r = q->reports;

	(void)body;
	(void)error;
	if (r && http == 404 && find(r, q->name)) {
		delete_report(q);
		return;
	}
	r = query_free(q);
	if (r)
		status_reports_tick(r);
}

static void ask(struct reports *r, const struct orphan *o)
{
	_cleanup_free_ char *path = xasprintf("/api/v1/nodes/%s", o->name);

	r->query = xcalloc(1, sizeof(*r->query));
	*r->query = (struct query){r, xstrdup(o->name), xstrdup(o->uid)};
	if (kube_request(r->kube, "GET", path, NULL, NULL, on_asked, r->query) < 0)
		query_free(r->query);
}

/* Whether the node exists. Until the nodes are listed, each node counts as one that exists. */
static bool has_node(const struct reports *r, const char *name)
{
	return !kube_watch_synced(r->nodes) || kube_watch_get(r->nodes, name);
}

void status_reports_tick(struct reports *r)
{
	uint64_t now = now_mono_ns();

	if (r->query)
		return;
	for (struct orphan *o = r->orphans; o; o = o->hh.next) {
		if (o->due_ns > now || has_node(r, o->name))
			continue;
		o->due_ns = now + AGAIN_NS;
		ask(r, o);
		return;
	}
}

/* ---- watches of reports and nodes ---- */

static const char *name_of(const char *key)
{
	const char *slash = strchr(key, '/');

	return slash ? slash + 1 : key;
}

static bool counts(const struct reports *r, const char *name)
{
	return has_node(r, name) && !r->ops.hides(name, r->arg);
}

static void on_report(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct reports *r = arg;
	const char *name = name_of(key);

	if (counts(r, name)) {
		r->ops.report.upsert(key, obj, forget(r, name) ? NULL : old, r->arg);
	} else if (!find(r, name)) {
		if (old)
			r->ops.report.remove(key, old, r->arg);
		hide(r, name, obj);
	}
	r->ops.there(name, true, r->arg);
}

static void on_report_gone(const char *key, const json_t *last, void *arg)
{
	struct reports *r = arg;

	if (!forget(r, name_of(key)))
		r->ops.report.remove(key, last, r->arg);
	r->ops.there(name_of(key), false, r->arg);
}

static void on_synced(void *arg)
{
	struct reports *r = arg;

	r->ops.report.synced(r->arg);
}

static void hide_orphan(const char *key, const json_t *report, void *arg)
{
	struct reports *r = arg;
	const char *name = name_of(key);

	if (counts(r, name) || find(r, name))
		return;
	r->ops.report.remove(key, report, r->arg);
	hide(r, name, report);
}

void status_reports_look_again(struct reports *r, const char *node)
{
	_cleanup_free_ char *key = xasprintf("%s/%s", r->ns, node);
	const json_t *report = kube_watch_get(r->watch, key);

	if (report && !counts(r, node))
		hide_orphan(key, report, r);
	else if (report && forget(r, node))
		r->ops.report.upsert(key, report, NULL, r->arg);
}

static void on_node(const char *name, const json_t *obj, const json_t *old, void *arg)
{
	struct reports *r = arg;

	(void)old;
	status_reports_look_again(r, name);
	r->ops.node(name, obj, r->arg);
}

static void on_node_gone(const char *name, const json_t *last, void *arg)
{
	struct reports *r = arg;

	(void)last;
	status_reports_look_again(r, name);
	r->ops.node(name, NULL, r->arg);
}

static void on_nodes_synced(void *arg)
{
	struct reports *r = arg;

	kube_watch_each(r->watch, hide_orphan, r);
}

/* ---- start and end ---- */

/* agentless_pods.c reads the labels and taints. */
static void trim_node(json_t *obj)
{
	json_keep(obj, "metadata", "name uid resourceVersion creationTimestamp labels");
	json_keep(obj, "spec", "taints");
	json_object_del(obj, "status");
}

int status_reports_new(struct kube *k, const char *ns, const struct reports_ops *ops, void *arg,
		       struct reports **ret)
{
	static const struct kube_watch_ops report_ops = {
		.upsert = on_report, .remove = on_report_gone, .synced = on_synced};
	static const struct kube_watch_ops node_ops = {
		.upsert = on_node, .remove = on_node_gone, .synced = on_nodes_synced};
	static const struct kube_watch_spec nodes = {
		.path = "/api/v1/nodes", .trim = trim_node, .max_bytes = MAX_NODES_BYTES};
	_cleanup_free_ char *path = xasprintf(API "%s/profilingnodereports", ns);
	const struct kube_watch_spec reports = {
		.path = path, .optional = true, .max_bytes = MAX_REPORTS_BYTES};
	struct reports *r = xcalloc(1, sizeof(*r));
	int err;

	r->kube = k;
	r->ns = xstrdup(ns);
	r->ops = *ops;
	r->arg = arg;
	err = kube_watch_new(k, &reports, &report_ops, r, &r->watch);
	if (err == 0)
		err = kube_watch_new(k, &nodes, &node_ops, r, &r->nodes);
	if (err < 0) {
		status_reports_free(r);
		return err;
	}
	*ret = r;
	return 0;
}

struct reports *status_reports_free(struct reports *r)
{
	if (!r)
		return NULL;
	kube_watch_free(r->watch);
	kube_watch_free(r->nodes);
	while (r->orphans)
		forget(r, r->orphans->name);
	if (r->query)
		r->query->reports = NULL;
	free(r->ns);
	free(r);
	return NULL;
}

bool status_reports_synced(const struct reports *r)
{
	return kube_watch_synced(r->watch);
}

bool status_reports_nodes_synced(const struct reports *r)
{
	return kube_watch_synced(r->nodes);
}
