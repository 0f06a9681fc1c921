/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when the node's report is written, and writes it. Changes for which a user waits are
 * written at once, but only a few times a minute. All other changes are collected and written at
 * random times, so that a change of a label on 5,000 nodes does not flood the API server. Owns the
 * requests that are under way. Loop thread.
 */
#include "node/report/internal.h"

#include <stdlib.h>

#define API "/apis/podflame.io/v1alpha1/namespaces/"
#define URGENT_DELAY_NS                                                                            \
	(100 * NSEC_PER_MSEC) /* so that several plans of one kubectl apply make one write */
#define COALESCE_NS    (5 * NSEC_PER_SEC)
#define BACKOFF_MIN_NS NSEC_PER_SEC
#define BACKOFF_MAX_NS (60 * NSEC_PER_SEC) /* longest mean time between two tries to send */

static void write_now(void *arg);

/* ---- when to write ---- */

static void arm(struct report *r, uint64_t due_ns)
{
	uint64_t now = now_mono_ns();

	if (r->due_ns && r->due_ns <= due_ns)
		return;
	r->due_ns = due_ns;
	timer_set(r->loop, &r->timer, due_ns > now ? due_ns - now : 0, write_now, r);
}

static void refill_tokens(struct report *r, uint64_t now)
{
	uint64_t step = r->min_interval_ns / URGENT_BURST;

	while (r->tokens < URGENT_BURST && now - r->tokens_ns >= step) {
		r->tokens++;
		r->tokens_ns += step;
	}
	if (r->tokens == URGENT_BURST)
		r->tokens_ns = now;
}

void report_changed(struct report *r)
{
	_cleanup_json_ json_t *c = NULL;
	uint64_t now = now_mono_ns(), due;

	loop_assert(r->loop);
	if (r->sending || r->backoff_ns)
		/* the content is compared again after the write, or written after the delay */
		return;
	c = report_content(r);
	if (r->written && json_equal(c, r->written)) {
		timer_cancel(&r->timer);
		r->due_ns = 0;
		return;
	}
	refill_tokens(r, now);
	if (r->tokens && report_entries_class(&r->entries) != r->written_class) {
		arm(r, now + URGENT_DELAY_NS);
		return;
	}
	due = r->last_write_ns ? r->last_write_ns + r->min_interval_ns : 0;
	due = MAX(due, now + COALESCE_NS);
	if (!r->due_ns) /* the random delay is chosen once per write, not once per change */
		arm(r, due + random_below(r->jitter_ns + 1));
}

/* ---- writing ---- */

static void send_patch(struct report *r);

static void log_result(struct report *r, int http, const char *error)
{
	bool ok = http >= 200 && http < 300;

	if (!ok && http != r->last_status)
		log_warn("the report of node %s could not be written: %s (status %d)", r->node_name,
			 error ? error : "refused", http);
	else if (ok && r->last_status && r->last_status != http)
		log_info("the report of node %s is written again", r->node_name);
	r->last_status = http;
}

static void failed(struct report *r)
{
	json_decref(r->sending);
	r->sending = NULL;
	r->backoff_ns = r->backoff_ns ? MIN(r->backoff_ns * 2, BACKOFF_MAX_NS) : BACKOFF_MIN_NS;
	arm(r, now_mono_ns() + r->backoff_ns / 2 + random_below(r->backoff_ns));
}

static void succeeded(struct report *r)
{
	json_decref(r->written);
	r->written = TAKE_PTR(r->sending);
	r->written_class = r->sending_class;
	r->last_write_ns = now_mono_ns();
	r->backoff_ns = 0;
	r->generation++;
	report_changed(r);
}

/* The argument of a request's callback. The report may be freed before the answer arrives. */
struct report_request {
	struct report *report;
	bool gone;
};

static struct report *request_end(void *arg)
{
	struct report_request *q = arg;
	struct report *r = q->gone ? NULL : q->report;

	if (r)
		r->gone = NULL;
	free(q);
	return r;
}

static int request(struct report *r, const char *method, const char *path, const char *type,
		   const json_t *body, kube_done_fn *fn)
{
	struct report_request *q = xcalloc(1, sizeof(*q));
	int err;

	q->report = r;
	r->gone = &q->gone;
	err = kube_request(r->kube, method, path, type, body, fn, q);
	if (err < 0) {
		r->gone = NULL;
		free(q);
	}
	return err;
}

static void on_created(int http, const json_t *body, const char *error, void *arg)
{
	struct report *r = request_end(arg);

	(void)body;
	if (!r)
		return;
	if ((http >= 200 && http < 300) || http == 409) {
		send_patch(r);
		return;
	}
	log_result(r, http, error);
	failed(r);
}

static void send_create(struct report *r)
{
	_cleanup_free_ char *path = xasprintf(API "%s/profilingnodereports", r->ns);
	_cleanup_json_ json_t *body = report_object(r);

	if (request(r, "POST", path, NULL, body, on_created) < 0)
		failed(r);
}

/*
 * Returns the owner of the report: the DaemonSet of the agent's pod. It is not set as controller,
 * because a DaemonSet's controller manages pods only.
 */
static json_t *owner_of(const json_t *pod)
{
	const json_t *o;
	size_t i;

	json_array_foreach (json_at(pod, "metadata.ownerReferences"), i, o) {
		if (streq(json_str_at(o, "kind", ""), "DaemonSet") &&
		    json_bool_at(o, "controller", false))
			return json_pack("{s:s, s:s, s:s, s:s}", "apiVersion",
					 json_str_at(o, "apiVersion", "apps/v1"), "kind",
					 "DaemonSet", "name", json_str_at(o, "name", ""), "uid",
					 json_str_at(o, "uid", ""));
	}
	return NULL;
}

static void on_pod(int http, const json_t *body, const char *error, void *arg)
{
	struct report *r = request_end(arg);

	if (!r)
		return;
	/*
	 * the API server cannot answer now: try again, because a report without an owner would
	 * never be deleted
	 */
	if (http < 200 || http >= 500 || http == 429 || http == 401) {
		log_result(r, http, error);
		failed(r);
		return;
	}
	json_decref(r->owner);
	r->owner = http < 300 ? owner_of(body) : NULL;
	send_create(r);
}

/*
 * Creates the report. First asks the API server for its owner. The agent asks only here, because a
 * report is created once for a node, unless it is deleted.
 */
static void start_create(struct report *r)
{
	_cleanup_free_ char *path = NULL;

	r->created = true;
	if (!*r->pod_name) {
		send_create(r);
		return;
	}
	path = xasprintf("/api/v1/namespaces/%s/pods/%s", r->ns, r->pod_name);
	if (request(r, "GET", path, NULL, NULL, on_pod) < 0)
		failed(r);
}

static void on_patched(int http, const json_t *body, const char *error, void *arg)
{
	struct report *r = request_end(arg);

	(void)body;
	if (!r)
		return;
	if (http == 404 && !r->created) {
		start_create(r);
		return;
	}
	log_result(r, http, error);
	if (http >= 200 && http < 300)
		succeeded(r);
	else
		failed(r);
}

static void send_patch(struct report *r)
{
	_cleanup_free_ char *path =
		xasprintf(API "%s/profilingnodereports/%s/status", r->ns, r->node_name);
	_cleanup_json_ json_t *body = json_pack("{s:o}", "status", report_status(r));

	/* uses the current content, which may be newer than the change that caused this write */
	json_decref(r->sending);
	r->sending = report_content(r);
	r->sending_class = report_entries_class(&r->entries);
	if (request(r, "PATCH", path, "application/merge-patch+json", body, on_patched) < 0)
		failed(r);
}

static void write_now(void *arg)
{
	struct report *r = arg;
	uint64_t now = now_mono_ns();

	r->due_ns = 0;
	if (r->sending || r->checking)
		return;
	refill_tokens(r, now);
	if (r->tokens && now < r->last_write_ns + r->min_interval_ns)
		r->tokens--;
	r->created = false;
	send_patch(r);
}

static void on_checked(int http, const json_t *body, const char *error, void *arg)
{
	struct report *r = request_end(arg);

	(void)body;
	(void)error;
	if (!r)
		return;
	r->checking = false;
	if (http == 404) {
		json_decref(r->written);
		r->written = NULL;
	}
	report_changed(r);
}

void report_check(struct report *r)
{
	_cleanup_free_ char *path =
		xasprintf(API "%s/profilingnodereports/%s", r->ns, r->node_name);

	loop_assert(r->loop);
	if (r->written && !r->sending && !r->checking && !r->due_ns)
		r->checking = request(r, "GET", path, NULL, NULL, on_checked) == 0;
}
