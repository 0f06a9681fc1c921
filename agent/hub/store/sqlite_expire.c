/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletes old profiles: first by age, then by size, a tenth of the store at a time: the oldest of
 * the places that have more than their share (sqlite_shares.c). Then it deletes the entries of the
 * dictionaries that nothing refers to. At the end it gives free pages back to the file system.
 *
 * A slice is the profiles that one transaction deletes. If the slices take more than some seconds,
 * the next call continues. The sweep of the dictionaries is one transaction, however many entries
 * they have. It waits until no slice is due. But if the store is over its size, the sweep comes
 * first, because the bytes that it frees decide whether a slice is due. A stack is deleted an hour
 * after its last use, without a search for references to it. But if the store, or a place, has room
 * for a few hours only, its stacks without a reference are deleted at once. Else they would take
 * the room of profiles.
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
#define LINKS_SHARE   8			 /* links may take 1/8 of max_bytes */
#define LINKS_BYTES   (256ULL << 20)	 /* limit for links if max_bytes is 0 */
#define BLOCKS_NS     (2 * NSEC_PER_SEC) /* time in which one call adds up blocks */

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
	PROFILE_EACH_EVENT (event)
		r = r ? r : delete_snapshots(db, (int)event, cut_s);
	for (size_t i = 0; !r && i < ARRAY_SIZE(steps); i++)
		r = run_with(db, steps[i], cut_s);
	if (!r)
		r = run_with(db, "DELETE FROM stacks WHERE last_s<?1", cut_s - STACK_GRACE_S);
	return r;
}

void store_count_expired(struct sqlite_store *s, const char *reason, uint64_t n_profiles)
{
	s->unswept = true;
	sqlite3_mutex_enter(s->stats_lock);
	s->stats.n_expired += n_profiles;
	sqlite3_mutex_leave(s->stats_lock);
	counter_add(counter("store_expired_profiles_total", "reason", reason), n_profiles);
}

/* Deletes what ended at second cut_s or before, in one transaction. */
static int expire_slice(struct sqlite_store *s, int64_t cut_s, const char *reason)
{
	struct store_deletion before;
	struct blocks blocks;
	uint64_t n_profiles = 0;
	int r = store_deletion_begin(s, &before);

	if (r)
		return r;
	r = delete_until(s->writer, cut_s, &n_profiles);
	if (!r)
		r = store_blocks_expire(s, cut_s, &blocks);
	r = store_deletion_end(s, r, &before);
	if (r)
		return r;
	s->blocks = blocks;
	store_count_expired(s, reason, n_profiles);
	return 0;
}

/* ---- of a place ---- */

static int run_of(sqlite3 *db, const char *sql, const struct store_slice *slice, int event)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	sqlite3_bind_int64(st, 1, slice->until_s);
	/* SQLite refuses those that a statement does not have, which does no harm */
	sqlite3_bind_int64(st, 2, slice->place);
	sqlite3_bind_int64(st, 3, event);
	return store_sq_run(st);
}

/* The sum of the block in which the last second lies is made again; those before it go. */
int store_expire_event(sqlite3 *db, int event, const struct store_slice *slice,
		       uint64_t *n_profiles)
{
#define OF_CUT	   " WHERE event=?3 AND series IN (SELECT series FROM cut) AND "
#define LAST_BLOCK "?1/" SQ_TEXT(BLOCK_S)
	static const char *const steps[] = {
		"DELETE FROM profiles" OF_CUT "time<=?1",
		"DELETE FROM snapshots" OF_CUT "time<=?1",
		"INSERT OR IGNORE INTO late(event, series, block, given_up) "
		"SELECT event, series, block, 0 FROM blocks" OF_CUT "block=" LAST_BLOCK,
		"DELETE FROM blocks" OF_CUT "block<=" LAST_BLOCK,
		"DELETE FROM late" OF_CUT "block<" LAST_BLOCK,
	};
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(steps); i++) {
		r = run_of(db, steps[i], slice, event);
		if (!r && i == 0)
			*n_profiles += (uint64_t)sqlite3_changes64(db);
	}
	return r;
}

/* Deletes what of the place ended in the slice or before. The caller has begun a transaction. */
static int delete_slice(sqlite3 *db, const struct store_slice *slice, uint64_t *ret_n_profiles)
{
	static const char *const before[] = {
		"DELETE FROM cut",
		"INSERT INTO cut SELECT id FROM series WHERE place=?2 AND first_s<=?1",
	};
#define IN_CUT " IN (SELECT series FROM cut)"
	static const char *const after[] = {
		"DELETE FROM losses WHERE time<=?1 AND series" IN_CUT,
		"DELETE FROM links WHERE time<=?1 AND series" IN_CUT,
		"DELETE FROM estimates WHERE time<=?1 AND series" IN_CUT,
		"DELETE FROM series WHERE last_s<=?1 AND id" IN_CUT,
		"UPDATE series SET first_s=?1+1 WHERE first_s<=?1 AND id" IN_CUT,
		"INSERT OR REPLACE INTO cut_places VALUES(?2, ?1)",
		"UPDATE places SET until_s=MAX(until_s, ?1) WHERE id=?2",
	};
	int r = 0;

	*ret_n_profiles = 0;
	for (size_t i = 0; !r && i < ARRAY_SIZE(before); i++)
		r = run_of(db, before[i], slice, 0);
	PROFILE_EACH_EVENT (event)
		r = r ? r : store_expire_event(db, (int)event, slice, ret_n_profiles);
	for (size_t i = 0; !r && i < ARRAY_SIZE(after); i++)
		r = run_of(db, after[i], slice, 0);
	return r;
}

static int expire_slice_of(struct sqlite_store *s, const struct store_slice *slice,
			   const char *reason)
{
	struct store_deletion before;
	uint64_t n_profiles = 0;
	int r = store_deletion_begin(s, &before);

	if (r)
		return r;
	r = delete_slice(s->writer, slice, &n_profiles);
	r = store_deletion_end(s, r, &before);
	if (!r)
		store_count_expired(s, reason, n_profiles);
	return r;
}

/*
 * Deletes the stacks that places alone have used which have nothing left. A place may end sooner
 * than its stacks are old, such as a namespace that somebody has invented.
 */
static int delete_stacks_of_ended(struct sqlite_store *s)
{
#define ENDED "FROM cut_places WHERE place NOT IN (SELECT place FROM series)"
	int64_t n = 0;
	int r = store_sq_int(s->writer, "SELECT COUNT(*) " ENDED, &n);

	return r || !n ? r
		       : store_sq_exec(s->writer,
				       "DELETE FROM stacks WHERE place IN (SELECT place " ENDED
				       ")");
}

/*
 * Deletes the stacks that only profiles of the slices could refer to: those that one place alone
 * has used, and those older than all profiles.
 */
static int delete_stacks_of(struct sqlite_store *s)
{
#define GRACE "-" SQ_TEXT(STACK_GRACE_S)
	static const char sql[] =
		"DELETE FROM stacks WHERE place>0 AND "
		"last_s<(SELECT MAX(until_s) FROM cut_places)" GRACE " AND last_s<"
		"(SELECT c.until_s FROM cut_places AS c WHERE c.place=stacks.place)" GRACE ";"
		"DELETE FROM stacks WHERE last_s<(SELECT MIN(time) FROM profiles)" GRACE ";"
		"DELETE FROM cut_places";
	struct store_deletion before;
	int r = store_deletion_begin(s, &before);

	if (r)
		return r;
	r = delete_stacks_of_ended(s);
	return store_deletion_end(s, r ?: store_sq_exec(s->writer, sql), &before);
}

/* Deletes the slices of the plan until the deadline, but at least one. *ret_more: some are left. */
static int expire_plan(struct sqlite_store *s, const struct store_plan *p, const char *reason,
		       uint64_t deadline_ns, bool *ret_more)
{
	size_t i = 0;
	int r = 0;

	do
		r = i < p->n ? expire_slice_of(s, &p->slices[i++], reason) : 0;
	while (!r && i < p->n && now_mono_ns() < deadline_ns);
	*ret_more = i < p->n;
	return r ?: delete_stacks_of(s);
}

/* ---- all ---- */

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

static int expire_age(struct sqlite_store *s, uint64_t now_wall_ns, uint64_t deadline_ns,
		      bool *ret_more)
{
	int64_t now_s = (int64_t)(now_wall_ns / NSEC_PER_SEC), oldest_s, newest_s, cut_s;
	/*
	 * The deletion waits until more seconds are due and then deletes them at once. If each
	 * second were deleted as it expires, each sweep of the dictionaries would find almost
	 * nothing.
	 */
	int64_t slack_s = store_keep_slack(s->keeps.longest_ns, SLACK_MAX_S);
	int r = time_range(s, &oldest_s, &newest_s);

	if (r || oldest_s < 0)
		return r;
	cut_s = store_keep_until(s->keeps.longest_ns, now_s, newest_s);
	if (cut_s && oldest_s <= cut_s - slack_s)
		r = expire_until(s, cut_s, "age", deadline_ns, ret_more);
	return r ?: store_keeps_expire(s, now_s, newest_s, deadline_ns, ret_more);
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
 * function sweeps the dictionaries and asks again: that may be enough, because what is short-lived
 * consists mostly of dictionaries. last: the plan that was carried out last.
 */
static int is_due(struct sqlite_store *s, expire_due_fn *due, void *arg,
		  const struct store_plan *last, bool *ret)
{
	int r = due(s, arg, ret);

	if (r || !*ret || !s->unswept)
		return r;
	r = store_sweep_short_lived(s, last);
	if (!r)
		r = store_sweep(s);
	return r ? r : due(s, arg, ret);
}

/* Deletes the oldest tenth of all profiles, whosever they are. */
static int expire_tenth(struct sqlite_store *s, const char *reason, uint64_t deadline_ns,
			bool *ret_more)
{
	int64_t cut_s = 0;
	int r = store_sq_int(
		s->writer,
		"SELECT IFNULL((SELECT time FROM profiles ORDER BY time LIMIT 1 OFFSET "
		"(SELECT COUNT(*)/10 FROM profiles)), -1)",
		&cut_s);

	return r || cut_s < 0 ? r : expire_until(s, cut_s, reason, deadline_ns, ret_more);
}

int store_expire_tenths(struct sqlite_store *s, expire_due_fn *due, void *arg, const char *reason,
			uint64_t deadline_ns, bool *ret_more)
{
	_cleanup_(store_plan_done) struct store_plan plan = {0};
	bool is = false;
	int r = 0;

	for (int i = 0; !r && i < MAX_ROUNDS; i++) {
		r = is_due(s, due, arg, &plan, &is);
		if (r || !is)
			return r;
		r = store_shares_plan(s, deadline_ns, &plan);
		if (r)
			return r;
		r = plan.n ? expire_plan(s, &plan, reason, deadline_ns, ret_more)
			   /* the places over their share have stacks only */
			   : expire_tenth(s, reason, deadline_ns, ret_more);
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
 * Deletes links over their own limit, the oldest of the places that have more than their share.
 * Without this limit, many traced requests would leave less room for profiles.
 */
static int expire_links(struct sqlite_store *s, uint64_t deadline_ns)
{
	_cleanup_(store_plan_done) struct store_plan plan = {0};
	uint64_t budget = s->max_bytes ? s->max_bytes / LINKS_SHARE : LINKS_BYTES;
	int64_t n = 0;
	int r = store_sq_int(s->writer, "SELECT COUNT(*) FROM links", &n);

	if (r || (uint64_t)n <= budget / LINK_BYTES)
		return r;
	r = store_links_plan(s, budget / LINK_BYTES, deadline_ns, &plan);
	for (size_t i = 0; !r && i < plan.n; i++) {
		r = run_of(s->writer,
			   "DELETE FROM links WHERE time<=?1 AND series IN "
			   "(SELECT id FROM series WHERE place=?2 AND first_s<=?1)",
			   &plan.slices[i], 0);
		if (!r)
			counter_add(counter("store_links_expired_total", "reason", "budget"),
				    (uint64_t)sqlite3_changes64(s->writer));
		if (now_mono_ns() >= deadline_ns)
			break;
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
		r = store_sweep(s);
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
	if (r) {
		log_warn("deleting old profiles: %s", strerror(-r));
		counter_add(counter("store_expire_errors_total", "reason", strerrorname_np(-r)), 1);
	}
	return r;
}
