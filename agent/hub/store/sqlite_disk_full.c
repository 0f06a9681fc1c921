/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store does when the disk is full before the store has store.max_bytes: it deletes the
 * oldest profiles, as if the size of the disk were the limit. Deleting takes room, too, because
 * SQLite first writes the changed pages to its -wal. So the store keeps a file as a reserve beside
 * its own, and deletes that first.
 */
#include "hub/store/sqlite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_BYTES (64ULL << 20) /* on a large disk; */
#define RESERVE_SHARE 8		    /* else 1/8 of the disk or of max_bytes */

static char *reserve_path(const struct sqlite_store *s)
{
	/* must not be named like a file of SQLite */
	return xasprintf("%.*s/reserve", (int)(strrchr(s->file, '/') - s->file), s->file);
}

/* How much the file system has free for the hub, and how large a reserve on it is. */
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

	/* leave free what the next write needs beside the reserve */
	if (!path || disk_bytes(s, &free_bytes, &reserve) || free_bytes <= reserve + reserve / 2)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) /* the reserve exists; or the disk is so full that the next write reports it */
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

/* Writes the pages in the -wal to the file and empties the -wal. */
static void checkpoint(struct sqlite_store *s)
{
	(void)store_sq_exec(s->writer, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/*
 * Whether there is no room for n reserves, on the disk or in free pages of the file: one to keep,
 * the others for the next writes. A store that is not larger than two reserves is not what fills
 * the disk, so it keeps what it has.
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
 * Makes the reserve again, if room for the others is left: the failed write needs it. For both,
 * free pages go back to the file system a part at a time, because moving them takes room, too.
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
		r = r == -ENOSPC ? 0 : r; /* fewer than wanted, but some */
	}
	if (!r)
		keep_again(s, n_reserves, deadline_ns);
	return r;
}
