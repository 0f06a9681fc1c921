/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of podflame's own queries: values of tags, choices, and values over time. */
#include "hub/query/request.h"
#include "hub/query/tree.h"

#include <stdlib.h>

#define VALUES_MAX_LIMIT     10000 /* values in a reply; a request for more is refused */
#define VALUES_DEFAULT_LIMIT 100   /* values in a reply, if the request sets no limit */

/* Whether the body has the field. null counts as absent. */
static bool is_given(const json_t *body, const char *name)
{
	const json_t *j = json_object_get(body, name);

	return j && !json_is_null(j);
}

static int take_tag(const char *name, struct values_request *v, struct field_error *reterr)
{
	const struct tag_info *t = query_tag_lookup(name);

	if (!*name)
		return field_error_set(reterr, "tag", "tag: expected the name of a tag");
	if (streq(name, POD_LABEL)) { /* no filter knows it, but it has values */
		v->tag = xstrdup(name);
		v->stored = true;
		return 0;
	}
	if (!t)
		return field_error_set(reterr, "tag", "tag: unknown tag '%.100s'", name);
	v->tag = xstrdup(query_tag_canonical(t, name));
	v->stored = t->stored;
	return 0;
}

/* Reads the number of values or groups that the answer may have. */
static int take_count(const json_t *body, const char *name, size_t otherwise, size_t most,
		      size_t *ret, struct field_error *reterr)
{
	const json_t *j = json_object_get(body, name);

	*ret = otherwise;
	if (!is_given(body, name))
		return 0;
	if (!json_is_integer(j) || json_integer_value(j) < 1 ||
	    json_integer_value(j) > (json_int_t)most)
		return field_error_set(reterr, name, "%s: expected a number in 1..%zu", name, most);
	*ret = (size_t)json_integer_value(j);
	return 0;
}

void query_values_request_done(struct values_request *v)
{
	query_tracing_request_done(&v->tracing);
	free(v->tag);
	*v = (struct values_request){0};
}

/*
 * The values of these tags are the choices of the user: which operations, and which events, are
 * stored. So the query for them covers all operations of rdma, not only those of the send queue.
 */
static bool is_of_any_operation(const char *tag)
{
	return streq(tag, "rdma_operation") || streq(tag, "profile_event_type");
}

/* Only the tag is required. By default, the time ends now, and the event is the first one. */
static void default_selection(json_t *body)
{
	if (!is_given(body, "profile_event_type"))
		json_object_set_new(body, "profile_event_type",
				    json_string(profile_event_info(0)->name));
	if (!is_given(body, "time_end"))
		json_object_set_new(body, "time_end", json_integer(INT64_MAX));
}

/* Reads the selection for the values of a tag. */
static int take_values(const json_t *body, const char *tag, struct values_request *v,
		       struct field_error *reterr)
{
	int e = take_tag(tag, v, reterr);

	if (!e)
		e = take_count(body, "limit", VALUES_DEFAULT_LIMIT, VALUES_MAX_LIMIT, &v->limit,
			       reterr);
	if (!e)
		e = query_body_selection(body, &v->tracing, reterr);
	if (e)
		return e;
	if (!is_of_any_operation(v->tag))
		v->tracing.send_queue_only = query_send_queue_only(v->tracing.selection);
	v->tracing.selection->with_total = streq(v->tag, "app_service");
	return 0;
}

int query_values_parse(const char *body, size_t n, struct values_request *ret,
		       struct field_error *reterr)
{
	struct values_request v = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e) {
		default_selection(j);
		e = take_values(j, json_str_at(j, "tag", ""), &v, reterr);
	}
	if (e) {
		query_values_request_done(&v);
		return e;
	}
	*ret = v;
	return 0;
}

/* ---- choices ---- */

/* Takes the conditions on the tag out of its own choice, so that it offers the other values. */
static void forget_own(struct values_request *v)
{
	struct selection *s = v->tracing.selection;

	s->where = query_filter_without(s->where, v->tag);
	if (!streq(v->tag, "app_service"))
		return;
	for (size_t i = 0; i < s->n_app_services; i++)
		free(s->app_services[i]);
	s->n_app_services = 0;
}

static int take_choices(const json_t *body, struct choices_request *c, struct field_error *reterr)
{
	const json_t *tags = json_object_get(body, "tags");
	size_t n = json_array_size(tags);
	int e = 0;

	if (n < 1 || n > QUERY_MAX_CHOICES)
		return field_error_set(reterr, "tags", "tags: expected a list of 1 to %d tags",
				       QUERY_MAX_CHOICES);
	c->tags = xcalloc(n, sizeof(*c->tags));
	for (size_t i = 0; !e && i < n; i++) {
		struct values_request *v = &c->tags[c->n_tags++];

		e = take_values(body, json_string_value(json_array_get(tags, i)) ?: "", v, reterr);
		for (size_t k = 0; !e && k < i; k++)
			if (streq(c->tags[k].tag, v->tag))
				e = field_error_set(reterr, "tags", "tags: %s twice", v->tag);
		if (!e)
			forget_own(v);
	}
	return e;
}

void query_choices_request_done(struct choices_request *c)
{
	for (size_t i = 0; i < c->n_tags; i++)
		query_values_request_done(&c->tags[i]);
	free(c->tags);
	*c = (struct choices_request){0};
}

int query_choices_parse(const char *body, size_t n, struct choices_request *ret,
			struct field_error *reterr)
{
	struct choices_request c = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e) {
		default_selection(j);
		e = take_choices(j, &c, reterr);
	}
	if (e) {
		query_choices_request_done(&c);
		return e;
	}
	*ret = c;
	return 0;
}

/* ---- series ---- */

#define DAY_S	      86400
#define SERIES_STEPS  500 /* if the request names no step: at most this many */
#define SERIES_GROUPS 10  /* if the request sets no limit */

bool query_tag_can_group(const char *tag, bool over_time)
{
	static const char *const not_grouped[] = {"time", "cpu", "sample_id", "profile_event_type"};

	for (size_t i = 0; i < ARRAY_SIZE(not_grouped); i++)
		if (streq(not_grouped[i], tag))
			return false;
	return !over_time || !store_is_tag_of_calls(tag);
}

int query_group_parse(const char *name, bool over_time, char **ret, struct field_error *reterr)
{
	const struct tag_info *t = query_tag_lookup(name);

	if (!t)
		return field_error_set(reterr, "group_by", "group_by: unknown tag '%.100s'", name);
	if (!query_tag_can_group(query_tag_canonical(t, name), over_time))
		return field_error_set(reterr, "group_by", "group_by: %.100s cannot be grouped by",
				       name);
	*ret = xstrdup(query_tag_canonical(t, name));
	return 0;
}

/* *ret is the canonical name of the tag group_by; NULL: the body has none. */
static int take_group_by(const json_t *body, bool over_time, char **ret, struct field_error *reterr)
{
	const char *name = json_str_at(body, "group_by", "");

	return *name ? query_group_parse(name, over_time, ret, reterr) : 0;
}

uint32_t query_round_step(uint64_t all_s, uint32_t most)
{
	static const uint32_t steps[] = {10,  15,   20,	  30,	60,   120,   300,   600,
					 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (all_s <= (uint64_t)steps[i] * most)
			return steps[i];
	return (uint32_t)MIN((all_s / most / DAY_S + 1) * DAY_S, (uint64_t)INT32_MAX);
}

static int take_step(const json_t *body, struct series_query *q, struct field_error *reterr)
{
	const struct selection *s = q->tracing.selection;
	const uint64_t all_s = (uint64_t)s->time_end_s - (uint64_t)s->time_start_s + 1;
	int64_t step_s = json_int_at(body, "step", 0);

	if (is_given(body, "step") && !json_is_integer(json_object_get(body, "step")))
		return field_error_set(reterr, "step", "step: expected a number of seconds");
	if (step_s < 0 || step_s > INT32_MAX)
		return field_error_set(reterr, "step", "step: expected 1..%d seconds", INT32_MAX);
	q->step_s = step_s ? (uint32_t)step_s : query_round_step(all_s, SERIES_STEPS);
	if ((all_s - 1) / q->step_s >= STORE_MAX_STEPS)
		return field_error_set(reterr, "step", "step: more than %d steps", STORE_MAX_STEPS);
	return 0;
}

void query_series_done(struct series_query *q)
{
	query_tracing_request_done(&q->tracing);
	free(q->group_by);
	*q = (struct series_query){0};
}

int query_series_parse(const char *body, size_t n, struct series_query *ret,
		       struct field_error *reterr)
{
	struct series_query q = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e)
		e = query_body_required(j, reterr);
	if (!e)
		e = take_count(j, "limit", SERIES_GROUPS, QUERY_MAX_GROUPS, &q.limit, reterr);
	if (!e)
		e = take_group_by(j, true, &q.group_by, reterr);
	if (!e)
		e = query_body_selection(j, &q.tracing, reterr);
	if (!e)
		e = take_step(j, &q, reterr);
	if (e) {
		query_series_done(&q);
		return e;
	}
	q.tracing.send_queue_only = query_send_queue_only(q.tracing.selection);
	*ret = q;
	return 0;
}

/* ---- trees ---- */

/* v: NULL: the first selection has the field's default, so the one before has it, too. */
static void take_same(json_t *before, const char *field, json_t *v)
{
	if (v)
		json_object_set(before, field, v);
	else
		json_object_del(before, field);
}

/* The event, the language and the names of the selection before are those of the first one. */
static int take_before(const json_t *body, struct tree_query *q, struct field_error *reterr)
{
	static const char *const same[] = {"profile_event_type", "profile_language_type",
					   "unnamed"};
	_cleanup_json_ json_t *before = json_copy(json_object_get(body, "before"));
	struct field_error wrong;
	int e;

	if (!is_given(body, "before"))
		return 0;
	if (!json_is_object(before))
		return field_error_set(reterr, "before", "before: expected a selection");
	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		take_same(before, same[i], json_object_get(body, same[i]));
	e = query_body_check(before, &wrong);
	if (!e)
		e = query_body_required(before, &wrong);
	if (!e)
		e = query_body_selection(before, &q->before, &wrong);
	if (e)
		return field_error_set(reterr, wrong.path, "before: %.480s", wrong.reason);
	q->before.send_queue_only = query_send_queue_only(q->before.selection);
	return 0;
}

static int take_bool(const json_t *body, const char *field, bool *ret, struct field_error *reterr)
{
	const json_t *j = json_object_get(body, field);

	if (is_given(body, field) && !json_is_boolean(j))
		return field_error_set(reterr, field, "%s: expected true or false", field);
	*ret = json_is_true(j);
	return 0;
}

void query_tree_query_done(struct tree_query *q)
{
	query_tracing_request_done(&q->tracing);
	query_tracing_request_done(&q->before);
	free(q->group_by);
	*q = (struct tree_query){0};
}

static int take_tree(const json_t *body, struct tree_query *q, struct field_error *reterr)
{
	int e = query_body_required(body, reterr);

	if (!e)
		e = take_count(body, "max_nodes", QUERY_MAX_COLUMNS, QUERY_MAX_COLUMNS,
			       &q->max_nodes, reterr);
	if (!e)
		e = take_bool(body, "by_line", &q->by_line, reterr);
	if (!e)
		e = take_bool(body, "preview", &q->preview, reterr);
	if (!e)
		e = take_group_by(body, false, &q->group_by, reterr);
	if (!e)
		e = query_body_selection(body, &q->tracing, reterr);
	if (!e)
		e = take_before(body, q, reterr);
	if (e)
		return e;
	q->tracing.send_queue_only = query_send_queue_only(q->tracing.selection);
	q->tracing.selection->group_by = q->group_by;
	if (q->before.selection)
		q->before.selection->group_by = q->group_by;
	return 0;
}

int query_tree_parse(const char *body, size_t n, struct tree_query *ret, struct field_error *reterr)
{
	struct tree_query q = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e)
		e = take_tree(j, &q, reterr);
	if (e) {
		query_tree_query_done(&q);
		return e;
	}
	*ret = q;
	return 0;
}

/* ---- groups ---- */

#define GROUPS_LIMIT 100 /* if the request sets no limit */

static bool is_kind(const char *name)
{
	uint8_t l = 0;

	while (l < _LEVEL_KIND_MAX && !streq(query_level_name(l), name))
		l++;
	return l < _LEVEL_KIND_MAX;
}

/* Reads function: {"name": ..., "kind": ...}. */
static int take_function(const json_t *body, struct groups_query *q, struct field_error *reterr)
{
	const json_t *j = json_object_get(body, "function");
	const char *name = json_string_value(json_object_get(j, "name"));
	const json_t *kind = json_object_get(j, "kind");

	if (!is_given(body, "function"))
		return 0;
	if (!name || (kind && !json_is_string(kind)))
		return field_error_set(reterr, "function",
				       "function: expected {\"name\": ..., \"kind\": ...}");
	if (kind && !is_kind(json_string_value(kind)))
		return field_error_set(reterr, "function", "function: unknown kind '%.100s'",
				       json_string_value(kind));
	q->function = xstrdup(name);
	q->kind = kind ? xstrdup(json_string_value(kind)) : NULL;
	return 0;
}

void query_groups_done(struct groups_query *q)
{
	query_tree_query_done(&q->tree);
	free(q->function);
	free(q->kind);
	*q = (struct groups_query){0};
}

int query_groups_parse(const char *body, size_t n, struct groups_query *ret,
		       struct field_error *reterr)
{
	struct groups_query q = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e)
		e = take_tree(j, &q.tree, reterr);
	if (!e && !q.tree.group_by)
		e = field_error_set(reterr, "group_by", "group_by: expected the name of a tag");
	if (!e)
		e = take_function(j, &q, reterr);
	if (!e)
		e = take_count(j, "limit", GROUPS_LIMIT, QUERY_MAX_GROUPS, &q.limit, reterr);
	if (e) {
		query_groups_done(&q);
		return e;
	}
	*ret = q;
	return 0;
}
