/* SPDX-License-Identifier: Apache-2.0 */
/* Queries that run at once. Each has a connection of its own. One at a time takes much memory. */
#include "hub/store/teststore.h"

#include <pthread.h>
#include <semaphore.h>

/* A query on a thread of its own, which stops in its first row until it is released. */
struct running {
	struct sqlite_store *s;
	atomic_bool given_up;
	sem_t reached, release;
	int result;
	unsigned n_rows;
	pthread_t thread;
};

static int stop_in_row(const struct store_row *row, void *arg)
{
	struct running *q = arg;

	(void)row;
	if (q->n_rows++)
		return 0;
	sem_post(&q->reached);
	while (sem_wait(&q->release) && errno == EINTR)
		;
	return 0;
}

static void *run(void *arg)
{
	struct running *q = arg;
	const struct selection sel = {
		.scope = &store_scope_all, .time_end_s = T0 + 1000, .given_up = &q->given_up};
	struct store_summary summary = {0};
	struct field_error e;

	q->result = store_sqlite_read(q->s, &sel, stop_in_row, q, &summary, &e);
	store_summary_done(&summary);
	sem_post(&q->reached);
	return NULL;
}

static void begin_query(struct running *q, struct sqlite_store *s)
{
	*q = (struct running){.s = s};
	sem_init(&q->reached, 0, 0);
	sem_init(&q->release, 0, 0);
	assert_int_equal(pthread_create(&q->thread, NULL, run, q), 0);
}

/* Waits until the query is in its first row, or has ended. */
static void await_query(struct running *q)
{
	while (sem_wait(&q->reached) && errno == EINTR)
		;
}

static int end_query(struct running *q)
{
	sem_post(&q->release);
	assert_int_equal(pthread_join(q->thread, NULL), 0);
	sem_destroy(&q->reached);
	sem_destroy(&q->release);
	return q->result;
}

static struct sqlite_store *open_two_services(const char *dir)
{
	const struct store_config c = {.path = dir};
	struct batch *b = two_services();
	struct field_error e;
	size_t n_new;
	void *s;

	if (store_sqlite_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	profile_batch_free(b);
	return s;
}

/* While one query stands in its first row, another one runs to its end. */
static void queries_run_at_once(void **state)
{
	struct sqlite_store *s = open_two_services(*state);
	struct running one, other;

	begin_query(&one, s);
	await_query(&one);
	begin_query(&other, s);
	await_query(&other);
	assert_int_equal(end_query(&other), 0);
	assert_int_not_equal(other.n_rows, 0);
	assert_int_equal(one.n_rows, 1);
	assert_int_equal(end_query(&one), 0);
	assert_int_equal(one.n_rows, other.n_rows);
	store_sqlite_sink.close(s);
}

/* A query that takes much memory waits for the one that does already. It still may be given up. */
static void one_query_takes_much_memory(void **state)
{
	struct sqlite_store *s = open_two_services(*state);
	struct running one, second, third;

	s->large_bytes = 0;
	begin_query(&one, s);
	await_query(&one);
	begin_query(&second, s);
	begin_query(&third, s);
	atomic_store(&second.given_up, true);
	await_query(&second); /* it ends without a row */
	assert_int_equal(end_query(&second), -ETIME);
	assert_int_equal(second.n_rows, 0);
	assert_int_equal(sem_trywait(&third.reached), -1);
	assert_int_equal(end_query(&one), 0);
	await_query(&third);
	assert_int_equal(end_query(&third), 0);
	assert_int_equal(third.n_rows, one.n_rows);
	store_sqlite_sink.close(s);
}

static void *write_more(void *arg)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "more", "web", 1, "app", T0 + 10);
	size_t n_new = 0;

	add_sample(b, p, "worker", false, "leaf", 10);
	assert_int_equal(store_sqlite_write(arg, b, &n_new), 0);
	profile_batch_free(b);
	return NULL;
}

static bool is_paused(struct sqlite_store *s)
{
	bool paused;

	pthread_mutex_lock(&s->readers.lock);
	paused = s->readers.paused;
	pthread_mutex_unlock(&s->readers.lock);
	return paused;
}

/* The writer opens the file again only when no query has it open; a query may wait meanwhile. */
static void the_file_is_replaced_between_queries(void **state)
{
	struct sqlite_store *s = open_two_services(*state);
	struct running one, next, last;
	pthread_t writer;

	begin_query(&one, s);
	await_query(&one);
	atomic_store(&s->damaged, true);
	assert_int_equal(pthread_create(&writer, NULL, write_more, s), 0);
	while (atomic_load(&s->damaged) && !is_paused(s))
		sched_yield();
	begin_query(&next, s); /* it waits for the writer */
	assert_true(atomic_load(&s->damaged));
	assert_int_equal(end_query(&one), 0);
	assert_int_equal(pthread_join(writer, NULL), 0);
	await_query(&next);
	assert_int_equal(end_query(&next), 0);
	begin_query(&last, s);
	await_query(&last);
	assert_int_equal(end_query(&last), 0);
	assert_int_equal(last.n_rows, one.n_rows + 1);
	store_sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(queries_run_at_once),
		ON_DISK(one_query_takes_much_memory),
		ON_DISK(the_file_is_replaced_between_queries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
