/* SPDX-License-Identifier: Apache-2.0 */
/* Which query runs next, with workers whose queries end when the test says so. */
#include "hub/api/queue.h"

#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_WORKERS 3

struct query {
	struct queued queued;
	struct fixture *f;
	sem_t end;
	unsigned n_again; /* how many times more it runs */
	bool ended;
};

struct fixture {
	struct loop *loop;
	struct worker *workers[N_WORKERS], *choices;
	struct query_queue *queue;
	struct query queries[32];
	size_t n;
	atomic_uint n_begun;
	unsigned n_ended;
};

static void run(struct job *job)
{
	struct query *q = (struct query *)job;

	atomic_fetch_add(&q->f->n_begun, 1);
	while (sem_wait(&q->end) && errno == EINTR)
		;
}

static void done(struct job *job)
{
	struct query *q = (struct query *)job;

	loop_stop(q->f->loop, 0);
	if (q->n_again) {
		q->n_again--;
		api_queue_again(&q->queued);
		return;
	}
	api_queue_ended(&q->queued);
	q->ended = true;
	q->f->n_ended++;
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct query_queue_config c = {
		.workers = f->workers, .n_workers = N_WORKERS, .max_bytes = 1000};

	assert_int_equal(loop_new(&f->loop), 0);
	for (int i = 0; i < N_WORKERS; i++)
		assert_int_equal(worker_new(f->loop, "query", 1000, &f->workers[i]), 0);
	assert_int_equal(worker_new(f->loop, "choices", 1000, &f->choices), 0);
	c.choices = f->choices;
	f->queue = api_queue_new(&c);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < f->n; i++)
		sem_post(&f->queries[i].end);
	for (int i = 0; i < N_WORKERS; i++)
		worker_free(f->workers[i]);
	worker_free(f->choices);
	api_queue_free(f->queue);
	loop_free(f->loop);
	for (size_t i = 0; i < f->n; i++)
		sem_destroy(&f->queries[i].end);
	free(f);
	return 0;
}

static int post(struct fixture *f, const char *user, bool choices, size_t n_bytes)
{
	struct query *q = &f->queries[f->n];
	int r;

	q->queued = (struct queued){.job = {.run = run, .done = done, .n_bytes = n_bytes},
				    .user = user,
				    .choices = choices};
	q->f = f;
	sem_init(&q->end, 0, 0);
	r = api_queue_post(f->queue, &q->queued);
	if (r)
		sem_destroy(&q->end);
	else
		f->n++;
	return r;
}

/* Ends a query that runs, and returns when its worker has got the next one. */
static void end(struct fixture *f, size_t i)
{
	sem_post(&f->queries[i].end);
	while (!f->queries[i].ended)
		loop_run(f->loop);
}

/* Waits until so many queries have begun. */
static void await_begun(struct fixture *f, unsigned n)
{
	while (atomic_load(&f->n_begun) < n)
		sched_yield();
	assert_int_equal(atomic_load(&f->n_begun), n);
}

/* One user may use all workers but one. Another user's query begins at once. */
static void one_user_leaves_a_worker(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 4; i++)
		assert_int_equal(post(f, "a", false, 1), 0);
	await_begun(f, 2);
	assert_int_equal(api_queue_waiting(f->queue), 2);
	assert_int_equal(post(f, "b", false, 1), 0);
	await_begun(f, 3);
	assert_int_equal(api_queue_waiting(f->queue), 2);
}

/* When a worker is free, the user with the fewest running queries is next, not the oldest query. */
static void fewest_running_first(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "b", false, 1), 0);
	await_begun(f, 3);
	assert_int_equal(post(f, "a", false, 1), 0); /* query 3 waits */
	assert_int_equal(post(f, "b", false, 1), 0); /* query 4 waits */
	assert_int_equal(post(f, "c", false, 1), 0); /* query 5 waits */
	end(f, 0);				     /* a and b have one each, c has none */
	await_begun(f, 4);
	assert_true(api_queue_remove(&f->queries[3].queued));
	assert_true(api_queue_remove(&f->queries[4].queued));
	assert_false(api_queue_remove(&f->queries[5].queued));
}

/* A query for choices begins while all other workers are busy; a flame graph does not. */
static void choices_do_not_wait(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "b", false, 1), 0);
	assert_int_equal(post(f, "b", false, 1), 0);
	await_begun(f, 3);
	assert_int_equal(post(f, "b", true, 1), 0);
	await_begun(f, 4);
	assert_int_equal(api_queue_waiting(f->queue), 1);
	end(f, 4);
	assert_int_equal(api_queue_waiting(f->queue), 1);
	end(f, 0);
	await_begun(f, 5);
}

/* A query that runs once more keeps its worker: no query that waits comes before it. */
static void again_before_all_others(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(post(f, "a", false, 1), 0);
	f->queries[0].n_again = 1;
	assert_int_equal(post(f, "b", false, 1), 0);
	assert_int_equal(post(f, "c", false, 1), 0);
	await_begun(f, 3);
	assert_int_equal(post(f, "d", false, 1), 0);
	sem_post(&f->queries[0].end);
	while (f->queries[0].n_again)
		loop_run(f->loop);
	await_begun(f, 4);
	assert_int_equal(api_queue_waiting(f->queue), 1);
	end(f, 0);
	await_begun(f, 5);
	assert_int_equal(api_queue_waiting(f->queue), 0);
}

/* The bytes of queries that wait have a limit. One that is removed makes room. */
static void waiting_has_a_limit(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "a", false, 1), 0);
	assert_int_equal(post(f, "a", false, 900), 0);
	assert_int_equal(post(f, "a", false, 101), -ENOBUFS);
	assert_int_equal(post(f, "a", false, 100), 0);
	assert_int_equal(post(f, "b", false, 1), -ENOBUFS);
	assert_true(api_queue_remove(&f->queries[2].queued));
	assert_int_equal(post(f, "b", false, 1), 0);
}

/* The queue ends while queries run and wait: each is done exactly once. */
static void ends_with_queries(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 5; i++)
		assert_int_equal(post(f, "a", false, 1), 0);
	await_begun(f, 2);
	f->queue = api_queue_free(f->queue);
	assert_int_equal(f->n_ended, 3);
	end(f, 0);
	end(f, 1);
	assert_int_equal(f->n_ended, 5);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_user_leaves_a_worker), TEST(fewest_running_first),
		TEST(choices_do_not_wait),	TEST(again_before_all_others),
		TEST(waiting_has_a_limit),	TEST(ends_with_queries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
