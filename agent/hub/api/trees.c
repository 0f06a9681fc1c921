/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are made of a tree of the selection: ProfileTracing, trees as columns, groups. */
#include "hub/api/query_job.h"

#include <stdlib.h>

struct adding {
	struct tree *tree;
	int max_kernel_stack_depth;
};

static int add_row(const struct store_row *row, void *arg)
{
	struct adding *a = arg;

	return query_tree_add(a->tree, row, a->max_kernel_stack_depth);
}

int api_query_tree(struct query_job *q, struct selection *s, int max_kernel_stack_depth,
		   struct tree *t, struct store_summary *ret, struct field_error *reterr)
{
	struct adding a = {t, max_kernel_stack_depth};
	struct symbols_names *names = api_query_names(q, s);
	char *unread;
	int e;

	s->given_up = &q->given_up;
	query_tree_set_budget(t, &q->bytes->budget);
	query_tree_set_names(t, names ? symbols_name : NULL, names);
	e = store_read(q->store, &q->call->scope, s, add_row, &a, ret, reterr);
	unread = names ? symbols_names_unread(names) : NULL;
	if (unread) {
		free(q->unread);
		q->unread = unread;
	}
	symbols_names_free(names);
	return e;
}

/* ---- ProfileTracing ---- */

struct tracing_job {
	struct query_job q;
	struct tracing_request request;
};

/* Of uploaded symbols that cannot be read, the request gets a note. */
static int read_tree(struct query_job *q, struct tracing_request *r, int max_kernel_stack_depth,
		     struct tree *t, struct store_summary *ret, struct field_error *reterr)
{
	int e;

	free(TAKE_PTR(q->unread)); /* of the request before this one */
	e = api_query_tree(q, r->selection, max_kernel_stack_depth, t, ret, reterr);
	if (q->unread)
		query_note_add(r, q->unread);
	return e;
}

static void make_tracing(struct query_job *q)
{
	struct tracing_request *r = &((struct tracing_job *)q)->request;
	struct store_summary s = {0};
	struct field_error e = {0};
	struct tree *t;

	if (query_tracing_parse(q->call->body, q->call->n_body, r, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	r->scope_note = q->call->scope_note;
	r->budget = &q->bytes->budget;
	t = query_tree_new(&query_deepflow_form);
	if (read_tree(q, r, r->max_kernel_stack_depth, t, &s, &e))
		q->reply = query_tracing_error("FAIL", e.reason, r, &q->http, &q->n_reply);
	else
		q->reply = query_tracing_reply(t, r, &s, &q->http, &q->n_reply);
	q->n_rows = s.n_rows;
	store_summary_done(&s);
	query_tree_free(t);
}

static void tracing_done(struct query_job *q)
{
	query_tracing_request_done(&((struct tracing_job *)q)->request);
}

void api_handle_tracing(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct tracing_job),
					       .make_reply = make_tracing,
					       .done = tracing_done};

	api_query_post(c, &kind);
}

/* ---- trees as columns ---- */

struct tree_job {
	struct query_job q;
	struct tree_query request;
	struct tree *tree;
	struct store_summary summaries[2]; /* of the selection, and of the one before it */
};

/* Reads the selection, and then the one before it, if there is one. */
static int read_trees(struct tree_job *j, struct field_error *reterr)
{
	int e = read_tree(&j->q, &j->request.tracing, -1, j->tree, &j->summaries[0], reterr);

	if (e || !j->request.before.selection)
		return e;
	query_tree_before(j->tree);
	return read_tree(&j->q, &j->request.before, -1, j->tree, &j->summaries[1], reterr);
}

/* Whether the answer may have several processes. The root of one process has its name. */
static bool has_processes(const struct tree_query *q)
{
	return !*q->tracing.app_service || (q->before.selection && !*q->before.app_service);
}

/* preview: a preview of it may be asked for. */
static struct tree *tree_for(const struct tree_query *q, bool preview)
{
	return query_tree_new(&(struct tree_form){.columns = true,
						  .by_line = q->by_line,
						  .grouped = q->group_by != NULL,
						  .by_process = has_processes(q),
						  .preview = preview,
						  .max_nodes = q->max_nodes});
}

static void reply_columns(struct tree_job *j, bool preview)
{
	j->q.reply = query_columns_reply(j->tree, &j->request, &j->summaries[0],
					 j->request.before.selection ? &j->summaries[1] : NULL,
					 preview, &j->q.http, &j->q.n_reply);
}

/* The tree is freed here: that takes too long for the loop thread. */
static void reply_whole(struct tree_job *j)
{
	reply_columns(j, false);
	j->tree = query_tree_free(j->tree);
}

/*
 * A comparison gets no preview, because a node that is small in both selections together may be
 * large in one; an answer of fewer nodes neither, because its preview could have more.
 */
static bool wants_preview(const struct tree_query *q)
{
	return q->preview && !q->before.selection && q->max_nodes == QUERY_MAX_COLUMNS;
}

/* A preview is a line, and the whole follows it. */
static void make_tree(struct query_job *q)
{
	struct tree_job *j = (struct tree_job *)q;
	struct field_error e = {0};

	if (query_tree_parse(q->call->body, q->call->n_body, &j->request, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	j->request.tracing.scope_note = j->request.before.scope_note = q->call->scope_note;
	j->request.tracing.budget = &q->bytes->budget;
	j->tree = tree_for(&j->request, wants_preview(&j->request));
	if (read_trees(j, &e)) {
		api_query_fail(q, &e);
		return;
	}
	q->n_rows = j->summaries[0].n_rows + j->summaries[1].n_rows;
	if (query_columns_has_preview(j->tree)) {
		reply_columns(j, true);
		q->has_rest = q->http == 200;
		q->n_kept = query_tree_bytes(j->tree);
		q->content_type = q->has_rest ? "application/x-ndjson" : NULL;
	} else {
		reply_whole(j);
	}
}

static void make_rest_of_tree(struct query_job *q)
{
	reply_whole((struct tree_job *)q);
}

static void tree_done(struct query_job *q)
{
	struct tree_job *j = (struct tree_job *)q;

	query_tree_free(j->tree);
	for (size_t i = 0; i < ARRAY_SIZE(j->summaries); i++)
		store_summary_done(&j->summaries[i]);
	query_tree_query_done(&j->request);
}

void api_handle_tree(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct tree_job),
					       .make_reply = make_tree,
					       .make_rest = make_rest_of_tree,
					       .done = tree_done};

	api_query_post(c, &kind);
}

/* ---- groups ---- */

struct groups_job {
	struct query_job q;
	struct groups_query request;
};

static void make_groups(struct query_job *q)
{
	struct groups_query *r = &((struct groups_job *)q)->request;
	struct store_summary s = {0};
	struct field_error e = {0};
	struct tree *t;

	if (query_groups_parse(q->call->body, q->call->n_body, r, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	r->tree.tracing.scope_note = q->call->scope_note;
	t = tree_for(&r->tree, false);
	if (read_tree(q, &r->tree.tracing, -1, t, &s, &e)) {
		api_query_fail(q, &e);
	} else {
		q->http = 200;
		q->reply = query_groups_reply(t, r, &s, &q->n_reply);
	}
	q->n_rows = s.n_rows;
	store_summary_done(&s);
	query_tree_free(t);
}

static void groups_done(struct query_job *q)
{
	query_groups_done(&((struct groups_job *)q)->request);
}

void api_handle_groups(struct call *c)
{
	static const struct query_kind kind = {
		.bytes = sizeof(struct groups_job), .make_reply = make_groups, .done = groups_done};

	api_query_post(c, &kind);
}
