/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests by POST, and how an answer is judged. The client follows no redirect: an answer 3xx is
 * one that does not accept the request now. The CA is used when it has changed, with the next
 * connection.
 */
#include "lib/otlp/client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <utlist.h>

#define MAX_TOKEN_BYTES	   (64u << 10) /* bytes of the token file */
#define MAX_CA_BYTES	   (1u << 20)  /* bytes of the CA file */
#define MAX_ANSWER_BYTES   (64u << 10) /* bytes of one answer */
#define MAX_SHOWN_BYTES	   200	       /* bytes of an answer that a text shows */
#define MAX_RETRY_AFTER_S  300	       /* seconds; a longer Retry-After counts as this */
#define REQUEST_TIMEOUT_NS (30 * NSEC_PER_SEC)

struct otlp_client {
	struct loop *loop;
	struct http_client *http;
	bool https;
	char *host, *base, *ca_file, *token_file, *user_agent;
	uint16_t port;
	uint64_t timeout_ns;
	char *ca_in_use;
	struct otlp_call *requests; /* list of those under way */
};

struct otlp_credentials {
	char *token, *ca;
	char *problem; /* why a file cannot be read; NULL: both are read */
};

struct otlp_call {
	struct otlp_client *client;
	struct http_call *http; /* NULL: it is not sent yet */
	uint64_t retry_after_ns;
	otlp_done_fn *done;
	void *arg;
	struct otlp_call *prev, *next;
};

/* ---- the client ---- */

static int parse_url(const char *text, struct otlp_client *c, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};
	struct field_error e = {0};

	if (url_parse(text, &u, &e) < 0)
		return field_error_set(reterr, "url", "\"%.200s\" %s", text, e.reason);
	c->https = u.tls;
	c->port = u.port;
	c->host = TAKE_PTR(u.host);
	c->base = xstrndup(u.path,
			   strlen(u.path) -
				   (str_has_suffix(u.path, OTLP_PATH) ? strlen(OTLP_PATH) : 0));
	return 0;
}

static char *file_name(const char *name)
{
	return name && *name ? xstrdup(name) : NULL;
}

int otlp_client_new(struct loop *l, const struct otlp_client_config *conf, struct otlp_client **ret,
		    struct field_error *reterr)
{
	struct otlp_client *c = xcalloc(1, sizeof(*c));
	struct http_client_config hc = {.user_agent = conf->user_agent};
	int r;

	c->loop = l;
	c->user_agent = xstrdup(conf->user_agent);
	c->ca_file = file_name(conf->ca_file);
	c->token_file = file_name(conf->token_file);
	c->timeout_ns = conf->timeout_ns ?: REQUEST_TIMEOUT_NS;
	r = parse_url(conf->url, c, reterr);
	/* with https, use_ca() makes the HTTP client, because it needs the CA */
	if (r == 0 && !c->https) {
		hc.address = c->host;
		hc.port = c->port;
		r = http_client_new(l, &hc, &c->http);
	}
	if (r < 0) {
		otlp_client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct otlp_client *otlp_client_free(struct otlp_client *c)
{
	struct otlp_call *q, *next;

	if (!c)
		return NULL;
	http_client_free(c->http);
	DL_FOREACH_SAFE(c->requests, q, next)
	{
		free(q);
	}
	free(c->host);
	free(c->base);
	free(c->ca_file);
	free(c->token_file);
	free(c->user_agent);
	free(c->ca_in_use);
	free(c);
	return NULL;
}

/* ---- credentials ---- */

static char *read_text(struct otlp_credentials *k, const char *file, size_t max_bytes)
{
	char *text = NULL;
	int r = file_read(AT_FDCWD, file, max_bytes, &text, NULL);

	if (r < 0) {
		free(k->problem);
		k->problem = xasprintf("%s: %s", file, file_error_text(r));
	}
	return text;
}

struct otlp_credentials *otlp_client_read(const struct otlp_client *c)
{
	struct otlp_credentials *k = xcalloc(1, sizeof(*k));

	k->token = c->token_file ? read_text(k, c->token_file, MAX_TOKEN_BYTES) : NULL;
	k->ca = c->https && c->ca_file ? read_text(k, c->ca_file, MAX_CA_BYTES) : NULL;
	if (k->token) {
		k->token[strcspn(k->token, "\r\n")] = '\0';
		k->token[strspn(k->token, "\t !\"#$%&'()*+,-./0123456789:;<=>?@"
					  "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
					  "abcdefghijklmnopqrstuvwxyz{|}~")] = '\0';
	}
	return k;
}

struct otlp_credentials *otlp_credentials_free(struct otlp_credentials *k)
{
	if (!k)
		return NULL;
	free(k->token);
	free(k->ca);
	free(k->problem);
	free(k);
	return NULL;
}

/* Uses a new CA. It takes effect with the next connection. On failure sets *ret_error. */
static int use_ca(struct otlp_client *c, const char *ca, char **ret_error)
{
	struct tls_config tc = {.ca_pem = ca, .ca_name = c->ca_file};
	struct field_error err = {0};
	struct tls *tls = NULL;
	int r;

	if (!c->https || (c->http && str_equal(ca, c->ca_in_use)))
		return 0;
	r = tls_new(&tc, false, &tls, &err);
	if (r < 0) {
		*ret_error = xasprintf("%s: %s %s", c->ca_file ? c->ca_file : "CA", err.path,
				       err.reason);
		return r;
	}
	if (c->http) {
		http_client_set_tls(c->http, tls);
	} else {
		struct http_client_config hc = {.address = c->host,
						.port = c->port,
						.tls = tls,
						.user_agent = c->user_agent};

		r = http_client_new(c->loop, &hc, &c->http);
		if (r < 0)
			*ret_error = xasprintf("http client: %s", strerror(-r));
	}
	tls_unref(tls);
	free(c->ca_in_use);
	c->ca_in_use = xstrdup(ca);
	return r;
}

/* ---- the answer ---- */

/*
 * Whether the request is stored, refused, or must be sent again. It is refused only if the answer
 * is about the request itself. If the answer is about the sender, the address or the time (for
 * example 401, 404, 408), the request waits until the cause is gone.
 */
static enum otlp_result judge(int status)
{
	static const int about_us[] = {401, 403, 404, 405, 407, 408, 421, 425, 426, 429};

	if (status >= 200 && status < 300)
		return OTLP_STORED;
	if (status < 400 || status >= 500)
		return OTLP_AGAIN;
	for (size_t i = 0; i < ARRAY_SIZE(about_us); i++)
		if (status == about_us[i])
			return OTLP_AGAIN;
	return OTLP_REFUSED;
}

static void blank_control_characters(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ')
			*s = ' ';
}

/* Copies a reason such as CLOCK_AHEAD. If it is no such word, copies nothing. */
static void copy_reason(const char *reason, char *out, size_t n_out)
{
	size_t n = strspn(reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	snprintf(out, n_out, "%s", reason[n] || n >= n_out ? "" : reason);
}

/* Reads what the receiver says itself in the body of its answer. */
struct said {
	char message[512], reason[64];
};

static void read_refusal(const char *body, size_t n, struct said *ret)
{
	/* a receiver may answer in JSON, as podflame's hub did before it knew better */
	bool is_json = n && body[0] == '{';
	_cleanup_json_ json_t *status = is_json ? json_loadb(body, n, 0, NULL) : NULL;
	char reason[sizeof(ret->reason)];

	if (is_json) {
		copy_reason(json_str_at(json_with(json_object_get(status, "details"), "@type",
						  OTLP_ERROR_INFO),
					"reason", ""),
			    ret->reason, sizeof(ret->reason));
		snprintf(ret->message, sizeof(ret->message), "%s",
			 json_str_at(status, "message", ""));
	} else {
		otlp_status_read(body, n, ret->message, sizeof(ret->message), reason,
				 sizeof(reason));
		copy_reason(reason, ret->reason, sizeof(ret->reason));
	}
	blank_control_characters(ret->message);
}

static void request_end(struct otlp_call *q, const struct otlp_outcome *o)
{
	otlp_done_fn *done = q->done;
	void *arg = q->arg;

	DL_DELETE(q->client->requests, q);
	free(q);
	done(o, arg);
}

static void not_sent(struct otlp_call *q, const char *error)
{
	request_end(q, &(struct otlp_outcome){
			       .result = OTLP_AGAIN, .message = "", .reason = "", .error = error});
}

static void on_head(int status, const struct http_headers *h, void *arg)
{
	const char *text = http_header(h, "Retry-After");
	struct otlp_call *q = arg;
	uint64_t seconds;

	/*
	 * if the header has a date instead of seconds, it is ignored, and the sender uses its own
	 * delay
	 */
	(void)status;
	if (text && str_to_u64(text, UINT32_MAX, &seconds) == 0)
		q->retry_after_ns = MIN(seconds, (uint64_t)MAX_RETRY_AFTER_S) * NSEC_PER_SEC;
}

static char *error_text(const struct otlp_client *c, const struct otlp_outcome *o, const char *body,
			size_t n, const char *error)
{
	if (o->n_rejected)
		return xasprintf("%s:%u rejected %llu profiles: %s", c->host, c->port,
				 (unsigned long long)o->n_rejected, o->message);
	if (o->result == OTLP_STORED)
		return xstrdup("");
	if (o->status && *o->message)
		return xasprintf("%s:%u answered %d: %.*s", c->host, c->port, o->status,
				 MAX_SHOWN_BYTES, o->message);
	if (o->status)
		return xasprintf("%s:%u answered %d: %.*s", c->host, c->port, o->status,
				 (int)MIN(n, (size_t)MAX_SHOWN_BYTES), body ? body : "");
	return xstrdup(error ? error : "no answer");
}

static void on_done(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct otlp_call *q = arg;
	struct said said = {0};
	struct otlp_outcome o = {.result = judge(status),
				 .status = status,
				 .retry_after_ns = q->retry_after_ns,
				 .message = said.message,
				 .reason = said.reason};
	_cleanup_free_ char *text = NULL;

	if (o.result == OTLP_STORED)
		o.n_rejected = otlp_rejected(body, n, said.message, sizeof(said.message));
	else
		read_refusal(body, n, &said);
	if (o.result != OTLP_REFUSED)
		said.reason[0] = '\0';
	blank_control_characters(said.message);
	text = error_text(q->client, &o, body, n, error);
	blank_control_characters(text);
	o.error = text;
	request_end(q, &o);
}

/* ---- the request ---- */

struct post {
	const char *path;	     /* below c->base */
	const char *type, *encoding; /* lines of the head; encoding NULL: none */
	const void *body;
	size_t n;
};

/* Sends q, or ends it at once with what is wrong. */
static void send_call(struct otlp_call *q, const struct otlp_credentials *k, const struct post *p)
{
	struct otlp_client *c = q->client;
	_cleanup_free_ char *auth =
		k->token ? xasprintf("Authorization: Bearer %s", k->token) : NULL;
	_cleanup_free_ char *path = xasprintf("%s%s", c->base, p->path);
	const char *headers[4] = {p->type};
	struct http_request req = {.method = "POST",
				   .path = path,
				   .headers = headers,
				   .body = p->body,
				   .body_bytes = p->n,
				   .timeout_ns = c->timeout_ns,
				   .max_body_bytes = MAX_ANSWER_BYTES,
				   .on_head = on_head,
				   .on_done = on_done,
				   .arg = q};
	_cleanup_free_ char *error = xstrdup(k->problem);
	size_t n = 1;
	int r;

	if (p->encoding)
		headers[n++] = p->encoding;
	headers[n] = auth;
	if (!error && use_ca(c, k->ca, &error) == 0) {
		r = http_send(c->http, &req, &q->http);
		if (r < 0)
			error = xasprintf("request: %s", strerror(-r));
	}
	if (error)
		not_sent(q, error);
}

static struct otlp_call *call_new(struct otlp_client *c, otlp_done_fn *done, void *arg)
{
	struct otlp_call *q = xcalloc(1, sizeof(*q));

	*q = (struct otlp_call){.client = c, .done = done, .arg = arg};
	DL_APPEND(c->requests, q);
	return q;
}

void otlp_client_send(struct otlp_client *c, const struct otlp_credentials *k, const void *body,
		      size_t n, otlp_done_fn *done, void *arg)
{
	send_call(call_new(c, done, arg), k,
		  &(struct post){.path = OTLP_PATH,
				 .type = "Content-Type: " OTLP_CONTENT_TYPE,
				 .encoding = "Content-Encoding: zstd",
				 .body = body,
				 .n = n});
}

void otlp_client_post(struct otlp_client *c, const struct otlp_credentials *k,
		      const struct otlp_post *post, otlp_done_fn *done, void *arg,
		      struct otlp_call **ret)
{
	_cleanup_free_ char *type = xasprintf("Content-Type: %s", post->content_type);

	*ret = call_new(c, done, arg);
	send_call(
		*ret, k,
		&(struct post){.path = post->path, .type = type, .body = post->body, .n = post->n});
}

void otlp_client_cancel(struct otlp_call *q)
{
	if (q->http)
		http_cancel(q->http);
	DL_DELETE(q->client->requests, q);
	free(q);
}
