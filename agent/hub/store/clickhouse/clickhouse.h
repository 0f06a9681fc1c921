/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/clickhouse: a sink that keeps profiles in ClickHouse, by its HTTP interface. Any
 * number of hubs may use one database. docs/clickhouse.md says what is in the tables.
 *
 * A window is a row of the table `windows`: a profile, with its samples, losses and calls in
 * arrays. A stack and a frame are rows of tables of their own, by an id that is a hash of what they
 * say: so a hub knows the id without asking, and the same stack has the same id in all hubs.
 */
#pragma once

#include "hub/store/keep.h"
#include "hub/store/sink.h"
#include "lib/loop/http_ask.h"

#include <pthread.h>

#define CH_MAX_VALUE (INT64_C(1) << 53) /* sums stop there, as in the other sinks */
/* SQL: a sum as UInt64. As doubles, sums are exact up to this limit, and do not wrap. */
#define CH_SUM(x) "toUInt64(least(sum(toFloat64(" x ")), 9007199254740992.))"

/* SQL: that a row is of a cluster other than the hub's own. Another hub may have registered it. */
#define CH_IS_OTHER "(toString(pod_cluster) GLOBAL IN (SELECT name FROM clusters))"

/* ---- rowbinary.c: ClickHouse's format RowBinary ---- */
void store_ch_put_text(struct buf *b, const char *s, size_t n);
static inline void store_ch_put_str(struct buf *b, const char *s)
{
	store_ch_put_text(b, s ?: "", s ? strlen(s) : 0);
}
static inline void store_ch_put_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}
static inline void store_ch_put_u16(struct buf *b, uint16_t v)
{
	buf_add(b, &v, 2);
}
static inline void store_ch_put_u32(struct buf *b, uint32_t v)
{
	buf_add(b, &v, 4);
}
static inline void store_ch_put_u64(struct buf *b, uint64_t v)
{
	buf_add(b, &v, 8);
}

/* The rows of an answer. After a get beyond its end, or of a wrong length, failed is set. */
struct ch_rows {
	const char *p, *end;
	bool failed;
};
static inline bool store_ch_more(const struct ch_rows *r)
{
	return !r->failed && r->p < r->end;
}
uint64_t store_ch_get_varint(struct ch_rows *r);
uint64_t store_ch_get_u64(struct ch_rows *r);
static inline int64_t store_ch_get_sum(struct ch_rows *r) /* of CH_SUM */
{
	uint64_t v = store_ch_get_u64(r);

	return v < (uint64_t)CH_MAX_VALUE ? (int64_t)v : CH_MAX_VALUE;
}
uint32_t store_ch_get_u32(struct ch_rows *r);
uint8_t store_ch_get_u8(struct ch_rows *r);
double store_ch_get_double(struct ch_rows *r);
/* A text in the answer, without an end. *ret_n: its bytes. "" if the answer is too short. */
const char *store_ch_get_text(struct ch_rows *r, size_t *ret_n);
char *store_ch_get_str(struct ch_rows *r); /* a copy, which ends at its first '\0' */

/* ---- expire.c ---- */
struct ch_expiring {
	uint64_t term; /* of the lead in which store_ch_expire() runs */
	/* all that ended then or before was deleted; 0: nothing was. Both threads read it */
	_Atomic int64_t cut_s;
	int64_t oldest_s;     /* what is left of the day of cut_s begins then; 0: nothing is */
	uint64_t uploads_ns;  /* CLOCK_MONOTONIC, when uploads were last deleted without error */
	uint64_t measured_ns; /* CLOCK_MONOTONIC, when the stats were last read */
};

/*
 * The deletion by size has a thread of its own, because it reads and writes much, and the writer
 * goes on meanwhile.
 */
struct ch_sizing {
	pthread_t thread;
	bool started;		   /* the writer's: the thread has to be joined */
	atomic_bool running, stop; /* stop: it gives up */
	uint64_t term;		   /* of the lead in which it began */
	uint64_t now_wall_ns;	   /* when it began */
	uint64_t swept_ns; /* CLOCK_MONOTONIC, when stacks without a window were last deleted */
};

struct ch_cache;
struct ch_schema;
struct ch_clusters { /* names of clusters other than the hub's own */
	char **names;
	size_t n;
};
struct ch_store {
	struct http_asker *asker;
	char *prefix;	      /* of all paths; "": none */
	const char *settings; /* of all requests, "&NAME=VALUE"; "": none */
	char *database;
	char *user, *password_file; /* "": none */
	struct ch_schema *schema;   /* the tables, by the configuration */
	uint64_t insert_ns; /* for tests: how long an insert may take; 0: as long as it should */
	struct keeps keeps;
	uint64_t max_bytes;
	uint64_t (*term)(void *arg); /* as store_set_lead(); NULL: this hub is the only one */
	void *term_arg;
	struct ch_expiring expiring; /* the writer's */
	struct ch_cache *names;	     /* stacks and frames that readers have read */
	struct ch_sizing sizing;
	uint8_t seed[16];	    /* of the ids; known when ready */
	atomic_bool ready;	    /* the tables are there, as this hub needs them */
	pthread_mutex_t ready_lock; /* guards the making of the tables, and what follows */
	/* CLOCK_MONOTONIC, when it last looked at the tables; 0: never */
	_Atomic uint64_t tried_ns;
	atomic_bool doubted; /* ClickHouse has refused rows: perhaps the tables were altered */
	int trouble;	     /* what the last try said */
	struct field_error trouble_text;
	struct ch_seen *seen;	    /* ids that were written lately; the writer's */
	pthread_mutex_t stats_lock; /* guards stats */
	struct store_stats stats;
	struct ch_clusters *registered;		/* by the configuration */
	_Atomic(struct ch_clusters *) clusters; /* and earlier ones, when ready; sorted */
	char *own_cluster;			/* "": it has no name */
};

/* ---- connection.c: a request ---- */
int store_ch_connect(struct ch_store *s, const struct store_config *c, struct field_error *reterr);
void store_ch_disconnect(struct ch_store *s);

struct ch_limits {
	uint64_t deadline_ns;	     /* CLOCK_MONOTONIC */
	const atomic_bool *given_up; /* may be NULL */
};
struct ch_post {
	const char *path, *type; /* type: of the body */
	const struct buf *body;
	bool packed;	     /* the body is compressed by zstd */
	bool to_any_version; /* without settings that old servers do not know */
};
/*
 * Any thread. Errors: -ETIME; -ENOTCONN: there is no answer; -EACCES: ClickHouse refuses the user,
 * or the password cannot be read; -ENOBUFS: there is no memory for the answer; -ENOSPC; -ESTALE:
 * the tables are not those that the hub has made; -EIO: any other. reterr (may be NULL) has
 * ClickHouse's words. The caller calls http_answer_done() in each case.
 */
int store_ch_post(struct ch_store *s, const struct ch_post *p, const struct ch_limits *l,
		  struct http_answer *ret, struct field_error *reterr);

/* ---- query.c: a statement ---- */

/*
 * A statement: text of this folder, with a {pN:String} for each text of others, and a
 * {pN:Array(String)} for many. ids: if it reads from the table pf_ids, its rows.
 */
struct ch_sql {
	const char *database;	 /* where its tables are; NULL: in the store's own */
	struct buf text, params; /* params: their values, each with '\0' behind it */
	size_t n_params;
	struct buf ids;
	const char *ids_type; /* "UInt64"; NULL: there are none */
	bool changes;	      /* it is no SELECT */
};
void store_ch_sql_done(struct ch_sql *q);
void store_ch_text(struct ch_sql *q, const char *sql);
void store_ch_str(struct ch_sql *q, const char *value);
/* Adds an array of the values (n > 0), for IN. */
void store_ch_strs(struct ch_sql *q, const char *const *values, size_t n);
void store_ch_int(struct ch_sql *q, int64_t value);

/* Runs a statement. *ret: its answer, whose rows are in *ret_rows. Errors: as store_ch_post(). */
int store_ch_ask(struct ch_store *s, struct ch_sql *q, const struct ch_limits *l,
		 struct http_answer *ret, struct ch_rows *ret_rows, struct field_error *reterr);
/* Runs a statement without an answer or parameters. */
int store_ch_run(struct ch_store *s, const char *sql, struct field_error *reterr);
/*
 * -EPROTONOSUPPORT: the server is too old for what this folder asks, or is no ClickHouse; reterr
 * has its version. Else as store_ch_post().
 */
int store_ch_check_version(struct ch_store *s, struct field_error *reterr);
/* table: with its columns, "frames (id, name)". rows: in the format RowBinary. */
int store_ch_insert(struct ch_store *s, const char *table, const struct buf *rows,
		    struct field_error *reterr);

/* ---- clickhouse.c ---- */
/*
 * Makes the tables, or sees that they are there, unless a call before has. store.c calls it
 * before each function, so a hub starts without ClickHouse, and goes on when it comes back. Looks
 * sometimes whether they are still as they should be.
 */
int store_ch_ready(struct ch_store *s, struct field_error *reterr);
/* Tells the health of the store what a write, or the making of the tables, has ended with. */
void store_ch_tell(struct ch_store *s, int r, const struct field_error *e);
/* ---- ask.c: what readers do with an answer ---- */
/* Takes a row. It does nothing with a row of which a get has failed. */
typedef int ch_take_fn(struct ch_rows *rows, void *arg);
/*
 * Runs the statement, calls `take` for each row, and frees the statement. -EIO: the answer is not
 * one to this statement, or has more than `most` rows. Else as store_ch_ask(), or what take
 * returns.
 */
int store_ch_each(struct ch_store *s, struct ch_sql *q, const struct ch_limits *l, size_t most,
		  ch_take_fn *take, void *arg, struct field_error *reterr);
int store_ch_ends_early(struct field_error *reterr); /* returns -EIO */

/* ---- schema.c ---- */
/* Checks the names in the configuration, and copies what it says of the tables. */
int store_ch_schema_new(const struct store_config *c, struct ch_schema **ret,
			struct field_error *reterr);
struct ch_schema *store_ch_schema_free(struct ch_schema *x);
/* Makes the tables, and reads the seed of the ids. Does nothing if they are as they should be. */
int store_ch_migrate(struct ch_store *s, struct field_error *reterr);
/* Changes nothing. -EINVAL: somebody has altered the tables; else as store_ch_post(). */
int store_ch_check_tables(struct ch_store *s, const struct ch_limits *l,
			  struct field_error *reterr);
/* As store_migrate(). */
int store_ch_migrate_with(struct ch_store *s, bool dry_run, store_print_fn *print, void *arg,
			  struct field_error *reterr);

/* ---- clusters.c ---- */
void store_ch_clusters_begin(struct ch_store *s, const struct store_config *c);
/* When the tables are there: checks the registered names, and takes those of the table. */
int store_ch_clusters_open(struct ch_store *s, struct field_error *reterr);
void store_ch_clusters_end(struct ch_store *s);
char *const *store_ch_clusters(void *sink, size_t *ret_n);

/* ---- ids.c ---- */
struct ch_hash;
struct ch_hash *store_ch_hash_new(const struct ch_store *s);
struct ch_hash *store_ch_hash_free(struct ch_hash *h);
void store_ch_hash_str(struct ch_hash *h, const char *s); /* NULL is another text than "" */
void store_ch_hash_u64(struct ch_hash *h, uint64_t v);
void store_ch_hash_ids(struct ch_hash *h, const uint64_t *ids, size_t n); /* as n times _u64 */
uint64_t store_ch_hash_end(struct ch_hash *h); /* and begins again; never 0 */
/* The ids of a frame, and of a stack. An empty text is as none, but that of a name or a label. */
uint64_t store_ch_frame_id(struct ch_hash *h, const struct frame *f);
/*
 * frames: a hash of the ids of its frames; 0: it has none. labels: _LABEL_MAX texts, NULL for none;
 * or NULL.
 */
uint64_t store_ch_stack_id(struct ch_hash *h, uint64_t frames, const struct stack_head *head,
			   const char *const *labels);

/* Ids of rows that are in the database, for the writer. */
struct ch_seen *store_ch_seen_new(void);
struct ch_seen *store_ch_seen_free(struct ch_seen *s);
bool store_ch_seen(const struct ch_seen *s, uint64_t id, uint32_t day);
void store_ch_see(struct ch_seen *s, uint64_t id, uint32_t day);
void store_ch_seen_forget(struct ch_seen *s);

/* ---- write.c ---- */
int store_ch_write(struct ch_store *s, const struct batch *const *batches, size_t n,
		   size_t *ret_n_new);
int64_t store_ch_last_second(const struct profile *p); /* the column `time` of a window */
/*
 * Each day is a partition, and a window that is older than the retention would be deleted at once.
 * So nobody can make partitions of all days since 1970.
 */
bool store_ch_is_too_old(const struct ch_store *s, const struct profile *p);

/* ---- write_known.c: ids of windows that are stored already; NULL: none are ---- */
struct ch_known;
/*
 * Asks which of the windows are stored. An answer that does not come in time is none: the windows
 * are then written again, and count once all the same.
 */
int store_ch_known_read(struct ch_store *s, const struct batch *const *batches, size_t n,
			struct ch_known **known, struct field_error *reterr);
void store_ch_known_add(struct ch_known **known, const void *id); /* id: 16 bytes */
bool store_ch_known_has(struct ch_known *const *known, const uint8_t id[static 16]);
void store_ch_known_free(struct ch_known **known);

/* ---- read.c ---- */
struct ch_limits store_ch_limits(const struct selection *sel);
/* Says in reterr what the user can do about some errors. Returns e. */
int store_ch_error(int e, const struct selection *sel, struct field_error *reterr);

/* ---- where.c, match.c: a selection as SQL ---- */
/* What one statement selects. */
struct ch_where {
	struct ch_sql sql;
	enum event event;
	bool calls; /* the rows are samples of calls */
	/* the rows are windows: a condition on samples is neither true nor false */
	bool windows_only;
	bool distinct; /* it does not matter whether it has a window twice */
	bool cpu;      /* store_ch_tag() has put the tag "cpu" */
};
/*
 * LIKE and REGEXP become lists of values, which the hub itself has compared. every: of samples of
 * each event, not only that of the selection. The caller frees *ret.
 */
int store_ch_where_match(struct ch_store *s, const struct selection *sel, bool every,
			 const struct ch_limits *l, struct predicate **ret,
			 struct field_error *reterr);
bool store_ch_wants_samples(const struct selection *sel);
bool store_ch_wants_calls(const struct selection *sel);
/* Whether it selects windows, with all of their samples. */
bool store_ch_wants_whole_windows(const struct selection *sel);
/* Whether the statement, or a condition, has the tag "cpu". */
bool store_ch_wants_cpu(const struct ch_where *w, const struct selection *sel);
bool store_ch_is_sample_tag(const char *tag);
/*
 * The value of a tag; its SQL is "" if a row has not the tag, which _has says. Before
 * store_ch_samples(), so that it knows what the statement needs.
 */
void store_ch_tag(struct ch_where *w, const char *tag);
void store_ch_has(struct ch_where *w, const char *tag);
/* " AND ..." : services, what the reader may see, conditions */
void store_ch_selection(struct ch_where *w, const struct selection *sel);

/* ---- scope.c: what a reader may see, as SQL ---- */
/* " AND ..." */
void store_ch_scope(struct ch_where *w, const struct selection *sel);
/* whether the reader may see all of a row's cluster */
void store_ch_sees_cluster(struct ch_where *w, const struct selection *sel);

/* ---- rows.c: which windows, and samples of windows, as SQL ---- */
/* Which windows of a time. */
enum ch_which {
	CH_NEWEST, /* of the event; of snapshots, the newest one of each process */
	CH_OF_EVENT,
	CH_EVERY_NEWEST, /* as CH_NEWEST, of every event */
	CH_EVERY_EVENT,
};
/* " FROM windows ... WHERE ..." */
void store_ch_windows(struct ch_where *w, const struct selection *sel, enum ch_which which);
/* that a window overlaps the selection's time, and does not end long after it */
void store_ch_overlap(struct ch_where *w, const struct selection *sel);
/* as store_ch_windows() with a row for each sample: stack, v, c, cpu and with calls trace, span */
void store_ch_samples(struct ch_where *w, const struct selection *sel, enum ch_which which);
/* " AND ...": of snapshots of one process that end in one second, the one that counts */
void store_ch_one_of_second(struct ch_where *w, const struct selection *sel);
/* of a window: its process, as far as a node knows it by its number; its names and tags */
#define CH_PROCESS "process_id, process_start_ms, pod_cluster, pod_node, unverified"
#define CH_ITS_TAGS                                                                                \
	"cityHash64(app_service, pod_ns, pod, pod_uid, container, container_id, image, "           \
	"pod_group, pod_group_type, tag_names, tag_values)"
void store_ch_node(struct ch_where *w);
void store_ch_process(struct ch_where *w);

/* ---- servers.c ---- */
/* What is behind the names of tables where their rows lie; "": nothing is. */
const char *store_ch_suffix(const struct ch_store *s);
/* "STATEMENT TABLE", on all servers; statement: with a blank at its end */
void store_ch_put_change(struct ch_where *w, const struct ch_store *s, const char *statement,
			 const char *table);
/* A table of the database system: of one replica of each shard. */
void store_ch_put_system(struct ch_where *w, const struct ch_store *s, const char *table);

/* ---- names.c: stacks and frames of one query ---- */
struct ch_names;
struct ch_names *store_ch_names_new(struct ch_store *s, const struct ch_limits *l);
struct ch_names *store_ch_names_free(struct ch_names *n);
/*
 * Counts bytes that the query uses for something else, until the names are freed. -EFBIG: there is
 * no room for them.
 */
int store_ch_names_count(struct ch_names *n, size_t bytes);
/* How many bytes have room now. Another query may be faster. */
size_t store_ch_names_room(const struct ch_names *n);
/*
 * Reads the stacks with these ids, and their frames. They stay until the names are freed. -EFBIG:
 * there is no room for more, and some of them may lack their names.
 */
int store_ch_names_read(struct ch_names *n, const uint64_t *ids, size_t n_ids,
			struct field_error *reterr);
/* Sets head, frames and n_frames of a row. A stack that is not there is one frame, STORE_LOST. */
void store_ch_names_stack(const struct ch_names *n, uint64_t id, struct store_row *row);
/* The tag of a stack: thread, wait, or a label; NULL: it has none. */
const char *store_ch_names_tag(const struct ch_names *n, uint64_t id, const char *tag);

/* ---- places.c: whose data the store has; a place: struct store_cut, whose texts are owned ---- */
/* SQL: the place of a window, or of a row of cuts */
#define CH_PLACE_COLUMNS                                                                           \
	"if(" CH_IS_OTHER ", toString(pod_cluster), '') AS other, "                                \
	"if(unverified!='', '', toString(pod_ns)) AS ns, toUInt8(unverified!='') AS of_unverified"
struct store_cut store_ch_get_place(struct ch_rows *rows);
void store_ch_place_done(struct store_cut *of);
/* that a row is of the place */
void store_ch_of_place(struct ch_where *w, const struct store_cut *of);
/* that what a row of cuts is about may be missing in the selection's time; until: its column */
void store_ch_cut_after(struct ch_where *w, const struct selection *sel, const char *until);
/* Adds what was deleted because the store was full to the summary. */
int store_ch_cuts(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		  struct store_summary *ret, struct field_error *reterr);

/* ---- summary.c ---- */
int store_ch_summary(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
		     struct store_summary *ret, struct field_error *reterr);
void store_ch_losses(struct ch_where *w, const struct selection *sel);
/*
 * Whether anything of the event was lost in the selection's time (lost), or later ones were deleted
 * because the store was full (cut), of anybody. If not, a statement with store_ch_losses(), or that
 * of store_ch_cuts(), finds nothing. To plan those costs more than to run this one.
 */
struct ch_missing {
	bool lost, cut;
};
int store_ch_any_missing(struct ch_store *s, const struct selection *sel, const struct ch_limits *l,
			 struct ch_missing *ret, struct field_error *reterr);

/* ---- expire.c, expire_size.c: for both ---- */
struct ch_sizes { /* on disk */
	uint64_t bytes, windows_bytes, n_stacks;
	int64_t oldest_s; /* of the parts that begin after the last deletion; 0: there are none */
	int64_t newest_s;
};
int store_ch_sizes(struct ch_store *s, struct ch_sizes *ret, struct field_error *reterr);
/* As store_ch_each(), with the time that expiring has for a statement. */
int store_ch_ask_each(struct ch_store *s, struct ch_where *w, size_t most, ch_take_fn *take,
		      void *arg, struct field_error *reterr);
/* Runs a statement that is no SELECT. */
int store_ch_change(struct ch_store *s, struct ch_where *w, struct field_error *reterr);
/* 0: this hub leads, as it did when it had this term. -ECANCELED: it does not. */
int store_ch_still_leads(const struct ch_store *s, uint64_t term);
/* As store_ch_change(), if store_ch_still_leads(). Frees the statement in each case. */
int store_ch_delete(struct ch_store *s, uint64_t term, struct ch_where *w,
		    struct field_error *reterr);
int store_ch_take_u64(struct ch_rows *rows, void *arg);
void store_ch_put_time(struct ch_where *w, int64_t s); /* a second as DateTime */
void store_ch_count_expired(struct ch_store *s, const char *reason, uint64_t n);
/*
 * *ret: whether an earlier deletion, of any hub, still runs. -EIO: ClickHouse has failed to end it,
 * and tries again; reterr has its words.
 */
int store_ch_is_deleting(struct ch_store *s, bool *ret, struct field_error *reterr);
/* Tells what a deletion has ended with, unless this hub leads no longer. */
void store_ch_tell_expiry(int r, const struct field_error *e);
/* Begins the deletion by size, unless it runs. On the writer. */
int store_ch_size_begin(struct ch_store *s, uint64_t now_wall_ns);
void store_ch_size_wait(struct ch_store *s); /* until it has ended */
void store_ch_size_end(struct ch_store *s);  /* it gives up; none begins after */

/* ---- uploads.c: symbol files that users have uploaded ---- */
/* Deletes what is left of uploads that did not end, and older uploads of a file. */
int store_ch_expire_uploads(struct ch_store *s, uint64_t now_wall_ns, struct field_error *reterr);
extern const struct upload_ops store_ch_uploads;

/* ---- the functions of the sink ---- */
int store_ch_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		  struct store_summary *ret, struct field_error *reterr);
int store_ch_series(void *sink, const struct series_request *r, struct store_series *ret,
		    struct field_error *reterr);
int store_ch_choices(void *sink, const struct store_choice *choices, size_t n, store_choice_fn *fn,
		     void *arg, struct field_error *reterr);
int store_ch_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn, void *arg,
			struct field_error *reterr);
int store_ch_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
		    struct field_error *reterr);
int store_ch_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		  struct field_error *reterr);
int store_ch_expire(void *sink, uint64_t now_wall_ns);
void store_ch_set_lead(void *sink, uint64_t (*term)(void *arg), void *arg);
/* Reads the stats from the database. On the writer. */
void store_ch_measure(struct ch_store *s);
int store_ch_put_cut(void *sink, const struct store_cut *cut);
void store_ch_stats(void *sink, struct store_stats *ret);
