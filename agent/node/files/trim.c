/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file evicts entries when the cache has no room. It evicts the least recently used files of
 * owners that take more than a fair share. So a container with large or many files causes the
 * eviction of its own files. A file belongs to the owner that had it parsed first. If files have
 * equal indexes, their owners share the cost. The file in use stays, even if it is larger than the
 * whole cache; then all other files are evicted.
 */
#include "node/files/internal.h"

#include <stdlib.h>

#define FILES_MAX 65536 /* files in the cache of the node */
/*
 * Files are evicted until 1/16 of the limit is free, because adding up all files is slow and must
 * not be needed again soon.
 */
#define SPARE 16
/*
 * A file that was not used for this time counts as a file without an owner: its owner may not exist
 * any more, and must not take a share from other owners.
 */
#define IDLE_NS (600 * NSEC_PER_SEC)

struct trim_share { /* how much the files of an owner take */
	uint64_t owner;
	size_t taken;
	UT_hash_handle hh;
};
/* How to measure one of the things that have a limit: bytes, entries, bytes of copies. */
struct room {
	size_t (*taken_by)(const struct file *x);
	size_t (*all)(const struct files *f);
};

/*
 * A file that could not be parsed takes no bytes. Its entry stays, so that the file is not tried
 * again too soon.
 */
static size_t bytes_taken_by(const struct file *x)
{
	return x->image ? files_image_bytes(x->image) / x->image->refs : 0;
}

static size_t all_bytes(const struct files *f)
{
	return f->bytes;
}

static const struct room bytes_room = {bytes_taken_by, all_bytes};

static size_t entries_taken_by(const struct file *x)
{
	(void)x;
	return 1;
}

static size_t all_entries(const struct files *f)
{
	return HASH_COUNT(f->by_key);
}

static const struct room entries_room = {entries_taken_by, all_entries};

static size_t copy_bytes_taken_by(const struct file *x)
{
	return x->copy_bytes;
}

static size_t all_copy_bytes(const struct files *f)
{
	return f->copy_bytes;
}

static const struct room copies_room = {copy_bytes_taken_by, all_copy_bytes};

struct trimming {
	struct files *files;
	const struct room *room;
	uint64_t now_ns;
	struct trim_share *shares;
};

static struct trim_share *share_of(const struct trimming *t, uint64_t owner)
{
	struct trim_share *s;

	HASH_FIND(hh, t->shares, &owner, sizeof(owner), s);
	return s;
}

static uint64_t owner_of(const struct trimming *t, const struct file *x)
{
	return t->now_ns - x->used_ns < IDLE_NS ? x->owner : 0;
}

static void add_up(struct trimming *t)
{
	struct trim_share *s;

	for (const struct file *x = t->files->by_key; x; x = x->hh.next) {
		uint64_t owner = owner_of(t, x);

		s = share_of(t, owner);
		if (!s) {
			s = xcalloc(1, sizeof(*s));
			s->owner = owner;
			HASH_ADD(hh, t->shares, owner, sizeof(s->owner), s);
		}
		s->taken += t->room->taken_by(x);
	}
}

static int by_taken(const struct trim_share *a, const struct trim_share *b)
{
	return (a->taken > b->taken) - (a->taken < b->taken);
}

/*
 * Returns how much each owner may take, so that all together take `most`. What an owner does not
 * use of its share is divided among the other owners.
 */
static size_t fair_share(struct trimming *t, size_t most)
{
	size_t owners = HASH_COUNT(t->shares);

	HASH_SORT(t->shares, by_taken);
	for (const struct trim_share *s = t->shares; s; s = s->hh.next, owners--) {
		if (s->taken > most / owners)
			return most / owners;
		most -= s->taken;
	}
	return SIZE_MAX;
}

/*
 * Returns whether the file's owner takes too much. If so, subtracts the file's part from what the
 * owner takes.
 */
static bool gives_way(const struct trimming *t, const struct file *x, size_t taken, size_t fair)
{
	struct trim_share *s = share_of(t, owner_of(t, x));

	if (s->taken <= fair)
		return false;
	s->taken -= MIN(taken, s->taken);
	return true;
}

/*
 * Evicts files until all take at most `most`. fair: how much each owner may keep; 0: any file may
 * be evicted. The last entry, which is in use, stays.
 */
static void evict_down_to(struct trimming *t, size_t most, size_t fair)
{
	struct file *x, *next;

	HASH_ITER (hh, t->files->by_key, x, next) {
		size_t taken = t->room->taken_by(x);

		if (!next || t->room->all(t->files) <= most)
			break;
		if (!x->busy && taken && (!fair || gives_way(t, x, taken, fair)))
			files_file_evict(t->files, x);
	}
}

static void shares_done(struct trimming *t)
{
	struct trim_share *s, *next;

	HASH_ITER (hh, t->shares, s, next) {
		HASH_DEL(t->shares, s);
		free(s);
	}
}

static void trim(struct files *f, const struct room *room, size_t limit)
{
	struct trimming t = {.files = f, .room = room};
	size_t most = limit - limit / SPARE;

	if (room->all(f) <= limit)
		return;
	t.now_ns = now_mono_ns();
	add_up(&t);
	evict_down_to(&t, most, fair_share(&t, most));
	shares_done(&t);
	/*
	 * The files may still take more than the limit, for two reasons. If several files share an
	 * index, evicting one of them does not free the index. And the file in use stays, even if
	 * it alone is as large as the limit. So now any other file may be evicted, even if its
	 * owner takes no more than its share.
	 */
	evict_down_to(&t, limit, 0);
}

void files_trim(struct files *f)
{
	trim(f, &bytes_room, f->cache_bytes);
	trim(f, &entries_room, FILES_MAX);
	trim(f, &copies_room, MEMORY_FILES_BYTES_MAX);
	counter_set(f->bytes_gauge, f->bytes);
}
