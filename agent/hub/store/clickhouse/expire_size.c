/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If the store is over max_bytes, the oldest windows of the places that have more than their share
 * (shares.h) are deleted by one mutation, which writes the days anew in which they lie. The table
 * `cuts` says until when. A thread of its own does it and waits for the mutation, which may take
 * hours; the writer goes on.
 *
 * Stacks and frames that no window uses are deleted once an hour, two days after they were last
 * written: a hub may have written a stack whose window is on its way. So those of the last two days
 * can be over max_bytes. Windows are never deleted for them: at least half of max_bytes is for
 * windows.
 */
#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/shares.h"

#include <stdlib.h>
#include <time.h>

#define PLACES_MAX     100000  /* places that are compared; of more, those with most windows */
#define LOSERS_MAX     100     /* places that lose windows at once */
#define ROUNDS_MAX     10      /* that one call deletes by size */
#define STACKS_SAMPLE  1000000 /* stacks that are looked at; of more, a part */
#define SWEEP_EVERY_NS (3600 * NSEC_PER_SEC)
#define KEPT_PERCENT   90		     /* of max_bytes, what a round leaves */
#define DELETE_NS      (3600 * NSEC_PER_SEC) /* how long it waits for a deletion */
#define LOOK_NS	       NSEC_PER_SEC	     /* how often it asks whether that has ended */

/* Bytes of a window and of its samples before compression. Only the ratios matter. */
#define WINDOW_WEIGHT                                                                              \
	"(100+24*length(stacks)+56*length(traces)+length(arrayStringConcat(tag_values)))"
#define STACK_WEIGHT "(40+8*length(frames))"
#define FRAME_WEIGHT "(30+length(name)+length(file)+length(module))"

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

struct places {
	struct store_cut *items; /* by the id of their share; until_s: until when it loses all */
	size_t n;
	struct shares shares;
	double windows_weight, names_weight; /* of all */
};

static void places_done(struct places *p)
{
	for (size_t i = 0; i < p->n; i++)
		store_ch_place_done(&p->items[i]);
	free(p->items);
	store_shares_done(&p->shares);
}

static int take_place(struct ch_rows *rows, void *arg)
{
	struct places *p = arg;
	struct store_cut of = store_ch_get_place(rows);
	_cleanup_free_ char *cluster = xasprintf("%s%s", of.cluster ?: "", of.cluster ? ":" : "");
	struct share x = {.id = (int64_t)p->n, .profiles_bytes = store_ch_get_u64(rows)};

	x.bytes = store_ch_get_u64(rows);
	x.cluster = store_shares_cluster(&p->shares, cluster);
	p->windows_weight += (double)x.profiles_bytes;
	p->names_weight += (double)x.bytes;
	GROW(p->shares.items, p->shares.n, p->shares.cap);
	p->shares.items[p->shares.n++] = x;
	p->items[p->n++] = of;
	return 0;
}

/*
 * Reads the places, with the weight of their windows, and of the stacks and frames that these use.
 * What several places use counts for each of them.
 */
static int read_weights(struct ch_store *s, struct places *ret, uint64_t one_in,
			struct field_error *reterr)
{
#define PLACE "other, ns, of_unverified"
	struct ch_where w = {0};

	ret->items = xcalloc(PLACES_MAX, sizeof(*ret->items));
	text(&w,
	     "WITH used AS (SELECT " PLACE ", id, frames FROM (SELECT DISTINCT " CH_PLACE_COLUMNS
	     ", arrayJoin(arrayFilter(x -> x % ");
	store_ch_int(&w.sql, (int64_t)one_in);
	text(&w, " = 0, stacks)) AS id FROM windows) AS u ANY LEFT JOIN stacks USING (id)) "
		 "SELECT " PLACE ", toUInt64(sum(of_windows)), toUInt64(sum(of_names)) FROM "
		 "(SELECT " CH_PLACE_COLUMNS ", " WINDOW_WEIGHT
		 " AS of_windows, 0 AS of_names FROM windows UNION ALL "
		 "SELECT " PLACE ", 0, " STACK_WEIGHT " FROM used UNION ALL "
		 "SELECT " PLACE ", 0, weight FROM (SELECT DISTINCT " PLACE ", arrayJoin(frames) "
		 "AS id FROM used) AS f ANY LEFT JOIN (SELECT id, " FRAME_WEIGHT " AS weight "
		 "FROM frames) AS g USING (id)) GROUP BY " PLACE " ORDER BY sum(of_windows) DESC "
		 "LIMIT ");
	store_ch_int(&w.sql, PLACES_MAX);
	return store_ch_ask_each(s, &w, PLACES_MAX, take_place, ret, reterr);
}

/* Turns the weights into bytes on disk. */
static void set_bytes(struct places *p, const struct ch_sizes *x)
{
	double of_window = (double)x->windows_bytes / MAX(p->windows_weight, 1),
	       of_name = (double)(x->bytes - x->windows_bytes) / MAX(p->names_weight, 1);

	for (size_t i = 0; i < p->n; i++) {
		struct share *share = &p->shares.items[i];
		double windows = (double)share->profiles_bytes * of_window,
		       names = (double)share->bytes * of_name;

		share->profiles_bytes = (uint64_t)windows;
		share->bytes = (uint64_t)(windows + names);
	}
}

static int take_second(struct ch_rows *rows, void *arg)
{
	*(int64_t *)arg = store_ch_get_u32(rows);
	return 0;
}

/* Until when the windows of the place have at least this weight, from the oldest one on. */
static int read_until(struct ch_store *s, struct store_cut *of, double weight,
		      struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT toUInt32(min(time)) FROM (SELECT time, sum(sum(" WINDOW_WEIGHT
		 ")) OVER (ORDER BY time) AS so_far FROM windows WHERE ");
	store_ch_of_place(&w, of);
	text(&w, " GROUP BY time) WHERE so_far>=");
	store_ch_int(&w.sql, (int64_t)weight);
	return store_ch_ask_each(s, &w, 1, take_second, &of->until_s, reterr);
}

static int note_cut(struct ch_store *s, const struct store_cut *of, struct field_error *reterr)
{
	_cleanup_buf_ struct buf row = {0};

	store_ch_put_str(&row, of->cluster);
	store_ch_put_str(&row, of->ns);
	store_ch_put_str(&row, of->unverified ? "true" : "");
	store_ch_put_u32(&row, (uint32_t)of->until_s);
	return store_ch_insert(s, "cuts (pod_cluster, pod_ns, unverified, until)", &row, reterr);
}

int store_ch_put_cut(void *sink, const struct store_cut *cut)
{
	return note_cut(sink, cut, NULL);
}

/* " WHERE ...": what the places lose */
static void put_lost(struct ch_where *w, const struct places *p)
{
	text(w, " WHERE 0");
	for (size_t i = 0; i < p->n; i++) {
		if (!p->items[i].until_s)
			continue;
		text(w, " OR (time<=");
		store_ch_put_time(w, p->items[i].until_s);
		text(w, " AND ");
		store_ch_of_place(w, &p->items[i]);
		text(w, ")");
	}
}

static int count_lost(struct ch_store *s, const struct places *p, uint64_t *ret,
		      struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT count() FROM windows");
	put_lost(&w, p);
	return store_ch_ask_each(s, &w, 1, store_ch_take_u64, ret, reterr);
}

static int note_cuts(struct ch_store *s, const struct places *p, struct field_error *reterr)
{
	int r = 0;

	for (size_t i = 0; !r && i < p->n; i++)
		if (p->items[i].until_s)
			r = store_ch_still_leads(s, s->sizing.term)
				    ?: note_cut(s, &p->items[i], reterr);
	return r;
}

/* n: how many windows they lose */
static int delete_lost(struct ch_store *s, const struct places *p, uint64_t n,
		       struct field_error *reterr)
{
	struct ch_where w = {0};
	int r;

	store_ch_put_change(&w, s, "ALTER TABLE ", "windows");
	text(&w, " DELETE");
	put_lost(&w, p);
	text(&w, " SETTINGS mutations_sync=0");
	r = store_ch_delete(s, s->sizing.term, &w, reterr);
	if (!r) /* ClickHouse has taken the deletion, and goes on with it whatever happens */
		store_ch_count_expired(s, "size", n);
	return r;
}

/* The hub ends, or leads no longer. */
static bool gives_up(const struct ch_store *s)
{
	return atomic_load(&s->sizing.stop) || store_ch_still_leads(s, s->sizing.term);
}

static int wait_for_deletion(struct ch_store *s, struct field_error *reterr)
{
	uint64_t until_ns = now_mono_ns() + DELETE_NS;
	struct timespec pause = {.tv_nsec = NSEC_PER_SEC / 100};
	bool busy = true;
	int r = store_ch_is_deleting(s, &busy, reterr);

	while (!r && busy) {
		if (gives_up(s))
			return -ECANCELED;
		if (now_mono_ns() >= until_ns)
			return -ETIME;
		nanosleep(&pause, NULL);
		pause.tv_nsec = (long)MIN((uint64_t)pause.tv_nsec * 2, LOOK_NS - 1);
		r = store_ch_is_deleting(s, &busy, reterr);
	}
	return r;
}

/* Chooses until when each place loses its windows. */
static int plan(struct ch_store *s, struct places *p, const struct ch_sizes *x,
		struct field_error *reterr)
{
	size_t n_losers = 0;
	int64_t first_s;
	int r = read_weights(s, p, 1 + x->n_stacks / STACKS_SAMPLE, reterr);

	if (r)
		return r;
	set_bytes(p, x);
	store_shares_excess(&p->shares, s->max_bytes / 100 * KEPT_PERCENT, &first_s);
	for (size_t i = 0; !r && i < p->n && n_losers < LOSERS_MAX; i++) {
		double excess = p->shares.items[i].excess;

		if (excess <= 0)
			continue;
		n_losers++;
		r = read_until(s, &p->items[i],
			       excess / (double)x->windows_bytes * p->windows_weight, reterr);
	}
	return r;
}

/*
 * *ret_n: how many windows were deleted. 0: there is nothing to lose. The bytes may be those of
 * rows that are marked as deleted.
 */
static int expire_once(struct ch_store *s, const struct ch_sizes *x, uint64_t *ret_n,
		       struct field_error *reterr)
{
	_cleanup_(places_done) struct places p = {0};
	int r = plan(s, &p, x, reterr);

	*ret_n = 0;
	if (!r)
		r = count_lost(s, &p, ret_n, reterr);
	if (r || !*ret_n)
		return r;
	if (gives_up(s)) /* another hub may delete by now: both would delete too much */
		return -ECANCELED;
	r = note_cuts(s, &p, reterr);
	if (!r)
		r = delete_lost(s, &p, *ret_n, reterr);
	return r ? r : wait_for_deletion(s, reterr);
}

/* Deletes stacks, and then frames, that nothing uses. */
static int sweep(struct ch_store *s, struct field_error *reterr)
{
	static const char *const unused[][2] = {
		{"stacks", " WHERE id NOT IN (SELECT arrayJoin(stacks) FROM windows)"},
		{"frames", " WHERE id NOT IN (SELECT arrayJoin(frames) FROM stacks)"},
	};
	uint64_t now_ns = now_mono_ns();
	int r = 0;

	if (s->sizing.swept_ns && now_ns - s->sizing.swept_ns < SWEEP_EVERY_NS)
		return 0;
	s->sizing.swept_ns = now_ns;
	for (size_t i = 0; !r && i < ARRAY_SIZE(unused); i++) {
		struct ch_where w = {0};

		store_ch_put_change(&w, s, "DELETE FROM ", unused[i][0]);
		text(&w, unused[i][1]);
		text(&w, " AND last<toDate(");
		store_ch_int(&w.sql, (int64_t)(s->sizing.now_wall_ns / NSEC_PER_SEC / 86400) - 2);
		text(&w, ")");
		r = store_ch_delete(s, s->sizing.term, &w, reterr);
	}
	return r;
}

static int expire_size(struct ch_store *s, struct field_error *reterr)
{
	struct ch_sizes x = {0};
	uint64_t n = 1;
	int r = store_ch_sizes(s, &x, reterr);

	for (int i = 0; !r && n && i < ROUNDS_MAX && x.bytes > s->max_bytes &&
			x.windows_bytes > s->max_bytes / 2;
	     i++) {
		r = expire_once(s, &x, &n, reterr);
		if (!r)
			r = store_ch_sizes(s, &x, reterr);
	}
	return r ? r : sweep(s, reterr);
}

/* ---- its thread ---- */

static void *run(void *arg)
{
	struct ch_store *s = arg;
	struct field_error e = {0};
	int r = expire_size(s, &e);

	store_ch_tell_expiry(gives_up(s) ? 0 : r, &e);
	atomic_store(&s->sizing.running, false);
	return NULL;
}

void store_ch_size_wait(struct ch_store *s)
{
	if (s->sizing.started)
		pthread_join(s->sizing.thread, NULL);
	s->sizing.started = false;
}

int store_ch_size_begin(struct ch_store *s, uint64_t now_wall_ns)
{
	int r;

	if (atomic_load(&s->sizing.running))
		return 0;
	store_ch_size_wait(s);
	s->sizing.term = s->expiring.term;
	s->sizing.now_wall_ns = now_wall_ns;
	atomic_store(&s->sizing.running, true);
	r = -pthread_create(&s->sizing.thread, NULL, run, s);
	s->sizing.started = !r;
	if (r)
		atomic_store(&s->sizing.running, false);
	return r;
}

void store_ch_size_end(struct ch_store *s)
{
	atomic_store(&s->sizing.stop, true);
	store_ch_size_wait(s);
}
