/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The question why a selection has no data. A query worker parses it and asks the store. Then, on
 * the loop thread, the API server is asked about the namespace and the pod, and the targets' status
 * is read.
 */
#include "hub/api/api_private.h"
#include "hub/why/why.h"

#include <stdlib.h>

#define WHY_LIMIT_NS (2 * 60 * NSEC_PER_SEC) /* if it takes longer, /healthz fails */

struct why_job {
	struct queued queued;
	struct call *call;
	struct why_question question;
	json_t *of_store; /* NULL: the question cannot be answered; error says why */
	struct field_error error;
	bool refused; /* the body is wrong */
	struct why_look *look;
	atomic_bool given_up; /* the client has closed the connection */
};

/* Frees the job. The caller has replied, or freed the call. */
static void end(struct why_job *w)
{
	why_look_free(w->look);
	why_question_done(&w->question);
	json_decref(w->of_store);
	free(w);
}

static void run(struct job *job)
{
	struct why_job *w = (struct why_job *)job;
	const struct call *c = w->call;

	if (atomic_load(&w->given_up))
		return;
	if (why_parse(c->body, c->n_body, &w->question, &w->error)) {
		w->refused = true;
		return;
	}
	w->question.tracing.selection->given_up = &w->given_up;
	why_of_store(c->api->config.store, &w->question, (int64_t)(now_wall_ns() / NSEC_PER_SEC),
		     &w->of_store, &w->error);
}

static void reply(struct why_job *w, json_t *of_cluster, const struct why_seen *seen)
{
	struct call *c = w->call;
	json_t *reasons = why_in_order(of_cluster, TAKE_PTR(w->of_store), seen);

	http_conn_on_gone(c->conn, NULL, NULL);
	end(w);
	api_call_json(c, 200,
		      json_pack("{s:s, s:s, s:o, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				"result", reasons, "debug"));
}

static void seen(const struct why_seen *seen, void *arg)
{
	struct why_job *w = arg;
	const struct api_config *f = &w->call->api->config;
	_cleanup_json_ json_t *targets = f->targets ? f->targets(f->targets_arg) : NULL;
	const struct why_cluster cluster = {targets, seen, f->ns, f->opt_in_required};

	reply(w, why_of_cluster(&w->question, &cluster), seen);
}

static void fail(struct why_job *w)
{
	struct call *c = w->call;
	_cleanup_free_ char *body = NULL;
	size_t n;
	int http;

	body = w->refused ? query_tracing_refused(&w->error, &http, &n)
			  : query_tracing_error("FAIL", w->error.reason, NULL, &http, &n);
	http_conn_on_gone(c->conn, NULL, NULL);
	end(w);
	api_call_reply(c, http, "application/json", body, n);
}

static void leave(struct why_job *w)
{
	api_call_free(w->call);
	end(w);
}

static void store_asked(struct job *job)
{
	struct why_job *w = (struct why_job *)job;
	const struct api *a = w->call->api;

	api_queue_ended(&w->queued);
	if (atomic_load(&w->given_up))
		leave(w);
	else if (!w->of_store)
		fail(w);
	else if (why_has_data(w->of_store))
		reply(w, json_array(), NULL);
	else if (a->config.kube)
		w->look = why_look_new(a->loop, a->config.kube, &w->question, seen, w);
	else
		reply(w, why_of_local(&w->question), NULL);
}

static void caller_left(void *arg)
{
	struct why_job *w = arg;

	atomic_store(&w->given_up, true);
	counter_add(counter("api_refused_total", "reason", "caller_left"), 1);
	if (w->look || api_queue_remove(&w->queued))
		leave(w);
}

void api_handle_why(struct call *c)
{
	struct why_job *w = xcalloc(1, sizeof(*w));

	w->queued = (struct queued){
		.job = {.run = run,
			.done = store_asked,
			.n_bytes = sizeof(*w) + c->n_body,
			.deadline_ns = WHY_LIMIT_NS},
		.user = c->user,
	};
	w->call = c;
	if (api_queue_post(c->api->queue, &w->queued) == 0) {
		http_conn_on_gone(c->conn, caller_left, w);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "queries_busy"), 1);
	free(w);
	api_call_error(c, "UNAVAILABLE", "too many queries are waiting; try again");
}
