/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds code of files that is in memory without a file. Some programs copy their code there, at the
 * same addresses, to have it on huge pages (Node's --use-largepages, HHVM, Chromium, iodlr). Then
 * /proc/PID/maps shows no file for it. But other parts of the file are mapped beside the copy, and
 * the file's headers show the distance between them and the code. The memory is a copy only if its
 * bytes are equal to the file's: this file compares some pages, and stack/code_compare.c the pages
 * in which samples are. A candidate is an executable mapping without a file. Its anchors are the
 * nearest mappings of a file before and after it. Runs on the thread that reads the mappings.
 */
#include "node/proc/maps.h"

#include <elf.h>
#include <stdlib.h>
#include <unistd.h>

#define CANDIDATES_MAX 4096  /* limit of executable mappings without a file in one process */
#define HEADERS_MAX    256   /* limit of the program headers of a file */
#define PAGES_LOOKED   16    /* limit of the pages that are compared in one copy */
#define LOOK_PAGES_MAX 16384 /* limit of the pages that are compared in one look at a process */
#define TRIES_MAX      65536 /* limit of the comparisons of a segment with a mapping in one look */
#define PAGE_BYTES     4096u
/* a page with fewer bytes of the file does not count: these may be equal by chance */
#define COMPARED_MIN 64
/* the largest gap between parts of a file: two huge pages, because linkers align to these */
#define GAP_MAX		(4u << 20) /* bytes between two parts of a file */
#define REFUSED_COUNTER "podflame_code_copies_refused_total"

static uint64_t page_down(uint64_t x)
{
	return x & ~(uint64_t)(PAGE_BYTES - 1);
}

static uint64_t page_up(uint64_t x)
{
	return page_down(x + PAGE_BYTES - 1);
}

static void refuse(const char *reason)
{
	counter_add(counter(REFUSED_COUNTER, "reason", reason), 1);
}

/* ---- collecting candidates, while the lines of maps are read ---- */

/*
 * Whether the name is that of a file in memory. The name can be used even if the agent may not open
 * the file.
 */
static bool is_named_as_memory(const struct mapping *m)
{
	static const char *const names[] = {"/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage"};

	for (size_t i = 0; m->deleted && i < ARRAY_SIZE(names); i++)
		if (str_has_prefix(m->path, names[i]))
			return true;
	return false;
}

static bool is_candidate(const struct mapping *m)
{
	return !m->path[0] || str_has_prefix(m->path, "[anon:") ||
	       str_has_prefix(m->path, "[anon_shmem:") || m->memory_file || is_named_as_memory(m);
}

static size_t add_anchor(struct copies *c)
{
	struct mapping *m;

	GROW(c->anchors, c->n_anchors, c->cap_anchors);
	m = &c->anchors[c->n_anchors];
	*m = c->before;
	proc_maps_take_name(m, c->before_name);
	return c->n_anchors++;
}

static void add_candidate(struct copies *c, const struct mapping *m, size_t item)
{
	size_t before = SIZE_MAX;

	if (c->n == CANDIDATES_MAX) {
		refuse("too_many");
		return;
	}
	/* no file is between this candidate and the last one, so they have the same `before` */
	if (c->n_open)
		before = c->items[c->n - 1].before;
	else if (c->before_name && m->start - c->before.end <= GAP_MAX)
		before = add_anchor(c);
	GROW(c->items, c->n, c->cap);
	c->items[c->n++] = (struct candidate){item, before, SIZE_MAX};
	c->n_open++;
}

static void note_file(struct copies *c, const struct maps_line *l)
{
	size_t bytes = strlen(l->name) + 1;

	if (bytes > c->name_cap) {
		free(c->before_name);
		c->name_cap = 2 * bytes;
		c->before_name = xmalloc(c->name_cap);
	}
	memcpy(c->before_name, l->name, bytes);
	c->before = l->m;
	for (size_t after = SIZE_MAX; c->n_open; c->n_open--) {
		if (after == SIZE_MAX)
			after = add_anchor(c);
		c->items[c->n - c->n_open].after = after;
	}
}

/*
 * To be called for each line of maps. Notes only private mappings of files, because loaders map
 * files privately.
 */
void proc_copies_line(struct copies *c, const struct maps_line *l, const struct mapping *item,
		      size_t i)
{
	if (item && is_candidate(item))
		add_candidate(c, item, i);
	else if (l->m.inode && !l->m.shared && *l->name == '/')
		note_file(c, l);
}

void proc_copies_done(struct copies *c)
{
	for (size_t i = 0; i < c->n_anchors; i++)
		free(c->anchors[i].path);
	free(c->anchors);
	free(c->before_name);
	free(c->items);
	*c = (struct copies){0};
}

/* ---- the segments of a file ---- */

static bool read_at(int fd, void *to, size_t n, uint64_t offset)
{
	return fd >= 0 && offset <= INT64_MAX && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

static void add_segment(struct layout *l, const Elf64_Phdr *h)
{
	if (h->p_type != PT_LOAD || !h->p_filesz || h->p_filesz > INT64_MAX ||
	    h->p_offset > INT64_MAX || h->p_vaddr > INT64_MAX ||
	    (h->p_vaddr - h->p_offset) % PAGE_BYTES)
		return;
	l->items[l->n++] = (struct segment){.address = h->p_vaddr,
					    .offset = h->p_offset,
					    .bytes = h->p_filesz,
					    .executable = h->p_flags & PF_X};
}

/* Reads the program headers. If the file is no 64-bit ELF file, the layout has no segments. */
static struct layout *read_layout(int fd)
{
	struct layout *l = xcalloc(1, sizeof(*l));
	_cleanup_free_ Elf64_Phdr *headers = NULL;
	Elf64_Ehdr e;

	if (!read_at(fd, &e, sizeof(e), 0) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
	    e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof(*headers))
		return l;
	if (e.e_phnum > HEADERS_MAX) {
		refuse("headers");
		return l;
	}
	headers = xcalloc(e.e_phnum + 1u, sizeof(*headers));
	l->items = xcalloc(e.e_phnum + 1u, sizeof(*l->items));
	if (!read_at(fd, headers, e.e_phnum * sizeof(*headers), e.e_phoff))
		return l;
	for (size_t i = 0; i < e.e_phnum; i++)
		add_segment(l, &headers[i]);
	return l;
}

/* ---- comparing memory with the file's code ---- */

struct finder {
	struct copies *copies;
	struct open_files *files;
	int mem_fd;
	/*
	 * the parts of the current candidate that are copies, in the order in which they were found
	 */
	struct mapping *found;
	size_t n_found, cap_found;
	size_t pages_left, tries_left;
	bool spent; /* a limit was reached: no page or no try was left */
};

static bool spend(struct finder *f, size_t *left)
{
	f->spent |= !*left;
	if (*left)
		--*left;
	return !f->spent;
}

static bool is_uniform(const uint8_t *p, size_t n)
{
	return memcmp(p, p + 1, n - 1) == 0;
}

/*
 * Whether n bytes are equal. A page whose bytes all have one value does not count: many files have
 * such pages.
 */
static bool is_page_equal(int mem_fd, int fd, uint64_t address, uint64_t offset, size_t n)
{
	uint8_t file[PAGE_BYTES], memory[PAGE_BYTES];

	return n >= COMPARED_MIN && read_at(fd, file, n, offset) && !is_uniform(file, n) &&
	       read_at(mem_fd, memory, n, address) && memcmp(file, memory, n) == 0;
}

/*
 * Compares some pages of m with the file. Returns whether at least one is equal. bytes: how many
 * bytes the file has for m.
 */
static bool has_equal_pages(struct finder *f, int fd, const struct mapping *m, uint64_t bytes)
{
	uint64_t n_pages = (m->end - m->start) / PAGE_BYTES, n = MIN(n_pages, PAGES_LOOKED);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t page = n == 1 ? 0 : i * (n_pages - 1) / (n - 1);
		uint64_t at = page * PAGE_BYTES;

		if (at >= bytes)
			break;
		if (!spend(f, &f->pages_left))
			return false;
		if (is_page_equal(f->mem_fd, fd, m->start + at, m->file_offset + at,
				  MIN(bytes - at, PAGE_BYTES)))
			return true;
	}
	return false;
}

static bool overlaps_found(const struct finder *f, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < f->n_found; i++)
		if (f->found[i].start < end && start < f->found[i].end)
			return true;
	return false;
}

/*
 * Compares the part of c at which segment s of the file would be with this bias. If it is equal,
 * adds it to f->found.
 */
static void try_segment(struct finder *f, const struct mapping *c, const struct mapping *anchor,
			const struct open_file *file, const struct segment *s, uint64_t bias)
{
	uint64_t start = page_down(bias + s->address), end = page_up(bias + s->address + s->bytes);
	struct mapping m = *c;

	m.start = MAX(c->start, start);
	m.end = MIN(c->end, end);
	if (end < start || m.start >= m.end || overlaps_found(f, m.start, m.end))
		return;
	m.file_offset = page_down(s->offset) + (m.start - start);
	if (f->mem_fd < 0)
		refuse("unreadable");
	if (!has_equal_pages(f, file->file.fd, &m, s->offset + s->bytes - m.file_offset))
		return;
	m.inode = anchor->inode;
	m.dev_major = anchor->dev_major;
	m.dev_minor = anchor->dev_minor;
	m.path = anchor->path; /* borrowed; add_part() copies it */
	m.deleted = anchor->deleted;
	m.copy = true;
	m.backing_fd = c->fd;
	m.backing_offset = c->file_offset + (m.start - c->start);
	GROW(f->found, f->n_found, f->cap_found);
	f->found[f->n_found++] = m;
}

static void try_bias(struct finder *f, const struct mapping *c, const struct mapping *anchor,
		     const struct open_file *file, uint64_t bias)
{
	for (size_t i = 0; i < file->layout->n; i++) {
		const struct segment *s = &file->layout->items[i];

		if (!s->executable)
			continue;
		if (!spend(f, &f->tries_left))
			return;
		try_segment(f, c, anchor, file, s, bias);
	}
}

static bool is_among(const uint64_t *items, size_t n, uint64_t x)
{
	for (size_t i = 0; i < n; i++)
		if (items[i] == x)
			return true;
	return false;
}

/*
 * Compares c with the file at each possible bias. A page of the anchor may belong to two segments
 * with different biases, so each bias is tried.
 */
static void try_segments(struct finder *f, const struct mapping *c, const struct mapping *a,
			 const struct open_file *file)
{
	uint64_t tried[HEADERS_MAX];
	size_t n_tried = 0;

	for (size_t i = 0; i < file->layout->n && !f->spent; i++) {
		const struct segment *s = &file->layout->items[i];
		uint64_t bias = a->start - a->file_offset + s->offset - s->address;

		if (a->file_offset < page_down(s->offset) ||
		    a->file_offset >= s->offset + s->bytes || is_among(tried, n_tried, bias))
			continue;
		tried[n_tried++] = bias;
		try_bias(f, c, a, file, bias);
	}
}

static bool is_same_file(const struct mapping *a, const struct mapping *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/*
 * Checks whether c is a copy of code of the anchor's file. If c is mapped from this file (in
 * memory) itself, it is no copy.
 */
static void try_anchor(struct finder *f, const struct mapping *c, size_t anchor)
{
	const struct mapping *a = anchor == SIZE_MAX ? NULL : &f->copies->anchors[anchor];
	struct open_file *file;

	if (!a || f->spent || is_same_file(a, c) ||
	    (a->start >= c->end && a->start - c->end > GAP_MAX))
		return;
	file = proc_open_files_get(f->files, a);
	if (!file || file->file.fd < 0)
		return;
	if (!file->layout)
		file->layout = read_layout(file->file.fd);
	try_segments(f, c, a, file);
}

/* ---- making the new list of mappings ---- */

struct anew {
	struct mapping *items;
	size_t n, cap;
	bool truncated;
};

static int compare_starts(const void *left, const void *right)
{
	const struct mapping *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static bool add_part(struct anew *a, struct open_files *files, struct mapping x, uint64_t start,
		     uint64_t end)
{
	if (start >= end)
		return false;
	if (a->n == MAPPINGS_MAX) {
		a->truncated = true;
		return false;
	}
	x.file_offset += start - x.start;
	x.start = start;
	x.end = end;
	x.path = xstrdup(x.path);
	proc_open_files_use(files, &x);
	GROW(a->items, a->n, a->cap);
	a->items[a->n++] = x;
	return true;
}

/* Adds the parts of c that are copies, and the other parts between them. */
static void add_parts(struct anew *a, struct finder *f, struct mapping *c)
{
	uint64_t at = c->start;

	qsort(f->found, f->n_found, sizeof(*f->found), compare_starts);
	for (size_t i = 0; i < f->n_found; i++) {
		const struct mapping *x = &f->found[i];

		add_part(a, f->files, *c, at, x->start);
		if (add_part(a, f->files, *x, x->start, x->end))
			proc_open_files_share(f->files, c);
		at = x->end;
	}
	add_part(a, f->files, *c, at, c->end);
	proc_open_files_leave(f->files, c);
	free(c->path);
}

static void look_at(struct finder *f, const struct mapping *m, const struct candidate *c)
{
	f->n_found = 0;
	try_anchor(f, m, c->before);
	try_anchor(f, m, c->after);
	if (f->spent)
		refuse("too_much");
}

static void add_item(struct anew *a, struct open_files *files, const struct mapping *m)
{
	if (a->n == MAPPINGS_MAX) {
		a->truncated = true;
		proc_open_files_leave(files, m);
		free(m->path);
		return;
	}
	GROW(a->items, a->n, a->cap);
	a->items[a->n++] = *m;
}

void proc_copies_find(struct copies *c, struct open_files *files, int mem_fd, struct mappings *m)
{
	struct finder f = {.copies = c,
			   .files = files,
			   .mem_fd = mem_fd,
			   .pages_left = LOOK_PAGES_MAX,
			   .tries_left = TRIES_MAX};
	struct anew a = {0};
	size_t next = 0;

	for (size_t i = 0; i < m->n; i++) {
		f.n_found = 0;
		if (next < c->n && c->items[next].item == i)
			look_at(&f, &m->items[i], &c->items[next++]);
		if (f.n_found)
			add_parts(&a, &f, &m->items[i]);
		else
			add_item(&a, files, &m->items[i]);
	}
	free(f.found);
	free(m->items);
	m->items = a.items;
	m->n = a.n;
	if (a.truncated)
		counter_add(counter("podflame_mappings_dropped_total", "reason", "limit"), 1);
	m->truncated |= a.truncated;
}
