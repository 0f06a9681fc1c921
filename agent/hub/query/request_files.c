/* SPDX-License-Identifier: Apache-2.0 */
/* The request for a file: a selection, and the tags whose values are in it. */
#include "hub/query/request.h"

#include <stdlib.h>

/* Takes the name. A tag that is there twice counts once. */
static int add_tag(struct file_query *q, char *name, struct field_error *reterr)
{
	for (size_t i = 0; i < q->n_tags; i++)
		if (streq(q->tags[i], name)) {
			free(name);
			return 0;
		}
	if (q->n_tags == QUERY_MAX_FILE_TAGS) {
		free(name);
		return field_error_set(reterr, "group_by", "group_by: more than %d tags",
				       QUERY_MAX_FILE_TAGS);
	}
	q->tags[q->n_tags++] = name;
	return 0;
}

/* Takes the names of a list: "pod,image". */
static int take_tags(const char *list, struct file_query *q, struct field_error *reterr)
{
	int e = 0;

	for (const char *p = list; !e && *p; p += *p == ',') {
		size_t n = strcspn(p, ",");
		_cleanup_free_ char *name = xstrndup(p, n);
		char *tag;

		e = query_group_parse(name, false, &tag, reterr);
		if (!e)
			e = add_tag(q, tag, reterr);
		p += n;
	}
	return e;
}

/* Whether the rows of the store are of one value of the tag each, whatever they are grouped by. */
static bool rows_have(const char *tag)
{
	return streq(tag, "thread") || streq(tag, "wait") ||
	       profile_label_of_tag(tag) != _LABEL_MAX;
}

/* Makes one tag of those by which the store groups its rows. */
static int join_tags(struct file_query *q, struct field_error *reterr)
{
	struct store_joined items[QUERY_MAX_FILE_TAGS];
	size_t n = 0;

	for (size_t i = 0; i < q->n_tags; i++) {
		if (rows_have(q->tags[i]))
			continue;
		if (q->n_tags > 1 && store_is_tag_of_samples(q->tags[i]))
			return field_error_set(reterr, "group_by",
					       "group_by: %.100s cannot be grouped by together "
					       "with other tags",
					       q->tags[i]);
		items[n++] = (struct store_joined){.tag = q->tags[i]};
	}
	if (n)
		q->group_by = n > 1 ? store_join(items, n) : xstrdup(items[0].tag);
	return 0;
}

static int take_groups(const json_t *body, struct file_query *q, struct field_error *reterr)
{
	int e = take_tags(json_str_at(body, "group_by", ""), q, reterr);

	return e ? e : join_tags(q, reterr);
}

void query_file_query_done(struct file_query *q)
{
	query_tracing_request_done(&q->tracing);
	while (q->n_tags)
		free(q->tags[--q->n_tags]);
	free(q->group_by);
	*q = (struct file_query){0};
}

static int take_file(const json_t *body, struct file_query *q, struct field_error *reterr)
{
	int e = query_body_required(body, reterr);

	if (!e)
		e = take_groups(body, q, reterr);
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
