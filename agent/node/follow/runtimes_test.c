/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the agent searches for the runtimes of a process, and what it does with the result. This
 * thread does the work of the workers and the timers.
 */
#include "node/follow/internal.h"
#include "node/kernel/testkernel.h"
#include "node/runtime/testruntime.h"
#include "node/work/testworkers.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testclock.h"

/* ---- the functions that the jobs call, and those that get the result ---- */

static uint64_t charged_ns; /* of the process */
static struct runtime_process *python, *other;
static struct {
	struct runtime_process *found;
	bool again;
	int result;
} next;
static const struct mappings *looked_at;
static const struct runtime_process *looked_with, *told, *set;
static unsigned n_looks, n_told, n_sets;
static const struct runtime_process *rows_of; /* whose rows the kernel has */
static unsigned n_rows_told;

static int find_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
			 struct java_requests *java, struct found_runtimes *ret)
{
	bool is_other = next.found == other;

	(void)f;
	(void)java;
	n_looks++;
	/* whose child reads the process's bytes */
	assert_true(m->charged_ns && m->charged_ns == charged_ns);
	looked_at = m;
	looked_with = old;
	if (next.result < 0)
		return next.result;
	*ret = (struct found_runtimes){.process = runtime_process_ref(next.found),
				       .problem = is_other ? xstrdup("too new") : NULL,
				       .unnamed = is_other ? xstrdup("it runs Ruby") : NULL,
				       .again = next.again};
	return 0;
}

static void set_tables(struct unwind *u, struct files *f, const struct mappings *m, uint64_t ns,
		       const struct runtime_process *runtimes, struct applied *ret,
		       struct unwind_stats *ret_stats)
{
	assert_int_equal(ns, charged_ns);
	(void)u;
	(void)f;
	(void)ret;
	(void)ret_stats;
	assert_ptr_equal(m, looked_at);
	n_sets++;
	set = runtimes;
}

static void note_runtimes(void *arg, struct process_id id, uint32_t exec_id,
			  struct runtime_process *r)
{
	(void)arg;
	assert_int_equal(id.tgid, 7);
	assert_int_equal(id.start_boottime_ns, 1);
	assert_int_equal(exec_id, 1);
	n_told++;
	told = r;
}

static const struct follow_calls calls = {
	.find_runtimes = find_runtimes,
	.set_tables = set_tables,
};
static void note_rows(void *arg, struct process_id id, uint32_t exec_id, struct runtime_process *r,
		      uint64_t since_ns, uint64_t until_ns)
{
	(void)arg;
	assert_int_equal(id.tgid, 7);
	assert_int_equal(exec_id, 1);
	assert_true(since_ns && since_ns <= until_ns);
	assert_ptr_equal(r, set);
	n_rows_told++;
	rows_of = r;
}

static const struct follow_ops ops = {.runtimes = note_runtimes, .rows_set = note_rows};
static struct work node_work;
static struct kernel *kernel;
static struct follow *follow;
static struct tracked *tracked;
static struct mappings first = {.exec_id = 1, .refs = 1}, second = {.exec_id = 1, .refs = 1},
		       program = {.exec_id = 2, .refs = 1};

static int set_up(void **state)
{
	static const struct runtime_learnt learnt;
	static char unwind;

	(void)state;
	test_clock.stands_ns = NSEC_PER_SEC;
	testwork(&node_work);
	kernel = testkernel_new(&node_work, (struct unwind *)&unwind);
	follow = follow_new_with(&(struct follow_config){.work = &node_work,
							 .containers = node_work.containers,
							 .kernel = kernel,
							 .ops = &ops},
				 &calls);
	tracked = follow_track(follow, (struct process_id){1, 7});
	tracked->exec_id = 1;
	charged_ns = follow_charged(tracked).ns;
	python = runtime_process_with(NULL, &first, PF_RUNTIME_PYTHON, &learnt);
	other = runtime_process_with(NULL, &first, PF_RUNTIME_PYTHON, &learnt);
	n_looks = n_told = n_sets = n_rows_told = 0;
	memset(&next, 0, sizeof(next));
	next.found = python;
	looked_with = told = set = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	posted_run_all();
	follow = follow_free(follow);
	kernel = testkernel_free(kernel);
	assert_false(timer_armed());
	runtime_process_unref(python);
	runtime_process_unref(other);
	assert_int_equal(first.refs, 1);
	assert_int_equal(second.refs, 1);
	assert_int_equal(program.refs, 1);
	return 0;
}

static void look(struct mappings *m)
{
	tracked->runs.due = true;
	follow_runtimes_look(tracked, m, true);
}

static void fire(void)
{
	timer_fire();
	posted_run_all();
}

/* ---- tests ---- */

static void what_is_found_goes_to_both_sides(void **state)
{
	(void)state;
	follow_runtimes_look(tracked, &first, true); /* no search: nothing is new */
	tracked->runs.due = true;
	follow_runtimes_look(tracked, &first, false); /* no search: a runtime is not likely */
	assert_int_equal(posted.n, 0);
	look(&first);
	posted_run_all();
	assert_ptr_equal(told, python);
	assert_ptr_equal(set, python);
	assert_int_equal(n_looks, 1);
	follow_runtimes_look(tracked, &first, true);
	assert_int_equal(posted.n, 0);
	look(&second);
	posted_run_all();
	assert_ptr_equal(looked_with, python);
	assert_int_equal(n_told, 2); /* the pipeline may have forgotten the runtimes */
	assert_int_equal(n_sets, 1);
	/*
	 * the library of the runtime was unloaded: there is a search although no runtime is likely
	 * now
	 */
	next.found = NULL;
	tracked->runs.due = true;
	follow_runtimes_look(tracked, &second, false);
	posted_run_all();
	assert_int_equal(n_told, 3);
	assert_null(told);
	assert_null(set);
}

/* Samples are judged by the rows that the kernel had: published_rows.c of stack. */
static void rows_of_generated_code_are_told_when_the_kernel_has_them(void **state)
{
	struct runtime_process *publishing = runtime_process_publishing(&first, NULL);

	(void)state;
	look(&first);
	posted_run_all();
	assert_int_equal(n_sets, 1);
	assert_int_equal(n_rows_told, 0); /* Python publishes none */
	next.found = publishing;
	look(&second);
	posted_run_all();
	assert_int_equal(n_rows_told, 1);
	assert_ptr_equal(rows_of, publishing);
	next.found = NULL;
	look(&second);
	posted_run_all();
	assert_int_equal(n_rows_told, 2);
	assert_null(rows_of);
	runtime_process_unref(publishing);
}

static void one_look_at_a_time_and_the_newest_counts(void **state)
{
	(void)state;
	look(&first);
	look(&second);
	assert_int_equal(posted.n, 1);
	posted_run_all();
	assert_int_equal(n_looks, 2);
	assert_ptr_equal(looked_at, &second);
	assert_int_equal(n_sets, 1);
	assert_ptr_equal(set, python);
}

static void one_that_starts_is_looked_at_again(void **state)
{
	uint64_t before = 0;

	(void)state;
	next.found = NULL;
	next.again = true;
	look(&first);
	posted_run_all();
	for (unsigned i = 0; i < 12; i++) {
		assert_true(timer_delay_ns() > before ||
			    (i > 7 && timer_delay_ns() == 5 * NSEC_PER_SEC));
		before = timer_delay_ns();
		fire();
	}
	assert_int_equal(n_sets, 0);
	next.found = python;
	next.again = false;
	fire();
	assert_false(timer_armed());
	assert_int_equal(n_sets, 1);
	next.again = true;
	look(&second);
	posted_run_all();
	assert_int_equal(timer_delay_ns(), 20 * NSEC_PER_MSEC);
}

static void a_full_worker_is_asked_again(void **state)
{
	(void)state;
	look(&first);
	posted.items[0]->refused = true;
	posted_run_all();
	assert_int_equal(n_looks, 0);
	fire();
	assert_ptr_equal(set, python);
}

static void errors_leave_what_was_known(void **state)
{
	(void)state;
	look(&first);
	posted_run_all();
	next.result = -EFAULT;
	look(&second);
	posted_run_all();
	assert_ptr_equal(tracked->runs.known, python);
	assert_false(timer_armed());
	assert_int_equal(n_told, 1);
}

static void what_lacks_for_a_moment_is_asked_again(void **state)
{
	static const int errors[] = {-EBUSY, -EMFILE, -ENFILE, -ENOMEM};

	(void)state;
	look(&first);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		next.result = errors[i];
		if (i)
			fire();
		posted_run_all();
		assert_true(timer_armed());
	}
	next.result = 0;
	fire();
	assert_ptr_equal(set, python);
}

static void another_program_has_nothing_of_it(void **state)
{
	(void)state;
	look(&first);
	follow_runtimes_reset(tracked);
	tracked->exec_id = 2;
	next.again = true;
	posted_run_all();
	assert_int_equal(n_told, 0);
	assert_int_equal(n_sets, 0);
	assert_false(timer_armed());
	assert_null(tracked->runs.known);
	look(&first); /* these mappings come late: they are of the program before the exec */
	assert_int_equal(posted.n, 0);
	assert_false(tracked->runs.looking);
}

static void who_is_gone_is_forgotten(void **state)
{
	(void)state;
	look(&first);
	follow_unloaded(follow);
	posted_run_all();
	assert_int_equal(n_told, 0);
}

static void what_is_not_walked_is_told(void **state)
{
	(void)state;
	next.found = other;
	look(&first);
	posted_run_all();
	assert_string_equal(tracked->runs.problem, "too new");
	assert_string_equal(tracked->runs.unnamed, "it runs Ruby");
	next.found = python;
	look(&first);
	posted_run_all();
	assert_null(tracked->runs.problem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(what_is_found_goes_to_both_sides),
		T(one_look_at_a_time_and_the_newest_counts),
		T(one_that_starts_is_looked_at_again),
		T(a_full_worker_is_asked_again),
		T(errors_leave_what_was_known),
		T(what_lacks_for_a_moment_is_asked_again),
		T(another_program_has_nothing_of_it),
		T(who_is_gone_is_forgotten),
		T(what_is_not_walked_is_told),
		T(rows_of_generated_code_are_told_when_the_kernel_has_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
