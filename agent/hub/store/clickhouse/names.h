/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to cache.c and names.c: stacks and frames that the hub has read, by their ids. None of
 * them changes once it is made.
 */
#pragma once

#include "hub/store/clickhouse/clickhouse.h"

#include <uthash.h>

/* One piece of memory, with its texts. The fields below the line are the cache's. */
struct kept_frame {
	struct frame frame; /* the first field: struct kept_stack points to it */
	uint64_t id;
	size_t bytes;
	/* ---- */
	bool shared;	/* it is a part of the cache */
	size_t n_users; /* then: stacks of the cache, and readers */
	UT_hash_handle hh;
};
struct kept_stack {
	uint64_t id;
	size_t bytes;
	struct stack_head head;
	const char *labels[_LABEL_MAX];
	size_t n;
	union {				  /* one after the other, in the same place; root first */
		uint64_t *ids;		  /* as in the row */
		struct held_frame **held; /* while the reader asks for them */
		const struct frame **frames;
	};
	/* ---- */
	bool shared;
	size_t n_readers;		/* that hold it */
	struct kept_stack *prev, *next; /* while nobody holds it */
	UT_hash_handle hh;
};

/* ---- cache.c ---- */
/*
 * The stacks and frames of all readers together, within one budget. An id is a hash of what the
 * stack or frame says, so nothing here grows old. What no reader holds stays until others need the
 * room: the stack that was held longest ago goes first, and a frame with the last of its stacks.
 * What a reader holds stays where it is. Any thread.
 */
struct ch_cache *store_ch_cache_new(size_t max_bytes);
struct ch_cache *store_ch_cache_free(struct ch_cache *c); /* when there are no readers */

/* What one reader holds. It is used by one thread. */
struct ch_share {
	struct ch_cache *cache;
	size_t held; /* bytes; also of what others hold, too */
	size_t own;  /* those of them that are no part of the cache */
};
/*
 * Counts bytes that the reader is about to use for itself. -EFBIG: there is no room; or the reader
 * would hold more than all readers leave free.
 */
int store_ch_share_take(struct ch_share *s, size_t bytes);
/* How many bytes it could take now. Another reader may be faster. */
size_t store_ch_share_room(const struct ch_share *s);
void store_ch_share_end(struct ch_share *s); /* when it holds nothing of the cache any more */
/* *ret: the stack or frame, held by the reader; NULL: it is not there. -EFBIG: as above. */
int store_ch_share_find_stack(struct ch_share *s, uint64_t id, struct kept_stack **ret);
int store_ch_share_find_frame(struct ch_share *s, uint64_t id, struct kept_frame **ret);
/*
 * Makes what the reader has taken bytes for a part of the cache. Its id must be that of what it
 * says, and its frames must be parts of the cache. Returns what the reader holds from now on: if
 * another reader was faster, that one's, and x is freed.
 */
struct kept_stack *store_ch_share_put_stack(struct ch_share *s, struct kept_stack *x);
struct kept_frame *store_ch_share_put_frame(struct ch_share *s, struct kept_frame *x);
/* The reader holds it no more. If it is no part of the cache, it is freed. */
void store_ch_share_drop_stack(struct ch_share *s, struct kept_stack *x);
void store_ch_share_drop_frame(struct ch_share *s, struct kept_frame *x);
