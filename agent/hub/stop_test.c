/* SPDX-License-Identifier: Apache-2.0 */
/* stop: until when a hub that ends serves, and that it answers what it has. */
#include "hub/stop.h"

#include "lib/loop/testhttp.h"

static bool is_done;

static void done(void *arg)
{
	struct fixture *f = arg;

	is_done = true;
	loop_stop(f->loop, 0);
}

/* Nothing else happens for a moment. */
static void let_pass(struct fixture *f)
{
	timer_set(f->loop, &f->step, 100 * NSEC_PER_MSEC, guard, f);
	loop_run(f->loop);
}

static void ends_at_once_without_requests(void **state)
{
	struct fixture *f = *state;
	struct hub_stop s = {0}; /* a hub that has no certificate yet has no servers */

	is_done = false;
	hub_stop_begin(&s, f->loop, 0, done, f);
	assert_false(is_done); /* never inside the call */
	run(f);
	assert_true(is_done);
}

static void answers_what_it_has(void **state)
{
	struct fixture *f = *state;
	struct hub_stop s = {0};

	is_done = false;
	start_both(f);
	s.servers[1] = f->server;
	f->hold = true;
	start(f, "POST", "/", "x", 1);
	while (!f->held)
		let_pass(f);
	hub_stop_begin(&s, f->loop, 0, done, f);
	let_pass(f);
	assert_false(is_done);
	reply_later(f);
	run(f); /* the client has its answer */
	assert_int_equal(f->status, 202);
	while (!is_done)
		run(f);
}

/* Those that Kubernetes still sends are served. */
static void serves_on_for_a_while(void **state)
{
	struct fixture *f = *state;
	struct hub_stop s = {0};

	is_done = false;
	start_both(f);
	s.servers[0] = f->server;
	hub_stop_begin(&s, f->loop, 3600 * NSEC_PER_SEC, done, f);
	let_pass(f);
	get(f, "/");
	assert_int_equal(f->status, 200);
	hub_stop_cancel(&s);
	assert_false(is_done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ends_at_once_without_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(answers_what_it_has, setup, teardown),
		cmocka_unit_test_setup_teardown(serves_on_for_a_while, setup, teardown),
	};

	return cmocka_run_group_tests_name("stop", tests, make_certs, free_certs);
}
