/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about uploaded symbol files. A user without the right in all namespaces names one, and
 * the API server is asked about the right there. The list has what the user may see. Then each
 * request is one job on the worker that reads and writes the files.
 */
#include "hub/api/api_private.h"

#include <stdlib.h>

/* The longest job is an upload that ClickHouse takes slowly: 7 minutes. */
#define UPLOAD_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if a job takes longer, /healthz fails */

struct symbols_job {
	struct job job;
	struct call *call;
	struct symbols *symbols;
	const char *build_id; /* points into call->path */
	char *ns;	      /* the namespace of the files; NULL: all */
	json_t *list;
	int r;
	struct field_error error;
	bool given_up; /* the client has closed the connection */
	/* while the API server is asked for the rights */
	struct query_names names;
	struct asking *asking;
	void (*then)(struct symbols_job *j); /* what comes after it */
};

static void free_job(struct symbols_job *j)
{
	json_decref(j->list);
	query_names_done(&j->names);
	free(j->ns);
	free(j);
}

static void refuse(struct symbols_job *j, const char *status, const char *text)
{
	api_call_error(j->call, status, text);
	free_job(j);
}

/* ---- in which namespaces the user has the right ---- */

#define LIST_NOTE                                                                                  \
	"you do not see the symbols of all namespaces: this has those of namespaces where you "    \
	"have the verb get on symbols.podflame.io"

static void forbid(struct symbols_job *j)
{
	const char *verb = j->call->route->right->verb;
	_cleanup_free_ char *text =
		j->ns ? xasprintf("this user may not do that in the namespace %s: a RoleBinding "
				  "there to the ClusterRole podflame-symbols-uploader is needed "
				  "(verb %s on symbols.podflame.io)",
				  j->ns, verb)
		      : xasprintf("this user may not do that for all namespaces: name one with the "
				  "parameter namespace, and have a RoleBinding there to the "
				  "ClusterRole podflame-symbols-uploader (verb %s on "
				  "symbols.podflame.io)",
				  verb);

	counter_add(counter("api_refused_total", "reason", "not_allowed"), 1);
	refuse(j, "FORBIDDEN", text);
}

static void found(int status, const char *error, const enum may_see *may, void *arg)
{
	struct symbols_job *j = arg;
	struct scope *s = &j->call->scope;
	bool more = false;

	if (status != 200) {
		counter_add(counter("api_refused_total", "reason", "sign_in_unavailable"), 1);
		refuse(j, "UNAVAILABLE", error);
		return;
	}
	s->places = xcalloc(j->names.n + 1, sizeof(char *));
	for (size_t i = 0; i < j->names.n; i++) {
		more |= may[i] == MAY_NOT_KNOWN;
		if (may[i] == MAY_SEE)
			s->places[s->n_places++] = xstrdup(j->names.names[i]);
	}
	if (j->ns && !s->n_places) {
		forbid(j);
		return;
	}
	if (!j->ns)
		j->call->scope_note =
			xstrdup(more ? LIST_NOTE "; some were not checked yet: ask again, or name "
						 "one (parameter namespace)"
				     : LIST_NOTE);
	j->then(j);
}

/* Asks for the rights in j->names, and then calls then. */
static void ask(struct symbols_job *j, void (*then)(struct symbols_job *j))
{
	const struct call *c = j->call;

	j->then = then;
	api_rights_ask(c->api->gate, c->user_info, c->route->right, j->names.names, j->names.n,
		       found, j, &j->asking);
}

/* Reads the parameter namespace=NAME, of which each character may stand in a URL as it is. */
static int parse(struct symbols_job *j)
{
	static const char name[] = "namespace=";
	const char *text = j->call->parameters;

	if (!*text)
		return 0;
	if (!str_has_prefix(text, name))
		return field_error_set(&j->error, "parameters",
				       "'%.100s' is not namespace=NAME, the only one", text);
	j->ns = xstrdup(text + strlen(name));
	return symbols_check_namespace(j->ns, &j->error);
}

/* Begins a request: `then` is called when it is known that the user has the right. */
static void begin(struct call *c, void (*then)(struct symbols_job *j))
{
	struct symbols_job *j = xcalloc(1, sizeof(*j));
	_cleanup_free_ char *text = NULL;

	*j = (struct symbols_job){.call = c,
				  .symbols = c->api->config.symbols,
				  .build_id = strrchr(c->path, '/') + 1};
	if (parse(j)) {
		text = xasprintf("%s: %s", j->error.path, j->error.reason);
		refuse(j, "INVALID_POST_DATA", text);
	} else if (!j->symbols) {
		refuse(j, "UNAVAILABLE", "symbols are not kept here");
	} else if (store_scope_has_own(&c->scope)) {
		then(j);
	} else if (j->ns) {
		query_names_add(&j->names, j->ns);
		ask(j, then);
	} else if (streq(c->route->method, "GET")) {
		then(j); /* the list says about which namespaces to ask */
	} else {
		forbid(j);
	}
}

static void head_allowed(struct symbols_job *j)
{
	struct call *c = j->call;

	free_job(j);
	api_accept_upload(c);
}

void api_handle_symbols_head(struct call *c)
{
	begin(c, head_allowed);
}

/* ---- the jobs ---- */

static void reply(struct symbols_job *j)
{
	_cleanup_free_ char *why = xasprintf("%s: %s", j->error.path, j->error.reason);

	if (!j->r)
		api_call_json(j->call, 200,
			      json_pack("{s:s, s:s, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION",
					"", "result"));
	else if (j->r == -ENOENT)
		api_call_error(j->call, "RESOURCE_NOT_FOUND",
			       j->ns ? "this namespace has no symbols of this build id"
				     : "no symbols of this build id are kept for all namespaces");
	else if (j->r == -ENOSPC || j->r == -EDQUOT)
		api_call_error(j->call, "STORE_FULL", why);
	else if (j->r == -EAGAIN)
		api_call_error(j->call, "UNAVAILABLE",
			       "the store does not answer, or refuses: try again, and see the "
			       "hub's log");
	else if (j->r == -E2BIG)
		api_call_error(j->call, "TOO_LARGE", why);
	else if (j->r == -EINVAL || j->r == -EBADMSG)
		api_call_error(j->call, "INVALID_POST_DATA", why);
	else
		api_call_error(j->call, "FAIL", *j->error.path ? why : strerror(-j->r));
	free_job(j);
}

static void done(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	if (j->given_up) {
		api_call_free(j->call);
		free_job(j);
		return;
	}
	http_conn_on_gone(j->call->conn, NULL, NULL);
	j->then(j);
}

static void caller_left(void *arg)
{
	struct symbols_job *j = arg;

	j->given_up = true;
}

static void post(struct symbols_job *j, void (*run)(struct job *),
		 void (*then)(struct symbols_job *))
{
	struct call *c = j->call;

	j->job = (struct job){.run = run,
			      .done = done,
			      .n_bytes = sizeof(*j) + c->n_body,
			      .deadline_ns = UPLOAD_LIMIT_NS};
	j->then = then;
	if (worker_post(c->api->config.uploads, &j->job) == 0) {
		http_conn_on_gone(c->conn, caller_left, j);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "uploads_busy"), 1);
	refuse(j, "UNAVAILABLE", "too many uploads are waiting; try again");
}

static const char *put_result(int r)
{
	switch (r) {
	case 0:
		return "kept";
	case -E2BIG:
		return "too_large";
	case -ENOSPC:
	case -EDQUOT:
		return "full";
	case -EINVAL:
	case -EBADMSG:
		return "bad";
	case -EAGAIN:
		return "unavailable";
	default:
		return "not_written";
	}
}

static void run_put(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->r = symbols_put(j->symbols, j->ns, j->build_id, j->call->body, j->call->n_body,
			   &j->error);
	counter_add(counter("symbols_uploads_total", "result", put_result(j->r)), 1);
}

static void run_delete(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->r = symbols_check_build_id(j->build_id, &j->error);
	if (!j->r)
		j->r = symbols_delete(j->symbols, j->ns, j->build_id);
}

static void put(struct symbols_job *j)
{
	post(j, run_put, reply);
}

void api_handle_symbols_put(struct call *c)
{
	begin(c, put);
}

static void delete_file(struct symbols_job *j)
{
	post(j, run_delete, reply);
}

void api_handle_symbols_delete(struct call *c)
{
	begin(c, delete_file);
}

/* ---- the list ---- */

static void run_list(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->list = symbols_list(j->symbols);
	if (!j->ns)
		j->names.names = symbols_namespaces(j->symbols, &j->names.n);
}

/* Replies with the part of the list that was asked for and that the user may see. */
static void reply_list(struct symbols_job *j)
{
	const struct call *c = j->call;
	const struct query_names allowed = {c->scope.places, c->scope.n_places, 0};
	json_t *list = json_array(), *item;
	json_t *notes = c->scope_note ? json_pack("[s]", c->scope_note) : NULL;
	size_t i;

	json_array_foreach (j->list, i, item) {
		const char *ns = json_str_at(item, "namespace", NULL);

		if (j->ns ? str_equal(ns, j->ns)
			  : store_scope_has_own(&c->scope) || (ns && query_names_has(&allowed, ns)))
			json_array_append(list, item);
	}
	api_call_json(j->call, 200,
		      json_pack("{s:s, s:s, s:o, s:o*}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				"result", list, "notes", notes));
	free_job(j);
}

static void listed(struct symbols_job *j)
{
	if (store_scope_has_own(&j->call->scope) || j->ns)
		reply_list(j);
	else
		ask(j, reply_list);
}

static void list(struct symbols_job *j)
{
	post(j, run_list, listed);
}

void api_handle_symbols_list(struct call *c)
{
	begin(c, list);
}
