/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a pod for the plan: its containers with their types and ids, its workload, the GPUs that
 * it requests, and the uid in the path of its cgroup. Pure.
 */
#include "node/plan/internal.h"

#include <fnmatch.h>
#include <stdlib.h>

#define CONFIG_HASH   "kubernetes.io/config.hash"
#define CONFIG_MIRROR "kubernetes.io/config.mirror"
/* the annotations that the plan reads */
#define ANNOTATIONS CONFIG_HASH " " CONFIG_MIRROR " " SELECT_LABEL " " PLAN_SCRAPE_ANNOTATION

/* ---- containers ---- */

/*
 * s: "containerd://<64 hex>", "cri-o://...", "docker://...". Returns the id without the prefix;
 * NULL: it has another form.
 */
static const char *container_id(const char *s)
{
	const char *id = strstr(s, "://");

	id = id ? id + 3 : s;
	return strlen(id) == 64 && strspn(id, "0123456789abcdef") == 64 ? id : NULL;
}

static const json_t *status_of(const json_t *statuses, const char *name)
{
	const json_t *s;
	size_t i;

	json_array_foreach (statuses, i, s) {
		if (str_equal(json_str_at(s, "name", NULL), name))
			return s;
	}
	return NULL;
}

static void add_containers(struct pod_view *p, const json_t *specs, const json_t *statuses,
			   enum container_type type)
{
	const json_t *c;
	size_t i;

	json_array_foreach (specs, i, c) {
		const char *name = json_str_at(c, "name", NULL);
		const json_t *st = status_of(statuses, name);
		const char *id = json_str_at(st, "containerID", "");
		bool sidecar = streq(json_str_at(c, "restartPolicy", ""), "Always");

		if (!name)
			continue;
		if (p->n_containers == PLAN_MAX_CONTAINERS) {
			p->containers_cut = true;
			return;
		}
		p->containers[p->n_containers++] = (struct container_view){
			.name = name,
			.image = json_str_at(st, "image", json_str_at(c, "image", NULL)),
			.id = container_id(id),
			.bad_id = *id && !container_id(id),
			.waiting = json_str_at(st, "state.waiting.reason", NULL),
			.ended = json_is_object(json_at(st, "state.terminated")),
			.type = type == CONTAINER_INIT && sidecar ? CONTAINER_SIDECAR : type,
		};
	}
}

static void decode_containers(const json_t *obj, struct pod_view *p)
{
	size_t n = json_array_size(json_at(obj, "spec.initContainers")) +
		   json_array_size(json_at(obj, "spec.containers")) +
		   json_array_size(json_at(obj, "spec.ephemeralContainers"));

	p->containers = xcalloc(MIN(n, PLAN_MAX_CONTAINERS) + 1, sizeof(*p->containers));
	add_containers(p, json_at(obj, "spec.initContainers"),
		       json_at(obj, "status.initContainerStatuses"), CONTAINER_INIT);
	add_containers(p, json_at(obj, "spec.containers"), json_at(obj, "status.containerStatuses"),
		       CONTAINER_REGULAR);
	add_containers(p, json_at(obj, "spec.ephemeralContainers"),
		       json_at(obj, "status.ephemeralContainerStatuses"), CONTAINER_EPHEMERAL);
}

/* ---- workload ---- */

static const json_t *controller_of(const json_t *obj)
{
	const json_t *owners = json_at(obj, "metadata.ownerReferences");
	const json_t *o;
	size_t i;

	json_array_foreach (owners, i, o) {
		if (json_bool_at(o, "controller", false))
			return o;
	}
	return json_array_get(owners, 0);
}

/*
 * Sets the tags of the pod's owner. A Deployment's pods belong to a ReplicaSet with the name
 * DEPLOYMENT-HASH; the pod has HASH as a label.
 */
static void set_workload(const json_t *obj, struct pod_view *p)
{
	const json_t *owner = controller_of(obj);
	const char *kind = json_str_at(owner, "kind", "Node");
	const char *name = json_str_at(owner, "name", "");
	const char *hash = json_string_value(json_object_get(p->labels, "pod-template-hash"));
	_cleanup_free_ char *suffix = hash && *hash ? xasprintf("-%s", hash) : NULL;

	if (streq(kind, "Node") || !*name) {
		plan_tags_set(&p->tags, "pod_group", p->name);
		plan_tags_set(&p->tags, "pod_group_type", "Pod");
		return;
	}
	if (streq(kind, "ReplicaSet") && suffix && str_has_suffix(name, suffix) &&
	    strlen(name) > strlen(suffix)) {
		_cleanup_free_ char *deployment = xstrndup(name, strlen(name) - strlen(suffix));

		plan_tags_set(&p->tags, "pod_group", deployment);
		plan_tags_set(&p->tags, "pod_group_type", "Deployment");
		return;
	}
	plan_tags_set(&p->tags, "pod_group", name);
	plan_tags_set(&p->tags, "pod_group_type", kind);
}

/* ---- GPUs ---- */

static const char *const container_lists[] = {"initContainers", "containers",
					      "ephemeralContainers"};

/* The extended resources that are GPUs, by the names that their device plugins give them. */
static const char *const gpu_resources[] = {
	"*/gpu",	    /* of NVIDIA, AMD, ... */
	"*/gpu.shared",	    /* a GPU that several containers share */
	"*/vgpu",	    /* a part of a GPU, divided by software */
	"nvidia.com/mig-*", /* a part of a GPU, divided by the GPU */
	"gpu.intel.com/i915",
	"gpu.intel.com/xe",
};

static bool is_gpu(const char *resource)
{
	for (size_t i = 0; i < ARRAY_SIZE(gpu_resources); i++)
		if (fnmatch(gpu_resources[i], resource, 0) == 0)
			return true;
	return false;
}

/*
 * Adds the GPU resources of a container to a sorted set. A container can request an extended
 * resource only if it has a limit of the same quantity, which the API server writes as text.
 */
static void add_gpus(const json_t *container, struct tags *names)
{
	const json_t *limits = json_at(container, "resources.limits"), *quantity;
	const char *resource;

	json_object_foreach ((json_t *)limits, resource, quantity) {
		const char *n = json_string_value(quantity);

		if (n && !streq(n, "0") && is_gpu(resource) && names->n <= PLAN_MAX_GPU_NAMES)
			plan_tags_set(names, resource, n);
	}
}

/* Sets the tag pod_gpu: the names of all GPU resources that containers of the pod request. */
static void set_gpu(const json_t *obj, struct pod_view *p)
{
	_cleanup_free_ char *value = NULL;
	_cleanup_buf_ struct buf text;
	struct tags names = {};
	const json_t *c;
	size_t k;

	buf_init(&text, 4096);
	for (size_t i = 0; i < ARRAY_SIZE(container_lists); i++)
		json_array_foreach (json_object_get(json_at(obj, "spec"), container_lists[i]), k, c)
			add_gpus(c, &names);
	for (size_t i = 0; i < names.n; i++)
		buf_printf(&text, "%s%s", i ? "," : "",
			   i < PLAN_MAX_GPU_NAMES ? names.items[i].key : "...");
	value = buf_steal(&text);
	plan_tags_set(&p->tags, "pod_gpu", value);
	plan_tags_done(&names);
}

/* ---- tags ---- */

static void set_tags(const json_t *obj, const struct plan_settings *s, struct pod_view *p)
{
	plan_tags_set(&p->tags, "pod_cluster", s->cluster_name);
	plan_tags_set(&p->tags, "pod_ns", p->ns);
	plan_tags_set(&p->tags, "pod", p->name);
	plan_tags_set(&p->tags, "pod_node", s->node_name);
	set_workload(obj, p);
	set_gpu(obj, p);
	/*
	 * the pod has only this container, so samples of the pod belong to it even before its id is
	 * known
	 */
	if (p->n_containers == 1) {
		plan_tags_set(&p->tags, "container", p->containers[0].name);
		plan_tags_set(&p->tags, "image", p->containers[0].image);
	}
}

/* ---- the pod ---- */

/*
 * Returns the hash that stands in the cgroup's path of a static pod; NULL: the pod is not static.
 * The kubelet names the cgroup of a static pod after the hash of its file, and shows the pod to the
 * API server as a mirror pod with another uid. Any user may write these annotations on a pod. So
 * the hash is used only if it has the right form (a uid has dashes) and the node owns the pod.
 */
static const char *static_hash(const json_t *obj, const struct pod_view *p, const char *node_name)
{
	const char *hash = json_string_value(json_object_get(p->annotations, CONFIG_HASH));
	const json_t *owner = controller_of(obj);

	if (!hash || strlen(hash) != 32 || strspn(hash, "0123456789abcdef") != 32 ||
	    !json_is_string(json_object_get(p->annotations, CONFIG_MIRROR)))
		return NULL;
	if (!streq(json_str_at(owner, "kind", ""), "Node") ||
	    !str_equal(json_str_at(owner, "name", ""), node_name))
		return NULL;
	return hash;
}

int plan_pod_decode(const json_t *obj, const struct plan_settings *s, struct pod_view *ret)
{
	const char *phase = json_str_at(obj, "status.phase", "");
	const char *node = json_str_at(obj, "spec.nodeName", NULL);
	const char *hash;

	*ret = (struct pod_view){
		.labels = json_at(obj, "metadata.labels"),
		.annotations = json_at(obj, "metadata.annotations"),
		.uid = json_str_at(obj, "metadata.uid", ""),
		.ns = json_str_at(obj, "metadata.namespace", ""),
		.name = json_str_at(obj, "metadata.name", ""),
		.created = json_str_at(obj, "metadata.creationTimestamp", ""),
	};
	if (!*ret->uid || !*ret->ns || !*ret->name)
		return -EINVAL;
	if (streq(phase, "Succeeded") || streq(phase, "Failed"))
		return 0;
	if (node && s->node_name && !streq(node, s->node_name))
		return 0;
	hash = static_hash(obj, ret, s->node_name);
	ret->is_static = hash != NULL;
	ret->cgroup_uid = hash ? hash : ret->uid;
	decode_containers(obj, ret);
	plan_scrape_pod_decode(obj, &ret->scrape);
	set_tags(obj, s, ret);
	return 1;
}

void plan_pod_done(struct pod_view *p)
{
	free(p->containers);
	p->containers = NULL;
	p->n_containers = 0;
	plan_tags_done(&p->tags);
}

static void trim_state(json_t *status)
{
	json_t *state;

	json_keep(status, "state", "waiting terminated");
	state = json_object_get(status, "state");
	json_keep(state, "waiting", "reason");
	json_keep(state, "terminated", "");
}

/* Makes a new object, because an object from which members are removed keeps its large table. */
static void trim_resources(json_t *container)
{
	json_t *limits = json_object_get(json_object_get(container, "resources"), "limits");
	json_t *gpus = json_object(), *quantity;
	const char *resource;

	json_object_foreach (limits, resource, quantity)
		if (is_gpu(resource))
			json_object_set(gpus, resource, quantity);
	json_object_del(container, "resources");
	if (json_object_size(gpus))
		json_object_set_new(container, "resources", json_pack("{s:O}", "limits", gpus));
	json_decref(gpus);
}

void plan_trim_pod(json_t *pod)
{
	static const char *const statuses[] = {"initContainerStatuses", "containerStatuses",
					       "ephemeralContainerStatuses"};
	json_t *metadata, *spec, *status, *c, *st;
	size_t k;

	json_keep(pod, "metadata",
		  "name namespace uid resourceVersion creationTimestamp labels annotations "
		  "ownerReferences");
	json_keep(pod, "spec",
		  "nodeName hostNetwork initContainers containers ephemeralContainers");
	json_keep(pod, "status",
		  "phase hostIP podIP initContainerStatuses containerStatuses "
		  "ephemeralContainerStatuses");
	metadata = json_object_get(pod, "metadata");
	spec = json_object_get(pod, "spec");
	status = json_object_get(pod, "status");
	json_keep(metadata, "annotations", ANNOTATIONS);
	json_keep(metadata, "ownerReferences", "kind name controller");
	for (size_t i = 0; i < ARRAY_SIZE(container_lists); i++) {
		json_keep(spec, container_lists[i], "name image restartPolicy resources");
		json_array_foreach (json_object_get(spec, container_lists[i]), k, c)
			trim_resources(c);
		json_keep(status, statuses[i], "name image containerID state");
		json_array_foreach (json_object_get(status, statuses[i]), k, st)
			trim_state(st);
	}
}

void plan_trim_named(json_t *obj)
{
	json_keep(obj, "metadata", "name uid resourceVersion labels");
}
