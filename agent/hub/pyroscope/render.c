/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pyroscope/render.h"

#include <stdlib.h>

#define MSEC_PER_HOUR INT64_C(3600000)
#define NSEC_PER_DAY  (24 * 3600 * NSEC_PER_SEC)
#define MAX_PARAMETER 100 /* bytes of a wrong parameter that its error shows */

enum format { FORMAT_UNKNOWN = -1, FORMAT_FLAME_GRAPH = 1, FORMAT_DOT = 3 }; /* of the API */

/* The parameters of a selection: alone, and in a difference on the left and on the right. */
static const struct side {
	const char *name, *query, *from, *until;
} alone = {NULL, "query", "from", "until"},
  sides[] = {{"left", "leftQuery", "leftFrom", "leftUntil"},
	     {"right", "rightQuery", "rightFrom", "rightUntil"}};

/* ---- parameters: name -> text ---- */

static int add(json_t *p, const char *s, size_t n, struct field_error *reterr)
{
	const char *equals = memchr(s, '=', n);
	size_t n_name = equals ? (size_t)(equals - s) : n;
	_cleanup_free_ char *name = url_decode(s, n_name);
	_cleanup_free_ char *text = equals ? url_decode(equals + 1, n - n_name - 1) : xstrdup("");

	if (!name || !text || json_object_set_new(p, name, json_string(text)) < 0)
		return field_error_set(reterr, "parameters", "wrong parameter: %.*s",
				       (int)MIN(n, (size_t)MAX_PARAMETER), s);
	return 0;
}

static int split(const char *s, json_t *ret, struct field_error *reterr)
{
	for (size_t n; *s; s += n + (s[n] == '&')) {
		n = strcspn(s, "&");
		if (n && add(ret, s, n, reterr))
			return -EINVAL;
	}
	return 0;
}

/* "": the parameter is not there. */
static const char *text_of(const json_t *p, const char *name)
{
	return json_string_value(json_object_get(p, name)) ?: "";
}

/* ---- times ---- */

/* Go's form of a duration, and days. */
static int duration_ns(const char *s, uint64_t *ret)
{
	_cleanup_free_ char *days = str_has_suffix(s, "d") ? xstrndup(s, strlen(s) - 1) : NULL;
	int e;

	if (!days)
		return str_to_duration_ns(s, ret);
	e = str_to_u64(days, UINT64_MAX / NSEC_PER_DAY, ret);
	*ret = e ? 0 : *ret * NSEC_PER_DAY;
	return e;
}

/* Times of these centuries differ by their unit in their size. */
static int64_t to_ms(uint64_t t)
{
	return t < 100000000000		? (int64_t)t * 1000
	       : t < 100000000000000	? (int64_t)t
	       : t < 100000000000000000 ? (int64_t)(t / 1000)
					: (int64_t)(t / 1000000);
}

static int parse_time(const char *s, int64_t now_ms, int64_t *ret)
{
	uint64_t t;

	if (streq(s, "now")) {
		*ret = now_ms;
	} else if (str_has_prefix(s, "now-")) {
		if (duration_ns(s + strlen("now-"), &t))
			return -EINVAL;
		*ret = now_ms - (int64_t)(t / 1000000);
	} else {
		if (str_to_u64(s, INT64_MAX, &t))
			return -EINVAL;
		*ret = to_ms(t);
	}
	return 0;
}

static int add_time(const json_t *p, const char *name, const char *field, const char *otherwise,
		    int64_t now_ms, json_t *ret, struct field_error *reterr)
{
	const char *text = text_of(p, name);
	int64_t ms;

	if (parse_time(*text ? text : otherwise, now_ms, &ms))
		return field_error_set(reterr, name, "%.*s is no time", MAX_PARAMETER, text);
	json_object_set_new(ret, field, json_integer(ms));
	return 0;
}

/* ---- a selection ---- */

static int add_max_nodes(const json_t *p, json_t *ret, struct field_error *reterr)
{
	const char *name = json_object_get(p, "max-nodes") ? "max-nodes" : "maxNodes";
	const char *text = text_of(p, name);
	uint64_t n = 0;

	if (*text && str_to_u64(text, INT64_MAX, &n))
		return field_error_set(reterr, name, "%.*s is no number", MAX_PARAMETER, text);
	json_object_set_new(ret, "max_nodes", json_integer((json_int_t)n));
	return 0;
}

static enum format format_of(const json_t *p)
{
	const char *text = text_of(p, "format");

	if (!*text || streq(text, "json"))
		return FORMAT_FLAME_GRAPH;
	return streq(text, "dot") ? FORMAT_DOT : FORMAT_UNKNOWN;
}

/* "ID{selector}". Without braces, all of the type. */
static int add_query(const json_t *p, const char *name, json_t *ret, struct field_error *reterr)
{
	const char *query = text_of(p, name);
	size_t n = strcspn(query, "{");

	if (!n)
		return field_error_set(reterr, name, "must begin with the id of a profile type");
	json_object_set_new(ret, "profile_typeID", json_stringn(query, n));
	json_object_set_new(ret, "label_selector", json_string(query[n] ? query + n : "{}"));
	return 0;
}

static int read_side(const json_t *p, const struct side *side, int64_t now_ms, json_t *ret,
		     struct field_error *reterr)
{
	if (add_query(p, side->query, ret, reterr) ||
	    add_time(p, side->from, "start", "now-1h", now_ms, ret, reterr) ||
	    add_time(p, side->until, "end", "now", now_ms, ret, reterr) ||
	    add_max_nodes(p, ret, reterr))
		return -EINVAL;
	json_object_set_new(ret, "format", json_integer(format_of(p)));
	/* only that it is asked for, because the hub refuses it */
	if (*text_of(p, "groupBy"))
		json_object_set_new(ret, "group_by", json_pack("[b]", true));
	return 0;
}

static int read_both(const json_t *p, int64_t now_ms, json_t *ret, struct field_error *reterr)
{
	for (size_t i = 0; i < ARRAY_SIZE(sides); i++) {
		json_t *side = json_object();

		json_object_set_new(ret, sides[i].name, side);
		if (read_side(p, &sides[i], now_ms, side, reterr))
			return -EINVAL;
	}
	return 0;
}

int pyroscope_read_render(const char *parameters, bool diff, int64_t now_ms, json_t **ret,
			  struct field_error *reterr)
{
	_cleanup_json_ json_t *p = json_object(), *request = json_object();

	if (split(parameters, p, reterr))
		return -EINVAL;
	if (diff ? read_both(p, now_ms, request, reterr)
		 : read_side(p, &alone, now_ms, request, reterr))
		return -EINVAL;
	*ret = TAKE_PTR(request);
	return 0;
}
