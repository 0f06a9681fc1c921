/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and JSON as replies, in the form of the route. */
#include "hub/api/api_private.h"

char *api_error_text(const struct call *c, const char *status, const char *description,
		     int *ret_http, size_t *ret_n)
{
	if (c->route && c->route->flags & CONNECT)
		return api_connect_error_text(status, description, ret_http, ret_n);
	return query_tracing_error(status, description, NULL, ret_http, ret_n);
}

void api_call_error(struct call *c, const char *status, const char *description)
{
	int http;
	size_t n;
	_cleanup_free_ char *body = api_error_text(c, status, description, &http, &n);

	api_call_reply(c, http, "application/json", body, n);
}

char *api_json_text(json_t *body, int *status, size_t *ret_n)
{
	_cleanup_json_ json_t *owned = body;
	char *text = json_dumps(owned, JSON_COMPACT | JSON_ENCODE_ANY);

	if (!text)
		return query_tracing_error("SERVER_ERROR", "the answer is not text", NULL, status,
					   ret_n);
	*ret_n = strlen(text);
	return text;
}

void api_call_json(struct call *c, int status, json_t *body)
{
	size_t n;
	_cleanup_free_ char *text = api_json_text(body, &status, &n);

	api_call_reply(c, status, "application/json", text, n);
}
