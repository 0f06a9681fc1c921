/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's answer to a disk that is full before the file reaches store.max_bytes: it deletes
 * profiles as if the size of the disk were the limit (sqlite_shares.c). Deleting needs room, too,
 * because SQLite first writes the changed pages to its -wal. So the store keeps a second file as a
 * reserve, and deletes that first.
 */
#include "hub/store/sqlite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_BYTES (64ULL << 20) /* size of the reserve on a large disk */
#define RESERVE_SHARE 8 /* size of the reserve on a small disk: 1/8 of the disk or of max_bytes */

static char *reserve_path(const struct sqlite_store *s)
{
	/* a name that SQLite uses for none of its files */
	return xasprintf("%.*s/reserve", (int)(strrchr(s->file, '/') - s->file), s->file);
}

/*
 * *ret_free: bytes that the hub may still write on the file system. *ret_reserve: the size of a
 * reserve on this file system.
 */
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

	/* after the reserve is made, the next write must still have room on the disk */
	if (!path || disk_bytes(s, &free_bytes, &reserve) || free_bytes <= reserve + reserve / 2)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) /* the reserve exists; or the disk is full, which the next write reports */
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
 * Whether fewer than n reserves fit in the free space: on the disk and in free pages of the file.
 * One reserve is to be kept, the others are room for the next writes. If the store itself uses no
 * more than the size of two reserves, something else fills the disk, so the store deletes nothing.
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
 * Gives free pages of the file back to the file system until n reserves fit on the disk. Then makes
 * the reserve again, if it leaves room for the write that failed. The pages go back a part at a
 * time, because moving them needs room, too.
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
		 "profiles of the namespaces that have more than their share were deleted",
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
		r = r == -ENOSPC ? 0 : r; /* some profiles were deleted, though fewer than wanted */
	}
	if (!r)
		keep_again(s, n_reserves, deadline_ns);
	return r;
}
