/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of `podflame query`: times, and bodies for the hub's API. */
#include "cli/query.h"

#include "cli/cli.h"
#include "hub/query/query.h"
#include "lib/profile/profile.h"

#include <stdlib.h>

#define SERIES_GROUPS 10 /* groups of a series, if the user does not say */
#define TABLE_STEPS   60 /* steps of a table of a series, if the user gives no length */

#define TIME_FORMS "(such as -15m, now, Unix seconds, 2026-11-21T13:00:00Z)"

enum query_mode cli_query_mode(const struct query_options *o)
{
	return o->series       ? QUERY_SERIES
	       : o->difference ? QUERY_DIFFERENCE
	       : o->group_by   ? QUERY_GROUPS
			       : QUERY_PROFILE;
}

#define TREE "/v1/profile/tree"

const char *cli_query_path(enum query_mode mode, enum query_format format)
{
	static const char tracing[] = "/v1/profile/ProfileTracing", groups[] = "/v1/profile/groups",
			  series[] = "/v1/profile/series", tree[] = TREE;
	static const char *const paths[_QUERY_MODE_MAX][_FORMAT_MAX] = {
		[QUERY_PROFILE] = {[FORMAT_TABLE] = tracing,
				   [FORMAT_FOLDED] = tracing,
				   [FORMAT_JSON] = tracing,
				   [FORMAT_SVG] = tree},
		[QUERY_GROUPS] = {[FORMAT_TABLE] = groups,
				  [FORMAT_FOLDED] = tree,
				  [FORMAT_JSON] = groups,
				  [FORMAT_SVG] = tree},
		[QUERY_SERIES] =
			{[FORMAT_TABLE] = series, [FORMAT_JSON] = series, [FORMAT_CSV] = series},
		[QUERY_DIFFERENCE] = {[FORMAT_TABLE] = tree,
				      [FORMAT_FOLDED] = tree,
				      [FORMAT_JSON] = tree,
				      [FORMAT_SVG] = tree},
	};
	const struct file_format_info *file = cli_query_file(format);

	if (file && (mode == QUERY_PROFILE || mode == QUERY_GROUPS))
		return file->path;
	return paths[mode][format];
}

/* ---- times ---- */

int cli_query_time_parse(const char *s, uint64_t now_wall_ns, int64_t *ret_s)
{
	uint64_t v;

	if (streq(s, "now"))
		v = now_wall_ns;
	else if (*s == '-' && str_to_duration_ns(s + 1, &v) == 0 && v < now_wall_ns)
		v = now_wall_ns - v;
	else if (str_to_u64(s, INT64_MAX / NSEC_PER_SEC, &v) == 0)
		v *= NSEC_PER_SEC;
	else if (time_parse(s, &v))
		return -EINVAL;
	/* not before second 1, because the API takes 0 as a missing value */
	*ret_s = (int64_t)MAX(v / NSEC_PER_SEC, (uint64_t)1);
	return 0;
}

static int parse_time(const char *option, const char *text, uint64_t now_ns, int64_t *ret_s,
		      struct field_error *reterr)
{
	if (cli_query_time_parse(text, now_ns, ret_s) == 0)
		return 0;
	return field_error_set(reterr, option, "'%.100s' is not a time " TIME_FORMS, text);
}

/* Parses FROM..TO. */
static int parse_difference(const char *text, uint64_t now_ns, struct query_span *ret,
			    struct field_error *reterr)
{
	const char *dots = strstr(text, "..");
	_cleanup_free_ char *from = dots ? xstrndup(text, (size_t)(dots - text)) : NULL;
	int r;

	if (!dots)
		return field_error_set(reterr, "--diff",
				       "'%.100s' is not FROM..TO: two times " TIME_FORMS, text);
	r = parse_time("--diff", from, now_ns, &ret->from_s, reterr);
	if (!r)
		r = parse_time("--diff", dots + 2, now_ns, &ret->to_s, reterr);
	if (!r && ret->to_s < ret->from_s)
		r = field_error_set(reterr, "--diff", "'%.100s' ends before it begins", text);
	return r;
}

static int parse_times(const struct query_options *o, uint64_t now_ns, struct query_times *ret,
		       struct field_error *reterr)
{
	struct query_times t = {0};
	int r = parse_time("--from", o->from, now_ns, &t.now.from_s, reterr);

	if (!r)
		r = parse_time("--to", o->to, now_ns, &t.now.to_s, reterr);
	if (!r && t.now.to_s < t.now.from_s)
		r = field_error_set(reterr, "--to", "'%.100s' is before --from, '%.100s'", o->to,
				    o->from);
	if (!r && o->difference)
		r = parse_difference(o->difference, now_ns, &t.before, reterr);
	if (!r)
		*ret = t;
	return r;
}

/* ---- bodies ---- */

/* A function as tables print it: the prefix says its kind. */
static json_t *function_of(const char *text)
{
	const char *name, *kind = profile_kind_of_text(text, &name);

	return kind ? json_pack("{s:s, s:s}", "name", name, "kind", kind)
		    : json_pack("{s:s}", "name", name);
}

/* How many groups the hub shall list. */
static json_t *group_limit(const struct query_options *o, uint64_t otherwise)
{
	uint64_t n = o->limit == QUERY_NOT_GIVEN ? otherwise : o->limit;

	return json_integer((json_int_t)(n && n < QUERY_MAX_GROUPS ? n : QUERY_MAX_GROUPS));
}

static int add_step(json_t *body, const struct query_options *o, const struct query_span *s,
		    struct field_error *reterr)
{
	const uint64_t all_s = (uint64_t)(s->to_s - s->from_s) + 1;
	uint64_t step_s = o->format == FORMAT_TABLE ? query_round_step(all_s, TABLE_STEPS) : 0, ns;

	if (o->step) {
		if (cli_parse_seconds(o->step, INT32_MAX, &ns) || ns % NSEC_PER_SEC)
			return field_error_set(reterr, "--step",
					       "'%.100s' is not a number of seconds (such as 10, "
					       "30s, 5m)",
					       o->step);
		step_s = ns / NSEC_PER_SEC;
	}
	if (o->step && !step_s)
		return field_error_set(reterr, "--step", "must be longer than 0");
	json_object_set_new(body, "step", json_integer((json_int_t)step_s));
	return 0;
}

/* Adds a text of the user's, or what was made of it. value: NULL if the text is not UTF-8. */
static int add_text(json_t *body, const char *key, json_t *value, const char *option,
		    struct field_error *reterr)
{
	return json_object_set_new(body, key, value)
		       ? field_error_set(reterr, option, "is not UTF-8")
		       : 0;
}

static json_t *before_of(const struct query_options *o, const struct query_span *s)
{
	return json_pack("{s:s, s:s, s:I, s:I}", "app_service", o->app_service, "tag_filter",
			 o->filter, "time_start", (json_int_t)s->from_s, "time_end",
			 (json_int_t)s->to_s);
}

/* Adds what only some of the requests have. */
static int add_rest(json_t *body, const struct query_options *o, const struct query_times *t,
		    struct field_error *reterr)
{
	enum query_mode mode = cli_query_mode(o);
	int r = 0;

	if (o->group_by)
		r = add_text(body, "group_by", json_string(o->group_by), "--group-by", reterr);
	if (!r && o->function)
		r = add_text(body, "function", function_of(o->function), "--function", reterr);
	if (!r && o->unnamed)
		r = add_text(body, "unnamed", json_string(o->unnamed), "--unnamed", reterr);
	if (r)
		return r;
	if (o->difference)
		json_object_set_new(body, "before", before_of(o, &t->before));
	if (streq(cli_query_path(mode, o->format), TREE))
		json_object_set_new(body, "max_nodes", json_integer(COLUMNS_MAX_NODES));
	else if (mode == QUERY_GROUPS && !cli_query_file(o->format))
		json_object_set_new(body, "limit", group_limit(o, QUERY_TABLE_ROWS));
	if (mode != QUERY_SERIES)
		return 0;
	json_object_set_new(body, "limit", group_limit(o, SERIES_GROUPS));
	return add_step(body, o, &t->now, reterr);
}

int cli_query_body(const struct query_options *o, uint64_t now_wall_ns, char **ret,
		   struct query_times *ret_times, struct field_error *reterr)
{
	_cleanup_json_ json_t *body = NULL;
	struct query_times t;
	int r = parse_times(o, now_wall_ns, &t, reterr);

	if (r)
		return r;
	body = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "app_service", o->app_service,
			 "profile_event_type", o->event, "profile_language_type", "eBPF",
			 "tag_filter", o->filter, "time_start", (json_int_t)t.now.from_s,
			 "time_end", (json_int_t)t.now.to_s, "result_format",
			 o->format == FORMAT_JSON ? "list" : "flat");
	if (!body)
		return field_error_set(reterr, "--tag-filter, --app-service or --event",
				       "is not UTF-8");
	r = add_rest(body, o, &t, reterr);
	if (r)
		return r;
	*ret = json_dumps(body, JSON_COMPACT);
	*ret_times = t;
	return 0;
}
