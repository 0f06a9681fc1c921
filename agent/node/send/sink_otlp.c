/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OTLP sink: sends batches by POST to the hub or to any OpenTelemetry Collector. Each try uses
 * the bearer token and the CA that the files contain at that time. Everything runs on the loop
 * thread, except otlp_refresh(), which reads the files on the worker.
 */
#include "node/send/sink.h"

#include <fcntl.h>
#include <stdlib.h>

#define MAX_TOKEN_BYTES	   (64u << 10) /* bytes of the token file */
#define MAX_CA_BYTES	   (1u << 20)  /* bytes of the CA file */
#define MAX_ANSWER_BYTES   (64u << 10) /* bytes of one answer */
#define MAX_RETRY_AFTER_S  300	       /* seconds; a longer Retry-After counts as this */
#define REQUEST_TIMEOUT_NS (30 * NSEC_PER_SEC)

struct sink {
	struct loop *loop;
	struct http_client *client;
	struct http_call *call;
	bool https;
	char *host, *path, *ca_file, *token_file, *user_agent;
	uint16_t port;
	/*
	 * otlp_refresh() sets these on the worker. send uses them after that, never at the same
	 * time.
	 */
	char *token, *ca, *ca_in_use, *problem;
	uint64_t retry_after_ns;
	char error[1024];
	sink_done_fn *done;
	void *arg;
};

/* If the URL has no path that ends in OTLP_PATH, adds OTLP_PATH. */
static int parse_url(const char *text, struct sink *s, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};
	struct field_error e = {0};

	if (url_parse(text, &u, &e) < 0)
		return field_error_set(reterr, "url", "\"%.200s\" %s", text, e.reason);
	s->https = u.tls;
	s->port = u.port;
	s->host = TAKE_PTR(u.host);
	s->path = str_has_suffix(u.path, OTLP_PATH) ? xstrdup(u.path)
						    : xasprintf("%s" OTLP_PATH, u.path);
	return 0;
}

static void otlp_close(struct sink *s)
{
	http_client_free(s->client);
	free(s->host);
	free(s->path);
	free(s->ca_file);
	free(s->token_file);
	free(s->user_agent);
	free(s->token);
	free(s->ca);
	free(s->ca_in_use);
	free(s->problem);
	free(s);
}

static int otlp_open(struct loop *l, const struct send_config *c, struct sink **ret,
		     struct field_error *reterr)
{
	struct sink *s = xcalloc(1, sizeof(*s));
	struct http_client_config hc = {.user_agent = c->user_agent};
	int r;

	s->loop = l;
	s->user_agent = xstrdup(c->user_agent);
	s->ca_file = xstrdup(c->ca_file && *c->ca_file ? c->ca_file : NULL);
	s->token_file = xstrdup(c->token_file && *c->token_file ? c->token_file : NULL);
	r = parse_url(c->url, s, reterr);
	/* with https, use_ca() makes the client after it has read the CA */
	if (r == 0 && !s->https) {
		hc.address = s->host;
		hc.port = s->port;
		r = http_client_new(l, &hc, &s->client);
	}
	if (r < 0) {
		otlp_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

static char *read_text(struct sink *s, const char *file, size_t max_bytes)
{
	char *text = NULL;
	int r = file_read(AT_FDCWD, file, max_bytes, &text, NULL);

	if (r < 0) {
		free(s->problem);
		s->problem = xasprintf("%s: %s", file, file_error_text(r));
	}
	return text;
}

static void otlp_refresh(struct sink *s)
{
	char *old_token = s->token, *old_ca = s->ca;

	free(TAKE_PTR(s->problem));
	s->token = s->token_file ? read_text(s, s->token_file, MAX_TOKEN_BYTES) : NULL;
	s->ca = s->https && s->ca_file ? read_text(s, s->ca_file, MAX_CA_BYTES) : NULL;
	if (s->token) {
		s->token[strcspn(s->token, "\r\n")] = '\0';
		s->token[strspn(s->token, "\t !\"#$%&'()*+,-./0123456789:;<=>?@"
					  "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
					  "abcdefghijklmnopqrstuvwxyz{|}~")] = '\0';
	}
	free(old_token);
	free(old_ca);
}

/* Uses a new CA. It takes effect with the next connection. */
static int use_ca(struct sink *s)
{
	struct tls_config tc = {.ca_pem = s->ca, .ca_name = s->ca_file};
	struct field_error err = {0};
	struct tls *tls = NULL;
	int r;

	if (!s->https || (s->client && str_equal(s->ca, s->ca_in_use)))
		return 0;
	r = tls_new(&tc, false, &tls, &err);
	if (r < 0) {
		snprintf(s->error, sizeof(s->error), "%s: %s %s", s->ca_file ? s->ca_file : "CA",
			 err.path, err.reason);
		return r;
	}
	if (s->client) {
		http_client_set_tls(s->client, tls);
	} else {
		struct http_client_config hc = {.address = s->host,
						.port = s->port,
						.tls = tls,
						.user_agent = s->user_agent};

		r = http_client_new(s->loop, &hc, &s->client);
		if (r < 0)
			snprintf(s->error, sizeof(s->error), "http client: %s", strerror(-r));
	}
	tls_unref(tls);
	free(s->ca_in_use);
	s->ca_in_use = xstrdup(s->ca);
	return r;
}

static void answer(struct sink *s, enum sink_result result, uint64_t n_rejected)
{
	struct sink_answer a = {result, s->retry_after_ns, n_rejected,
				result == SINK_STORED && !n_rejected ? "" : s->error};

	s->done(&a, s->arg);
}

static void on_head(int status, const struct http_headers *h, void *arg)
{
	const char *text = http_header(h, "Retry-After");
	struct sink *s = arg;
	uint64_t seconds;

	/*
	 * if the header has a date instead of seconds, it is ignored, and the sender uses its own
	 * delay
	 */
	(void)status;
	if (text && str_to_u64(text, UINT32_MAX, &seconds) == 0)
		s->retry_after_ns = MIN(seconds, (uint64_t)MAX_RETRY_AFTER_S) * NSEC_PER_SEC;
}

/*
 * Whether the batch is stored, refused, or must be sent again. It is refused only if the answer is
 * about the batch itself. If the answer is about the agent, the address or the time (for example
 * 401, 404, 408), the batch waits until the cause is gone.
 */
static enum sink_result judge(int status)
{
	static const int about_us[] = {401, 403, 404, 405, 407, 408, 421, 425, 426, 429};

	if (status >= 200 && status < 300)
		return SINK_STORED;
	if (status < 400 || status >= 500)
		return SINK_RETRY;
	for (size_t i = 0; i < ARRAY_SIZE(about_us); i++)
		if (status == about_us[i])
			return SINK_RETRY;
	return SINK_REFUSED;
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct sink *s = arg;
	size_t shown = MIN(n, (size_t)200);
	bool stored = judge(status) == SINK_STORED;
	char why[200];
	uint64_t n_rejected = stored ? otlp_rejected(body, n, why, sizeof(why)) : 0;

	s->call = NULL;
	if (n_rejected)
		snprintf(s->error, sizeof(s->error), "%s:%u rejected %llu profiles: %s", s->host,
			 s->port, (unsigned long long)n_rejected, why);
	else if (status)
		snprintf(s->error, sizeof(s->error), "%s:%u answered %d: %.*s", s->host, s->port,
			 status, (int)shown, body ? body : "");
	else
		snprintf(s->error, sizeof(s->error), "%s", error ? error : "no answer");
	for (char *c = s->error; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	answer(s, judge(status), n_rejected);
}

static void otlp_send(struct sink *s, const void *body, size_t n, sink_done_fn *done, void *arg)
{
	_cleanup_free_ char *auth =
		s->token ? xasprintf("Authorization: Bearer %s", s->token) : NULL;
	const char *headers[] = {"Content-Type: " OTLP_CONTENT_TYPE, "Content-Encoding: zstd", auth,
				 NULL};
	struct http_request req = {.method = "POST",
				   .path = s->path,
				   .headers = headers,
				   .body = body,
				   .body_bytes = n,
				   .timeout_ns = REQUEST_TIMEOUT_NS,
				   .max_body_bytes = MAX_ANSWER_BYTES,
				   .on_head = on_head,
				   .on_done = on_done,
				   .arg = s};
	int r;

	s->done = done;
	s->arg = arg;
	s->retry_after_ns = 0;
	if (s->problem)
		snprintf(s->error, sizeof(s->error), "%s", s->problem);
	r = s->problem ? -ENOENT : use_ca(s);
	if (r == 0) {
		r = http_send(s->client, &req, &s->call);
		if (r < 0)
			snprintf(s->error, sizeof(s->error), "request: %s", strerror(-r));
	}
	if (r < 0)
		answer(s, SINK_RETRY, 0);
}

const struct sink_type send_sink_otlp = {
	.name = "otlp",
	.remote = true,
	.open = otlp_open,
	.close = otlp_close,
	.refresh = otlp_refresh,
	.send = otlp_send,
};
