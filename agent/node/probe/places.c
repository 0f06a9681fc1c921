/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places: which places of a process's files each program of a set will probe, and which of them are
 * probed already.
 */
#include "node/probe/sets.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- what is to be probed ---- */

enum uprobe_mode probes_mode_of(const struct attached *a)
{
	return a->tid == a->key.tgid ? a->set->uprobes->mode : UPROBE_SINGLE;
}

static bool is_for(enum uprobe_mode mode, enum site_probed probed, enum set_program program)
{
	bool session = mode == UPROBE_SESSION;

	switch (program) {
	case PROGRAM_FREE:
		return probed == PROBED_BY_FREE;
	case PROGRAM_RETURN:
		return probed == PROBED_AT_BOTH && !session;
	case PROGRAM_SESSION:
		return probed == PROBED_AT_BOTH && session;
	default:
		return probed == PROBED_AT_ENTRY || (probed == PROBED_AT_BOTH && !session);
	}
}

/* Makes the cookie of a site. The cookie contains what a hit of the site costs. */
static uint64_t cookie_of(struct uprobes *u, int fd, uint64_t place, struct pf_site site)
{
	uint8_t code[2];
	uint64_t cookie;

	if (pread(fd, code, sizeof(code), (off_t)place) == sizeof(code) &&
	    !probes_is_emulated(code)) {
		if (!u->stepped_more)
			u->stepped_more = probes_uprobe_stepped_more(u->mode);
		site.flags |= (uint16_t)(u->stepped_more << PF_SITE_FACTOR_BITS);
	}
	memcpy(&cookie, &site, sizeof(cookie));
	return cookie;
}

/*
 * Returns how the site is probed for these events. With UPROBE_SINGLE, functions that only query
 * something (PROBED_AS_QUERY) and objects (PROBED_AS_OBJECT) are not probed: the number of places
 * is limited, and each takes time.
 */
static enum site_probed probed_of(const struct attached *a, const struct pf_site *site,
				  unsigned event_mask)
{
	enum site_probed probed = a->set->ops->probed(site, event_mask);
	bool few = probes_mode_of(a) == UPROBE_SINGLE;

	if (probed == PROBED_AS_QUERY)
		return a->no_queries || few ? PROBED_NOT : PROBED_AT_BOTH;
	if (probed == PROBED_AS_OBJECT)
		return a->no_objects || few ? PROBED_NOT : PROBED_AT_ENTRY;
	return probed;
}

static void places_add(struct places *b, uint64_t offset, uint64_t cookie, uint64_t semaphore)
{
	b->u.offsets[b->u.n] = offset;
	b->u.cookies[b->u.n] = cookie;
	b->u.semaphores[b->u.n++] = semaphore;
}

static void places_make(const struct attached *a, const struct probe_file *file,
			enum set_program program, unsigned event_mask, struct places *b)
{
	const struct probe_set_state *set = a->set;
	enum uprobe_mode mode = probes_mode_of(a);
	struct stat st = {};

	fstat(file->fd, &st);
	b->program = program;
	b->dev = st.st_dev;
	b->ino = st.st_ino;
	b->u.prog = mode == UPROBE_SINGLE ? set->of_one[program] : set->of_many[program];
	b->u.attach_type = program == PROGRAM_SESSION ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI;
	b->u.at_return = program == PROGRAM_RETURN;
	b->u.pid = a->tid;
	snprintf(b->u.path, sizeof(b->u.path), "/proc/self/fd/%d", file->fd);
	b->u.offsets = xcalloc(file->n_sites + 1, sizeof(*b->u.offsets));
	b->u.cookies = xcalloc(file->n_sites + 1, sizeof(*b->u.cookies));
	b->u.semaphores = xcalloc(file->n_sites + 1, sizeof(*b->u.semaphores));
	for (size_t i = 0; i < file->n_sites; i++) {
		struct pf_site site;
		uint64_t at;

		memcpy(&site, &file->sites[i].cookie, sizeof(site));
		if (!is_for(mode, probed_of(a, &site, event_mask), program))
			continue;
		at = probes_emulated_place(file->fd, file->sites[i].file_offset);
		places_add(b, at, cookie_of(set->uprobes, file->fd, at, site),
			   file->sites[i].semaphore);
	}
}

struct places *probes_places_all(const struct attached *a, const struct probe_file *files, size_t n,
				 unsigned event_mask)
{
	struct places *all = xcalloc(n * _PROGRAM_MAX + 1, sizeof(*all));

	for (size_t k = 0; k < _PROGRAM_MAX; k++)
		for (size_t i = 0; i < n; i++)
			places_make(a, &files[i], k, event_mask, &all[k * n + i]);
	return all;
}

void probes_places_free(struct places *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(all[i].u.offsets);
		free(all[i].u.cookies);
		free(all[i].u.semaphores);
	}
	free(all);
}

/* ---- the difference to what is attached ---- */

/* Returns the cookie, but with the bit PF_SITE_LINK of `flags`. */
static uint64_t with_link(uint64_t cookie, unsigned flags)
{
	struct pf_site site;

	memcpy(&site, &cookie, sizeof(site));
	site.flags = (uint16_t)((site.flags & ~PF_SITE_LINK) | (flags & PF_SITE_LINK));
	memcpy(&cookie, &site, sizeof(cookie));
	return cookie;
}

static size_t find_place(const uint64_t *offsets, const uint64_t *cookies, size_t n,
			 uint64_t offset, uint64_t cookie)
{
	for (size_t i = 0; i < n; i++)
		if (offsets[i] == offset && with_link(cookies[i], 0) == with_link(cookie, 0))
			return i;
	return SIZE_MAX;
}

static bool is_of(const struct places *b, const struct attached_link *l)
{
	return b->program == l->program && b->dev == l->dev && b->ino == l->ino &&
	       b->u.pid == l->tid;
}

/* Returns whether all places of the link are still wanted, so that it stays. */
static bool is_wanted(const struct attached_link *l, const struct places *b)
{
	for (size_t i = 0; i < l->n; i++)
		if (find_place(b->u.offsets, b->u.cookies, b->u.n, l->offsets[i], l->cookies[i]) ==
		    SIZE_MAX)
			return false;
	return true;
}

static void places_remove(struct places *b, const struct attached_link *l)
{
	for (size_t i = 0; i < l->n; i++) {
		size_t at = find_place(b->u.offsets, b->u.cookies, b->u.n, l->offsets[i],
				       l->cookies[i]);

		if (at == SIZE_MAX)
			continue;
		b->u.n--;
		b->u.offsets[at] = b->u.offsets[b->u.n];
		b->u.cookies[at] = b->u.cookies[b->u.n];
		b->u.semaphores[at] = b->u.semaphores[b->u.n];
	}
}

/*
 * Until the old link l is closed, it and a new link may probe the same place. For each such place,
 * sets PF_SITE_LINK in the new cookie if the old one lacks it, and clears it otherwise, so that the
 * programs can tell the two links apart.
 */
static void places_tell_apart(struct places *b, const struct attached_link *l)
{
	if (b->dev != l->dev || b->ino != l->ino)
		return;
	for (size_t i = 0; i < b->u.n; i++) {
		size_t at =
			find_place(l->offsets, l->cookies, l->n, b->u.offsets[i], b->u.cookies[i]);
		struct pf_site old;

		if (at == SIZE_MAX)
			continue;
		memcpy(&old, &l->cookies[at], sizeof(old));
		b->u.cookies[i] = with_link(b->u.cookies[i], ~(unsigned)old.flags);
	}
}

/*
 * Returns whether probes of the link can still be hit. A link of one place ends with its thread. A
 * link of many places works on after the first thread has ended.
 */
static bool is_hit(const struct attached *a, const struct attached_link *l)
{
	bool of_many = a->set->uprobes->mode != UPROBE_SINGLE && l->tid == a->key.tgid;

	return of_many || proc_thread_lives(a->key.tgid, l->tid);
}

bool probes_places_difference(struct attached *a, struct places *all, size_t n)
{
	bool any = false;

	for (size_t i = 0; i < a->n_links; i++) {
		struct attached_link *l = &a->links[i];

		l->goes = true;
		for (size_t k = 0; k < n && l->goes; k++) {
			if (!is_of(&all[k], l) || !is_wanted(l, &all[k]))
				continue;
			l->goes = false;
			places_remove(&all[k], l);
		}
		any |= l->goes && is_hit(a, l);
		for (size_t k = 0; k < n && l->goes; k++)
			places_tell_apart(&all[k], l);
	}
	return any;
}
