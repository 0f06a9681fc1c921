/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that read the store. Each request is one job on a query worker, which parses the
 * body and makes the whole reply: compiling a filter's regular expressions may take a second. The
 * loop thread only sends the reply. If the queue is full, the answer is 503. If the client closes
 * the connection, its query ends early.
 */
#include "hub/api/api_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* If a query takes longer, /healthz fails. The store's own limit for a query is shorter. */
#define QUERY_LIMIT_NS (2 * 60 * NSEC_PER_SEC) /* time of one query */

struct query_job {
	struct queued queued;
	void (*make_reply)(struct query_job *q);
	struct call *call;
	struct store *store;
	struct symbols *symbols; /* NULL: no uploaded symbols */
	struct tracing_request tracing;
	struct values_request values;
	char *reply;
	size_t n_reply;
	int http;
	atomic_bool given_up; /* the client has closed the connection */
};

static void query_done(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	api_queue_ended(&q->queued);
	if (atomic_load(&q->given_up))
		api_call_free(q->call);
	else
		api_call_reply(q->call, q->http, "application/json", q->reply, q->n_reply);
	query_tracing_request_done(&q->tracing);
	query_values_request_done(&q->values);
	free(q->reply);
	free(q);
}

static void caller_left(void *arg)
{
	struct query_job *q = arg;

	atomic_store(&q->given_up, true);
	counter_add(counter("api_refused_total", "reason", "caller_left"), 1);
	if (api_queue_remove(&q->queued))
		query_done(&q->queued.job);
}

static void run(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	if (atomic_load(&q->given_up))
		return;
	q->make_reply(q);
	q->call->encoded = api_encode(q->call->accepts, &q->reply, &q->n_reply);
}

static void post(struct call *c, void (*make_reply)(struct query_job *q), bool choices)
{
	struct query_job *q = xcalloc(1, sizeof(*q));

	q->queued = (struct queued){
		.job = {.run = run,
			.done = query_done,
			.n_bytes = sizeof(*q) + c->n_body,
			.deadline_ns = QUERY_LIMIT_NS},
		.user = c->user,
		.choices = choices,
	};
	q->make_reply = make_reply;
	q->call = c;
	q->store = c->api->config.store;
	q->symbols = c->api->config.symbols;
	if (api_queue_post(c->api->queue, &q->queued) == 0) {
		http_conn_on_gone(c->conn, caller_left, q);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "queries_busy"), 1);
	q->reply = query_tracing_error("UNAVAILABLE", "too many queries are waiting; try again",
				       NULL, &q->http, &q->n_reply);
	query_done(&q->queued.job);
}

static void refuse(struct query_job *q, const struct field_error *e)
{
	q->reply = query_tracing_refused(e, &q->http, &q->n_reply);
}

/* ---- ProfileTracing ---- */

struct adding {
	struct tree *tree;
	int max_kernel_stack_depth;
};

static int add_row(const struct store_row *row, void *arg)
{
	struct adding *a = arg;

	return query_tree_add(a->tree, row, a->max_kernel_stack_depth);
}

static void make_tracing(struct query_job *q)
{
	struct store_summary s = {0};
	struct field_error e = {0};
	struct symbols_names *names = NULL;
	struct adding a;

	if (query_tracing_parse(q->call->body, q->call->n_body, &q->tracing, &e)) {
		refuse(q, &e);
		return;
	}
	q->tracing.selection->given_up = &q->given_up;
	a = (struct adding){query_tree_new(), q->tracing.max_kernel_stack_depth};
	if (q->symbols && symbols_any(q->symbols)) {
		names = symbols_names_new(q->symbols);
		query_tree_set_names(a.tree, symbols_name, names);
	}
	if (store_read(q->store, q->tracing.selection, add_row, &a, &s, &e))
		q->reply =
			query_tracing_error("FAIL", e.reason, &q->tracing, &q->http, &q->n_reply);
	else
		q->reply = query_tracing_reply(a.tree, &q->tracing, &s, &q->http, &q->n_reply);
	store_summary_done(&s);
	query_tree_free(a.tree);
	symbols_names_free(names);
}

void api_handle_tracing(struct call *c)
{
	post(c, make_tracing, false);
}

/* ---- values ---- */

struct values_adding {
	struct buf *b;
	size_t n, limit;
	bool truncated;
};

static int add_value(const char *value, uint64_t n_samples, void *arg)
{
	struct values_adding *a = arg;
	struct buf *b = a->b;

	if (a->n == a->limit) {
		a->truncated = true;
		return 0;
	}
	a->n++;
	if (b->data[b->len - 1] == '}')
		buf_putc(b, ',');
	buf_puts(b, "{\"value\":");
	buf_json_string(b, value);
	buf_printf(b, ",\"samples\":%" PRIu64 "}", n_samples);
	return 0;
}

static void make_values(struct query_job *q)
{
	const struct values_request *v = &q->values;
	_cleanup_buf_ struct buf b = {0};
	struct values_adding a = {.b = &b};
	struct field_error e = {0};
	int r = 0;

	if (query_values_parse(q->call->body, q->call->n_body, &q->values, &e)) {
		refuse(q, &e);
		return;
	}
	buf_puts(&b, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":[");
	if (v->stored) {
		v->tracing.selection->given_up = &q->given_up;
		a.limit = v->limit;
		/*
		 * One value more than the limit shows that there are more values. One row may be
		 * the row of profiles without the tag, so the query asks for two rows more.
		 */
		r = store_values(q->store, v->tracing.selection, v->tag, v->limit + 2, add_value,
				 &a, &e);
	}
	buf_printf(&b, "],\"debug\":null,\"truncated\":%s}", a.truncated ? "true" : "false");
	if (r) {
		q->reply = query_tracing_error("FAIL", e.reason, NULL, &q->http, &q->n_reply);
		return;
	}
	q->http = 200;
	q->n_reply = b.len;
	q->reply = buf_steal(&b);
}

void api_handle_values(struct call *c)
{
	post(c, make_values, true);
}

/* ---- tags ---- */

static json_t *tag_json(const struct tag_info *t)
{
	_cleanup_free_ char *help = query_tag_help(t);
	json_t *j = json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", t->name, "stored", t->stored,
			      "type", t->numeric ? "int" : "string", "same_as",
			      t->canonical ? t->canonical : "", "help", help);
	json_t *events = t->event_mask ? json_array() : NULL;
	const char *unset = query_tag_unset(t);

	for (enum event e = 0; t->event_mask && e < _EVENT_MAX; e++)
		if (t->event_mask & 1u << e)
			json_array_append_new(events, json_string(profile_event_info(e)->name));
	if (events) {
		json_object_set_new(j, "events", events);
		json_object_set_new(j, "title", json_string(t->title));
	}
	if (unset)
		json_object_set_new(j, "unset", json_string(unset));
	return j;
}

void api_handle_tags(struct call *c)
{
	json_t *list = json_array();
	const struct tag_info *t;
	size_t n;

	t = query_tag_table(&n);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, tag_json(&t[i]));
	api_call_json(c, 200,
		      json_pack("{s:s, s:s, s:o, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				"result", list, "debug"));
}
