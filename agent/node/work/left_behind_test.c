/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that do not return, each of another namespace. However many there are, a job of one more
 * namespace runs. All but the last test use real workers.
 */
#include "node/work/work.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MS	    NSEC_PER_MSEC
#define N	    66
#define DEADLINE_NS (120 * NSEC_PER_SEC)

struct item {
	struct job job;
	int pipe[2]; /* the job ends when a byte is written */
	bool done;
};

static struct loop *loop;
static struct work *work;
static struct worker *worker;
static struct left_behind left;
static struct item items[N + 2];
static unsigned n_stuck, n_replaced;

static void blocks(struct job *j)
{
	char c;

	(void)!read(((struct item *)j)->pipe[0], &c, 1);
}

static void nothing(struct job *j)
{
	(void)j;
}

static void ended(struct job *j)
{
	((struct item *)j)->done = true;
	n_replaced += work_left_behind_ended(work, &left, &worker, j);
}

static uint64_t ns_of(const struct job *j)
{
	return 1 + (uint64_t)((const struct item *)j - items);
}

static void on_stuck(struct worker *w, struct job *j, void *arg)
{
	(void)arg;
	assert_ptr_equal(w, worker);
	n_stuck++;
	n_replaced += work_left_behind(work, &left, &worker, j, ns_of(j));
}

static void post(size_t i, void (*run)(struct job *))
{
	items[i].job =
		(struct job){.run = run, .done = ended, .deadline_ns = run == blocks ? 50 * MS : 0};
	assert_int_equal(pipe(items[i].pipe), 0);
	assert_int_equal(worker_post(worker, &items[i].job), 0);
}

static void comes_back(size_t i)
{
	assert_int_equal(write(items[i].pipe[1], "x", 1), 1);
}

/* ---- runs the loop until a condition is true ---- */

static bool (*is_so)(void);
static uint64_t deadline_ns;

static void look(void *timer)
{
	if (is_so() || now_mono_ns() > deadline_ns)
		loop_stop(loop, 0);
	else
		timer_set(loop, timer, MS, look, timer);
}

static void run_until(bool (*fn)(void))
{
	struct timer t = {0};

	is_so = fn;
	deadline_ns = now_mono_ns() + DEADLINE_NS;
	timer_set(loop, &t, 0, look, &t);
	assert_int_equal(loop_run(loop), 0);
	timer_cancel(&t);
	assert_true(fn());
}

static bool all_are_stuck(void)
{
	return n_stuck == N;
}

static bool the_next_is_done(void)
{
	return items[N].done;
}

static size_t n_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	size_t n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static size_t n_before; /* threads before the worker: this thread, and perhaps one of a sanitizer */

static bool one_worker_is_there(void)
{
	return n_threads() == n_before + 1;
}

static bool all_are_done(void)
{
	for (size_t i = 0; i < N + 2; i++)
		if (!items[i].done)
			return false;
	return true;
}

static void others_go_on_beside_namespaces_that_block(void **state)
{
	struct worker_stats stats;

	(void)state;
	n_before = n_threads();
	work = work_new(loop);
	assert_int_equal(worker_new(loop, "files", 1 << 20, &worker), 0);
	worker_on_stuck(worker, on_stuck, NULL);
	for (size_t i = 0; i < N; i++)
		post(i, blocks);
	run_until(all_are_stuck);
	post(N, nothing);
	run_until(the_next_is_done);
	assert_int_equal(n_replaced, N);
	for (size_t i = 0; i <= N; i++)
		assert_int_equal(work_is_blocked(&left, ns_of(&items[i].job)), i < N);
	/* all jobs return, and no trace of them is left */
	post(N + 1, nothing);
	for (size_t i = 0; i < N; i++)
		comes_back(i);
	run_until(all_are_done);
	assert_int_equal(left.n, 0);
	assert_false(work_is_blocked(&left, ns_of(&items[0].job)));
	assert_int_equal(n_replaced, N);
	/* the threads that were left behind end, and their jobs are counted */
	run_until(one_worker_is_there);
	worker_stats(worker, &stats);
	assert_int_equal(stats.n_done, N + 2);
	for (size_t i = 0; i < N + 2; i++) {
		close(items[i].pipe[0]);
		close(items[i].pipe[1]);
	}
	work_free(work);
}

/* ---- threads that are none: as many as there may be ---- */

static bool always_stuck(struct worker *w)
{
	(void)w;
	return true;
}

static int make_none(struct worker *stuck, struct worker **ret)
{
	*ret = stuck;
	return 0;
}

static void as_many_are_left_behind_as_a_node_has_pods(void **state)
{
	static const struct work_threads none = {.is_stuck = always_stuck, .replace = make_none};
	static struct job jobs[LEFT_BEHIND_MAX + 1];
	static struct left_behind l;
	struct worker *w = NULL;

	(void)state;
	work = work_new(loop);
	work->threads = &none;
	for (size_t i = 0; i < LEFT_BEHIND_MAX; i++)
		assert_true(work_left_behind(work, &l, &w, &jobs[i], i + 1));
	assert_false(work_left_behind(work, &l, &w, &jobs[LEFT_BEHIND_MAX], LEFT_BEHIND_MAX + 1));
	assert_true(work_is_blocked(&l, LEFT_BEHIND_MAX + 1));
	/* another thread takes over once one returns */
	assert_true(work_left_behind_ended(work, &l, &w, &jobs[7]));
	assert_false(work_is_blocked(&l, 8));
	assert_int_equal(l.n, LEFT_BEHIND_MAX);
	assert_null(l.waits.job);
	work_free(work);
}

static int start(void **state)
{
	(void)state;
	return loop_new(&loop);
}

static int stop(void **state)
{
	(void)state;
	loop_free(loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_go_on_beside_namespaces_that_block),
		cmocka_unit_test(as_many_are_left_behind_as_a_node_has_pods),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
