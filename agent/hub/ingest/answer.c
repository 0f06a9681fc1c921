/* SPDX-License-Identifier: Apache-2.0 */
/* How the hub answers a sender: the HTTP status, and the bodies of OTLP/HTTP. */
#include "hub/ingest/answer.h"

#include "lib/otlp/otlp.h"

#define RETRY_AFTER "Retry-After: 5"

/* Returns the google.rpc.Code for an HTTP status. OTLP clients read it in the answer's body. */
static int rpc_code(int status)
{
	switch (status) {
	case 401:
		return 16; /* UNAUTHENTICATED */
	case 403:
		return 7; /* PERMISSION_DENIED */
	case 413:
	case 429:
		return 8; /* RESOURCE_EXHAUSTED */
	case 404:
	case 405:
		return 12; /* UNIMPLEMENTED */
	case 400:
	case 415:
	case 422:
		return 3; /* INVALID_ARGUMENT */
	default:
		return status < 500 ? 3 : 14; /* INVALID_ARGUMENT, UNAVAILABLE */
	}
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

void ingest_accept(struct http_conn *c, size_t n_skipped, const char *why)
{
	_cleanup_buf_ struct buf b = {0};

	ingest_count_answer(200);
	otlp_answer(n_skipped, why, &b);
	http_reply(c, 200, OTLP_CONTENT_TYPE, NULL, b.data ? b.data : "", b.len);
}

void ingest_refuse(struct http_conn *c, int status, const char *reason, const char *message)
{
	const char *headers[] = {ingest_header_of(status), NULL};
	_cleanup_buf_ struct buf b = {0};

	ingest_count_answer(status);
	buf_printf(&b, "{\"code\":%d,\"message\":", rpc_code(status));
	buf_json_string(&b, message);
	if (reason)
		buf_printf(&b,
			   ",\"details\":[{\"@type\":\"" OTLP_ERROR_INFO
			   "\",\"reason\":\"%s\",\"domain\":\"podflame.io\"}]",
			   reason);
	buf_puts(&b, "}\n");
	http_reply(c, status, "application/json", headers, b.data, b.len);
}
