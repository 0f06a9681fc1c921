/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a status. Each write contains uid and resourceVersion. So the API server refuses it if the
 * object has changed, and two writes are never merged.
 */
#include "hub/status/controller.h"

#include <stdlib.h>

#define BACKOFF_MAX_NS (30 * NSEC_PER_SEC) /* longest mean time between two tries */

struct write_request {
	struct status *status; /* NULL: the controller was freed while the request was under way */
	char *uid;
	json_t *sent;
	struct write_request *prev, *next;
};

static void request_free(struct write_request *q)
{
	if (q->status) {
		if (q->prev)
			q->prev->next = q->next;
		else
			q->status->requests = q->next;
		if (q->next)
			q->next->prev = q->prev;
		q->status->n_requests--;
	}
	free(q->uid);
	json_decref(q->sent);
	free(q);
}

static void write_failed(struct status_row *t, int http, const char *error)
{
	bool first = !t->backoff_ns;

	/* another client has written the object: use the version that the watch shows next */
	if (http == 409)
		status_row_forget_written(t);
	t->backoff_ns = first ? NSEC_PER_SEC : MIN(t->backoff_ns * 2, BACKOFF_MAX_NS);
	t->retry_ns = now_mono_ns() + t->backoff_ns / 2 + random_below(t->backoff_ns);
	t->pending = true; /* so that the tick tries again */
	if (first && http != 409)
		log_warn("status of %s could not be written: %s (status %d)", t->path,
			 error ? error : "refused", http);
}

static void on_written(int http, const json_t *body, const char *error, void *arg)
{
	struct write_request *q = arg;
	struct status *s = q->status;
	struct status_row *t = s ? status_row_find(s->all, q->uid) : NULL;

	/* other targets may have waited, because the number of writes at a time is limited */
	if (s)
		status_flush_soon(s);
	if (!t) {
		request_free(q);
		return;
	}
	t->in_flight = false;
	if (!t->object) {
		status_row_drop_if_unused(&s->all, t);
	} else if (http >= 200 && http < 300) {
		const char *rv = json_str_at(body, "metadata.resourceVersion", NULL);

		if (!rv ||
		    !str_equal(rv, json_str_at(t->object, "metadata.resourceVersion", NULL))) {
			json_decref(t->written);
			t->written = json_incref(q->sent);
			free(t->written_rv);
			t->written_rv = xstrdup(rv);
		}
		t->backoff_ns = t->retry_ns = 0;
		status_touch(s, t);
	} else if (http != 404) {
		write_failed(t, http, error);
	}
	request_free(q);
}

void status_write(struct status *s, struct status_row *t, json_t *status)
{
	const char *rv = t->written_rv ? t->written_rv
				       : json_str_at(t->object, "metadata.resourceVersion", "");
	_cleanup_json_ json_t *body = json_pack("{s:{s:s, s:s}, s:O}", "metadata", "uid", t->uid,
						"resourceVersion", rv, "status", status);
	struct write_request *q = xcalloc(1, sizeof(*q));

	q->status = s;
	q->uid = xstrdup(t->uid);
	q->sent = json_incref(status);
	q->next = s->requests;
	if (q->next)
		q->next->prev = q;
	s->requests = q;
	s->n_requests++;
	/* so that rows that wait for a write come before this row */
	status_row_move_last(&s->all, t);
	t->in_flight = true;
	t->last_write_ns = now_mono_ns();
	if (kube_request(s->kube, "PATCH", t->path, "application/merge-patch+json", body,
			 on_written, q) < 0) {
		t->in_flight = false;
		request_free(q);
		write_failed(t, -1, "no request could be made");
	}
}

void status_abandon_writes(struct status *s)
{
	for (struct write_request *q = s->requests, *next; q; q = next) {
		next = q->next;
		q->status = NULL;
	}
}
