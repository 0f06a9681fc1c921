/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the API server for the input of the plan: targets, namespaces, this node's pods and the
 * node itself. It collects changes for a moment, then makes a new plan from everything. It owns the
 * watches and the cache of decoded targets. Loop thread.
 */
#include "node/internal.h"

#include <stdlib.h>

#define GATHER_NS (50 * NSEC_PER_MSEC)
/*
 * least time between two checks of the report; the average is 375 s, so 5,000 nodes make 13 checks
 * a second
 */
#define CHECK_NS (300 * NSEC_PER_SEC)

enum kind { PODS, TARGETS, CLUSTER_TARGETS, NAMESPACES, NODE, _KIND_MAX };

static const struct {
	const char *what, *path, *node_field;
	bool metadata_only, optional;
	void (*trim)(json_t *obj);
} kinds[_KIND_MAX] = {
	[PODS] = {"pods", "/api/v1/pods", "spec.nodeName", false, false, plan_trim_pod},
	[TARGETS] = {"profilingtargets", "/apis/podflame.io/v1alpha1/profilingtargets", NULL, false,
		     true, plan_trim_target},
	[CLUSTER_TARGETS] = {"clusterprofilingtargets",
			     "/apis/podflame.io/v1alpha1/clusterprofilingtargets", NULL, false,
			     true, plan_trim_target},
	[NAMESPACES] = {"namespaces", "/api/v1/namespaces", NULL, true, false, plan_trim_named},
	[NODE] = {"node", "/api/v1/nodes", "metadata.name", true, false, plan_trim_named},
};

struct watched {
	struct watches *watches;
	enum kind kind;
	struct kube_watch *watch;
	bool has_left_out; /* the log says that objects have no room */
};
struct watches {
	struct node *node;
	struct watched watched[_KIND_MAX];
	struct plan_cache *cache;
	char *node_uid; /* NULL: the node is not known yet */
	struct timer timer, check;
	bool timer_armed;
};

struct objects {
	const json_t **items;
	size_t n, cap;
};

static void add_object(const char *key, const json_t *obj, void *arg)
{
	struct objects *o = arg;

	(void)key;
	GROW(o->items, o->n, o->cap);
	o->items[o->n++] = obj;
}

static void gather(const struct watches *w, enum kind k, struct objects *o)
{
	kube_watch_each(w->watched[k].watch, add_object, o);
}

static void make_plan(void *arg);

static void plan_soon(struct watches *w, uint64_t delay_ns)
{
	if (w->timer_armed)
		return;
	w->timer_armed = true;
	timer_set(w->node->work->loop, &w->timer, delay_ns, make_plan, w);
}

static void plan_later(struct watches *w, uint64_t wall_ns)
{
	uint64_t now_ns = now_wall_ns();

	/*
	 * timer_armed is not set here, so an earlier change can set the timer to an earlier time;
	 * the plan of that time sets it again
	 */
	timer_set(w->node->work->loop, &w->timer, wall_ns > now_ns ? wall_ns - now_ns : GATHER_NS,
		  make_plan, w);
}

static bool all_synced(const struct watches *w)
{
	for (enum kind k = 0; k < _KIND_MAX; k++)
		if (!w->watched[k].watch || !kube_watch_synced(w->watched[k].watch))
			return false;
	return true;
}

static struct plan_settings settings(const struct config *c)
{
	return (struct plan_settings){
		.cluster_name = c->cluster_name,
		.node_name = c->node_name,
		.own_namespace = c->own_namespace,
		.opt_in_required = c->opt_in_required,
		.default_target = c->default_target,
		.default_sample_hz = 99,
		.max_sample_hz = c->max_sample_hz,
		.tenant = {.max_sample_hz = c->tenant_max_sample_hz,
			   .max_overhead_percent = c->tenant_max_overhead_percent,
			   .refused_events = plan_events_not_listed(c->tenant_allowed_events),
			   .min_sample_bytes = c->tenant_min_sample_bytes,
			   .max_targets = c->tenant_max_targets},
	};
}

/* ---- what has no room ---- */

static void add_namespace(const char *ns, size_t n, void *arg)
{
	(void)n;
	json_object_set_new(arg, ns, json_true());
}

/* Reports the namespaces with targets that have no room. */
static void report_namespaces(const struct watches *w)
{
	json_t *all = json_object();

	if (w->watched[TARGETS].watch)
		kube_watch_each_left_out(w->watched[TARGETS].watch, add_namespace, all);
	if (w->watched[CLUSTER_TARGETS].watch)
		kube_watch_each_left_out(w->watched[CLUSTER_TARGETS].watch, add_namespace, all);
	report_crowded(w->node->report, all);
}

static void add_number(const char *ns, size_t n, void *arg)
{
	(void)ns;
	*(size_t *)arg += n;
}

static void on_left_out(void *arg)
{
	struct watched *watched = arg;
	const char *what = kinds[watched->kind].what;
	size_t n = 0;

	kube_watch_each_left_out(watched->watch, add_number, &n);
	if (n && !watched->has_left_out)
		log_warn("no room in memory for %zu of the %s: the namespaces with the most have "
			 "their oldest ones only",
			 n, what);
	else if (!n && watched->has_left_out)
		log_info("all %s have room in memory again", what);
	watched->has_left_out = n != 0;
	if (watched->kind == PODS)
		plan_soon(watched->watches, GATHER_NS);
	if (watched->watches->node->report)
		report_namespaces(watched->watches);
}

static void add_namespace_of_pods(const char *ns, size_t n, void *arg)
{
	json_object_set_new(arg, ns, json_integer((json_int_t)n));
}

/* ---- plans ---- */

static void make_plan(void *arg)
{
	struct watches *w = arg;
	struct node *n = w->node;
	struct objects pods = {0}, targets = {0}, namespaces = {0};
	struct plan_world input = {
		.cache = w->cache, .settings = settings(n->conf), .now_ns = now_wall_ns()};
	_cleanup_json_ json_t *without_room = json_object();
	struct plan *plan;
	int r;

	w->timer_armed = false;
	if (!all_synced(w) || !n->started)
		return;
	gather(w, PODS, &pods);
	gather(w, TARGETS, &targets);
	gather(w, CLUSTER_TARGETS, &targets);
	gather(w, NAMESPACES, &namespaces);
	kube_watch_each_left_out(w->watched[PODS].watch, add_namespace_of_pods, without_room);
	input.without_room = without_room;
	input.pods = pods.items;
	input.n_pods = pods.n;
	input.targets = targets.items;
	input.n_targets = targets.n;
	input.namespaces = namespaces.items;
	input.n_namespaces = namespaces.n;
	input.node = kube_watch_get(w->watched[NODE].watch, n->conf->node_name);
	r = plan_build(&input, &plan);
	free(pods.items);
	free(targets.items);
	free(namespaces.items);
	if (r < 0) {
		log_err("plan: %s", strerror(-r));
		return;
	}
	if (plan->next_change_ns)
		plan_later(w, plan->next_change_ns);
	proc_containers_apply(n->containers, plan, now_boot_ns());
	if (n->report)
		report_plan(n->report, plan);
	if (n->scrape)
		scrape_plan(n->scrape, plan);
	kernel_sync(n->kernel);
}

/*
 * Called at intervals, because the report may have been deleted: by a person, or by the garbage
 * collector, if the DaemonSet was deleted and created again.
 */
static void check_report(void *arg)
{
	struct watches *w = arg;

	if (w->node_uid && w->node->report)
		report_check(w->node->report);
	timer_set(w->node->work->loop, &w->check, CHECK_NS + random_below(CHECK_NS / 2),
		  check_report, w);
}

/*
 * Checks the report if the node has a new UID, because the hub deletes the report of a node that
 * was deleted, even if it is created again at once.
 */
static void note_uid(struct watches *w, const char *uid)
{
	bool anew = w->node_uid && !streq(w->node_uid, uid);

	free(w->node_uid);
	w->node_uid = xstrdup(uid);
	if (anew)
		check_report(w);
}

static void node_is_known(struct watches *w, const char *uid)
{
	struct node *n = w->node;
	int r = node_start(n, uid);

	if (r < 0)
		log_err("node %s: %s", n->conf->node_name, strerror(-r));
	note_uid(w, uid);
}

static void changed(struct watched *watched, const json_t *obj)
{
	struct watches *w = watched->watches;

	if (watched->kind == NODE && obj)
		node_is_known(w, json_str_at(obj, "metadata.uid", ""));
	plan_soon(w, GATHER_NS);
}

static void on_upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)old;
	changed(arg, obj);
}

static void on_remove(const char *key, const json_t *last, void *arg)
{
	(void)key;
	(void)last;
	changed(arg, NULL);
}

static void on_synced(void *arg)
{
	struct watched *watched = arg;
	const struct node *n = watched->watches->node;

	if (watched->kind == NODE && !kube_watch_get(watched->watch, n->conf->node_name))
		log_err("the API server knows no node '%s': set node_name or NODE_NAME",
			n->conf->node_name);
	changed(watched, NULL);
}

static void on_state(const char *error, void *arg)
{
	const struct watched *watched = arg;

	if (error)
		log_warn("watching %s: %s", kinds[watched->kind].what, error);
	else
		log_info("watching %s", kinds[watched->kind].what);
}

static const struct kube_watch_ops ops = {on_upsert, on_remove,	  on_synced,
					  on_state,  on_left_out, NULL};

static int watch_kind(struct watches *w, enum kind k)
{
	struct watched *watched = &w->watched[k];
	_cleanup_free_ char *field = NULL;
	struct kube_watch_spec spec = {
		.path = kinds[k].path,
		.metadata_only = kinds[k].metadata_only,
		.optional = kinds[k].optional,
		.trim = kinds[k].trim,
	};

	if (kinds[k].node_field)
		field = xasprintf("%s=%s", kinds[k].node_field, w->node->conf->node_name);
	spec.field_selector = field;
	watched->watches = w;
	watched->kind = k;
	return kube_watch_new(w->node->config.kube, &spec, &ops, watched, &watched->watch);
}

int node_watches_new(struct node *n, struct watches **ret)
{
	struct watches *w = xcalloc(1, sizeof(*w));
	int r = 0;

	w->node = n;
	w->cache = plan_cache_new();
	for (enum kind k = 0; r == 0 && k < _KIND_MAX; k++)
		r = watch_kind(w, k);
	if (r < 0) {
		node_watches_free(w);
		return r;
	}
	check_report(w);
	*ret = w;
	return 0;
}

struct watches *node_watches_free(struct watches *w)
{
	if (!w)
		return NULL;
	timer_cancel(&w->timer);
	timer_cancel(&w->check);
	for (enum kind k = 0; k < _KIND_MAX; k++)
		kube_watch_free(w->watched[k].watch);
	plan_cache_free(w->cache);
	free(w->node_uid);
	free(w);
	return NULL;
}
