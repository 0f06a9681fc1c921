/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Yields the profiles of a file as batches, in the order of their seconds, and changes nothing. All
 * of a second is read in one transaction, so that a profile comes with what it has in other tables.
 * Between two seconds no transaction is open while the receiver writes a batch: so the -wal of a
 * hub that writes the file does not grow for long.
 *
 * The file does not have when a window began, unless that lost something or is the first one of its
 * series. Others are given the default length.
 */
#include "hub/store/sqlite_export.h"

#include <stdlib.h>

#define BATCH_BYTES    (8u << 20)
#define BATCH_PROFILES 2000
#define WINDOW_S       10

struct exporting {
	sqlite3 *db;
	const struct store_receiver *to;
	struct export_words words;
	struct moment moment;
	struct batch *batch;
	struct id_set begun; /* the series of which a profile was exported */
	sqlite3_stmt *list, *get;
};

static int prepare(struct exporting *x)
{
	int r = store_export_words_open(&x->words, x->db);

	if (!r)
		r = store_moment_open(&x->moment, x->db);
	if (!r)
		r = store_sq_errno(sqlite3_prepare_v2(
			x->db,
			"SELECT time, event, series, key FROM profiles INDEXED BY profiles_of_time "
			"WHERE time>? ORDER BY time, event, series, key",
			-1, &x->list, NULL));
	return r
		       ?: store_sq_errno(sqlite3_prepare_v2(
				  x->db, "SELECT id, samples FROM profiles WHERE key=?", -1,
				  &x->get, NULL));
}

/* ---- a profile ---- */

static struct profile_sample *add_sample(struct exporting *x, struct profile *p,
					 const struct export_stack *stack,
					 const struct stored_sample *s)
{
	struct profile_sample *ret = profile_add(x->batch, p);

	ret->stack = stack->index;
	ret->value = s->value;
	ret->n_samples = (uint64_t)s->n;
	ret->process_comm = stack->process;
	ret->thread_comm = stack->thread;
	ret->main_thread = stack->main_thread;
	ret->cpu = (int32_t)s->cpu;
	ret->wait = stack->wait;
	ret->labels = stack->labels;
	return ret;
}

/*
 * Adds what of the sample was taken in this call, as a sample of its own, and takes it from both.
 * Returns whether it was anything.
 */
static bool add_call(struct exporting *x, struct profile *p, const struct export_stack *stack,
		     struct stored_sample *s, struct moment_call *c)
{
	struct stored_sample part = *s;
	uint32_t link;

	part.value = MIN(c->value, s->value);
	part.n = MIN(c->n, s->n);
	/* a call may have a sample whose numbers are 0 */
	if (!part.value && !part.n && (c->used || c->value || c->n))
		return false;
	/* over the limit of a batch, the sample is exported without its call */
	if (profile_batch_link(x->batch, &c->link, &link))
		return false;
	add_sample(x, p, stack, &part)->link = link;
	c->used = true;
	c->value -= part.value;
	c->n -= part.n;
	s->value -= part.value;
	s->n -= part.n;
	return true;
}

/* A sample of the file may have been taken in several calls. */
static void add_with_calls(struct exporting *x, const struct moment_key *key, struct profile *p,
			   const struct export_stack *stack, struct stored_sample *s)
{
	const struct moment_key of = {key->event, key->series, s->stack};
	size_t n;
	struct moment_call *calls = store_moment_calls(&x->moment, &of, &n);
	bool any = false;

	for (size_t i = 0; i < n; i++)
		if (calls[i].cpu == s->cpu)
			any |= add_call(x, p, stack, s, &calls[i]);
	if (!any || s->value || s->n)
		add_sample(x, p, stack, s);
}

static int add_samples(struct exporting *x, const struct moment_key *key, struct profile *p,
		       const uint8_t *at, const uint8_t *end)
{
	const struct export_stack *stack;
	struct stored_sample s;

	while (store_samples_get(&at, end, &s) && (stack = store_export_stack(&x->words, s.stack)))
		add_with_calls(x, key, p, stack, &s);
	return x->words.error;
}

/* When a window began that has no losses. */
static int64_t start_of(struct exporting *x, int64_t series, const struct export_series *se)
{
	return store_id_set_has(&x->begun, series)
		       ? MAX(se->first_s, x->moment.time_s + 1 - WINDOW_S)
		       : se->first_s;
}

static void set_series(struct exporting *x, const struct moment_key *key, struct profile *p,
		       const struct export_series *se)
{
	int64_t start_s = store_moment_losses(&x->moment, key, x->batch, p);

	if (start_s < 0)
		start_s = start_of(x, key->series, se);
	store_id_set_add(&x->begun, key->series);
	p->start_ns = (uint64_t)start_s * NSEC_PER_SEC;
	p->end_ns = (uint64_t)(x->moment.time_s + 1) * NSEC_PER_SEC;
	p->app_service = se->app;
	p->process_id = se->pid;
	p->process_start_ns = (uint64_t)se->start_ms * NSEC_PER_MSEC;
	for (size_t i = 0; i < se->n_tags; i++)
		profile_tag(x->batch, p, se->tags[i].key, se->tags[i].value);
}

/* st is at the row of the profile. */
static int add_row(struct exporting *x, const struct moment_key *key,
		   const struct export_series *se, sqlite3_stmt *st)
{
	const uint8_t *samples = sqlite3_column_blob(st, 1);
	struct profile *p;

	if (sqlite3_column_bytes(st, 0) != sizeof(p->id))
		return 0;
	p = profile_batch_profile(x->batch);
	memcpy(p->id, sqlite3_column_blob(st, 0), sizeof(p->id));
	p->event = (enum event)key->event;
	set_series(x, key, p, se);
	store_moment_estimate(&x->moment, key, p);
	return add_samples(x, key, p, samples, samples + sqlite3_column_bytes(st, 1));
}

static int add_profile(struct exporting *x, const struct moment_key *key, int64_t id)
{
	const struct export_series *se = store_export_series(&x->words, key->series);
	int rc, r = 0;

	if (!se || key->event < 0 || key->event >= _EVENT_ALL)
		return x->words.error;
	sqlite3_bind_int64(x->get, 1, id);
	rc = sqlite3_step(x->get);
	if (rc == SQLITE_ROW)
		r = add_row(x, key, se, x->get);
	sqlite3_reset(x->get);
	return r ?: store_sq_errno(rc);
}

/* ---- batches ---- */

static bool is_full(const struct exporting *x)
{
	return x->batch->n_profiles >= BATCH_PROFILES || x->batch->n_links >= BATCH_MAX_LINKS / 2 ||
	       profile_batch_bytes(x->batch) >= BATCH_BYTES;
}

static void new_batch(struct exporting *x)
{
	profile_batch_free(x->batch);
	x->batch = profile_batch_new();
	store_export_words_begin(&x->words, x->batch);
}

static int give(struct exporting *x)
{
	int r = x->batch->n_profiles ? x->to->batch(x->batch, x->to->arg) : 0;

	if (!r)
		new_batch(x);
	return r;
}

/* Reads the seconds after the last one, until a batch is full. *ret_more: there are more. */
static int read_seconds(struct exporting *x, bool *ret_more)
{
	sqlite3_stmt *st = x->list;
	int rc = SQLITE_OK, r = 0;

	sqlite3_bind_int64(st, 1, x->moment.time_s);
	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const int64_t time_s = sqlite3_column_int64(st, 0);
		const struct moment_key key = {sqlite3_column_int64(st, 1),
					       sqlite3_column_int64(st, 2), 0};
		bool is_new = time_s != x->moment.time_s;

		*ret_more = is_full(x) && is_new;
		if (*ret_more)
			break;
		if (is_full(x))
			r = give(x);
		if (!r && is_new)
			r = store_moment_read(&x->moment, time_s);
		if (!r)
			r = add_profile(x, &key, sqlite3_column_int64(st, 3));
	}
	sqlite3_reset(st);
	return r ?: store_sq_errno(rc);
}

static int export_profiles(struct exporting *x)
{
	bool more = true;
	int r = 0;

	new_batch(x);
	while (!r && more) {
		more = false;
		r = store_sq_exec(x->db, "BEGIN");
		if (!r)
			r = read_seconds(x, &more);
		if (!sqlite3_get_autocommit(x->db))
			(void)store_sq_exec(x->db, "ROLLBACK");
		if (!r)
			r = give(x);
	}
	store_moment_end(&x->moment);
	return r;
}

/* ---- all ---- */

/* Tells the receiver the clusters and the number of profiles. */
static int export_head(struct exporting *x)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	char **names = NULL;
	size_t n = 0, cap = 0;
	int64_t n_profiles = 0;
	int rc = SQLITE_OK, r = store_sq_int(x->db, "SELECT COUNT(*) FROM profiles", &n_profiles);

	if (!r)
		r = store_sq_errno(
			sqlite3_prepare_v2(x->db, "SELECT name FROM clusters", -1, &st, NULL));
	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		GROW(names, n, cap);
		names[n++] = xstrdup((const char *)sqlite3_column_text(st, 0) ?: "");
	}
	if (!r)
		r = store_sq_errno(rc);
	if (!r)
		r = x->to->begin((const char *const *)names, n, (uint64_t)n_profiles, x->to->arg);
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return r;
}

static int export_cuts(struct exporting *x)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = SQLITE_OK,
	    r = store_sq_errno(sqlite3_prepare_v2(
		    x->db, "SELECT name, until_s FROM places WHERE until_s>0", -1, &st, NULL));

	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_cut c = store_sq_cut_of((const char *)sqlite3_column_text(st, 0) ?: "",
						     sqlite3_column_int64(st, 1));

		r = x->to->cut(&c, x->to->arg);
		free(c.cluster);
		free(c.ns);
	}
	return r ?: store_sq_errno(rc);
}

static int check_version(sqlite3 *db, const char *dir, struct field_error *reterr)
{
	int64_t version = 0;
	int r = store_sq_int(db, "PRAGMA user_version", &version);

	if (!r && version != SCHEMA_VERSION)
		return field_error_set(reterr, dir,
				       "written by another version (%lld, this one knows %d); a "
				       "hub converts an older store when it starts",
				       (long long)version, SCHEMA_VERSION);
	return r;
}

static void exporting_done(struct exporting *x)
{
	sqlite3_finalize(x->list);
	sqlite3_finalize(x->get);
	store_export_words_done(&x->words);
	store_moment_done(&x->moment);
	store_id_set_done(&x->begun);
	profile_batch_free(x->batch);
	sqlite3_close_v2(x->db);
}

int store_sqlite_export(const struct store_config *c, const struct store_receiver *to,
			uint64_t *ret_n_left_out, struct field_error *reterr)
{
	_cleanup_(exporting_done) struct exporting x = {.to = to};
	int r = store_sq_open_read_only(c->path, &x.db);

	if (!r)
		r = check_version(x.db, c->path, reterr);
	if (!r)
		r = prepare(&x);
	if (!r)
		r = export_head(&x);
	if (!r)
		r = export_profiles(&x);
	if (!r)
		r = export_cuts(&x);
	if (!r)
		*ret_n_left_out = x.moment.n_left_out;
	else if (!*reterr->reason)
		field_error_set(reterr, c->path, FILE_NAME " cannot be read: %s", strerror(-r));
	return r;
}
