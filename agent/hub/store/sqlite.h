/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: shared by the sqlite_*.c files. One connection writes (the writer's worker). A
 * query has a read-only connection of its own. Only these files include sqlite3.
 *
 * A series is a process with its tags. A link is a sample that was taken inside a traced request. A
 * slice is the profiles that one transaction deletes or converts. A sweep deletes the rows of the
 * dictionaries to which nothing refers.
 */
#pragma once

#include "hub/store/keep.h"
#include "hub/store/sink.h"

#include <pthread.h>
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
	ST_LINK_PUT,
	ST_LOSS_PUT,
	ST_SNAPSHOT_PUT,
	ST_ESTIMATE_PUT,
	ST_BLOCK_READ,
	ST_BLOCK_PUT,
	ST_BLOCK_DROP,
	ST_LATE_PUT,
	ST_PLACE_GET,
	ST_PLACE_PUT,
	ST_STACK_SHARE,
	_ST_MAX,
};

/* A cache of rows that the writer's worker has seen lately: sqlite_writer_cache.c. */
struct seen_key {
	uint64_t a, b;
};
struct seen_entry {
	struct seen_key key;
	int64_t id;	/* row id in the file; 0: a free slot */
	int64_t time_s; /* for a stack: last_s of its row in the file */
	int64_t place;	/* for a stack: that of its row in the file; for a series: its own */
};
struct seen_generation {
	struct seen_entry *entries; /* open addressing; cap is a power of two */
	size_t n, cap;
};
struct seen {
	struct seen_generation young, old;
};
enum { SEEN_FRAMES, SEEN_STACKS, SEEN_SERIES, _SEEN_MAX };

struct writing;
struct query_limit {
	uint64_t deadline_ns;	     /* 0: none */
	const atomic_bool *given_up; /* set when the caller does not wait any more; may be NULL */
};

struct id_slot {
	int64_t id; /* 0: free */
	void *item;
};
struct id_map {
	struct id_slot *slots; /* open addressing; cap is a power of two */
	size_t n, cap;
};

/* The strings, frames and stacks that a connection has read, by row id: sqlite_names.c. */
struct names {
	struct id_map strings, frames, stacks;
	sqlite3_stmt *get_string, *get_frame, *get_stack, *get_labels;
	size_t bytes;	    /* memory of all */
	size_t kept_bytes;  /* what of it is counted in the store's kept_bytes */
	uint64_t n_reused;  /* the store's, of a state as old as the oldest of them */
	uint64_t query;	    /* number of the query that runs, or ran last */
	size_t query_bytes; /* memory of what this query has used so far */
	int error;	    /* its first error, as -errno; 0: none */
};

/* A connection that only reads. sqlite_readers.c. */
struct reader {
	sqlite3 *db; /* NULL: not open */
	struct names names;
	struct query_limit limit; /* limit of the query that uses it */
	bool in_use, large;	  /* large: it may use much memory */
};
struct readers {
	pthread_mutex_t lock; /* guards paused, and in_use and large of all */
	pthread_cond_t changed;
	struct reader all[STORE_MAX_READERS];
	unsigned n;
	bool paused; /* no query may begin */
};

/* Which blocks are added up: from `from` to `until`, both included. until < from: none. */
struct blocks {
	int64_t from, until;
};

struct sqlite_store {
	char *file; /* path of the file; NULL: in memory, and one connection reads and writes */
	uint64_t max_bytes;
	struct keeps keeps;
	int64_t wrote_from_s; /* the oldest window since profiles last expired; 0: none */
	uint64_t expire_ns;   /* after this time, a call of expire begins no further slice */
	size_t names_bytes;   /* limit for the names of the stacks in one answer */
	size_t large_bytes;   /* one query at a time may take more memory than this */
	/* limit for the values of steps, and of snapshots, in memory for values over time */
	size_t series_values;
	size_t block_stacks; /* limit for the stacks of a block's sum */
	uint64_t seed;	     /* for the hashes of stacks in the file */
	sqlite3 *writer;
	struct readers readers;
	/* changes whenever ids of dictionaries are free again, so that new rows may get them */
	_Atomic uint64_t n_reused;
	_Atomic size_t kept_bytes; /* memory of the names that readers keep between queries */
	sqlite3_stmt *st[_ST_MAX]; /* the writer's statements */
	/*
	 * the writer's cache; it has only rows that are committed or in the writer's open
	 * transaction
	 */
	struct seen seen[_SEEN_MAX];
	uint64_t seen_seeds[2];
	/*
	 * PRAGMA data_version when `seen` was filled; it changes if another program writes the file
	 */
	int64_t data_version;
	char **clusters; /* those other than the hub's own */
	size_t n_clusters;
	char *own_cluster;    /* NULL: it has no name */
	bool clusters_known;  /* their list does not change any more */
	struct blocks blocks; /* as the file has it, or the open transaction */
	bool unswept;	      /* profiles were deleted since the last sweep (sqlite_expire.c) */
	sqlite3_mutex *stats_lock;
	struct store_stats stats;
	/*
	 * What stats.error reports while no write fails: the damaged files that were renamed since
	 * the start, and when the disk was full. "": nothing
	 */
	char damage_note[256], room_note[200];
	bool checked; /* quick_check has read the whole file since the start */
	/*
	 * the disk failed or is read-only: open the file again when a file can be made in its
	 * directory
	 */
	bool stale;
	/*
	 * when the store last got a first report of damage, for which it only opens the file again;
	 * 0: never
	 */
	uint64_t doubted_ns;
	atomic_bool damaged; /* set by a query that found damage; the writer's worker handles it */
};

/*
 * Returns 0 or -errno for a result code of SQLite: -ENOSPC (disk full), -EBADMSG (file damaged),
 * -ETIME (query interrupted), ...
 */
int store_sq_errno(int rc);
int store_sq_exec(sqlite3 *db, const char *sql);
/* reported errors name no directory, because anybody may ask /healthz */
#define FILE_NAME    "profiles.sqlite"
#define LINK_BYTES   192 /* of a row of `links` with its index, roughly */
#define SQ_TEXT_(x)  #x
#define SQ_TEXT(x)   SQ_TEXT_(x)     /* a number as text, for SQL */
#define SQ_MAX_VALUE (INT64_MAX / 2) /* largest value in the file; larger ones become this one */
int64_t store_sq_clamp(double v);    /* limits v to 0..SQ_MAX_VALUE */
/* The integer in the first column of the first row; 0 if the query returns no row. */
int store_sq_int(sqlite3 *db, const char *sql, int64_t *ret);
/*
 * Ends the writer's transaction: commits it if r is 0, else rolls it back. Returns r, or the error
 * of the commit.
 */
int store_sq_end(struct sqlite_store *s, int r);
/* Runs a statement that returns no rows and resets it. */
int store_sq_run(sqlite3_stmt *st);
int store_sq_check(sqlite3 *db); /* reads the whole file; -EBADMSG: it is damaged */
/* for _cleanup_(): finalizes *st */
void store_sq_finalize(sqlite3_stmt **st);
/* Opens a connection with the functions that all connections have. flags are SQLITE_OPEN_... */
int store_sq_open(const char *file, int flags, sqlite3 **ret);
/* Sets stats.error; fmt NULL clears it: the store is healthy. */
void store_sq_set_error(struct sqlite_store *s, const char *fmt, ...) _printf_(2, 3);
void store_sq_set_failed(struct sqlite_store *s, bool failed); /* whether the last write failed */
void store_sq_tell_notes(struct sqlite_store *s);	       /* sets stats.error to the notes */
void store_sq_disconnect(struct sqlite_store *s);
int store_sq_connect(struct sqlite_store *s, struct field_error *reterr);

/* ---- sqlite_backup.c, sqlite_export.c: for a process of its own ---- */

/* Opens the file of the store in dir, which a hub may be using, and changes nothing in it. */
int store_sq_open_read_only(const char *dir, sqlite3 **ret);
int store_sqlite_backup(const struct store_config *c, const char *to, store_progress_fn *fn,
			void *arg, struct field_error *reterr);
int store_sqlite_export(const struct store_config *c, const struct store_receiver *to,
			uint64_t *ret_n_left_out, struct field_error *reterr);

/* ---- sqlite_readers.c ---- */

void store_readers_init(struct sqlite_store *s);
void store_readers_done(struct sqlite_store *s);
/*
 * Waits for a connection and gives it to the caller, which gives it back. -ENOTCONN: the store's
 * file is not open.
 */
int store_reader_take(struct sqlite_store *s, struct reader **ret);
void store_reader_give_back(struct sqlite_store *s, struct reader *r);
/*
 * Call it before the query takes much memory. At most one query at a time does: it waits until no
 * other one does, or returns -ETIME if it must end before that.
 */
int store_reader_large(struct sqlite_store *s, struct reader *r);
/* Waits until no query runs. None begins until the writer's worker calls store_readers_resume(). */
void store_readers_pause(struct sqlite_store *s);
void store_readers_resume(struct sqlite_store *s);
/* Closes all connections that read. The caller makes sure that no query runs. */
void store_readers_close(struct sqlite_store *s);

/* ---- sqlite_schema.c ---- */

#define SCHEMA_VERSION 8
int store_schema_make(sqlite3 *db); /* makes the schema in an empty file */
/* Converts a file of an older version, slice by slice, and raises *version. */
int store_schema_raise(sqlite3 *db, int64_t *version);

/* ---- sqlite_clusters.c ---- */

/* The list is first that of the configuration. */
void store_clusters_begin(struct sqlite_store *s, const char *const *names, size_t n);
void store_clusters_end(struct sqlite_store *s);
/*
 * Called when the file is opened: adds the list to the file, and the file's to the list. After
 * store_clusters_fix, a file with further ones is refused.
 */
int store_clusters_open(struct sqlite_store *s, struct field_error *reterr);
void store_clusters_fix(struct sqlite_store *s); /* from now on the list does not change */
bool store_clusters_has(const struct sqlite_store *s, const char *name); /* of another cluster */
char *const *store_sqlite_clusters(void *sink, size_t *ret_n);

/* ---- sqlite_damage.c: writer's worker ---- */

/*
 * Returns 0 if a write may be tried. If the file was closed, connects again. If a query found the
 * file damaged, calls store_damage_found.
 */
int store_damage_ready(struct sqlite_store *s);
/*
 * Call it after a write failed with error. Returns 0 if the write should be tried again, else the
 * error to report. Renames a damaged file.
 */
int store_damage_recover(struct sqlite_store *s, int error);
/*
 * Call it when SQLite reports that the file is damaged. The first report only opens the file again.
 * If that also finds damage, or at a second report within some minutes, the store renames the file
 * and starts an empty one.
 */
int store_damage_found(struct sqlite_store *s);
/*
 * Returns the error that the disk causes. SQLite reports a full or read-only disk as an I/O error,
 * or as a file that cannot be opened.
 */
int store_damage_of_disk(const struct sqlite_store *s, int error);

void store_sq_measure(struct sqlite_store *s); /* sets bytes, stacks and the oldest time in stats */

/* ---- sqlite_expire.c: writer's worker ---- */

/* *ret_used: bytes of pages in use; *ret_free: bytes of free pages in the file. */
int store_sq_bytes(struct sqlite_store *s, uint64_t *ret_used, uint64_t *ret_free);
int store_sq_vacuum(struct sqlite_store *s, uint64_t bytes); /* gives back free pages */
/*
 * Deletes a tenth of the profiles again and again, the oldest of the places with more than their
 * share, until due sets *ret to false.
 * *ret_more: the deadline passed before the deletion was done.
 */
typedef int expire_due_fn(struct sqlite_store *s, void *arg, bool *ret);
int store_expire_tenths(struct sqlite_store *s, expire_due_fn *due, void *arg, const char *reason,
			uint64_t deadline_ns, bool *ret_more);

/*
 * Deletes the profiles of an event in the series of the table `cut`, up to the slice's second, and
 * adds their number to *n_profiles.
 */
struct store_slice;
int store_expire_event(sqlite3 *db, int event, const struct store_slice *slice,
		       uint64_t *n_profiles);
#define SLACK_MAX_S 600 /* seconds for which expired profiles may stay */
/* What deletes profiles from the store has deleted so many. */
void store_count_expired(struct sqlite_store *s, const char *reason, uint64_t n_profiles);

/* ---- sqlite_keep.c: writer's worker ---- */
/*
 * Deletes what is kept for less time than other profiles. *ret_more: set if some are left at the
 * deadline.
 */
int store_keeps_expire(struct sqlite_store *s, int64_t now_s, int64_t newest_s,
		       uint64_t deadline_ns, bool *ret_more);

/* ---- sqlite_sweep.c: writer's worker ---- */

/* A transaction that deletes. The greatest ids of the dictionaries when it began. */
struct store_deletion {
	int64_t strings, frames, stacks;
};
int store_deletion_begin(struct sqlite_store *s, struct store_deletion *ret);
/* Commits if r is 0, else rolls back. Returns r, or the error of the commit. */
int store_deletion_end(struct sqlite_store *s, int r, const struct store_deletion *before);
/* Deletes the rows of the dictionaries without a reference, if profiles were deleted. */
int store_sweep(struct sqlite_store *s);
/*
 * Deletes stacks without a reference, whatever their age: all if the store is short-lived, else
 * those of the places of the plan that are.
 */
struct store_plan;
int store_sweep_short_lived(struct sqlite_store *s, const struct store_plan *last);

/* ---- sqlite_shares.c: writer's worker ---- */

/* What could not be verified, in place of a namespace. No namespace has this name. */
#define STORE_PLACE_UNVERIFIED "(unverified)"
/*
 * Finds or adds the row of the place of a profile: "NS", or "CLUSTER:NS" in a cluster that is not
 * the hub's own. NS is "" for what belongs to no namespace.
 */
int store_places_put(struct writing *w, const struct profile *p, int64_t *ret_id);
/* What to delete: the profiles of a place that ended until a second, which is included. */
struct store_slice {
	int64_t place, until_s;
};
struct store_plan {
	struct store_slice *slices; /* of each place, in the order of time */
	size_t n, cap;
	size_t slice; /* rows of one */
	/* what places have in the dictionaries, kept for the next plan; NULL: not counted */
	struct place_bytes {
		int64_t place;
		uint64_t bytes;
	} * dictionaries;
	size_t n_dictionaries;
};
/*
 * Plans to delete a tenth of the store's bytes, in place of what the plan had. After the deadline
 * it plans no further slices. No slices: what takes the bytes is not profiles of a place that has
 * more than its share.
 */
int store_shares_plan(struct sqlite_store *s, uint64_t deadline_ns, struct store_plan *ret);
/* The same for links, so that at most `most` are left. */
int store_links_plan(struct sqlite_store *s, uint64_t most, uint64_t deadline_ns,
		     struct store_plan *ret);
void store_plan_done(struct store_plan *p);

/* ---- sqlite_disk_full.c: writer's worker ---- */

/*
 * Makes the reserve, a file that is deleted when the disk is full, if it does not exist and the
 * disk has room for it.
 */
void store_room_keep(struct sqlite_store *s);
/*
 * On a full disk: deletes the reserve, and then the oldest profiles of the places that have more
 * than their share, until n_reserves reserves fit on the disk. Returns 0 if a write may be tried
 * again.
 */
#define ROOM_LEAST 2 /* n_reserves: one to keep, and one as room for a write */
#define ROOM_MOST  8
int store_room_make(struct sqlite_store *s, unsigned n_reserves);
/* Deletes the reserve file. Returns whether it existed. */
bool store_room_give_up(struct sqlite_store *s);

void store_sqlite_stats(void *sink, struct store_stats *ret);
int store_sqlite_write(void *sink, const struct batch *b, size_t *ret_n_new);
int store_sqlite_expire(void *sink, uint64_t now_wall_ns);
int store_sqlite_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		      struct store_summary *ret, struct field_error *reterr);
int store_sqlite_series(void *sink, const struct series_request *r, struct store_series *ret,
			struct field_error *reterr);
int store_sqlite_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn,
			    void *arg, struct field_error *reterr);
int store_sqlite_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
			struct field_error *reterr);
int store_sqlite_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		      struct field_error *reterr);
int store_sqlite_choices(void *sink, const struct store_choice *choices, size_t n,
			 store_choice_fn *fn, void *arg, struct field_error *reterr);

/* ---- sqlite_writer_cache.c: writer's worker ---- */

struct seen_key store_seen_key(const struct sqlite_store *s, const void *p, size_t n);
/*
 * Returns the entry with this key, valid until the next put or get. NULL: the key was not seen, or
 * so long ago that its entry was dropped.
 */
struct seen_entry *store_seen_get(struct seen *seen, struct seen_key key);
struct seen_entry *store_seen_put(struct seen *seen, const struct seen_entry *e);
/*
 * Empties the cache. Needed after a transaction failed, after rows were deleted, and when the file
 * is opened.
 */
void store_seen_forget(struct sqlite_store *s);

/* ---- sqlite_dictionaries.c: names, stacks -> row ids, inside the writer's transaction ---- */

struct known_word {
	const void *pointer; /* NULL: a free slot */
	int64_t id;	     /* 0: not looked up yet */
	struct seen_key key; /* used for frames only */
};
struct known {
	struct known_word *words;
	size_t n, cap;
};
struct known_stack {
	struct buf frames; /* the frame ids, encoded; data NULL: not made yet */
	struct seen_key key;
	bool has_key;
};
struct writing {
	struct sqlite_store *s;
	const struct batch *batch;
	struct known strings, frames;
	struct known_stack *stacks; /* stacks, by their index in the batch */
	struct buf scratch;	    /* the bytes of which a key is made */
	struct buf samples;	    /* the samples of the profile that is being written, encoded */
	int64_t place;		    /* that of the profile */
	uint64_t n_new, n_duplicates, n_samples, n_stacks;
};
/*
 * Runs get (SELECT). If it finds no row, runs put (INSERT). bind sets the parameters, which are the
 * same for both.
 */
typedef void bind_fn(sqlite3_stmt *st, const void *arg);
int store_words_get_or_put(struct writing *w, enum writer_statement get, enum writer_statement put,
			   bind_fn *bind, const void *arg, int64_t *ret_id);
/* The same for a row that has only a text. */
int store_words_text(struct writing *w, enum writer_statement get, enum writer_statement put,
		     const char *text, int64_t *ret_id);
/* Finds or adds the row of the text. *ret_id is 0 if text is NULL. */
int store_words_string(struct writing *w, const char *text, int64_t *ret_id);
/* Finds or adds the row of the sample's stack and head. time_s becomes last_s of the row. */
int store_words_stack(struct writing *w, const struct profile_sample *sample, int64_t time_s,
		      int64_t *ret_id);
/* Finds or adds the row of a process with its tags. Sets w->place, which its stacks need. */
int store_words_series(struct writing *w, const struct profile *p, int64_t time_s, int64_t *ret_id);
void store_words_done(struct writing *w);

/* ---- sqlite_tagsets.c: sets of tags, inside the writer's transaction ---- */

/* Adds the tags as bytes. They are sorted by key, so equal sets have equal bytes. */
void store_tags_text(const struct tags *tags, struct buf *out);
/* Finds or adds the row of a set of tags. text is the result of store_tags_text(). */
int store_words_tagset(struct writing *w, const struct tags *tags, const struct buf *text,
		       int64_t *ret_id);
/*
 * Finds or adds the row of a sample's labels, which are a set of tags, too. *ret_id is 0 if labels
 * is NULL.
 */
int store_words_labels(struct writing *w, const struct profile_labels *labels, int64_t *ret_id);

/*
 * Stacks in the file: frame ids as varints, root first. Returns false if there is no whole number.
 * Inline, because a query reads millions of them.
 */
static inline bool store_varint_get(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	if (*p == end || **p & 0x80)
		return varint_read(p, end, ret);
	*ret = *(*p)++;
	return true;
}

/* ---- sqlite_samples.c: the samples of a profile in the file ---- */

struct stored_sample {
	int64_t stack, cpu, value,
		n; /* stack: a row id; cpu: -1: not known; value, n: 0 to SQ_MAX_VALUE */
};
void store_samples_put(struct buf *b, const struct stored_sample *s);
/* Reads the next sample; false: no sample is left. */
bool store_samples_get(const uint8_t **p, const uint8_t *end, struct stored_sample *ret);
int store_samples_functions(sqlite3 *db); /* registers pf_samples, pf_pack */

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
	/*
	 * The query reads rows without samples (losses, profiles). A tag of samples then compares
	 * as unknown, and an unknown answer counts as a match.
	 */
	bool series_only;
	/* `sa` is a row of the table links, so the tags of trace and span exist */
	bool links;
	bool needs_samples; /* output: the selection has a tag of samples */
	char *joined;	    /* the names in a joint tag, as long as they are bound; NULL: none */
};
void store_where_done(struct where *w);
void store_where_text(struct where *w, const char *sql);
void store_where_int(struct where *w, int64_t value); /* adds "?" and binds the value */
void store_where_str(struct where *w, const char *value);
/* Adds the SQL expression for a tag's value, NULL for a row without it. At most one joint tag. */
void store_where_tag(struct where *w, const char *tag);
/* Adds whether the tag is one of the items. */
void store_where_list(struct where *w, const char *tag, char *const *items, size_t n);
/* Adds " AND ..." for app_services, the reader's scope and the predicate. */
void store_where_selection(struct where *w, const struct selection *sel);
/* Adds a text that is the same for all series of one node. */
void store_where_node(struct where *w);
/*
 * Adds a text that is the same for all series of one process. A series without a process id or a
 * start time is a process of its own, because nothing shows which process it belongs to. What could
 * not be verified is another process, because its sender may have named any.
 */
void store_where_process(struct where *w);
/*
 * Whether the selection uses a tag of calls, in a condition or to group by. Only rows of `links`
 * have such tags.
 */
bool store_where_wants_links(const struct selection *sel);
/* Whether the selection uses a tag of samples. The other tags are those of their series. */
bool store_where_wants_samples(const struct selection *sel);
int store_where_prepare(struct where *w, sqlite3 *db, sqlite3_stmt **ret);

/* ---- sqlite_snapshots.c: which snapshots count, as SQL ---- */

/*
 * Adds a table "(...)" with series and time of the newest snapshot of each process in the
 * selection's time.
 */
void store_where_newest(struct where *w, const struct selection *sel);
/*
 * Adds a condition on snapshots in the table of profiles of this name: of those of one series that
 * end in one second, only one counts.
 */
void store_where_one_of_second(struct where *w, const char *profiles);

/* ---- sqlite_scope.c: the reader's scope as SQL; the series table must be named `se` ---- */

/* Whether the reader may see everything. */
bool store_where_sees_all(const struct selection *sel);
/* Adds whether the reader may see the series. */
void store_where_sees(struct where *w, const struct selection *sel);
/* Adds whether the reader may see all of its cluster, also what belongs to no namespace. */
void store_where_sees_cluster(struct where *w, const struct selection *sel);
/* Whether the reader may see what is in the place, by its name in the table `places`. */
bool store_scope_sees_place(const struct selection *sel, const char *place);
/* Adds " AND ..." for the reader's scope. */
void store_where_allowed(struct where *w, const struct selection *sel);
/*
 * Adds the place (struct scope) of the namespace v.s of the set of tags t.tagset. clusters: those
 * that are not the hub's own.
 */
void store_where_place(struct where *w, char *const *clusters, size_t n);

/* ---- sqlite_blocks.c: sums of ten minutes of a series ---- */

#define BLOCK_S 600 /* a block has the seconds [block * BLOCK_S, (block + 1) * BLOCK_S) */
int64_t store_block_of(int64_t time_s);
int store_blocks_read(sqlite3 *db, struct blocks *ret);
/* The blocks that lie in the time of a selection as a whole, and are added up. */
int store_blocks_of(sqlite3 *db, const struct selection *sel, struct blocks *ret);
/* Adds the condition on series `se` and on a table with event, series and block. */
void store_blocks_where(struct where *w, const struct selection *sel, const struct blocks *b,
			const char *table);
/* A profile of a series is written. In the writer's open transaction. */
int store_blocks_late(struct sqlite_store *s, enum event event, int64_t series, int64_t time_s);
/*
 * All profiles until second cut_s are deleted. In the writer's open transaction. *ret is what
 * s->blocks must be when that is committed.
 */
int store_blocks_expire(struct sqlite_store *s, int64_t cut_s, struct blocks *ret);
/* Adds up blocks until the deadline, but at least one, if one is over. Writer's worker. */
int store_blocks_make(struct sqlite_store *s, int64_t now_s, uint64_t deadline_ns);

/* ---- sqlite_query.c: what every query does ---- */

struct query {
	struct sqlite_store *s;
	struct reader *reader; /* NULL: the query has none */
	sqlite3 *db;	       /* the reader's connection */
	uint64_t n_reused;     /* of the store before the query began */
};
/*
 * Takes a reader and begins a transaction on it, with the deadline of sel. The caller calls
 * store_query_end(), also after an error.
 */
int store_query_begin(struct query *q, struct sqlite_store *s, const struct selection *sel);
/* Call it when the query has n_bytes in memory. If that is much: store_reader_large(). */
int store_query_takes(struct query *q, size_t n_bytes);
/* Ends a query whose statements are finalized. e is its result. Returns e, with a text for it. */
int store_query_end(struct query *q, const struct selection *sel, int e,
		    struct field_error *reterr);

/* ---- sqlite_names.c: strings, frames and stacks ---- */

/*
 * Call it after store_query_begin(), before the query has read anything. Nothing that a query has
 * got from here may be used after its store_names_end().
 */
int store_names_begin(struct names *n, const struct query *q);
/* NULL: the file has no such string, or it cannot be read (n->error). The text belongs to n. */
const char *store_names_string(struct names *n, int64_t id);
/*
 * Gives row the head, labels and frames of a stack, which belong to n. A stack or a frame that the
 * file lacks is the marker STORE_LOST. Returns -errno if the file cannot be read.
 */
int store_names_stack(struct names *n, int64_t id, struct store_row *row);
/* Keeps what was read for the connection's next query, unless that is too much. */
void store_names_end(struct names *n, struct sqlite_store *s);
/* Call it before the connection is closed. */
void store_names_done(struct names *n, struct sqlite_store *s);

/* ---- samples of a selection ---- */

/*
 * Adds FROM and WHERE for every query that reads samples. `each`: a row of the result is a sample
 * (`sa`), else a profile (`p`). Of snapshots, only the newest of each process are read.
 */
void store_where_samples(struct where *w, const struct selection *sel, bool each, bool all_events);

/* ---- sqlite_functions.c: LIKE and REGEXP, and when a query must end ---- */

int store_query_must_end(void *limit); /* limit: a struct query_limit */
/*
 * Registers the SQL functions pf_like, pf_regexp and pf_wait. They read l at each call, so the
 * caller may change it for each query.
 */
int store_match_functions(sqlite3 *db, struct query_limit *l);
/*
 * The result code for a pattern of pf_regexp that is over its limits. SQLite itself does not use
 * this code. store_sq_errno makes -ELOOP of it.
 */
#define SQ_REGEXP_LIMIT SQLITE_FORMAT /* no limit: a result code */

/* ---- sqlite_stack_sums.c: equal stacks of a query added up ---- */

struct stored_sum {
	int64_t stack, app; /* row ids; stack 0: a free slot */
	int64_t value, n_samples;
	size_t group; /* its number; 0 if there are no groups */
};
struct sums {
	/* a hash table with open addressing; store_sums_sort makes it a list */
	struct stored_sum *items;
	size_t n, cap;
	uint64_t max_rows;
	bool truncated;
	struct stored_sum others; /* the sum of the stacks for which there was no room */
	/*
	 * a stack in items may lack at most this much of its value; the missing part is in others
	 */
	int64_t short_by;
};
void store_sums_init(struct sums *s, uint64_t max_rows);
void store_sums_done(struct sums *s);
/*
 * Adds each item to the sum of its stack; several may be of one stack. Their values must be from 0
 * to SQ_MAX_VALUE.
 */
void store_sums_add(struct sums *s, const struct stored_sum *list, size_t n);
/*
 * Turns the table into a list of at most max_rows stacks, the greatest first, and adds the rest to
 * others. After that, nothing can be added.
 */
void store_sums_sort(struct sums *s);
/* Keeps the first n stacks of the list and adds the rest to others. */
void store_sums_cut(struct sums *s, size_t n);

/* ---- sqlite_ids.c: maps and sets of row ids ---- */

void *store_id_map_get(const struct id_map *m, int64_t id); /* NULL: the map has no such id */
void store_id_map_put(struct id_map *m, int64_t id, void *item);
void store_id_map_free(struct id_map *m); /* also calls free() on each item */
struct id_set {
	struct id_page *pages, *last;
};
/* adds no id that is 0 or negative, because no row has it */
void store_id_set_add(struct id_set *s, int64_t id);
bool store_id_set_has(struct id_set *s, int64_t id);
void store_id_set_done(struct id_set *s);

/* ---- sqlite_groups.c: groups of samples by a tag ---- */

struct groups {
	sqlite3 *db;
	const char *tag; /* NULL: there is one group */
	/* to what the tag belongs; neither: to series */
	bool of_stacks, of_calls;
	struct group_name *names;
	size_t n;	      /* groups so far; they are numbered from 0 */
	size_t bytes;	      /* memory of all, estimated */
	size_t names_bytes;   /* that of the groups without the maps */
	struct id_map series; /* those of the selection */
	struct id_map stacks; /* those that were looked up so far */
	sqlite3_stmt *get_stack;
};
/*
 * Looks up the series of the selection, apart from conditions on samples. tag is no tag of single
 * samples (time, cpu, sample_id). The caller calls store_groups_done(), also after an error.
 */
int store_groups_begin(struct groups *g, const struct query *q, const struct selection *sel,
		       const char *tag);
bool store_groups_has(const struct groups *g, int64_t series); /* whether it is selected */
/* With a tag of calls: the group of samples whose call has this value. */
size_t store_groups_named(struct groups *g, const char *value);
/*
 * With another tag: the group of a stack in a series. -ENOENT: the series is not in the selection.
 */
int store_groups_of(struct groups *g, int64_t series, int64_t stack, size_t *ret);
/*
 * The value of each group; NULL: samples without the tag. The caller frees the list and each text.
 */
char **store_groups_names(const struct groups *g);
void store_groups_done(struct groups *g);

/* ---- sqlite_summary.c ---- */

/* Adds FROM and WHERE for the losses (`l`) of the selection. */
void store_summary_losses(struct where *w, const struct selection *sel);

/* Adds an expression: how many processes the series `se` are of. */
void store_summary_processes(struct where *w);
void store_summary_is_window(struct where *w);
/* What was deleted of a place of the table `places`. The caller frees its cluster and ns. */
struct store_cut store_sq_cut_of(const char *place, int64_t until_s);
int store_sqlite_cut(void *sink, const struct store_cut *cut);
/*
 * Reads the summary of a selection's answer. The caller reads the rows. counted: it has set
 * n_profiles.
 */
int store_summary_read(sqlite3 *db, const struct selection *sel, bool counted,
		       struct store_summary *s);
