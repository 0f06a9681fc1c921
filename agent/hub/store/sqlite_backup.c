/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a file while a hub writes it, page by page, as the file is when the copy begins. It
 * reads in one transaction. So until it ends, SQLite cannot use the -wal from its beginning again,
 * and the -wal grows by what the hub writes meanwhile: the copy fails if that is too much.
 */
#include "hub/store/sqlite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEP_PAGES 64
#define WAL_BYTES  (1ULL << 30) /* by which the -wal may grow */
/* what a copy on the hub's own disk leaves to the hub, apart from what is in use already */
#define LEAVE_BYTES (256ULL << 20)

static int open_file(const char *file, int flags, sqlite3 **ret)
{
	sqlite3 *db = NULL;
	int64_t n;
	int r = store_sq_open(file, flags | SQLITE_OPEN_NOMUTEX, &db);

	if (!r) /* opens the file and its -wal */
		r = store_sq_int(db, "SELECT COUNT(*) FROM sqlite_schema", &n);
	if (r)
		sqlite3_close_v2(db);
	else
		*ret = db;
	return r;
}

/* A file that no hub can be using, because its directory cannot be written. */
static int open_immutable(const char *file, sqlite3 **ret)
{
	_cleanup_free_ char *wal = xasprintf("%s-wal", file);
	_cleanup_buf_ struct buf uri = {0};
	struct stat st;

	if (stat(wal, &st) == 0 && st.st_size > 0)
		return -EROFS;
	buf_puts(&uri, "file:");
	url_encode(&uri, file);
	buf_puts(&uri, "?immutable=1");
	return open_file(uri.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, ret);
}

int store_sq_open_read_only(const char *dir, sqlite3 **ret)
{
	_cleanup_free_ char *file = xasprintf("%s/" FILE_NAME, dir);
	int r;

	if (access(file, R_OK) < 0)
		return -errno;
	r = open_file(file, SQLITE_OPEN_READONLY, ret);
	/* without a -wal, SQLite makes one, also to read */
	return r && access(dir, W_OK) < 0 ? open_immutable(file, ret) : r;
}

/* ---- the copy ---- */

struct copying {
	sqlite3 *from, *to;
	char *wal, *file;   /* the -wal of the one, the file of the other */
	uint64_t wal_bytes; /* when the copy began */
};

static uint64_t bytes_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Whether there is room for the copy. Called in the transaction. */
static int check_room(sqlite3 *db, const char *from, const char *to, struct field_error *reterr)
{
	uint64_t need, have;
	int64_t pages = 0, page_bytes = 0;
	struct stat a, b;
	struct statvfs disk;
	int r = store_sq_int(db, "PRAGMA page_count", &pages);

	if (!r)
		r = store_sq_int(db, "PRAGMA page_size", &page_bytes);
	if (!r && (stat(from, &a) < 0 || stat(to, &b) < 0 || statvfs(to, &disk) < 0))
		r = -errno;
	if (r)
		return r;
	need = (uint64_t)(pages * page_bytes) + (a.st_dev == b.st_dev ? LEAVE_BYTES : 0);
	have = (uint64_t)disk.f_bavail * disk.f_frsize;
	return have >= need ? 0
			    : field_error_set(reterr, to,
					      "a copy needs %llu MiB of disk, and %llu are free",
					      (unsigned long long)(need >> 20),
					      (unsigned long long)(have >> 20));
}

static int copy_pages(struct copying *c, store_progress_fn *fn, void *arg,
		      struct field_error *reterr)
{
	sqlite3_backup *b = sqlite3_backup_init(c->to, "main", c->from, "main");
	int rc = b ? SQLITE_OK : sqlite3_errcode(c->to), r = 0;

	while (!r && rc == SQLITE_OK) {
		rc = sqlite3_backup_step(b, STEP_PAGES);
		if (fn)
			fn((uint64_t)(sqlite3_backup_pagecount(b) - sqlite3_backup_remaining(b)),
			   (uint64_t)sqlite3_backup_pagecount(b), arg);
		if (bytes_of(c->wal) > c->wal_bytes + WAL_BYTES)
			r = field_error_set(reterr, c->wal,
					    "grew by %llu MiB while the copy was made: copy to a "
					    "faster disk",
					    WAL_BYTES >> 20);
	}
	sqlite3_backup_finish(b);
	return r ?: store_sq_errno(rc);
}

static int copy(struct copying *c, const char *from, const char *to, store_progress_fn *fn,
		void *arg, struct field_error *reterr)
{
	int64_t n;
	int r = store_sq_open_read_only(from, &c->from);

	/* the transaction sees the file as it is at its first read */
	if (!r)
		r = store_sq_exec(c->from, "BEGIN");
	if (!r)
		r = store_sq_int(c->from, "SELECT COUNT(*) FROM sqlite_schema", &n);
	c->wal_bytes = bytes_of(c->wal);
	if (!r)
		r = check_room(c->from, from, to, reterr);
	if (!r)
		r = store_sq_open(c->file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &c->to);
	/* the copy counts only when it is whole, so it needs no journal */
	if (!r)
		r = store_sq_exec(c->to, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF");
	return r ?: copy_pages(c, fn, arg, reterr);
}

static void copying_close(struct copying *c)
{
	sqlite3_close_v2(c->from);
	sqlite3_close_v2(c->to);
	c->from = c->to = NULL;
}

static void copying_done(struct copying *c)
{
	copying_close(c);
	free(c->wal);
	free(c->file);
}

/* Checks the copy, and that it is on the disk. */
static int finish(const char *file)
{
	_cleanup_close_ int fd = -1;
	sqlite3 *db = NULL;
	int r = store_sq_open(file, SQLITE_OPEN_READWRITE, &db);

	if (!r)
		r = store_sq_exec(db, "PRAGMA journal_mode=WAL");
	if (!r)
		r = store_sq_check(db);
	/* SQLite's locks are released before the file is opened without it */
	if (sqlite3_close(db) != SQLITE_OK && !r)
		r = -EIO;
	if (r)
		return r;
	fd = open(file, O_RDONLY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int store_sqlite_backup(const struct store_config *c, const char *to, store_progress_fn *fn,
			void *arg, struct field_error *reterr)
{
	_cleanup_(copying_done) struct copying x = {
		.wal = xasprintf("%s/" FILE_NAME "-wal", c->path),
		.file = xasprintf("%s/" FILE_NAME, to)};
	int r;

	if (access(x.file, F_OK) == 0)
		return field_error_set(reterr, x.file, "is there already");
	r = copy(&x, c->path, to, fn, arg, reterr);
	copying_close(&x);
	if (!r)
		r = finish(x.file);
	if (r == -EBADMSG)
		field_error_set(reterr, c->path, FILE_NAME " is damaged");
	else if (r && !*reterr->reason)
		field_error_set(reterr, c->path, FILE_NAME " cannot be copied: %s", strerror(-r));
	return r;
}
