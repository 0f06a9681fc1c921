/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity of the client and the address of the API server, read from files with any contents.
 * The first byte chooses the file (kubeconfig, token, service account). Accepted files lead to
 * requests. The path and the header lines of a request must contain no line break, with which a
 * file could add a header, and each header line must be shorter than 64 KiB. The server's answers
 * are bytes of the input, too.
 * Fuzzes: lib/kube/config.c, lib/kube/client.c, lib/kube/credentials.c
 */
#include "lib/kube/kube_private.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the HTTP client below the kube ---- */

static struct {
	struct http_request request; /* the last request that was sent */
	unsigned n_sent;
	bool refuses;
} http;

static int client_new(struct loop *l, const struct http_client_config *c, struct http_client **ret)
{
	(void)l;
	check(c->address && *c->address && c->port && c->tls_name &&
	      !strpbrk(c->tls_name, "\r\n "));
	*ret = NULL;
	return 0;
}

static struct http_client *client_free(struct http_client *h)
{
	(void)h;
	return NULL;
}

static void client_set_tls(struct http_client *h, struct tls *t)
{
	(void)h;
	(void)t;
}

static int request_sent(struct http_client *h, const struct http_request *r, struct http_call **ret)
{
	(void)h;
	check(r->path[0] == '/' && !strpbrk(r->path, "\r\n"));
	for (const char *const *line = r->headers; *line; line++)
		check(!strpbrk(*line, "\r\n") && strlen(*line) < 64 << 10);
	http.request = *r;
	http.request.headers = NULL;
	http.n_sent++;
	*ret = NULL;
	return http.refuses ? -ENOBUFS : 0;
}

/* Only a watch cancels requests or calls http_call_idle_ns(), and this kube has no watch. */
static const struct kube_http_ops http_ops = {
	.client_new = client_new,
	.client_free = client_free,
	.client_set_tls = client_set_tls,
	.send = request_sent,
};

/* ---- files of the input ---- */

struct file {
	int fd;
	char path[32];
};

static void file_make(struct file *f, const void *data, size_t n)
{
	f->fd = memfd_create("fuzz", MFD_CLOEXEC);
	check(f->fd >= 0 && fd_write_all(f->fd, data, n) == 0);
	snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
}

static void check_config(const struct kube_config *c)
{
	check(c->address && *c->address && c->port && c->tls_name && *c->tls_name &&
	      c->default_namespace);
	check(!c->token || (*c->token && !strpbrk(c->token, "\r\n")));
	check(!c->path_prefix || c->path_prefix[0] == '/');
	check(!c->insecure || (!c->ca_pem && !c->ca_file));
	check(!(c->cert_pem || c->cert_file) == !(c->key_pem || c->key_file));
}

/* ---- requests ---- */

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	unsigned *n = arg;

	++*n;
	check(status / 100 == 2 ? !error : error != NULL);
	check(!body || json_is_object(body) || json_is_array(body));
}

static void stream_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	(void)status;
	(void)body;
	(void)n;
	(void)error;
	(void)arg;
}

static struct loop *loop; /* does not run */

static void use(const struct kube_config *c, const uint8_t *answer, size_t n)
{
	static const int statuses[] = {0, 200, 201, 401, 403, 404, 500};
	const struct kube_stream s = {.path = "/api", .accept = "a/b", .on_done = stream_done};
	_cleanup_json_ json_t *body = json_object();
	struct kube_times times = kube_times_default;
	struct field_error e = {0};
	struct http_call *call;
	unsigned n_answered = 0;
	struct kube *k;

	if (kube_new_over(&http_ops, loop, c, "fuzz", &k, &e) < 0) {
		check(e.path[0] && e.reason[0]);
		return;
	}
	times.token_max_age_ns = times.ca_poll_ns = 0;
	kube_set_times(k, &times);
	check(kube_stream(k, &s, &call) == 0);
	kube_look_at_ca(k);
	check(kube_request(k, "PATCH", "/x", NULL, body, answered, &n_answered) == 0);
	/* after a 401, the request is sent once more */
	for (size_t i = 0; n && i < 2 && n_answered == 0; i++) {
		const struct http_request r = http.request;
		int status = statuses[answer[0] % ARRAY_SIZE(statuses)];

		r.on_done(status, (const char *)answer + 1, n - 1, status ? NULL : "away", r.arg);
	}
	check(n == 0 || n_answered == 1);
	http.refuses = true;
	check(kube_request(k, "GET", "/x", NULL, NULL, answered, &n_answered) < 0);
	http.refuses = false;
	kube_free(k);
}

static void kubeconfig(const uint8_t *data, size_t n)
{
	struct field_error e = {0};
	struct kube_config c;
	struct file f;

	file_make(&f, data, n);
	if (kube_config_file(f.path, NULL, &c, &e) == 0) {
		check_config(&c);
		use(&c, data, n);
		kube_config_done(&c);
	} else {
		check(e.path[0] && e.reason[0]);
	}
	if (kube_config_file(f.path, "b", &c, NULL) == 0) {
		check_config(&c);
		kube_config_done(&c);
	}
	close(f.fd);
}

static void token(const uint8_t *data, size_t n)
{
	struct file t;
	struct kube_config c = {.address = "a", .tls_name = "b", .port = 1, .token_file = t.path};

	file_make(&t, data, n);
	c.plain_http = n && data[0] & 1;
	c.insecure = true;
	if (n && data[0] & 2)
		c.ca_file = t.path;
	use(&c, data, n);
	close(t.fd);
}

/*
 * data: "port\0host", which the kubelet gives to a pod as variables; the other files are those of
 * its service account.
 */
static void in_cluster(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *port = xstrndup((const char *)data, n);
	_cleanup_free_ char *host =
		strlen(port) < n
			? xstrndup((const char *)data + strlen(port) + 1, n - strlen(port) - 1)
			: NULL;
	struct field_error e = {0};
	struct kube_config c;

	setenv("KUBERNETES_SERVICE_PORT", port, 1);
	if (host)
		setenv("KUBERNETES_SERVICE_HOST", host, 1);
	else
		unsetenv("KUBERNETES_SERVICE_HOST");
	if (kube_config_in_cluster_at("/dev", &c, &e) == 0)
		abort(); /* /dev has no file named token, so this must fail */
	check(e.path[0] && e.reason[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0)
		return 0;
	check(loop || loop_new(&loop) == 0);
	if (data[0] % 8 == 0)
		token(data + 1, n - 1);
	else if (data[0] % 8 == 1)
		in_cluster(data + 1, n - 1);
	else
		kubeconfig(data + 1, n - 1);
	return 0;
}
