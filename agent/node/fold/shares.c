/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts how many bytes of the open window each container uses. A pod can have names of any length.
 * So each container has a limit, and samples of other pods still fit. Links have limits of their
 * own, of which each namespace has a share: a pod can have as many links as samples.
 */
#include "node/fold/internal.h"

#include <stdlib.h>

/*
 * A container may use half of the bytes that the other containers do not use. So there are always
 * some bytes left for a new container. If a container is alone, it may use half of the window.
 */
#define SHARE_PART 2
/* samples keep their labels while their container uses at most a quarter of these bytes */
#define LABELLED_PART 4
/* limit of the bytes of samples with a link in one window: about 18,000 samples */
#define LINKED_BYTES (4u << 20)

static size_t window_bytes(const struct fold *f)
{
	return profile_batch_bytes(f->batch) + f->sample_bytes;
}

static struct share *find(struct fold *f, const struct owner *owner)
{
	struct share *s;

	HASH_FIND(hh, f->shares, &owner, sizeof(owner), s);
	return s;
}

/* Whether a container uses at most 1/part of the bytes that the other containers do not use. */
static bool has_room(const struct fold *f, const struct share *s, size_t part)
{
	size_t used = window_bytes(f), others = used - MIN(used, s->bytes);

	return others < BATCH_MAX_BYTES && s->bytes <= (BATCH_MAX_BYTES - others) / part;
}

bool fold_begin(struct fold *f, struct owner *owner)
{
	struct share *s = owner ? find(f, owner) : NULL;

	if (!owner)
		return true;
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->owner = proc_owner_ref(owner);
		HASH_ADD(hh, f->shares, owner, sizeof(s->owner), s);
	}
	f->charged = s;
	f->bytes_before = window_bytes(f);
	return has_room(f, s, SHARE_PART);
}

bool fold_may_label(const struct fold *f)
{
	return !f->charged || has_room(f, f->charged, LABELLED_PART);
}

void fold_end(struct fold *f)
{
	size_t now = window_bytes(f);

	if (f->charged)
		f->charged->bytes +=
			/* the window is smaller now if a new snapshot has replaced a larger one */
			now - MIN(now, f->bytes_before);
	f->charged = NULL;
}

static uint64_t ns_of(const struct owner *owner)
{
	return owner ? owner->ns_hash : 0;
}

/* Returns 0 if the namespace has used up its share of links. */
static uint32_t new_link(struct fold *f, uint64_t ns, const struct profile_link *l)
{
	uint32_t link;

	if (!shares_may_add(&f->links, ns, BATCH_MAX_LINKS) ||
	    profile_batch_link(f->batch, l, &link) < 0)
		return 0;
	shares_add(&f->links, ns);
	return link;
}

bool fold_link(struct fold *f, const struct profile_entry *e, const struct profile_link *l,
	       struct profile_sample *s)
{
	const uint64_t ns = ns_of(e->owner);

	s->link = profile_batch_find_link(f->batch, l);
	if (s->link && fold_has_sample(e, s)) /* so it needs nothing more */
		return true;
	if (!shares_may_add(&f->linked, ns, LINKED_BYTES / FOLD_ENTRY_BYTES))
		s->link = 0;
	else if (!s->link)
		s->link = new_link(f, ns, l);
	if (!s->link)
		shares_add(&f->unlinked, ns);
	return s->link;
}

void fold_add_linked(struct fold *f, const struct owner *owner)
{
	shares_add(&f->linked, ns_of(owner));
}

void fold_remove_linked(struct fold *f, const struct owner *owner)
{
	shares_remove(&f->linked, ns_of(owner));
}

void fold_unlinked(struct fold *f, struct shares *to)
{
	shares_move_owners(to, &f->unlinked);
}

void fold_forget_shares(struct fold *f)
{
	struct share *s, *next;

	HASH_ITER (hh, f->shares, s, next) {
		HASH_DEL(f->shares, s);
		proc_owner_unref(s->owner);
		free(s);
	}
	f->charged = NULL;
	shares_done(&f->linked);
	shares_done(&f->links);
}
