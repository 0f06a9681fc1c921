/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of blocks. A block is ten minutes of a series. Its sum has each stack once, so a query of
 * hours reads a third of the samples, and few rows. A sum has only what is in profiles, too.
 *
 * For each block from blocks.from to blocks.until, and each series and event (but not snapshots):
 * `blocks` has the sum of all profiles that end in the block, or there is no such profile, or
 * `late` has the block. A profile that comes later than that makes its block late. Each call of
 * store_blocks_make() adds up blocks that are over, and late ones again.
 */
#include "hub/store/sqlite.h"

#include <inttypes.h>

#define GRACE_S	   120 /* seconds after its end until a block is added up */
#define LATE_SLICE 500 /* late blocks in one transaction */

int64_t store_block_of(int64_t time_s)
{
	return time_s / BLOCK_S;
}

int store_blocks_read(sqlite3 *db, struct blocks *ret)
{
	int r = store_sq_int(db, "SELECT value FROM meta WHERE key='blocks_from'", &ret->from);

	return r ? r
		 : store_sq_int(db,
				"SELECT IFNULL((SELECT value FROM meta WHERE "
				"key='blocks_until'), -1)",
				&ret->until);
}

/* Writes where the blocks begin and end, in the writer's open transaction. */
static int put_range(struct sqlite_store *s, const struct blocks *b)
{
	char sql[160];

	snprintf(sql, sizeof(sql),
		 "INSERT OR REPLACE INTO meta VALUES('blocks_from', %" PRId64
		 "), ('blocks_until', %" PRId64 ")",
		 b->from, b->until);
	return store_sq_exec(s->writer, sql);
}

int store_blocks_late(struct sqlite_store *s, enum event event, int64_t series, int64_t time_s)
{
	static const enum writer_statement steps[] = {ST_BLOCK_DROP, ST_LATE_PUT};
	int64_t block = store_block_of(time_s);
	int r = 0;

	if (block < s->blocks.from || block > s->blocks.until ||
	    profile_event_info(event)->snapshot)
		return 0;
	for (size_t i = 0; !r && i < ARRAY_SIZE(steps); i++) {
		sqlite3_stmt *st = s->st[steps[i]];

		sqlite3_bind_int64(st, 1, event);
		sqlite3_bind_int64(st, 2, series);
		sqlite3_bind_int64(st, 3, block);
		if (steps[i] == ST_LATE_PUT)
			sqlite3_bind_int64(st, 4, 0);
		r = store_sq_run(st);
	}
	return r;
}

int store_blocks_expire(struct sqlite_store *s, int64_t cut_s, struct blocks *ret)
{
	int64_t block = store_block_of(cut_s);
	char sql[128];
	int r;

	*ret = s->blocks;
	if (block < ret->from)
		return 0;
	snprintf(sql, sizeof(sql),
		 "DELETE FROM blocks WHERE block<=%" PRId64
		 "; DELETE FROM late WHERE block<=%" PRId64,
		 block, block);
	ret->from = block + 1;
	ret->until = MAX(ret->until, block);
	r = store_sq_exec(s->writer, sql);
	return r ? r : put_range(s, ret);
}

/* ---- reading ---- */

int store_blocks_of(sqlite3 *db, const struct selection *sel, struct blocks *ret)
{
	int e = store_blocks_read(db, ret);

	if (e)
		return e;
	if (profile_event_info(sel->event)->snapshot)
		ret->until = ret->from - 1;
	ret->from = MAX(ret->from, store_block_of(sel->time_start_s + BLOCK_S - 1));
	ret->until = MIN(ret->until, store_block_of(sel->time_end_s + 1) - 1);
	return 0;
}

void store_blocks_where(struct where *w, const struct selection *sel, const struct blocks *b,
			const char *table)
{
	_cleanup_free_ char *joined =
		xasprintf("%s.series=se.id AND %s.block BETWEEN ", table, table);
	_cleanup_free_ char *event = xasprintf(" AND %s.event=", table);

	store_where_text(w, joined);
	store_where_int(w, b->from);
	store_where_text(w, " AND ");
	store_where_int(w, b->until);
	store_where_text(w, event);
	store_where_int(w, sel->event);
	store_where_text(w, " AND se.last_s>=");
	store_where_int(w, sel->time_start_s);
	store_where_text(w, " AND se.first_s<=");
	store_where_int(w, sel->time_end_s);
	store_where_selection(w, sel);
}

/* ---- adding up ---- */

/* The sum of a block of a series. */
struct block_sum {
	struct sums sums;
	int64_t first_s, last_s; /* of profiles with samples; 0: there are none */
	int64_t n;		 /* profiles */
};

/* Adds up the samples of the rows of st, which are (time, samples). */
static int add_rows(sqlite3_stmt *st, struct block_sum *b)
{
	struct stored_sample x;
	int rc;

	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		const uint8_t *p = sqlite3_column_blob(st, 1);
		const uint8_t *end = p + sqlite3_column_bytes(st, 1);
		int64_t time_s = sqlite3_column_int64(st, 0);

		b->n++;
		if (p < end) {
			b->first_s = b->first_s ? MIN(b->first_s, time_s) : time_s;
			b->last_s = MAX(b->last_s, time_s);
		}
		while (store_samples_get(&p, end, &x)) {
			const struct stored_sum sum = {.stack = x.stack > 0 ? x.stack : INT64_MAX,
						       .value = x.value,
						       .n_samples = x.n};

			store_sums_add(&b->sums, &sum, 1);
		}
	}
	sqlite3_reset(st);
	return store_sq_errno(rc);
}

/* Marks a block that has too many stacks for a sum: queries read its profiles. */
static int give_up(struct sqlite_store *s, int64_t event, int64_t series, int64_t block)
{
	sqlite3_stmt *st = s->st[ST_LATE_PUT];

	counter_add(counter("store_blocks_without_sum_total", "reason", "too_many_stacks"), 1);
	sqlite3_bind_int64(st, 1, event);
	sqlite3_bind_int64(st, 2, series);
	sqlite3_bind_int64(st, 3, block);
	sqlite3_bind_int64(st, 4, 1);
	return store_sq_run(st);
}

/* Writes the sum of a block of a series, in the writer's open transaction. */
static int make_one(struct sqlite_store *s, int64_t event, int64_t series, int64_t block)
{
	struct block_sum b = {0};
	_cleanup_buf_ struct buf samples = {0};
	sqlite3_stmt *get = s->st[ST_BLOCK_READ], *put = s->st[ST_BLOCK_PUT];
	bool is_large;
	int r;

	store_sums_init(&b.sums, s->block_stacks);
	sqlite3_bind_int64(get, 1, event);
	sqlite3_bind_int64(get, 2, series);
	sqlite3_bind_int64(get, 3, block * BLOCK_S);
	sqlite3_bind_int64(get, 4, block * BLOCK_S + BLOCK_S - 1);
	r = add_rows(get, &b);
	if (!r)
		store_sums_sort(&b.sums);
	for (size_t i = 0; !r && i < b.sums.n; i++)
		store_samples_put(&samples,
				  &(struct stored_sample){.stack = b.sums.items[i].stack,
							  .cpu = -1,
							  .value = b.sums.items[i].value,
							  .n = b.sums.items[i].n_samples});
	is_large = b.sums.truncated || samples.failed;
	store_sums_done(&b.sums);
	if (r || !b.n)
		return r;
	if (is_large)
		return give_up(s, event, series, block);
	sqlite3_bind_int64(put, 1, event);
	sqlite3_bind_int64(put, 2, series);
	sqlite3_bind_int64(put, 3, block);
	sqlite3_bind_int64(put, 4, b.first_s);
	sqlite3_bind_int64(put, 5, b.last_s);
	sqlite3_bind_int64(put, 6, b.n);
	sqlite3_bind_blob64(put, 7, samples.len ? samples.data : "", samples.len, SQLITE_STATIC);
	return store_sq_run(put);
}

/*
 * Makes the sums of what a query lists as (event, series, block). The list is read before anything
 * is written. before: SQL that then runs first; NULL: none.
 */
static int make_list(struct sqlite_store *s, const char *sql, const char *before, size_t *ret_n)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	_cleanup_free_ int64_t *list = NULL;
	size_t n = 0, cap = 0;
	int r = store_sq_errno(sqlite3_prepare_v2(s->writer, sql, -1, &st, NULL)), rc = SQLITE_DONE;

	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW)
		for (int i = 0; i < 3; i++) {
			GROW(list, n, cap);
			list[n++] = sqlite3_column_int64(st, i);
		}
	if (!r)
		r = store_sq_errno(rc);
	if (!r && before)
		r = store_sq_exec(s->writer, before);
	for (size_t i = 0; !r && i < n; i += 3) {
		enum event event = (enum event)MIN(MAX(list[i], 0), _EVENT_ALL - 1);

		if (!profile_event_info(event)->snapshot)
			r = make_one(s, list[i], list[i + 1], list[i + 2]);
	}
	*ret_n = n / 3;
	return r;
}

/* Adds up one block of all series. */
static int make_block(struct sqlite_store *s, int64_t block)
{
	struct blocks b = {s->blocks.from, block};
	char sql[200];
	size_t n;
	int r = store_sq_run(s->st[ST_BEGIN]);

	if (r)
		return r;
	snprintf(sql, sizeof(sql),
		 "SELECT DISTINCT event, series, %" PRId64 " FROM profiles WHERE time BETWEEN "
		 "%" PRId64 " AND %" PRId64,
		 block, block * BLOCK_S, block * BLOCK_S + BLOCK_S - 1);
	r = make_list(s, sql, NULL, &n);
	if (!r)
		r = put_range(s, &b);
	r = store_sq_end(s, r);
	if (!r)
		s->blocks = b;
	return r;
}

/* Adds up some late blocks again. *ret_n: how many. */
static int make_late(struct sqlite_store *s, size_t *ret_n)
{
	char list[128], remove[240];
	int r = store_sq_run(s->st[ST_BEGIN]);

	if (r)
		return r;
	snprintf(list, sizeof(list),
		 "SELECT event, series, block FROM late WHERE NOT given_up ORDER BY block LIMIT %d",
		 LATE_SLICE);
	snprintf(remove, sizeof(remove),
		 "DELETE FROM late WHERE NOT given_up AND (event, series, block) IN (%s)", list);
	r = make_list(s, list, remove, ret_n);
	return store_sq_end(s, r);
}

/* *ret: the first block behind those that are added up which has profiles; -1: none has. */
static int next_block(struct sqlite_store *s, int64_t *ret)
{
	int64_t after = (s->blocks.until + 1) * BLOCK_S, time_s = -1;
	char sql[128];
	int r;

	snprintf(sql, sizeof(sql),
		 "SELECT IFNULL((SELECT MIN(time) FROM profiles WHERE time>=%" PRId64 "), -1)",
		 after);
	r = store_sq_int(s->writer, sql, &time_s);
	*ret = time_s < 0 ? -1 : store_block_of(time_s);
	return r;
}

/* After the clock was set back: blocks that are not over are none of those that are added up. */
static int take_back(struct sqlite_store *s, int64_t last)
{
	struct blocks b = s->blocks;
	char sql[128];
	int r;

	b.until = MIN(b.until, MAX(last, b.from - 1));
	if (b.until == s->blocks.until)
		return 0;
	r = store_sq_run(s->st[ST_BEGIN]);
	if (r)
		return r;
	snprintf(sql, sizeof(sql),
		 "DELETE FROM blocks WHERE block>%" PRId64
		 "; DELETE FROM late WHERE block>%" PRId64,
		 b.until, b.until);
	r = store_sq_exec(s->writer, sql);
	if (!r)
		r = put_range(s, &b);
	r = store_sq_end(s, r);
	if (!r)
		s->blocks = b;
	return r;
}

int store_blocks_make(struct sqlite_store *s, int64_t now_s, uint64_t deadline_ns)
{
	int64_t block, last = store_block_of(MAX(now_s - GRACE_S, (int64_t)0)) - 1;
	size_t n = 1;
	int r = take_back(s, last);

	while (!r) {
		r = next_block(s, &block);
		if (r || block < 0 || block > last)
			break;
		r = make_block(s, block);
		if (now_mono_ns() >= deadline_ns)
			break;
	}
	while (!r && n && now_mono_ns() < deadline_ns)
		r = make_late(s, &n);
	return r;
}
