/* SPDX-License-Identifier: Apache-2.0 */
/* See pods.h. */
#include "hub/pods/internal.h"

#include <stdlib.h>

#define MAX_BYTES (256u << 20) /* memory for the objects of the watch of pods */
#define TICK_NS	  (5 * NSEC_PER_SEC)
/* the hub tells users of a watch that fails after this time, if its objects were known before */
#define TELL_NS	    (60 * NSEC_PER_SEC)
#define ERROR_BYTES 200

/* ---- the index ---- */

static struct pod_name *find_name(const struct pods *p, const char *key)
{
	struct pod_name *n;

	HASH_FIND_STR(p->names, key, n);
	return n;
}

static struct pod_node *find_node(const struct pods *p, const char *name)
{
	struct pod_node *n;

	HASH_FIND_STR(p->nodes, name, n);
	return n;
}

static struct pod_name *name_for(struct pods *p, const char *key)
{
	struct pod_name *n = find_name(p, key);

	if (n)
		return n;
	n = xcalloc(1, sizeof(*n));
	n->key = xstrdup(key);
	HASH_ADD_KEYPTR(hh, p->names, n->key, strlen(n->key), n);
	return n;
}

static struct pod_node *node_for(struct pods *p, const char *name)
{
	struct pod_node *n = find_node(p, name);

	if (n)
		return n;
	n = xcalloc(1, sizeof(*n));
	n->name = xstrdup(name);
	HASH_ADD_KEYPTR(hh, p->nodes, n->name, strlen(n->name), n);
	return n;
}

static struct pod *find_pod(const struct pod_name *n, const char *uid)
{
	struct pod *pod;

	for (pod = n ? n->pods : NULL; pod && !streq(pod->uid, uid); pod = pod->next)
		;
	return pod;
}

/* Takes the pod out of the list in which it is. */
static void unlist(struct pods *p, struct pod *pod)
{
	if (pod->ended_ns) {
		DL_DELETE2(p->ended, pod, prev_listed, next_listed);
		p->n_ended--;
		pod->ended_ns = 0;
	} else {
		DL_DELETE2(pod->node->pods, pod, prev_listed, next_listed);
	}
}

static void forget(struct pods *p, struct pod *pod)
{
	struct pod_name *name = pod->name;
	struct pod_node *node = pod->node;

	unlist(p, pod);
	LL_DELETE(name->pods, pod);
	if (!name->pods) {
		HASH_DEL(p->names, name);
		free(name->key);
		free(name);
	}
	if (--node->n_refs == 0) {
		HASH_DEL(p->nodes, node);
		free(node->name);
		free(node);
	}
	free(pod->uid);
	free(pod);
}

/* Forgets all pods of the name; the name is freed with the last one. */
static void forget_all(struct pods *p, struct pod_name *name)
{
	for (struct pod *pod = name->pods, *next; pod; pod = next) {
		next = pod->next;
		forget(p, pod);
	}
}

static void end(struct pods *p, struct pod *pod)
{
	unlist(p, pod);
	pod->ended_ns = now_mono_ns();
	DL_APPEND2(p->ended, pod, prev_listed, next_listed);
	p->n_ended++;
}

static void forget_old(struct pods *p)
{
	uint64_t now = now_mono_ns();

	while (p->ended &&
	       (p->n_ended > PODS_MAX_ENDED || p->ended->ended_ns + PODS_KEEP_ENDED_NS <= now))
		forget(p, p->ended);
}

static struct pod *pod_new(struct pods *p, const char *key, const char *uid, const char *node)
{
	struct pod *pod = xcalloc(1, sizeof(*pod));

	pod->uid = xstrdup(uid);
	pod->name = name_for(p, key);
	LL_PREPEND(pod->name->pods, pod);
	pod->node = node_for(p, node);
	pod->node->n_refs++;
	DL_APPEND2(pod->node->pods, pod, prev_listed, next_listed);
	return pod;
}

/*
 * The pod is on the node. If the hub took it for ended, it is not: an old list lacked it. What an
 * earlier run has remembered counts less than what the API server says.
 */
static void put(struct pods *p, const char *key, const char *uid, const char *node)
{
	struct pod *pod = find_pod(find_name(p, key), uid);

	if (pod && !streq(pod->node->name, node)) {
		forget(p, pod);
		pod = NULL;
	}
	if (!pod) {
		pod_new(p, key, uid, node);
	} else if (pod->ended_ns) {
		unlist(p, pod);
		DL_APPEND2(pod->node->pods, pod, prev_listed, next_listed);
	}
}

void pods_remember(struct pods *p, const struct pods_claim *c)
{
	_cleanup_free_ char *key = xasprintf("%s/%s", c->ns, c->name);

	pthread_mutex_lock(&p->lock);
	if (!find_pod(find_name(p, key), c->uid)) {
		end(p, pod_new(p, key, c->uid, c->node));
		forget_old(p);
	}
	pthread_mutex_unlock(&p->lock);
}

/* ---- the watches ---- */

static void on_pod(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct pods *p = arg;
	const char *uid = json_str_at(obj, "metadata.uid", "");
	const char *node = json_str_at(obj, "spec.nodeName", "");

	if (!*uid || !*node)
		return;
	if (!old) { /* the node of a pod never changes */
		pthread_mutex_lock(&p->lock);
		put(p, key, uid, node);
		pthread_mutex_unlock(&p->lock);
	}
	if (p->ops.came)
		p->ops.came(node, p->ops_arg);
}

static void on_pod_gone(const char *key, const json_t *last, void *arg)
{
	struct pods *p = arg;
	struct pod *pod = find_pod(find_name(p, key), json_str_at(last, "metadata.uid", ""));

	if (!pod || pod->ended_ns)
		return;
	pthread_mutex_lock(&p->lock);
	end(p, pod);
	forget_old(p);
	pthread_mutex_unlock(&p->lock);
}

static void set_works(struct pods *p, bool works)
{
	pthread_mutex_lock(&p->lock);
	p->works = works;
	pthread_mutex_unlock(&p->lock);
}

static void on_synced(void *arg)
{
	set_works(arg, true);
}

static void note_state(struct failure *f, const char *what, const char *error)
{
	if (error && !f->error) {
		log_warn("the %s cannot be watched: %s", what, error);
		f->since_ns = now_mono_ns();
	} else if (!error && f->error) {
		log_info("the %s are watched again", what);
	}
	free(f->error);
	f->error = error ? utf8_shorten(error, ERROR_BYTES) : NULL;
}

static void on_state(const char *error, void *arg)
{
	struct pods *p = arg;

	note_state(&p->failure, "pods", error);
	set_works(p, !error && kube_watch_synced(p->watch));
}

static void on_namespaces_state(const char *error, void *arg)
{
	struct pods *p = arg;

	note_state(&p->namespaces_failure, "namespaces", error);
}

char *pods_problem(const struct pods *p)
{
	size_t n = kube_watch_left_out(p->watch);

	if (p->failure.error)
		return xstrdup("the pods cannot be watched: see the log");
	return n ? xasprintf("%zu or more pods are not known: there are too many", n) : xstrdup("");
}

static char *unknown_of(const struct kube_watch *w, const struct failure *f, const char *what)
{
	size_t n = kube_watch_left_out(w);

	if (f->error && (!kube_watch_synced(w) || f->since_ns + TELL_NS <= now_mono_ns()))
		return xasprintf("the %s cannot be watched: %s", what, f->error);
	return n ? xasprintf("%zu or more %s could not be read, or are too many", n, what) : NULL;
}

char *pods_unknown(const struct pods *p)
{
	char *text = unknown_of(p->watch, &p->failure, "pods");

	return text ?: unknown_of(p->namespaces, &p->namespaces_failure, "namespaces");
}

/* Whether none of the pod's containers will run any more. */
static bool is_over(const json_t *obj)
{
	const char *phase = json_str_at(obj, "status.phase", "");

	return streq(phase, "Succeeded") || streq(phase, "Failed");
}

static void trim_pod(json_t *obj)
{
	json_t *metadata = json_object_get(obj, "metadata");

	json_keep(metadata, "annotations", SELECT_LABEL);
	if (json_object_size(json_object_get(metadata, "annotations")) == 0)
		json_object_del(metadata, "annotations");
	json_keep(obj, "metadata", "name namespace uid resourceVersion labels annotations");
	json_keep(obj, "spec", "nodeName");
	/* most pods are not over: nothing is kept for these */
	if (is_over(obj))
		json_keep(obj, "status", "phase");
	else
		json_object_del(obj, "status");
}

static void trim_namespace(json_t *obj)
{
	json_keep(obj, "metadata", "name uid resourceVersion labels");
}

/* ---- questions ---- */

static enum pods_place place_of(const struct pods *p, const struct pods_claim *c, const char *key)
{
	const struct pod_name *name = find_name(p, key);
	bool elsewhere = false;

	for (const struct pod *pod = name ? name->pods : NULL; pod; pod = pod->next) {
		if (c->uid && !streq(c->uid, pod->uid))
			continue;
		if (streq(pod->node->name, c->node))
			return PODS_HERE;
		elsewhere |= c->uid != NULL;
	}
	if (elsewhere)
		return PODS_ELSEWHERE;
	return p->works ? PODS_UNKNOWN : PODS_NOT_NOW;
}

enum pods_place pods_find(struct pods *p, const struct pods_claim *c)
{
	_cleanup_free_ char *key = xasprintf("%s/%s", c->ns, c->name);
	enum pods_place place;

	pthread_mutex_lock(&p->lock);
	place = place_of(p, c, key);
	pthread_mutex_unlock(&p->lock);
	return place;
}

/* The pod that lives, else the one that the hub has seen last. NULL: none. */
static const struct pod *newest(const struct pod_name *name)
{
	const struct pod *found = name ? name->pods : NULL;

	for (const struct pod *pod = found; pod; pod = pod->next)
		if (!pod->ended_ns && found->ended_ns)
			found = pod;
	return found;
}

bool pods_where(struct pods *p, const char *ns, const char *name, char **ret_node, char **ret_uid)
{
	_cleanup_free_ char *key = xasprintf("%s/%s", ns, name);
	const struct pod *pod;

	pthread_mutex_lock(&p->lock);
	pod = newest(find_name(p, key));
	if (pod) {
		*ret_node = xstrdup(pod->node->name);
		*ret_uid = xstrdup(pod->uid);
	}
	pthread_mutex_unlock(&p->lock);
	return pod != NULL;
}

/* Returns the pod's object, and what selectors see of it; NULL: the object is another pod's. */
static const json_t *object_of(const struct pods *p, const struct pod *pod, struct selected *ret)
{
	const json_t *obj = kube_watch_get(p->watch, pod->name->key);
	const char *ns = json_str_at(obj, "metadata.namespace", "");

	if (!str_equal(json_str_at(obj, "metadata.uid", NULL), pod->uid))
		return NULL;
	*ret = (struct selected){
		.ns = ns,
		.ns_labels = json_at(kube_watch_get(p->namespaces, ns), "metadata.labels"),
		.labels = json_at(obj, "metadata.labels"),
		.annotations = json_at(obj, "metadata.annotations"),
	};
	return obj;
}

static bool selects(const struct pods *p, const struct pod *pod, const struct target_selection *s,
		    bool opt_in_required)
{
	struct selected of;

	return object_of(p, pod, &of) && select_matches(s, &of) &&
	       !select_refusal(s, &of, opt_in_required);
}

bool pods_select(const struct pods *p, const char *node, const struct target_selection *s,
		 bool opt_in_required)
{
	const struct pod_node *n = find_node(p, node);

	for (const struct pod *pod = n ? n->pods : NULL; pod; pod = pod->next_listed)
		if (selects(p, pod, s, opt_in_required))
			return true;
	return false;
}

static bool is_of_namespace(const struct pod *pod, const char *ns)
{
	size_t n = strlen(ns);

	return strncmp(pod->name->key, ns, n) == 0 && pod->name->key[n] == '/';
}

void pods_each_running(const struct pods *p, const char *node, const char *ns,
		       void (*fn)(const char *name, const struct selected *of, void *arg),
		       void *arg)
{
	const struct pod_node *n = find_node(p, node);

	for (const struct pod *pod = n ? n->pods : NULL; pod; pod = pod->next_listed) {
		struct selected of;
		const json_t *obj = ns && !is_of_namespace(pod, ns) ? NULL : object_of(p, pod, &of);

		if (obj && !is_over(obj))
			fn(json_str_at(obj, "metadata.name", ""), &of, arg);
	}
}

bool pods_synced(const struct pods *p)
{
	return kube_watch_synced(p->watch) && kube_watch_synced(p->namespaces);
}

/* ---- start and end ---- */

static void tick(void *arg)
{
	struct pods *p = arg;

	pthread_mutex_lock(&p->lock);
	forget_old(p);
	pthread_mutex_unlock(&p->lock);
	pods_unverified_tick(p);
	timer_set(p->loop, &p->timer, TICK_NS, tick, p);
}

void pods_set_ops(struct pods *p, const struct pods_ops *ops, void *arg)
{
	p->ops = *ops;
	p->ops_arg = arg;
}

int pods_new(struct loop *l, struct kube *k, struct pods **ret)
{
	static const struct kube_watch_ops pod_ops = {
		.upsert = on_pod, .remove = on_pod_gone, .synced = on_synced, .state = on_state};
	static const struct kube_watch_ops namespace_ops = {.state = on_namespaces_state};
	static const struct kube_watch_spec all = {
		.path = "/api/v1/pods",
		.field_selector = "spec.nodeName!=",
		.trim = trim_pod,
		.max_bytes = MAX_BYTES,
	};
	static const struct kube_watch_spec namespaces = {
		.path = "/api/v1/namespaces", .metadata_only = true, .trim = trim_namespace};
	struct pods *p = xcalloc(1, sizeof(*p));
	int r;

	p->loop = l;
	pthread_mutex_init(&p->lock, NULL);
	r = kube_watch_new(k, &all, &pod_ops, p, &p->watch);
	if (!r)
		r = kube_watch_new(k, &namespaces, &namespace_ops, p, &p->namespaces);
	if (r < 0) {
		pods_free(p);
		return r;
	}
	timer_set(l, &p->timer, TICK_NS, tick, p);
	*ret = p;
	return 0;
}

struct pods *pods_free(struct pods *p)
{
	struct pod_name *name, *next;

	if (!p)
		return NULL;
	timer_cancel(&p->timer);
	kube_watch_free(p->watch);
	kube_watch_free(p->namespaces);
	HASH_ITER (hh, p->names, name, next)
		forget_all(p, name);
	pods_unverified_done(p);
	free(p->failure.error);
	free(p->namespaces_failure.error);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return NULL;
}
