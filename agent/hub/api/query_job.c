/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/api/query_job.h"

#include <stdlib.h>

/* If a query takes longer, /healthz fails. The store's own limit for a query is shorter. */
#define QUERY_LIMIT_NS (2 * 60 * NSEC_PER_SEC) /* time of one query */
#define NAMES_NS       (30 * NSEC_PER_SEC)     /* of it, to read files of uploaded symbols */

static void job_free(struct query_job *q)
{
	q->kind->done(q);
	api_encoder_free(q->encoder);
	json_decref(q->audit);
	api_reply_bytes_free(q->bytes);
	free(q->reply);
	free(q->unread);
	free(q);
}

static void cut_reply(struct query_job *q)
{
	counter_add(counter("api_refused_total", "reason", "answer_cut"), 1);
	log_warn("api: an answer of %s ends before its end: %s", q->call->path, q->cut);
	api_call_cut(q->call);
}

void api_query_end(struct query_job *q)
{
	api_queue_ended(&q->queued);
	api_audit_end(q);
	if (!atomic_load(&q->given_up))
		http_conn_on_sent(q->call->conn, api_reply_bytes_free, TAKE_PTR(q->bytes));
	if (atomic_load(&q->given_up))
		api_call_free(q->call);
	else if (q->cut)
		cut_reply(q);
	else if (q->begun)
		api_call_reply_last(q->call, q->reply, q->n_reply);
	else
		api_call_reply(q->call, q->http, q->content_type ?: "application/json", q->reply,
			       q->n_reply);
	job_free(q);
}

void api_query_hand_over(struct query_job *q, const struct query_kind *then)
{
	struct call *c = q->call;

	api_queue_ended(&q->queued);
	http_conn_on_gone(c->conn, NULL, NULL);
	job_free(q);
	api_query_post(c, then);
}

/* The query waits for a worker as others do, but is not refused any more. */
static void piece_taken(void *arg)
{
	struct query_job *q = arg;

	q->paused = false;
	q->queued.begun = true;
	assert_se(api_queue_post(q->call->api->queue, &q->queued) == 0);
}

/* Sends a piece of the reply, and lets a worker make the next one. */
static void send_piece(struct query_job *q)
{
	q->paused = q->kind->paced;
	if (q->paused)
		http_conn_on_taken(q->call->conn, piece_taken, q);
	if (q->begun)
		api_call_reply_more(q->call, q->reply, q->n_reply);
	else
		api_call_reply_first(q->call, q->http, q->content_type ?: "application/json",
				     q->reply, q->n_reply);
	q->begun = true;
	free(TAKE_PTR(q->reply));
	q->has_rest = false;
	if (q->paused)
		api_queue_ended(&q->queued);
	else
		api_queue_again(&q->queued);
}

static void run_done(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	if (q->has_rest && !atomic_load(&q->given_up)) {
		send_piece(q);
		return;
	}
	if (!q->reply && !q->queued.queue && q->begun) /* the queue is freed */
		q->cut = "the hub is stopping";
	else if (!q->reply && !q->queued.queue)
		api_query_error(q, "UNAVAILABLE", "the hub is stopping");
	q->goes_on = q->kind->go_on && !q->reply && !atomic_load(&q->given_up);
	if (q->goes_on)
		q->kind->go_on(q);
	else
		api_query_end(q);
}

static void caller_left(void *arg)
{
	struct query_job *q = arg;

	atomic_store(&q->given_up, true);
	counter_add(counter("api_refused_total", "reason", "caller_left"), 1);
	if (q->goes_on || q->paused || api_queue_remove(&q->queued))
		api_query_end(q);
}

/* If there was no room for the reply, an error takes its place. */
static void check_room(struct query_job *q)
{
	if (!q->bytes->refused)
		return;
	counter_add(counter("api_refused_total", "reason", "user_reply_bytes"), 1);
	free(q->reply);
	q->has_rest = false;
	q->content_type = NULL;
	q->call->file_name = NULL;
	api_query_error(q, "TOO_MANY_REQUESTS",
			"your answers take too much of the hub's memory for answers: read those "
			"that are under way, ask for less, or try again");
}

static void make_rest(struct query_job *q)
{
	size_t sent = q->bytes->held - q->n_kept;

	q->kind->make_rest(q);
	if (q->cut)
		return;
	check_room(q);
	api_encoder_add(q->encoder, &q->reply, &q->n_reply, !q->has_rest);
	if (!q->has_rest)
		api_reply_bytes_keep(q->bytes, sent + q->n_reply);
}

static void run(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	if (atomic_load(&q->given_up))
		return;
	if (q->begun) {
		make_rest(q);
		return;
	}
	if (q->call->api->config.audit && !q->kind->no_audit)
		api_audit_begin(q);
	q->kind->make_reply(q);
	check_room(q);
	if (!q->has_rest) {
		q->call->encoded = api_encode(q->call->accepts, &q->reply, &q->n_reply);
		api_reply_bytes_keep(q->bytes, q->n_reply);
		return;
	}
	q->call->encoded = q->call->accepts;
	q->encoder = api_encoder_new(q->call->accepts);
	api_encoder_add(q->encoder, &q->reply, &q->n_reply, false);
	api_reply_bytes_keep(q->bytes, q->n_reply + q->n_kept);
}

struct query_job *api_query_new(struct call *c, const struct query_kind *kind)
{
	struct query_job *q = xcalloc(1, kind->bytes);

	q->queued = (struct queued){
		.job = {.run = run,
			.done = run_done,
			.n_bytes = kind->bytes + c->n_body,
			.deadline_ns = QUERY_LIMIT_NS},
		.user = c->user,
		.choices = kind->choices,
	};
	q->kind = kind;
	q->call = c;
	q->store = c->api->config.store;
	q->bytes = api_reply_bytes_new(c->api->shares, c->user);
	return q;
}

void api_query_queue(struct query_job *q)
{
	struct call *c = q->call;

	if (api_queue_post(c->api->queue, &q->queued) == 0) {
		http_conn_on_gone(c->conn, caller_left, q);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "queries_busy"), 1);
	api_query_error(q, "UNAVAILABLE", "too many queries are waiting; try again");
	api_query_end(q);
}

void api_query_post(struct call *c, const struct query_kind *kind)
{
	if (c->scope.all || c->has_scope)
		api_query_queue(api_query_new(c, kind));
	else
		api_scope_find(c, kind);
}

void api_query_error(struct query_job *q, const char *status, const char *description)
{
	q->reply = api_error_text(q->call, status, description, &q->http, &q->n_reply);
}

void api_query_refuse(struct query_job *q, const struct field_error *e)
{
	q->reply = query_tracing_refused(e, &q->http, &q->n_reply);
}

void api_query_fail(struct query_job *q, const struct field_error *e)
{
	api_query_error(q, "FAIL", e->reason);
}

void api_query_answer(struct query_job *q, struct buf *b)
{
	q->http = 200;
	q->n_reply = b->len;
	q->reply = buf_steal(b);
}

void api_query_json(struct query_job *q, json_t *body)
{
	q->http = 200;
	q->reply = api_json_text(body, &q->http, &q->n_reply);
}

struct symbols_names *api_query_names(const struct query_job *q, struct selection *sel)
{
	struct symbols *s = q->call->api->config.symbols;
	struct symbols_names *names;

	if (!s || (!symbols_any(s) && !sel->unnamed_by_start))
		return NULL;
	names = symbols_names_new(s);
	if (sel->unnamed_by_start)
		symbols_names_by_start(names);
	sel->apart = symbols_names_namespaces(names, &sel->n_apart);
	symbols_names_wait(names, &(struct store_wait){now_mono_ns() + NAMES_NS, &q->given_up});
	return names;
}
