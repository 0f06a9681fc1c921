/* SPDX-License-Identifier: Apache-2.0 */
/* Which values the tags of a selection have. */
#include "hub/api/query_job.h"

#include <inttypes.h>

struct values_job {
	struct query_job q;
	struct values_request request;
};
struct choices_job {
	struct query_job q;
	struct choices_request request;
};

/* The values of one tag, as JSON without the brackets around them. */
struct tag_values {
	struct buf json;
	size_t n, limit;
	bool truncated;
};
struct choices_adding {
	const struct store_choice *choices;
	struct tag_values **of; /* for each choice */
};

/* One value more than the limit shows that there are more values. */
static int add_value(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct choices_adding *a = arg;
	struct tag_values *v = a->of[c - a->choices];

	if (v->n == v->limit) {
		v->truncated = true;
		return 0;
	}
	buf_puts(&v->json, v->n++ ? ",{\"value\":" : "{\"value\":");
	buf_json_string(&v->json, value);
	buf_printf(&v->json, ",\"samples\":%" PRIu64 "}", n_samples);
	return 0;
}

/* Reads the values of the tags into ret. A tag that is not stored has none. */
static int read_values(struct query_job *q, const struct values_request *tags, size_t n,
		       struct tag_values *ret, struct field_error *reterr)
{
	struct store_choice choices[QUERY_MAX_CHOICES];
	struct tag_values *of[QUERY_MAX_CHOICES];
	struct choices_adding a = {choices, of};
	size_t n_choices = 0;
	int e;

	for (size_t i = 0; i < n; i++) {
		ret[i].limit = tags[i].limit;
		ret[i].json.budget = &q->bytes->budget;
		if (!tags[i].stored)
			continue;
		tags[i].tracing.selection->given_up = &q->given_up;
		of[n_choices] = &ret[i];
		choices[n_choices++] = (struct store_choice){tags[i].tag, tags[i].tracing.selection,
							     tags[i].limit + 1};
	}
	e = n_choices ? store_choices(q->store, &q->call->scope, choices, n_choices, add_value, &a,
				      reterr)
		      : 0;
	for (size_t i = 0; i < n; i++)
		q->n_rows += ret[i].n;
	return e;
}

#define SUCCESS "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":"

/* Ends an answer, with a note if it lacks what the user may not see. */
static void put_end(struct buf *b, const struct call *c)
{
	if (c->scope_note) {
		buf_puts(b, ",\"notes\":[");
		buf_json_string(b, c->scope_note);
		buf_putc(b, ']');
	}
	buf_putc(b, '}');
}

static void make_values(struct query_job *q)
{
	struct values_request *r = &((struct values_job *)q)->request;
	struct tag_values v = {0};
	_cleanup_buf_ struct buf b = {.budget = &q->bytes->budget};
	struct field_error e = {0};

	if (query_values_parse(q->call->body, q->call->n_body, r, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	if (read_values(q, r, 1, &v, &e)) {
		api_query_fail(q, &e);
	} else {
		buf_printf(&b, SUCCESS "[%s],\"debug\":null,\"truncated\":%s", v.json.data ?: "",
			   v.truncated ? "true" : "false");
		put_end(&b, q->call);
		api_query_answer(q, &b);
	}
	buf_done(&v.json);
}

static void put_choices(struct buf *b, const struct call *call, const struct choices_request *c,
			const struct tag_values *v)
{
	buf_puts(b, SUCCESS "{");
	for (size_t i = 0; i < c->n_tags; i++) {
		buf_puts(b, i ? "," : "");
		buf_json_string(b, c->tags[i].tag);
		buf_printf(b, ":{\"values\":[%s],\"truncated\":%s}", v[i].json.data ?: "",
			   v[i].truncated ? "true" : "false");
	}
	buf_puts(b, "},\"debug\":null");
	put_end(b, call);
}

static void make_choices(struct query_job *q)
{
	struct choices_request *r = &((struct choices_job *)q)->request;
	struct tag_values v[QUERY_MAX_CHOICES] = {0};
	_cleanup_buf_ struct buf b;
	struct field_error e = {0};

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	b.budget = &q->bytes->budget;
	if (query_choices_parse(q->call->body, q->call->n_body, r, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	if (read_values(q, r->tags, r->n_tags, v, &e)) {
		api_query_fail(q, &e);
	} else {
		put_choices(&b, q->call, r, v);
		if (b.failed) {
			field_error_set(&e, "limit", "the answer is too large: ask for less");
			api_query_fail(q, &e);
		} else {
			api_query_answer(q, &b);
		}
	}
	for (size_t i = 0; i < r->n_tags; i++)
		buf_done(&v[i].json);
}

static void values_done(struct query_job *q)
{
	query_values_request_done(&((struct values_job *)q)->request);
}

void api_handle_values(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct values_job),
					       .make_reply = make_values,
					       .done = values_done,
					       .choices = true};

	api_query_post(c, &kind);
}

static void choices_done(struct query_job *q)
{
	query_choices_request_done(&((struct choices_job *)q)->request);
}

void api_handle_choices(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct choices_job),
					       .make_reply = make_choices,
					       .done = choices_done,
					       .choices = true,
					       .offers = true};

	api_query_post(c, &kind);
}
