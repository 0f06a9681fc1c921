/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/profile/why over HTTP: in `podflame local`, and with an API server of Kubernetes. */
#include "hub/api/testapi.h"
#include "hub/api/api_private.h"
#include "hub/why/testwhy.h"
#include "lib/kube/testwatches.h"

#define WHY "/v1/profile/why"

static json_t *object; /* what the API server has under each name; NULL: nothing */
static bool answers;   /* the API server answers lists; else it says that it cannot */
static bool held;      /* it answers nothing yet */
static unsigned n_lists;
static struct timer later;

/* Answers all lists, on the loop. */
static void answer_lists(void *arg)
{
	(void)arg;
	for (size_t i = 0; !held && i < ARRAY_SIZE(watches); i++) {
		struct kube_watch *w = &watches[i];

		if (!w->used)
			continue;
		assert_true(w->once);
		assert_true(w->metadata_only);
		keep(w, "x", object);
		n_lists++;
		if (answers)
			w->ops.synced(w->arg);
		else
			w->ops.state("refused", w->arg);
	}
	timer_set(cluster.loop, &later, NSEC_PER_MSEC, answer_lists, NULL);
}

static int setup_kube(void **state)
{
	int r = setup_with(state, fixture_new(), testwatches(ask_cluster), ":memory:");

	object = NULL;
	answers = true;
	held = false;
	n_lists = 0;
	timer_set(cluster.loop, &later, 0, answer_lists, NULL);
	return r;
}

static int teardown_kube(void **state)
{
	timer_cancel(&later);
	json_decref(object);
	object = NULL;
	return teardown(state);
}

#define KUBE(t) cmocka_unit_test_setup_teardown(t, setup_kube, teardown_kube)

static const json_t *first(const struct fixture *f)
{
	return json_array_get(json_object_get(f->json, "result"), 0);
}

static void in_local(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", WHY, NULL, QUERY ",\"tag_filter\":\"pod_ns='x'\"}"), 200);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "SUCCESS");
	assert_string_equal(json_str_at(first(f), "reason", ""), "condition");
	assert_string_equal(json_str_at(first(f), "tag", ""), "pod_ns");
	assert_int_equal(json_int_at(first(f), "samples", 0), 1);
	assert_non_null(strstr(f->body, "podflame doctor --pid PID"));
}

static void bodies_are_checked(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", WHY, NULL, "{}"), 400);
	assert_int_equal(ask(f, "POST", WHY, NULL, QUERY ",\"tag_filter\":\"pod_ns=\"}"), 500);
	assert_string_equal(json_str_at(f->json, "OPT_STATUS", ""), "FAIL");
}

static void a_user_without_the_right_is_told_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "POST", WHY, NULL, QUERY "}"), 401);
	assert_int_equal(
		ask(f, "POST", WHY, BEARER "nobody", QUERY ",\"tag_filter\":\"pod_ns='shop'\"}"),
		200);
	assert_null(strstr(f->body, "shop"));
	assert_int_equal(n_lists, 0);
}

/* The hub asks for the namespace, and its label says that no target may select it. */
static void the_namespace_is_looked_up(void **state)
{
	struct fixture *f = *state;

	cluster.targets = json_array();
	object = json_pack("{s:{s:s, s:{s:s}}}", "metadata", "name", "shop", "labels",
			   "podflame.io/profiling", "disabled");
	json_array_append_new(cluster.targets,
			      json_pack("{s:{s:s, s:s}, s:{s:{}}}", "metadata", "name", "web",
					"namespace", "shop", "spec", "podSelector"));
	assert_int_equal(
		ask(f, "POST", WHY, BEARER "viewer", QUERY ",\"tag_filter\":\"pod_ns='shop'\"}"),
		200);
	assert_int_equal(n_lists, 1);
	assert_string_equal(json_str_at(first(f), "reason", ""), "namespace");
}

static void the_pod_is_looked_up(void **state)
{
	struct fixture *f = *state;

	cluster.targets = json_array();
	assert_int_equal(ask(f, "POST", WHY, BEARER "viewer",
			     QUERY ",\"tag_filter\":\"pod_ns='shop' AND pod='web-1'\"}"),
			 200);
	assert_int_equal(n_lists, 2);
	assert_non_null(strstr(f->body, "\"no_namespace\""));
	/* a name that no namespace may have is not asked for */
	assert_int_equal(ask(f, "POST", WHY, BEARER "viewer",
			     QUERY ",\"tag_filter\":\"pod_ns='a/b?c' AND pod='web-1'\"}"),
			 200);
	assert_int_equal(n_lists, 2);
	assert_non_null(strstr(f->body, "\"no_namespace\""));
}

static void looked(const struct why_seen *seen, void *arg)
{
	assert_false(seen->ns.known);
	loop_stop(arg, 0);
}

/* The hub does not ask the API server for what the user may not be told. */
static void what_may_not_be_told_is_not_looked_up(void **state)
{
	static char *names[] = {"shop"};
	static const struct scope shop = {.places = names, .n_places = 1};
	struct why_question q;
	struct why_look *look;

	(void)state;
	ask_why(&q, "on-cpu", T0, T0 + 60, "pod_ns='app' AND pod='web-1'", "");
	q.scope = &shop;
	look = why_look_new(cluster.loop, cluster_kube(), &q, looked, cluster.loop);
	assert_int_equal(loop_run(cluster.loop), 0);
	assert_int_equal(n_lists, 0);
	why_look_free(look);
	why_question_done(&q);
}

/* What the API server does not answer is not known, and the rest is said. */
static void an_api_server_that_fails(void **state)
{
	struct fixture *f = *state;

	answers = false;
	assert_int_equal(
		ask(f, "POST", WHY, BEARER "viewer", QUERY ",\"tag_filter\":\"pod_ns='shop'\"}"),
		200);
	assert_string_equal(json_str_at(first(f), "reason", ""), "condition");
	assert_non_null(strstr(f->body, "\"starting\""));
}

/* ---- many questions at once ---- */

#define N_ASKED 6
static unsigned n_answered, n_good;

static void one_answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	(void)body, (void)n, (void)error, (void)arg;
	n_answered++;
	n_good += status == 200;
}

static struct http_call *send_why(struct fixture *f)
{
	static const char body[] = QUERY ",\"tag_filter\":\"pod_ns='shop'\"}";
	const char *const headers[] = {BEARER "viewer", NULL};
	const struct http_request r = {.method = "POST",
				       .path = WHY,
				       .headers = headers,
				       .body = body,
				       .body_bytes = strlen(body),
				       .on_done = one_answered,
				       .arg = f};
	struct http_call *call;

	assert_int_equal(http_send(f->client, &r, &call), 0);
	return call;
}

static unsigned n_looking(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
		n += watches[i].used;
	return n;
}

static void stop_waiting(void *arg)
{
	loop_stop(arg, 0);
}

static void turn(struct fixture *f)
{
	struct timer t = {0};

	timer_set(f->loop, &t, NSEC_PER_MSEC, stop_waiting, f->loop);
	assert_int_equal(loop_run(f->loop), 0);
	timer_cancel(&t);
}

/*
 * A question that waits for the API server counts as a query that runs: the hub has one worker
 * here, so it looks for one question at a time, and the others wait.
 */
static void questions_that_look_are_limited(void **state)
{
	struct fixture *f = *state;
	unsigned most = 0;

	n_answered = n_good = 0;
	held = true;
	for (int i = 0; i < N_ASKED; i++)
		send_why(f);
	while (n_answered + n_looking() + api_queue_waiting(f->api->queue) < N_ASKED)
		turn(f);
	while (n_answered < N_ASKED) {
		most = MAX(most, n_looking());
		held = false;
		turn(f);
	}
	assert_int_equal(most, 1);
	assert_int_equal(n_good, N_ASKED);
}

/* A client that leaves while the hub looks makes room for the next question. */
static void who_leaves_makes_room(void **state)
{
	struct fixture *f = *state;
	const unsigned made = n_watches_made;
	struct http_call *first;

	n_answered = n_good = 0;
	held = true;
	first = send_why(f);
	while (n_looking() < 1)
		turn(f);
	send_why(f);
	http_cancel(first);
	while (n_watches_made < made + 2) /* the second one's look */
		turn(f);
	held = false;
	while (n_answered < 1)
		turn(f);
	assert_int_equal(n_good, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(in_local),
		LOCAL(bodies_are_checked),
		KUBE(a_user_without_the_right_is_told_nothing),
		KUBE(the_namespace_is_looked_up),
		KUBE(the_pod_is_looked_up),
		KUBE(what_may_not_be_told_is_not_looked_up),
		KUBE(an_api_server_that_fails),
		KUBE(questions_that_look_are_limited),
		KUBE(who_leaves_makes_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
