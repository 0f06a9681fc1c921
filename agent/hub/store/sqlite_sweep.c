/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions that delete, and the sweeps: they delete the rows of the dictionaries to which
 * nothing refers. The writer's worker runs them. sqlite_expire.c decides when.
 */
#include "hub/store/sqlite.h"

#include <inttypes.h>
#include <stdlib.h>

#define SLICE	5000	   /* stacks that one transaction looks at */
#define SHORT_S (4 * 3600) /* what is stored for less than this is short-lived */

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
		r = store_sq_exec(db,
				  "DELETE FROM places WHERE id NOT IN (SELECT place FROM series "
				  "UNION SELECT ABS(place) FROM stacks) AND "
				  "until_s<(SELECT MIN(time) FROM profiles)");
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

static int greatest_ids(struct sqlite_store *s, struct store_deletion *ret)
{
	int r = store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM strings", &ret->strings);

	if (!r)
		r = store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM frames", &ret->frames);
	return r ?: store_sq_int(s->writer, "SELECT IFNULL(MAX(id), 0) FROM stacks", &ret->stacks);
}

int store_deletion_begin(struct sqlite_store *s, struct store_deletion *ret)
{
	int r = store_sq_run(s->st[ST_BEGIN]);

	if (r)
		return r;
	r = greatest_ids(s, ret);
	if (r)
		(void)store_sq_run(s->st[ST_ROLLBACK]);
	return r;
}

int store_deletion_end(struct sqlite_store *s, int r, const struct store_deletion *before)
{
	struct store_deletion now = {0};
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

int store_sweep(struct sqlite_store *s)
{
	struct store_deletion before;
	int r = s->unswept ? store_deletion_begin(s, &before) : 0;

	if (r || !s->unswept)
		return r;
	r = store_deletion_end(s, sweep_dictionaries(s->writer), &before);
	s->unswept = r != 0;
	return r;
}

/* The stacks to which profiles of a place refer. */
static int used_in(struct sqlite_store *s, int64_t place, struct id_set *ret)
{
	char sql[256];
	int r = 0;

	PROFILE_EACH_EVENT (event) {
		snprintf(sql, sizeof(sql),
			 "SELECT x.stack FROM series AS se CROSS JOIN profiles AS p, "
			 "pf_samples(p.samples, p.time) AS x WHERE se.place=%" PRId64
			 " AND p.event=%d AND p.series=se.id",
			 place, (int)event);
		r = r ? r : ids_collect(s->writer, sql, ret);
	}
	return r;
}

static int used_stacks(struct sqlite_store *s, int64_t place, struct id_set *ret)
{
	int r = ids_collect(s->writer, "SELECT stack FROM links", ret);

	if (r || place)
		return r ?: used_in(s, place, ret);
	return ids_collect(s->writer,
			   "SELECT x.stack FROM profiles AS p, pf_samples(p.samples, p.time) AS x",
			   ret);
}

/*
 * Deletes the stacks without a reference, whatever their age; place 0: all, else those that only
 * this place has used. Each transaction looks at a limited number of stacks.
 */
static int sweep_stacks(struct sqlite_store *s, int64_t place)
{
	_cleanup_(store_id_set_done) struct id_set used = {0};
	struct store_deletion greatest;
	int64_t last = 0, before;
	char list[128];
	int r = used_stacks(s, place, &used);

	snprintf(list, sizeof(list),
		 "SELECT id FROM stacks WHERE id>?1 AND (%" PRId64 "=0 OR place=%" PRId64
		 ") ORDER BY id LIMIT %d",
		 place, place, SLICE);
	for (before = -1; !r && last > before;) {
		before = last;
		r = store_deletion_begin(s, &greatest);
		if (!r)
			r = store_deletion_end(s,
					       ids_sweep(s->writer, list,
							 "DELETE FROM stacks WHERE id=?", &used,
							 &last),
					       &greatest);
	}
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

/* Deletes the stacks of short-lived places of the plan to which no profile refers. */
static int sweep_places(struct sqlite_store *s, const struct store_plan *last)
{
	int64_t before = 0, span_s;
	char sql[128];
	int r = 0;

	for (size_t i = 0; !r && i < last->n; i++) {
		if (last->slices[i].place == before)
			continue;
		before = last->slices[i].place;
		snprintf(sql, sizeof(sql),
			 "SELECT IFNULL(MAX(last_s)-MIN(first_s), 0) FROM series WHERE "
			 "place=%" PRId64,
			 before);
		r = store_sq_int(s->writer, sql, &span_s);
		if (!r && span_s < SHORT_S)
			r = sweep_stacks(s, before);
	}
	return r;
}

int store_sweep_short_lived(struct sqlite_store *s, const struct store_plan *last)
{
	bool short_lived = false;
	int r = is_short_lived(s, &short_lived);

	return r ?: short_lived ? sweep_stacks(s, 0) : sweep_places(s, last);
}
