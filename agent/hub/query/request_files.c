/* SPDX-License-Identifier: Apache-2.0 */
/* The request for a file: a selection, and the tags whose values are in it. */
#include "hub/query/request.h"

#include <stdlib.h>

/* The tags of a request, by their names in the store. */
struct taken {
	char *names[QUERY_MAX_FILE_TAGS];
	size_t n;
};

static void taken_done(struct taken *t)
{
	while (t->n)
		free(t->names[--t->n]);
}

/* Takes the name. A tag that is there twice counts once. */
static int add_tag(struct taken *t, char *name, struct field_error *reterr)
{
	for (size_t i = 0; i < t->n; i++)
		if (streq(t->names[i], name)) {
			free(name);
			return 0;
		}
	if (t->n == QUERY_MAX_FILE_TAGS) {
		free(name);
		return field_error_set(reterr, "group_by", "group_by: more than %d tags",
				       QUERY_MAX_FILE_TAGS);
	}
	t->names[t->n++] = name;
	return 0;
}

/* Takes the names of a list: "pod,image". */
static int take_tags(const char *list, struct taken *ret, struct field_error *reterr)
{
	int e = 0;

	for (const char *p = list; !e && *p; p += *p == ',') {
		size_t n = strcspn(p, ",");
		_cleanup_free_ char *name = xstrndup(p, n);
		char *tag;

		e = query_group_parse(name, false, &tag, reterr);
		if (!e)
			e = add_tag(ret, tag, reterr);
		p += n;
	}
	return e;
}

/* Whether each sample of a file has the tag as a label, if it is asked for or not. */
static bool is_always_there(const char *tag)
{
	return streq(tag, "thread") || streq(tag, "wait");
}

/* Makes one tag of several ones. *ret NULL: there are none. */
static int join_tags(const struct taken *t, char **ret, struct field_error *reterr)
{
	struct store_joined items[QUERY_MAX_FILE_TAGS];
	size_t n = 0;

	for (size_t i = 0; t->n > 1 && i < t->n; i++) {
		if (is_always_there(t->names[i]))
			continue;
		if (store_is_tag_of_samples(t->names[i]))
			return field_error_set(reterr, "group_by",
					       "group_by: %.100s cannot be grouped by together "
					       "with other tags",
					       t->names[i]);
		items[n++] = (struct store_joined){.tag = t->names[i]};
	}
	if (n > 1)
		*ret = store_join(items, n);
	else if (n || t->n)
		*ret = xstrdup(n ? items[0].tag : t->names[0]);
	return 0;
}

static int take_groups(const json_t *body, char **ret, struct field_error *reterr)
{
	_cleanup_(taken_done) struct taken t = {0};
	int e = take_tags(json_str_at(body, "group_by", ""), &t, reterr);

	return e ? e : join_tags(&t, ret, reterr);
}

void query_file_query_done(struct file_query *q)
{
	query_tracing_request_done(&q->tracing);
	free(q->group_by);
	*q = (struct file_query){0};
}

static int take_file(const json_t *body, struct file_query *q, struct field_error *reterr)
{
	int e = query_body_required(body, reterr);

	if (!e)
		e = take_groups(body, &q->group_by, reterr);
	if (!e)
		e = query_body_selection(body, &q->tracing, reterr);
	if (e)
		return e;
	q->tracing.send_queue_only = query_send_queue_only(q->tracing.selection);
	q->tracing.selection->group_by = q->group_by;
	return 0;
}

int query_file_parse(const char *body, size_t n, struct file_query *ret, struct field_error *reterr)
{
	struct file_query q = {0};
	_cleanup_json_ json_t *j = NULL;
	int e = query_body_parse(body, n, &j, reterr);

	if (!e)
		e = take_file(j, &q, reterr);
	if (e)
		query_file_query_done(&q);
	else
		*ret = q;
	return e;
}
