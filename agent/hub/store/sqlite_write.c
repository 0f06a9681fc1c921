/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing: a batch is one transaction. It skips profiles whose id is stored already. So if a sender
 * gets no answer and sends a batch again, nothing is stored twice.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

#define VALUE_MAX (1LL << 53) /* a double is exact up to here; no measured value is larger */

/* Stores the sample in `links`, too, with the trace and span in which it was taken. */
static int put_link(struct writing *w, const struct profile *p, int64_t series, int64_t time_s,
		    int64_t stack, const struct profile_sample *sample)
{
	const struct profile_link *l = &w->batch->links[sample->link - 1];
	sqlite3_stmt *st = w->s->st[ST_LINK_PUT];
	char trace[2 * sizeof(l->trace_id) + 1], span[2 * sizeof(l->span_id) + 1];

	hex_encode(l->trace_id, sizeof(l->trace_id), trace);
	hex_encode(l->span_id, sizeof(l->span_id), span);
	sqlite3_bind_text(st, 1, trace, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, span, -1, SQLITE_STATIC);
	sqlite3_bind_int64(st, 3, p->event);
	sqlite3_bind_int64(st, 4, series);
	sqlite3_bind_int64(st, 5, time_s);
	sqlite3_bind_int64(st, 6, stack);
	sqlite3_bind_int64(st, 7, sample->cpu);
	sqlite3_bind_int64(st, 8, sample->value);
	sqlite3_bind_int64(st, 9, (int64_t)sample->n_samples);
	return store_sq_run(st);
}

static bool in_range(const struct profile_sample *sample)
{
	bool ok = sample->value >= 0 && sample->value <= VALUE_MAX &&
		  sample->n_samples <= (uint64_t)VALUE_MAX && sample->cpu >= -1;

	if (!ok)
		counter_add(counter("store_dropped_rows_total", "reason", "value_out_of_range"), 1);
	return ok;
}

/* Adds the sample to w->samples, and its stack to the file. */
static int put_sample(struct writing *w, const struct profile *p, int64_t series, int64_t time_s,
		      const struct profile_sample *sample)
{
	int64_t stack = 0;
	int r = store_words_stack(w, sample, time_s, &stack);

	if (r)
		return r;
	store_samples_put(&w->samples, &(struct stored_sample){stack, sample->cpu, sample->value,
							       (int64_t)sample->n_samples});
	if (sample->link && sample->link <= w->batch->n_links)
		return put_link(w, p, series, time_s, stack, sample);
	return 0;
}

/*
 * If the profile is a snapshot, adds a row to the table snapshots. A snapshot without samples is
 * valid: the process has no memory in use. A profile that only reports losses is no snapshot.
 */
static int put_snapshot(struct writing *w, const struct profile *p, int64_t series, int64_t time_s)
{
	sqlite3_stmt *st = w->s->st[ST_SNAPSHOT_PUT];

	if (!profile_event_info(p->event)->snapshot || (!p->n_samples && p->n_losses))
		return 0;
	sqlite3_bind_int64(st, 1, p->event);
	sqlite3_bind_int64(st, 2, series);
	sqlite3_bind_int64(st, 3, time_s);
	return store_sq_run(st);
}

static int put_estimate(struct writing *w, const struct profile *p, int64_t series, int64_t time_s)
{
	sqlite3_stmt *st = w->s->st[ST_ESTIMATE_PUT];

	if (!p->estimate_ppm)
		return 0;
	sqlite3_bind_int64(st, 1, time_s);
	sqlite3_bind_int64(st, 2, p->event);
	sqlite3_bind_int64(st, 3, series);
	sqlite3_bind_int64(st, 4, p->estimate_ppm);
	sqlite3_bind_int64(st, 5, (int64_t)MIN(p->estimate_error, (uint64_t)VALUE_MAX));
	return store_sq_run(st);
}

static int put_losses(struct writing *w, const struct profile *p, int64_t series, int64_t time_s)
{
	sqlite3_stmt *st = w->s->st[ST_LOSS_PUT];
	int64_t reason;
	int r = 0;

	for (size_t i = 0; !r && i < p->n_losses; i++) {
		const struct loss *l = &p->losses[i];

		r = store_words_string(w, l->reason ? l->reason : "unknown", &reason);
		if (r)
			return r;
		sqlite3_bind_int64(st, 1, time_s);
		sqlite3_bind_int64(st, 2, MIN((int64_t)(p->start_ns / NSEC_PER_SEC), time_s));
		sqlite3_bind_int64(st, 3, p->event);
		sqlite3_bind_int64(st, 4, series);
		sqlite3_bind_int64(st, 5, reason);
		sqlite3_bind_int64(st, 6, (int64_t)MIN(l->n_samples, (uint64_t)VALUE_MAX));
		sqlite3_bind_int64(st, 7, (int64_t)MIN(l->time_ns, (uint64_t)VALUE_MAX));
		r = store_sq_run(st);
	}
	return r;
}

static int id_known(struct writing *w, const uint8_t id[static 16], bool *ret)
{
	sqlite3_stmt *st = w->s->st[ST_PROFILE_GET];
	int rc;

	sqlite3_bind_blob(st, 1, id, 16, SQLITE_STATIC);
	rc = sqlite3_step(st);
	sqlite3_reset(st);
	if (store_sq_errno(rc))
		return store_sq_errno(rc);
	*ret = rc == SQLITE_ROW;
	return 0;
}

static int profile_known(struct writing *w, const struct profile *p, bool *ret)
{
	static const uint8_t none[sizeof(p->sent_id)];
	int r = id_known(w, p->id, ret);

	if (!r && !*ret && memcmp(p->sent_id, none, sizeof(none)) != 0)
		r = id_known(w, p->sent_id, ret);
	return r;
}

/* Stores the row of the profile with its samples. */
static int put_samples(struct writing *w, const struct profile *p, int64_t series, int64_t time_s)
{
	sqlite3_stmt *st = w->s->st[ST_PROFILE_PUT];
	uint64_t n = 0;
	int64_t value = 0;
	int r = 0;

	buf_reset(&w->samples);
	for (size_t i = 0; !r && i < p->n_samples; i++) {
		const struct profile_sample *sample = &p->samples[i];

		if (!in_range(sample))
			continue;
		r = put_sample(w, p, series, time_s, sample);
		n = MIN(n + sample->n_samples, (uint64_t)VALUE_MAX);
		value = MIN(value + sample->value, VALUE_MAX);
	}
	if (!r && w->samples.failed)
		r = -E2BIG;
	if (r)
		return r;
	w->n_samples += n;
	sqlite3_bind_blob(st, 1, p->id, sizeof(p->id), SQLITE_STATIC);
	sqlite3_bind_int64(st, 2, time_s);
	sqlite3_bind_int64(st, 3, p->event);
	sqlite3_bind_int64(st, 4, series);
	sqlite3_bind_int64(st, 5, (int64_t)n);
	sqlite3_bind_int64(st, 6, value);
	sqlite3_bind_blob64(st, 7, w->samples.len ? w->samples.data : "", w->samples.len,
			    SQLITE_STATIC);
	return store_sq_run(st);
}

static int put_profile(struct writing *w, const struct profile *p)
{
	/* the time of a row is the last second of its window */
	int64_t series = 0, time_s = p->end_ns ? (int64_t)((p->end_ns - 1) / NSEC_PER_SEC) : 0;
	bool known = false;
	int r = profile_known(w, p, &known);

	if (!r && known) {
		w->n_duplicates++;
		return 0;
	}
	if (!w->s->wrote_from_s || time_s < w->s->wrote_from_s)
		w->s->wrote_from_s = time_s;
	if (!r)
		r = store_words_series(w, p, time_s, &series);
	if (!r)
		r = put_samples(w, p, series, time_s);
	if (!r)
		r = store_blocks_late(w->s, p->event, series, time_s);
	if (!r)
		r = put_losses(w, p, series, time_s);
	if (!r)
		r = put_snapshot(w, p, series, time_s);
	if (!r)
		r = put_estimate(w, p, series, time_s);
	w->n_new++;
	return r;
}

static void count_written(struct sqlite_store *s, const struct writing *w)
{
	bool failed;

	sqlite3_mutex_enter(s->stats_lock);
	s->stats.n_profiles += w->n_new;
	s->stats.n_duplicates += w->n_duplicates;
	s->stats.n_samples += w->n_samples;
	s->stats.n_stacks += w->n_stacks;
	failed = s->stats.failed;
	s->stats.failed = false;
	sqlite3_mutex_leave(s->stats_lock);
	if (failed)
		store_sq_tell_notes(s);
}

/*
 * Empties the cache of rows if another program has changed the file. Another hub cannot change it,
 * because this hub holds a lock on the directory, but other programs do not look at that lock.
 */
static void forget_others(struct sqlite_store *s)
{
	int64_t version = 0;

	if (store_sq_int(s->writer, "PRAGMA data_version", &version) || version != s->data_version)
		store_seen_forget(s);
	s->data_version = version;
}

/*
 * Writes n profiles of the batch, from index first on: all or none. Adds the number of new ones to
 * *n_new.
 */
static int write_some(struct sqlite_store *s, const struct batch *b, size_t first, size_t n,
		      size_t *n_new)
{
	struct writing w = {.s = s, .batch = b};
	int r = store_sq_run(s->st[ST_BEGIN]);

	if (r)
		return r;
	forget_others(s);
	w.stacks = xcalloc(b->n_stacks + 1, sizeof(*w.stacks));
	for (size_t i = first; !r && i < first + n; i++)
		r = put_profile(&w, b->profiles[i]);
	r = store_sq_end(s, r);
	store_words_done(&w);
	if (r) {
		/* in memory, a query may have seen ids that the next write gives to other rows */
		atomic_fetch_add(&s->n_reused, 1);
		store_seen_forget(s);
		return r;
	}
	count_written(s, &w);
	*n_new += w.n_new;
	return 0;
}

static int write_all(struct sqlite_store *s, const struct batch *b, size_t *n_new)
{
	return write_some(s, b, 0, b->n_profiles, n_new);
}

/* Writes one profile. If the disk is too full for it, deletes more and more old profiles. */
static int write_one(struct sqlite_store *s, const struct batch *b, size_t i, size_t *n_new)
{
	int r = write_some(s, b, i, 1, n_new);

	for (unsigned n = ROOM_LEAST; r == -ENOSPC && n <= ROOM_MOST; n *= 2)
		r = store_room_make(s, n) ?: write_some(s, b, i, 1, n_new);
	return r;
}

/*
 * Writes a batch profile by profile, because it does not fit as one transaction even after old
 * profiles were deleted. Until a commit, all changes are in the -wal, and each new name needs a
 * page there. If a profile fails, those before it stay stored. The hub finds their ids when the
 * sender sends the batch again.
 */
static int write_each(struct sqlite_store *s, const struct batch *b, size_t *n_new)
{
	int r = 0;

	for (size_t i = 0; !r && i < b->n_profiles; i++)
		r = write_one(s, b, i, n_new);
	return r;
}

int store_sqlite_write(void *sink, const struct batch *b, size_t *ret_n_new)
{
	struct sqlite_store *s = sink;
	size_t n_new = 0;
	int r = store_damage_ready(s);

	if (!r)
		r = write_all(s, b, &n_new);
	if (r)
		r = store_damage_recover(s, r) ?: write_all(s, b, &n_new);
	if (r == -ENOSPC)
		r = store_room_make(s, ROOM_LEAST) ?: write_all(s, b, &n_new);
	if (r == -ENOSPC && s->writer) /* if the file is open */
		r = write_each(s, b, &n_new);
	/*
	 * the batch is good, the store failed: with -EIO the sender keeps the batch and sends it
	 * again
	 */
	if (r == -EBADMSG)
		r = -EIO;
	if (r) {
		store_sq_set_error(s, "the last write failed: %s", strerror(-r));
		store_sq_set_failed(s, true);
		counter_add(counter("store_write_errors_total", "reason", strerrorname_np(-r)), 1);
		return r;
	}
	*ret_n_new = n_new;
	return 0;
}
