/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that is full before store.max_bytes are reached. The oldest profiles go, as if what the
 * disk holds were the limit. To delete takes room, too (SQLite writes the pages it changes to its
 * -wal first), so some is kept in a file beside the store's and given up for that.
 */
#include "hub/store/sqlite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_BYTES (64ULL << 20) /* of a large disk, */
#define RESERVE_SHARE 8		    /* and at most that part of a small one, and of max_bytes */

static char *reserve_path(const struct sqlite_store *s)
{
	/* not called as SQLite's own files are */
	return xasprintf("%.*s/reserve", (int)(strrchr(s->file, '/') - s->file), s->file);
}

/* What the file system has for us, and how large a reserve on it is. */
static int disk_bytes(const struct sqlite_store *s, uint64_t *ret_free, uint64_t *ret_reserve)
{
	struct statvfs disk;

	if (statvfs(s->file, &disk) < 0)
		return -errno;
	*ret_free = (uint64_t)disk.f_bavail * disk.f_frsize;
	*ret_reserve = MIN(RESERVE_BYTES, (uint64_t)disk.f_blocks * disk.f_frsize / RESERVE_SHARE);
	if (s->max_bytes)
		*ret_reserve = MIN(*ret_reserve, s->max_bytes / RESERVE_SHARE);
	return 0;
}

void store_room_keep(struct sqlite_store *s)
{
	_cleanup_free_ char *path = s->file ? reserve_path(s) : NULL;
	uint64_t free_bytes, reserve;
	int fd;

	/* what a write needs beside it stays free */
	if (!path || disk_bytes(s, &free_bytes, &reserve) || free_bytes <= reserve + reserve / 2)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) /* it is there; or the disk is worse than full, and the next write says so */
		return;
	if (posix_fallocate(fd, 0, (off_t)reserve))
		unlink(path);
	close(fd);
}

bool store_room_give_up(struct sqlite_store *s)
{
	_cleanup_free_ char *path = s->file ? reserve_path(s) : NULL;

	return path && unlink(path) == 0;
}

/* Pages that wait in the -wal go into the file, and it begins again. */
static void checkpoint(struct sqlite_store *s)
{
	(void)store_sq_exec(s->writer, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/*
 * Room for so many reserves, on the disk or in the file: the one that is kept, and the others for
 * what comes. A store that is not larger than two is not what fills the disk: it keeps what it has.
 */
static int is_short(struct sqlite_store *s, void *arg, bool *ret)
{
	const unsigned *n_reserves = arg;
	uint64_t used = 0, in_file = 0, on_disk = 0, reserve = 0;
	int r;

	checkpoint(s);
	r = store_sq_bytes(s, &used, &in_file);
	if (!r)
		r = disk_bytes(s, &on_disk, &reserve);
	*ret = in_file + on_disk < *n_reserves * reserve && used > 2 * reserve;
	return r;
}

/*
 * The reserve once more, where the others are left for the write that is tried again; free pages
 * are given back for both, a part at a time: to move them takes room, too.
 */
static void keep_again(struct sqlite_store *s, unsigned n_reserves, uint64_t deadline_ns)
{
	uint64_t used, in_file, on_disk, reserve;

	for (unsigned i = 0; i < n_reserves * RESERVE_SHARE && now_mono_ns() < deadline_ns; i++) {
		if (disk_bytes(s, &on_disk, &reserve) || on_disk >= n_reserves * reserve ||
		    store_sq_bytes(s, &used, &in_file) || in_file == 0 ||
		    store_sq_vacuum(s, reserve / RESERVE_SHARE))
			break;
		checkpoint(s);
	}
	store_room_keep(s);
}

static void tell(struct sqlite_store *s)
{
	char when[32];

	time_format(now_wall_ns(), when);
	snprintf(s->room_note, sizeof(s->room_note),
		 "the disk was full at %s, before store.max_bytes were reached: the oldest "
		 "profiles were deleted",
		 when);
	store_sq_tell_notes(s);
}

int store_room_make(struct sqlite_store *s, unsigned n_reserves)
{
	uint64_t n_expired = s->stats.n_expired, deadline_ns = now_mono_ns() + s->expire_ns;
	bool more = false;
	int r;

	if (!s->file || !s->writer)
		return -ENOSPC;
	(void)store_room_give_up(s);
	r = store_expire_tenths(s, is_short, &n_reserves, "disk_full", deadline_ns, &more);
	if (n_expired != s->stats.n_expired) {
		tell(s);
		r = r == -ENOSPC ? 0 : r; /* not all that is wanted, but some */
	}
	if (!r)
		keep_again(s, n_reserves, deadline_ns);
	return r;
}
