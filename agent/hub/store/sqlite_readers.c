/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections that only read. Each query has one of its own while it runs, so several queries
 * run at once. While the writer's worker replaces the file, no query has the old one open.
 */
#include "hub/store/sqlite.h"

/* how often a query that waits for memory looks whether it must end */
#define LOOK_NS (100 * NSEC_PER_MSEC)

void store_readers_init(struct sqlite_store *s)
{
	struct readers *r = &s->readers;
	pthread_condattr_t monotonic;

	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* a store in memory has one connection, which the writer uses, too */
	r->n = s->file ? STORE_MAX_READERS : 1;
}

void store_readers_done(struct sqlite_store *s)
{
	pthread_mutex_destroy(&s->readers.lock);
	pthread_cond_destroy(&s->readers.changed);
}

static int connect_reader(struct sqlite_store *s, struct reader *r)
{
	sqlite3 *db = s->writer;
	/* one query at a time uses the connection, so it needs no lock */
	int e = s->file ? store_sq_open(s->file, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, &db)
			: 0;

	if (!e)
		e = store_match_functions(db, &r->limit);
	if (!e)
		r->db = db;
	else if (db != s->writer)
		sqlite3_close_v2(db);
	return e;
}

/* The caller holds the lock. Returns NULL if each connection is in use. */
static struct reader *find_free(struct readers *r)
{
	struct reader *closed = NULL;

	for (unsigned i = 0; !r->paused && i < r->n; i++) {
		if (r->all[i].in_use)
			continue;
		if (r->all[i].db)
			return &r->all[i];
		closed = closed ?: &r->all[i];
	}
	return closed;
}

int store_reader_take(struct sqlite_store *s, struct reader **ret)
{
	struct readers *all = &s->readers;
	struct reader *r;
	int e = 0;

	pthread_mutex_lock(&all->lock);
	while (!(r = find_free(all)))
		pthread_cond_wait(&all->changed, &all->lock);
	r->in_use = true;
	pthread_mutex_unlock(&all->lock);
	/* the writer's worker cannot close the file while a reader is in use */
	if (!s->writer)
		e = -ENOTCONN;
	else if (!r->db)
		e = connect_reader(s, r);
	if (e)
		store_reader_give_back(s, r);
	else
		*ret = r;
	return e;
}

void store_reader_give_back(struct sqlite_store *s, struct reader *r)
{
	struct readers *all = &s->readers;

	pthread_mutex_lock(&all->lock);
	r->in_use = r->large = false;
	r->limit = (struct query_limit){0};
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

static bool any_large(const struct readers *r)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->all[i].large)
			return true;
	return false;
}

static void wait_a_moment(struct readers *r)
{
	const uint64_t until_ns = now_mono_ns() + LOOK_NS;
	const struct timespec until = {.tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
				       .tv_nsec = (long)(until_ns % NSEC_PER_SEC)};

	pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

int store_reader_large(struct sqlite_store *s, struct reader *r)
{
	struct readers *all = &s->readers;

	if (r->large)
		return 0;
	pthread_mutex_lock(&all->lock);
	while (any_large(all) && !store_query_must_end(&r->limit))
		wait_a_moment(all);
	r->large = !any_large(all);
	pthread_mutex_unlock(&all->lock);
	return r->large ? 0 : -ETIME;
}

static bool any_in_use(const struct readers *r)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->all[i].in_use)
			return true;
	return false;
}

void store_readers_pause(struct sqlite_store *s)
{
	struct readers *r = &s->readers;

	pthread_mutex_lock(&r->lock);
	r->paused = true;
	while (any_in_use(r))
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

void store_readers_resume(struct sqlite_store *s)
{
	struct readers *r = &s->readers;

	pthread_mutex_lock(&r->lock);
	r->paused = false;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

void store_readers_close(struct sqlite_store *s)
{
	for (unsigned i = 0; i < s->readers.n; i++) {
		struct reader *r = &s->readers.all[i];

		store_names_done(&r->names, s);
		if (r->db != s->writer)
			sqlite3_close_v2(r->db);
		r->db = NULL;
	}
}
