/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when the node's report is written, and writes it. Changes for which a user waits are
 * written at once, but only a few times a minute. All other changes are collected and written at
 * random times, so that a change of a label on 5,000 nodes does not flood the API server. This file
 * owns the report and the requests that are under way. Loop thread.
 */
#include "node/report/report.h"

#include "node/report/entries.h"

#include <stdlib.h>
#include <sys/utsname.h>

#define API "/apis/podflame.io/v1alpha1/namespaces/"
#define URGENT_DELAY_NS                                                                            \
	(100 * NSEC_PER_MSEC) /* so that several plans of one kubectl apply make one write */
#define COALESCE_NS    (5 * NSEC_PER_SEC)
#define URGENT_BURST   10
#define BACKOFF_MIN_NS NSEC_PER_SEC
#define BACKOFF_MAX_NS (60 * NSEC_PER_SEC) /* longest mean time between two tries to send */
#define MAX_CROWDED    256 /* namespaces in the list, as in the CRD; the last one is "*" then */

struct report {
	struct loop *loop;
	struct kube *kube;
	char *node_name, *pod_name, *ns, *version, *boot_id, *config_hash;
	uint64_t min_interval_ns, jitter_ns;
	char kernel[128];
	uint64_t unwind_table_bytes;
	uint64_t lost_samples, lost_profiles;

	struct entries entries;
	json_t *capabilities;
	json_t *crowded; /* array: the namespaces of which targets have no room, sorted */
	json_t *owner;	 /* reference to the agent's DaemonSet; NULL: not known */
	char cgroup_mode[64];

	json_t *written; /* the content in the API server; NULL: none yet */
	uint64_t written_class;
	json_t *sending; /* the content of the write that is under way; NULL: no write */
	uint64_t sending_class;
	bool created; /* the current write has tried to create the report */
	/* the agent is asking whether the report still exists; a write waits for the answer */
	bool checking;
	int64_t generation; /* number of the writes so far */
	struct timer timer;
	uint64_t due_ns; /* when the timer is due, monotonic; 0: it is not set */
	uint64_t last_write_ns, backoff_ns, tokens_ns;
	unsigned tokens;
	int last_status; /* HTTP status of the last write, so that only a change is logged */
	/*
	 * points to `gone` of the request that is under way, so that report_free() can set it; else
	 * NULL
	 */
	bool *gone;
};

static void write_now(void *arg);

/* ---- content ---- */

/* Returns the part of the status whose changes cause a write. */
static json_t *content(const struct report *r)
{
	unsigned omitted;
	json_t *targets = report_entries_json(&r->entries, &omitted);

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:I, s:o, s:i, s:O}", "agentVersion",
			 r->version, "kernel", r->kernel, "bootID", r->boot_id, "cgroupMode",
			 r->cgroup_mode, "configHash", r->config_hash, "capabilities",
			 r->capabilities, "unwindTableBytes", (json_int_t)r->unwind_table_bytes,
			 "targets", targets, "targetsOmitted", (int)omitted, "crowdedNamespaces",
			 r->crowded);
}

/* Returns the whole status: the content, and fields whose changes cause no write. */
static json_t *status(const struct report *r)
{
	json_t *s = content(r);

	json_object_set_new(s, "reportGeneration", json_integer(r->generation + 1));
	json_object_set_new(s, "lost",
			    json_pack("{s:I, s:I}", "samples", (json_int_t)r->lost_samples,
				      "events", (json_int_t)r->lost_profiles));
	return s;
}

static json_t *object(const struct report *r)
{
	json_t *o =
		json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s}}", "apiVersion", "podflame.io/v1alpha1",
			  "kind", "ProfilingNodeReport", "metadata", "name", r->node_name,
			  "namespace", r->ns, "spec", "nodeName", r->node_name);

	/*
	 * The DaemonSet owns the report, so the API server deletes it at uninstall. The hub deletes
	 * the reports of nodes that were deleted.
	 */
	if (r->owner)
		json_object_set_new(json_object_get(o, "metadata"), "ownerReferences",
				    json_pack("[O]", r->owner));
	return o;
}

json_t *report_json(const struct report *r)
{
	json_t *o;

	loop_assert(r->loop);
	o = object(r);
	json_object_set_new(o, "status", status(r));
	return o;
}

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

/* If the content has changed, sets the timer for a write. */
static void changed(struct report *r)
{
	_cleanup_json_ json_t *c = NULL;
	uint64_t now = now_mono_ns(), due;

	loop_assert(r->loop);
	if (r->sending || r->backoff_ns)
		/* the content is compared again after the write, or written after the delay */
		return;
	c = content(r);
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
	changed(r);
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
	_cleanup_json_ json_t *body = object(r);

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
	_cleanup_json_ json_t *body = json_pack("{s:o}", "status", status(r));

	/* uses the current content, which may be newer than the change that caused this write */
	json_decref(r->sending);
	r->sending = content(r);
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
	changed(r);
}

void report_check(struct report *r)
{
	_cleanup_free_ char *path =
		xasprintf(API "%s/profilingnodereports/%s", r->ns, r->node_name);

	loop_assert(r->loop);
	if (r->written && !r->sending && !r->checking && !r->due_ns)
		r->checking = request(r, "GET", path, NULL, NULL, on_checked) == 0;
}

/* ---- input ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void report_crowded(struct report *r, json_t *namespaces)
{
	size_t n = json_object_size(namespaces), i = 0;
	_cleanup_free_ const char **names = xcalloc(n + 1, sizeof(*names));
	_cleanup_json_ json_t *taken = namespaces;
	json_t *list = json_array(), *v;
	const char *ns;

	json_object_foreach (taken, ns, v)
		names[i++] = ns;
	qsort(names, n, sizeof(*names), by_text);
	for (i = 0; i < n && i < MAX_CROWDED - 1; i++)
		json_array_append_new(list, json_string(names[i]));
	if (n >= MAX_CROWDED)
		json_array_append_new(list, json_string("*"));
	json_decref(r->crowded);
	r->crowded = list;
	changed(r);
}

void report_plan(struct report *r, const struct plan *p)
{
	report_entries_plan(&r->entries, p);
	changed(r);
}

/* If the feature has the name of an event, notes whether the event works. */
static void note_event(struct report *r, const struct support *s)
{
	const char *why = s->reason && *s->reason ? s->reason : "this kernel cannot provide it";
	enum event e;

	if (profile_event_from_name(s->feature, &e) == 0)
		report_entries_support(&r->entries, e, s->ok ? NULL : why);
}

void report_support(struct report *r, const struct support *s, size_t n, const char *cgroup_mode)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n && i < 32; i++) {
		json_t *c = json_pack("{s:s, s:b}", "feature", s[i].feature, "ok", s[i].ok);

		if (s[i].reason && *s[i].reason)
			json_object_set_new(c, "reason",
					    json_stringn(s[i].reason, utf8_cut(s[i].reason, 256)));
		json_array_append_new(list, c);
		note_event(r, &s[i]);
	}
	json_decref(r->capabilities);
	r->capabilities = list;
	snprintf(r->cgroup_mode, sizeof(r->cgroup_mode), "%s", cgroup_mode ? cgroup_mode : "");
	changed(r);
}

void report_sampled(struct report *r, const char *target_uid, enum event e, uint64_t n_samples)
{
	if (n_samples && report_entries_sampled(&r->entries, target_uid, e))
		changed(r);
}

void report_stored(struct report *r, const char *target_uid, enum event e, uint64_t n_samples)
{
	if (n_samples && report_entries_stored(&r->entries, target_uid, e))
		changed(r);
}

void report_stacks(struct report *r, const char *target_uid, uint64_t n, uint64_t n_finished)
{
	if (n && report_entries_stacks(&r->entries, target_uid, n, n_finished))
		changed(r);
}

void report_problem(struct report *r, const char *target_uid, enum reason reason,
		    const char *message, unsigned n_pods)
{
	if (report_entries_problem(&r->entries, target_uid, reason, message, n_pods))
		changed(r);
}

void report_lost(struct report *r, uint64_t n_samples, uint64_t n_profiles)
{
	r->lost_samples = n_samples;
	r->lost_profiles = n_profiles;
}

/* ---- creation and end ---- */

int report_new(struct loop *l, struct kube *k, const struct report_config *c, struct report **ret)
{
	struct report *r;
	struct utsname u;

	if (!c->node_name || !*c->node_name || !c->ns || !*c->ns)
		return -EINVAL;
	r = xcalloc(1, sizeof(*r));
	r->loop = l;
	r->kube = k;
	r->node_name = xstrdup(c->node_name);
	r->ns = xstrdup(c->ns);
	r->pod_name = xstrdup(c->pod_name ? c->pod_name : "");
	r->version = xstrdup(c->version ? c->version : "");
	r->boot_id = xstrdup(c->boot_id ? c->boot_id : "");
	r->config_hash = xstrdup(c->config_hash ? c->config_hash : "");
	r->unwind_table_bytes = c->unwind_table_bytes;
	r->min_interval_ns = c->min_interval_ns ? c->min_interval_ns : 60 * NSEC_PER_SEC;
	r->jitter_ns = c->jitter_ns ? c->jitter_ns : 10 * NSEC_PER_SEC;
	r->capabilities = json_array();
	r->crowded = json_array();
	r->tokens = URGENT_BURST;
	r->tokens_ns = now_mono_ns();
	r->written_class =
		report_entries_class(&r->entries); /* a report without targets is not urgent */
	if (uname(&u) == 0)
		snprintf(r->kernel, sizeof(r->kernel), "%s", u.release);
	*ret = r;
	return 0;
}

struct report *report_free(struct report *r)
{
	if (!r)
		return NULL;
	loop_assert(r->loop);
	if (r->gone)
		*r->gone = true;
	timer_cancel(&r->timer);
	report_entries_done(&r->entries);
	json_decref(r->capabilities);
	json_decref(r->crowded);
	json_decref(r->owner);
	json_decref(r->written);
	json_decref(r->sending);
	free(r->node_name);
	free(r->pod_name);
	free(r->ns);
	free(r->version);
	free(r->boot_id);
	free(r->config_hash);
	free(r);
	return NULL;
}
