// SPDX-License-Identifier: Apache-2.0
/*
 * Where the API server is, and the identity of this process: the pod's service account, or a
 * kubeconfig file. An error names what podflame does not support (plugins, proxies).
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/kube/kube_private.h"

#define MAX_CONFIG_BYTES (4 << 20) /* bytes of a kubeconfig; a larger one is refused */

void kube_config_done(struct kube_config *c)
{
	free(c->address);
	free(c->tls_name);
	free(c->ca_pem);
	free(c->ca_file);
	free(c->cert_pem);
	free(c->key_pem);
	free(c->cert_file);
	free(c->key_file);
	free(c->token);
	free(c->token_file);
	free(c->default_namespace);
	free(c->path_prefix);
	*c = (struct kube_config){0};
}

/* ---- in a pod ---- */

static bool is_address(const char *s)
{
	uint8_t ip[16];

	return inet_pton(AF_INET, s, ip) == 1 || inet_pton(AF_INET6, s, ip) == 1;
}

/*
 * access() asks for the rights of the real user without its capabilities. By such a capability, an
 * agent that is not root reads its token.
 */
static bool can_read(const char *file)
{
	return faccessat(AT_FDCWD, file, R_OK, AT_EACCESS) == 0;
}

int kube_config_in_cluster_at(const char *dir, struct kube_config *ret, struct field_error *reterr)
{
	const char *host = getenv("KUBERNETES_SERVICE_HOST"),
		   *port = getenv("KUBERNETES_SERVICE_PORT");
	_cleanup_(kube_config_done) struct kube_config c = {0};
	_cleanup_free_ char *ns_file = xasprintf("%s/namespace", dir), *ns = NULL;
	uint64_t n;
	int r;

	if (!host || !*host || !port || !*port) {
		field_error_set(reterr, "KUBERNETES_SERVICE_HOST",
				"is not set, so this process does not run in a pod");
		return -ENOENT;
	}
	if (str_to_u64(port, 65535, &n) < 0 || n == 0)
		return field_error_set(reterr, "KUBERNETES_SERVICE_PORT", "\"%s\" is no port",
				       port);
	c.token_file = xasprintf("%s/token", dir);
	c.ca_file = xasprintf("%s/ca.crt", dir);
	if (!can_read(c.token_file))
		return field_error_set(reterr, c.token_file,
				       "%s: does the pod mount its service "
				       "account token?",
				       strerror(errno));
	c.address = xstrdup(host);
	c.port = (uint16_t)n;
	/*
	 * Every API server's certificate has the name kubernetes.default.svc, but it may lack the
	 * server's IP address. If a provider sets host to a name, the certificate may have only
	 * that name.
	 */
	c.tls_name = xstrdup(is_address(host) ? "kubernetes.default.svc" : host);
	r = file_read(AT_FDCWD, ns_file, 256, &ns, NULL);
	/* if the file exists but cannot be read, "default" would be a wrong namespace */
	if (r < 0 && r != -ENOENT)
		return field_error_set(reterr, ns_file, "%s", strerror(-r));
	if (!r)
		ns[strcspn(ns, " \r\n")] = '\0';
	c.default_namespace = xstrdup(ns && *ns ? ns : "default");
	*ret = c;
	c = (struct kube_config){0};
	return 0;
}

int kube_config_in_cluster(struct kube_config *ret, struct field_error *reterr)
{
	return kube_config_in_cluster_at(KUBE_SERVICE_ACCOUNT, ret, reterr);
}

/* ---- kubeconfig ---- */

struct config_reading {
	const json_t *root;
	char *dir; /* the directory that relative file names start from */
	struct field_error *err;
	char where[200]; /* the part of the file that is being read, for errors: "users[2].user" */
};

static int bad(struct config_reading *r, const char *field, const char *why)
{
	_cleanup_free_ char *path = xasprintf("%s.%s", r->where, field);

	return field_error_set(r->err, path, "%s", why);
}

/* Checks that this process may read the file. */
static int check_file(struct config_reading *r, const char *field, const char *file)
{
	_cleanup_free_ char *why = NULL;

	if (can_read(file))
		return 0;
	why = xasprintf("%s: %s", file, strerror(errno));
	return bad(r, field, why);
}

/*
 * Finds X in {clusters: [{name: X, cluster: {...}}]}. Sets *ret to the inner object and r->where to
 * its path.
 */
static int find_named(struct config_reading *r, const char *list, const char *inner,
		      const char *name, const json_t **ret)
{
	const json_t *all = json_object_get(r->root, list), *one;
	size_t i;

	json_array_foreach (all, i, one) {
		if (!streq(json_str_at(one, "name", ""), name))
			continue;
		snprintf(r->where, sizeof(r->where), "%s[%zu].%s", list, i, inner);
		one = json_object_get(one, inner);
		if (!json_is_object(one))
			return field_error_set(r->err, r->where, "is missing or no mapping");
		*ret = one;
		return 0;
	}
	return field_error_set(r->err, list, "has no entry named \"%s\"", name);
}

static int get_string(struct config_reading *r, const json_t *o, const char *field,
		      const char **ret)
{
	const json_t *v = json_object_get(o, field);

	if (v && !json_is_null(v) && !json_is_string(v))
		return bad(r, field, "is no string");
	*ret = json_string_value(v);
	if (*ret && !**ret)
		*ret = NULL;
	return 0;
}

/* Reads field-data (base64) or else field (the name of a file), as kubectl does. */
static int get_pem(struct config_reading *r, const json_t *o, const char *field, char **ret_pem,
		   char **ret_file)
{
	_cleanup_free_ char *data_field = xasprintf("%s-data", field);
	const char *data, *file;
	uint8_t *bytes;
	size_t n;
	int e = get_string(r, o, data_field, &data);

	if (e == 0)
		e = get_string(r, o, field, &file);
	if (e < 0)
		return e;
	if (data) {
		if (base64_decode(data, &bytes, &n) < 0)
			return bad(r, data_field, "is no base64");
		*ret_pem = xstrndup((char *)bytes, n);
		free(bytes);
	} else if (file) {
		*ret_file = file[0] == '/' ? xstrdup(file) : xasprintf("%s/%s", r->dir, file);
		return check_file(r, field, *ret_file);
	}
	return 0;
}

/*
 * Whether s has a blank or a control character. The agent puts the value into the head of each
 * request unchanged.
 */
static bool has_blank(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 0x7f)
			return true;
	return false;
}

static int parse_server(struct config_reading *r, const char *server, struct kube_config *c)
{
	_cleanup_(url_done) struct url u = {0};
	struct field_error e = {0};

	if (url_parse(server, &u, &e) < 0)
		return bad(r, "server", e.reason);
	c->plain_http = !u.tls;
	c->address = TAKE_PTR(u.host);
	c->port = u.port;
	c->path_prefix = *u.path ? TAKE_PTR(u.path) : NULL;
	return 0;
}

static int read_cluster(struct config_reading *r, const char *name, struct kube_config *c)
{
	const json_t *o, *insecure;
	const char *server, *tls_name, *proxy;
	int e = find_named(r, "clusters", "cluster", name, &o);

	if (e == 0)
		e = get_string(r, o, "server", &server);
	if (e == 0)
		e = get_string(r, o, "tls-server-name", &tls_name);
	if (e == 0)
		e = get_string(r, o, "proxy-url", &proxy);
	if (e == 0)
		e = get_pem(r, o, "certificate-authority", &c->ca_pem, &c->ca_file);
	if (e < 0)
		return e;
	if (proxy)
		return bad(r, "proxy-url", "proxies are not supported");
	if (!server)
		return bad(r, "server", "is missing");
	if (tls_name && has_blank(tls_name))
		return bad(r, "tls-server-name", "holds a blank or a control character");
	insecure = json_object_get(o, "insecure-skip-tls-verify");
	if (insecure && !json_is_boolean(insecure))
		return bad(r, "insecure-skip-tls-verify", "is neither true nor false");
	c->insecure = json_is_true(insecure);
	if (c->insecure && (c->ca_pem || c->ca_file))
		return bad(r, "insecure-skip-tls-verify", "contradicts certificate-authority");
	e = parse_server(r, server, c);
	if (e == 0)
		c->tls_name = xstrdup(tls_name ?: c->address);
	return e;
}

static int refuse_unsupported(struct config_reading *r, const json_t *o)
{
	static const struct {
		const char *field, *why;
	} table[] = {
		{"exec",
		 "credential plugins are not supported; use a token (kubectl create token makes "
		 "one), a tokenFile or a client certificate"},
		{"auth-provider",
		 "is no longer part of Kubernetes; use a token or a client certificate"},
		{"username", "basic authentication is no longer part of Kubernetes"},
		{"as", "impersonation is not supported"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const json_t *v = json_object_get(o, table[i].field);

		if (v && !json_is_null(v))
			return bad(r, table[i].field, table[i].why);
	}
	return 0;
}

static int read_user(struct config_reading *r, const char *name, struct kube_config *c)
{
	const json_t *o;
	const char *token, *token_file;
	int e = find_named(r, "users", "user", name, &o);

	if (e == 0)
		e = refuse_unsupported(r, o);
	if (e == 0)
		e = get_string(r, o, "token", &token);
	if (e == 0)
		e = get_string(r, o, "tokenFile", &token_file);
	if (e == 0)
		e = get_pem(r, o, "client-certificate", &c->cert_pem, &c->cert_file);
	if (e == 0)
		e = get_pem(r, o, "client-key", &c->key_pem, &c->key_file);
	if (e < 0)
		return e;
	if (!!(c->cert_pem ?: c->cert_file) != !!(c->key_pem ?: c->key_file))
		return bad(r, c->cert_pem || c->cert_file ? "client-key" : "client-certificate",
			   "is missing");
	if (token_file) {
		c->token_file = token_file[0] == '/' ? xstrdup(token_file)
						     : xasprintf("%s/%s", r->dir, token_file);
		return check_file(r, "tokenFile", c->token_file);
	} else if (token) {
		if (token[strcspn(token, "\r\n")])
			return bad(r, "token", "holds a line break");
		c->token = xstrdup(token);
	}
	return 0;
}

static int read_context(struct config_reading *r, const char *name, struct kube_config *c)
{
	const json_t *o;
	const char *cluster, *user, *ns;
	int e = find_named(r, "contexts", "context", name, &o);

	if (e == 0)
		e = get_string(r, o, "cluster", &cluster);
	if (e == 0)
		e = get_string(r, o, "user", &user);
	if (e == 0)
		e = get_string(r, o, "namespace", &ns);
	if (e < 0)
		return e;
	if (!cluster)
		return bad(r, "cluster", "is missing");
	c->default_namespace = xstrdup(ns ?: "default");
	e = read_cluster(r, cluster, c);
	return e == 0 && user ? read_user(r, user, c) : e;
}

static int default_path(char **ret, struct field_error *reterr)
{
	const char *env = getenv("KUBECONFIG"), *home = getenv("HOME");

	if (env && strchr(env, ':'))
		return field_error_set(reterr, "KUBECONFIG",
				       "names several files; they are not "
				       "merged here, name one");
	if (!(env && *env) && !home)
		return field_error_set(reterr, "KUBECONFIG",
				       "is not set, and HOME is not set either");
	*ret = env && *env ? xstrdup(env) : xasprintf("%s/.kube/config", home);
	return 0;
}

static int name_file(const char *path, const struct field_error *e, int r,
		     struct field_error *reterr)
{
	_cleanup_free_ char *at = xasprintf("%s: %s", path, e->path);

	field_error_set(reterr, at, "%s", e->reason);
	return r;
}

static int parse_file(const char *path, struct yaml_doc **ret, struct field_error *reterr)
{
	struct field_error e = {0};
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r = file_read(AT_FDCWD, path, MAX_CONFIG_BYTES, &text, &n);

	if (r < 0) {
		field_error_set(reterr, path, "%s", file_error_text(r));
		return r;
	}
	r = yaml_parse(text, n, ret, &e);
	return r < 0 ? name_file(path, &e, r, reterr) : 0;
}

static char *dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
}

int kube_config_file(const char *path, const char *context, struct kube_config *ret,
		     struct field_error *reterr)
{
	_cleanup_(kube_config_done) struct kube_config c = {0};
	_cleanup_free_ char *found = NULL;
	struct field_error e = {0};
	struct config_reading reading = {.err = &e};
	struct yaml_doc *doc = NULL;
	int r = 0;

	if (!path)
		r = default_path(&found, reterr);
	if (r == 0)
		r = parse_file(path ?: found, &doc, reterr);
	if (r < 0)
		return r;
	reading.root = yaml_root(doc);
	reading.dir = dir_of(path ?: found);
	if (!context)
		context = json_str_at(reading.root, "current-context", "");
	if (!*context)
		r = field_error_set(&e, "current-context", "is missing, and no context was named");
	else
		r = read_context(&reading, context, &c);
	free(reading.dir);
	yaml_doc_free(doc);
	if (r < 0)
		return name_file(path ?: found, &e, r, reterr);
	*ret = c;
	c = (struct kube_config){0};
	return 0;
}
