/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who goes when there is no room: of those whose files take more than a fair share the least
 * recently used, so that one container with large files, or many, pushes out its own. A file is its
 * owner's, who had it parsed first; equal indexes are shared, and so is what they take.
 */
#include "node/files/internal.h"

#include <stdlib.h>

#define FILES_MAX 65536
/* So much more goes at once, as a part of the limit: adding up all files must not come too often. */
#define SPARE 16

struct share { /* what the files of an owner take */
	uint64_t owner;
	size_t taken;
	UT_hash_handle hh;
};
/* Of what there is a limit: bytes, or entries. */
struct room {
	size_t (*taken_by)(const struct file *x);
	size_t (*all)(const struct files *f);
};

static size_t bytes_taken_by(const struct file *x)
{
	return x->image ? image_bytes(x->image) / x->image->refs : 0;
}

static size_t all_bytes(const struct files *f)
{
	return f->bytes;
}

static const struct room bytes_room = {bytes_taken_by, all_bytes};

/* Failed ones hold no bytes, and must not be tried again too soon. */
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

static struct share *shares_of(const struct files *f, const struct room *room)
{
	struct share *shares = NULL, *s;

	for (const struct file *x = f->by_key; x; x = x->hh.next) {
		HASH_FIND(hh, shares, &x->owner, sizeof(x->owner), s);
		if (!s) {
			s = xcalloc(1, sizeof(*s));
			s->owner = x->owner;
			HASH_ADD(hh, shares, owner, sizeof(s->owner), s);
		}
		s->taken += room->taken_by(x);
	}
	return shares;
}

static int by_taken(const struct share *a, const struct share *b)
{
	return (a->taken > b->taken) - (a->taken < b->taken);
}

/* What each may take, so that all together take `most`: who takes less leaves the rest to the others. */
static size_t fair_share(struct share **shares, size_t most)
{
	size_t owners = HASH_COUNT(*shares);

	HASH_SORT(*shares, by_taken);
	for (const struct share *s = *shares; s; s = s->hh.next, owners--) {
		if (s->taken > most / owners)
			return most / owners;
		most -= s->taken;
	}
	return SIZE_MAX;
}

static void shares_done(struct share *shares)
{
	struct share *s, *next;

	HASH_ITER (hh, shares, s, next) {
		HASH_DEL(shares, s);
		free(s);
	}
}

/* shares: of those who take more than `fair` alone; NULL: of all. Never the one in use, which is the last. */
static void evict_down_to(struct files *f, const struct room *room, size_t most,
			  struct share *shares, size_t fair)
{
	struct file *x, *next;
	struct share *s;

	HASH_ITER (hh, f->by_key, x, next) {
		size_t taken = room->taken_by(x);

		if (!next || room->all(f) <= most)
			break;
		HASH_FIND(hh, shares, &x->owner, sizeof(x->owner), s);
		if (x->busy || !taken || (s && s->taken <= fair))
			continue;
		if (s)
			s->taken -= MIN(taken, s->taken);
		file_evict(f, x);
	}
}

static void trim(struct files *f, const struct room *room, size_t limit)
{
	size_t most = limit - limit / SPARE;
	struct share *shares;
	size_t fair;

	if (room->all(f) <= limit)
		return;
	shares = shares_of(f, room);
	fair = fair_share(&shares, most);
	evict_down_to(f, room, most, shares, fair);
	shares_done(shares);
	/* What one gives up of a shared index, the others take. */
	evict_down_to(f, room, limit, NULL, 0);
}

void files_trim(struct files *f)
{
	trim(f, &bytes_room, f->cache_bytes);
	trim(f, &entries_room, FILES_MAX);
	counter_set(f->bytes_gauge, f->bytes);
}
