/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose data a user may see who may not see all of it. A query worker finds the namespaces of which
 * the answer may have rows: those that the request names, or else those in the store. Then, on the
 * loop thread, the API server is asked which of them the user may see, and the request's own job
 * goes into the queue. While the API server is asked, no worker waits.
 */
#include "hub/api/query_job.h"

#include <stdlib.h>

#define MAX_ASKED 1000 /* namespaces of one request */
#define MAX_NAMED 5    /* in a note */

struct scope_job {
	struct query_job q;
	const struct query_kind *then; /* of the request */
	struct query_names names;
	bool named; /* the request names them */
	size_t n_unasked;
	struct asking *asking;
};

/* ---- on a worker: which namespaces ---- */

static void take(const char *ns, void *arg)
{
	struct scope_job *j = arg;

	if (j->names.n < MAX_ASKED)
		query_names_add(&j->names, ns);
	else
		j->n_unasked++;
}

/* Whether the body, or the parameters of a GET, name namespaces. */
static bool names_of_request(const struct call *c, struct query_names *ret)
{
	struct field_error e;
	_cleanup_free_ char *made = c->n_body ? NULL : query_parameters(c->parameters, &e);

	if (c->n_body)
		return query_names_of_body(c->body, c->n_body, ret);
	return made && query_names_of_body(made, strlen(made), ret);
}

static void find_names(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;
	struct field_error e = {0};

	j->named = !j->then->offers && names_of_request(q->call, &j->names);
	for (; j->names.n > MAX_ASKED; j->n_unasked++)
		free(j->names.names[--j->names.n]);
	if (!j->named && store_namespaces(q->store, take, j, &e))
		api_query_fail(q, &e);
}

/* ---- on the loop thread: which of them the user may see ---- */

/* "a, b and 3 more": those with may[i] == seen. NULL: there are none. The caller frees the text. */
static char *list(const struct query_names *n, const bool *may, bool seen)
{
	struct buf b = {0};
	size_t all = 0, told = 0;

	for (size_t i = 0; i < n->n; i++)
		all += may[i] == seen;
	for (size_t i = 0; i < n->n && told < MAX_NAMED; i++) {
		_cleanup_free_ char *name = utf8_shorten(n->names[i], 64);

		if (may[i] != seen)
			continue;
		buf_printf(&b, "%s%s", told ? ", " : "", name);
		told++;
	}
	if (all > told)
		buf_printf(&b, " and %zu more", all - told);
	return all ? buf_steal(&b) : NULL;
}

static char *note_of(const struct scope_job *j, const bool *may)
{
	_cleanup_free_ char *names = list(&j->names, may, !j->named);
	_cleanup_free_ char *more =
		j->n_unasked ? xasprintf("; %zu more were not checked, because a request may name "
					 "or meet at most %d: name those that you want (pod_ns)",
					 j->n_unasked, MAX_ASKED)
			     : xstrdup("");

	if (j->named && !names && !j->n_unasked)
		return NULL;
	if (j->named)
		return xasprintf("you may not see profiles of the namespaces %s%s",
				 names ?: "that follow", more);
	return xasprintf("you do not see all namespaces: this has those that you may see (%s)%s",
			 names ?: "none", more);
}

/* Refuses a user who may see none of the namespaces in the store. */
static void refuse(struct scope_job *j)
{
	static const char text[] =
		"this user may see the profiles of no namespace. In a namespace, that needs the "
		"verb get on profiles.podflame.io: a RoleBinding to the ClusterRole view or "
		"podflame-profiles-reader";

	counter_add(counter("api_refused_total", "reason", "not_allowed"), 1);
	j->q.reply = query_tracing_error("FORBIDDEN", text, NULL, &j->q.http, &j->q.n_reply);
	api_query_end(&j->q);
}

static void found(int status, const char *error, const bool *may, void *arg)
{
	struct scope_job *j = arg;
	struct call *c = j->q.call;
	struct scope *s = &c->scope;

	if (status != 200) {
		counter_add(counter("api_refused_total", "reason", "sign_in_unavailable"), 1);
		j->q.reply =
			query_tracing_error("UNAVAILABLE", error, NULL, &j->q.http, &j->q.n_reply);
		api_query_end(&j->q);
		return;
	}
	s->namespaces = xcalloc(j->names.n + 1, sizeof(char *));
	for (size_t i = 0; i < j->names.n; i++)
		if (may[i])
			s->namespaces[s->n_namespaces++] = xstrdup(j->names.names[i]);
	if (!j->named && j->names.n && !s->n_namespaces) {
		refuse(j);
		return;
	}
	c->scope_note = note_of(j, may);
	c->has_scope = true;
	api_query_hand_over(&j->q, j->then);
}

static void ask(struct query_job *q)
{
	static const struct gate_right right = {"get", "profiles"};
	struct scope_job *j = (struct scope_job *)q;

	api_queue_ended(&q->queued);
	api_rights_ask(q->call->api->gate, q->call->user_info, &right, j->names.names, j->names.n,
		       found, j, &j->asking);
}

static void scope_done(struct query_job *q)
{
	struct scope_job *j = (struct scope_job *)q;

	api_rights_end(j->asking);
	query_names_done(&j->names);
}

void api_scope_find(struct call *c, const struct query_kind *then)
{
	static const struct query_kind kind = {.bytes = sizeof(struct scope_job),
					       .make_reply = find_names,
					       .go_on = ask,
					       .done = scope_done,
					       .choices = true};
	struct query_job *q = api_query_new(c, &kind);

	((struct scope_job *)q)->then = then;
	api_query_queue(q);
}
