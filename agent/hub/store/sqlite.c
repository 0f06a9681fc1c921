/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite sink: its file and its health. Data that repeats is stored once, as a row of a
 * dictionary (strings, frames, stacks, tag sets, and series: processes with their tags). A profile
 * is a row with its samples in a blob. Profiles are stored in the order in which they arrive. If
 * the file is damaged, the store renames it (it never deletes it), starts an empty file and reports
 * the damage.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_MS 5000
/* time per minute for deletions; writes wait for them */
#define EXPIRE_NS	(10 * NSEC_PER_SEC)
#define NAMES_BYTES	(256u << 20)
#define LARGE_BYTES	(64u << 20) /* one query at a time may take more memory than this */
#define BLOCK_STACKS	200000	    /* of a block; one with more has no sum */
#define SERIES_VALUES	4000000
#define CHECK_MAX_BYTES (128LL << 20) /* a larger file is not checked at the start */

/* for sqlite_expire.c: the series of a slice, and until when places were deleted from */
#define CUT_TABLES                                                                                 \
	"CREATE TEMP TABLE cut(series INTEGER PRIMARY KEY);"                                       \
	"CREATE TEMP TABLE cut_places(place INTEGER PRIMARY KEY, until_s INT)"

static const char *const statements[_ST_MAX] = {
	[ST_BEGIN] = "BEGIN IMMEDIATE",
	[ST_COMMIT] = "COMMIT",
	[ST_ROLLBACK] = "ROLLBACK",
	[ST_STRING_GET] = "SELECT id FROM strings WHERE s=?",
	[ST_STRING_PUT] = "INSERT INTO strings(s) VALUES(?)",
	[ST_FRAME_GET] = "SELECT id FROM frames WHERE name=? AND module=? AND build_id=? AND "
			 "address=? AND file=? AND line=? AND kind=? AND inlined=?",
	[ST_FRAME_PUT] = "INSERT INTO frames(name, module, build_id, address, file, line, kind, "
			 "inlined) VALUES(?,?,?,?,?,?,?,?)",
	[ST_STACK_GET] =
		"SELECT id, last_s, place FROM stacks WHERE hash=? AND process=? AND thread=? AND "
		"main=? AND frames=? AND wait=? AND labels=?",
	[ST_STACK_PUT] = "INSERT INTO stacks(hash, process, thread, main, frames, wait, labels, "
			 "last_s, place) VALUES(?,?,?,?,?,?,?,?,?)",
	[ST_STACK_TOUCH] = "UPDATE stacks SET last_s=?2 WHERE id=?1",
	[ST_STACK_SHARE] = "UPDATE stacks SET place=?2 WHERE id=?1",
	[ST_PLACE_GET] = "SELECT id FROM places WHERE name=?",
	[ST_PLACE_PUT] = "INSERT INTO places(name) VALUES(?)",
	[ST_TAGSET_GET] = "SELECT id FROM tagsets WHERE text=?",
	[ST_TAGSET_PUT] = "INSERT INTO tagsets(text) VALUES(?)",
	[ST_TAG_PUT] = "INSERT OR REPLACE INTO tags(tagset, key, value) VALUES(?,?,?)",
	[ST_SERIES_GET] = "SELECT id FROM series WHERE tagset=? AND app=? AND pid=? AND start_ms=?",
	[ST_SERIES_PUT] = "INSERT INTO series(tagset, app, pid, start_ms, first_s, last_s, "
			  "place) VALUES(?,?,?,?,?,?,?)",
	[ST_SERIES_TOUCH] = "UPDATE series SET first_s=MIN(first_s, ?2), last_s=MAX(last_s, ?3) "
			    "WHERE id=?1 AND (first_s>?2 OR last_s<?3)",
	[ST_PROFILE_GET] = "SELECT 1 FROM profiles WHERE id=?",
	[ST_PROFILE_PUT] = "INSERT INTO profiles(id, time, event, series, n, value, samples) "
			   "VALUES(?,?,?,?,?,?,?)",
	[ST_LINK_PUT] = "INSERT INTO links(trace, span, event, series, time, stack, cpu, value, n) "
			"VALUES(?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
			"value=value+excluded.value, n=n+excluded.n",
	[ST_LOSS_PUT] = "INSERT INTO losses(time, start_s, event, series, reason, n, time_ns) "
			"VALUES(?,?,?,?,?,?,?)",
	[ST_SNAPSHOT_PUT] = "INSERT OR IGNORE INTO snapshots(event, series, time) VALUES(?,?,?)",
	[ST_ESTIMATE_PUT] = "INSERT INTO estimates(time, event, series, ppm, error) "
			    "VALUES(?,?,?,?,?)",
	[ST_BLOCK_READ] = "SELECT time, samples FROM profiles WHERE event=? AND series=? AND "
			  "time BETWEEN ? AND ?",
	[ST_BLOCK_PUT] = "INSERT OR REPLACE INTO blocks(event, series, block, first_s, last_s, n, "
			 "samples) VALUES(?,?,?,?,?,?,?)",
	[ST_BLOCK_DROP] = "DELETE FROM blocks WHERE event=? AND series=? AND block=?",
	[ST_LATE_PUT] =
		"INSERT OR IGNORE INTO late(event, series, block, given_up) VALUES(?,?,?,?)",
};

int store_sq_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_INTERRUPT:
		return -ETIME;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return -EACCES;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQ_REGEXP_LIMIT:
		return -ELOOP;
	default:
		return -EIO;
	}
}

int store_sq_exec(sqlite3 *db, const char *sql)
{
	return store_sq_errno(sqlite3_exec(db, sql, NULL, NULL, NULL));
}

void store_sq_finalize(sqlite3_stmt **st)
{
	sqlite3_finalize(*st);
}

int store_sq_run(sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	sqlite3_reset(st);
	return store_sq_errno(rc);
}

int store_sq_end(struct sqlite_store *s, int r)
{
	if (!r)
		r = store_sq_run(s->st[ST_COMMIT]);
	/* If the disk is full, SQLite may have rolled back already. Then no transaction is open. */
	if (r && !sqlite3_get_autocommit(s->writer))
		(void)store_sq_run(s->st[ST_ROLLBACK]);
	return r;
}

int64_t store_sq_clamp(double v)
{
	return v >= (double)SQ_MAX_VALUE ? SQ_MAX_VALUE : v > 0 ? (int64_t)v : 0;
}

int store_sq_int(sqlite3 *db, const char *sql, int64_t *ret)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (store_sq_errno(rc))
		return store_sq_errno(rc);
	*ret = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
	return 0;
}

void store_sq_set_error(struct sqlite_store *s, const char *fmt, ...)
{
	va_list ap;

	sqlite3_mutex_enter(s->stats_lock);
	s->stats.error[0] = '\0';
	if (fmt) {
		va_start(ap, fmt);
		vsnprintf(s->stats.error, sizeof(s->stats.error), fmt, ap);
		va_end(ap);
	}
	sqlite3_mutex_leave(s->stats_lock);
}

/*
 * Returns the error for a result of quick_check that is not "ok". "... error code=266" means that
 * SQLite could not read a page. A failed read is not damage.
 */
static int check_failed(const char *text)
{
	const char *code = text ? strstr(text, "error code=") : NULL;
	int r = code ? store_sq_errno((int)strtol(code + strlen("error code="), NULL, 10)) : 0;

	return r ? r : -EBADMSG;
}

int store_sq_check(sqlite3 *db)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	const char *text;
	int rc, r = store_sq_errno(sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL));

	if (r)
		return r;
	rc = sqlite3_step(st);
	/* -EBADMSG only if there is no row: a read that failed or a lack of memory is not damage */
	if (rc != SQLITE_ROW)
		return store_sq_errno(rc) ? store_sq_errno(rc) : -EBADMSG;
	text = (const char *)sqlite3_column_text(st, 0);
	return str_equal(text, "ok") ? 0 : check_failed(text);
}

/*
 * Checks the file at the start, so that damaged pages are found before the first query reads them.
 */
static int check_small(sqlite3 *db)
{
	int64_t pages = 0, page_bytes = 0;
	int r = store_sq_int(db, "PRAGMA page_count", &pages);

	if (!r)
		r = store_sq_int(db, "PRAGMA page_size", &page_bytes);
	return r || pages * page_bytes > CHECK_MAX_BYTES ? r : store_sq_check(db);
}

static int schema_check(struct sqlite_store *s, struct field_error *reterr)
{
	int64_t version = 0, tables = 0, seed = 0;
	int r = store_sq_int(s->writer, "PRAGMA user_version", &version);

	if (!r)
		r = store_sq_int(s->writer, "SELECT COUNT(*) FROM sqlite_schema", &tables);
	if (!r)
		r = store_schema_raise(s->writer, &version);
	if (!r && version == 0 && tables == 0)
		r = s->file ? -EBADMSG
			    /* file_make() gave the file a schema; without one it is damaged */
			    : store_schema_make(s->writer);
	else if (!r && version != SCHEMA_VERSION)
		return field_error_set(reterr, s->file ? s->file : "store",
				       "written by another version (%lld, this one knows %d)",
				       (long long)version, SCHEMA_VERSION);
	else if (!r && !s->checked)
		r = check_small(s->writer);
	s->checked |= !r; /* once per start; after that, SQLite checks each page that it reads */
	if (!r)
		r = store_sq_int(s->writer, "SELECT value FROM meta WHERE key='seed'", &seed);
	if (r)
		return r;
	s->seed = (uint64_t)seed;
	return 0;
}

int store_sq_open(const char *file, int flags, sqlite3 **ret)
{
	sqlite3 *db = NULL;
	int r = store_sq_errno(sqlite3_open_v2(file, &db, flags, NULL));

	if (!r)
		r = store_sq_errno(sqlite3_busy_timeout(db, BUSY_MS));
	if (!r)
		r = store_samples_functions(db);
	if (r) {
		sqlite3_close_v2(db);
		return r;
	}
	*ret = db;
	return 0;
}

void store_sq_disconnect(struct sqlite_store *s)
{
	for (int i = 0; i < _ST_MAX; i++) {
		sqlite3_finalize(s->st[i]);
		s->st[i] = NULL;
	}
	store_readers_close(s);
	sqlite3_close_v2(s->writer);
	s->writer = NULL;
	store_seen_forget(s);
}

static void unlink_with(const char *file, const char *suffix)
{
	_cleanup_free_ char *path = xasprintf("%s%s", file, suffix);

	unlink(path);
}

/*
 * Makes the file under another name, then renames it. So the store's file has its schema or does
 * not exist, and an empty file is a damaged one. First removes the files that a killed hub left,
 * because SQLite would apply the -wal of such a file to the new one.
 */
static int file_make(const char *file)
{
	static const char *const suffixes[] = {"-wal", "-shm", ".new", ".new-wal", ".new-shm"};
	_cleanup_free_ char *tmp = xasprintf("%s.new", file);
	sqlite3 *db = NULL;
	int r;

	if (access(file, F_OK) == 0) {
		for (size_t i = 2; i < ARRAY_SIZE(suffixes); i++)
			unlink_with(file, suffixes[i]);
		return 0;
	}
	if (errno != ENOENT) /* any other error: the file may exist */
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		unlink_with(file, suffixes[i]);
	r = store_sq_open(tmp, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &db);
	if (!r)
		r = store_schema_make(db);
	if (sqlite3_close_v2(db) != SQLITE_OK && !r)
		r = -EIO;
	if (!r && rename(tmp, file) < 0)
		r = -errno;
	for (size_t i = 2; r && i < ARRAY_SIZE(suffixes); i++)
		unlink_with(file, suffixes[i]);
	return r;
}

static int connect_fresh(struct sqlite_store *s, struct field_error *reterr)
{
	int flags =
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | (s->file ? 0 : SQLITE_OPEN_CREATE);
	int r = s->file ? file_make(s->file) : 0;

	if (!r)
		r = store_sq_open(s->file ? s->file : ":memory:", flags, &s->writer);
	if (r)
		return r;
	/*
	 * NORMAL: a commit survives the end of the process, however it ends; fsync runs at
	 * checkpoints only
	 */
	r = store_sq_exec(
		s->writer,
		"PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=OFF;"
		"PRAGMA journal_size_limit=67108864; PRAGMA temp_store=MEMORY;" CUT_TABLES);
	if (!r)
		r = schema_check(s, reterr);
	if (!r)
		r = store_clusters_open(s, reterr);
	if (!r)
		r = store_blocks_read(s->writer, &s->blocks);
	for (int i = 0; !r && i < _ST_MAX; i++)
		r = store_sq_errno(sqlite3_prepare_v3(s->writer, statements[i], -1,
						      SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL));
	return r;
}

void store_sq_set_failed(struct sqlite_store *s, bool failed)
{
	sqlite3_mutex_enter(s->stats_lock);
	s->stats.failed = failed;
	sqlite3_mutex_leave(s->stats_lock);
}

void store_sq_tell_notes(struct sqlite_store *s)
{
	store_sq_set_error(s, "%s%s%s", s->damage_note,
			   *s->damage_note && *s->room_note ? "; " : "", s->room_note);
}

int store_sq_connect(struct sqlite_store *s, struct field_error *reterr)
{
	int r = connect_fresh(s, reterr);

	if (r) {
		store_sq_disconnect(s);
		r = store_damage_of_disk(s, r);
	}
	if (r == -ENOSPC && store_room_give_up(s)) {
		r = connect_fresh(s, reterr);
		if (r) {
			store_sq_disconnect(s);
			r = store_damage_of_disk(s, r);
		}
	}
	if (r)
		return r;
	store_room_keep(s);
	store_sq_measure(s);
	return 0;
}

void store_sq_measure(struct sqlite_store *s)
{
	int64_t pages = 0, page_bytes = 0, stacks = 0, oldest = 0;

	(void)store_sq_int(s->writer, "PRAGMA page_count", &pages);
	(void)store_sq_int(s->writer, "PRAGMA page_size", &page_bytes);
	(void)store_sq_int(s->writer, "SELECT COUNT(*) FROM stacks", &stacks);
	(void)store_sq_int(s->writer, "SELECT MIN(time) FROM profiles", &oldest);
	sqlite3_mutex_enter(s->stats_lock);
	s->stats.bytes = (uint64_t)(pages * page_bytes);
	s->stats.n_stacks = (uint64_t)stacks;
	s->stats.oldest_ns = (uint64_t)oldest * NSEC_PER_SEC;
	sqlite3_mutex_leave(s->stats_lock);
}

static void sqlite_close(void *sink)
{
	struct sqlite_store *s = sink;

	store_sq_disconnect(s);
	store_readers_done(s);
	store_clusters_end(s);
	sqlite3_mutex_free(s->stats_lock);
	store_keeps_done(&s->keeps);
	free(s->file);
	free(s);
}

static int open_error(int r, const char *path, struct field_error *reterr)
{
	if (reterr && reterr->reason[0])
		return r;
	field_error_set(reterr, path, "cannot be opened: %s", strerror(-r));
	return r;
}

/*
 * A query that sorts more than some MB needs a temporary file. In the hub's pod, only the directory
 * of the store's file has room for one. SQLite has one setting for this per process, and a process
 * has one store. If the directory does not exist any more, SQLite uses its next choice.
 * https://www.sqlite.org/c3ref/temp_directory.html
 */
static void temp_files_in(const char *dir)
{
	sqlite3_mutex *lock;

	if (getenv("SQLITE_TMPDIR") || sqlite3_initialize() != SQLITE_OK)
		return;
	/* SQLite holds this mutex while it reads the variable */
	lock = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_VFS1);
	sqlite3_mutex_enter(lock);
	sqlite3_free(sqlite3_temp_directory);
	sqlite3_temp_directory = sqlite3_mprintf("%s", dir);
	sqlite3_mutex_leave(lock);
}

static int sqlite_open(const struct store_config *c, void **ret, struct field_error *reterr)
{
	struct sqlite_store *s = xcalloc(1, sizeof(*s));
	bool memory = streq(c->path, ":memory:");
	int r = 0;

	if (reterr)
		*reterr = (struct field_error){0};
	store_keeps_begin(&s->keeps, c);
	s->max_bytes = c->max_bytes;
	s->expire_ns = EXPIRE_NS;
	s->names_bytes = NAMES_BYTES;
	s->large_bytes = LARGE_BYTES;
	s->series_values = SERIES_VALUES;
	s->block_stacks = BLOCK_STACKS;
	store_seen_forget(s); /* empties the cache and draws its seeds */
	s->stats_lock = sqlite3_mutex_alloc(SQLITE_MUTEX_FAST);
	if (!memory) {
		s->file = xasprintf("%s/%s", c->path, FILE_NAME);
		r = mkdir_parents(c->path, 0700);
		temp_files_in(c->path);
	}
	store_readers_init(s);
	store_clusters_begin(s, c->clusters, c->n_clusters);
	s->own_cluster = c->own_cluster && *c->own_cluster ? xstrdup(c->own_cluster) : NULL;
	if (!r)
		r = store_sq_connect(s, reterr);
	if (r == -EBADMSG)
		r = store_damage_found(s);
	/* The store starts all the same: each write tries to open the file again. */
	if (r == -ENOSPC || r == -EROFS || r == -EIO) {
		store_sq_set_error(s, FILE_NAME " cannot be opened: %s", strerror(-r));
		store_sq_set_failed(s, true);
		r = 0;
	}
	if (r) {
		open_error(r, c->path, reterr);
		sqlite_close(s);
		return r;
	}
	store_clusters_fix(s);
	*ret = s;
	return 0;
}

void store_sqlite_stats(void *sink, struct store_stats *ret)
{
	struct sqlite_store *s = sink;

	sqlite3_mutex_enter(s->stats_lock);
	*ret = s->stats;
	sqlite3_mutex_leave(s->stats_lock);
}

const struct sink_ops store_sqlite_sink = {
	.kind = "sqlite",
	.open = sqlite_open,
	.close = sqlite_close,
	.clusters = store_sqlite_clusters,
	.write = store_sqlite_write,
	.read = store_sqlite_read,
	.series = store_sqlite_series,
	.choices = store_sqlite_choices,
	.namespaces = store_sqlite_namespaces,
	.oldest = store_sqlite_oldest,
	.pods = store_sqlite_pods,
	.expire = store_sqlite_expire,
	.stats = store_sqlite_stats,
	.cut = store_sqlite_cut,
	.backup = store_sqlite_backup,
	.export = store_sqlite_export,
};
