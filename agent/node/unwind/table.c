/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file puts files' tables into the kernel and takes them out. An extent that is out of use is
 * overwritten only after all BPF programs that may still read it have ended. As many changes as
 * possible share one such wait (a grace period).
 */
#include "node/unwind/internal.h"

#define OLD_BYTES_MAX	 (1u << 20) /* if more bytes than this are out of use, they are freed */
#define OLD_EXTENTS_MAX	 1024	    /* if more extents than this are out of use, they are freed */
#define FILE_SHARE	 4	    /* one file gets at most 1/4 of the budget */
#define EVICT_SHARE	 16 /* 1/16 of the budget is evicted at once, with one wait for all of it */
#define MAPPINGS_RESERVE 8  /* 1/8 of the budget is kept for mappings */
#define INDEXES_SHARE	 3  /* all indexes together take at most 3 budgets, unused ones 1 */
#define REFUSED		 "podflame_unwind_files_refused_total"

/* ---- room ---- */

void unwind_room_leave(struct unwind *u, struct extent e)
{
	if (!e.bytes)
		return;
	GROW(u->old_extents, u->n_old_extents, u->cap_old_extents);
	u->old_extents[u->n_old_extents++] = e;
	u->old_bytes += e.bytes;
}

static bool free_old(struct unwind *u)
{
	if (!u->n_old_extents && !u->n_old_slots)
		return false;
	/* This cannot fail, because every kernel has RCU. */
	(void)u->ops.grace(u->arg);
	for (size_t i = 0; i < u->n_old_extents; i++)
		unwind_space_give(u->space, u->old_extents[i]);
	for (size_t i = 0; i < u->n_old_slots; i++)
		u->free_slots[u->n_free_slots++] = u->old_slots[i];
	u->n_old_extents = u->n_old_slots = u->old_bytes = 0;
	u->has_room = true;
	return true;
}

void unwind_room_tidy(struct unwind *u)
{
	uint32_t chunk;

	if (u->old_bytes < OLD_BYTES_MAX && u->n_old_extents < OLD_EXTENTS_MAX)
		return;
	free_old(u);
	while (unwind_space_empty_chunk(u->space, &chunk) == 0)
		(void)u->ops.drop_chunk(u->arg, chunk);
}

static size_t table_bytes(const struct table_file *f)
{
	return f->extents ? f->need_bytes : 0;
}

static void evict(struct unwind *u, struct table_file *f)
{
	unwind_images_leave(u, f);
	for (size_t i = 0; i < f->n_extents; i++)
		unwind_room_leave(u, f->extents[i]);
	for (size_t i = 0; i < f->n_slots; i++) {
		GROW(u->old_slots, u->n_old_slots, u->cap_old_slots);
		u->old_slots[u->n_old_slots++] = f->slots[i].number;
	}
	u->n_evicted += f->extents && !f->generated;
	unwind_file_free(u, f);
}

/* An index also has symbols, so an index may be much larger than its table. */
bool unwind_index_fits(const struct unwind *u, const struct elf_index *index)
{
	return u->index_bytes - u->unused_index_bytes + elf_index_bytes(index) <=
	       u->budget_bytes * INDEXES_SHARE;
}

static struct table_file *longest_unused(const struct unwind *u)
{
	struct table_file *found = NULL;

	for (struct table_file *f = u->files; f; f = f->hh.next)
		if (!f->n_users && (!found || f->used < found->used))
			found = f;
	return found;
}

/*
 * Frees extents that are out of use. If there are none, evicts files that no process uses. Returns
 * false if there are no such files, either.
 */
static bool make_room(struct unwind *u, size_t bytes)
{
	size_t want = MAX(bytes, u->budget_bytes / EVICT_SHARE), n = 0;
	struct table_file *f;

	if (free_old(u))
		return true;
	while (n < want && (f = longest_unused(u))) {
		n += table_bytes(f) + 1;
		evict(u, f);
	}
	return free_old(u);
}

int unwind_room_take(struct unwind *u, size_t bytes, struct extent *ret)
{
	int r;

	do
		r = unwind_space_take(u->space, bytes, ret);
	while (r == -ENOSPC && make_room(u, bytes));
	return r;
}

bool unwind_table_fits(struct unwind *u, size_t bytes)
{
	size_t room = u->budget_bytes - u->budget_bytes / MAPPINGS_RESERVE, unused = 0;
	struct table_file *f;

	for (f = u->files; f; f = f->hh.next)
		unused += f->n_users ? 0 : table_bytes(f);
	if (unwind_space_used_bytes(u->space) + bytes > room + u->old_bytes + unused)
		return false;
	while (unwind_space_used_bytes(u->space) + bytes > room + u->old_bytes &&
	       (f = longest_unused(u)))
		evict(u, f);
	return true;
}

/* ---- a table ---- */

static int take_extent(struct unwind *u, struct table_file *f, size_t bytes)
{
	struct extent e;
	int r = unwind_room_take(u, bytes, &e);

	if (r < 0)
		return r;
	GROW(f->extents, f->n_extents, f->cap_extents);
	f->extents[f->n_extents++] = e;
	return 0;
}

static uint32_t slot_pages(const struct table_file *f, size_t k, const struct elf_tables *t)
{
	uint32_t last = t->pages[t->n_pages - 1].number;

	/* Find the last page before the next slot's first one. */
	for (size_t i = 0; k + 1 < f->n_slots && i < t->n_pages; i++) {
		if (t->pages[i].number >= f->slots[k + 1].first_page)
			break;
		last = t->pages[i].number;
	}
	return last - f->slots[k].first_page + 1;
}

/*
 * Returns whether a page has the same rows as the page before it. Then it uses that page's extent:
 * one rule may hold for a gigabyte of generated code.
 */
static bool repeats(const struct elf_tables *t, size_t i)
{
	const struct elf_page *a = i ? &t->pages[i - 1] : NULL, *b = &t->pages[i];

	return a && a->n_rows == b->n_rows &&
	       memcmp(t->rows + a->first_row, t->rows + b->first_row,
		      b->n_rows * sizeof(*t->rows)) == 0;
}

/* Adds an extent that has no bytes of its own, but those of the last one. */
static void share_extent(struct table_file *f)
{
	struct extent shared = {.ref = f->extents[f->n_extents - 1].ref};

	GROW(f->extents, f->n_extents, f->cap_extents);
	f->extents[f->n_extents++] = shared;
}

/* The order is: rules, page arrays of the slots, rows of the pages. */
static int take_extents(struct unwind *u, struct table_file *f, const struct elf_tables *t)
{
	int r = take_extent(u, f, MAX(t->n_rules, 1u) * sizeof(*t->rules));

	for (size_t k = 0; r == 0 && k < f->n_slots; k++)
		r = take_extent(u, f, slot_pages(f, k, t) * sizeof(struct pf_page));
	for (size_t i = 0; r == 0 && i < t->n_pages; i++)
		if (repeats(t, i))
			share_extent(f);
		else
			r = take_extent(u, f, t->pages[i].n_rows * sizeof(*t->rows));
	return r;
}

static int write_extent(struct unwind *u, struct extent e, const void *bytes, size_t n)
{
	return u->ops.write(u->arg, PF_REF_CHUNK(e.ref), PF_REF_BYTES(e.ref), bytes, n);
}

static int write_pages(struct unwind *u, const struct table_file *f, size_t k,
		       const struct elf_tables *t)
{
	const struct extent *rows = &f->extents[1 + f->n_slots];
	uint32_t first = f->slots[k].first_page, n = slot_pages(f, k, t);
	_cleanup_free_ struct pf_page *pages = xcalloc(n, sizeof(*pages));

	for (size_t i = 0; i < t->n_pages; i++)
		if (t->pages[i].number >= first && t->pages[i].number - first < n)
			pages[t->pages[i].number - first] =
				(struct pf_page){rows[i].ref, t->pages[i].n_rows};
	return write_extent(u, f->extents[1 + k], pages, n * sizeof(*pages));
}

static int write_extents(struct unwind *u, const struct table_file *f, const struct elf_tables *t)
{
	const struct extent *rows = &f->extents[1 + f->n_slots];
	int r = 0;

	if (t->n_rules)
		r = write_extent(u, f->extents[0], t->rules, t->n_rules * sizeof(*t->rules));
	for (size_t k = 0; r == 0 && k < f->n_slots; k++)
		r = write_pages(u, f, k, t);
	for (size_t i = 0; r == 0 && i < t->n_pages; i++)
		if (rows[i].bytes)
			r = write_extent(u, rows[i], t->rows + t->pages[i].first_row,
					 t->pages[i].n_rows * sizeof(*t->rows));
	return r < 0 ? r : u->ops.flush(u->arg);
}

static int set_slot(struct unwind *u, const struct table_file *f, size_t k,
		    const struct elf_tables *t)
{
	const struct pf_file x = {
		.state = PF_FILE_READY,
		.first_page = f->slots[k].first_page,
		.n_pages = slot_pages(f, k, t),
		.pages = f->extents[1 + k].ref,
		.rules = f->extents[0].ref,
		.n_rules = t->n_rules,
	};

	return u->ops.set_file(u->arg, f->slots[k].number, &x);
}

/* Gives back extents that the kernel has never seen. */
static void give_back(struct unwind *u, struct table_file *f)
{
	for (size_t i = 0; i < f->n_extents; i++)
		if (f->extents[i].bytes)
			unwind_space_give(u->space, f->extents[i]);
	free(f->extents);
	f->extents = NULL;
	f->n_extents = f->cap_extents = 0;
}

static void set_none(struct unwind *u, const struct table_file *f)
{
	static const struct pf_file none = {.state = PF_FILE_NONE};

	for (size_t i = 0; i < f->n_slots; i++)
		(void)u->ops.set_file(u->arg, f->slots[i].number, &none);
}

static void go_without(struct table_file *f, const char *why)
{
	if (!f->without)
		counter_add(counter(REFUSED, "reason", why), 1);
	f->without = why;
}

void unwind_table_take(struct unwind *u, struct table_file *f)
{
	set_none(u, f);
	for (size_t i = 0; i < f->n_extents; i++)
		unwind_room_leave(u, f->extents[i]);
	free(f->extents);
	f->extents = NULL;
	f->n_extents = f->cap_extents = 0;
	go_without(f, "budget");
}

/* fits: whether there is room for the table. */
static void make_table(struct unwind *u, struct table_file *f, bool fits)
{
	struct elf_tables t;
	int r = -ENOSPC;

	elf_index_tables(f->index, &t);
	if (fits)
		r = take_extents(u, f, &t);
	if (r == 0)
		r = write_extents(u, f, &t);
	if (r < 0) {
		give_back(u, f);
		set_none(u, f);
		go_without(f, r == -ENOSPC ? "budget" : "kernel");
		return;
	}
	for (size_t k = 0; r == 0 && k < f->n_slots; k++)
		r = set_slot(u, f, k, &t);
	/* some slots may be set already, so the table stays as long as the file is used */
	if (r < 0) {
		set_none(u, f);
		go_without(f, "kernel");
		return;
	}
	f->without = NULL;
}

void unwind_files_retry(struct unwind *u)
{
	if (!u->has_room)
		return;
	u->has_room = false;
	for (struct table_file *f = u->files; f; f = f->hh.next)
		if (f->n_users && f->n_slots && str_equal(f->without, "budget"))
			make_table(u, f, unwind_table_fits(u, f->need_bytes));
}

/* ---- a file ---- */

/*
 * Divides the file's code into parts, so that the page array of one slot covers one part. Returns
 * false if there are too many parts.
 */
static bool lay_out(struct table_file *f, const struct elf_tables *t)
{
	f->need_bytes = space_rounded(MAX(t->n_rules, 1u) * sizeof(*t->rules));
	for (size_t i = 0; i < t->n_pages; i++) {
		uint32_t page = t->pages[i].number;

		if (!f->n_slots ||
		    page - f->slots[f->n_slots - 1].first_page >= PF_FILE_PAGES_MAX) {
			if (f->n_slots == FILE_SLOTS_MAX)
				return false;
			f->slots[f->n_slots++].first_page = page;
		}
		if (!repeats(t, i))
			f->need_bytes += space_rounded(t->pages[i].n_rows * sizeof(*t->rows));
	}
	for (size_t k = 0; k < f->n_slots; k++)
		f->need_bytes += space_rounded(slot_pages(f, k, t) * sizeof(struct pf_page));
	return true;
}

static bool take_slots(struct unwind *u, struct table_file *f)
{
	if (!unwind_share_slots(u, f))
		return false;
	while (u->n_free_slots < f->n_slots)
		if (!make_room(u, 1))
			return false;
	for (size_t i = 0; i < f->n_slots; i++)
		f->slots[i].number = u->free_slots[--u->n_free_slots];
	return true;
}

static void place(struct unwind *u, struct table_file *f)
{
	struct elf_tables t;
	const char *why = NULL;

	elf_index_tables(f->index, &t);
	if (t.n_pages == 0)
		return;
	if (!lay_out(f, &t))
		why = "too_spread";
	else if (f->need_bytes > u->budget_bytes / FILE_SHARE)
		why = "too_large";
	else if (!take_slots(u, f))
		why = "slots";
	if (why) {
		f->n_slots = 0;
		go_without(f, why);
		return;
	}
	make_table(u, f, unwind_share_table(u, f));
}

/* Finds a file whose index has the same bytes. The file keeps the new index from then on. */
static struct table_file *find_equal(struct unwind *u, struct elf_index *index)
{
	struct table_file *f;

	for (f = u->files; f; f = f->hh.next)
		if (elf_index_equal(f->index, index))
			break;
	if (!f)
		return NULL;
	HASH_DEL(u->files, f);
	elf_index_unref(f->index);
	f->index = elf_index_ref(index);
	HASH_ADD_PTR(u->files, index, f);
	return f;
}

static struct table_file *file_new(struct unwind *u, struct elf_index *index)
{
	struct table_file *f;

	if (!unwind_index_fits(u, index)) {
		u->refused.n_users++;
		go_without(&u->refused, "memory");
		return &u->refused;
	}
	f = xcalloc(1, sizeof(*f));
	f->index = elf_index_ref(index);
	f->n_users = 1; /* set before room is made, so that this file is not evicted */
	f->used = ++u->turn;
	u->index_bytes += elf_index_bytes(index);
	HASH_ADD_PTR(u->files, index, f);
	place(u, f);
	return f;
}

struct table_file *unwind_file_use(struct unwind *u, struct elf_index *index)
{
	struct table_file *f;

	HASH_FIND_PTR(u->files, &index, f);
	if (!f)
		f = find_equal(u, index);
	if (!f)
		return file_new(u, index);
	if (!f->n_users++)
		u->unused_index_bytes -= elf_index_bytes(f->index);
	f->used = ++u->turn;
	return f;
}

void unwind_files_tidy(struct unwind *u)
{
	struct table_file *f, *next;

	HASH_ITER (hh, u->files, f, next)
		if (!f->n_users && (!f->extents || f->generated))
			evict(u, f);
	while ((u->unused_index_bytes > u->budget_bytes ||
		u->index_bytes > u->budget_bytes * INDEXES_SHARE) &&
	       (f = longest_unused(u)))
		evict(u, f);
}

void unwind_file_leave(struct unwind *u, struct table_file *f)
{
	f->used = ++u->turn;
	if (--f->n_users || f == &u->refused)
		return;
	u->has_room = true;
	u->unused_index_bytes += elf_index_bytes(f->index);
}

void unwind_file_free(struct unwind *u, struct table_file *f)
{
	u->index_bytes -= elf_index_bytes(f->index);
	u->unused_index_bytes -= f->n_users ? 0 : elf_index_bytes(f->index);
	HASH_DEL(u->files, f);
	elf_index_unref(f->index);
	free(f->extents);
	free(f);
}

uint32_t unwind_file_slot(const struct table_file *f, uint64_t address, uint64_t *ret_end)
{
	size_t k = 0;

	*ret_end = UINT64_MAX;
	if (!f->n_slots)
		return f->without ? PF_SLOT_NONE : PF_SLOT_EMPTY;
	while (k + 1 < f->n_slots && address >> PF_PAGE_BITS >= f->slots[k + 1].first_page)
		k++;
	if (k + 1 < f->n_slots)
		*ret_end = (uint64_t)f->slots[k + 1].first_page << PF_PAGE_BITS;
	return f->slots[k].number;
}
