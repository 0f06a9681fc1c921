/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the hub answers who pushes: by status and JSON at /ingest, and in Connect's way at push.v1
 * (connectrpc.com/docs/protocol).
 */
#include "hub/ingest/answer.h"
#include "hub/ingest/push.h"

/* What an HTTP status is as a code of Connect, and the status that Connect has for it. */
static const struct {
	int status, connect_status;
	const char *code;
} codes[] = {
	{400, 400, "invalid_argument"},	  {401, 401, "unauthenticated"},
	{403, 403, "permission_denied"},  {404, 404, "unimplemented"},
	{405, 405, "unimplemented"},	  {408, 504, "deadline_exceeded"},
	{413, 429, "resource_exhausted"}, {431, 429, "resource_exhausted"},
	{501, 501, "unimplemented"},	  {505, 501, "unimplemented"},
	{415, 415, "invalid_argument"},	  {422, 400, "invalid_argument"},
	{429, 429, "resource_exhausted"}, {503, 503, "unavailable"},
};

void ingest_push_accept(struct http_conn *c, enum push_form form)
{
	static const char *const types[] = {
		[PUSH_INGEST] = "text/plain",
		[PUSH_PROTOBUF] = "application/proto",
		[PUSH_JSON] = "application/json",
	};
	const char *body = form == PUSH_JSON ? "{}" : "";

	ingest_count_answer(200);
	http_reply(c, 200, types[form], NULL, body, strlen(body));
}

void ingest_push_write(bool connect, int status, const char *message, struct http_refusal *ret)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(codes) && codes[i].status != status)
		i++;
	ret->status = connect ? codes[i].connect_status : status;
	ret->content_type = "application/json";
	buf_printf(&ret->body, "{\"code\":\"%s\",\"message\":", codes[i].code);
	buf_json_string(&ret->body, message);
	buf_puts(&ret->body, "}\n");
}

void ingest_push_refuse(struct http_conn *c, bool connect, int status, const char *message)
{
	const char *headers[] = {ingest_header_of(status), NULL};
	struct http_refusal r = {0};

	ingest_count_answer(status);
	ingest_push_write(connect, status, message, &r);
	http_reply(c, r.status, r.content_type, headers, r.body.data, r.body.len);
	buf_done(&r.body);
}
