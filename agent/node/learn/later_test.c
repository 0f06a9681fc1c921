/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes are read at once, which later, and which never. */
#include "node/learn/learn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LATER_MAX 8192 /* as in later.c */

/* The processes that a round has read. */
struct reads {
	uint32_t n, last_tgid, last_exec_id;
};

static void note(const struct raw_proc *p, void *arg)
{
	struct reads *r = arg;

	r->n++;
	r->last_tgid = p->tgid;
	r->last_exec_id = p->exec_id;
}

static struct reads a_round(struct learn_later *l)
{
	struct reads r = {0};

	learn_later_round(l, note, &r);
	return r;
}

static struct raw_proc seen(uint32_t tgid)
{
	return (struct raw_proc){.what = RAW_PROC_SEEN, .tgid = tgid, .all_known = true};
}

static struct raw_proc ended(uint32_t tgid)
{
	return (struct raw_proc){.what = RAW_PROC_EXIT, .tgid = tgid, .all_known = true};
}

static void a_process_that_lives_on_is_read_once(void **state)
{
	struct learn_later *l = learn_later_new();
	struct raw_proc p = seen(5);
	struct reads r;

	(void)state;
	assert_true(learn_later_takes(l, &p));
	assert_int_equal(a_round(l).n, 0);
	p.exec_id = 9; /* it has become another program: that one is read */
	assert_true(learn_later_takes(l, &p));
	r = a_round(l);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.last_tgid, 5);
	assert_int_equal(r.last_exec_id, 9);
	assert_int_equal(a_round(l).n, 0);
	learn_later_free(l);
}

static void a_process_that_ends_is_not_read(void **state)
{
	struct learn_later *l = learn_later_new();
	const struct raw_proc p = seen(5), end = ended(5);

	(void)state;
	assert_true(learn_later_takes(l, &p));
	assert_false(learn_later_takes(l, &end));
	a_round(l);
	assert_int_equal(a_round(l).n, 0);
	learn_later_free(l);
}

static void a_process_of_which_something_is_not_known_is_read_at_once(void **state)
{
	struct learn_later *l = learn_later_new();
	const struct raw_proc p = seen(5);
	struct raw_proc strange = seen(5);

	(void)state;
	strange.all_known = false;
	assert_true(learn_later_takes(l, &p));
	assert_false(learn_later_takes(l, &strange));
	a_round(l);
	assert_int_equal(a_round(l).n, 0); /* the caller has read it */
	learn_later_free(l);
}

static void processes_beyond_the_limit_are_read_at_once(void **state)
{
	struct learn_later *l = learn_later_new();
	struct raw_proc p;

	(void)state;
	for (uint32_t tgid = 1; tgid <= LATER_MAX; tgid++) {
		p = seen(tgid);
		assert_true(learn_later_takes(l, &p));
	}
	p = seen(LATER_MAX + 1);
	assert_false(learn_later_takes(l, &p));
	a_round(l);
	assert_int_equal(a_round(l).n, LATER_MAX);
	assert_true(learn_later_takes(l, &p));
	learn_later_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_that_lives_on_is_read_once),
		cmocka_unit_test(a_process_that_ends_is_not_read),
		cmocka_unit_test(a_process_of_which_something_is_not_known_is_read_at_once),
		cmocka_unit_test(processes_beyond_the_limit_are_read_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
