/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary bytes as a request body, and as parameters; a refusal must be a JSON reply. Fuzzes:
 * hub/query/request.c, hub/query/request_values.c, hub/query/parameters.c, hub/query/namespaces.c
 */
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

static void read_values(const char *body, size_t n)
{
	struct values_request v = {0};
	struct choices_request c = {0};
	struct field_error e = {0};

	if (query_values_parse(body, n, &v, &e))
		refuse(&e);
	query_values_request_done(&v);
	if (query_choices_parse(body, n, &c, &e))
		refuse(&e);
	query_choices_request_done(&c);
}

static void read_trees(const char *body, size_t n)
{
	struct series_query s = {0};
	struct tree_query t = {0};
	struct groups_query g = {0};
	struct field_error e = {0};

	if (query_series_parse(body, n, &s, &e))
		refuse(&e);
	query_series_done(&s);
	if (query_tree_parse(body, n, &t, &e))
		refuse(&e);
	query_tree_query_done(&t);
	if (query_groups_parse(body, n, &g, &e))
		refuse(&e);
	query_groups_done(&g);
}

static void read_tracing(const char *body, size_t n)
{
	struct tracing_request t = {0};
	struct field_error e = {0};

	if (query_tracing_parse(body, n, &t, &e))
		refuse(&e);
	query_tracing_request_done(&t);
}

static void read_file(const char *body, size_t n)
{
	struct file_query q = {0};
	struct field_error e = {0};

	if (query_file_parse(body, n, &q, &e))
		refuse(&e);
	query_file_query_done(&q);
}

/* The namespaces that a body names are sorted, and each is there once. */
static void read_names(const char *body, size_t n)
{
	struct query_names names = {0};

	if (!query_names_of_body(body, n, &names) && names.n)
		abort();
	for (size_t i = 1; i < names.n; i++)
		if (strcmp(names.names[i - 1], names.names[i]) >= 0)
			abort();
	query_names_done(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *body = (const char *)data;
	_cleanup_free_ char *text = xstrndup(body, n), *parameters = NULL;
	struct field_error e = {0};

	read_tracing(body, n);
	read_values(body, n);
	read_trees(body, n);
	read_file(body, n);
	read_names(body, n);
	parameters = query_parameters(text, &e);
	if (parameters)
		read_file(parameters, strlen(parameters));
	else
		refuse(&e);
	return 0;
}
