/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of the budget for tables and mappings. As long as there is room, each namespace gets what
 * it needs. If there is none, the namespace that has most loses its largest table or process, as
 * long as it has more than the namespace that needs room will have. So what a pod makes large on
 * purpose costs other namespaces nothing. Files that several namespaces use count for none. The
 * room for processes, of any size, is shared in the same way, and so are slots, but none of these
 * is taken back.
 */
#include "node/unwind/internal.h"

#define NOT_SEEN 0 /* in table_file.charged_ns */

struct use { /* what a namespace has */
	uint64_t ns;
	size_t bytes, largest_bytes;
	void *largest;
	UT_hash_handle hh;
};

static void count(struct use **uses, uint64_t ns, size_t bytes, void *what)
{
	struct use *s;

	HASH_FIND(hh, *uses, &ns, sizeof(ns), s);
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->ns = ns;
		HASH_ADD(hh, *uses, ns, sizeof(s->ns), s);
	}
	s->bytes += bytes;
	if (bytes > s->largest_bytes) {
		s->largest_bytes = bytes;
		s->largest = what;
	}
}

/*
 * Returns the largest thing of the namespace that has most, if that is more than `ns` will have
 * with so many more bytes. NULL: there is none. Frees uses.
 */
static void *victim_of(struct use *uses, uint64_t ns, size_t bytes)
{
	struct use *most = NULL, *s, *next;
	void *victim;

	HASH_ITER (hh, uses, s, next) {
		if (s->ns == ns)
			bytes += s->bytes;
		else if (!most || s->bytes > most->bytes)
			most = s;
	}
	victim = most && most->bytes > bytes ? most->largest : NULL;
	HASH_ITER (hh, uses, s, next) {
		HASH_DEL(uses, s);
		free(s);
	}
	return victim;
}

/*
 * Finds which files are of one namespace only. Files that no process has yet are those of the
 * process that is being set.
 */
static void find_namespaces(struct unwind *u)
{
	for (struct table_file *f = u->files; f; f = f->hh.next)
		f->charged_ns = NOT_SEEN;
	for (const struct unwound_process *p = u->processes; p; p = p->hh.next)
		for (size_t i = 0; i < p->n_files; i++) {
			uint64_t *ns = &p->files[i]->charged_ns;

			*ns = *ns == NOT_SEEN || *ns == p->charged_ns ? p->charged_ns : SEVERAL_NS;
		}
	for (struct table_file *f = u->files; f; f = f->hh.next)
		if (f->charged_ns == NOT_SEEN)
			f->charged_ns = u->charged_ns;
}

static void note_taken(struct unwind *u, uint64_t ns)
{
	if (u->n_taken_from && u->taken_from[u->n_taken_from - 1] == ns)
		return;
	GROW(u->taken_from, u->n_taken_from, u->cap_taken_from);
	u->taken_from[u->n_taken_from++] = ns;
}

bool unwind_share_table(struct unwind *u, const struct table_file *f)
{
	while (!unwind_table_fits(u, f->need_bytes)) {
		struct use *uses = NULL;
		struct table_file *victim;

		find_namespaces(u);
		for (struct table_file *x = u->files; x; x = x->hh.next)
			if (x->n_users && x->extents && x->charged_ns != SEVERAL_NS)
				count(&uses, x->charged_ns, x->need_bytes, x);
		victim = victim_of(uses, f->charged_ns, f->need_bytes);
		if (!victim)
			return false;
		note_taken(u, victim->charged_ns);
		unwind_table_take(u, victim);
	}
	return true;
}

/*
 * A slot in use cannot be taken from a namespace, because lists of mappings name it. So of the last
 * quarter of all slots, a namespace gets none that has more than are free.
 */
bool unwind_share_slots(struct unwind *u, const struct table_file *f)
{
	const size_t max = PF_FILES_MAX - PF_SLOT_FIRST;
	size_t all = 0, own = 0;

	if (u->n_free_slots > max / 4 + f->n_slots)
		return true; /* the usual case, without a look at all files */
	find_namespaces(u);
	for (const struct table_file *x = u->files; x; x = x->hh.next) {
		if (x == f || !x->n_users)
			continue;
		all += x->n_slots;
		own += x->charged_ns == u->charged_ns ? x->n_slots : 0;
	}
	return shares_have_room(all, own, f->n_slots, max);
}

bool unwind_share_mappings(struct unwind *u, const struct unwound_process *p)
{
	while (!unwind_mappings_fit(u, p)) {
		struct use *uses = NULL;
		struct unwound_process *victim;

		for (struct unwound_process *x = u->processes; x; x = x->hh.next)
			count(&uses, x->charged_ns, unwind_mapping_bytes(x), x);
		victim = victim_of(uses, p->charged_ns, unwind_mapping_bytes(p));
		if (!victim)
			return false;
		note_taken(u, victim->charged_ns);
		unwind_process_take(u, victim, "budget");
	}
	return true;
}

void unwind_share_process(struct unwind *u, uint64_t ns, const struct unwound_process *keep)
{
	const uint64_t most = shares_most(&u->process_shares, ns);
	struct unwound_process *p = u->processes;

	while (p && (p->charged_ns != most || p == keep))
		p = p->hh.next;
	if (!p) /* the namespace has only `keep`, and no other one has more */
		p = u->processes == keep ? keep->hh.next : u->processes;
	u->crowded_ns = p->charged_ns;
	unwind_process_take(u, p, "table_full");
}

uint64_t unwind_crowded(struct unwind *u)
{
	const uint64_t ns = u->crowded_ns;

	u->crowded_ns = 0;
	return ns;
}

uint64_t unwind_taken_from(struct unwind *u)
{
	return u->n_taken_from ? u->taken_from[--u->n_taken_from] : 0;
}
