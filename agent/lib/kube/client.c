// SPDX-License-Identifier: Apache-2.0
/*
 * The connection to one API server, and single requests. credentials.c reads the token, the CA and
 * the client certificate again and again, because their files change.
 */
#include <stdlib.h>
#include <utlist.h>

#include "lib/kube/kube_private.h"

#define MAX_ANSWER_BYTES (64 << 20) /* bytes of one answer; a larger one is an error */
/* limit of the memory of one watch's objects: tenants create targets, and an agent has 1 GiB */
#define MAX_KIND_BYTES	 (128 << 20)
#define REQUEST_NS	 (30 * NSEC_PER_SEC)
#define CA_LOOK_AGAIN_NS (5 * NSEC_PER_SEC)

/* values of client-go: tools/cache/reflector.go, transport/token_source.go, July 2026 */
const struct kube_times kube_times_default = {
	.backoff_first_ns = 800 * NSEC_PER_MSEC,
	.backoff_max_ns = 30 * NSEC_PER_SEC,
	.backoff_reset_ns = 120 * NSEC_PER_SEC,
	.hurry_ns = NSEC_PER_SEC,
	.slow_ns = 10 * NSEC_PER_SEC,
	.short_watch_ns = NSEC_PER_SEC,
	.watchdog_ns = 5 * NSEC_PER_SEC,
	.probe_ns = 90 * NSEC_PER_SEC,
	.silence_slack_ns = 30 * NSEC_PER_SEC,
	.list_head_ns = 75 * NSEC_PER_SEC,
	.watch_head_ns = 75 * NSEC_PER_SEC,
	.token_max_age_ns = 60 * NSEC_PER_SEC,
	.ca_poll_ns = 60 * NSEC_PER_SEC,
	.room_again_ns = 300 * NSEC_PER_SEC,
	.watch_timeout_s = 300,
	.page_limit = 500,
	.max_object_bytes = 16 << 20,
	.max_kind_bytes = MAX_KIND_BYTES,
};

struct client_request {
	struct kube *kube;
	struct http_call *call;
	char *method, *path, *content_type, *body;
	struct kube_fence *fence; /* NULL: the request is always sent */
	bool second;		  /* this is the second try, after an answer 401 */
	kube_done_fn *fn;
	void *arg;
	struct client_request *prev, *next;
};

struct kube {
	struct kube_base base;
	struct loop *loop;
	struct kube_config config;
	struct kube_times times;
	const struct kube_http_ops *http_ops;
	struct http_client *http;
	struct kube_token token;
	uint64_t ca_read_ns, tls_hash;
	struct field_error tls_error; /* the error that was reported last; path "": none */
	struct timer ca_timer;
	struct client_request *requests;
	struct kube_listener *listeners;
};

void kube_reread_token(struct kube *k)
{
	kube_token_read(&k->token, k->config.token_file);
}

/* ---- TLS ---- */

static void reload_tls(struct kube *k)
{
	struct field_error e = {0};
	struct tls *t;
	int r;

	k->ca_read_ns = now_mono_ns();
	r = kube_load_tls(&k->config, k->tls_hash, &k->tls_hash, &t, &e);
	kube_tell_credentials(&k->tls_error, r < 0 && r != -EALREADY ? &e : NULL);
	if (r == -EALREADY)
		return;
	if (r < 0) { /* the last usable TLS material stays in use */
		counter_add(counter("kube_credentials_total", "reason", "ca_unusable"), 1);
		return;
	}
	k->http_ops->client_set_tls(k->http, t);
	tls_unref(t);
	counter_add(counter("kube_credentials_total", "reason", "ca_rotated"), 1);
}

static void poll_ca(void *arg)
{
	struct kube *k = arg;

	reload_tls(k);
	timer_set(k->loop, &k->ca_timer, k->times.ca_poll_ns, poll_ca, k);
}

void kube_look_at_ca(struct kube *k)
{
	uint64_t again_ns = MIN(CA_LOOK_AGAIN_NS, k->times.ca_poll_ns);

	if (!k->config.plain_http && now_mono_ns() - k->ca_read_ns > again_ns)
		reload_tls(k);
}

/* ---- watches that wait until the server answers again ---- */

void kube_listen(struct kube *k, struct kube_listener *l)
{
	DL_APPEND(k->listeners, l);
}

void kube_unlisten(struct kube *k, struct kube_listener *l)
{
	DL_DELETE(k->listeners, l);
}

void kube_server_works(struct kube *k)
{
	struct kube_listener *l;

	DL_FOREACH (k->listeners, l)
		l->fn(l->arg);
}

/* ---- sending ---- */

/* The lines of a request's head (up to 8). owned: those of them that must be freed (up to 4). */
struct head_lines {
	const char *line[8];
	char *owned[4];
	unsigned n, n_owned;
};

static void head_lines_done(struct head_lines *h)
{
	for (unsigned i = 0; i < h->n_owned; i++)
		free(h->owned[i]);
}

static void add_line(struct head_lines *h, const char *name, const char *value)
{
	char *line = xasprintf("%s: %s", name, value);

	h->owned[h->n_owned++] = line;
	h->line[h->n++] = line;
}

static void common_lines(struct kube *k, struct head_lines *h, const char *accept)
{
	kube_token_refresh(&k->token, k->config.token_file, k->times.token_max_age_ns);
	add_line(h, "Accept", accept);
	if (k->token.text) {
		_cleanup_free_ char *bearer = xasprintf("Bearer %s", k->token.text);

		add_line(h, "Authorization", bearer);
	}
}

static char *full_path(const struct kube *k, const char *path)
{
	return xasprintf("%s%s", k->config.path_prefix ?: "", path);
}

int kube_stream(struct kube *k, const struct kube_stream *s, struct http_call **ret)
{
	_cleanup_(head_lines_done) struct head_lines h = {0};
	_cleanup_free_ char *path = full_path(k, s->path);
	struct http_request r = {
		.method = "GET",
		.path = path,
		.headers = h.line,
		.timeout_ns = s->timeout_ns,
		.on_head = s->on_head,
		.on_data = s->on_data,
		.on_done = s->on_done,
		.arg = s->arg,
	};

	common_lines(k, &h, s->accept);
	return k->http_ops->send(k->http, &r, ret);
}

void kube_stream_cancel(struct kube *k, struct http_call **call)
{
	if (*call)
		k->http_ops->cancel(TAKE_PTR(*call));
}

uint64_t kube_stream_idle_ns(const struct kube *k, const struct http_call *call)
{
	return k->http_ops->call_idle_ns(call);
}

static void request_free(struct client_request *q)
{
	DL_DELETE(q->kube->requests, q);
	free(q->method);
	free(q->path);
	free(q->content_type);
	free(q->body);
	kube_fence_unref(q->fence);
	free(q);
}

static int request_send(struct client_request *q);

static void request_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct client_request *q = arg;
	_cleanup_json_ json_t *json = NULL;
	_cleanup_free_ char *text = NULL;
	kube_done_fn *fn = q->fn;
	void *fn_arg = q->arg;

	q->call = NULL;
	if (status == 401 && !q->second) {
		q->second = true;
		kube_reread_token(q->kube);
		if (request_send(q) == 0)
			return;
	}
	if (status == 0)
		kube_look_at_ca(q->kube);
	else if (status / 100 == 2)
		kube_server_works(q->kube);
	if (n) /* JSON_ALLOW_NUL as in kube_watch_parse() */
		json = json_loadb(body, n, JSON_ALLOW_NUL, NULL);
	if (error)
		text = xstrdup(error);
	else if (status / 100 != 2)
		text = kube_status_text(status, json);
	if (!text && n && !json) {
		text = xstrdup("the answer is no JSON");
		status = 0;
	}
	request_free(q);
	if (fn)
		fn(status, json, text, fn_arg);
}

static bool may_send(void *arg)
{
	const struct client_request *q = arg;

	return !q->fence || kube_fence_holds(q->fence);
}

static int request_send(struct client_request *q)
{
	_cleanup_(head_lines_done) struct head_lines h = {0};
	struct http_request r = {
		.method = q->method,
		.path = q->path,
		.headers = h.line,
		.body = q->body,
		.body_bytes = q->body ? strlen(q->body) : 0,
		.timeout_ns = REQUEST_NS,
		.max_body_bytes = MAX_ANSWER_BYTES,
		.may_send = may_send,
		.on_done = request_done,
		.arg = q,
	};

	common_lines(q->kube, &h, "application/json");
	if (q->body)
		add_line(&h, "Content-Type", q->content_type);
	return q->kube->http_ops->send(q->kube->http, &r, &q->call);
}

static int client_request_within(struct kube *k, struct kube_fence *fence, const char *method,
				 const char *path, const char *content_type, const json_t *body,
				 kube_done_fn *fn, void *arg)
{
	struct client_request *q = xcalloc(1, sizeof(*q));
	int r;

	q->kube = k;
	q->method = xstrdup(method);
	q->path = full_path(k, path);
	q->content_type = xstrdup(content_type ?: "application/json");
	q->fence = fence ? kube_fence_ref(fence) : NULL;
	q->fn = fn;
	q->arg = arg;
	DL_APPEND(k->requests, q);
	if (body)
		q->body = json_dumps(body, JSON_COMPACT);
	r = body && !q->body ? -EINVAL : request_send(q);
	if (r < 0)
		request_free(q);
	return r;
}

static int client_request(struct kube *k, const char *method, const char *path,
			  const char *content_type, const json_t *body, kube_done_fn *fn, void *arg)
{
	return client_request_within(k, NULL, method, path, content_type, body, fn, arg);
}

/* ---- clients ---- */

static void copy_config(struct kube_config *to, const struct kube_config *from)
{
	*to = *from;
	to->address = xstrdup(from->address);
	to->tls_name = xstrdup(from->tls_name);
	to->ca_pem = xstrdup(from->ca_pem);
	to->ca_file = xstrdup(from->ca_file);
	to->cert_pem = xstrdup(from->cert_pem);
	to->key_pem = xstrdup(from->key_pem);
	to->cert_file = xstrdup(from->cert_file);
	to->key_file = xstrdup(from->key_file);
	to->token = xstrdup(from->token);
	to->token_file = xstrdup(from->token_file);
	to->default_namespace = xstrdup(from->default_namespace);
	to->path_prefix = xstrdup(from->path_prefix);
}

static int connect_client(struct kube *k, const char *user_agent, struct field_error *reterr)
{
	struct http_client_config c = {
		.address = k->config.address,
		.port = k->config.port,
		.tls_name = k->config.tls_name,
		.user_agent = user_agent,
		.http2 = true,
	};
	struct tls *t = NULL;
	int r = 0;

	if (!k->config.plain_http) {
		r = kube_load_tls(&k->config, 0, &k->tls_hash, &t, reterr);
		k->ca_read_ns = now_mono_ns();
	}
	if (r < 0)
		return r;
	c.tls = t;
	r = k->http_ops->client_new(k->loop, &c, &k->http);
	tls_unref(t);
	if (r < 0)
		field_error_set(reterr, "server", "address, port or host is unusable");
	return r;
}

static const struct kube_ops client_ops = {
	.request = client_request,
	.request_within = client_request_within,
	.watch_new = kube_client_watch_new,
	.watch_free = kube_client_watch_free,
	.watch_get = kube_client_watch_get,
	.watch_each = kube_client_watch_each,
	.watch_synced = kube_client_watch_synced,
	.watch_left_out = kube_client_watch_left_out,
	.watch_each_left_out = kube_client_watch_each_left_out,
};

static const struct kube_http_ops http_ops = {
	.client_new = http_client_new,
	.client_free = http_client_free,
	.client_set_tls = http_client_set_tls,
	.send = http_send,
	.cancel = http_cancel,
	.call_idle_ns = http_call_idle_ns,
};

int kube_new_over(const struct kube_http_ops *http, struct loop *l, const struct kube_config *c,
		  const char *user_agent, struct kube **ret, struct field_error *reterr)
{
	struct kube *k = xcalloc(1, sizeof(*k));
	int r;

	k->base.ops = &client_ops;
	k->http_ops = http;
	k->loop = l;
	k->times = kube_times_default;
	copy_config(&k->config, c);
	k->token.text = xstrdup(c->token);
	r = connect_client(k, user_agent, reterr);
	if (r < 0) {
		kube_free(k);
		return r;
	}
	if (!c->plain_http)
		timer_set(l, &k->ca_timer, k->times.ca_poll_ns, poll_ca, k);
	*ret = k;
	return 0;
}

int kube_new(struct loop *l, const struct kube_config *c, const char *user_agent, struct kube **ret,
	     struct field_error *reterr)
{
	return kube_new_over(&http_ops, l, c, user_agent, ret, reterr);
}

struct kube *kube_free(struct kube *k)
{
	if (!k)
		return NULL;
	timer_cancel(&k->ca_timer);
	while (k->requests)
		request_free(k->requests);
	k->http_ops->client_free(k->http);
	kube_config_done(&k->config);
	free(k->token.text);
	free(k);
	return NULL;
}

void kube_set_times(struct kube *k, const struct kube_times *t)
{
	k->times = *t;
	if (k->ca_timer.impl)
		timer_set(k->loop, &k->ca_timer, t->ca_poll_ns, poll_ca, k);
}

const struct kube_times *kube_get_times(const struct kube *k)
{
	return &k->times;
}

struct loop *kube_loop(struct kube *k)
{
	return k->loop;
}
