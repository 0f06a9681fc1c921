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

void ingest_refuse(struct http_conn *c, enum ingest_form form, int status, const char *reason,
		   const char *message)
{
	const struct otlp_status s = {.code = grpc_code(status),
				      .message = message,
				      .reason = reason,
				      .retry_s = status == 429 || status == 503 ? RETRY_S : 0};
	const char *headers[] = {ingest_header_of(status), NULL};
	_cleanup_buf_ struct buf b = {0};

	ingest_count_answer(status);
	if (form == FORM_JSON)
		otlp_status_json(&s, &b);
	else
		otlp_status(&s, &b);
	if (form == FORM_GRPC)
		grpc_refuse(c, grpc_code(status), message, b.data, b.len);
	else
		http_reply(c, status, form == FORM_JSON ? OTLP_JSON_TYPE : OTLP_CONTENT_TYPE,
			   headers, b.data, b.len);
}
