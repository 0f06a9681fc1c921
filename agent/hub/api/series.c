/* SPDX-License-Identifier: Apache-2.0 */
/* The value of a selection over time. */
#include "hub/api/query_job.h"

struct series_job {
	struct query_job q;
	struct series_query request;
};

static void make_series(struct query_job *q)
{
	struct series_query *r = &((struct series_job *)q)->request;
	struct store_series s = {0};
	struct field_error e = {0};

	if (query_series_parse(q->call->body, q->call->n_body, r, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	r->tracing.scope_note = q->call->scope_note;
	r->tracing.budget = &q->bytes->budget;
	r->tracing.selection->given_up = &q->given_up;
	if (store_series(q->store, &q->call->scope,
			 &(struct series_request){r->tracing.selection, r->step_s, r->group_by,
						  r->limit},
			 &s, &e)) {
		api_query_fail(q, &e);
		return;
	}
	q->http = 200;
	q->n_rows = s.n_groups;
	q->reply = query_series_reply(r, &s, &q->n_reply);
	store_series_done(&s);
}

static void series_done(struct query_job *q)
{
	query_series_done(&((struct series_job *)q)->request);
}

void api_handle_series(struct call *c)
{
	static const struct query_kind kind = {
		.bytes = sizeof(struct series_job), .make_reply = make_series, .done = series_done};

	api_query_post(c, &kind);
}
