/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses, estimates and calls of a second. The file has them by event, series and second, so two
 * profiles that have all three in common share them: each of these rows goes to one profile.
 */
#include "hub/store/sqlite_export.h"

#include <stdlib.h>

#define CALLS_MAX 1000000 /* of a second; the samples of the rest are exported without their call */

struct moment_loss {
	struct moment_key key;
	int64_t start_s, n, time_ns;
	char *reason;
	bool used;
};
struct moment_estimate {
	struct moment_key key;
	int64_t ppm, error;
	bool used;
};

int store_moment_open(struct moment *m, sqlite3 *db)
{
	const struct {
		sqlite3_stmt **st;
		const char *sql;
	} all[] = {
		{&m->get_calls,
		 "SELECT event, series, stack, cpu, value, n, trace, span FROM links "
		 "WHERE time=? ORDER BY event, series, stack"},
		{&m->get_losses,
		 "SELECT event, series, 0, start_s, n, time_ns, (SELECT s FROM strings WHERE "
		 "id=reason) FROM losses WHERE time=? ORDER BY event, series, rowid"},
		{&m->get_estimates, "SELECT event, series, 0, ppm, error FROM estimates WHERE "
				    "time=? ORDER BY event, series, rowid"},
	};
	int r = 0;

	*m = (struct moment){.time_s = -1};
	for (size_t i = 0; !r && i < ARRAY_SIZE(all); i++)
		r = store_sq_errno(sqlite3_prepare_v2(db, all[i].sql, -1, all[i].st, NULL));
	return r;
}

static struct moment_key key_of(sqlite3_stmt *st)
{
	return (struct moment_key){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
				   sqlite3_column_int64(st, 2)};
}

static bool decode(sqlite3_stmt *st, int column, uint8_t *ret, size_t bytes)
{
	const char *hex = (const char *)sqlite3_column_text(st, column) ?: "";
	size_t n;

	return hex_decode(hex, bytes, ret, &n) == 0 && n == bytes;
}

static void add_call(struct moment *m, sqlite3_stmt *st)
{
	struct moment_call c = {
		.key = key_of(st),
		.cpu = sqlite3_column_int64(st, 3),
		.value = sqlite3_column_int64(st, 4),
		.n = sqlite3_column_int64(st, 5),
	};

	if (m->n_calls == CALLS_MAX || !decode(st, 6, c.link.trace_id, sizeof(c.link.trace_id)) ||
	    !decode(st, 7, c.link.span_id, sizeof(c.link.span_id))) {
		m->n_left_out++;
		return;
	}
	GROW(m->calls, m->n_calls, m->cap_calls);
	m->calls[m->n_calls++] = c;
}

static void add_loss(struct moment *m, sqlite3_stmt *st)
{
	const char *reason = (const char *)sqlite3_column_text(st, 6);

	GROW(m->losses, m->n_losses, m->cap_losses);
	m->losses[m->n_losses++] = (struct moment_loss){
		.key = key_of(st),
		.start_s = sqlite3_column_int64(st, 3),
		.n = sqlite3_column_int64(st, 4),
		.time_ns = sqlite3_column_int64(st, 5),
		.reason = xstrdup(reason ?: "unknown"),
	};
}

static void add_estimate(struct moment *m, sqlite3_stmt *st)
{
	GROW(m->estimates, m->n_estimates, m->cap_estimates);
	m->estimates[m->n_estimates++] =
		(struct moment_estimate){.key = key_of(st),
					 .ppm = sqlite3_column_int64(st, 3),
					 .error = sqlite3_column_int64(st, 4)};
}

static int read_rows(struct moment *m, sqlite3_stmt *st,
		     void (*add)(struct moment *m, sqlite3_stmt *st))
{
	int rc;

	sqlite3_bind_int64(st, 1, m->time_s);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW)
		add(m, st);
	sqlite3_reset(st);
	return store_sq_errno(rc);
}

int store_moment_read(struct moment *m, int64_t time_s)
{
	int r;

	store_moment_end(m);
	m->time_s = time_s;
	r = read_rows(m, m->get_calls, add_call);
	if (!r)
		r = read_rows(m, m->get_losses, add_loss);
	return r ?: read_rows(m, m->get_estimates, add_estimate);
}

void store_moment_end(struct moment *m)
{
	for (size_t i = 0; i < m->n_calls; i++)
		m->n_left_out += !m->calls[i].used || m->calls[i].value || m->calls[i].n;
	for (size_t i = 0; i < m->n_estimates; i++)
		m->n_left_out += !m->estimates[i].used;
	for (size_t i = 0; i < m->n_losses; i++) {
		m->n_left_out += !m->losses[i].used;
		free(m->losses[i].reason);
	}
	m->n_calls = m->n_losses = m->n_estimates = 0;
}

void store_moment_done(struct moment *m)
{
	store_moment_end(m);
	free(m->calls);
	free(m->losses);
	free(m->estimates);
	sqlite3_finalize(m->get_calls);
	sqlite3_finalize(m->get_losses);
	sqlite3_finalize(m->get_estimates);
	*m = (struct moment){.time_s = -1};
}

/* ---- the rows of a key ---- */

static int compare(const struct moment_key *a, const struct moment_key *b)
{
	if (a->event != b->event)
		return a->event < b->event ? -1 : 1;
	if (a->series != b->series)
		return a->series < b->series ? -1 : 1;
	return a->stack < b->stack ? -1 : a->stack > b->stack;
}

/* The first of n items whose key is not before this one. The key is their first member. */
static size_t first_of(const void *items, size_t n, size_t item_bytes, const struct moment_key *key)
{
	size_t from = 0, to = n;

	while (from < to) {
		size_t at = (from + to) / 2;
		const char *item = (const char *)items + at * item_bytes;

		if (compare((const struct moment_key *)item, key) < 0)
			from = at + 1;
		else
			to = at;
	}
	return from;
}

struct moment_call *store_moment_calls(struct moment *m, const struct moment_key *key,
				       size_t *ret_n)
{
	size_t from = first_of(m->calls, m->n_calls, sizeof(*m->calls), key), to = from;

	while (to < m->n_calls && compare(&m->calls[to].key, key) == 0)
		to++;
	*ret_n = to - from;
	return m->calls + from;
}

int64_t store_moment_losses(struct moment *m, const struct moment_key *key, struct batch *b,
			    struct profile *p)
{
	int64_t start_s = -1;

	for (size_t i = first_of(m->losses, m->n_losses, sizeof(*m->losses), key);
	     i < m->n_losses && compare(&m->losses[i].key, key) == 0; i++) {
		struct moment_loss *l = &m->losses[i];

		if (l->used || (start_s >= 0 && l->start_s != start_s))
			continue;
		start_s = l->start_s;
		l->used = true;
		profile_lose(b, p, l->reason, (uint64_t)l->n, (uint64_t)l->time_ns);
	}
	return start_s;
}

void store_moment_estimate(struct moment *m, const struct moment_key *key, struct profile *p)
{
	for (size_t i = first_of(m->estimates, m->n_estimates, sizeof(*m->estimates), key);
	     i < m->n_estimates && compare(&m->estimates[i].key, key) == 0; i++) {
		if (m->estimates[i].used)
			continue;
		m->estimates[i].used = true;
		p->estimate_ppm = (uint32_t)m->estimates[i].ppm;
		p->estimate_error = (uint64_t)m->estimates[i].error;
		return;
	}
}
