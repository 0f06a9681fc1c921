/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease: which requests are sent, what is reported, and when the leader's kube writes. The test is
 * the API server and the clock. Who leads is tested in election_test.c.
 */
#include "lib/kube/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "lib/kube/testkube.h"
#include "lib/loop/testtimer.h"

#define S      NSEC_PER_SEC
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/ns/leases"

static struct kube_lease *lease;
static json_t *stored; /* the Lease */
static unsigned n_begun, n_ended, n_resigned;

static void changed(bool leads, void *arg)
{
	(void)arg;
	n_begun += leads;
	assert_int_equal(kube_lease_term(lease), leads ? n_begun : 0);
	n_ended += !leads;
	assert_int_equal(kube_lease_is_held(lease), leads);
}

static void resigned(void *arg)
{
	(void)arg;
	n_resigned++;
}

static int setup(void **state)
{
	static const struct kube_lease_config c = {"ns", "hub", "me", changed, NULL};

	(void)state;
	test_clock.stands_ns = 1000 * S;
	n_begun = n_ended = n_resigned = 0;
	stored = json_pack("{s:{s:s}}", "metadata", "resourceVersion", "1");
	assert_int_equal(kube_lease_new(timer_loop(), testkube(), &c, &lease), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lease = kube_lease_free(lease);
	free(TAKE_PTR(sent.arg));
	sent.fn = NULL;
	json_decref(TAKE_PTR(sent.body));
	json_decref(TAKE_PTR(stored));
	return 0;
}

/* Time passes until the next timer, which fires. */
static void next_timer(void)
{
	test_clock.stands_ns += timer_delay_ns();
	timer_fire();
}

static void answer(int status, const json_t *body, const char *error)
{
	kube_done_fn *fn = TAKE_PTR(sent.fn);

	assert_non_null(fn);
	fn(status, body, error, TAKE_PTR(sent.arg));
}

static void assert_sent(const char *method, const char *path)
{
	assert_non_null(sent.fn);
	assert_string_equal(sent.method, method);
	assert_string_equal(sent.path, path);
}

/* The API server answers one request as it should. */
static void serve(void)
{
	if (!streq(sent.method, "GET"))
		json_object_set(stored, "spec", json_object_get(sent.body, "spec"));
	answer(200, stored, NULL);
}

static void lead(void)
{
	next_timer();
	assert_sent("GET", LEASES "/hub");
	serve();
	assert_sent("PATCH", LEASES "/hub");
	assert_string_equal(sent.type, "application/merge-patch+json");
	serve();
	assert_null(sent.fn);
	assert_int_equal(n_begun, 1);
	assert_true(kube_lease_is_held(lease));
}

/* The request stays without an answer; it is what the test gets. */
struct late {
	kube_done_fn *fn;
	void *arg;
};

static struct late lose(void)
{
	struct late l = {TAKE_PTR(sent.fn), TAKE_PTR(sent.arg)};

	assert_non_null(l.fn);
	return l;
}

static void test_leading_and_renewing(void **state)
{
	(void)state;
	lead();
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(timer_delay_ns(), 2 * S);
		next_timer();
		assert_sent("PATCH", LEASES "/hub");
		serve();
	}
	assert_int_equal(n_begun, 1);
	assert_int_equal(n_ended, 0);
	assert_string_equal(kube_lease_holder(lease), "me");
	assert_string_equal(kube_lease_problem(lease), "");
}

static void test_the_lease_is_made(void **state)
{
	(void)state;
	next_timer();
	answer(404, NULL, "not found");
	assert_sent("POST", LEASES);
	assert_string_equal(json_str_at(sent.body, "metadata.name", ""), "hub");
	answer(403, NULL, "HTTP 403: leases is forbidden");
	assert_string_equal(kube_lease_problem(lease), "Lease hub: HTTP 403: leases is forbidden");
	assert_int_equal(n_begun, 0);
	next_timer();
	answer(404, NULL, "not found");
	serve();
	assert_int_equal(n_begun, 1);
	assert_string_equal(kube_lease_problem(lease), "");
}

/* Another one has it: this one looks again, at a random time, so that not all look at once. */
static void test_waiting(void **state)
{
	(void)state;
	json_object_set_new(stored, "spec", json_pack("{s:s}", "holderIdentity", "other"));
	for (unsigned i = 0; i < 4; i++) {
		next_timer();
		assert_sent("GET", LEASES "/hub");
		serve();
		assert_null(sent.fn);
		assert_in_range(timer_delay_ns(), 2 * S, 4400 * NSEC_PER_MSEC);
	}
	assert_string_equal(kube_lease_holder(lease), "other");
}

/* A leader that gets no answer tries again with further requests, and then stops to lead. */
static void test_no_answers(void **state)
{
	struct late late[8];
	size_t n = 0;

	(void)state;
	lead();
	test_clock.stands_ns += 2 * S;
	timer_fire();
	while (!n_ended) {
		if (sent.fn) {
			assert_true(n < ARRAY_SIZE(late));
			late[n++] = lose();
		}
		assert_true(kube_lease_is_held(lease));
		next_timer();
	}
	assert_true(n > 1);
	assert_in_range(test_clock.stands_ns, 1010 * S, 1010 * S + NSEC_PER_MSEC);
	assert_string_equal(kube_lease_problem(lease), "Lease hub: no answer in time");
	while (n-- > 0) /* answers that come too late change nothing */
		late[n].fn(200, stored, NULL, late[n].arg);
	assert_false(kube_lease_is_held(lease));
}

/* ---- the leader's kube ---- */

static void on_write(int status, const json_t *body, const char *error, void *arg)
{
	(void)body;
	(void)error;
	*(int *)arg = status;
}

static int write_as_leader(const char *method, int *ret_status)
{
	return kube_request(kube_lease_writer(lease), method, "/x", NULL, NULL, on_write,
			    ret_status);
}

/* The process was stopped: it has heard of nothing, and no timer has fired. */
static void test_nothing_is_written_after_a_pause(void **state)
{
	int status = -1;

	(void)state;
	assert_int_equal(write_as_leader("PATCH", &status), -EPERM);
	lead();
	assert_int_equal(write_as_leader("PATCH", &status), 0);
	assert_sent("PATCH", "/x");
	answer(200, NULL, NULL);
	assert_int_equal(status, 200);
	test_clock.stands_ns += 10 * S;
	assert_int_equal(n_ended, 0);
	assert_int_equal(write_as_leader("PATCH", &status), -EPERM);
	assert_int_equal(write_as_leader("POST", &status), -EPERM);
	assert_int_equal(write_as_leader("DELETE", &status), -EPERM);
	assert_null(sent.fn);
	assert_int_equal(write_as_leader("GET", &status), 0);
	assert_sent("GET", "/x");
	answer(404, NULL, "not found");
	assert_int_equal(status, 404);
}

/* Other threads learn the same, and that it is another lead afterwards. */
static void test_the_lead_of_a_process_that_was_stopped_is_over(void **state)
{
	(void)state;
	assert_int_equal(kube_lease_term(lease), 0);
	lead();
	assert_int_equal(kube_lease_term(lease), 1);
	test_clock.stands_ns += 10 * S;
	assert_int_equal(n_ended, 0);
	assert_int_equal(kube_lease_term(lease), 0);
	while (n_begun < 2) {
		if (sent.fn)
			serve();
		else
			next_timer();
	}
	assert_int_equal(kube_lease_term(lease), 2);
	kube_lease_resign(lease, resigned, NULL);
	assert_int_equal(kube_lease_term(lease), 0);
}

/* ---- giving it up ---- */

static void test_resigning(void **state)
{
	(void)state;
	lead();
	kube_lease_resign(lease, resigned, NULL);
	assert_false(kube_lease_is_held(lease));
	assert_int_equal(n_ended, 1);
	assert_sent("GET", LEASES "/hub");
	serve();
	assert_sent("PATCH", LEASES "/hub");
	assert_string_equal(json_str_at(sent.body, "spec.holderIdentity", "x"), "");
	assert_int_equal(n_resigned, 0);
	serve();
	assert_int_equal(n_resigned, 1);
	assert_false(timer_armed());
}

static void test_resigning_without_the_lead(void **state)
{
	(void)state;
	json_object_set_new(stored, "spec", json_pack("{s:s}", "holderIdentity", "other"));
	next_timer();
	serve();
	kube_lease_resign(lease, resigned, NULL);
	assert_int_equal(n_resigned, 1);
	assert_null(sent.fn);
	assert_false(timer_armed());
}

/* The renewal that is under way may or may not arrive. */
static void test_resigning_while_a_renewal_is_under_way(void **state)
{
	struct late late;

	(void)state;
	lead();
	next_timer();
	assert_sent("PATCH", LEASES "/hub");
	late = lose();
	kube_lease_resign(lease, resigned, NULL);
	assert_sent("GET", LEASES "/hub");
	late.fn(200, stored, NULL, late.arg);
	assert_false(kube_lease_is_held(lease));
	late = lose();
	assert_int_equal(n_resigned, 0);
	next_timer(); /* the API server does not answer: it is not waited for long */
	assert_int_equal(n_resigned, 1);
	late.fn(200, stored, NULL, late.arg);
	assert_int_equal(n_resigned, 1);
}

static void test_freed_before_the_answer(void **state)
{
	(void)state;
	next_timer();
	lease = kube_lease_free(lease);
	serve();
	assert_false(timer_armed());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_leading_and_renewing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_lease_is_made, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waiting, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_is_written_after_a_pause, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_lead_of_a_process_that_was_stopped_is_over,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_resigning, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resigning_without_the_lead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resigning_while_a_renewal_is_under_way, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_freed_before_the_answer, setup, teardown),
	};

	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
