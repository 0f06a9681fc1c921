/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the hub's certificate. Reads the Secret. Makes what it lacks and writes it, then publishes
 * the CA. Checks the certificate twice a day, and every ten minutes while a new CA is to take over.
 * After a failure, reports it and tries again.
 *
 * If others write the Secret, or another hub may, reads it once a minute, and uses and publishes
 * what has changed. A certificate that agents would refuse is reported, and the one before stays in
 * use.
 *
 * Of several hubs only the one that leads writes. All the same, nothing is lost if two believe that
 * they lead: the ConfigMap is read before the Secret, and each write needs the version that was
 * read. So a hub that has read an old Secret cannot publish its CA over that of a newer one. It
 * gets a conflict, and reads both again.
 */
#include "hub/certs.h"

#include <openssl/evp.h>
#include <stdlib.h>

#define CHECK_NS   (12 * 3600 * NSEC_PER_SEC)
#define NEXT_NS	   (600 * NSEC_PER_SEC) /* while there is a next CA */
#define BROUGHT_NS (60 * NSEC_PER_SEC)
#define RETRY_NS   (3 * NSEC_PER_SEC)
#define N_NAMES	   8

struct certs {
	struct loop *loop;
	struct kube *kube;
	bool brought;
	bool (*leads)(void *arg); /* NULL: this hub is the only one */
	void *leads_arg;
	char *ns, *secret, *configmap;
	char *names[N_NAMES + 1]; /* NULL ends the list */
	certs_ready_fn *ready;
	void *arg;
	struct timer timer;
	struct cert_set set;
	/* resourceVersion of the Secret that was read; NULL: there is no Secret */
	char *resource_version;
	/* the same of the ConfigMap, and the CA that it has; NULL: there is none */
	char *published_version, *published;
	char *in_use; /* the server's certificate that ready() got last; NULL: none */
	char problem[768];
};

static void check(void *arg);

static bool leads(const struct certs *c)
{
	return !c->leads || c->leads(c->leads_arg);
}

static void ask(struct certs *c, const char *method, const char *path, const char *type,
		const json_t *body, kube_done_fn *fn)
{
	int r = kube_request(c->kube, method, path, type, body, fn, c);

	if (r < 0)
		fn(0, NULL, strerror(-r), c);
}

static void retry(struct certs *c, const char *what, int status, const char *error)
{
	_cleanup_free_ char *http = status ? xasprintf(" (HTTP %d)", status) : xstrdup("");
	_cleanup_free_ char *now = xasprintf("%s: %s%s", what, error ? error : "refused", http);

	if (strncmp(now, c->problem, sizeof(c->problem) - 1) != 0)
		log_warn("%s; trying again", now);
	snprintf(c->problem, sizeof(c->problem), "%s", now);
	timer_set(c->loop, &c->timer, RETRY_NS, check, c);
}

/* Returns null, which deletes a key in a patch, for a text that is not there. */
static json_t *base64_json(const char *text)
{
	size_t n = text ? strlen(text) : 0;
	_cleanup_free_ char *out = xmalloc(4 * (n / 3 + 1) + 1);

	if (n == 0)
		return json_null();
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

static uint64_t until_check_ns(const struct certs *c)
{
	return c->brought || c->leads ? BROUGHT_NS : hub_certs_next_s(&c->set) ? NEXT_NS : CHECK_NS;
}

static void use(struct certs *c)
{
	const struct tls_config config = {.cert_pem = c->set.server.cert_pem,
					  .key_pem = c->set.server.key_pem};
	struct field_error err = {0};
	struct tls *tls = NULL;

	if (!c->in_use || !streq(c->in_use, config.cert_pem)) {
		if (tls_new(&config, true, &tls, &err)) {
			retry(c, "the hub's certificate", 0, err.reason);
			return;
		}
		c->ready(tls, c->arg);
		tls_unref(tls);
		free(c->in_use);
		c->in_use = xstrdup(config.cert_pem);
	}
	c->problem[0] = '\0';
	timer_set(c->loop, &c->timer, until_check_ns(c), check, c);
}

static void published(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;

	(void)body;
	if (status == 200 || status == 201)
		use(c);
	else if (status == 409) /* another hub has published meanwhile: look at what there is */
		timer_set(c->loop, &c->timer, 0, check, c);
	else
		retry(c, "publishing the CA", status, error);
}

static void publish(struct certs *c)
{
	_cleanup_free_ char *all = xasprintf("/api/v1/namespaces/%s/configmaps", c->ns),
			    *one = xasprintf("%s/%s", all, c->configmap),
			    *trusted = hub_certs_trusted(&c->set);
	_cleanup_json_ json_t *object =
		json_pack("{s:s, s:s, s:{s:s, s:s, s:s*}, s:{s:s}}", "apiVersion", "v1", "kind",
			  "ConfigMap", "metadata", "name", c->configmap, "namespace", c->ns,
			  "resourceVersion", c->published_version, "data", "ca.crt", trusted);

	if (str_equal(c->published, trusted) || !leads(c))
		use(c);
	else if (c->published_version)
		ask(c, "PATCH", one, "application/merge-patch+json", object, published);
	else
		ask(c, "POST", all, NULL, object, published);
}

static void written(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;
	int64_t next_s = hub_certs_next_s(&c->set);
	char when[32];

	(void)body;
	if (status == 200 || status == 201) {
		time_format((uint64_t)next_s * NSEC_PER_SEC, when);
		if (next_s)
			log_info("ConfigMap %s has a second CA, which signs the hub's certificate "
				 "from %s at the latest: give both to clients outside the cluster",
				 c->configmap, when);
		publish(c);
	} else if (status == 409) { /* another hub has written the Secret: use what is in it */
		timer_set(c->loop, &c->timer, 0, check, c);
	} else {
		retry(c, "writing the Secret of the hub's certificate", status, error);
	}
}

/*
 * A patch keeps fields that others have added to the Secret. If two hubs write at the same time,
 * the resourceVersion makes the second one fail with a conflict.
 */
static void write_secret(struct certs *c)
{
	_cleanup_free_ char *all = xasprintf("/api/v1/namespaces/%s/secrets", c->ns);
	_cleanup_free_ char *one = xasprintf("%s/%s", all, c->secret);
	const struct cert_set *s = &c->set;
	_cleanup_json_ json_t *object = json_pack(
		"{s:s, s:s, s:s, s:{s:s, s:s, s:s*}, s:{s:o, s:o, s:o, s:o}}", "apiVersion", "v1",
		"kind", "Secret", "type", "Opaque", "metadata", "name", c->secret, "namespace",
		c->ns, "resourceVersion", c->resource_version, "data", "tls.crt",
		base64_json(s->server.cert_pem), "tls.key", base64_json(s->server.key_pem),
		"ca.crt", base64_json(s->ca.cert_pem), "ca.key", base64_json(s->ca.key_pem));
	json_t *data = json_object_get(object, "data");

	if (c->resource_version) {
		json_object_set_new(data, "next-ca.crt", base64_json(s->next.cert_pem));
		json_object_set_new(data, "next-ca.key", base64_json(s->next.key_pem));
	}
	if (c->resource_version)
		ask(c, "PATCH", one, "application/merge-patch+json", object, written);
	else
		ask(c, "POST", all, NULL, object, written);
}

static void forget(struct certs *c)
{
	hub_cert_set_done(&c->set);
	free(TAKE_PTR(c->resource_version));
	free(TAKE_PTR(c->published_version));
	free(TAKE_PTR(c->published));
}

/*
 * The Secret belongs to others, or to the hub that leads. That one may have another public name
 * while the hubs are upgraded, so only the name that agents use is checked then.
 */
static void follow(struct certs *c)
{
	const char *const first[] = {c->names[0], NULL};
	const char *const *names = c->brought ? (const char *const *)c->names : first;
	struct field_error err = {0};
	_cleanup_free_ char *why = NULL, *what = xasprintf("Secret %s", c->secret);

	if (hub_certs_check(&c->set.server, c->set.ca.cert_pem, names, now_wall_ns(), &err)) {
		why = xasprintf("%s %s", err.path, err.reason);
		retry(c, what, 0, why);
		return;
	}
	publish(c);
}

static void renew(struct certs *c)
{
	bool changed;
	int r = hub_certs_renew(&c->set, (const char *const *)c->names, now_wall_ns(), &changed);

	if (r)
		retry(c, "making the hub's certificate", 0, strerror(-r));
	else if (changed)
		write_secret(c);
	else
		publish(c);
}

static void got(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;

	if (status != 200 && (status != 404 || c->brought)) {
		retry(c, "reading the Secret of the hub's certificate", status, error);
		return;
	}
	if (status == 200)
		c->resource_version = xstrdup(json_str_at(body, "metadata.resourceVersion", ""));
	c->set.server = (struct cert_pair){data_of(body, "tls.crt"), data_of(body, "tls.key")};
	c->set.ca.cert_pem = data_of(body, "ca.crt");
	if (c->brought || !leads(c)) {
		follow(c);
		return;
	}
	c->set.ca.key_pem = data_of(body, "ca.key");
	c->set.next =
		(struct cert_pair){data_of(body, "next-ca.crt"), data_of(body, "next-ca.key")};
	renew(c);
}

static void got_published(int status, const json_t *body, const char *error, void *arg)
{
	struct certs *c = arg;
	_cleanup_free_ char *path = xasprintf("/api/v1/namespaces/%s/secrets/%s", c->ns, c->secret);

	if (status != 200 && status != 404) {
		retry(c, "reading the ConfigMap of the CA", status, error);
		return;
	}
	forget(c);
	if (status == 200) {
		c->published_version = xstrdup(json_str_at(body, "metadata.resourceVersion", ""));
		c->published = xstrdup(json_string_value(
			json_object_get(json_object_get(body, "data"), "ca.crt")));
	}
	ask(c, "GET", path, NULL, NULL, got);
}

static void check(void *arg)
{
	struct certs *c = arg;
	_cleanup_free_ char *path =
		xasprintf("/api/v1/namespaces/%s/configmaps/%s", c->ns, c->configmap);

	ask(c, "GET", path, NULL, NULL, got_published);
}

int hub_certs_new(struct loop *l, struct kube *k, const struct certs_config *conf,
		  certs_ready_fn *ready, void *arg, struct certs **ret)
{
	struct certs *c = xcalloc(1, sizeof(*c));
	size_t n = 0;

	loop_assert(l);
	*c = (struct certs){.loop = l,
			    .kube = k,
			    .ready = ready,
			    .arg = arg,
			    .brought = conf->brought,
			    .leads = conf->leads,
			    .leads_arg = conf->leads_arg};
	c->ns = xstrdup(conf->ns);
	c->secret = xstrdup(conf->secret);
	c->configmap = xstrdup(conf->ca_configmap);
	c->names[n++] = xasprintf("%s.%s.svc", conf->service, conf->ns);
	if (!conf->brought) {
		c->names[n++] = xstrdup(conf->service);
		c->names[n++] = xasprintf("%s.%s", conf->service, conf->ns);
		c->names[n++] = xasprintf("%s.%s.svc.cluster.local", conf->service, conf->ns);
		c->names[n++] = xstrdup("localhost");
		c->names[n++] = xstrdup("127.0.0.1");
	}
	if (*conf->public_name)
		c->names[n++] = xstrdup(conf->public_name);
	snprintf(c->problem, sizeof(c->problem), "the hub's certificate is being %s",
		 conf->brought ? "read" : "made");
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
	free(c->in_use);
	free(c);
	return NULL;
}

const char *hub_certs_problem(const struct certs *c)
{
	return c->problem;
}
