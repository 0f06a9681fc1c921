/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a request body; a refusal must be a JSON reply. Fuzzes: hub/query/request.c */
#include "hub/query/query.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void refuse(const struct field_error *e)
{
	size_t n;
	int http;
	_cleanup_free_ char *text = query_tracing_refused(e, &http, &n);
	_cleanup_json_ json_t *reply = json_loadb(text, n, 0, NULL);

	if (!reply || (http != 400 && http != 500))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct tracing_request t = {0};
	struct values_request v = {0};
	struct field_error e = {0};

	if (query_tracing_parse((const char *)data, n, &t, &e))
		refuse(&e);
	query_tracing_request_done(&t);
	if (query_values_parse((const char *)data, n, &v, &e))
		refuse(&e);
	query_values_request_done(&v);
	return 0;
}
