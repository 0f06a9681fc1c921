/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose bytes the store holds, and what of them is deleted if it holds too many. shares.h says what
 * a place is, and what it may keep. A place with less than its share loses nothing, however much
 * another one writes.
 *
 * Triggers keep the bytes of the profiles of each series. What a place has in the dictionaries is
 * counted here: a stack belongs to the place that stored it first, a frame or a text to the place
 * of the first stack that has it. The counts are estimates: only their ratios matter.
 */
#include "hub/store/shares.h"
#include "hub/store/sqlite.h"

#include <inttypes.h>
#include <stdlib.h>

#define TENTHS_KEPT 9 /* of ten; a round deletes the rest */
/* profiles that one slice deletes; it also deletes all others of the place in its last second */
#define SLICE	    5000
#define LINKS_SLICE 100000 /* the same for links, of which a slice is deleted by one statement */
/* bytes of a row with its indexes, roughly, without its text */
#define SERIES_BYTES 150
#define STACK_BYTES  70
#define LABELS_BYTES 300
#define FRAME_BYTES  60
#define STRING_BYTES 20
/* frames whose place is known at once; of more, a part is looked at */
#define FRAMES_SAMPLE (1 << 18)
#define LOOK_EVERY    1024 /* profiles between two looks at the clock */

/* ---- the place of a profile ---- */

int store_places_put(struct writing *w, const struct profile *p, int64_t *ret_id)
{
	const char *cluster = profile_tag_get(p, "pod_cluster"),
		   *ns = profile_tag_get(p, "pod_ns") ?: "";
	bool other = cluster && store_clusters_has(w->s, cluster);
	_cleanup_free_ char *name =
		xasprintf("%s%s%s", other ? cluster : "", other ? ":" : "",
			  profile_tag_get(p, TAG_UNVERIFIED) ? STORE_PLACE_UNVERIFIED : ns);

	return store_words_text(w, ST_PLACE_GET, ST_PLACE_PUT, name, ret_id);
}

/* ---- how much each place has ---- */

static struct share *share_of(const struct shares *s, int64_t id)
{
	size_t from = 0, to = s->n;

	while (from < to) {
		size_t at = (from + to) / 2;

		if (s->items[at].id == id)
			return &s->items[at];
		if (s->items[at].id < id)
			from = at + 1;
		else
			to = at;
	}
	return NULL;
}

/* Sets the clusters of the places. */
static int read_clusters(sqlite3 *db, struct shares *s)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT id, name FROM places", -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	store_shares_cluster(s, ""); /* also of a place without a row */
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct share *x = share_of(s, sqlite3_column_int64(st, 0));

		if (x)
			x->cluster =
				store_shares_cluster(s, (const char *)sqlite3_column_text(st, 1));
	}
	return store_sq_errno(rc);
}

static int count_series(sqlite3 *db, struct shares *s)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT se.place, COUNT(*), SUM(se.bytes), MIN(se.first_s), "
				    "SUM(LENGTH(t.text)) FROM series AS se LEFT JOIN tagsets AS t "
				    "ON t.id=se.tagset GROUP BY se.place ORDER BY se.place",
				    -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		uint64_t n = (uint64_t)sqlite3_column_int64(st, 1),
			 bytes = (uint64_t)MAX(sqlite3_column_int64(st, 2), (sqlite3_int64)0);

		GROW(s->items, s->n, s->cap);
		s->items[s->n++] = (struct share){
			.id = sqlite3_column_int64(st, 0),
			.bytes = bytes + n * SERIES_BYTES + (uint64_t)sqlite3_column_int64(st, 4),
			.profiles_bytes = bytes,
			.first_s = sqlite3_column_int64(st, 3),
		};
	}
	return store_sq_errno(rc);
}

/* Each link counts as one. */
static int count_links(sqlite3 *db, struct shares *s)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc =
		sqlite3_prepare_v2(db,
				   "SELECT se.place, COUNT(*) FROM links AS k JOIN series AS se ON "
				   "se.id=k.series GROUP BY se.place ORDER BY se.place",
				   -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);

		GROW(s->items, s->n, s->cap);
		s->items[s->n++] = (struct share){
			.id = sqlite3_column_int64(st, 0), .bytes = n, .profiles_bytes = n};
	}
	return store_sq_errno(rc);
}

/* The rows of a dictionary that are looked at, and whose they are. */
struct owned {
	struct id_map frames, strings; /* id -> struct share */
	struct id_set seen;	       /* the frames in the map: most are asked for often */
	int64_t one_in;		       /* of so many frames and stacks, one is looked at */
};

static void owned_done(struct owned *o)
{
	/* store_id_map_free would free the shares */
	free(o->frames.slots);
	free(o->strings.slots);
	store_id_set_done(&o->seen);
}

static void own(struct id_map *m, int64_t id, struct share *share)
{
	if (id > 0 && !store_id_map_get(m, id))
		store_id_map_put(m, id, share);
}

static void own_frames(struct owned *o, struct share *share, const uint8_t *p, int n)
{
	const uint8_t *end = p + n;
	uint64_t id;

	while (store_varint_get(&p, end, &id)) {
		if (store_id_set_has(&o->seen, (int64_t)id) || id % (uint64_t)o->one_in)
			continue;
		store_id_set_add(&o->seen, (int64_t)id);
		own(&o->frames, (int64_t)id, share);
	}
}

static int count_stacks(sqlite3 *db, const struct shares *s, struct owned *o)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT id, ABS(place), labels, process, thread, frames "
				    "FROM stacks WHERE place!=0",
				    -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct share *share = share_of(s, sqlite3_column_int64(st, 1));
		const uint8_t *frames = sqlite3_column_blob(st, 5);
		int n = sqlite3_column_bytes(st, 5);

		if (!share)
			continue;
		share->bytes += STACK_BYTES + (uint64_t)n;
		if (sqlite3_column_int64(st, 2))
			share->bytes += LABELS_BYTES;
		own_frames(o, share, frames, n);
		if (sqlite3_column_int64(st, 0) % o->one_in)
			continue;
		own(&o->strings, sqlite3_column_int64(st, 3), share);
		own(&o->strings, sqlite3_column_int64(st, 4), share);
	}
	return store_sq_errno(rc);
}

/* Adds the rows of a query to their places: an id, bytes, and ids of strings. */
static int count_rows(sqlite3 *db, const char *sql, const struct id_map *of, struct owned *o)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct share *share = store_id_map_get(of, sqlite3_column_int64(st, 0));

		if (!share)
			continue;
		share->bytes += (uint64_t)(sqlite3_column_int64(st, 1) * o->one_in);
		for (int i = 2; i < sqlite3_column_count(st); i++)
			own(&o->strings, sqlite3_column_int64(st, i), share);
	}
	return store_sq_errno(rc);
}

static int count_dictionaries(sqlite3 *db, const struct shares *s)
{
	_cleanup_(owned_done) struct owned o = {0};
	char frames[160], strings[160];
	int64_t last = 0;
	int r = store_sq_int(db, "SELECT IFNULL(MAX(id), 0) FROM frames", &last);

	o.one_in = 1 + last / FRAMES_SAMPLE;
	snprintf(frames, sizeof(frames),
		 "SELECT id, %d, name, module, build_id, file FROM frames WHERE id%%%" PRId64 "=0",
		 FRAME_BYTES, o.one_in);
	/* the text is in the table and in its index */
	snprintf(strings, sizeof(strings), "SELECT id, %d+2*LENGTH(CAST(s AS BLOB)) FROM strings",
		 STRING_BYTES);
	if (!r)
		r = count_stacks(db, s, &o);
	if (!r)
		r = count_rows(db, frames, &o.frames, &o);
	return r ?: count_rows(db, strings, &o.strings, &o);
}

/*
 * Adds what the places have in the dictionaries: as of the first round, because counting takes
 * long.
 */
static int add_dictionaries(sqlite3 *db, const struct shares *s, struct store_plan *p)
{
	int r;

	if (p->dictionaries) {
		for (size_t i = 0; i < p->n_dictionaries; i++) {
			struct share *x = share_of(s, p->dictionaries[i].place);

			if (x)
				x->bytes += p->dictionaries[i].bytes;
		}
		return 0;
	}
	p->dictionaries = xcalloc(s->n, sizeof(*p->dictionaries));
	p->n_dictionaries = s->n;
	for (size_t i = 0; i < s->n; i++)
		p->dictionaries[i] = (struct place_bytes){s->items[i].id, s->items[i].bytes};
	r = count_dictionaries(db, s);
	for (size_t i = 0; i < s->n; i++)
		p->dictionaries[i].bytes = s->items[i].bytes - p->dictionaries[i].bytes;
	return r;
}

/* ---- who loses what ---- */

static void add_slice(struct store_plan *p, struct share *x, int64_t until_s)
{
	GROW(p->slices, p->n, p->cap);
	p->slices[p->n++] = (struct store_slice){x->id, until_s};
	x->n_slice = 0;
}

/* Adds a row to what its place loses. Returns whether the place then loses no more. */
static bool lose(struct store_plan *p, struct share *x, int64_t time_s, double bytes)
{
	x->excess -= bytes;
	if (++x->n_slice >= p->slice || x->excess <= 0)
		add_slice(p, x, time_s);
	return x->excess <= 0;
}

/*
 * Goes through the rows of a query (second, place, bytes) in the order of time, until n places have
 * lost enough. The parameter of the query is the first second.
 */
static int plan_slices(sqlite3 *db, const char *sql, const struct shares *s, size_t n,
		       int64_t first_s, uint64_t deadline_ns, struct store_plan *p)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
	int64_t time_s = first_s;

	if (rc != SQLITE_OK)
		return store_sq_errno(rc);
	sqlite3_bind_int64(st, 1, first_s);
	for (uint64_t i = 1; n && (rc = sqlite3_step(st)) == SQLITE_ROW; i++) {
		struct share *x = share_of(s, sqlite3_column_int64(st, 1));

		time_s = sqlite3_column_int64(st, 0);
		if (x && x->excess > 0)
			n -= lose(p, x, time_s, sqlite3_column_double(st, 2));
		if (i % LOOK_EVERY == 0 && p->n && now_mono_ns() >= deadline_ns)
			return 0;
	}
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].n_slice)
			add_slice(p, &s->items[i], time_s);
	return store_sq_errno(rc);
}

int store_shares_plan(struct sqlite_store *s, uint64_t deadline_ns, struct store_plan *ret)
{
	_cleanup_(store_shares_done) struct shares shares = {0};
	int64_t first_s;
	size_t n;
	int r = count_series(s->writer, &shares);

	if (!r)
		r = read_clusters(s->writer, &shares);
	if (!r && shares.n > 1)
		r = add_dictionaries(s->writer, &shares, ret);
	if (r)
		return r;
	ret->n = 0;
	n = store_shares_excess(&shares, store_shares_bytes(&shares) / 10 * TENTHS_KEPT, &first_s);
	ret->slice = SLICE;
	return n ? plan_slices(s->writer,
			       "SELECT p.time, se.place, 1.0*se.bytes/MAX(se.profiles, 1) FROM "
			       "profiles AS p CROSS JOIN series AS se ON se.id=p.series "
			       "WHERE p.time>=? ORDER BY p.time",
			       &shares, n, first_s, deadline_ns, ret)
		 : 0;
}

int store_links_plan(struct sqlite_store *s, uint64_t most, uint64_t deadline_ns,
		     struct store_plan *ret)
{
	_cleanup_(store_shares_done) struct shares shares = {0};
	int64_t first_s;
	size_t n;
	int r = count_links(s->writer, &shares);

	if (!r)
		r = read_clusters(s->writer, &shares);
	if (r)
		return r;
	n = store_shares_excess(&shares, most, &first_s);
	ret->slice = LINKS_SLICE;
	return n ? plan_slices(s->writer,
			       "SELECT k.time, se.place, 1.0 FROM links AS k INDEXED BY links_time "
			       "CROSS JOIN series AS se ON se.id=k.series WHERE k.time>=? "
			       "ORDER BY k.time",
			       &shares, n, first_s, deadline_ns, ret)
		 : 0;
}

void store_plan_done(struct store_plan *p)
{
	free(p->slices);
	free(p->dictionaries);
	*p = (struct store_plan){0};
}
