/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the contents of the kernel's filter from the judged cgroups. If these are more than the
 * filter can hold, each container gets an equal share of it, and fills the share with its oldest
 * cgroups: its own one first. So a container with many cgroups takes no room from another one.
 */
#include "node/proc/internal.h"

#include <stdlib.h>
#include <uthash.h>

struct share {
	uint64_t of; /* the id of the container's own cgroup */
	size_t n, room, n_taken;
	UT_hash_handle hh;
};

static bool is_selected(const struct known_container *k)
{
	return k->filter.event_mask != 0;
}

static void take(struct containers *p, const struct known_container *k)
{
	GROW(p->filter, p->n_filter, p->cap_filter);
	p->filter[p->n_filter] = k->filter;
	p->filter[p->n_filter++].cgroup_id = k->id;
}

static struct share *share_of(struct share **shares, uint64_t of)
{
	struct share *s;

	HASH_FIND(hh, *shares, &of, sizeof(of), s);
	if (s)
		return s;
	s = xcalloc(1, sizeof(*s));
	s->of = of;
	HASH_ADD(hh, *shares, of, sizeof(s->of), s);
	return s;
}

static int by_size(const struct share *a, const struct share *b)
{
	return (a->n > b->n) - (a->n < b->n);
}

/* Divides the room: what a small container does not need is for the larger ones. */
static void divide(struct share **shares)
{
	size_t left = CONTAINERS_FILTER_MAX, n_left = HASH_COUNT(*shares);

	HASH_SRT(hh, *shares, by_size);
	for (struct share *s = *shares; s; s = s->hh.next) {
		s->room = MIN(s->n, left / n_left);
		left -= s->room;
		n_left--;
	}
}

static void note_cut(struct containers *p, const struct share *s)
{
	if (s->n == s->room)
		return;
	GROW(p->cuts, p->n_cuts, p->cap_cuts);
	p->cuts[p->n_cuts++] = s->of;
}

static void take_shares(struct containers *p)
{
	struct share *shares = NULL, *s, *next;

	for (const struct known_container *k = p->known; k; k = k->hh.next)
		if (is_selected(k))
			share_of(&shares, k->of)->n++;
	divide(&shares);
	for (const struct known_container *k = p->known; k; k = k->hh.next) {
		if (!is_selected(k))
			continue;
		s = share_of(&shares, k->of);
		if (s->n_taken++ < s->room)
			take(p, k);
	}
	HASH_ITER (hh, shares, s, next) {
		note_cut(p, s);
		HASH_DEL(shares, s);
		free(s);
	}
}

void proc_filter_build(struct containers *p)
{
	size_t n = 0;

	p->n_cuts = p->n_filter = 0;
	for (const struct known_container *k = p->known; k; k = k->hh.next)
		n += is_selected(k);
	if (n > CONTAINERS_FILTER_MAX) {
		take_shares(p);
		return;
	}
	for (const struct known_container *k = p->known; k; k = k->hh.next)
		if (is_selected(k))
			take(p, k);
}
