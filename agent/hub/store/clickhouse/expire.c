/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is deleted, and how much is stored. Each hub runs this every minute: a statement that two
 * hubs run at once deletes once.
 *
 * By age: whole days are dropped. Of the last day, rows are marked as deleted, which costs little.
 *
 * By size, if the store is over max_bytes: the oldest windows of the places that have more than
 * their share (shares.h) are deleted by one mutation, which writes the days anew in which they lie.
 * The table `cuts` says until when. Stacks and frames that no window uses are deleted once an hour,
 * two days after they were last written: a hub may have written a stack whose window is on its way.
 * So those of the last two days can be over max_bytes. Windows are never deleted for them: at least
 * half of max_bytes is for windows.
 */
#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/shares.h"

#include <stdlib.h>

#define DAY_S	       86400
#define MAX_SILENT_S   DAY_S   /* windows expire as if the newest one were at most this old */
#define SLACK_MAX_S    3600    /* seconds for which expired windows may stay */
#define DAYS_MAX       10000   /* in one answer of ClickHouse */
#define PLACES_MAX     100000  /* places that are compared; of more, those with most windows */
#define LOSERS_MAX     100     /* places that lose windows at once */
#define ROUNDS_MAX     10      /* that one call deletes by size */
#define STACKS_SAMPLE  1000000 /* stacks that are looked at; of more, a part */
#define EXPIRE_NS      (60 * NSEC_PER_SEC)
#define SWEEP_EVERY_NS (3600 * NSEC_PER_SEC)
#define KEPT_PERCENT   90 /* of max_bytes, what a round leaves */

/* Bytes of a window and of its samples before compression. Only the ratios matter. */
#define WINDOW_WEIGHT                                                                              \
	"(100+24*length(stacks)+56*length(traces)+length(arrayStringConcat(tag_values)))"
#define STACK_WEIGHT "(40+8*length(frames))"
#define FRAME_WEIGHT "(30+length(name)+length(file)+length(module))"

static struct ch_limits limits(void)
{
	return (struct ch_limits){.deadline_ns = now_mono_ns() + EXPIRE_NS};
}

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

static int ask(struct ch_store *s, struct ch_where *w, size_t most, ch_take_fn *take, void *arg,
	       struct field_error *reterr)
{
	const struct ch_limits l = limits();

	return store_ch_each(s, &w->sql, &l, most, take, arg, reterr);
}

static int take_nothing(struct ch_rows *rows, void *arg)
{
	(void)arg;
	rows->p = rows->end;
	return 0;
}

static int change(struct ch_store *s, struct ch_where *w, struct field_error *reterr)
{
	w->sql.changes = true;
	return ask(s, w, SIZE_MAX, take_nothing, NULL, reterr);
}

static int take_u64(struct ch_rows *rows, void *arg)
{
	*(uint64_t *)arg = store_ch_get_u64(rows);
	return 0;
}

static void put_time(struct ch_where *w, int64_t s)
{
	text(w, "toDateTime(");
	store_ch_int(&w->sql, MIN(MAX(s, 0), (int64_t)UINT32_MAX));
	text(w, ")");
}

static void count_expired(struct ch_store *s, const char *reason, uint64_t n)
{
	pthread_mutex_lock(&s->stats_lock);
	s->stats.n_expired += n;
	pthread_mutex_unlock(&s->stats_lock);
	counter_add(counter("store_expired_profiles_total", "reason", reason), n);
}

/* ---- how much there is ---- */

struct sizes {
	uint64_t bytes, windows_bytes, n_stacks;
	int64_t oldest_s; /* of the parts that begin after the last deletion; 0: there are none */
	int64_t newest_s;
};

static int take_sizes(struct ch_rows *rows, void *arg)
{
	struct sizes *x = arg;

	x->bytes = store_ch_get_u64(rows);
	x->windows_bytes = store_ch_get_u64(rows);
	x->n_stacks = store_ch_get_u64(rows);
	x->oldest_s = store_ch_get_u32(rows);
	x->newest_s = store_ch_get_u32(rows);
	return 0;
}

static int read_sizes(struct ch_store *s, struct sizes *ret, struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT sum(bytes_on_disk), sumIf(bytes_on_disk, table='windows'), "
		 "sumIf(rows, table='stacks'), toUInt32(minIf(min_time, table='windows' AND "
		 "min_time>");
	put_time(&w, s->expiring.cut_s);
	text(&w, ")), toUInt32(maxIf(max_time, table='windows')) FROM system.parts WHERE active "
		 "AND rows>0 AND table IN ('windows', 'stacks', 'frames') AND database=");
	store_ch_str(&w.sql, s->database);
	return ask(s, &w, 1, take_sizes, ret, reterr);
}

/* Rows that are marked as deleted still count for the parts of a table: see read_rest(). */
static int64_t oldest_of(const struct ch_store *s, const struct sizes *x)
{
	int64_t rest_s = s->expiring.oldest_s;

	return rest_s && (!x->oldest_s || rest_s < x->oldest_s) ? rest_s : x->oldest_s;
}

static void measure(struct ch_store *s, struct field_error *reterr)
{
	struct sizes x = {0};

	if (read_sizes(s, &x, reterr))
		return;
	pthread_mutex_lock(&s->stats_lock);
	s->stats.bytes = x.bytes;
	s->stats.n_stacks = x.n_stacks;
	s->stats.oldest_ns = (uint64_t)oldest_of(s, &x) * NSEC_PER_SEC;
	pthread_mutex_unlock(&s->stats_lock);
}

void store_ch_stats(void *sink, struct store_stats *ret)
{
	struct ch_store *s = sink;

	pthread_mutex_lock(&s->stats_lock);
	*ret = s->stats;
	pthread_mutex_unlock(&s->stats_lock);
}

/* *ret: whether an earlier deletion, of any hub, still runs. */
static int is_deleting(struct ch_store *s, bool *ret, struct field_error *reterr)
{
	struct ch_where w = {0};
	uint64_t n = 0;
	int r;

	text(&w, "SELECT count() FROM system.mutations WHERE NOT is_done AND table='windows' AND "
		 "database=");
	store_ch_str(&w.sql, s->database);
	r = ask(s, &w, 1, take_u64, &n, reterr);
	*ret = n;
	return r;
}

/* ---- by age ---- */

struct day {
	char *id; /* of the partition */
	int64_t first_s;
};
struct days {
	struct day *items;
	size_t n, cap;
};

static void days_done(struct days *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->items[i].id);
	free(d->items);
}

static int take_day(struct ch_rows *rows, void *arg)
{
	struct days *d = arg;
	struct day x = {.id = store_ch_get_str(rows)};

	x.first_s = store_ch_get_u32(rows);
	/* it becomes a part of a statement */
	rows->failed |= !*x.id || x.id[strspn(x.id, "0123456789abcdef")];
	GROW(d->items, d->n, d->cap);
	d->items[d->n++] = x;
	return 0;
}

/* The days that have windows, the oldest one first. */
static int read_days(struct ch_store *s, struct days *ret, struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT partition_id, toUInt32(min(min_time)) AS first FROM system.parts WHERE "
		 "active AND rows>0 AND table='windows' AND database=");
	store_ch_str(&w.sql, s->database);
	text(&w, " GROUP BY partition_id ORDER BY first");
	return ask(s, &w, DAYS_MAX, take_day, ret, reterr);
}

static int count_until(struct ch_store *s, int64_t cut_s, uint64_t *ret, struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT count() FROM windows WHERE time<=");
	put_time(&w, cut_s);
	return ask(s, &w, 1, take_u64, ret, reterr);
}

/* Deletes what of the day ended at cut_s or before. */
static int cut_day(struct ch_store *s, const struct day *d, int64_t cut_s,
		   struct field_error *reterr)
{
	struct ch_where w = {0};

	if (d->first_s / DAY_S * DAY_S + DAY_S <= cut_s) {
		text(&w, "ALTER TABLE windows DROP PARTITION ID '");
		text(&w, d->id);
		text(&w, "'");
	} else {
		text(&w, "DELETE FROM windows IN PARTITION ID '");
		text(&w, d->id);
		text(&w, "' WHERE time<=");
		put_time(&w, cut_s);
	}
	return change(s, &w, reterr);
}

/* Sets what is left of the day of the cut. */
static int read_rest(struct ch_store *s, int64_t cut_s, struct field_error *reterr)
{
	struct ch_where w = {0};
	uint64_t oldest_s = 0;
	int r;

	text(&w, "SELECT toUInt64(toUInt32(min(time))) FROM windows WHERE time>");
	put_time(&w, cut_s);
	text(&w, " AND time<");
	put_time(&w, cut_s / DAY_S * DAY_S + DAY_S);
	r = ask(s, &w, 1, take_u64, &oldest_s, reterr);
	if (!r)
		s->expiring.cut_s = cut_s, s->expiring.oldest_s = (int64_t)oldest_s;
	return r;
}

static int expire_until(struct ch_store *s, int64_t cut_s, struct field_error *reterr)
{
	_cleanup_(days_done) struct days days = {0};
	uint64_t n = 0;
	int r = read_days(s, &days, reterr);

	if (!r)
		r = count_until(s, cut_s, &n, reterr);
	for (size_t i = 0; !r && i < days.n && days.items[i].first_s <= cut_s; i++)
		r = cut_day(s, &days.items[i], cut_s, reterr);
	if (!r)
		count_expired(s, "age", n);
	return r ? r : read_rest(s, cut_s, reterr);
}

/* If the clock is ahead, deletes only what MAX_SILENT_S allows. */
static int expire_age(struct ch_store *s, const struct sizes *x, uint64_t now_wall_ns,
		      struct field_error *reterr)
{
	int64_t retention_s = (int64_t)(s->retention_ns / NSEC_PER_SEC);
	int64_t now_s = (int64_t)(now_wall_ns / NSEC_PER_SEC);
	int64_t cut_s = MIN(now_s, x->newest_s + MAX_SILENT_S) - retention_s;
	int64_t slack_s = MIN(retention_s / 50, SLACK_MAX_S), oldest_s = oldest_of(s, x);

	if (!retention_s || cut_s <= 0 || !oldest_s || oldest_s > cut_s - slack_s)
		return 0;
	return expire_until(s, cut_s, reterr);
}

/* ---- by size ---- */

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
	text(&w, "WITH used AS (SELECT " PLACE ", id, frames FROM (SELECT DISTINCT ");
	store_ch_place_columns(&w, s);
	text(&w, ", arrayJoin(arrayFilter(x -> x % ");
	store_ch_int(&w.sql, (int64_t)one_in);
	text(&w, " = 0, stacks)) AS id FROM windows) AS u ANY INNER JOIN stacks USING (id)) "
		 "SELECT " PLACE ", toUInt64(sum(of_windows)), toUInt64(sum(of_names)) FROM "
		 "(SELECT ");
	store_ch_place_columns(&w, s);
	text(&w, ", " WINDOW_WEIGHT " AS of_windows, 0 AS of_names FROM windows UNION ALL "
		 "SELECT " PLACE ", 0, " STACK_WEIGHT " FROM used UNION ALL "
		 "SELECT " PLACE ", 0, weight FROM (SELECT DISTINCT " PLACE ", arrayJoin(frames) "
		 "AS id FROM used) AS f ANY INNER JOIN (SELECT id, " FRAME_WEIGHT " AS weight "
		 "FROM frames) AS g USING (id)) GROUP BY " PLACE " ORDER BY sum(of_windows) DESC "
		 "LIMIT ");
	store_ch_int(&w.sql, PLACES_MAX);
	return ask(s, &w, PLACES_MAX, take_place, ret, reterr);
}

/* Turns the weights into bytes on disk. */
static void set_bytes(struct places *p, const struct sizes *x)
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
	store_ch_of_place(&w, s, of);
	text(&w, " GROUP BY time) WHERE so_far>=");
	store_ch_int(&w.sql, (int64_t)weight);
	return ask(s, &w, 1, take_second, &of->until_s, reterr);
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

/* " WHERE ...": what the places lose */
static void put_lost(struct ch_where *w, const struct ch_store *s, const struct places *p)
{
	text(w, " WHERE 0");
	for (size_t i = 0; i < p->n; i++) {
		if (!p->items[i].until_s)
			continue;
		text(w, " OR (time<=");
		put_time(w, p->items[i].until_s);
		text(w, " AND ");
		store_ch_of_place(w, s, &p->items[i]);
		text(w, ")");
	}
}

static int delete_lost(struct ch_store *s, const struct places *p, struct field_error *reterr)
{
	struct ch_where count = {0}, w = {0};
	uint64_t n = 0;
	int r;

	text(&count, "SELECT count() FROM windows");
	put_lost(&count, s, p);
	r = ask(s, &count, 1, take_u64, &n, reterr);
	if (r)
		return r;
	text(&w, "ALTER TABLE windows DELETE");
	put_lost(&w, s, p);
	text(&w, " SETTINGS mutations_sync=2");
	r = change(s, &w, reterr);
	if (!r)
		count_expired(s, "size", n);
	return r;
}

/* Chooses until when each place loses its windows, and notes it. */
static int plan(struct ch_store *s, struct places *p, const struct sizes *x,
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
		if (!r && p->items[i].until_s)
			r = note_cut(s, &p->items[i], reterr);
	}
	return r;
}

static int expire_once(struct ch_store *s, const struct sizes *x, struct field_error *reterr)
{
	_cleanup_(places_done) struct places p = {0};
	int r = plan(s, &p, x, reterr);

	return r ? r : delete_lost(s, &p, reterr);
}

/* Deletes stacks, and then frames, that nothing uses. */
static int sweep(struct ch_store *s, uint64_t now_wall_ns, struct field_error *reterr)
{
	static const char *const unused[] = {
		"DELETE FROM stacks WHERE id NOT IN (SELECT arrayJoin(stacks) FROM windows)",
		"DELETE FROM frames WHERE id NOT IN (SELECT arrayJoin(frames) FROM stacks)",
	};
	uint64_t now_ns = now_mono_ns();
	int r = 0;

	if (s->expiring.swept_ns && now_ns - s->expiring.swept_ns < SWEEP_EVERY_NS)
		return 0;
	s->expiring.swept_ns = now_ns;
	for (size_t i = 0; !r && i < ARRAY_SIZE(unused); i++) {
		struct ch_where w = {0};

		text(&w, unused[i]);
		text(&w, " AND last<toDate(");
		store_ch_int(&w.sql, (int64_t)(now_wall_ns / NSEC_PER_SEC / DAY_S) - 2);
		text(&w, ")");
		r = change(s, &w, reterr);
	}
	return r;
}

static int expire_size(struct ch_store *s, const struct sizes *now, uint64_t now_wall_ns,
		       struct field_error *reterr)
{
	struct sizes x = *now;
	uint64_t until_ns = now_mono_ns() + EXPIRE_NS / 6;
	int r = 0;

	if (!s->max_bytes || x.bytes <= s->max_bytes)
		return 0;
	for (int i = 0; !r && i < ROUNDS_MAX && x.bytes > s->max_bytes &&
			x.windows_bytes > s->max_bytes / 2 && now_mono_ns() < until_ns;
	     i++) {
		r = expire_once(s, &x, reterr);
		if (!r)
			r = read_sizes(s, &x, reterr);
	}
	return r ? r : sweep(s, now_wall_ns, reterr);
}

int store_ch_expire(void *sink, uint64_t now_wall_ns)
{
	struct ch_store *s = sink;
	struct field_error e = {0};
	struct sizes x = {0};
	bool busy = false;
	int r = is_deleting(s, &busy, &e);

	if (busy)
		r = -EBUSY;
	if (!r)
		r = read_sizes(s, &x, &e);
	if (!r)
		r = expire_age(s, &x, now_wall_ns, &e);
	if (!r)
		r = expire_size(s, &x, now_wall_ns, &e);
	measure(s, &e);
	if (r)
		counter_add(counter("store_expire_errors_total", "reason", strerrorname_np(-r)), 1);
	return r;
}
