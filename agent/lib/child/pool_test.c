/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of children: no child serves two owners, few wait, and a loss stops its owner only. This
 * program itself is the child (VERB); it answers with its pid.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <seccomp.h>
#include <signal.h>
#include <unistd.h>

#include "lib/base/testchild.h"
#include "lib/child/child.h"

#define VERB	 "__pid"
#define WAIT_NS	 (10 * NSEC_PER_SEC)
#define START_NS (200 * NSEC_PER_MSEC) /* an impatient owner waits so long for the start */

static uint64_t later_ns;

static uint64_t shifted_now_ns(void)
{
	return now_mono_ns() + later_ns;
}

static const char *const argv_of_child[] = {VERB, NULL};
static struct child_ops ops;
static const struct child_config config = {
	.argv = argv_of_child,
	.restarts = "podflame_test_restarts_total",
	.stuck = "podflame_test_stuck_total",
	.impatient = true,
	.ops = &ops,
};

static int child_main(void)
{
	static const int calls[] = {SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(exit_group)};
	const struct child_rights rights = {
		.n_fds = CHILD_SOCKET_FD + 1, .calls = calls, .n_calls = ARRAY_SIZE(calls)};
	pid_t self = getpid();
	size_t n, n_fds;
	char byte;

	if (child_begin(VERB, "podflame-pid", &rights))
		return 1;
	while (!child_receive(CHILD_SOCKET_FD, &byte, 1, &n, NULL, 0, &n_fds))
		if (child_send(CHILD_SOCKET_FD, &self, sizeof(self), NULL, 0) < 0)
			break;
	return 0;
}

static pid_t ask(struct child *c)
{
	pid_t pid;
	size_t n;
	int r;

	while ((r = child_ask(c, "?", 1, NULL, 0)) == -EAGAIN) /* the machine is busy */
		usleep(1000);
	assert_int_equal(r, 0);
	assert_int_equal(child_answer(c, WAIT_NS, &pid, sizeof(pid), &n, NULL), 0);
	assert_int_equal(n, sizeof(pid));
	return pid;
}

/* Asks a child of the owner one question. */
static pid_t pid_for(struct child_pool *pool, uint64_t owner)
{
	struct child *c;
	pid_t pid;

	assert_int_equal(child_pool_take(pool, owner, &c), 0);
	pid = ask(c);
	child_pool_give(pool, c, false);
	return pid;
}

static int lose(struct child_pool *pool, uint64_t owner)
{
	struct child *c;
	int r = child_pool_take(pool, owner, &c);

	if (!r) {
		ask(c);
		child_pool_give(pool, c, true);
	}
	return r;
}

static bool lives(pid_t pid)
{
	return kill(pid, 0) == 0;
}

static void each_owner_has_its_own_child(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t one = pid_for(pool, 1), two = pid_for(pool, 2);

	(void)state;
	assert_int_not_equal(one, two);
	assert_int_equal(pid_for(pool, 1), one);
	assert_int_equal(pid_for(pool, 2), two);
	child_pool_free(pool);
	assert_false(lives(one) || lives(two));
}

static void two_callers_of_one_owner_have_two(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	struct child *a, *b;
	pid_t pid;

	(void)state;
	assert_int_equal(child_pool_take(pool, 1, &a), 0);
	assert_int_equal(child_pool_take(pool, 1, &b), 0);
	pid = ask(a);
	assert_int_not_equal(pid, ask(b));
	child_pool_give(pool, a, false);
	child_pool_give(pool, b, false);
	child_pool_free(pool);
}

/* Of those that wait, the one that was used least recently is ended. */
static void few_wait(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t pids[CHILD_POOL_WAITING_MAX + 2];
	size_t n = ARRAY_SIZE(pids);

	(void)state;
	for (size_t i = 0; i < n; i++)
		pids[i] = pid_for(pool, i);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(lives(pids[i]), i >= n - CHILD_POOL_WAITING_MAX);
	assert_int_not_equal(pid_for(pool, 0), pids[0]);
	assert_int_equal(pid_for(pool, n - 1), pids[n - 1]);
	child_pool_free(pool);
}

/* A child that is not ready when it is asked first, but is when it is asked again. */
static bool readable_in_the_end(int sock, uint64_t ns)
{
	return ns != START_NS && child_kernel.readable(sock, ns ?: WAIT_NS);
}

/* Asks once; 0: there is no answer yet. */
static pid_t try(struct child_pool *pool, uint64_t owner)
{
	struct child *c;
	pid_t pid = 0;

	if (child_pool_take(pool, owner, &c)) {
		assert_true(child_pool_next_ns(pool, owner) > shifted_now_ns());
		return 0;
	}
	if (child_ask(c, "?", 1, NULL, 0) == 0)
		pid = ask(c);
	child_pool_give(pool, c, false);
	return pid;
}

/* More owners than children that wait: each gets its answer, also if children start slowly. */
static void each_owner_has_its_turn(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t pids[2 * CHILD_POOL_WAITING_MAX] = {0};
	size_t n_living = 0;

	(void)state;
	ops.readable = readable_in_the_end;
	for (size_t round = 0; round < 10; round++)
		for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
			pids[i] = pids[i] ?: try(pool, i);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_not_equal(pids[i], 0);
		n_living += lives(pids[i]);
	}
	assert_int_equal(n_living, CHILD_POOL_WAITING_MAX);
	ops.readable = child_kernel.readable;
	child_pool_free(pool);
}

/* One whose owner does not come back makes room. */
static void a_child_that_starts_for_long_makes_room(void **state)
{
	struct child_pool *pool = child_pool_new(&config);

	(void)state;
	ops.readable = readable_in_the_end;
	for (size_t i = 0; i < CHILD_POOL_WAITING_MAX; i++)
		assert_int_equal(try(pool, i), 0);
	assert_int_equal(try(pool, 100), 0);
	assert_int_equal(try(pool, 100), 0);
	later_ns += CHILD_POOL_STARTING_NS;
	assert_int_equal(try(pool, 100), 0);
	assert_int_not_equal(try(pool, 100), 0);
	ops.readable = child_kernel.readable;
	child_pool_free(pool);
}

static void who_is_not_asked_for_long_ends(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t one = pid_for(pool, 1), two;

	(void)state;
	later_ns += CHILD_POOL_IDLE_NS / 2;
	two = pid_for(pool, 2);
	later_ns += CHILD_POOL_IDLE_NS / 2;
	child_pool_rest(pool);
	assert_false(lives(one));
	assert_true(lives(two));
	assert_int_equal(pid_for(pool, 2), two);
	child_pool_free(pool);
}

/* So many wait as the pool's owner says, and each answers as many questions. */
static void the_configuration_has_its_own_limits(void **state)
{
	struct child_config c = config;
	struct child_pool *pool;
	pid_t pids[3];

	(void)state;
	c.waiting_max = 2;
	c.questions_max = 3;
	pool = child_pool_new(&c);
	for (size_t i = 0; i < 3; i++)
		pids[i] = pid_for(pool, i);
	assert_false(lives(pids[0]));
	assert_true(lives(pids[1]));
	assert_int_equal(pid_for(pool, 1), pids[1]);
	assert_int_equal(pid_for(pool, 1), pids[1]);
	assert_int_not_equal(pid_for(pool, 1), pids[1]);
	child_pool_free(pool);
}

static void a_loss_stops_its_owner_only(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t two = pid_for(pool, 2);

	(void)state;
	assert_int_equal(lose(pool, 1), 0);
	assert_int_equal(lose(pool, 1), -ECANCELED);
	assert_int_equal(pid_for(pool, 2), two);
	assert_true(child_pool_next_ns(pool, 1) > shifted_now_ns());
	assert_int_equal(child_pool_next_ns(pool, 2), 0);
	later_ns = child_pool_next_ns(pool, 1) - now_mono_ns();
	assert_int_equal(child_pool_next_ns(pool, 1), 0);
	/* the next loss follows too soon, so the pause is twice as long */
	assert_int_equal(lose(pool, 1), 0);
	later_ns += CHILD_POOL_PAUSE_NS;
	assert_int_equal(lose(pool, 1), -ECANCELED);
	later_ns += CHILD_POOL_PAUSE_NS;
	pid_for(pool, 1);
	/* when no child was lost for as long as the pause was, the next one is short again */
	later_ns += 2 * CHILD_POOL_PAUSE_NS;
	assert_int_equal(lose(pool, 1), 0);
	later_ns += CHILD_POOL_PAUSE_NS;
	pid_for(pool, 1);
	child_pool_free(pool);
}

static void no_pause_is_longer_than_the_longest(void **state)
{
	struct child_pool *pool = child_pool_new(&config);

	(void)state;
	for (int i = 0; i < 8; i++) {
		assert_int_equal(lose(pool, 1), 0);
		later_ns += CHILD_POOL_PAUSE_MAX_NS;
	}
	pid_for(pool, 1);
	child_pool_free(pool);
}

/* The kernel cannot end a process that waits for a file system. Its owner leaves no second one. */
static void an_owner_leaves_one_process_behind(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	uint64_t n = counter_get(counter(config.stuck, NULL, NULL));
	pid_t first = pid_for(pool, 1), tracer = testchild_hold_at_exit(first);

	(void)state;
	assert_int_equal(lose(pool, 1), 0);
	assert_int_equal(counter_get(counter(config.stuck, NULL, NULL)), n + 1);
	later_ns += 2 * CHILD_POOL_PAUSE_MAX_NS;
	assert_int_equal(lose(pool, 1), -ECANCELED);
	pid_for(pool, 2);
	assert_int_equal(lose(pool, 1), -ECANCELED);
	kill(tracer, SIGKILL);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	assert_int_equal(waitid(P_PID, (id_t)first, NULL, WEXITED | WNOWAIT), 0);
	assert_int_not_equal(pid_for(pool, 1), first);
	child_pool_free(pool);
}

/* A child that is taken over does not keep its owner's names for ever. */
static void an_old_child_is_replaced(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	pid_t first = pid_for(pool, 1);

	(void)state;
	for (int i = 1; i < CHILD_POOL_QUESTIONS; i++)
		assert_int_equal(pid_for(pool, 1), first);
	assert_int_not_equal(pid_for(pool, 1), first);
	assert_false(lives(first));
	child_pool_free(pool);
}

/* Owners that were paused are remembered up to a limit, and take no memory beyond it. */
static void so_many_owners_are_remembered(void **state)
{
	struct child_pool *pool = child_pool_new(&config);
	struct child *c;

	(void)state;
	for (uint64_t i = 0; i < CHILD_POOL_OWNERS_MAX + 2; i++) {
		assert_int_equal(child_pool_take(pool, i, &c), 0); /* without a process: no loss */
		child_pool_give(pool, c, true);
	}
	assert_int_equal(lose(pool, CHILD_POOL_OWNERS_MAX + 1), -ECANCELED);
	assert_int_equal(lose(pool, 2), -ECANCELED);
	assert_int_equal(lose(pool, 0), 0);
	child_pool_free(pool);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_owner_has_its_own_child),
		cmocka_unit_test(two_callers_of_one_owner_have_two),
		cmocka_unit_test(few_wait),
		cmocka_unit_test(each_owner_has_its_turn),
		cmocka_unit_test(a_child_that_starts_for_long_makes_room),
		cmocka_unit_test(who_is_not_asked_for_long_ends),
		cmocka_unit_test(the_configuration_has_its_own_limits),
		cmocka_unit_test(a_loss_stops_its_owner_only),
		cmocka_unit_test(no_pause_is_longer_than_the_longest),
		cmocka_unit_test(an_owner_leaves_one_process_behind),
		cmocka_unit_test(an_old_child_is_replaced),
		cmocka_unit_test(so_many_owners_are_remembered),
	};

	if (argc > 1 && streq(argv[1], VERB))
		return child_main();
	ops = child_kernel;
	ops.now_ns = shifted_now_ns;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
