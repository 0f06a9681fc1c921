/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a GET ("a=1&b=x%20y") as the JSON of a POST. */
#include "hub/query/query.h"

#include <stdlib.h>

/* The value as JSON: times are numbers, everything else is text. */
static json_t *value_of(const char *name, const char *text)
{
	uint64_t n;

	if (streq(name, "time_start") || streq(name, "time_end"))
		return str_to_u64(text, INT64_MAX, &n) ? NULL : json_integer((json_int_t)n);
	return json_string(text);
}

/* Adds one parameter: NAME=VALUE. */
static int add(json_t *body, const char *s, size_t n, struct field_error *reterr)
{
	size_t n_name = strcspn(s, "=&");
	_cleanup_free_ char *name = url_decode(s, MIN(n_name, n));
	_cleanup_free_ char *text = n_name < n ? url_decode(s + n_name + 1, n - n_name - 1) : NULL;
	json_t *value = name && text ? value_of(name, text) : NULL;

	if (!value)
		return field_error_set(reterr, "parameters", "wrong parameter: %.*s",
				       (int)MIN(n, (size_t)100), s);
	json_object_set_new(body, name, value);
	return 0;
}

char *query_parameters(const char *text, struct field_error *reterr)
{
	_cleanup_json_ json_t *body = json_object();

	json_object_set_new(body, "profile_language_type", json_string("eBPF"));
	for (size_t n; *text; text += n + (text[n] == '&')) {
		n = strcspn(text, "&");
		if (n && add(body, text, n, reterr))
			return NULL;
	}
	return json_dumps(body, JSON_COMPACT);
}
