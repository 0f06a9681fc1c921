/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who read what: with api.audit, one line of JSON on standard output for each query that has read
 * the store. docs/operations.md describes it. The texts of the request are those of JSON, so no
 * user can write a line of its own.
 */
#include "hub/api/query_job.h"

#define TEXT_BYTES     4096 /* of a text of the request; a longer one is cut */
#define MAX_NAMESPACES 50   /* that a line names */

static json_t *shortened(const json_t *text)
{
	_cleanup_free_ char *s = utf8_shorten(json_string_value(text), TEXT_BYTES);

	return json_string(s);
}

/* Copies members of a selection, if they are there. */
static void copy_selection(json_t *to, const json_t *from)
{
	static const char *const names[] = {"profile_event_type", "app_service", "tag_filter",
					    "group_by",		  "tag",	 "time_start",
					    "time_end",		  "name",	 "profile_typeID",
					    "label_selector",	  "start",	 "end"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		json_t *value = json_object_get(from, names[i]);

		if (json_is_string(value))
			json_object_set_new(to, names[i], shortened(value));
		else if (json_is_integer(value))
			json_object_set(to, names[i], value);
	}
}

/* Tags whose values were asked for, or selectors. */
static void copy_list(json_t *to, const char *name, const json_t *tags)
{
	json_t *list = json_is_array(tags) ? json_array() : NULL;

	for (size_t i = 0; list && i < MIN(json_array_size(tags), (size_t)QUERY_MAX_CHOICES); i++)
		if (json_is_string(json_array_get(tags, i)))
			json_array_append_new(list, shortened(json_array_get(tags, i)));
	if (list)
		json_object_set_new(to, name, list);
}

/* A selection within the request, if it is there. */
static void copy_other(json_t *to, const json_t *from, const char *name)
{
	const json_t *other = json_object_get(from, name);
	json_t *copy;

	if (!json_is_object(other))
		return;
	copy = json_object();
	copy_selection(copy, other);
	json_object_set_new(to, name, copy);
}

static json_t *namespaces(const struct scope *s)
{
	json_t *list;

	if (s->all)
		return json_string("all");
	list = json_array();
	if (s->own)
		json_array_append_new(list, json_string("all of this cluster"));
	for (size_t i = 0; i < MIN(s->n_places, (size_t)MAX_NAMESPACES); i++)
		json_array_append_new(list, json_string(s->places[i]));
	return list;
}

/* The request as JSON. The caller owns it. */
static json_t *asked_of(const struct call *c)
{
	_cleanup_free_ char *made = NULL;
	struct field_error e;
	const char *body;

	if (c->route->flags & CONNECT)
		return api_connect_asked(c);
	body = api_call_body(c, &made, &e);
	return body ? json_loadb(body, made ? strlen(body) : c->n_body, 0, NULL) : NULL;
}

void api_audit_begin(struct query_job *q)
{
	const struct call *c = q->call;
	_cleanup_json_ json_t *asked = asked_of(c);

	q->audit = json_pack("{s:s, s:s, s:s, s:o, s:I}", "audit", "read", "user", c->user, "path",
			     c->path, "namespaces", namespaces(&c->scope), "n_namespaces",
			     (json_int_t)c->scope.n_places);
	copy_selection(q->audit, asked);
	copy_list(q->audit, "tags", json_object_get(asked, "tags"));
	copy_list(q->audit, "matchers", json_object_get(asked, "matchers"));
	copy_other(q->audit, asked, "before");
	copy_other(q->audit, asked, "left");
	copy_other(q->audit, asked, "right");
}

void api_audit_end(struct query_job *q)
{
	_cleanup_json_ json_t *line = TAKE_PTR(q->audit);
	_cleanup_free_ char *text = NULL;
	char when[32];

	if (!line)
		return;
	time_format(now_wall_ns(), when);
	json_object_set_new(line, "time", json_string(when));
	/* 0: the client has left before any of the answer was ready */
	json_object_set_new(line, "status",
			    json_integer(atomic_load(&q->given_up) && !q->encoder ? 0 : q->http));
	json_object_set_new(line, "rows", json_integer((json_int_t)q->n_rows));
	json_object_set_new(
		line, "ms",
		json_integer((json_int_t)((now_mono_ns() - q->call->began_ns) / NSEC_PER_MSEC)));
	text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (text)
		printf("%s\n", text);
	fflush(stdout);
}
