/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: what the sqlite_*.c files share. One writer connection (the
 * writer's worker), one read-only connection (the query worker). Only these
 * files include sqlite3.
 */
#pragma once

#include "hub/store/sink.h"

#include <sqlite3.h>

enum writer_statement {
	ST_BEGIN,
	ST_COMMIT,
	ST_ROLLBACK,
	ST_STRING_GET,
	ST_STRING_PUT,
	ST_FRAME_GET,
	ST_FRAME_PUT,
	ST_STACK_GET,
	ST_STACK_PUT,
	ST_STACK_TOUCH,
	ST_TAGSET_GET,
	ST_TAGSET_PUT,
	ST_TAG_PUT,
	ST_SERIES_GET,
	ST_SERIES_PUT,
	ST_SERIES_TOUCH,
	ST_PROFILE_PUT,
	ST_PROFILE_GET,
	ST_SAMPLE_PUT,
	ST_LINK_PUT,
	ST_LOSS_PUT,
	ST_SNAPSHOT_PUT,
	ST_ESTIMATE_PUT,
	_ST_MAX,
};

struct sqlite_store {
	char *file; /* NULL: in memory, one connection for both */
	uint64_t retention_ns, max_bytes;
	uint64_t seed; /* of the hashes in the file */
	sqlite3 *writer, *reader;
	sqlite3_stmt *st[_ST_MAX]; /* the writer's */
	sqlite3_mutex *read_lock;  /* reader connection, and replacing the file */
	sqlite3_mutex *stats_lock;
	struct store_stats stats;
	bool write_failed; /* stats.error is about the last write; the next good one clears it */
	char note[256];	   /* stats.error after that: what was set aside since the start; "" */
	bool checked;	   /* the file as a whole, since the start */
	bool read_only;	   /* opened so, by an error of the file system: to be opened again */
	atomic_bool damaged; /* a read came upon it; the writer's worker sets the file aside */
};

/* "-errno" for a result code: -ENOSPC full, -EBADMSG damaged, -ETIME interrupted, ... */
int sq_errno(int rc);
int sq_exec(sqlite3 *db, const char *sql);
int64_t sq_clamp(double v); /* into 0..INT64_MAX / 2 */
/* One integer; 0 when there is no row. */
int sq_int(sqlite3 *db, const char *sql, int64_t *ret);
/* Runs a statement that returns no rows and resets it. */
int sq_run(sqlite3_stmt *st);
void sq_finalize(sqlite3_stmt **st);						/* for _cleanup_ */
void sq_set_error(struct sqlite_store *s, const char *fmt, ...) _printf_(2, 3); /* NULL: healthy */
void sq_disconnect(struct sqlite_store *s);
int sq_connect(struct sqlite_store *s, struct field_error *reterr);

/* ---- sqlite_damage.c: writer's worker ---- */

/* Whether a write may be tried; connects again what was closed, sets aside what a read found damaged. */
int damage_ready(struct sqlite_store *s);
/* After an error: 0 when it is worth another try, else the error to tell. Sets a damaged file aside. */
int damage_recover(struct sqlite_store *s, int error);
/* Renames a damaged file away and starts an empty one. */
int damage_set_aside(struct sqlite_store *s);
/* SQLite calls a disk that is full or read-only an I/O error, or a file that cannot be opened. */
int damage_of_disk(const struct sqlite_store *s, int error);

void sq_measure(struct sqlite_store *s); /* bytes, stacks, oldest -> stats */

void sqlite_stats(void *sink, struct store_stats *ret);
int sqlite_write(void *sink, const struct batch *b, size_t *ret_n_new);
int sqlite_expire(void *sink, uint64_t now_wall_ns);
int sqlite_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		struct store_summary *ret, struct field_error *reterr);
int sqlite_values(void *sink, const struct selection *sel, const char *tag, size_t limit,
		  store_value_fn *fn, void *arg);

/* ---- sqlite_words.c: words of a batch -> row ids, inside the writer's transaction ---- */

struct known {
	const void **keys;
	int64_t *ids;
	size_t n, cap;
};
struct writing {
	struct sqlite_store *s;
	const struct batch *batch;
	struct known strings, frames;
	struct buf *stacks; /* encoded frame lists by batch index; data NULL: not yet */
	uint64_t n_new, n_duplicates, n_samples, n_stacks;
};
int words_string(struct writing *w, const char *text, int64_t *ret_id); /* 0 for NULL */
/* A stack with its head; time_s is the row's, for retention. */
int words_stack(struct writing *w, const struct profile_sample *sample, int64_t time_s,
		int64_t *ret_id);
/* A process with its tags. */
int words_series(struct writing *w, const struct profile *p, int64_t time_s, int64_t *ret_id);
void words_done(struct writing *w);

/* Stacks in the file: frame ids as LEB128 varints, root first. */
void varint_put(struct buf *b, uint64_t v);
bool varint_get(const uint8_t **p, const uint8_t *end, uint64_t *ret);

/* ---- sqlite_where.c: a selection as SQL with every value bound ---- */

struct bound {
	bool is_int;
	int64_t i;
	const char *s; /* borrowed from the selection */
};
struct where {
	struct buf sql;
	struct bound *bound;
	size_t n, cap;
	enum event event;
	/* Rows of `samples` are not at hand (losses, profiles): their tags compare as
	 * unknown, and an unknown answer counts as a match. */
	bool series_only;
	bool links;	    /* `sa` is a row of links: it has trace and span */
	bool needs_samples; /* out: some tag is one of samples */
};
void where_done(struct where *w);
void where_text(struct where *w, const char *sql);
void where_int(struct where *w, int64_t value); /* "?" and its value */
void where_str(struct where *w, const char *value);
/* The SQL value of a tag; NULL when a row has none. */
void where_tag(struct where *w, const char *tag);
/* " AND ..." for the allowed namespaces; series is `se`. */
void where_allowed(struct where *w, const struct selection *sel);
/* The same for app_services, allowed namespaces and the predicate. */
void where_selection(struct where *w, const struct selection *sel);
/* A table "(...)" of series and time: the newest snapshot of each process in the selection's time. */
void where_newest(struct where *w, const struct selection *sel);
/* Tags that only rows of `links` have; whether a selection names one of them. */
bool where_is_link_tag(const char *tag);
bool where_wants_links(const struct selection *sel);
int where_prepare(struct where *w, sqlite3 *db, sqlite3_stmt **ret);
int where_functions(sqlite3 *db); /* registers pf_like, pf_regexp, pf_wait */

/* ---- sqlite_summary.c ---- */

/* What a selection's answer is to be read with, beside its rows. */
int summary_read(sqlite3 *db, const struct selection *sel, struct store_summary *s);
