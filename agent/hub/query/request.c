/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of the query API -> selections. Names, types and error texts are those of DeepFlow's
 * server/querier/profile. Like DeepFlow, it ignores unknown fields. podflame adds the field
 * result_format.
 */
#include "hub/query/request.h"

#include <stdlib.h>

/* for a tag's name in a message; any key of a Kubernetes label fits */
#define TAG_BYTES      350
#define LANGUAGE_BYTES 100
#define TIME_MAX_S     (1LL << 40) /* seconds; a later time of a request counts as this one */

enum field_type { TEXT, NUMBER, FLAG };

/* go_name is the field's name in errors; NULL: the field may be absent. */
static const struct request_field {
	const char *name, *go_name;
	enum field_type type;
} fields[] = {
	{"app_service", NULL, TEXT},
	{"profile_event_type", "ProfileEventType", TEXT},
	{"profile_language_type", "ProfileLanguageType", TEXT},
	{"tag_filter", NULL, TEXT},
	{"group_by", NULL, TEXT},
	{"unnamed", NULL, TEXT},
	{"time_start", "TimeStart", NUMBER},
	{"time_end", "TimeEnd", NUMBER},
	{"debug", NULL, FLAG},
	{"max_kernel_stack_depth", NULL, NUMBER},
	{"result_format", NULL, TEXT},
};

/* Events that only DeepFlow has. They are no error, but match nothing. */
static const char *const other_events[] = {
	"itimer",
	"lock_count",
	"lock_duration",
	"alloc_in_new_tlab_objects",
	"alloc_in_new_tlab_bytes",
	"alloc_outside_tlab_objects",
	"alloc_outside_tlab_bytes",
};

static const char *json_word(const json_t *j)
{
	if (json_is_string(j))
		return "string";
	if (json_is_boolean(j))
		return "bool";
	if (json_is_array(j))
		return "array";
	return json_is_object(j) ? "object" : "number";
}

static int check_type(const json_t *body, const struct request_field *f, struct field_error *reterr)
{
	static const char *const go_types[] = {"string", "int", "bool"};
	const json_t *j = json_object_get(body, f->name);
	bool ok;

	if (!j || json_is_null(j))
		return 0;
	ok = f->type == TEXT	 ? json_is_string(j)
	     : f->type == NUMBER ? json_is_integer(j)
				 : json_is_boolean(j);
	if (ok)
		return 0;
	return field_error_set(
		reterr, f->name,
		"json: cannot unmarshal %s into Go struct field Profile.%s of type %s",
		json_is_real(j) ? "fractional number" : json_word(j), f->name, go_types[f->type]);
}

int query_body_check(const json_t *body, struct field_error *reterr)
{
	int e = 0;

	for (size_t i = 0; !e && i < ARRAY_SIZE(fields); i++)
		e = check_type(body, &fields[i], reterr);
	return e;
}

static bool is_zero(const json_t *j, enum field_type type)
{
	return type == TEXT ? !*(json_string_value(j) ?: "") : json_integer_value(j) == 0;
}

/*
 * Like DeepFlow (Go), treats 0 and "" as missing. The error names all missing fields, one per line.
 */
int query_body_required(const json_t *body, struct field_error *reterr)
{
	_cleanup_buf_ struct buf text = {0};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		const struct request_field *f = &fields[i];

		if (!f->go_name || !is_zero(json_object_get(body, f->name), f->type))
			continue;
		buf_printf(&text,
			   "%sKey: 'Profile.%s' Error:Field validation for '%s' failed on the "
			   "'required' tag",
			   text.len ? "\n" : "", f->go_name, f->go_name);
	}
	return text.len ? field_error_set(reterr, "body", "%s", text.data) : 0;
}

static int parse_object(const char *body, size_t n, json_t **ret, struct field_error *reterr)
{
	json_error_t e;
	json_t *j;

	if (n > QUERY_MAX_BODY_BYTES)
		return field_error_set(reterr, "body", "longer than %u bytes",
				       QUERY_MAX_BODY_BYTES);
	if (!n)
		return field_error_set(reterr, "body", "EOF: the body is empty, expected JSON");
	j = json_loadb(body, n, JSON_REJECT_DUPLICATES, &e);
	if (!j && str_has_prefix(e.text, "'[' or '{' expected"))
		return field_error_set(reterr, "body", "not a JSON object: line %d, column %d: %s",
				       e.line, e.column, e.text);
	if (!j)
		return field_error_set(reterr, "body", "bad JSON: line %d, column %d: %s", e.line,
				       e.column, e.text);
	if (!json_is_object(j)) {
		json_decref(j);
		return field_error_set(reterr, "body",
				       "json: cannot unmarshal array into Go value of type "
				       "model.Profile");
	}
	*ret = j;
	return 0;
}

int query_body_parse(const char *body, size_t n, json_t **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *j = NULL;
	int e = parse_object(body, n, &j, reterr);

	if (!e)
		e = query_body_check(j, reterr);
	if (!e)
		*ret = TAKE_PTR(j);
	return e;
}

/* There are at most two notes of a request more than the conditions in tag_filter. */
void query_note_add(struct tracing_request *r, const char *text)
{
	for (size_t i = 0; i < r->n_notes; i++)
		if (streq(r->notes[i], text))
			return;
	r->notes = xrealloc(r->notes, (r->n_notes + 1) * sizeof(*r->notes));
	r->notes[r->n_notes++] = xstrdup(text);
}

static void note(struct tracing_request *r, const char *fmt, ...) _printf_(2, 3);
static void note(struct tracing_request *r, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text[utf8_cut(text, sizeof(text))] = 0; /* no part of a character at the end */
	query_note_add(r, text);
}

/* Adds a note for each tag of the filter that podflame does not store. */
static void note_tags(struct tracing_request *r, const struct predicate *p)
{
	const struct tag_info *t = p->tag ? query_tag_lookup(p->tag) : NULL;
	_cleanup_free_ char *name = NULL;

	for (size_t i = 0; i < p->n_children; i++)
		note_tags(r, p->children[i]);
	if (!t || t->stored)
		return;
	name = utf8_shorten(p->tag, TAG_BYTES);
	note(r, "tag_filter: %s matches nothing here: %s", name, t->help);
}

static void nothing(struct tracing_request *r)
{
	store_predicate_free(r->selection->where);
	r->selection->where = xcalloc(1, sizeof(struct predicate));
	r->selection->where->op = PRED_FALSE;
}

static int take_event(const json_t *body, struct tracing_request *r, struct field_error *reterr)
{
	const char *name = json_str_at(body, "profile_event_type", "");
	_cleanup_free_ char *known = profile_event_names();

	if (profile_event_from_name(name, &r->selection->event) == 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(other_events); i++) {
		if (!streq(other_events[i], name))
			continue;
		nothing(r);
		note(r, "profile_event_type: %s is not recorded by this version", name);
		return 0;
	}
	return field_error_set(reterr, "profile_event_type",
			       "profile_event_type: '%.100s' is not known; known: %s", name, known);
}

static int take_format(const json_t *body, struct tracing_request *r, struct field_error *reterr)
{
	const char *format = json_str_at(body, "result_format", "list");

	if (!streq(format, "flat") && !streq(format, "list"))
		return field_error_set(reterr, "result_format",
				       "result_format: '%.100s' is not one of list, flat", format);
	r->format = streq(format, "flat") ? RESULT_FLAT : RESULT_LIST;
	return 0;
}

/* No profile has another time, and arithmetic on these seconds does not overflow. */
static int64_t within_range(int64_t time_s)
{
	return MIN(MAX(time_s, (int64_t)0), (int64_t)TIME_MAX_S);
}

static int take_times(const json_t *body, struct selection *s, struct field_error *reterr)
{
	int64_t start_s = json_int_at(body, "time_start", 0);
	int64_t end_s = json_int_at(body, "time_end", 0);

	if (end_s < start_s)
		return field_error_set(reterr, "time_end", "time_end is before time_start");
	s->time_start_s = within_range(start_s);
	s->time_end_s = within_range(end_s);
	return 0;
}

static int take_unnamed(const json_t *body, struct selection *s, struct field_error *reterr)
{
	const char *unnamed = json_str_at(body, "unnamed", "module");

	if (!streq(unnamed, "module") && !streq(unnamed, "start"))
		return field_error_set(reterr, "unnamed",
				       "unnamed: '%.100s' is not one of module, start", unnamed);
	s->unnamed_by_start = streq(unnamed, "start");
	return 0;
}

/* Of what programs push the language is a tag; what podflame samples is eBPF's. */
static void take_language(struct tracing_request *r, const char *language)
{
	_cleanup_free_ char *shown = utf8_shorten(language, LANGUAGE_BYTES);
	struct selection *s = r->selection;
	struct predicate *both, *is;

	if (profile_event_info(s->event)->spec_field) {
		nothing(r);
		note(r, "profile_language_type: only eBPF is recorded, not %s", shown);
		return;
	}
	is = xcalloc(1, sizeof(*is));
	*is = (struct predicate){.op = PRED_EQ,
				 .tag = xstrdup("profile_language_type"),
				 .values = xcalloc(1, sizeof(char *)),
				 .n_values = 1};
	is->values[0] = xstrdup(language);
	if (!s->where) {
		s->where = is;
		return;
	}
	both = xcalloc(1, sizeof(*both));
	both->op = PRED_AND;
	both->children = xcalloc(2, sizeof(struct predicate *));
	both->children[0] = s->where;
	both->children[1] = is;
	both->n_children = 2;
	s->where = both;
}

/* Reads the fields that ProfileTracing and values share. The caller has checked their types. */
int query_body_selection(const json_t *body, struct tracing_request *r, struct field_error *reterr)
{
	struct selection *s = r->selection = xcalloc(1, sizeof(*s));
	const char *language = json_str_at(body, "profile_language_type", "eBPF");
	int e;

	r->app_service = xstrdup(json_str_at(body, "app_service", ""));
	if (*r->app_service) {
		s->app_services = xcalloc(1, sizeof(char *));
		s->app_services[s->n_app_services++] = xstrdup(r->app_service);
	}
	e = take_times(body, s, reterr);
	if (!e)
		e = take_unnamed(body, s, reterr);
	if (!e)
		e = query_filter_parse(json_str_at(body, "tag_filter", ""), &s->where, reterr);
	if (e)
		return e;
	if (s->where)
		note_tags(r, s->where);
	e = take_event(body, r, reterr);
	if (!e && !streq(language, "eBPF"))
		take_language(r, language);
	return e;
}

void query_tracing_request_done(struct tracing_request *r)
{
	store_selection_free(r->selection);
	free(r->app_service);
	for (size_t i = 0; i < r->n_notes; i++)
		free(r->notes[i]);
	free(r->notes);
	*r = (struct tracing_request){0};
}

int query_tracing_parse(const char *body, size_t n, struct tracing_request *ret,
			struct field_error *reterr)
{
	struct tracing_request r = {0};
	_cleanup_json_ json_t *j = NULL;
	int64_t depth;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e)
		e = query_body_required(j, reterr);
	if (!e)
		e = take_format(j, &r, reterr);
	if (!e)
		e = query_body_selection(j, &r, reterr);
	if (e) {
		query_tracing_request_done(&r);
		return e;
	}
	r.send_queue_only = query_send_queue_only(r.selection);
	depth = json_int_at(j, "max_kernel_stack_depth", -1);
	r.max_kernel_stack_depth = depth < 0 ? -1 : (int)MIN(depth, (int64_t)STACK_MAX_FRAMES);
	r.debug = json_bool_at(j, "debug", false);
	*ret = r;
	return 0;
}
