/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Connect protocol: codecs by Content-Type, compressed bodies, the caller's time limit, errors.
 * Answers are compressed as those of other calls.
 */
#include "hub/api/connect.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#define QUERY_NS       (30 * NSEC_PER_SEC) /* time of one call, if its client sets no limit */
#define MAX_TIMEOUT_MS 9999999999ULL	   /* the protocol has ten digits */

/* ---- errors ---- */

static const struct {
	const char *name;
	int http;
} codes[] = {
	[CONNECT_UNKNOWN] = {"unknown", 500},
	[CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
	[CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
	[CONNECT_NOT_FOUND] = {"not_found", 404},
	[CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
	[CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
	[CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
	[CONNECT_INTERNAL] = {"internal", 500},
	[CONNECT_UNAVAILABLE] = {"unavailable", 503},
	[CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};

static char *error_text(enum connect_code code, const char *description, size_t *ret_n)
{
	struct buf b = {0};

	buf_printf(&b, "{\"code\":\"%s\",\"message\":", codes[code].name);
	buf_json_string(&b, description);
	buf_putc(&b, '}');
	*ret_n = b.len;
	return buf_steal(&b);
}

char *api_connect_error_text(const char *status, const char *description, int *ret_http,
			     size_t *ret_n)
{
	static const struct {
		const char *status;
		enum connect_code code;
	} words[] = {
		{"INVALID_POST_DATA", CONNECT_INVALID_ARGUMENT},
		{"UNAUTHORIZED", CONNECT_UNAUTHENTICATED},
		{"FORBIDDEN", CONNECT_PERMISSION_DENIED},
		{"RESOURCE_NOT_FOUND", CONNECT_NOT_FOUND},
		{"TOO_MANY_REQUESTS", CONNECT_RESOURCE_EXHAUSTED},
		{"UNAVAILABLE", CONNECT_UNAVAILABLE},
		{"METHOD_NOT_ALLOWED", CONNECT_UNIMPLEMENTED},
	};
	enum connect_code code = CONNECT_INTERNAL;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (streq(words[i].status, status))
			code = words[i].code;
	*ret_http = streq(status, "METHOD_NOT_ALLOWED") ? 405 : codes[code].http;
	return error_text(code, description, ret_n);
}

int api_connect_fail(struct query_job *q, enum connect_code code, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text[utf8_cut(text, sizeof(text))] = '\0';
	q->http = codes[code].http;
	q->reply = error_text(code, text, &q->n_reply);
	return -EINVAL;
}

int api_connect_store_failed(struct query_job *q, int error, const struct field_error *e)
{
	return api_connect_fail(q,
				error == -ETIME			      ? CONNECT_DEADLINE_EXCEEDED
				: error == -E2BIG || error == -EFBIG  ? CONNECT_RESOURCE_EXHAUSTED
				: error == -EINVAL || error == -ELOOP ? CONNECT_INVALID_ARGUMENT
								      : CONNECT_INTERNAL,
				"%s", e->reason);
}

/* Answers without a query. */
static void refuse(struct call *c, enum connect_code code, int http, const char *description)
{
	size_t n;
	_cleanup_free_ char *body = error_text(code, description, &n);

	api_call_reply(c, http, "application/json", body, n);
}

/* ---- the head of a request ---- */

/* "application/json; charset=utf-8" */
static int codec_of(const char *content_type)
{
	static const char *const names[] = {
		[PYROSCOPE_PROTO] = "application/proto", [PYROSCOPE_JSON] = "application/json"};
	size_t n = strcspn(content_type, "; \t");
	const char *rest = content_type + n;

	if (strcasestr(rest, "charset") && !strcasestr(rest, "utf-8"))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (n == strlen(names[i]) && strncasecmp(content_type, names[i], n) == 0)
			return (int)i;
	return -1;
}

static uint64_t deadline_of(const char *timeout_ms, uint64_t began_ns)
{
	uint64_t ms;

	if (!*timeout_ms)
		return UINT64_MAX;
	if (!isdigit((unsigned char)*timeout_ms) || str_to_u64(timeout_ms, MAX_TIMEOUT_MS, &ms))
		return 0;
	return began_ns + ms * NSEC_PER_MSEC;
}

void api_connect_begin(struct call *c, const struct http_in *in)
{
	c->connect = (struct connect_in){
		.codec = codec_of(in->content_type),
		.encoding = xstrdup(in->content_encoding),
		.deadline_ns = deadline_of(in->connect_timeout_ms, c->began_ns),
		.any_names = strstr(in->accept, "allow-utf8-labelnames=true") != NULL,
	};
}

/* ---- the request ---- */

/* Reads the body. -E2BIG, -EBADMSG: it does not unpack; -EINVAL: it is no such message. */
static int read_request(const struct call *c, json_t **ret, struct field_error *reterr)
{
	const struct connect_method *m = api_pyroscope_method(c->path);
	_cleanup_buf_ struct buf body = {0};
	int e = 0;

	if (streq(c->route->method, "GET"))
		return api_render_request(c, ret, reterr);
	if (!m || c->connect.codec < 0)
		return field_error_set(reterr, "body", "no request of a method");
	if (c->n_body)
		e = http_decompress(c->connect.encoding, c->body, c->n_body, QUERY_MAX_BODY_BYTES,
				    &body);
	if (e) {
		field_error_set(reterr, "body", "%s",
				e == -E2BIG ? "the request is larger than 1 MiB"
					    : "the request cannot be unpacked");
		return e;
	}
	return pyroscope_read(m->request, (enum pyroscope_codec)c->connect.codec, body.data ?: "",
			      body.len, ret, reterr);
}

json_t *api_connect_asked(const struct call *c)
{
	struct field_error e;
	json_t *request = NULL;

	return read_request(c, &request, &e) ? NULL : request;
}

/* What the selections of a request, which may have two more within it, have in common. */
static struct predicate *where_of(const json_t *request)
{
	const json_t *left = json_object_get(request, "left"),
		     *right = json_object_get(request, "right"),
		     *matchers = json_object_get(request, "matchers");
	const char *of[FILTER_MAX_CONDITIONS];
	struct pyroscope_matchers m = {0};
	struct field_error e;
	size_t n = MIN(json_array_size(matchers), ARRAY_SIZE(of));

	if (left || right)
		return pyroscope_or(where_of(left), where_of(right));
	for (size_t i = 0; i < n; i++)
		of[i] = json_string_value(json_array_get(matchers, i));
	if (!matchers)
		of[n++] = json_str_at(request, "label_selector", "");
	return pyroscope_matchers_parse(of, n, NULL, &m, &e) ? NULL : m.where;
}

bool api_connect_names(const struct call *c, struct query_names *ret)
{
	_cleanup_json_ json_t *request = api_connect_asked(c);
	struct predicate *where = where_of(request);
	bool named = query_names_of(where, ret);

	store_predicate_free(where);
	return named;
}

/* ---- a call ---- */

int api_connect_limit(struct query_job *q, struct selection *s)
{
	const uint64_t now_ns = now_mono_ns(), own_ns = q->call->began_ns + QUERY_NS;
	const uint64_t deadline_ns = MIN(q->call->connect.deadline_ns, own_ns);

	if (now_ns >= deadline_ns)
		return api_connect_fail(q, CONNECT_DEADLINE_EXCEEDED,
					"the call has taken longer than its time limit");
	s->max_time_ns = deadline_ns - now_ns;
	s->given_up = &q->given_up;
	return 0;
}

/* Makes the reply of what the method has written. */
static void put_answer(struct connect_job *j)
{
	struct query_job *q = &j->q;
	_cleanup_buf_ struct buf json = {0};
	struct field_error e;

	if (q->call->connect.codec == PYROSCOPE_JSON) {
		buf_init(&json, QUERY_MAX_REPLY_BYTES);
		json.budget = &q->bytes->budget;
		if (pyroscope_to_json(j->method->answer, j->out.data ?: "", j->out.len, &json,
				      &e)) {
			api_connect_fail(q, CONNECT_RESOURCE_EXHAUSTED,
					 "the answer is too large: ask for less");
			return;
		}
		api_query_answer(q, &json);
		return;
	}
	q->content_type = "application/proto";
	api_query_answer(q, &j->out);
}

static void make_connect(struct query_job *q)
{
	struct connect_job *j = (struct connect_job *)q;
	struct field_error e;
	int r = read_request(q->call, &j->request, &e);

	if (r) {
		api_connect_fail(
			q, r == -E2BIG ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INVALID_ARGUMENT,
			"%s", e.reason);
		return;
	}
	j->method = api_pyroscope_method(q->call->path);
	buf_init(&j->out, QUERY_MAX_REPLY_BYTES);
	j->out.budget = &q->bytes->budget;
	pyroscope_write(&j->answer, j->method->answer, &j->out);
	api_query_left_out(q, false, false); /* methods that read values know more */
	if (j->method->make(j))
		return;
	if (j->out.failed)
		api_connect_fail(q, CONNECT_RESOURCE_EXHAUSTED,
				 "the answer is too large: ask for less");
	else
		put_answer(j);
}

void api_connect_done(struct query_job *q)
{
	struct connect_job *j = (struct connect_job *)q;

	json_decref(j->request);
	buf_done(&j->out);
	query_names_done(&j->pods);
}

void api_handle_connect(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct connect_job),
					       .make_reply = make_connect,
					       .names = api_connect_names,
					       .done = api_connect_done},
				       quick = {.bytes = sizeof(struct connect_job),
						.make_reply = make_connect,
						.names = api_connect_names,
						.done = api_connect_done,
						.choices = true};
	const struct connect_method *m = api_pyroscope_method(c->path);

	if (!m)
		refuse(c, CONNECT_UNIMPLEMENTED, 501, "this hub does not have this method");
	else if (c->connect.codec < 0)
		refuse(c, CONNECT_UNKNOWN, 415,
		       "expected Content-Type application/proto or application/json");
	else if (!http_knows_encoding(c->connect.encoding))
		refuse(c, CONNECT_UNIMPLEMENTED, 501,
		       "unknown Content-Encoding: gzip, zstd and identity are known");
	else if (!c->connect.deadline_ns)
		refuse(c, CONNECT_INVALID_ARGUMENT, 400,
		       "Connect-Timeout-Ms: expected at most 10 digits");
	else
		api_query_post(c, m->choices ? &quick : &kind);
}
