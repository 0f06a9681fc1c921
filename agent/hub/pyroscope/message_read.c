/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests. One in protobuf becomes JSON first, so that both kinds go one way. JSON may have the
 * names of the .proto file or those of protobuf's JSON, integers as numbers or as texts, and enums
 * as numbers or names.
 */
#include "hub/pyroscope/internal.h"

#include <math.h>
#include <stdlib.h>

#define JSON_MAX_BYTES (8u << 20) /* JSON made of a request in protobuf, whose limit is smaller */

static int wrong(const struct pyroscope_field *f, struct field_error *reterr, const char *expected)
{
	return field_error_set(reterr, f->name, "%s: expected %s", f->name, expected);
}

static int read_object(const struct pyroscope_message *m, const json_t *j, json_t **ret,
		       struct field_error *reterr);

/* Reads a text in decimal. */
static bool is_integer(const char *s, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(s, &end, 10);
	return strspn(s, "-0123456789") == strlen(s) && *s && !*end && !errno;
}

static int read_integer(const struct pyroscope_field *f, const json_t *j, json_t **ret,
			struct field_error *reterr)
{
	double real = json_real_value(j);
	int64_t v;

	if (json_is_integer(j))
		v = json_integer_value(j);
	else if (json_is_real(j) && floor(real) == real && fabs(real) < 1e15)
		v = (int64_t)real;
	else if (!json_is_string(j) || !is_integer(json_string_value(j), &v))
		return wrong(f, reterr, "an integer");
	*ret = json_integer(v);
	return 0;
}

static int read_double(const struct pyroscope_field *f, const json_t *j, json_t **ret,
		       struct field_error *reterr)
{
	const char *text = json_string_value(j);
	char *end = NULL;
	double v = json_is_number(j) ? json_number_value(j) : text ? strtod(text, &end) : NAN;

	/* jansson has no reals that are no numbers, and no request needs one */
	if (!isfinite(v) || (text && (!*text || *end)))
		return wrong(f, reterr, "a number");
	*ret = json_real(v);
	return 0;
}

static int read_enum(const struct pyroscope_field *f, const json_t *j, json_t **ret,
		     struct field_error *reterr)
{
	const char *name = json_string_value(j);
	json_int_t v = -1;

	if (!name)
		return read_integer(f, j, ret, reterr);
	for (size_t i = 0; f->values && f->values[i]; i++)
		if (streq(f->values[i], name))
			v = (json_int_t)i;
	*ret = json_integer(v);
	return 0;
}

static int read_value(const struct pyroscope_field *f, const json_t *j, json_t **ret,
		      struct field_error *reterr)
{
	switch (f->type) {
	case PYROSCOPE_TEXT:
	case PYROSCOPE_BYTES:
		if (!json_is_string(j))
			return wrong(f, reterr, "a text");
		*ret = json_incref((json_t *)j);
		return 0;
	case PYROSCOPE_BOOL:
		if (!json_is_boolean(j))
			return wrong(f, reterr, "true or false");
		*ret = json_incref((json_t *)j);
		return 0;
	case PYROSCOPE_DOUBLE:
		return read_double(f, j, ret, reterr);
	case PYROSCOPE_ENUM:
		return read_enum(f, j, ret, reterr);
	case PYROSCOPE_MESSAGE:
		return read_object(f->of, j, ret, reterr);
	default:
		return read_integer(f, j, ret, reterr);
	}
}

static int read_list(const struct pyroscope_field *f, const json_t *j, json_t **ret,
		     struct field_error *reterr)
{
	_cleanup_json_ json_t *list = json_array();
	json_t *value;

	if (!json_is_array(j))
		return wrong(f, reterr, "a list");
	for (size_t i = 0; i < json_array_size(j); i++) {
		int e = read_value(f, json_array_get(j, i), &value, reterr);

		if (e)
			return e;
		json_array_append_new(list, value);
	}
	*ret = TAKE_PTR(list);
	return 0;
}

static int read_object(const struct pyroscope_message *m, const json_t *j, json_t **ret,
		       struct field_error *reterr)
{
	_cleanup_json_ json_t *object = json_object();
	json_t *value;

	if (!json_is_object(j))
		return field_error_set(reterr, "body", "expected a JSON object");
	for (const struct pyroscope_field *f = m->fields; f->number; f++) {
		char name[FIELD_NAME_BYTES];
		const json_t *given = json_object_get(j, f->name);
		int e;

		pyroscope_json_name(f, name);
		given = given ?: json_object_get(j, name);
		if (!given || json_is_null(given))
			continue;
		e = f->repeated ? read_list(f, given, &value, reterr)
				: read_value(f, given, &value, reterr);
		if (e)
			return e;
		json_object_set_new(object, f->name, value);
	}
	*ret = TAKE_PTR(object);
	return 0;
}

int pyroscope_read(const struct pyroscope_message *m, enum pyroscope_codec codec, const void *p,
		   size_t n, json_t **ret, struct field_error *reterr)
{
	_cleanup_buf_ struct buf text;
	_cleanup_json_ json_t *j = NULL;
	json_error_t error;
	int e = 0;

	buf_init(&text, JSON_MAX_BYTES);
	if (codec == PYROSCOPE_PROTO)
		e = pyroscope_to_json(m, p, n, &text, reterr);
	if (e == -E2BIG)
		return field_error_set(reterr, "body", "the request is too large");
	if (e)
		return e;
	j = codec == PYROSCOPE_PROTO ? json_loadb(text.data, text.len, 0, &error)
				     : json_loadb(p, n, JSON_REJECT_DUPLICATES, &error);
	if (!j)
		return field_error_set(reterr, "body", "bad JSON: line %d, column %d: %s",
				       error.line, error.column, error.text);
	return read_object(m, j, ret, reterr);
}
