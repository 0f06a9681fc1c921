/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about uploaded symbol files. Each request is one job on the worker that reads and writes
 * the files.
 */
#include "hub/api/api_private.h"

#include <stdlib.h>

#define UPLOAD_LIMIT_NS (10 * 60 * NSEC_PER_SEC) /* if a job takes longer, /healthz fails */

struct symbols_job {
	struct job job;
	struct call *call;
	struct symbols *symbols;
	const char *build_id; /* points into call->path */
	json_t *list;
	int r;
	struct field_error error;
	bool given_up; /* the client has closed the connection */
};

static void reply(struct symbols_job *j)
{
	_cleanup_free_ char *why = xasprintf("%s: %s", j->error.path, j->error.reason);

	if (!j->r)
		api_call_json(j->call, 200,
			      json_pack("{s:s, s:s, s:O?}", "OPT_STATUS", "SUCCESS", "DESCRIPTION",
					"", "result", j->list));
	else if (j->r == -ENOENT)
		api_call_error(j->call, "RESOURCE_NOT_FOUND",
			       "no symbols of this build id are kept");
	else if (j->r == -ENOSPC || j->r == -EDQUOT)
		api_call_error(j->call, "STORE_FULL", why);
	else if (j->r == -E2BIG)
		api_call_error(j->call, "TOO_LARGE", why);
	else if (j->r == -EINVAL || j->r == -EBADMSG)
		api_call_error(j->call, "INVALID_POST_DATA", why);
	else
		api_call_error(j->call, "FAIL", *j->error.path ? why : strerror(-j->r));
}

static void done(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	if (j->given_up)
		api_call_free(j->call);
	else
		reply(j);
	json_decref(j->list);
	free(j);
}

static void caller_left(void *arg)
{
	struct symbols_job *j = arg;

	j->given_up = true;
}

static void post(struct call *c, void (*run)(struct job *))
{
	const struct api_config *f = &c->api->config;
	struct symbols_job *j;

	if (!f->symbols) {
		api_call_error(c, "UNAVAILABLE", "symbols are not kept here");
		return;
	}
	j = xcalloc(1, sizeof(*j));
	*j = (struct symbols_job){
		.job = {.run = run,
			.done = done,
			.n_bytes = sizeof(*j) + c->n_body,
			.deadline_ns = UPLOAD_LIMIT_NS},
		.call = c,
		.symbols = f->symbols,
		.build_id = strrchr(c->path, '/') + 1,
	};
	if (worker_post(f->uploads, &j->job) == 0) {
		http_conn_on_gone(c->conn, caller_left, j);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "uploads_busy"), 1);
	free(j);
	api_call_error(c, "UNAVAILABLE", "too many uploads are waiting; try again");
}

static void run_list(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->list = symbols_list(j->symbols);
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
	default:
		return "not_written";
	}
}

static void run_put(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->r = symbols_put(j->symbols, j->build_id, j->call->body, j->call->n_body, &j->error);
	counter_add(counter("symbols_uploads_total", "result", put_result(j->r)), 1);
}

static void run_delete(struct job *job)
{
	struct symbols_job *j = (struct symbols_job *)job;

	worker_assert(j->call->api->config.uploads);
	j->r = symbols_check_build_id(j->build_id, &j->error);
	if (!j->r)
		j->r = symbols_delete(j->symbols, j->build_id);
}

void api_handle_symbols_list(struct call *c)
{
	post(c, run_list);
}

void api_handle_symbols_put(struct call *c)
{
	post(c, run_put);
}

void api_handle_symbols_delete(struct call *c)
{
	post(c, run_delete);
}
