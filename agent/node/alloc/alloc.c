/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the finders (internal.h) and joins what they find: sites, sorted by file; ranges of
 * allocators' own code; and sentences for the user about allocations that are not seen. Reader's
 * thread.
 */
#include "node/alloc/internal.h"

#include <stdlib.h>

#define MARKS_MAX 320  /* symbols of all allocators that the parser searches for */
#define PADDING	  64   /* limit for the padding between two functions, in bytes */
#define GAP_MAX	  4096 /* limit for the gap between pieces of one allocator, in bytes */

static const struct alloc_finder *const finders[] = {
#define X(name) &alloc_##name##_finder,
	ALLOC_FINDERS(X)
#undef X
};

/* ---- marks ---- */

const char *const *alloc_marks(void)
{
	static const char *marks[MARKS_MAX + 1]; /* every call writes the same values */
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(finders); i++)
		for (const char *const *m = finders[i]->marks; *m && n < MARKS_MAX; m++)
			marks[n++] = *m;
	return marks;
}

/* ---- sites ---- */

static bool is_same_file(const struct mapping *a, const struct mapping *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* A file may have several mappings. All sites of a file have the index of the first one. */
static size_t first_mapping(const struct mappings *maps, const struct mapping *m)
{
	for (size_t i = 0; i < maps->n; i++)
		if (maps->items[i].fd >= 0 && is_same_file(&maps->items[i], m))
			return i;
	return (size_t)(m - maps->items);
}

bool alloc_is_copied(const struct runtime_look *look, uint64_t address, struct alloc_sites *ret)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);
	const char *base = m ? strrchr(m->path, '/') : NULL;
	_cleanup_free_ char *name = NULL;

	if (!m || !m->copy)
		return false;
	ret->copied = true;
	name = elf_text_clean(base ? base + 1 : m->path);
	alloc_add_problem(
		ret,
		"code of %.100s is in anonymous memory, where the kernel sets no probe: what "
		"its own allocator gives is not seen",
		name);
	return true;
}

int alloc_add_usdt_site(const struct runtime_look *look, uint64_t address, uint64_t semaphore,
			const char *symbol, struct pf_site site, struct alloc_sites *ret)
{
	const struct mapping *m = proc_mappings_find(look->maps, address);
	struct alloc_site *new;

	if (!m || m->fd < 0)
		return -EFAULT;
	if (alloc_is_copied(look, address, ret))
		return 0;
	for (size_t i = 0; i < ret->n; i++)
		if (ret->items[i].address == address)
			return 0;
	if (ret->n == ALLOC_SITES_MAX)
		return -E2BIG;
	if (!ret->items)
		ret->items = xcalloc(ALLOC_SITES_MAX, sizeof(*ret->items));
	new = &ret->items[ret->n++];
	*new = (struct alloc_site){
		.mapping = first_mapping(look->maps, m),
		.file_offset = m->file_offset + (address - m->start),
		.address = address,
		.semaphore = semaphore,
		.site = site,
	};
	snprintf(new->symbol, sizeof(new->symbol), "%s", symbol);
	return 0;
}

int alloc_add_site(const struct runtime_look *look, uint64_t address, const char *symbol,
		   struct pf_site site, struct alloc_sites *ret)
{
	return alloc_add_usdt_site(look, address, 0, symbol, site, ret);
}

static int compare_sites(const void *left, const void *right)
{
	const struct alloc_site *a = left, *b = right;

	if (a->mapping != b->mapping)
		return a->mapping < b->mapping ? -1 : 1;
	return a->file_offset < b->file_offset ? -1 : a->file_offset > b->file_offset;
}

/* Drops sites that are there twice: if a file is mapped twice, each offset has two addresses. */
static void sort_sites(struct alloc_sites *s)
{
	size_t n = 0;

	if (!s->n)
		return;
	qsort(s->items, s->n, sizeof(*s->items), compare_sites);
	for (size_t i = 0; i < s->n; i++)
		if (!i || compare_sites(&s->items[i], &s->items[n - 1]))
			s->items[n++] = s->items[i];
	s->n = n;
}

/* ---- inner ranges: allocators' own code ---- */

/* Joins range k and the next one. */
static void join_inner(struct alloc_sites *s, size_t k)
{
	s->inner[k].end = MAX(s->inner[k].end, s->inner[k + 1].end);
	s->n_inner--;
	memmove(&s->inner[k + 1], &s->inner[k + 2], (s->n_inner - k - 1) * sizeof(s->inner[0]));
}

/*
 * Makes room by joining the two ranges that are closest: they are most likely of one library, with
 * only the allocator's code between them.
 */
static void join_closest(struct alloc_sites *s)
{
	size_t best = 0;

	for (size_t k = 1; k + 1 < s->n_inner; k++)
		if (s->inner[k + 1].start - s->inner[k].end <
		    s->inner[best + 1].start - s->inner[best].end)
			best = k;
	if (s->inner[best + 1].start - s->inner[best].end > GAP_MAX)
		alloc_add_problem(
			s,
			"its allocators have more than %d pieces of code, so two were joined: "
			"what code between them allocates is not seen",
			PF_MEM_INNER_MAX);
	join_inner(s, best);
}

static void insert_inner(struct alloc_sites *s, size_t k, uint64_t start, uint64_t end)
{
	memmove(&s->inner[k + 1], &s->inner[k], (s->n_inner - k) * sizeof(s->inner[0]));
	s->inner[k].start = start;
	s->inner[k].end = end;
	s->n_inner++;
}

/* The ranges are ascending and do not touch. */
void alloc_add_inner(struct alloc_sites *s, uint64_t start, uint64_t end)
{
	size_t k = 0;

	if (start >= end)
		return;
	while (k < s->n_inner && s->inner[k].start <= start)
		k++;
	insert_inner(s, k, start, end);
	k -= k && start <= s->inner[k - 1].end + PADDING;
	while (k + 1 < s->n_inner && s->inner[k + 1].start <= s->inner[k].end + PADDING)
		join_inner(s, k);
	if (s->n_inner > PF_MEM_INNER_MAX)
		join_closest(s);
}

/* ---- all ---- */

void alloc_add_problem(struct alloc_sites *s, const char *format, ...)
{
	_cleanup_free_ char *all = NULL, *shown = NULL;
	char more[ALLOC_PROBLEM_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(more, sizeof(more), format, args);
	va_end(args);
	if (strstr(s->problem, more))
		return;
	all = xasprintf("%s%s%s", s->problem, *s->problem ? "; " : "", more);
	shown = utf8_shorten(all, sizeof(s->problem) - 1);
	memcpy(s->problem, shown, strlen(shown) + 1);
}

void alloc_add_not_followed(struct alloc_sites *s, const char *symbol)
{
	alloc_add_problem(
		s,
		"podflame did not read the code of %s to its end: what it allocates may be "
		"counted twice",
		symbol);
}

struct alloc_sites *alloc_sites_free(struct alloc_sites *s)
{
	if (s) {
		s->go = alloc_go_heap_free(s->go);
		free(s->items);
		free(s);
	}
	return NULL;
}

int alloc_sites_find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites **ret)
{
	struct alloc_sites *s = xcalloc(1, sizeof(*s));
	bool starts = false;

	for (size_t i = 0; i < ARRAY_SIZE(finders); i++) {
		int r = finders[i]->events & event_mask ? finders[i]->find(look, event_mask, s)
							: -ENOENT;

		starts |= r == -EAGAIN;
		if (r < 0 && r != -EAGAIN && r != -ENOENT)
			alloc_add_problem(
				s,
				"podflame cannot find where the process allocates memory (%s): %s",
				finders[i]->name,
				r == -E2BIG ? "a limit was exceeded" : strerror(-r));
	}
	if (!s->n && !s->go && starts) {
		alloc_sites_free(s);
		return -EAGAIN;
	}
	if (event_mask & ALLOC_MEMORY_EVENTS && !s->n && !s->go && !s->copied)
		alloc_add_problem(s, "podflame found no function that allocates: a static program "
				     "without symbols, or an allocator that it does not know");
	sort_sites(s);
	*ret = s;
	return 0;
}
