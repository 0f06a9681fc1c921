/* SPDX-License-Identifier: Apache-2.0 */
/* How the hub answers a sender: the HTTP status, and the bodies of OTLP/HTTP and OTLP/gRPC. */
#include "hub/ingest/answer.h"
#include "hub/ingest/push.h"

#include "lib/loop/grpc.h"
#include "lib/otlp/otlp.h"

#include <strings.h>

#define RETRY_S	    5
#define RETRY_AFTER "Retry-After: 5"

bool ingest_has_type(const struct http_in *in, const char *type)
{
	size_t n = strcspn(in->content_type, "; ");

	return n == strlen(type) && strncasecmp(in->content_type, type, n) == 0;
}

enum ingest_form ingest_form(const struct http_in *in)
{
	if (in->http2 && grpc_is_type(in->content_type))
		return FORM_GRPC;
	if (ingest_push_has_path(in->path))
		return FORM_PUSH;
	return ingest_has_type(in, OTLP_CONTENT_TYPE) ? FORM_PROTOBUF : FORM_JSON;
}

const char *ingest_header_of(int status)
{
	switch (status) {
	case 401:
		return "WWW-Authenticate: Bearer";
	case 405:
		return "Allow: POST";
	case 415:
		return "Accept-Encoding: zstd, gzip";
	case 429:
	case 503:
		return RETRY_AFTER;
	default:
		return NULL;
	}
}

void ingest_count_answer(int status)
{
	char code[12];

	snprintf(code, sizeof(code), "%d", status);
	counter_add(counter("podflame_ingest_requests_total", "code", code), 1);
}

void ingest_accept(struct http_conn *c, enum ingest_form form, size_t n_skipped, const char *why)
{
	_cleanup_buf_ struct buf b = {0};

	ingest_count_answer(200);
	if (form == FORM_JSON) {
		otlp_answer_json(n_skipped, why, &b);
		http_reply(c, 200, OTLP_JSON_TYPE, NULL, b.data, b.len);
		return;
	}
	otlp_answer(n_skipped, why, &b);
	if (form == FORM_GRPC)
		grpc_reply(c, b.data ?: "", b.len);
	else
		http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, b.data ?: "", b.len);
}

static void write_status(enum ingest_form form, int status, const char *reason, const char *message,
			 struct http_refusal *ret)
{
	const struct otlp_status s = {.code = grpc_code(status),
				      .message = message,
				      .reason = reason,
				      .retry_s = status == 429 || status == 503 ? RETRY_S : 0};

	ret->status = status;
	ret->content_type = form == FORM_JSON ? OTLP_JSON_TYPE : OTLP_CONTENT_TYPE;
	if (form == FORM_JSON)
		otlp_status_json(&s, &ret->body);
	else
		otlp_status(&s, &ret->body);
}

void ingest_refuse(struct http_conn *c, enum ingest_form form, int status, const char *reason,
		   const char *message)
{
	const char *headers[] = {ingest_header_of(status), NULL};
	struct http_refusal r = {0};

	ingest_count_answer(status);
	write_status(form, status, reason, message, &r);
	if (form == FORM_GRPC)
		grpc_refuse(c, grpc_code(status), message, r.body.data, r.body.len);
	else
		http_reply(c, status, r.content_type, headers, r.body.data, r.body.len);
	buf_done(&r.body);
}

void ingest_http_refuse(const struct http_in *in, int status, const char *why,
			struct http_refusal *ret)
{
	enum ingest_form form = ingest_form(in);

	ingest_count_answer(status);
	if (form == FORM_PUSH)
		ingest_push_write(streq(in->path, PUSH_PATH), status, why, ret);
	else
		write_status(form, status, NULL, why, ret);
}
