/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of pods, against a real server that is the pods' program and the hub: what the hub gets,
 * what targets are told, and limits.
 */
#include "node/scrape/internal.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#define MANY	    300
#define BODY_BYTES  16
#define LARGE_BYTES (4u << 20)

static struct {
	struct loop *loop;
	struct work *work;
	struct containers *containers;
	struct cgroup_hierarchy hierarchy;
	struct http_server *server;
	struct scrape *scrape;
	struct timer guard, step;
	struct plan plan;

	size_t body_bytes; /* of an answer of the program */
	int program_status, hub_status;
	unsigned n_bad;	      /* so many times the program answers 503 first */
	const char *bad_path; /* the program answers 404 there; NULL: nowhere */
	const char *hub_headers[2];
	bool hub_waits;
	struct http_conn *held[8]; /* requests that the hub does not answer */
	unsigned n_asked, n_delivered, n_told;
	char *query, *content_type, *body;
	struct {
		char uid[16], message[600];
		enum reason reason;
		unsigned n_pods;
	} told[8];
	bool (*over)(void);
} t;

/* ---- the program and the hub ---- */

static void ask_program(struct http_conn *c, const char *path)
{
	_cleanup_free_ char *body = xcalloc(1, t.body_bytes + 1);
	int status = t.bad_path && streq(path, t.bad_path) ? 404 : t.program_status;

	memset(body, 'x', t.body_bytes);
	http_reply(c, t.n_asked++ < t.n_bad ? 503 : status, "application/octet-stream", NULL, body,
		   t.body_bytes);
}

static void gone(void *arg)
{
	*(struct http_conn **)arg = NULL;
}

static void hold(struct http_conn *c)
{
	size_t i = 0;

	while (t.held[i])
		i++;
	assert_true(i < ARRAY_SIZE(t.held));
	t.held[i] = c;
	http_conn_on_gone(c, gone, &t.held[i]);
}

static void handle(struct http_conn *c, const struct http_in *in, void *arg)
{
	static const char refusal[] = "{\"code\":\"invalid_argument\",\"message\":\"profile: no\"}";

	(void)arg;
	if (str_has_prefix(in->path, "/debug/pprof/")) {
		ask_program(c, in->path);
		return;
	}
	assert_string_equal(in->path, "/ingest");
	assert_string_equal(in->method, "POST");
	t.n_delivered++;
	free(t.query);
	free(t.content_type);
	free(t.body);
	t.query = url_decode(in->query, strlen(in->query));
	t.content_type = xstrdup(in->content_type);
	t.body = xstrndup(in->body, in->body_bytes);
	if (t.hub_waits)
		hold(c);
	else
		http_reply(c, t.hub_status, "application/json", t.hub_headers, refusal,
			   t.hub_status == 200 ? 0 : strlen(refusal));
}

static void tell(const char *uid, enum reason reason, const char *message, unsigned n_pods,
		 void *arg)
{
	size_t i = 0;

	assert_ptr_equal(arg, &t);
	t.n_told++;
	while (*t.told[i].uid && (t.told[i].reason != reason || !streq(t.told[i].uid, uid)))
		i++;
	assert_true(i + 1 < ARRAY_SIZE(t.told));
	snprintf(t.told[i].uid, sizeof(t.told[i].uid), "%s", uid);
	snprintf(t.told[i].message, sizeof(t.told[i].message), "%s", message ?: "");
	t.told[i].reason = reason;
	t.told[i].n_pods = n_pods;
}

/* "": the target was told nothing, or that it is over. */
static const char *message(const char *uid, enum reason reason)
{
	for (size_t i = 0; *t.told[i].uid; i++)
		if (t.told[i].reason == reason && streq(t.told[i].uid, uid))
			return t.told[i].message;
	return "";
}

static uint64_t counted(const char *result)
{
	return counter_get(counter("podflame_scrapes_total", "result", result));
}

/* ---- the node ---- */

static void too_long(void *arg)
{
	(void)arg;
	loop_stop(t.loop, -ETIMEDOUT);
}

static void step(void *arg)
{
	(void)arg;
	scrape_tick(t.scrape);
	if (t.over())
		loop_stop(t.loop, 0);
	else
		timer_set(t.loop, &t.step, NSEC_PER_MSEC, step, NULL);
}

/* Ticks until `over` is true. */
static void run_until(bool (*over)(void))
{
	t.over = over;
	timer_set(t.loop, &t.guard, 60 * NSEC_PER_SEC, too_long, NULL);
	timer_set(t.loop, &t.step, 0, step, NULL);
	assert_int_equal(loop_run(t.loop), 0);
	timer_cancel(&t.step);
}

/* Adds a pod that one target asks for these profiles, again at once. */
static struct plan_scrape *add_pod(const char *ns, unsigned nr, unsigned profiles)
{
	struct plan *p = &t.plan;
	struct plan_scrape *s = xcalloc(1, sizeof(*s));

	p->pods = xrealloc(p->pods, (p->n_pods + 1) * sizeof(*p->pods));
	p->pods[p->n_pods++] = (struct plan_pod){.uid = xasprintf("%s-%u", ns, nr),
						 .ns = xstrdup(ns),
						 .name = xasprintf("web-%u", nr),
						 .scrape = s};
	*s = (struct plan_scrape){.address = xstrdup("127.0.0.1"),
				  .port = http_server_port(t.server),
				  .profiles = profiles,
				  .interval_ns = 1,
				  .target_uids = xcalloc(1, sizeof(char *)),
				  .n_targets = 1};
	s->target_uids[0] = xstrdup(ns);
	return s;
}

static void clear_plan(void)
{
	for (size_t i = 0; i < t.plan.n_pods; i++) {
		struct plan_pod *p = &t.plan.pods[i];

		free(p->uid);
		free(p->ns);
		free(p->name);
		free(p->scrape->address);
		free(p->scrape->target_uids[0]);
		free(p->scrape->target_uids);
		free(p->scrape);
	}
	free(t.plan.pods);
	t.plan = (struct plan){0};
}

static int setup(void **state)
{
	struct http_server_config sc = {
		.address = "127.0.0.1", .handler = handle, .max_body_bytes = 8u << 20};
	_cleanup_free_ char *url = NULL;
	struct scrape_config c = {.tell = tell, .arg = &t};

	(void)state;
	memset(&t, 0, sizeof(t));
	t.program_status = t.hub_status = 200;
	t.body_bytes = BODY_BYTES;
	assert_int_equal(loop_new(&t.loop), 0);
	t.work = work_new(t.loop);
	assert_int_equal(work_start_workers(t.work, 1 << 20), 0);
	assert_int_equal(proc_containers_new(&t.containers), 0);
	assert_int_equal(http_server_new(t.loop, &sc, &t.server, NULL), 0);
	url = xasprintf("http://127.0.0.1:%u", http_server_port(t.server));
	c.url = url;
	c.work = t.work;
	c.containers = t.containers;
	c.hierarchy = &t.hierarchy;
	return scrape_new(&c, &t.scrape, NULL);
}

static int teardown(void **state)
{
	(void)state;
	work_close(t.work);
	worker_free(t.work->disk);
	scrape_free(t.scrape);
	clear_plan();
	for (size_t i = 0; i < ARRAY_SIZE(t.held); i++)
		if (t.held[i])
			http_reply(t.held[i], 503, "", NULL, "", 0);
	http_server_free(t.server);
	proc_containers_free(t.containers);
	timer_cancel(&t.guard);
	work_free(t.work);
	loop_free(t.loop);
	free(t.query);
	free(t.content_type);
	free(t.body);
	return 0;
}

/* ---- tests ---- */

static bool was_delivered(void)
{
	return t.n_delivered > 0;
}

static void test_the_hub_learns_whose_it_is(void **state)
{
	const char *boundary;

	(void)state;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(was_delivered);
	assert_non_null(strstr(t.query, "spyName=go-pprof&from="));
	assert_non_null(strstr(t.query, "&name=web-1{namespace=app,pod=web-1,__name__=heap}"));
	boundary = strstr(t.content_type, "boundary=") + strlen("boundary=");
	assert_int_equal(strlen(boundary), 32);
	assert_non_null(strstr(t.body, boundary));
	assert_non_null(strstr(t.body, "\"alloc_space\":{\"cumulative\":true}"));
	assert_non_null(strstr(t.body, "\r\n\r\nxxxxxxxxxxxxxxxx\r\n--"));
}

/* The name of an owner is free text: it says nothing of another namespace. */
static void test_an_owner_is_only_a_name(void **state)
{
	struct tag owner = {"pod_group", "db{namespace=prod,y=z\n"};

	(void)state;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	t.plan.pods[0].tags = (struct tags){.items = &owner, .n = 1};
	scrape_plan(t.scrape, &t.plan);
	run_until(was_delivered);
	assert_non_null(strstr(t.query, "&name=db_namespace_prod_y_z_{namespace=app,pod=web-1,"));
}

static uint64_t before;

static bool two_are_stored(void)
{
	return counted("stored") >= before + 2;
}

/* When a round is over, the next one begins: here at once, and after its interval has passed. */
static void test_rounds_follow_each_other(void **state)
{
	uint64_t n = counted("hub");

	(void)state;
	before = counted("stored");
	add_pod("app", 1, 1u << PLAN_PROFILE_GOROUTINE);
	scrape_plan(t.scrape, &t.plan);
	run_until(two_are_stored);
	assert_true(counted("hub") > n);
	assert_string_equal(message("app", REASON_SCRAPE_FAILED), "");
}

static bool failure_is_told(void)
{
	return *message("app", REASON_SCRAPE_FAILED) != '\0';
}

static bool failure_is_over(void)
{
	return !failure_is_told();
}

static void test_owners_learn_what_fails(void **state)
{
	(void)state;
	t.program_status = 404;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP | 1u << PLAN_PROFILE_MUTEX);
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_non_null(strstr(message("app", REASON_SCRAPE_FAILED), "pod app/web-1: port "));
	assert_non_null(
		strstr(message("app", REASON_SCRAPE_FAILED), "/debug/pprof/heap: it answered 404"));
	t.program_status = 200;
	run_until(failure_is_over);
}

static bool one_is_stored(void)
{
	return counted("stored") > before;
}

/* A program that begins or ends is no problem of its target. */
static void test_one_failure_is_counted_only(void **state)
{
	uint64_t n = counted("status");

	(void)state;
	before = counted("stored");
	t.n_bad = 1;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(one_is_stored);
	assert_int_equal(counted("status"), n + 1);
	scrape_tick(t.scrape);
	assert_null(strstr(t.told[0].uid, "app"));
}

/* The agent does not read the answer: the hub says that it is no profile. */
static void test_what_is_no_profile(void **state)
{
	uint64_t n = counted("not_pprof");

	(void)state;
	t.hub_status = 422;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_non_null(strstr(message("app", REASON_SCRAPE_FAILED), "profile: no"));
	assert_true(counted("not_pprof") > n);
}

static bool was_refused_thrice(void)
{
	return t.n_delivered == 3;
}

static void lost(enum scrape_result result, const char *text, void *arg)
{
	*(enum scrape_result *)arg = result;
	assert_non_null(strstr(text, "503"));
	loop_stop(t.loop, 0);
}

/* The hub is tried three times, and does not say how long this takes. */
static void test_a_hub_that_does_not_take_it(void **state)
{
	struct fetch answer = {.start_ns = NSEC_PER_SEC, .end_ns = 2 * NSEC_PER_SEC};
	struct parcel p = {PLAN_PROFILE_BLOCK, "web", "app", "web-1", &answer};
	struct hub_client hub = {.work = t.work, .again_ns = 1, .most_ns = 1};
	_cleanup_free_ char *url =
		xasprintf("http://127.0.0.1:%u" OTLP_PATH, http_server_port(t.server));
	enum scrape_result result = SCRAPE_STORED;

	(void)state;
	t.hub_status = 503;
	t.hub_headers[0] = "Retry-After: 3600";
	assert_int_equal(otlp_client_new(t.loop, &(struct otlp_client_config){.url = url},
					 &hub.client, NULL),
			 0);
	buf_puts(&answer.body, "profile");
	scrape_deliver(&hub, &p, lost, &result);
	timer_set(t.loop, &t.guard, 60 * NSEC_PER_SEC, too_long, NULL);
	assert_int_equal(loop_run(t.loop), 0);
	assert_int_equal(result, SCRAPE_HUB);
	assert_true(was_refused_thrice());
	otlp_client_free(hub.client);
}

/* A profile that the hub does not take is lost: the target is told at once. */
static void test_what_the_hub_does_not_take_is_told(void **state)
{
	uint64_t n = counted("hub");

	(void)state;
	scrape_hub(t.scrape)->again_ns = scrape_hub(t.scrape)->most_ns = 1;
	t.hub_status = 503;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_int_equal(t.n_asked, 1); /* of the first round */
	assert_non_null(strstr(message("app", REASON_SCRAPE_FAILED),
			       "the profile is lost, because the hub did not take it: "));
	assert_true(counted("hub") > n);
	t.hub_status = 200;
	run_until(failure_is_over);
}

static bool heap_is_told(void)
{
	return strstr(message("app", REASON_SCRAPE_FAILED), "/debug/pprof/heap: it answered 404");
}

/* A first failure waits for the next round, but not what the hub did not take in the same one. */
static void test_what_the_hub_does_not_take_is_told_first(void **state)
{
	(void)state;
	scrape_hub(t.scrape)->again_ns = scrape_hub(t.scrape)->most_ns = 1;
	t.hub_status = 503;
	t.bad_path = "/debug/pprof/heap";
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP | 1u << PLAN_PROFILE_MUTEX);
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_int_equal(t.n_asked, 2); /* of the first round */
	assert_non_null(strstr(message("app", REASON_SCRAPE_FAILED),
			       "/debug/pprof/mutex?seconds=0: the profile is lost"));
	run_until(heap_is_told); /* of two rounds */
}

/* A pod ends before the hub has its last profile. */
static void test_what_an_ended_pod_has_answered_counts(void **state)
{
	uint64_t n = counted("dropped");

	(void)state;
	t.hub_waits = true;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(was_delivered);
	scrape_plan(t.scrape, &(struct plan){0});
	assert_int_equal(counted("dropped"), n + 1);
}

static bool other_is_told(void)
{
	return *message("other", REASON_SCRAPE_FAILED) != '\0';
}

static void test_pods_that_must_not_be_asked(void **state)
{
	unsigned told;

	(void)state;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP)->refused = "it uses the network of its node";
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_string_equal(message("app", REASON_SCRAPE_FAILED),
			    "pod app/web-1: it uses the network of its node");
	assert_int_equal(t.n_asked, 0);
	told = t.n_told;
	scrape_plan(t.scrape, &t.plan); /* nothing is new */
	scrape_tick(t.scrape);
	assert_int_equal(t.n_told, told);
	free(t.plan.pods[0].scrape->target_uids[0]);
	t.plan.pods[0].scrape->target_uids[0] = xstrdup("other");
	scrape_plan(t.scrape, &t.plan);
	run_until(other_is_told);
	assert_string_equal(message("app", REASON_SCRAPE_FAILED), "");
	free(t.plan.pods[0].scrape->target_uids[0]);
	t.plan.pods[0].scrape->target_uids[0] = xstrdup("app");
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	clear_plan();
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_over);
}

/* The interval is so long that no round begins here. */
static void test_pods_of_one_namespace_leave_room(void **state)
{
	uint64_t n = counted("too_many");

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		add_pod("app", i, 1u << PLAN_PROFILE_HEAP)->interval_ns = 3600 * NSEC_PER_SEC;
	add_pod("other", 0, 1u << PLAN_PROFILE_HEAP)->interval_ns = 3600 * NSEC_PER_SEC;
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_true(counted("too_many") > n);
	assert_string_equal(message("other", REASON_SCRAPE_FAILED), "");
}

static bool room_is_used_up(void)
{
	return counted("no_room") > before;
}

/* Answers that the hub has not taken yet keep their room. */
static void test_answers_have_a_limit_together(void **state)
{
	(void)state;
	before = counted("no_room");
	t.hub_waits = true;
	t.body_bytes = LARGE_BYTES;
	for (unsigned i = 0; i < 3; i++) /* with the requests to the hub these are 24 MiB */
		add_pod("app", i, 1u << PLAN_PROFILE_HEAP);
	scrape_plan(t.scrape, &t.plan);
	run_until(room_is_used_up);
}

static bool none_is_held(void)
{
	return !t.held[0];
}

/* What another address has answered may be another pod's. */
static void test_an_answer_of_another_address(void **state)
{
	struct plan_scrape *s = add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);

	(void)state;
	t.hub_waits = true;
	scrape_plan(t.scrape, &t.plan);
	run_until(was_delivered);
	free(s->address);
	s->address = xstrdup("127.0.0.2");
	scrape_plan(t.scrape, &t.plan);
	run_until(none_is_held);
	assert_int_equal(t.n_delivered, 1);
}

static bool less_is_told(void)
{
	return *message("app", REASON_SCRAPED_LESS) != '\0';
}

/* The pod may spend nearly nothing on it: after the first round it has to wait. */
static void test_a_round_must_be_paid(void **state)
{
	static struct plan_container c = {.overhead_percent = 1e-9};

	(void)state;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	t.plan.pods[0].containers = &c;
	t.plan.pods[0].n_containers = 1;
	scrape_plan(t.scrape, &t.plan);
	run_until(less_is_told);
	assert_int_equal(t.n_asked, 1);
}

/* If the second round is put off, nothing else would tell of the first one. */
static void test_a_failure_is_told_before_it_is_paid(void **state)
{
	static struct plan_container c = {.overhead_percent = 1e-9};

	(void)state;
	t.program_status = 404;
	add_pod("app", 1, 1u << PLAN_PROFILE_HEAP);
	t.plan.pods[0].containers = &c;
	t.plan.pods[0].n_containers = 1;
	scrape_plan(t.scrape, &t.plan);
	run_until(failure_is_told);
	assert_int_equal(t.n_asked, 1);
	assert_non_null(strstr(message("app", REASON_SCRAPE_FAILED), "it answered 404"));
}

static void test_budget(void **state)
{
	struct scrape_budget b = {0};

	(void)state;
	assert_true(scrape_budget_may(&b)); /* the first round */
	scrape_budget_pay(&b, 10);
	assert_false(scrape_budget_may(&b));
	scrape_budget_earn(&b, 900, 1);
	assert_false(scrape_budget_may(&b));
	scrape_budget_earn(&b, 100, 1); /* what the first round has cost */
	assert_true(scrape_budget_may(&b));
	scrape_budget_earn(&b, 1000000, 1); /* nothing more is saved up */
	scrape_budget_pay(&b, 10);
	assert_false(scrape_budget_may(&b));
}

/* A pod whose CPU time is not known now earns nothing, and one that began again what it used. */
static void test_what_a_pod_has_used(void **state)
{
	(void)state;
	assert_int_equal(scrape_budget_used(0, 0, 100), 100);
	assert_int_equal(scrape_budget_used(0, 5, 100), 100);
	assert_int_equal(scrape_budget_used(5, 7, 100), 2);
	assert_int_equal(scrape_budget_used(5, 3, 100), 3);
	assert_int_equal(scrape_budget_used(5, 0, 100), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_hub_learns_whose_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_owner_is_only_a_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rounds_follow_each_other, setup, teardown),
		cmocka_unit_test_setup_teardown(test_owners_learn_what_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_failure_is_counted_only, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_no_profile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_hub_that_does_not_take_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_the_hub_does_not_take_is_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_what_the_hub_does_not_take_is_told_first,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_an_ended_pod_has_answered_counts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_pods_that_must_not_be_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pods_of_one_namespace_leave_room, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_answers_have_a_limit_together, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_an_answer_of_another_address, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_round_must_be_paid, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_failure_is_told_before_it_is_paid, setup,
						teardown),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_what_a_pod_has_used),
	};

	return cmocka_run_group_tests_name("scrape", tests, NULL, NULL);
}
