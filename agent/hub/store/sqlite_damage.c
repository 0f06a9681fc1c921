/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's answer to a damaged file, and to a disk that is full or read-only. It renames a
 * damaged file, never deletes it, reports the new name, and starts an empty file. If the disk
 * refuses writes, the store reports that and keeps the file, and each write tries again.
 */
#include "hub/store/sqlite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_SAME_SECOND 100 /* damaged files with the time of one second; the last is replaced */
#define LEAST_FREE_BYTES                                                                           \
	(64u << 10) /* SQLite makes a -shm of 32 KiB or more when it opens a file */
#define DOUBT_NS (600 * NSEC_PER_SEC)

/*
 * Returns 0 if a file can be made in the directory, else -errno. A failed file system may still
 * allow everything else, so only the attempt to make a file shows the failure.
 */
static int takes_files(const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return 0;
	/* not every file system supports O_TMPFILE */
	if ((errno == EOPNOTSUPP || errno == EISDIR) && access(dir, W_OK) == 0)
		return 0;
	return -errno;
}

static char *folder(const struct sqlite_store *s)
{
	char *dir = xstrdup(s->file);

	*strrchr(dir, '/') = '\0';
	return dir;
}

int store_damage_of_disk(const struct sqlite_store *s, int error)
{
	_cleanup_free_ char *dir = s->file ? folder(s) : NULL;
	struct statvfs disk;

	if (!dir || (error != -EIO && error != -EACCES))
		return error;
	if (takes_files(dir) == -EROFS)
		return -EROFS;
	if (statvfs(dir, &disk) == 0 && disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES)
		return -ENOSPC;
	return error;
}

/*
 * Returns the new name for a damaged file: it contains the time and, if a file with this time
 * exists already, a number.
 */
static char *aside_name(const char *file)
{
	_cleanup_free_ char *first = NULL;
	char when[32], *name;

	time_format(now_wall_ns(), when);
	first = xasprintf("%s.damaged-%s", file, when);
	name = xstrdup(first);
	for (int i = 2; i <= MAX_SAME_SECOND && access(name, F_OK) == 0; i++) {
		free(name);
		name = xasprintf("%s.%d", first, i);
	}
	return name;
}

/* Renames the file with this suffix. It is no error if the file (a -wal or -shm) does not exist. */
static int move(const char *file, const char *to_file, const char *suffix)
{
	_cleanup_free_ char *from = xasprintf("%s%s", file, suffix);
	_cleanup_free_ char *to = xasprintf("%s%s", to_file, suffix);

	return rename(from, to) < 0 && errno != ENOENT ? -errno : 0;
}

/*
 * Renames the database file itself last, after its -wal. If the hub is killed between the two
 * renames, the next start finds the damage again.
 */
static int set_aside(struct sqlite_store *s)
{
	_cleanup_free_ char *name = aside_name(s->file);
	int r;

	r = move(s->file, name, "-wal");
	if (!r)
		r = move(s->file, name, "-shm");
	if (!r)
		r = move(s->file, name, "");
	if (r) { /* this also fails if the file system is read-only */
		store_sq_set_error(s, FILE_NAME " is damaged and cannot be renamed: %s",
				   strerror(-r));
		return r;
	}
	counter_add(counter("store_damaged_total", NULL, NULL), 1);
	r = store_sq_connect(s, NULL);
	snprintf(s->damage_note, sizeof(s->damage_note),
		 FILE_NAME " was damaged. The hub renamed it to %s and began an empty store",
		 strrchr(name, '/') + 1);
	store_sq_tell_notes(s);
	return r;
}

/*
 * Returns -errno if the file cannot be read, else 0. Call this while SQLite does not have the file
 * open: the close() here would release SQLite's locks.
 */
static int unreadable(const char *file)
{
	_cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC);
	char begin[16];

	return fd < 0 || pread(fd, begin, sizeof(begin), 0) < 0 ? -errno : 0;
}

/*
 * SQLite also reports damage when the disk could not read for a moment (vdbe.c makes SQLITE_CORRUPT
 * of SQLITE_IOERR_CORRUPTFS). That is no reason to start an empty file. So at the first report the
 * store only opens the file again. It believes a second report within DOUBT_NS.
 */
int store_damage_found(struct sqlite_store *s)
{
	uint64_t now_ns = now_mono_ns();
	bool again = s->doubted_ns && now_ns < s->doubted_ns + DOUBT_NS;
	int r;

	/*
	 * a query may also have found damage in this file: do not apply that report to the next
	 * file
	 */
	atomic_store(&s->damaged, false);
	if (!s->file)
		return -EBADMSG;
	store_sq_disconnect(s);
	r = unreadable(s->file);
	if (r)
		return store_damage_of_disk(s, r);
	s->doubted_ns = again ? 0 : now_ns;
	r = again ? -EBADMSG : store_sq_connect(s, NULL);
	if (r != -EBADMSG)
		return r;
	s->doubted_ns = 0;
	return set_aside(s);
}

static int connect_again(struct sqlite_store *s)
{
	int r;

	store_sq_disconnect(s);
	r = store_sq_connect(s, NULL);
	s->stale = false;
	return r == -EBADMSG ? store_damage_found(s) : r;
}

int store_damage_ready(struct sqlite_store *s)
{
	_cleanup_free_ char *dir = s->stale ? folder(s) : NULL;
	int r = dir ? takes_files(dir) : 0;

	if (r) /* queries can still read the open file */
		return r;
	if (s->writer && !s->stale && !atomic_load(&s->damaged))
		return 0;
	store_readers_pause(s);
	r = atomic_load(&s->damaged) ? store_damage_found(s) : connect_again(s);
	store_readers_resume(s);
	return r;
}

int store_damage_recover(struct sqlite_store *s, int error)
{
	int r;

	error = store_damage_of_disk(s, error);
	s->stale |= (error == -EROFS || error == -EIO) && s->file;
	if (error != -EBADMSG || !s->writer)
		return error;
	store_readers_pause(s);
	r = store_damage_found(s);
	store_readers_resume(s);
	return r;
}
