/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report against an API server whose n-th answer is wrong. A first write has four requests:
 * patch, the agent's pod, create, patch. Each of them fails in every way, once and several times,
 * until no request gets the wrong answer. In the end the server has the right report, with its
 * owner. The test replaces timers and requests, and no time passes.
 */
#include "node/report/report.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "lib/kube/testkube.h"
#include "lib/loop/testtimer.h"

#define N_WHILE	  6 /* number of wrong answers in an outage */
#define MAX_STEPS 64
#define UID	  "u1"

/* ---- the API server ---- */

static struct {
	bool exists, owned;
	unsigned n_requests, n_created;
	json_t *status; /* the status of the last patch */
} server;

static json_t *agents_pod(void)
{
	return json_pack("{s:{s:[{s:s, s:s, s:s, s:s, s:b}]}}", "metadata", "ownerReferences",
			 "apiVersion", "apps/v1", "kind", "DaemonSet", "name", "podflame-agent",
			 "uid", "ds-uid", "controller", 1);
}

static int patch(const json_t *body)
{
	if (!server.exists)
		return 404;
	json_decref(server.status);
	server.status = json_deep_copy(json_object_get(body, "status"));
	return 200;
}

static int create(const json_t *body)
{
	if (server.exists)
		return 409;
	server.exists = true;
	server.n_created++;
	server.owned = json_at(body, "metadata.ownerReferences") != NULL;
	return 201;
}

/*
 * Answers a request. Without a fault, the server executes it and answers. With a fault, the answer
 * is the fault, and done is whether the server has executed the request all the same.
 */
static void serve(int fault, bool done)
{
	kube_done_fn *fn = sent.fn;
	_cleanup_json_ json_t *body = NULL;
	int status = fault;

	sent.fn = NULL;
	if (!fault || done) {
		if (streq(sent.method, "PATCH"))
			status = patch(sent.body);
		else if (streq(sent.method, "POST"))
			status = create(sent.body);
		else
			status = 200;
	}
	if (!fault && streq(sent.method, "GET"))
		body = agents_pod();
	if (fault)
		status = fault;
	fn(MAX(status, 0), body, status <= 0 ? "connection lost" : NULL, sent.arg);
}

/* ---- a report ---- */

static struct report *new_report(void)
{
	const struct report_config c = {.node_name = "node1",
					.pod_name = "agent-x",
					.ns = "podflame-system",
					.version = "1.2.3",
					.boot_id = "boot"};
	static struct plan_target t = {.uid = (char *)UID,
				       .kind = (char *)"ProfilingTarget",
				       .ns = (char *)"app",
				       .name = (char *)"web",
				       .generation = 1,
				       .accepted = true,
				       .on_this_node = true,
				       .event_mask = 1u << EVENT_ON_CPU,
				       .pods_matched = 2,
				       .pods_planned = 2,
				       .containers_planned = 2};
	const struct plan p = {.targets = &t, .n_targets = 1};
	struct report *r = NULL;

	assert_int_equal(report_new(timer_loop(), testkube(), &c, &r), 0);
	report_plan(r, &p);
	return r;
}

struct fault {
	int status; /* -1: no answer */
	bool done;  /* the server has executed the request all the same */
	unsigned n, n_faults;
};

/*
 * If the request for the agent's pod gets this status, the agent may not read the pod. The report
 * is then written without an owner.
 */
static bool is_final(int status)
{
	return status >= 400 && status < 500 && status != 401 && status != 429;
}

/*
 * Writes a report while requests f->n to f->n + f->n_faults - 1 get the fault. Returns false if
 * there were not so many requests.
 */
static bool write_with(const struct fault *f, bool exists)
{
	struct report *r = new_report();
	const json_t *target;
	bool met = false;

	server.exists = exists;
	server.owned = exists;
	server.n_requests = server.n_created = 0;
	for (unsigned i = 0; timer_armed() || sent.fn; i++) {
		assert_true(i < MAX_STEPS);
		if (!sent.fn) {
			timer_fire();
			continue;
		}
		server.n_requests++;
		if (server.n_requests == f->n) /* a change during the write must be written, too */
			report_sampled(r, UID, EVENT_ON_CPU, 1);
		if (server.n_requests >= f->n && server.n_requests < f->n + f->n_faults) {
			met = true;
			serve(f->status, f->done);
		} else {
			serve(0, true);
		}
	}
	target = json_array_get(json_object_get(server.status, "targets"), 0);
	assert_true(server.exists);
	assert_true(server.n_created <= 1);
	assert_true(server.owned || (met && is_final(f->status)));
	if (met)
		assert_true(json_bool_at(target, "events.on-cpu.sampled", false));
	json_decref(server.status);
	server.status = NULL;
	report_free(r);
	assert_false(timer_armed());
	return met;
}

static void test_each_answer_may_fail(void **state)
{
	static const int statuses[] = {-1, 400, 401, 403, 404, 409, 422, 429, 500, 503, 504};
	unsigned n_met = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		for (int k = 0; k < 8; k++) {
			struct fault f = {.status = statuses[i],
					  .done = k & 1,
					  .n_faults = k & 2 ? N_WHILE : 1};

			for (f.n = 1; write_with(&f, k & 4); f.n++)
				n_met++;
		}
	}
	print_message("%u writes met a wrong answer\n", n_met);
	assert_true(n_met > 88);
}

/* Frees the report while an answer is on its way, once for each request. */
static void test_freed_before_the_answer(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 4; n++) {
		struct report *r = new_report();

		server.exists = false;
		for (unsigned i = 1;; i++) {
			if (!sent.fn)
				timer_fire();
			if (i == n)
				break;
			serve(0, true);
		}
		report_free(r);
		serve(0, true);
		assert_false(timer_armed());
	}
	json_decref(server.status);
	json_decref(sent.body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_answer_may_fail),
		cmocka_unit_test(test_freed_before_the_answer),
	};

	return cmocka_run_group_tests_name("report_errors", tests, NULL, NULL);
}
