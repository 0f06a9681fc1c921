/* SPDX-License-Identifier: Apache-2.0 */
/*
 * election: who leads. The test is the API server; it has the Lease, and refuses a write that does
 * not name its version. In the last test several processes with clocks of their own are paused,
 * and their requests are late or lost, as a random number says.
 */
#include "lib/kube/election.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define S NSEC_PER_SEC

/* ---- the API server ---- */

static json_t *lease; /* NULL: there is none */
static unsigned version;

static void set_version(void)
{
	_cleanup_free_ char *v = xasprintf("v%u", ++version);

	json_object_set_new(json_object_get(lease, "metadata"), "resourceVersion", json_string(v));
}

static int create(const json_t *body)
{
	if (lease)
		return 409;
	assert_string_equal(json_str_at(body, "kind", ""), "Lease");
	lease = json_deep_copy(body);
	set_version();
	return 201;
}

static int update(const json_t *body)
{
	const char *v = json_str_at(body, "metadata.resourceVersion", NULL);

	assert_non_null(v);
	if (!lease)
		return 404;
	if (!streq(v, json_str_at(lease, "metadata.resourceVersion", "")))
		return 409;
	json_object_update(json_object_get(lease, "spec"), json_object_get(body, "spec"));
	set_version();
	return 200;
}

static int write_lease(enum election_step step, const json_t *body)
{
	return step == ELECTION_CREATE ? create(body) : update(body);
}

/* ---- a process ---- */

static void start(struct election *e, const char *name)
{
	kube_election_init(e, name, &kube_election_times);
}

/* Does a whole try at this time; all requests are answered at once. */
static void try(struct election *e, uint64_t now_ns)
{
	enum election_step step = kube_election_begin(e, now_ns);

	while (step != ELECTION_WAIT) {
		_cleanup_json_ json_t *body = NULL;

		if (step == ELECTION_READ) {
			step = kube_election_read(e, lease, now_ns);
			continue;
		}
		body = kube_election_body(e, "hub", now_ns, now_ns);
		if (write_lease(step, body) / 100 == 2) {
			kube_election_wrote(e, lease, now_ns);
			return;
		}
		step = kube_election_failed(e);
	}
}

static int setup(void **state)
{
	(void)state;
	lease = NULL;
	version = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(TAKE_PTR(lease));
	return 0;
}

static const char *holder(void)
{
	return json_str_at(lease, "spec.holderIdentity", "");
}

/* ---- tests ---- */

static void test_the_first_one_leads(void **state)
{
	struct election a, b;

	(void)state;
	start(&a, "a");
	start(&b, "b");
	assert_false(kube_election_leads(&a, 0));
	try(&a, 1 * S);
	try(&b, 900 * S); /* its clock shows another time */
	assert_true(kube_election_leads(&a, 1 * S));
	assert_false(kube_election_leads(&b, 900 * S));
	assert_string_equal(kube_election_holder(&b), "a");
	assert_string_equal(json_str_at(lease, "metadata.name", ""), "hub");
	assert_int_equal(json_int_at(lease, "spec.leaseDurationSeconds", 0), 15);
	assert_int_equal(json_int_at(lease, "spec.leaseTransitions", -1), 0);
	kube_election_done(&a);
	kube_election_done(&b);
}

/* The chart makes a Lease without a spec. */
static void test_an_empty_lease_is_free(void **state)
{
	struct election a;

	(void)state;
	lease = json_pack("{s:{s:s, s:s, s:{s:s}}, s:{}}", "metadata", "name", "hub",
			  "resourceVersion", "v0", "labels", "app", "podflame", "spec");
	start(&a, "a");
	try(&a, 1 * S);
	assert_true(kube_election_leads(&a, 1 * S));
	assert_string_equal(json_str_at(lease, "metadata.labels.app", ""), "podflame");
	assert_string_equal(json_str_at(lease, "spec.acquireTime", ""),
			    "1970-01-01T00:00:01.000000Z");
	kube_election_done(&a);
}

static void test_the_lead_ends_without_a_renewal(void **state)
{
	struct election a;

	(void)state;
	start(&a, "a");
	try(&a, 100 * S);
	assert_true(kube_election_leads(&a, 110 * S - 1));
	assert_false(kube_election_leads(&a, 110 * S));
	try(&a, 104 * S);
	assert_true(kube_election_leads(&a, 114 * S - 1));
	assert_false(kube_election_leads(&a, 114 * S));
	kube_election_done(&a);
}

/* The lead counts from the moment at which the renewal was sent, not from its answer. */
static void test_a_late_answer(void **state)
{
	_cleanup_json_ json_t *body = NULL;
	struct election a;

	(void)state;
	start(&a, "a");
	assert_int_equal(kube_election_begin(&a, 100 * S), ELECTION_READ);
	assert_int_equal(kube_election_read(&a, NULL, 100 * S), ELECTION_CREATE);
	body = kube_election_body(&a, "hub", 100 * S, 0);
	assert_int_equal(create(body), 201);
	kube_election_wrote(&a, lease, 109 * S);
	assert_true(kube_election_leads(&a, 110 * S - 1));
	assert_false(kube_election_leads(&a, 110 * S));
	kube_election_done(&a);
}

static void test_another_takes_over(void **state)
{
	struct election a, b;

	(void)state;
	start(&a, "a");
	start(&b, "b");
	try(&a, 0);
	try(&b, 500 * S);
	try(&a, 2 * S);
	try(&b, 504 * S); /* has changed, so 15 s begin again */
	try(&b, 519 * S - 1);
	assert_string_equal(holder(), "a");
	try(&b, 519 * S);
	assert_string_equal(holder(), "b");
	assert_true(kube_election_leads(&b, 519 * S));
	assert_int_equal(json_int_at(lease, "spec.leaseTransitions", 0), 1);
	/* the old one was paused: it knows by its clock, and its next write is refused */
	assert_false(kube_election_leads(&a, 19 * S));
	try(&a, 19 * S);
	assert_false(kube_election_leads(&a, 19 * S));
	assert_string_equal(holder(), "b");
	kube_election_done(&a);
	kube_election_done(&b);
}

/* A leader whose optimistic renewal is refused looks again, in the same try. */
static void test_somebody_touches_the_lease(void **state)
{
	struct election a, b;

	(void)state;
	start(&a, "a");
	start(&b, "b");
	try(&a, 0);
	try(&b, 0);
	json_object_set_new(json_object_get(lease, "metadata"), "annotations", json_object());
	set_version();
	try(&a, 2 * S);
	assert_true(kube_election_leads(&a, 12 * S - 1));
	try(&b, 2 * S);
	/* only a change of the spec prolongs it */
	for (unsigned i = 3; i < 17; i++) {
		set_version();
		try(&b, i * S);
	}
	assert_string_equal(holder(), "a");
	set_version();
	try(&b, 17 * S);
	assert_string_equal(holder(), "b");
	kube_election_done(&a);
	kube_election_done(&b);
}

static void test_the_lease_is_deleted(void **state)
{
	struct election a;

	(void)state;
	start(&a, "a");
	try(&a, 0);
	json_decref(TAKE_PTR(lease));
	try(&a, 2 * S);
	assert_string_equal(holder(), "a");
	assert_true(kube_election_leads(&a, 2 * S));
	kube_election_done(&a);
}

static void test_a_holder_who_claims_it_for_ever(void **state)
{
	struct election b;

	(void)state;
	lease = json_pack("{s:{s:s}, s:{s:s, s:I}}", "metadata", "resourceVersion", "v0", "spec",
			  "holderIdentity", "x", "leaseDurationSeconds", (json_int_t)INT64_MAX);
	start(&b, "b");
	try(&b, 0);
	try(&b, 299 * S);
	assert_string_equal(holder(), "x");
	try(&b, 300 * S);
	assert_string_equal(holder(), "b");
	kube_election_done(&b);
}

static void test_resigning(void **state)
{
	_cleanup_json_ json_t *body = NULL;
	struct election a, b;

	(void)state;
	start(&a, "a");
	start(&b, "b");
	try(&a, 0);
	try(&b, 0);
	assert_null(kube_election_resign(&b, 0));
	body = kube_election_resign(&a, 0);
	assert_false(kube_election_leads(&a, 0));
	assert_int_equal(update(body), 200);
	try(&b, 1 * S);
	assert_true(kube_election_leads(&b, 1 * S));
	kube_election_done(&a);
	kube_election_done(&b);
}

/* ---- random faults ---- */

#define N    4
#define STEP (NSEC_PER_SEC / 20)

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

struct process {
	struct election election;
	uint64_t offset_ns, per_mille; /* its clock: what it showed at the start, and its rate */
	uint64_t next_ns, paused_until_ns;
	/* the request under way; all times are the test's */
	enum election_step step;
	json_t *body, *answer; /* answer: the object; NULL: there is none */
	uint64_t reaches_ns, answered_ns, given_up_ns;
	int status; /* 0: it has not reached the API server */
};

static uint64_t clock_of(const struct process *p, uint64_t now_ns)
{
	return p->offset_ns + now_ns / 1000 * p->per_mille;
}

static void request_done(struct process *p)
{
	json_decref(TAKE_PTR(p->body));
	json_decref(TAKE_PTR(p->answer));
	p->status = 0;
}

static void begin_step(struct process *p, enum election_step step, uint64_t now_ns)
{
	p->step = step;
	if (step == ELECTION_WAIT) {
		p->next_ns = now_ns + 2 * S + below(S);
		return;
	}
	if (step != ELECTION_READ)
		p->body = kube_election_body(&p->election, "hub", clock_of(p, now_ns), now_ns);
	/* most are fast, some slow, some lost */
	p->reaches_ns = below(20) ? now_ns + below(S / 5) : now_ns + below(8 * S);
	p->answered_ns = below(20) ? p->reaches_ns + below(S / 5)
				   : p->reaches_ns + (below(2) ? below(8 * S) : 1000 * S);
	p->given_up_ns = now_ns + 4 * S;
}

/* The API server gets the request, whatever the process does meanwhile. */
static void reach(struct process *p)
{
	if (p->step == ELECTION_READ)
		p->status = lease ? 200 : 404;
	else
		p->status = write_lease(p->step, p->body);
	if (p->status / 100 == 2)
		p->answer = json_deep_copy(lease);
}

static enum election_step hear(struct process *p, uint64_t now_ns)
{
	uint64_t own_ns = clock_of(p, now_ns);

	if (p->step == ELECTION_READ && (p->answer || p->status == 404))
		return kube_election_read(&p->election, p->answer, own_ns);
	if (!p->answer)
		return kube_election_failed(&p->election);
	kube_election_wrote(&p->election, p->answer, own_ns);
	return ELECTION_WAIT;
}

static void run(struct process *p, uint64_t now_ns)
{
	enum election_step then;

	if (p->step != ELECTION_WAIT && !p->status && now_ns >= p->reaches_ns)
		reach(p);
	if (now_ns < p->paused_until_ns)
		return;
	if (!below(2000))
		p->paused_until_ns = now_ns + below(40 * S);
	if (p->step == ELECTION_WAIT) {
		if (now_ns >= p->next_ns)
			begin_step(p, kube_election_begin(&p->election, clock_of(p, now_ns)),
				   now_ns);
		return;
	}
	if (p->status && now_ns >= p->answered_ns)
		then = hear(p, now_ns);
	else if (now_ns >= p->given_up_ns && p->status) /* a late request is another's business */
		then = kube_election_failed(&p->election);
	else
		return;
	request_done(p);
	begin_step(p, then, now_ns);
}

static unsigned n_leading(const struct process *all, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < N; i++)
		n += kube_election_leads(&all[i].election, clock_of(&all[i], now_ns));
	return n;
}

static void test_never_two_leaders(void **state)
{
	struct process all[N] = {0};
	uint64_t n_led = 0, n_steps = 400000;

	(void)state;
	seed = 88172645463325252u;
	for (unsigned i = 0; i < N; i++) {
		char name[] = {(char)('a' + (int)i), '\0'};

		start(&all[i].election, name);
		all[i].offset_ns = below(1000000) * S;
		all[i].per_mille = 850 + below(301);
	}
	for (uint64_t k = 0; k < n_steps; k++) {
		unsigned n;

		for (unsigned i = 0; i < N; i++)
			run(&all[i], k * STEP);
		n = n_leading(all, k * STEP);
		if (n > 1)
			fail_msg("%u lead at step %llu", n, (unsigned long long)k);
		n_led += n;
	}
	/* faults are many, but most of the time one leads, and the lead has changed often */
	assert_true(n_led > n_steps / 2);
	assert_true(json_int_at(lease, "spec.leaseTransitions", 0) > 20);
	for (unsigned i = 0; i < N; i++) {
		request_done(&all[i]);
		kube_election_done(&all[i].election);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_first_one_leads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_empty_lease_is_free, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_lead_ends_without_a_renewal, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_late_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_takes_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_somebody_touches_the_lease, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_lease_is_deleted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_holder_who_claims_it_for_ever, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_resigning, setup, teardown),
		cmocka_unit_test_setup_teardown(test_never_two_leaders, setup, teardown),
	};

	return cmocka_run_group_tests_name("election", tests, NULL, NULL);
}
