/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The question why a selection has no data. A query worker parses it and asks the store. Then, on
 * the loop thread, the API server is asked about the namespace and the pod, and the targets' status
 * is read. Meanwhile the question keeps its place among the queries that run: so the queue also
 * limits how many questions wait for the API server.
 */
#include "hub/api/query_job.h"
#include "hub/why/why.h"

struct why_job {
	struct query_job q;
	struct why_question question;
	json_t *of_store; /* NULL: the question cannot be answered */
	struct why_look *look;
};

static void reply(struct why_job *w, json_t *of_cluster, const struct why_seen *seen)
{
	api_query_json(&w->q,
		       json_pack("{s:s, s:s, s:o, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				 "result", why_in_order(of_cluster, TAKE_PTR(w->of_store), seen),
				 "debug"));
}

static void make_why(struct query_job *q)
{
	struct why_job *w = (struct why_job *)q;
	struct field_error e = {0};

	if (why_parse(q->call->body, q->call->n_body, &q->call->scope, &w->question, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	w->question.tracing.selection->given_up = &q->given_up;
	if (why_of_store(q->store, &w->question, (int64_t)(now_wall_ns() / NSEC_PER_SEC),
			 &w->of_store, &e))
		api_query_fail(q, &e);
	else if (why_has_data(w->of_store))
		reply(w, json_array(), NULL);
	else if (!q->call->api->config.kube)
		reply(w, why_of_local(&w->question), NULL);
}

static void seen(const struct why_seen *seen, void *arg)
{
	struct why_job *w = arg;
	const struct api_config *f = &w->q.call->api->config;
	_cleanup_json_ json_t *targets = f->targets ? f->targets(f->targets_arg) : NULL;
	const struct why_cluster cluster = {targets, seen, f->ns, f->opt_in_required};

	reply(w, why_of_cluster(&w->question, &cluster), seen);
	api_query_end(&w->q);
}

static void look(struct query_job *q)
{
	struct why_job *w = (struct why_job *)q;
	const struct api *a = q->call->api;

	w->look = why_look_new(a->loop, a->config.kube, &w->question, seen, w);
}

static void why_done(struct query_job *q)
{
	struct why_job *w = (struct why_job *)q;

	why_look_free(w->look);
	why_question_done(&w->question);
	json_decref(w->of_store);
}

void api_handle_why(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct why_job),
					       .make_reply = make_why,
					       .go_on = look,
					       .offers = true,
					       .done = why_done};

	api_query_post(c, &kind);
}
