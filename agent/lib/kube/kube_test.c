// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of the server's address, the client's identity, credentials that change, single requests,
 * and decoders.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "lib/kube/kube_private.h"
#include "lib/loop/testserver.h"

static struct test_ca ca, new_ca;
static struct test_cert cert, new_cert, client_cert;
static char dir[TESTDIR_BYTES];

static void write_file(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
}

static void remove_file(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	unlink(path);
}

static char *base64(const char *text)
{
	char *out = xmalloc(strlen(text) * 4 / 3 + 8);

	EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)strlen(text));
	return out;
}

static void assert_text(const char *text, const char *part)
{
	if (!text || !strstr(text, part))
		fail_msg("\"%s\" does not contain \"%s\"", text ?: "(null)", part);
}

/* ---- configuration ---- */

static void in_cluster_49(void **state)
{
	struct kube_config c = {0};
	struct field_error e = {0};

	(void)state;
	unsetenv("KUBERNETES_SERVICE_HOST");
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), -ENOENT);
	setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
	setenv("KUBERNETES_SERVICE_PORT", "443", 1);
	remove_file("token");
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), -EINVAL);
	assert_text(e.reason, "service account token");
	write_file("token", "t");
	write_file("namespace", "podflame-system\n");
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), 0);
	assert_string_equal(c.address, "fd00::1");
	assert_int_equal(c.port, 443);
	/* tls_name is not the IPv6 address, because the certificate may lack it */
	assert_string_equal(c.tls_name, "kubernetes.default.svc");
	assert_string_equal(c.default_namespace, "podflame-system");
	assert_text(c.ca_file, "/ca.crt");
	kube_config_done(&c);
	/* a provider's gateway may know the cluster only by the name in KUBERNETES_SERVICE_HOST */
	setenv("KUBERNETES_SERVICE_HOST", "api.shoot.example.com", 1);
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), 0);
	assert_string_equal(c.address, "api.shoot.example.com");
	assert_string_equal(c.tls_name, "api.shoot.example.com");
	kube_config_done(&c);
	setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), 0);
	assert_string_equal(c.tls_name, "kubernetes.default.svc");
	kube_config_done(&c);
	setenv("KUBERNETES_SERVICE_PORT", "tcp://10.0.0.1:443", 1);
	assert_int_equal(kube_config_in_cluster_at(dir, &c, &e), -EINVAL);
	assert_string_equal(e.path, "KUBERNETES_SERVICE_PORT");
}

static int read_config(const char *cluster, const char *user, struct kube_config *c,
		       struct field_error *e)
{
	_cleanup_free_ char *path = xasprintf("%s/config", dir);
	_cleanup_free_ char *text =
		xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\n"
			  "clusters: [{name: other, cluster: {}}, {name: k, cluster: {%s}}]\n"
			  "users: [{name: u, user: {%s}}]\n"
			  "contexts: [{name: x, context: {cluster: k, user: u, namespace: app}}]\n",
			  cluster, user);

	write_file("config", text);
	*e = (struct field_error){0};
	return kube_config_file(path, NULL, c, e);
}

static void kubeconfig_inline(void **state)
{
	_cleanup_free_ char *ca64 = base64(ca.pem), *cert64 = base64(client_cert.cert_pem),
			    *key64 = base64(client_cert.key_pem);
	_cleanup_free_ char *cluster =
		xasprintf("server: 'https://10.0.0.1:6443', tls-server-name: api, "
			  "certificate-authority-data: %s",
			  ca64);
	_cleanup_free_ char *user =
		xasprintf("client-certificate-data: %s, client-key-data: %s", cert64, key64);
	struct kube_config c = {0};
	struct field_error e;

	(void)state;
	assert_int_equal(read_config(cluster, user, &c, &e), 0);
	assert_string_equal(c.address, "10.0.0.1");
	assert_int_equal(c.port, 6443);
	assert_string_equal(c.tls_name, "api");
	assert_string_equal(c.ca_pem, ca.pem);
	assert_string_equal(c.cert_pem, client_cert.cert_pem);
	assert_string_equal(c.key_pem, client_cert.key_pem);
	assert_string_equal(c.default_namespace, "app");
	kube_config_done(&c);
}

static void kubeconfig_files_are_relative_to_it(void **state)
{
	struct kube_config c = {0};
	struct field_error e;
	_cleanup_free_ char *want = xasprintf("%s/ca.crt", dir);

	(void)state;
	write_file("ca.crt", ca.pem);
	write_file("token", "t");
	assert_int_equal(
		read_config("server: 'https://[::1]/k8s/c-1/', certificate-authority: ca.crt",
			    "tokenFile: token", &c, &e),
		0);
	assert_string_equal(c.address, "::1");
	assert_string_equal(c.tls_name, "::1");
	assert_int_equal(c.port, 443);
	assert_string_equal(c.path_prefix, "/k8s/c-1");
	assert_string_equal(c.ca_file, want);
	kube_config_done(&c);
}

static void kubeconfig_errors_name_the_field(void **state)
{
	static const struct {
		const char *cluster, *user, *path, *reason;
	} table[] = {
		{"", "", "clusters[1].cluster.server", "missing"},
		{"server: 5", "", "clusters[1].cluster.server", "no string"},
		{"server: 'ftp://x'", "", "clusters[1].cluster.server", "https://"},
		{"server: 'https://x:0'", "", "clusters[1].cluster.server", "port"},
		{"server: 'https://x:y'", "", "clusters[1].cluster.server", "port"},
		{"server: 'https://u@x'", "", "clusters[1].cluster.server", "user name"},
		{"server: 'https://[::1'", "", "clusters[1].cluster.server", "IPv6"},
		{"server: 'https://[hub]'", "", "clusters[1].cluster.server", "IPv6"},
		{"server: 'https://[fe80::1%eth0]'", "", "clusters[1].cluster.server", "IPv6"},
		{"server: 'https://fd00::1:6443'", "", "clusters[1].cluster.server", "brackets"},
		{"server: 'https://x/?a'", "", "clusters[1].cluster.server", "query"},
		{"server: \"https://x/\\r\\na\"", "", "clusters[1].cluster.server", "blank"},
		{"server: 'https://x', proxy-url: 'http://p'", "", "clusters[1].cluster.proxy-url",
		 "not supported"},
		{"server: 'https://x', certificate-authority: gone.crt", "",
		 "clusters[1].cluster.certificate-authority", "/gone.crt: No such file"},
		{"server: 'https://x', certificate-authority-data: '***'", "",
		 "clusters[1].cluster.certificate-authority-data", "base64"},
		{"server: 'https://x', insecure-skip-tls-verify: maybe", "",
		 "clusters[1].cluster.insecure-skip-tls-verify", "neither true nor false"},
		{"server: 'https://x'", "exec: {command: aws}", "users[0].user.exec",
		 "not supported"},
		{"server: 'https://x'", "auth-provider: {name: gcp}", "users[0].user.auth-provider",
		 "no longer"},
		{"server: 'https://x'", "username: a, password: b", "users[0].user.username",
		 "no longer"},
		{"server: 'https://x'", "client-certificate-data: YQ==", "users[0].user.client-key",
		 "missing"},
		{"server: 'https://x'", "tokenFile: gone", "users[0].user.tokenFile",
		 "/gone: No such file"},
	};
	struct kube_config c = {0};
	struct field_error e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_free_ char *path = xasprintf("%s/config: %s", dir, table[i].path);

		assert_int_equal(read_config(table[i].cluster, table[i].user, &c, &e), -EINVAL);
		assert_string_equal(e.path, path);
		assert_text(e.reason, table[i].reason);
		assert_null(c.address);
	}
}

static void kubeconfig_unknown_names_and_files(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/config", dir);
	struct kube_config c = {0};
	struct field_error e = {0};
	char want[256];

	(void)state;
	assert_int_equal(kube_config_file("/nonexistent/config", NULL, &c, &e), -ENOENT);
	assert_string_equal(e.path, "/nonexistent/config");
	assert_int_equal(read_config("server: 'https://x'", "", &c, &e), 0);
	kube_config_done(&c);
	assert_int_equal(kube_config_file(path, "wrong", &c, &e), -EINVAL);
	assert_text(e.reason, "no entry named \"wrong\"");
	write_file("config", "clusters: [");
	assert_int_equal(kube_config_file(path, NULL, &c, &e), -EINVAL);
	snprintf(want, sizeof(want), "%s: 2:1", path);
	assert_string_equal(e.path, want);
	write_file("config", "a: b");
	assert_int_equal(kube_config_file(path, NULL, &c, &e), -EINVAL);
	snprintf(want, sizeof(want), "%s: current-context", path);
	assert_string_equal(e.path, want);
	setenv("KUBECONFIG", "/a:/b", 1);
	assert_int_equal(kube_config_file(NULL, NULL, &c, &e), -EINVAL);
	assert_string_equal(e.path, "KUBECONFIG");
	unsetenv("KUBECONFIG");
}

/* ---- a client, and a server that accepts one token ---- */

struct fixture {
	struct loop *loop;
	struct kube *kube;
	struct test_server *ts;
	struct timer timer;
	const char *good_token; /* guarded by ts->lock */
	int n_refused;		/* guarded by ts->lock */
	int status, n_done;
	char *error, *name;
	struct buf log;
};

/* The first watch ends when the test has set the flag. */
static void serve_watch(struct ts_conn *c, const struct ts_request *r)
{
	ts_stream(c);
	if (r->number < 2) {
		ts_await_flag(c, 1);
		ts_chunk(c, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\","
			    "\"resourceVersion\":\"2\"}}}\n");
		ts_last_chunk(c);
	} else {
		ts_chunk(c, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\","
			    "\"resourceVersion\":\"3\"}}}\n");
		ts_stall(c);
	}
}

static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct fixture *f = arg;
	_cleanup_free_ char *want = NULL;

	if (strstr(r->line, "/held") && r->number == 0)
		ts_await_flag(c, 1); /* the request's token expires while the server holds it */
	pthread_mutex_lock(&f->ts->lock);
	want = xasprintf("Authorization: Bearer %s\r\n", f->good_token);
	f->n_refused += !strstr(r->head, want);
	pthread_mutex_unlock(&f->ts->lock);
	if (!strstr(r->head, want))
		ts_reply(c, 401, NULL, "{\"kind\":\"Status\",\"message\":\"Unauthorized\"}");
	else if (strstr(r->line, "watch=true"))
		serve_watch(c, r);
	else if (strstr(r->line, "/watched"))
		ts_reply(c, 200, NULL,
			 "{\"kind\":\"XList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]"
			 "}");
	else if (strstr(r->line, "/closed"))
		c->over = true;
	else if (strstr(r->line, "/html"))
		ts_reply(c, 200, NULL, "<html>");
	else if (strstr(r->line, "/nul"))
		ts_reply(c, 200, NULL, "{\"annotation\":\"a\\u0000b\",\"name\":\"nul\"}");
	else if (strstr(r->line, "/forbidden"))
		ts_reply(c, 403, NULL, "{\"kind\":\"Status\",\"message\":\"no right\"}");
	else
		ts_reply(c, 200, NULL, "{\"name\":\"answer\"}");
}

static void set_good_token(struct fixture *f, const char *token)
{
	pthread_mutex_lock(&f->ts->lock);
	f->good_token = token;
	pthread_mutex_unlock(&f->ts->lock);
}

static struct fixture *start(const struct test_cert *server_cert, const struct kube_times *times)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = server_cert};
	_cleanup_free_ char *ca_file = xasprintf("%s/ca.crt", dir);
	_cleanup_free_ char *token_file = xasprintf("%s/token", dir);
	struct kube_config c = {.address = (char *)"127.0.0.1",
				.tls_name = (char *)"kubernetes.default.svc",
				.ca_file = ca_file,
				.token_file = token_file,
				.plain_http = !server_cert};
	struct field_error e = {0};

	write_file("ca.crt", ca.pem);
	write_file("token", "one\n");
	f->good_token = "one";
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	c.port = f->ts->port;
	assert_int_equal(kube_new(f->loop, &c, "t", &f->kube, &e), 0);
	if (times)
		kube_set_times(f->kube, times);
	return f;
}

static void finish(struct fixture *f)
{
	timer_cancel(&f->timer);
	kube_free(f->kube);
	ts_stop(f->ts);
	loop_free(f->loop);
	free(f->error);
	free(f->name);
	buf_done(&f->log);
	free(f);
}

static void done(int status, const json_t *body, const char *error, void *arg)
{
	struct fixture *f = arg;

	f->n_done++;
	f->status = status;
	free(f->error);
	f->error = xstrdup(error);
	free(f->name);
	f->name = xstrdup(json_str_at(body, "name", NULL));
	loop_stop(f->loop, 0);
}

static void ask(struct fixture *f, const char *method, const char *path, const json_t *body)
{
	f->n_done = 0;
	assert_int_equal(kube_request(f->kube, method, path, NULL, body, done, f), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->n_done, 1);
}

/* Sends a request to a server whose address in the kubeconfig is an IPv6 literal. */
static void ask_ipv6_server(const char *san, int want_status)
{
	struct fixture *f;
	struct test_cert v6_cert;
	struct ts_config tc = {.cert = &v6_cert, .ipv6 = true};
	_cleanup_free_ char *cluster = NULL, *host = NULL;
	struct kube_config c = {0};
	struct field_error e = {0};

	if (!ts_has_ipv6())
		skip();
	f = xcalloc(1, sizeof(*f));
	test_cert_init(&v6_cert, &ca, san);
	f->good_token = "t";
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	cluster =
		xasprintf("server: 'https://[::1]:%u', certificate-authority: ca.crt", f->ts->port);
	write_file("ca.crt", ca.pem);
	assert_int_equal(read_config(cluster, "token: t", &c, &e), 0);
	assert_int_equal(kube_new(f->loop, &c, "t", &f->kube, &e), 0);
	kube_config_done(&c);
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, want_status);
	if (want_status) {
		host = xasprintf("\r\nHost: [::1]:%u\r\n", f->ts->port);
		assert_text(ts_request_head(f->ts, 0), host);
		assert_string_equal(ts_sni(f->ts), "");
	} else {
		assert_text(f->error, "IP address mismatch");
	}
	finish(f);
	test_cert_done(&v6_cert);
}

static void kubeconfig_of_an_ipv6_literal_49(void **state)
{
	(void)state;
	ask_ipv6_server("IP:::1", 200);
}

static void kubeconfig_of_an_ipv6_literal_without_it_in_the_certificate_50(void **state)
{
	(void)state;
	ask_ipv6_server("IP:::2,DNS:localhost", 0);
}

static bool holds(void *arg)
{
	return *(const bool *)arg;
}

/* The fence falls while a request of it waits for its connection: its bytes are never sent. */
static void a_fence_that_falls_before_the_request_is_sent(void **state)
{
	struct fixture *f = start(&cert, NULL);
	bool stands = true;
	struct kube *fenced = kube_fenced_new(f->kube, holds, &stands);

	(void)state;
	assert_int_equal(kube_request(fenced, "PATCH", "/x", NULL, NULL, done, f), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->status, 200);
	assert_int_equal(kube_request(fenced, "PATCH", "/x", NULL, NULL, done, f), 0);
	stands = false;
	assert_int_equal(kube_request(fenced, "PATCH", "/x", NULL, NULL, done, f), -EPERM);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->status, 0);
	assert_int_equal(ts_n_requests(f->ts), 1);
	kube_fenced_free(fenced);
	finish(f);
}

/* The owner of a fence ends while a request of it waits: nobody may be asked any more. */
static void a_fence_whose_owner_has_ended(void **state)
{
	struct fixture *f = start(&cert, NULL);
	bool *stands = xmalloc(sizeof(*stands));
	struct kube *fenced = kube_fenced_new(f->kube, holds, stands);

	(void)state;
	*stands = true;
	assert_int_equal(kube_request(fenced, "PATCH", "/x", NULL, NULL, done, f), 0);
	kube_fenced_free(fenced);
	free(stands);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->status, 0);
	assert_int_equal(ts_n_requests(f->ts), 0);
	finish(f);
}

static void request_and_its_errors(void **state)
{
	struct fixture *f = start(&cert, NULL);
	_cleanup_json_ json_t *body = json_pack("{s:s}", "a", "b");
	_cleanup_free_ char *host = NULL;

	(void)state;
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	assert_string_equal(ts_sni(f->ts), "kubernetes.default.svc");
	/* the Host header has the server's address, not tls_name: a proxy may read it */
	host = xasprintf("\r\nHost: 127.0.0.1:%u\r\n", f->ts->port);
	assert_non_null(strstr(ts_request_head(f->ts, 0), host));
	assert_null(f->error);
	assert_string_equal(f->name, "answer");
	ask(f, "POST", "/x", body);
	assert_text(ts_request_head(f->ts, 1), "Content-Type: application/json");
	assert_string_equal(f->ts->requests[1].body, "{\"a\":\"b\"}");
	ask(f, "GET", "/forbidden", NULL);
	assert_int_equal(f->status, 403);
	assert_string_equal(f->error, "HTTP 403: no right");
	ask(f, "GET", "/html", NULL);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "no JSON");
	/*
	 * anybody who may annotate an object may write a text with NUL; the request must still
	 * succeed
	 */
	ask(f, "GET", "/nul", NULL);
	assert_int_equal(f->status, 200);
	assert_null(f->error);
	assert_string_equal(f->name, "nul");
	finish(f);
}

static void token_52_is_read_again_when_it_changes(void **state)
{
	struct fixture *f = start(&cert, NULL);

	(void)state;
	ask(f, "GET", "/x", NULL);
	write_file("token", "two");
	set_good_token(f, "two");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	assert_int_equal(ts_n_requests(f->ts), 2); /* no 401, so no request was repeated */
	finish(f);
}

static struct buf told;

static void note(const char *what, const char *error)
{
	buf_printf(&told, "%s: %s\n", what, error ? error : "well again");
}

static void token_53_missing_or_empty_for_a_moment(void **state)
{
	_cleanup_free_ char *want = xasprintf("token: %s/token: No such file or directory\n"
					      "token: %s/token: is empty\n"
					      "token: well again\n",
					      dir, dir);
	struct fixture *f = start(&cert, NULL);

	(void)state;
	kube_on_credentials(note);
	ask(f, "GET", "/x", NULL);
	remove_file("token");
	for (unsigned i = 0; i < 3; i++) {
		ask(f, "GET", "/x", NULL);
		assert_int_equal(f->status, 200);
	}
	write_file("token", "");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	write_file("token", "three");
	set_good_token(f, "three");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	assert_string_equal(told.data, want); /* each reason is reported once */
	kube_on_credentials(NULL);
	buf_done(&told);
	finish(f);
}

/* ---- a token that changes during requests and watches ---- */

static void rotate(struct fixture *f, const char *token)
{
	write_file("token", token);
	set_good_token(f, token);
	ts_set_flag(f->ts, 1);
}

static void note_upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct fixture *f = arg;

	(void)obj;
	(void)old;
	buf_printf(&f->log, "+%s ", key);
	if (streq(key, "b"))
		loop_stop(f->loop, 0);
}

static void note_state(const char *error, void *arg)
{
	struct fixture *f = arg;

	buf_printf(&f->log, "%s ", error ?: "ok");
}

/* Changes the token once the stream is open; then the stream ends. */
static void rotate_once_open(void *arg)
{
	struct fixture *f = arg;

	if (ts_n_requests(f->ts) == 2)
		rotate(f, "two");
	else
		timer_set(f->loop, &f->timer, NSEC_PER_MSEC, rotate_once_open, f);
}

static void token_52_rotates_during_a_watch(void **state)
{
	static const struct kube_watch_ops ops = {.upsert = note_upsert, .state = note_state};
	static const struct kube_watch_spec spec = {.path = "/watched"};
	struct fixture *f = start(&cert, NULL);
	struct kube_watch *w;

	(void)state;
	assert_int_equal(kube_watch_new(f->kube, &spec, &ops, f, &w), 0);
	rotate_once_open(f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_string_equal(f->log.data, "ok +a +b ");
	assert_int_equal(f->n_refused, 0);
	assert_text(ts_request_head(f->ts, 2), "Bearer two");
	kube_watch_free(w);
	finish(f);
}

static void rotate_now(void *arg)
{
	struct fixture *f = arg;

	if (ts_n_requests(f->ts) == 1)
		rotate(f, "two");
	else
		timer_set(f->loop, &f->timer, NSEC_PER_MSEC, rotate_now, f);
}

static void token_52_rotates_during_a_request(void **state)
{
	struct fixture *f = start(&cert, NULL);

	(void)state;
	rotate_now(f);
	ask(f, "GET", "/held", NULL);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->n_refused, 1);
	finish(f);
}

/*
 * Swaps the token as the kubelet does: token -> ..data/token, and ..data -> a directory, replaced
 * by rename.
 */
static void put_version(const char *version, const char *token)
{
	_cleanup_free_ char *folder = xasprintf("%s/%s", dir, version);
	_cleanup_free_ char *file = xasprintf("%s/token", version);
	_cleanup_free_ char *link = xasprintf("%s/..data_tmp", dir);
	_cleanup_free_ char *data = xasprintf("%s/..data", dir);

	assert_int_equal(mkdir(folder, 0700), 0);
	write_file(file, token);
	assert_int_equal(symlink(version, link), 0);
	assert_int_equal(rename(link, data), 0);
}

static void token_53_links_are_swapped(void **state)
{
	struct fixture *f = start(&cert, NULL);
	_cleanup_free_ char *token = xasprintf("%s/token", dir);

	(void)state;
	remove_file("token");
	put_version("..v1", "v1");
	assert_int_equal(symlink("..data/token", token), 0);
	set_good_token(f, "v1");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	/* if a program replaces the link without rename, the link is missing for a moment */
	remove_file("..data");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	put_version("..v2", "v2");
	set_good_token(f, "v2");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->n_refused, 0);
	remove_file("token");
	finish(f);
}

/*
 * The file's mtime and inode are the same, so the client does not see the change. A 401 makes it
 * read the file again.
 */
static void token_54_expired_is_read_again(void **state)
{
	struct fixture *f = start(&cert, NULL);
	_cleanup_free_ char *path = xasprintf("%s/token", dir);
	struct timespec times[2];
	struct stat st;
	int fd;

	(void)state;
	ask(f, "GET", "/x", NULL);
	assert_int_equal(stat(path, &st), 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, "two", 3), 3);
	close(fd);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	set_good_token(f, "two");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	assert_int_equal(f->n_refused, 1);
	assert_int_equal(ts_n_requests(f->ts), 3);
	finish(f);
}

static void token_54_401_is_tried_once_more(void **state)
{
	struct fixture *f = start(&cert, NULL);

	(void)state;
	set_good_token(f, "never");
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 401);
	assert_int_equal(ts_n_requests(f->ts), 2);
	finish(f);
}

static void token_56_sizes(void **state)
{
	static const size_t sizes[] = {900, 4000, 8000, 16000};
	struct fixture *f = start(&cert, NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_cleanup_free_ char *token = xcalloc(1, sizes[i] + 1);

		memset(token, 'a' + (int)i, sizes[i]);
		write_file("token", token);
		set_good_token(f, token);
		ask(f, "GET", "/x", NULL);
		assert_int_equal(f->status, 200);
		set_good_token(f, "");
	}
	finish(f);
}

static void go_on(void *arg)
{
	struct fixture *f = arg;

	loop_stop(f->loop, 0);
}

/*
 * Waits between two tries, while the loop does its other work, such as reading the CA again.
 * Without this wait, the test would send very many requests, and the test server keeps every
 * request in memory.
 */
static void pause_a_moment(struct fixture *f)
{
	timer_set(f->loop, &f->timer, 20 * NSEC_PER_MSEC, go_on, f);
	assert_int_equal(loop_run(f->loop), 0);
}

/* Sends requests until the answer has this status. */
static void ask_until(struct fixture *f, int status)
{
	uint64_t until_ns = now_mono_ns() + 20 * NSEC_PER_SEC;

	ask(f, "GET", "/x", NULL);
	while (f->status != status && now_mono_ns() < until_ns) {
		pause_a_moment(f);
		ask(f, "GET", "/x", NULL);
	}
	assert_int_equal(f->status, status);
}

static void ca_57_rotates(void **state)
{
	struct kube_times t = kube_times_default;
	_cleanup_free_ char *both = xasprintf("%s%s", ca.pem, new_ca.pem);
	struct fixture *f;

	(void)state;
	t.ca_poll_ns = 5 * NSEC_PER_MSEC;
	f = start(&cert, &t);
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 200);
	ts_set_cert(f->ts, &new_cert);
	ask(f, "GET", "/x", NULL);
	assert_int_equal(f->status, 0);
	assert_text(f->error, "certificate");
	write_file("ca.crt", both);
	ask_until(f, 200);
	write_file("ca.crt", new_ca.pem);
	ts_set_cert(f->ts, &cert); /* signed by the old CA */
	ask_until(f, 0);
	assert_text(f->error, "certificate");
	ts_set_cert(f->ts, &new_cert);
	ask_until(f, 200);
	finish(f);
}

static void ca_58_garbage_keeps_the_last_good_one(void **state)
{
	struct kube_times t = kube_times_default;
	struct counter *bad = counter("kube_credentials_total", "reason", "ca_unusable");
	uint64_t before = counter_get(bad), until_ns = now_mono_ns() + 20 * NSEC_PER_SEC;
	_cleanup_free_ char *want =
		xasprintf("certificate-authority: %s/ca.crt: holds no PEM certificate\n"
			  "certificate-authority: %s/ca.crt: No such file or directory\n"
			  "certificate-authority: well again\n",
			  dir, dir);
	struct fixture *f;

	(void)state;
	t.ca_poll_ns = 5 * NSEC_PER_MSEC;
	kube_on_credentials(note);
	f = start(&cert, &t);
	write_file("ca.crt", "garbage");
	while (counter_get(bad) < before + 3 && now_mono_ns() < until_ns) {
		ask(f, "GET", "/x", NULL);
		assert_int_equal(f->status, 200);
		pause_a_moment(f);
	}
	assert_true(counter_get(bad) >= before + 3);
	remove_file("ca.crt");
	before = counter_get(bad);
	while (counter_get(bad) < before + 2 && now_mono_ns() < until_ns)
		pause_a_moment(f);
	write_file("ca.crt", ca.pem);
	while (!strstr(told.data, "well again") && now_mono_ns() < until_ns)
		pause_a_moment(f);
	assert_string_equal(told.data, want); /* each reason is reported once */
	kube_on_credentials(NULL);
	buf_done(&told);
	finish(f);
}

/* A user may change the URL of a kubeconfig to plain HTTP, for a proxy, and leave its CA. */
static void plain_http_stays_plain_after_a_failure(void **state)
{
	struct fixture *f = start(NULL, NULL);

	(void)state;
	ask(f, "GET", "/closed", NULL);
	assert_int_equal(f->status, 0);
	ask(f, "GET", "/x", NULL);
	assert_null(f->error);
	assert_int_equal(f->status, 200);
	finish(f);
}

static void unusable_ca_is_an_error_at_start(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/ca.crt", dir);
	struct loop *l;
	struct kube *k = NULL;
	struct field_error e = {0};
	struct kube_config c = {.address = (char *)"127.0.0.1",
				.port = 1,
				.ca_file = (char *)"/nonexistent/ca.crt"};

	(void)state;
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(kube_new(l, &c, "t", &k, &e), -ENOENT);
	assert_string_equal(e.path, "certificate-authority");
	assert_text(e.reason, "/nonexistent/ca.crt");
	c.ca_file = NULL;
	c.ca_pem = (char *)"garbage";
	assert_int_equal(kube_new(l, &c, "t", &k, &e), -EINVAL);
	assert_string_equal(e.path, "certificate-authority");
	assert_string_equal(e.reason, "holds no PEM certificate");
	write_file("ca.crt", "");
	c.ca_file = path;
	assert_int_equal(kube_new(l, &c, "t", &k, &e), -EINVAL);
	assert_string_equal(e.path, "certificate-authority");
	assert_text(e.reason, "/ca.crt: holds no PEM certificate");
	c.ca_file = (char *)"/";
	assert_int_equal(kube_new(l, &c, "t", &k, &e), -EISDIR);
	assert_string_equal(e.reason, "/: Is a directory");
	c.ca_file = NULL;
	c.ca_pem = ca.pem;
	c.cert_file = path;
	c.key_pem = (char *)"garbage";
	assert_int_equal(kube_new(l, &c, "t", &k, &e), -EINVAL);
	assert_string_equal(e.path, "client-certificate");
	assert_text(e.reason, "/ca.crt: holds no PEM certificate");
	assert_null(k);
	loop_free(l);
}

/* ---- decoders: the result does not depend on where the bytes are cut ---- */

static bool collect(const char *text, size_t n, void *arg)
{
	buf_printf(arg, "[%.*s]", (int)n, text);
	return true;
}

static void lines_14_cut_at_every_byte(void **state)
{
	static const char text[] =
		"{\"a\":1}\n\r\n{\"b\":\"x\\n\"}\r\n\ntoo long, this one is\nlast\nopen";
	size_t n = strlen(text);

	(void)state;
	for (size_t cut = 0; cut <= n; cut++) {
		_cleanup_buf_ struct buf got = {0};
		struct lines l;

		kube_lines_init(&l, 16);
		assert_true(kube_lines_feed(&l, text, cut, collect, &got));
		assert_true(kube_lines_feed(&l, text + cut, n - cut, collect, &got));
		assert_string_equal(got.data, "[{\"a\":1}][{\"b\":\"x\\n\"}][last]");
		assert_int_equal(l.n_lost, 1);
		kube_lines_done(&l);
	}
}

static void list_14_cut_at_every_byte(void **state)
{
	static const char text[] = "{ \"kind\" : \"PodList\", \"x\":{\"items\":[9]}, \"items\" : [ "
				   "{\"a\":\"]}\\\"\"} , {\"b\":[{},[1]]},"
				   "{\"c\":\"much too long for this\"}, 7, null ],\n "
				   "\"metadata\":{\"continue\":\"\",\"items\":[]} }";
	size_t n = strlen(text);

	(void)state;
	for (size_t cut = 0; cut <= n; cut++) {
		_cleanup_buf_ struct buf got = {0};
		_cleanup_json_ json_t *j = NULL;
		struct list_split s;

		kube_list_split_init(&s, 20);
		assert_true(kube_list_split_feed(&s, text, cut, collect, &got));
		assert_true(kube_list_split_feed(&s, text + cut, n - cut, collect, &got));
		assert_string_equal(got.data, "[{\"a\":\"]}\\\"\"}][{\"b\":[{},[1]]}]");
		j = json_loads(s.skeleton.data, 0, NULL);
		assert_int_equal(json_array_size(json_at(j, "items")), 0);
		assert_int_equal(json_array_size(json_at(j, "x.items")), 1);
		assert_non_null(json_at(j, "metadata.continue"));
		kube_list_split_done(&s);
	}
}

static void backoff_grows_to_its_maximum(void **state)
{
	const struct kube_times *t = &kube_times_default;
	struct backoff b = {0};
	uint64_t base = t->backoff_first_ns;

	(void)state;
	for (int i = 0; i < 20; i++) {
		uint64_t ns = kube_backoff_next(&b, t);

		assert_in_range(ns, base, 2 * base);
		base = MIN(base * 2, t->backoff_max_ns);
	}
	b.last_used_ns -= t->backoff_reset_ns + 1;
	assert_in_range(kube_backoff_next(&b, t), t->backoff_first_ns, 2 * t->backoff_first_ns);
}

/* ---- 47: a server stops and starts again, with many agents ---- */

#define N_AGENTS 5000

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Returns the largest share of the (sorted) times that is within one window_ns. */
static double busiest(const uint64_t *at_ns, size_t n, uint64_t window_ns)
{
	size_t most = 0;

	for (size_t first = 0, last = 0; last < n; last++) {
		while (at_ns[last] - at_ns[first] >= window_ns)
			first++;
		most = MAX(most, last - first + 1);
	}
	return (double)most / (double)n;
}

/*
 * All agents lose the server at the same moment, and try until it works again. The test adds up the
 * delays and does not wait. The longest delays are 30 s plus a random part: if the tries are spread
 * evenly over 30 s, a thirtieth of the agents tries in each second.
 */
static void backoff_47_many_agents_spread(void **state)
{
	static const struct {
		uint64_t outage_ns, window_ns;
		double most;
	} table[] = {
		/* the server works again at once: tries spread over 0.8 s, so 1/8 in 0.1 s */
		{1, 100 * NSEC_PER_MSEC, 0.17},
		{10 * NSEC_PER_SEC, NSEC_PER_SEC, 0.25},  /* delays of 6.4 s to 12.8 s, mixed */
		{300 * NSEC_PER_SEC, NSEC_PER_SEC, 0.05}, /* delays of 30 s */
		{3600 * NSEC_PER_SEC, NSEC_PER_SEC, 0.05},
	};
	static uint64_t back_ns[N_AGENTS];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		double most;

		for (size_t a = 0; a < N_AGENTS; a++) {
			struct backoff b = {0};

			back_ns[a] = 0;
			while (back_ns[a] < table[i].outage_ns)
				back_ns[a] += kube_backoff_next(&b, &kube_times_default);
		}
		qsort(back_ns, N_AGENTS, sizeof(back_ns[0]), by_time);
		most = busiest(back_ns, N_AGENTS, table[i].window_ns);
		print_message("after %.0f s without a server %d agents come back within %.1f s, "
			      "%.1f %% of them in the busiest %.1f s\n",
			      (double)table[i].outage_ns / 1e9, N_AGENTS,
			      (double)(back_ns[N_AGENTS - 1] - back_ns[0]) / 1e9, most * 100,
			      (double)table[i].window_ns / 1e9);
		assert_true(most < table[i].most);
	}
}

static int make(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(testdir_make(dir), 0);
	test_ca_init(&ca, "ca");
	test_ca_init(&new_ca, "new ca");
	test_cert_init(&cert, &ca, "DNS:kubernetes.default.svc");
	test_cert_init(&new_cert, &new_ca, "DNS:kubernetes.default.svc");
	test_cert_init(&client_cert, &ca, "DNS:client");
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	testdir_remove(dir);
	test_ca_done(&ca);
	test_ca_done(&new_ca);
	test_cert_done(&cert);
	test_cert_done(&new_cert);
	test_cert_done(&client_cert);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_cluster_49),
		cmocka_unit_test(kubeconfig_inline),
		cmocka_unit_test(kubeconfig_files_are_relative_to_it),
		cmocka_unit_test(kubeconfig_errors_name_the_field),
		cmocka_unit_test(kubeconfig_unknown_names_and_files),
		cmocka_unit_test(kubeconfig_of_an_ipv6_literal_49),
		cmocka_unit_test(kubeconfig_of_an_ipv6_literal_without_it_in_the_certificate_50),
		cmocka_unit_test(request_and_its_errors),
		cmocka_unit_test(a_fence_that_falls_before_the_request_is_sent),
		cmocka_unit_test(a_fence_whose_owner_has_ended),
		cmocka_unit_test(token_52_is_read_again_when_it_changes),
		cmocka_unit_test(token_53_missing_or_empty_for_a_moment),
		cmocka_unit_test(token_52_rotates_during_a_watch),
		cmocka_unit_test(token_52_rotates_during_a_request),
		cmocka_unit_test(token_53_links_are_swapped),
		cmocka_unit_test(token_54_expired_is_read_again),
		cmocka_unit_test(token_54_401_is_tried_once_more),
		cmocka_unit_test(token_56_sizes),
		cmocka_unit_test(ca_57_rotates),
		cmocka_unit_test(ca_58_garbage_keeps_the_last_good_one),
		cmocka_unit_test(plain_http_stays_plain_after_a_failure),
		cmocka_unit_test(unusable_ca_is_an_error_at_start),
		cmocka_unit_test(lines_14_cut_at_every_byte),
		cmocka_unit_test(list_14_cut_at_every_byte),
		cmocka_unit_test(backoff_grows_to_its_maximum),
		cmocka_unit_test(backoff_47_many_agents_spread),
	};

	return cmocka_run_group_tests_name("kube", tests, make, unmake);
}
