/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kube: the Kubernetes API for both roles: the address of the server and the credentials, list and
 * watch with client-go's semantics, and single requests. Semantics:
 * k8s.io/client-go/tools/cache/reflector.go (July 2026); table in docs/watch.md.
 */
#pragma once

#include "lib/loop/http.h"

/* ---- where and who ---- */
/* Owned strings; kube_config_done frees. Files named here are re-read on rotation. */
struct kube_config {
	char *address;			/* IP or name */
	uint16_t port;
	/*
	 * the name in its certificate: in a cluster kubernetes.default.svc, unless address is a
	 * name
	 */
	char *tls_name;
	char *ca_pem, *ca_file;		/* file wins and is polled */
	char *cert_pem, *key_pem, *cert_file, *key_file;
	char *token, *token_file;	/* file wins and is re-read */
	bool insecure, plain_http;
	char *default_namespace;
	char *path_prefix;		/* of the server URL ("/k8s/clusters/c-1"); NULL: none */
};
/* -ENOENT: this process does not run in a pod */
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
 * Reports a token, CA or certificate that is unusable when its file is read again; kube goes on
 * with the last good one. It calls fn when this begins or its reason changes (error: the file, and
 * why), and when it ends (error NULL). what: "certificate-authority", "token", ... Set it before
 * the first kube.
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
 * It does not report a change of only these and of metadata.resourceVersion; but the object that it
 * delivered last gets the new version, so that a caller with a reference to it writes with that
 * version. A caller may free a watch inside its callbacks, and must free it before its kube.
 *
 * A watch delivers the difference between the server's objects and those that it has delivered:
 * upsert for new or changed objects (old is NULL for new ones), delete with the last known object.
 * An object that comes back under another UID is delete + upsert. synced is called once, after the
 * first complete list. state reports changes of health: error NULL if the stream works, else a text
 * for people.
 */
struct kube_watch_ops {
	void (*upsert)(const char *key, const json_t *obj, const json_t *old, void *arg);
	void (*remove)(const char *key, const json_t *last, void *arg);
	void (*synced)(void *arg);
	void (*state)(const char *error, void *arg);	/* may be NULL */
};
struct kube_watch_spec {
	const char *path; /* "/api/v1/pods", "/apis/podflame.io/v1alpha1/profilingtargets" */
	const char *field_selector, *label_selector;	/* unencoded; NULL: none */
	bool metadata_only;		/* PartialObjectMetadata */
	bool once; /* a list without a watch after it: no further request follows */
	/* 404 counts as an empty list (the CRD is not installed yet), and is tried again slowly */
	bool optional;
	/*
	 * Removes from an object what its owner does not read, before the watch keeps it: tenants
	 * may write as much as they like. NULL: removes nothing.
	 */
	void (*trim)(json_t *obj);
	/* limit of the memory of all objects, and of those of a list; 0: 128 MiB */
	size_t max_bytes;
	/* the first list is delayed by a random part of this; 0: it comes at once */
	uint64_t start_jitter_ns;
};
struct kube_watch;
int kube_watch_new(struct kube *k, const struct kube_watch_spec *s,
		   const struct kube_watch_ops *ops,
		   void *arg, struct kube_watch **ret);
struct kube_watch *kube_watch_free(struct kube_watch *w);
/* key: "namespace/name" or "name". */
const json_t *kube_watch_get(const struct kube_watch *w, const char *key);
void kube_watch_each(const struct kube_watch *w,
		     void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
bool kube_watch_synced(const struct kube_watch *w);
/* Objects of the last list that are not kept: they were over a limit, or could not be read. */
size_t kube_watch_left_out(const struct kube_watch *w);

/* ---- what stands behind a kube ---- */
/*
 * The functions above with these names: those of a client of an API server, which kube_new() makes,
 * or those of a test. A struct kube and a struct kube_watch begin with a struct kube_base.
 */
typedef int kube_request_fn(struct kube *k, const char *method, const char *path,
			    const char *content_type, const json_t *body, kube_done_fn *fn,
			    void *arg);
struct kube_ops {
	kube_request_fn *request;
	int (*watch_new)(struct kube *k, const struct kube_watch_spec *s,
			 const struct kube_watch_ops *ops, void *arg, struct kube_watch **ret);
	void (*watch_free)(struct kube_watch *w);
	const json_t *(*watch_get)(const struct kube_watch *w, const char *key);
	void (*watch_each)(const struct kube_watch *w,
			   void (*fn)(const char *key, const json_t *obj, void *arg), void *arg);
	bool (*watch_synced)(const struct kube_watch *w);
	size_t (*watch_left_out)(const struct kube_watch *w);
};
struct kube_base {
	const struct kube_ops *ops;
};
