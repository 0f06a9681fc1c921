/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes old profiles: first by age, then by size, a tenth of the store at a time, the oldest
 * windows first. Then it deletes the entries of the dictionaries that nothing refers to. At the end
 * it gives free pages back to the file system.
 *
 * A slice is the profiles that one transaction deletes. If the slices take more than some seconds,
 * the next call continues. The sweep of the dictionaries is one transaction, however many entries
 * they have. It waits until no slice is due. But if the store is over its size, the sweep comes
 * first, because the bytes that it frees decide whether a slice is due. A stack is deleted an hour
 * after its last use, without a search for references to it. But if the store has room for a few
 * hours only, stacks without a reference are deleted at once. Else they would take the room of
 * profiles.
 */
#include "hub/store/sqlite.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_ROUNDS 30 /* each deletes a tenth; after 30, 0.9^30 = 4 % is left */
/* profiles that one slice deletes; it also deletes all others of its last second */
#define SLICE	     5000
#define VACUUM_BYTES (100u << 20) /* free pages that one call gives back */
/* how long a stack is kept after its last use; last_s of a stack is rounded to an hour */
#define STACK_GRACE_S 3600
#define SHORT_S	      (4 * STACK_GRACE_S)
#define SLACK_MAX_S   600	  /* seconds for which expired profiles may stay */
#define MAX_SILENT_S  (24 * 3600) /* profiles expire as if the newest one were at most this old */
#define LINK_BYTES    192	  /* bytes that a row of `links` takes with its index, roughly */
#define LINKS_SHARE   8		  /* links may take 1/8 of max_bytes */
#define LINKS_BYTES   (256ULL << 20) /* limit for links if max_bytes is 0 */
#define LINKS_SLICE   100000
#define BLOCKS_NS     (2 * NSEC_PER_SEC) /* time in which one call adds up blocks */

static void ids_add_blob(struct id_set *ids, const uint8_t *p, int n)
{
	const uint8_t *end = p + n;
	uint64_t id;

	while (store_varint_get(&p, end, &id))
		store_id_set_add(ids, (int64_t)id);
}

/*
 * Adds the values in all columns of a query's rows to ids. An integer is an id; a blob is a list of
 * ids as varints.
 */
static int ids_collect(sqlite3 *db, const char *sql, struct id_set *ids)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(st); i++) {
			if (sqlite3_column_type(st, i) == SQLITE_BLOB)
				ids_add_blob(ids, sqlite3_column_blob(st, i),
					     sqlite3_column_bytes(st, i));
			else
				store_id_set_add(ids, sqlite3_column_int64(st, i));
		}
	return store_sq_errno(rc);
}

/*
 * Runs the query `list`, and runs the statement `remove` for each id that the query returns, except
 * for those in `keep`. The query has one parameter, *last, and returns the ids that are greater.
 * *last becomes the last id that it returned.
 */
static int ids_sweep(sqlite3 *db, const char *list, const char *remove, struct id_set *keep,
		     int64_t *last)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL, *del = NULL;
	int rc = sqlite3_prepare_v2(db, list, -1, &st, NULL), r = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(db, remove, -1, &del, NULL);
	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	sqlite3_bind_int64(st, 1, *last);
	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		*last = sqlite3_column_int64(st, 0);
		if (store_id_set_has(keep, *last))
			continue;
		sqlite3_bind_int64(del, 1, *last);
		r = store_sq_run(del);
	}
	return r ? r : store_sq_errno(rc);
}

static int sweep_dictionaries(sqlite3 *db)
{
	_cleanup_(store_id_set_done) struct id_set frames = {0}, strings = {0};
	int64_t last_frame = 0, last_string = 0;
	int r = store_sq_exec(db, "DELETE FROM tagsets WHERE id NOT IN (SELECT tagset FROM series "
				  "UNION SELECT labels FROM stacks WHERE labels>0);"
				  "DELETE FROM tags WHERE tagset NOT IN (SELECT id FROM tagsets)");

	if (!r)
		r = ids_collect(db, "SELECT frames FROM stacks", &frames);
	if (!r)
		r = ids_sweep(db, "SELECT id FROM frames WHERE id>?1",
			      "DELETE FROM frames WHERE id=?", &frames, &last_frame);
	if (!r)
		r = ids_collect(db, "SELECT name, module, build_id, file FROM frames", &strings);
	if (!r)
		r = ids_collect(db, "SELECT process, thread FROM stacks", &strings);
	if (!r)
		r = ids_collect(db, "SELECT key, value FROM tags", &strings);
	if (!r)
		r = ids_collect(db, "SELECT app FROM series UNION SELECT reason FROM losses",
				&strings);
	if (!r)
		r = ids_sweep(db, "SELECT id FROM strings WHERE id>?1",
			      "DELETE FROM strings WHERE id=?", &strings, &last_string);
	return r;
}

static int run_with(sqlite3 *db, const char *sql, int64_t value)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	sqlite3_bind_int64(st, 1, value);
	return store_sq_run(st);
}

/*
 * Deletes the snapshots of the event up to second cut_s. The primary key begins with event and
 * series. So the statement names the series, and SQLite reads a range per series, not the whole
 * table.
 */
static int delete_snapshots(sqlite3 *db, int event, int64_t cut_s)
{
	char sql[200];

	snprintf(sql, sizeof(sql),
		 "DELETE FROM snapshots WHERE event=%d AND series IN "
		 "(SELECT id FROM series WHERE first_s<=?1) AND time<=?1",
		 event);
	return run_with(db, sql, cut_s);
}

/* Deletes all that ended at second cut_s or before. The caller has begun a transaction. */
static int delete_until(sqlite3 *db, int64_t cut_s, uint64_t *ret_n_profiles)
{
	static const char *const steps[] = {
		"DELETE FROM losses WHERE time<=?1",
		"DELETE FROM links WHERE time<=?1",
		"DELETE FROM estimates WHERE time<=?1",
		"DELETE FROM series WHERE last_s<=?1",
		"UPDATE series SET first_s=?1+1 WHERE first_s<=?1",
	};
	int r = run_with(db, "DELETE FROM profiles WHERE time<=?1", cut_s);

	*ret_n_profiles = r ? 0 : (uint64_t)sqlite3_changes64(db);
	for (int event = 0; !r && event < _EVENT_MAX; event++)
		r = delete_snapshots(db, event, cut_s);
	for (size_t i = 0; !r && i < ARRAY_SIZE(steps); i++)
		r = run_with(db, steps[i], cut_s);
	if (!r)
		r = run_with(db, "DELETE FROM stacks WHERE last_s<?1", cut_s - STACK_GRACE_S);
	return r;
}

/* The greatest ids of the dictionaries that readers keep. SQLite gives a new row a greater one. */
struct greatest {
	int64_t strings, frames, stacks;
};

static int greatest_ids(struct sqlite_store *s, struct greatest *ret)
{
	int r = store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM strings", &ret->strings);

	if (!r)
		r = store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM frames", &ret->frames);
	return r ?: store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM stacks", &ret->stacks);
}

/* Begins a transaction that deletes. */
static int begin_transaction(struct sqlite_store *s, struct greatest *ret)
{
	int r = store_sq_run(s->st[ST_BEGIN]);

	if (r)
		return r;
	r = greatest_ids(s, ret);
	if (r)
		(void)store_sq_run(s->st[ST_ROLLBACK]);
	return r;
}

/* Ends the transaction, which had these greatest ids when it began. */
static int end_transaction(struct sqlite_store *s, int r, const struct greatest *before)
{
	struct greatest now = {0};
	bool reused;

	if (!r)
		r = greatest_ids(s, &now);
	reused = now.strings < before->strings || now.frames < before->frames ||
		 now.stacks < before->stacks;
	/* before, for queries that see the new state, and after, for those that see the old one */
	atomic_fetch_add(&s->n_reused, reused);
	r = store_sq_end(s, r);
	atomic_fetch_add(&s->n_reused, reused);
	store_seen_forget(s);
	return r;
}

/* Deletes what ended at second cut_s or before, in one transaction. */
static int expire_slice(struct sqlite_store *s, int64_t cut_s, const char *reason)
{
	struct greatest before;
	struct blocks blocks;
	uint64_t n_profiles = 0;
	int r = begin_transaction(s, &before);

	if (r)
		return r;
	r = delete_until(s->writer, cut_s, &n_profiles);
	if (!r)
		r = store_blocks_expire(s, cut_s, &blocks);
	r = end_transaction(s, r, &before);
	if (r)
		return r;
	s->blocks = blocks;
	s->unswept = true;
	sqlite3_mutex_enter(s->stats_lock);
	s->stats.n_expired += n_profiles;
	sqlite3_mutex_leave(s->stats_lock);
	counter_add(counter("store_expired_profiles_total", "reason", reason), n_profiles);
	return 0;
}

/* *ret_s: the last second of the oldest slice; -1 if less than a slice lies before cut_s. */
static int slice_end(struct sqlite_store *s, int64_t cut_s, int64_t *ret_s)
{
	char sql[160];

	snprintf(sql, sizeof(sql),
		 "SELECT IFNULL((SELECT time FROM profiles WHERE time<%" PRId64
		 " ORDER BY time LIMIT 1 OFFSET %d), -1)",
		 cut_s, SLICE);
	return store_sq_int(s->writer, sql, ret_s);
}

static int sweep(struct sqlite_store *s)
{
	struct greatest before;
	int r = s->unswept ? begin_transaction(s, &before) : 0;

	if (r || !s->unswept)
		return r;
	r = end_transaction(s, sweep_dictionaries(s->writer), &before);
	s->unswept = r != 0;
	return r;
}

/*
 * Whether the store holds only a few hours of profiles. Then a large part of it is stacks that no
 * profile has any more, and whose hour is not over.
 */
static int is_short_lived(struct sqlite_store *s, bool *ret)
{
	int64_t span_s = 0;
	int r = store_sq_int(s->writer,
			     "SELECT IFNULL((SELECT MAX(time) FROM profiles)-"
			     "(SELECT MIN(time) FROM profiles), 0)",
			     &span_s);

	*ret = span_s < SHORT_S;
	return r;
}

/*
 * Deletes stacks without a reference, whatever their age. Each transaction looks at a limited
 * number of stacks.
 */
static int sweep_stacks(struct sqlite_store *s)
{
	_cleanup_(store_id_set_done) struct id_set used = {0};
	struct greatest greatest;
	int64_t last = 0, before;
	char list[80];
	int r = ids_collect(s->writer, "SELECT stack FROM links", &used);

	if (!r)
		r = ids_collect(s->writer,
				"SELECT x.stack FROM profiles AS p, "
				"pf_samples(p.samples, p.time) AS x",
				&used);
	snprintf(list, sizeof(list), "SELECT id FROM stacks WHERE id>?1 ORDER BY id LIMIT %d",
		 SLICE);
	for (before = -1; !r && last > before;) {
		before = last;
		r = begin_transaction(s, &greatest);
		if (!r)
			r = end_transaction(s,
					    ids_sweep(s->writer, list,
						      "DELETE FROM stacks WHERE id=?", &used,
						      &last),
					    &greatest);
	}
	return r;
}

/*
 * Deletes slices up to second cut_s until the deadline, but at least one. *ret_more: some are left.
 */
static int expire_until(struct sqlite_store *s, int64_t cut_s, const char *reason,
			uint64_t deadline_ns, bool *ret_more)
{
	int64_t end_s = -1;
	int r;

	do {
		r = slice_end(s, cut_s, &end_s);
		if (!r)
			r = expire_slice(s, end_s >= 0 ? end_s : cut_s, reason);
	} while (!r && end_s >= 0 && now_mono_ns() < deadline_ns);
	*ret_more = end_s >= 0;
	return r;
}

/* The oldest and the newest time of the profiles and losses; -1 if the store has none. */
static int time_range(struct sqlite_store *s, int64_t *ret_oldest_s, int64_t *ret_newest_s)
{
	int r = store_sq_int(s->writer,
			     "SELECT IFNULL(MIN(t), -1) FROM (SELECT MIN(time) AS t FROM profiles "
			     "UNION ALL SELECT MIN(time) FROM losses)",
			     ret_oldest_s);

	return r ? r
		 : store_sq_int(
			   s->writer,
			   "SELECT IFNULL(MAX(t), -1) FROM (SELECT MAX(time) AS t FROM profiles "
			   "UNION ALL SELECT MAX(time) FROM losses)",
			   ret_newest_s);
}

/*
 * Deletes what is older than the retention. If the clock is ahead, deletes only what MAX_SILENT_S
 * allows.
 */
static int expire_age(struct sqlite_store *s, uint64_t now_wall_ns, uint64_t deadline_ns,
		      bool *ret_more)
{
	int64_t retention_s = (int64_t)(s->retention_ns / NSEC_PER_SEC);
	int64_t now_s = (int64_t)(now_wall_ns / NSEC_PER_SEC), oldest_s, newest_s, cut_s;
	/*
	 * The deletion waits until more seconds are due and then deletes them at once. If each
	 * second were deleted as it expires, each sweep of the dictionaries would find almost
	 * nothing.
	 */
	int64_t slack_s = MIN(retention_s / 50, SLACK_MAX_S);
	int r;

	if (!retention_s || now_s < retention_s)
		return 0;
	r = time_range(s, &oldest_s, &newest_s);
	if (r || oldest_s < 0)
		return r;
	cut_s = MIN(now_s, newest_s + MAX_SILENT_S) - retention_s;
	return oldest_s > cut_s - slack_s ? 0
					  : expire_until(s, cut_s, "age", deadline_ns, ret_more);
}

int store_sq_bytes(struct sqlite_store *s, uint64_t *ret_used, uint64_t *ret_free)
{
	int64_t pages = 0, free_pages = 0, page_bytes = 0;
	int r = store_sq_int(s->writer, "PRAGMA page_count", &pages);

	if (!r)
		r = store_sq_int(s->writer, "PRAGMA freelist_count", &free_pages);
	if (!r)
		r = store_sq_int(s->writer, "PRAGMA page_size", &page_bytes);
	if (r)
		return r;
	*ret_used = (uint64_t)((pages - free_pages) * page_bytes);
	*ret_free = (uint64_t)(free_pages * page_bytes);
	return 0;
}

static int is_large(struct sqlite_store *s, void *arg, bool *ret)
{
	uint64_t bytes = 0, free_bytes;
	int r = store_sq_bytes(s, &bytes, &free_bytes);

	(void)arg;
	*ret = bytes > s->max_bytes;
	return r;
}

/*
 * Asks due() whether profiles must be deleted. If profiles were deleted since the last sweep, this
 * function sweeps the dictionaries and asks again: that may be enough, because a short-lived store
 * consists mostly of dictionaries.
 */
static int is_due(struct sqlite_store *s, expire_due_fn *due, void *arg, bool *ret)
{
	bool short_lived = false;
	int r = due(s, arg, ret);

	if (r || !*ret || !s->unswept)
		return r;
	r = is_short_lived(s, &short_lived);
	if (!r && short_lived)
		r = sweep_stacks(s);
	if (!r)
		r = sweep(s);
	return r ? r : due(s, arg, ret);
}

int store_expire_tenths(struct sqlite_store *s, expire_due_fn *due, void *arg, const char *reason,
			uint64_t deadline_ns, bool *ret_more)
{
	bool is = false;
	int64_t cut_s = 0;
	int r = 0;

	for (int i = 0; !r && i < MAX_ROUNDS; i++) {
		r = is_due(s, due, arg, &is);
		if (r || !is)
			return r;
		r = store_sq_int(
			s->writer,
			"SELECT IFNULL((SELECT time FROM profiles ORDER BY time LIMIT 1 OFFSET "
			"(SELECT COUNT(*)/10 FROM profiles)), -1)",
			&cut_s);
		if (r || cut_s < 0)
			return r;
		r = expire_until(s, cut_s, reason, deadline_ns, ret_more);
		if (now_mono_ns() >= deadline_ns)
			return r;
	}
	return r;
}

static int expire_size(struct sqlite_store *s, uint64_t deadline_ns, bool *ret_more)
{
	return s->max_bytes ? store_expire_tenths(s, is_large, NULL, "size", deadline_ns, ret_more)
			    : 0;
}

/*
 * Deletes the oldest links over their own limit. Without this limit, many traced requests would
 * leave less room for profiles.
 */
static int expire_links(struct sqlite_store *s, uint64_t deadline_ns)
{
	uint64_t budget = s->max_bytes ? s->max_bytes / LINKS_SHARE : LINKS_BYTES;
	int64_t most = (int64_t)(budget / LINK_BYTES), n = 0, cut_s = 0, n_gone = 1;
	char sql[96];
	int r = store_sq_int(s->writer, "SELECT COUNT(*) FROM links", &n);

	for (; !r && n > most && n_gone; n -= n_gone) {
		snprintf(sql, sizeof(sql),
			 "SELECT time FROM links ORDER BY time LIMIT 1 OFFSET %" PRId64,
			 MIN(n - most, LINKS_SLICE));
		r = store_sq_int(s->writer, sql, &cut_s);
		if (!r)
			r = run_with(s->writer, "DELETE FROM links WHERE time<=?1", cut_s);
		if (r)
			return r;
		n_gone = sqlite3_changes64(s->writer);
		counter_add(counter("store_links_expired_total", "reason", "budget"),
			    (uint64_t)n_gone);
		if (now_mono_ns() >= deadline_ns)
			return 0;
	}
	return r;
}

int store_sq_vacuum(struct sqlite_store *s, uint64_t bytes)
{
	int64_t page_bytes = 4096;
	char sql[64];
	int r = store_sq_int(s->writer, "PRAGMA page_size", &page_bytes);

	snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%" PRIu64 ")",
		 bytes / (uint64_t)page_bytes + 1);
	return r ? r : store_sq_exec(s->writer, sql);
}

int store_sqlite_expire(void *sink, uint64_t now_wall_ns)
{
	struct sqlite_store *s = sink;
	uint64_t deadline_ns = now_mono_ns() + s->expire_ns;
	bool more_age = false, more_size = false;
	int r = store_damage_ready(s);

	if (r)
		return r;
	r = expire_age(s, now_wall_ns, deadline_ns, &more_age);
	if (!r)
		r = expire_links(s, deadline_ns);
	if (!r)
		r = expire_size(s, deadline_ns, &more_size);
	if (!r && !more_age && !more_size)
		r = sweep(s);
	if (!r)
		r = store_sq_vacuum(s, VACUUM_BYTES);
	if (!r) {
		r = store_blocks_make(s, (int64_t)(now_wall_ns / NSEC_PER_SEC),
				      now_mono_ns() + BLOCKS_NS);
		/* a sum is not worth the deletion of profiles */
		if (r == -ENOSPC) {
			counter_add(counter("store_expire_errors_total", "reason", "ENOSPC"), 1);
			r = 0;
		}
	}
	if (r && store_damage_recover(s, r) == -ENOSPC) /* deleting needs room on the disk, too */
		r = store_room_make(s, ROOM_LEAST);
	if (!r)
		store_room_keep(s);
	store_sq_measure(s);
	if (r)
		counter_add(counter("store_expire_errors_total", "reason", strerrorname_np(-r)), 1);
	return r;
}
