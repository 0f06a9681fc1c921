/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is deleted, and how much is stored. The hub that leads runs this every minute, and looks
 * before each deletion whether it still leads. The one that it has sent just before its lead ends
 * may run beside those of the next leader.
 *
 * By age: whole days are dropped. Of the last day, rows are marked as deleted, which costs little.
 *
 * By size: expire_size.c.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define DAY_S	    86400
#define SLACK_MAX_S 3600  /* seconds for which expired windows may stay */
#define DAYS_MAX    10000 /* in one answer of ClickHouse */
#define EXPIRE_NS   (60 * NSEC_PER_SEC)

static struct ch_limits limits(const struct ch_store *s)
{
	return (struct ch_limits){.deadline_ns = now_mono_ns() + EXPIRE_NS,
				  .given_up = &s->sizing.stop};
}

static void text(struct ch_where *w, const char *sql)
{
	store_ch_text(&w->sql, sql);
}

int store_ch_ask_each(struct ch_store *s, struct ch_where *w, size_t most, ch_take_fn *take,
		      void *arg, struct field_error *reterr)
{
	const struct ch_limits l = limits(s);

	return store_ch_each(s, &w->sql, &l, most, take, arg, reterr);
}

static int take_nothing(struct ch_rows *rows, void *arg)
{
	(void)arg;
	rows->p = rows->end;
	return 0;
}

int store_ch_change(struct ch_store *s, struct ch_where *w, struct field_error *reterr)
{
	w->sql.changes = true;
	return store_ch_ask_each(s, w, SIZE_MAX, take_nothing, NULL, reterr);
}

void store_ch_set_lead(void *sink, uint64_t (*term)(void *arg), void *arg)
{
	struct ch_store *s = sink;

	s->term = term;
	s->term_arg = arg;
}

int store_ch_still_leads(const struct ch_store *s, uint64_t term)
{
	return !s->term || s->term(s->term_arg) == term ? 0 : -ECANCELED;
}

int store_ch_delete(struct ch_store *s, uint64_t term, struct ch_where *w,
		    struct field_error *reterr)
{
	int r = store_ch_still_leads(s, term);

	if (!r)
		return store_ch_change(s, w, reterr);
	store_ch_sql_done(&w->sql);
	return r;
}

int store_ch_take_u64(struct ch_rows *rows, void *arg)
{
	*(uint64_t *)arg = store_ch_get_u64(rows);
	return 0;
}

void store_ch_put_time(struct ch_where *w, int64_t s)
{
	text(w, "toDateTime(");
	store_ch_int(&w->sql, MIN(MAX(s, 0), (int64_t)UINT32_MAX));
	text(w, ")");
}

void store_ch_count_expired(struct ch_store *s, const char *reason, uint64_t n)
{
	pthread_mutex_lock(&s->stats_lock);
	s->stats.n_expired += n;
	pthread_mutex_unlock(&s->stats_lock);
	counter_add(counter("store_expired_profiles_total", "reason", reason), n);
}

/* ---- how much there is ---- */

static int take_sizes(struct ch_rows *rows, void *arg)
{
	struct ch_sizes *x = arg;

	x->bytes = store_ch_get_u64(rows);
	x->windows_bytes = store_ch_get_u64(rows);
	x->n_stacks = store_ch_get_u64(rows);
	x->oldest_s = store_ch_get_u32(rows);
	x->newest_s = store_ch_get_u32(rows);
	return 0;
}

int store_ch_sizes(struct ch_store *s, struct ch_sizes *ret, struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT sum(bytes_on_disk), sumIf(bytes_on_disk, of='windows'), "
		 "sumIf(rows, of='stacks'), toUInt32(minIf(min_time, of='windows' AND min_time>");
	store_ch_put_time(&w, s->expiring.cut_s);
	text(&w, ")), toUInt32(maxIf(max_time, of='windows')) FROM (SELECT bytes_on_disk, rows, "
		 "min_time, max_time, replaceOne(table, ");
	store_ch_str(&w.sql, store_ch_suffix(s));
	text(&w, ", '') AS of FROM ");
	store_ch_put_system(&w, s, "parts");
	text(&w, " WHERE active AND rows>0 AND of IN ('windows', 'stacks', 'frames') AND "
		 "database=");
	store_ch_str(&w.sql, s->database);
	text(&w, ")");
	return store_ch_ask_each(s, &w, 1, take_sizes, ret, reterr);
}

/* Rows that are marked as deleted still count for the parts of a table: see read_rest(). */
static int64_t oldest_of(const struct ch_store *s, const struct ch_sizes *x)
{
	int64_t rest_s = s->expiring.oldest_s;

	return rest_s && (!x->oldest_s || rest_s < x->oldest_s) ? rest_s : x->oldest_s;
}

void store_ch_measure(struct ch_store *s)
{
	struct ch_sizes x = {0};

	s->expiring.measured_ns = now_mono_ns();
	if (store_ch_sizes(s, &x, NULL))
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

struct running {
	uint64_t n;
	char *failure; /* why ClickHouse has to try one of them again; "": it need not */
};

static int take_running(struct ch_rows *rows, void *arg)
{
	struct running *x = arg;

	x->n = store_ch_get_u64(rows);
	x->failure = store_ch_get_str(rows);
	return 0;
}

int store_ch_is_deleting(struct ch_store *s, bool *ret, struct field_error *reterr)
{
	_cleanup_free_ char *shown = NULL;
	struct ch_where w = {0};
	struct running x = {0};
	int r;

	text(&w, "SELECT count(), left(max(latest_fail_reason), 1000) FROM ");
	store_ch_put_system(&w, s, "mutations");
	text(&w, " WHERE NOT is_done AND startsWith(table, 'windows') AND database=");
	store_ch_str(&w.sql, s->database);
	r = store_ch_ask_each(s, &w, 1, take_running, &x, reterr);
	*ret = x.n;
	if (!r && x.failure && *x.failure) {
		shown = utf8_shorten(x.failure, 300);
		field_error_set(reterr, "store", "ClickHouse cannot end an earlier deletion: %s",
				shown);
		r = -EIO;
	}
	free(x.failure);
	return r;
}

/* ---- by age ---- */

struct day {
	char *id; /* of the partition */
	int64_t first_s;
	uint64_t n_old; /* windows that are too old */
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

	text(&w, "SELECT partition_id, toUInt32(min(min_time)) AS first FROM ");
	store_ch_put_system(&w, s, "parts");
	text(&w, " WHERE active AND rows>0 AND startsWith(table, 'windows') AND database=");
	store_ch_str(&w.sql, s->database);
	text(&w, " GROUP BY partition_id ORDER BY first");
	return store_ch_ask_each(s, &w, DAYS_MAX, take_day, ret, reterr);
}

/* What is too old: all until cut_s, and what is kept for less time. */
struct ages {
	int64_t now_s, newest_s, cut_s;
};

static int64_t cut_of(const struct ages *a, const struct keep_rule *rule)
{
	return store_keep_until(rule->retention_ns, a->now_s, a->newest_s);
}

static void put_rule(struct ch_where *w, const struct keeps *k, const struct keep_rule *rule)
{
	if (rule->ns) {
		text(w, "unverified='' AND pod_ns=");
		store_ch_str(&w->sql, rule->ns);
		return;
	}
	text(w, "profile_event_type='");
	text(w, profile_event_info(rule->event)->name);
	text(w, "' AND (unverified!=''");
	for (size_t i = 0; i < k->n_namespaces; i++) {
		text(w, i ? ", " : " OR pod_ns NOT IN (");
		store_ch_str(&w->sql, k->namespaces[i]);
	}
	text(w, k->n_namespaces ? "))" : " OR 1)");
}

/* " WHERE ..." */
static void put_too_old(struct ch_where *w, const struct ch_store *s, const struct ages *a)
{
	text(w, " WHERE time<=");
	store_ch_put_time(w, a->cut_s);
	for (size_t i = 0; i < s->keeps.n; i++) {
		text(w, " OR (time<=");
		store_ch_put_time(w, cut_of(a, &s->keeps.rules[i]));
		text(w, " AND ");
		put_rule(w, &s->keeps, &s->keeps.rules[i]);
		text(w, ")");
	}
}

static int take_count(struct ch_rows *rows, void *arg)
{
	struct days *d = arg;
	int64_t day = store_ch_get_u32(rows);
	uint64_t n = store_ch_get_u64(rows);

	for (size_t i = 0; i < d->n; i++)
		if (d->items[i].first_s / DAY_S == day)
			d->items[i].n_old = n;
	return 0;
}

/* Counts what is too old of each day. */
static int count_old(struct ch_store *s, const struct ages *a, struct days *d,
		     struct field_error *reterr)
{
	struct ch_where w = {0};

	text(&w, "SELECT toUInt32(toDate(time, 'UTC')) AS day, count() FROM windows");
	put_too_old(&w, s, a);
	text(&w, " GROUP BY day");
	return store_ch_ask_each(s, &w, DAYS_MAX, take_count, d, reterr);
}

/* Deletes what of the day is too old. */
static int cut_day(struct ch_store *s, const struct day *d, const struct ages *a,
		   struct field_error *reterr)
{
	bool whole = d->first_s / DAY_S * DAY_S + DAY_S <= a->cut_s;
	struct ch_where w = {0};

	if (!whole && !d->n_old)
		return 0;
	store_ch_put_change(&w, s, whole ? "ALTER TABLE " : "DELETE FROM ", "windows");
	text(&w, whole ? " DROP PARTITION ID '" : " IN PARTITION ID '");
	text(&w, d->id);
	text(&w, "'");
	if (!whole)
		put_too_old(&w, s, a);
	return store_ch_delete(s, s->expiring.term, &w, reterr);
}

/* Sets what is left of the day of the cut. */
static int read_rest(struct ch_store *s, int64_t cut_s, struct field_error *reterr)
{
	struct ch_where w = {0};
	uint64_t oldest_s = 0;
	int r;

	text(&w, "SELECT toUInt64(toUInt32(min(time))) FROM windows WHERE time>");
	store_ch_put_time(&w, cut_s);
	text(&w, " AND time<");
	store_ch_put_time(&w, cut_s / DAY_S * DAY_S + DAY_S);
	r = store_ch_ask_each(s, &w, 1, store_ch_take_u64, &oldest_s, reterr);
	if (r)
		return r;
	atomic_store(&s->expiring.cut_s, cut_s);
	s->expiring.oldest_s = (int64_t)oldest_s;
	return 0;
}

static int expire_old(struct ch_store *s, const struct ages *a, struct field_error *reterr)
{
	_cleanup_(days_done) struct days days = {0};
	uint64_t n = 0;
	int r = read_days(s, &days, reterr);

	if (!r)
		r = count_old(s, a, &days, reterr);
	for (size_t i = 0; !r && i < days.n; i++) {
		r = cut_day(s, &days.items[i], a, reterr);
		n += r ? 0 : days.items[i].n_old;
	}
	store_ch_count_expired(s, "age", n);
	for (size_t i = 0; !r && i < s->keeps.n; i++)
		s->keeps.rules[i].cut_s = cut_of(a, &s->keeps.rules[i]);
	return r || !a->cut_s ? r : read_rest(s, a->cut_s, reterr);
}

/* Whether so much is too old that it is worth a deletion. */
static bool is_due(const struct ch_store *s, const struct ages *a, int64_t oldest_s)
{
	int64_t slack_s = store_keep_slack(s->keeps.longest_ns, SLACK_MAX_S);
	bool due = a->cut_s && oldest_s && oldest_s <= a->cut_s - slack_s;

	for (size_t i = 0; !due && i < s->keeps.n; i++) {
		const struct keep_rule *rule = &s->keeps.rules[i];

		due = cut_of(a, rule) - rule->cut_s >
		      store_keep_slack(rule->retention_ns, SLACK_MAX_S);
	}
	return due;
}

static int expire_age(struct ch_store *s, const struct ch_sizes *x, uint64_t now_wall_ns,
		      struct field_error *reterr)
{
	struct ages a = {(int64_t)(now_wall_ns / NSEC_PER_SEC), x->newest_s, 0};

	a.cut_s = store_keep_until(s->keeps.longest_ns, a.now_s, a.newest_s);
	return is_due(s, &a, oldest_of(s, x)) ? expire_old(s, &a, reterr) : 0;
}

void store_ch_tell_expiry(int r, const struct field_error *e)
{
	if (!r || r == -ECANCELED)
		return;
	log_warn("deleting old profiles: %s", *e->reason ? e->reason : strerror(-r));
	counter_add(counter("store_expire_errors_total", "reason", strerrorname_np(-r)), 1);
}

/* Asks what earlier deletions do also if none is due: nobody else tells of one that fails. */
static int expire_size(struct ch_store *s, const struct ch_sizes *x, uint64_t now_wall_ns,
		       struct field_error *reterr)
{
	bool busy;
	int r = store_ch_is_deleting(s, &busy, reterr);

	if (r || busy || !s->max_bytes || x->bytes <= s->max_bytes)
		return r;
	return store_ch_size_begin(s, now_wall_ns);
}

static int expire_uploads(struct ch_store *s, const struct ch_sizes *x, uint64_t now_wall_ns,
			  struct field_error *reterr)
{
	(void)x;
	return store_ch_expire_uploads(s, now_wall_ns, reterr);
}

/*
 * An error of one kind keeps no other from running. Returns the first one; -ECANCELED: this hub
 * does not lead.
 */
int store_ch_expire(void *sink, uint64_t now_wall_ns)
{
	static int (*const kinds[])(struct ch_store *, const struct ch_sizes *, uint64_t,
				    struct field_error *) = {expire_age, expire_size,
							     expire_uploads};
	struct ch_store *s = sink;
	struct field_error e = {0};
	struct ch_sizes x = {0};
	int r;

	s->expiring.term = s->term ? s->term(s->term_arg) : 0;
	if (s->term && !s->expiring.term)
		return -ECANCELED;
	r = store_ch_sizes(s, &x, &e);
	store_ch_tell_expiry(r, &e);
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct field_error of_kind = {0};
		int r_kind = kinds[i](s, &x, now_wall_ns, &of_kind);

		store_ch_tell_expiry(r_kind, &of_kind);
		r = r ?: r_kind;
	}
	store_ch_measure(s);
	return r;
}
