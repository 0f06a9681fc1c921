/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kube: the Kubernetes API for both roles: the address of the server and the credentials, single
 * requests, list and watch. List and watch work as in client-go
 * (k8s.io/client-go/tools/cache/reflector.go, July 2026). docs/watch.md has a table of the cases.
 */
#pragma once

#include "lib/loop/http.h"

/* ---- the server's address and this process's identity ---- */
/*
 * The struct owns the strings; kube_config_done frees them. If a file named here changes, it is
 * read again.
 */
struct kube_config {
	char *address;			/* IP or name */
	uint16_t port;
	/*
	 * the name that the server's certificate must have. In a cluster it is
	 * kubernetes.default.svc, unless address is a name
	 */
	char *tls_name;
	/* if a file is set, its text is not used; the file is read again every minute */
	char *ca_pem, *ca_file;
	char *cert_pem, *key_pem, *cert_file, *key_file;
	/* if token_file is set, token is not used; the file is read again when it changes */
	char *token, *token_file;
	bool insecure, plain_http;
	char *default_namespace;
	/* path of the server's URL ("/k8s/clusters/c-1"); NULL: none */
	char *path_prefix;
};
/* where Kubernetes puts the credentials of a pod's service account: token, ca.crt, namespace */
#define KUBE_SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"
/* Reads the pod's service account. -ENOENT: this process does not run in a pod. */
int kube_config_in_cluster(struct kube_config *ret, struct field_error *reterr);
/* path NULL: $KUBECONFIG, else ~/.kube/config. context NULL: current-context. */
int kube_config_file(const char *path, const char *context, struct kube_config *ret,
		     struct field_error *reterr);
void kube_config_done(struct kube_config *c);

/* ---- client ---- */
struct kube;
int kube_new(struct loop *l, const struct kube_config *c, const char *user_agent, struct kube **ret,
	     struct field_error *reterr);	/* copies c */
struct kube *kube_free(struct kube *k);

/*
 * fn is called when the file of a token, CA or certificate is read again and cannot be used (error:
 * the file, and why), when the reason changes, and when the file can be used again (error NULL).
 * Until then kube uses the last usable one. what: "certificate-authority", "token", ... Set fn
 * before the first kube is made.
 */
typedef void kube_credentials_fn(const char *what, const char *error);
void kube_on_credentials(kube_credentials_fn *fn);

/*
 * Sends one request and calls on_done exactly once. body may be NULL. content_type NULL:
 * application/json.
 */
typedef void kube_done_fn(int status, const json_t *body, const char *error, void *arg);
int kube_request(struct kube *k, const char *method, const char *path, const char *content_type,
		 const json_t *body, kube_done_fn *fn, void *arg);

/* ---- list + watch ---- */
/*
 * A watch keeps objects without metadata.managedFields and without the members that trim removes.
 * If only these members or metadata.resourceVersion change, it reports no change. But it puts the
 * new resourceVersion into the object that it delivered last, so a caller that holds a reference to
 * the object writes with the new version. A caller may free a watch inside its callbacks, and must
 * free it before its kube.
 *
 * A watch compares the server's objects with those that it has delivered. It calls upsert for a new
 * or changed object (old is NULL for a new one), and remove for a deleted one, with its last known
 * state. If an object has the name of a deleted one and another UID, it calls remove and then
 * upsert. It calls synced once, after the first complete list. It calls state when its health
 * changes: error is NULL if the stream works, else a text for people. It calls left_out when the
 * answer of kube_watch_each_left_out() may have changed. It calls no_room with an object that it
 * does not keep for lack of room: whenever the object arrives, in a list or because it has changed,
 * and when it loses its room (remove follows). The object may lack its kind. no_room must not free
 * the watch. Each of them may be NULL.
 */
struct kube_watch_ops {
	void (*upsert)(const char *key, const json_t *obj, const json_t *old, void *arg);
	void (*remove)(const char *key, const json_t *last, void *arg);
	void (*synced)(void *arg);
	void (*state)(const char *error, void *arg);
	void (*left_out)(void *arg);
	void (*no_room)(const char *key, const json_t *obj, void *arg);
};
struct kube_watch_spec {
	const char *path; /* "/api/v1/pods", "/apis/podflame.io/v1alpha1/profilingtargets" */
	const char *field_selector, *label_selector;	/* unencoded; NULL: none */
	bool metadata_only;		/* PartialObjectMetadata */
	bool once; /* only lists, and does not watch: no request follows the first complete list */
	/*
	 * status 404 counts as an empty list, because the CRD may not be installed yet. The watch
	 * asks again after 10 to 15 s
	 */
	bool optional;
	/*
	 * Removes from an object the members that the caller does not read, before the watch keeps
	 * the object. Tenants may write large objects. NULL: removes nothing.
	 */
	void (*trim)(json_t *obj);
	/*
	 * limit of the memory of the watch's objects; the objects of a list that is arriving have
	 * the same limit a second time; 0: 128 MiB. If there are more, each namespace has the same
	 * share, and its oldest objects have it
	 */
	size_t max_bytes;
	/* the first list is delayed by a random time up to this one; 0: it is not delayed */
	uint64_t start_jitter_ns;
};
struct kube_watch;
int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops,
		   void *arg, struct kube_watch **ret);
struct kube_watch *kube_watch_free(struct kube_watch *w);
/* Returns the object (borrowed) with this key ("namespace/name" or "name"), or NULL. */
const json_t *kube_watch_get(const struct kube_watch *w, const char *key);
void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
bool kube_watch_synced(const struct kube_watch *w);
/*
 * The number of objects that the watch does not keep: those that have no room, and those of the
 * last list that could not be read.
 */
size_t kube_watch_left_out(const struct kube_watch *w);
/*
 * Calls fn for each namespace with objects that have no room. ns (borrowed): "": the objects that
 * are in no namespace. n: their number.
 */
typedef void kube_left_out_fn(const char *ns, size_t n, void *arg);
void kube_watch_each_left_out(const struct kube_watch *w, kube_left_out_fn *fn, void *arg);

/* ---- the functions of a kube: a client's or a test's ---- */
/*
 * The functions above call the functions of a struct kube_ops. kube_new() makes a client of an API
 * server, which has its own functions. A test has others. A struct kube and a struct kube_watch
 * begin with a struct kube_base.
 */
typedef int kube_request_fn(struct kube *k, const char *method, const char *path,
			    const char *content_type, const json_t *body, kube_done_fn *fn,
			    void *arg);
struct kube_fence;
/* Whether the requests of the fence may be sent. */
bool kube_fence_holds(const struct kube_fence *f);
/* A fence stays until its last reference is given back, also when its owner has ended. */
struct kube_fence *kube_fence_ref(struct kube_fence *f);
struct kube_fence *kube_fence_unref(struct kube_fence *f); /* NULL: does nothing */
struct kube_ops {
	kube_request_fn *request;
	/*
	 * The same, but the fence is asked when the bytes of the request go to the connection; if
	 * it does not hold, fn gets the status 0. The request takes a reference to the fence. NULL:
	 * lease.h asks only before.
	 */
	int (*request_within)(struct kube *k, struct kube_fence *fence, const char *method,
			      const char *path, const char *content_type, const json_t *body,
			      kube_done_fn *fn, void *arg);
	int (*watch_new)(struct kube *k, const struct kube_watch_spec *s,
			 const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret);
	void (*watch_free)(struct kube_watch *w);
	const json_t *(*watch_get)(const struct kube_watch *w, const char *key);
	void (*watch_each)(const struct kube_watch *w,
			   void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
	bool (*watch_synced)(const struct kube_watch *w);
	size_t (*watch_left_out)(const struct kube_watch *w);
	void (*watch_each_left_out)(const struct kube_watch *w, kube_left_out_fn *fn, void *arg);
};
struct kube_base {
	const struct kube_ops *ops;
};
