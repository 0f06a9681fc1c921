/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the hub's certificate. Reads the Secret. If the Secret has no usable certificate, makes one
 * and writes it; if another hub has written the Secret first, reads it again. Then publishes the
 * CA. Checks the certificate twice a day. After a failure, reports it and tries again.
 */
#include "hub/certs.h"

#include <openssl/evp.h>
#include <stdlib.h>

#define CHECK_NS (12 * 3600 * NSEC_PER_SEC)
#define RETRY_NS (3 * NSEC_PER_SEC)
#define N_NAMES	 8

struct certs {
	struct loop *loop;
	struct kube *kube;
	char *ns, *secret, *configmap;
	char *names[N_NAMES + 1]; /* NULL ends the list */
	certs_ready_fn *ready;
	void *arg;
	struct timer timer;
	struct cert_pair ca, server;
	/* resourceVersion of the Secret that was read; NULL: there is no Secret */
	char *resource_version;
	char problem[768];
};

static void check(void *arg);

static void retry(struct certs *c, const char *what, int status, const char *error)
{
	snprintf(c->problem, sizeof(c->problem), "%s: %s (HTTP %d)", what,
		 error ? error : "refused", status);
	log_warn("%s; trying again", c->problem);
	timer_set(c->loop, &c->timer, RETRY_NS, check, c);
}

static json_t *base64_json(const char *text)
{
	size_t n = strlen(text);
	_cleanup_free_ char *out = xmalloc(4 * (n / 3 + 1) + 1);

	EVP_EncodeBlock((uint8_t *)out, (const uint8_t *)text, (int)n);
	return json_string(out);
}

static char *data_of(const json_t *secret, const char *key)
{
	const char *text = json_string_value(json_object_get(json_object_get(secret, "data"), key));
	uint8_t *bytes;
	size_t n;

	if (!text || base64_decode(text, &bytes, &n))
		return xstrdup("");
	return (char *)bytes;
}

static void use(struct certs *c)
{
	const struct tls_config config = {.cert_pem = c->server.cert_pem,
					  .key_pem = c->server.key_pem};
	struct field_error err = {0};
	struct tls *tls = NULL;

	if (tls_new(&config, true, &tls, &err)) {
		retry(c, "the hub's certificate", 0, err.reason);
		return;
	}
	c->problem[0] = '\0';
	c->ready(tls, c->arg);
	tls_unref(tls);
	timer_set(c->loop, &c->timer, CHECK_NS, check, c);
}

static void published(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;

	(void)body;
	if (status == 200 || status == 201)
		use(c);
	else
		retry(c, "publishing the CA", status, error);
}

static json_t *configmap(const struct certs *c)
{
	return json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s}}", "apiVersion", "v1", "kind",
			 "ConfigMap", "metadata", "name", c->configmap, "namespace", c->ns, "data",
			 "ca.crt", c->ca.cert_pem);
}

static void patched(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;
	_cleanup_free_ char *path = xasprintf("/api/v1/namespaces/%s/configmaps", c->ns);
	_cleanup_json_ json_t *object = NULL;

	if (status != 404) {
		published(status, body, error, arg);
		return;
	}
	object = configmap(c);
	kube_request(c->kube, "POST", path, NULL, object, published, c);
}

static void publish(struct certs *c)
{
	_cleanup_free_ char *path =
		xasprintf("/api/v1/namespaces/%s/configmaps/%s", c->ns, c->configmap);
	_cleanup_json_ json_t *object = configmap(c);

	kube_request(c->kube, "PATCH", path, "application/merge-patch+json", object, patched, c);
}

static void written(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;

	(void)body;
	if (status == 200 || status == 201)
		publish(c);
	else if (status == 409) /* another hub has written the Secret: use the certificate in it */
		timer_set(c->loop, &c->timer, 0, check, c);
	else
		retry(c, "writing the Secret of the hub's certificate", status, error);
}

static void make(struct certs *c)
{
	_cleanup_free_ char *all = xasprintf("/api/v1/namespaces/%s/secrets", c->ns);
	_cleanup_free_ char *one = xasprintf("%s/%s", all, c->secret);
	_cleanup_json_ json_t *object = NULL;
	uint64_t now = now_wall_ns();
	int r = 0;

	hub_cert_pair_done(&c->server);
	if (!*c->ca.key_pem ||
	    hub_certs_make_server(&c->ca, (const char *const *)c->names, now, &c->server) ||
	    !hub_certs_usable(&c->server, c->ca.cert_pem, (const char *const *)c->names, now)) {
		hub_cert_pair_done(&c->server);
		hub_cert_pair_done(&c->ca);
		r = hub_certs_make_ca("podflame hub CA", now, &c->ca);
		if (!r)
			r = hub_certs_make_server(&c->ca, (const char *const *)c->names, now,
						  &c->server);
	}
	if (r) {
		retry(c, "making the hub's certificate", 0, strerror(-r));
		return;
	}
	object = json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:s*}, s:{s:o, s:o, s:o, s:o}}",
			   "apiVersion", "v1", "kind", "Secret", "type", "Opaque", "metadata",
			   "name", c->secret, "namespace", c->ns, "resourceVersion",
			   c->resource_version, "data", "tls.crt", base64_json(c->server.cert_pem),
			   "tls.key", base64_json(c->server.key_pem), "ca.crt",
			   base64_json(c->ca.cert_pem), "ca.key", base64_json(c->ca.key_pem));
	/*
	 * A patch keeps fields that others have added to the Secret. If two hubs write at the same
	 * time, the resourceVersion makes the second one fail with a conflict.
	 */
	if (c->resource_version)
		kube_request(c->kube, "PATCH", one, "application/merge-patch+json", object, written,
			     c);
	else
		kube_request(c->kube, "POST", all, NULL, object, written, c);
}

static void forget(struct certs *c)
{
	hub_cert_pair_done(&c->ca);
	hub_cert_pair_done(&c->server);
	free(c->resource_version);
	c->resource_version = NULL;
}

static void got(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;

	if (status != 200 && status != 404) {
		retry(c, "reading the Secret of the hub's certificate", status, error);
		return;
	}
	forget(c);
	if (status == 200)
		c->resource_version = xstrdup(json_str_at(body, "metadata.resourceVersion", ""));
	c->ca = (struct cert_pair){data_of(body, "ca.crt"), data_of(body, "ca.key")};
	c->server = (struct cert_pair){data_of(body, "tls.crt"), data_of(body, "tls.key")};
	if (hub_certs_usable(&c->server, c->ca.cert_pem, (const char *const *)c->names,
			     now_wall_ns()))
		publish(c);
	else
		make(c);
}

static void check(void *arg)
{
	struct certs *c = arg;
	_cleanup_free_ char *path = xasprintf("/api/v1/namespaces/%s/secrets/%s", c->ns, c->secret);

	kube_request(c->kube, "GET", path, NULL, NULL, got, c);
}

int hub_certs_new(struct loop *l, struct kube *k, const struct certs_config *conf,
		  certs_ready_fn *ready, void *arg, struct certs **ret)
{
	struct certs *c = xcalloc(1, sizeof(*c));
	size_t n = 0;

	loop_assert(l);
	*c = (struct certs){.loop = l, .kube = k, .ready = ready, .arg = arg};
	c->ns = xstrdup(conf->ns);
	c->secret = xstrdup(conf->secret);
	c->configmap = xstrdup(conf->ca_configmap);
	c->names[n++] = xasprintf("%s.%s.svc", conf->service, conf->ns);
	c->names[n++] = xstrdup(conf->service);
	c->names[n++] = xasprintf("%s.%s", conf->service, conf->ns);
	c->names[n++] = xasprintf("%s.%s.svc.cluster.local", conf->service, conf->ns);
	c->names[n++] = xstrdup("localhost");
	c->names[n++] = xstrdup("127.0.0.1");
	snprintf(c->problem, sizeof(c->problem), "the hub's certificate is being made");
	timer_set(l, &c->timer, 0, check, c);
	*ret = c;
	return 0;
}

struct certs *hub_certs_free(struct certs *c)
{
	if (!c)
		return NULL;
	timer_cancel(&c->timer);
	forget(c);
	for (size_t i = 0; c->names[i]; i++)
		free(c->names[i]);
	free(c->ns);
	free(c->secret);
	free(c->configmap);
	free(c);
	return NULL;
}

const char *hub_certs_problem(const struct certs *c)
{
	return c->problem;
}
