/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocators whose functions cannot be found: the file is stripped, or allocators.c does not have
 * their names. But a stripped file still has the strings of the allocator's messages. This finder
 * adds no sites. It adds the problem that memory is not seen. It must be the last row of
 * ALLOC_FINDERS: by then the other finders have added the sites of each file.
 */
#include "node/alloc/internal.h"
#include "node/alloc/allocators.h"

#include <stdlib.h>

#define PATH_SHOWN 160

#define FAMILY(name) (1u << TABLE_##name)
#define GLIBC_TEXT   "\"malloc(): corrupted top size"

static const struct hidden_row {
	const char *text, *allocator;
	/* the families of the allocator's names in allocators.c, besides C's plain names */
	unsigned families;
	const char *own; /* if a file has it, malloc etc. are this allocator's; NULL: none */
	/*
	 * The symbol of a runtime that contains the allocator for its own use. If the file has it,
	 * the allocator is not reported, because the runtime has a finder of its own. NULL: there
	 * is no such runtime.
	 */
	const char *owner;
} rows[] = {
	{"\"<jemalloc>: Error in munmap(): ", "jemalloc", FAMILY(JE) | FAMILY(RJEM), "mallocx",
	 NULL},
	{"\"mimalloc: ", "mimalloc", FAMILY(MI), NULL, "_PyRuntime"}, /* CPython from 3.13 on */
	/* a string in the statistics of both tcmallocs, gperftools' and Google's */
	{"\"Bytes in use by application\n", "tcmalloc", FAMILY(TC), NULL, NULL},
	{"\"Failed to initialise snmalloc.", "snmalloc", 0, NULL, NULL},
	{"\"Scudo ERROR: ", "Scudo", 0, NULL, NULL},
	{"\"TBBmalloc: ", "oneTBB's malloc", FAMILY(TBB), NULL, NULL},
	{GLIBC_TEXT, "glibc's malloc", FAMILY(C), NULL, NULL},
};

static const char *const marks[] = {
	"\"<jemalloc>: Error in munmap(): ",
	"\"mimalloc: ",
	"\"Bytes in use by application\n",
	"\"Failed to initialise snmalloc.",
	"\"Scudo ERROR: ",
	"\"TBBmalloc: ",
	GLIBC_TEXT,
	"_PyRuntime",
	NULL,
};

static bool has_mark(const struct elf_index *index, const char *name)
{
	struct elf_mark mark;

	return elf_index_find_mark(index, name, &mark) == 0;
}

/*
 * Whether the file has a site at one of Rust's shims. A shim is a site if its allocator is not
 * known.
 */
static bool has_rust_site(const struct runtime_look *look, const struct elf_index *index,
			  const struct alloc_sites *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct table_row *row = alloc_table_find(s->items[i].symbol);

		if (row && row->family == TABLE_RUST && look->indexes[s->items[i].mapping] == index)
			return true;
	}
	return false;
}

/*
 * Whether the file has functions of this allocator under known names. families: the families of
 * which the file has functions. If glibc is linked in, the plain names are glibc's, because a
 * linker takes only one function of each name.
 */
static bool has_names(const struct elf_index *index, const struct hidden_row *row,
		      unsigned families)
{
	if (families & row->families)
		return true;
	return families & FAMILY(C) &&
	       (!has_mark(index, GLIBC_TEXT) || (row->own && has_mark(index, row->own)));
}

static void tell(const struct mapping *m, const struct hidden_row *row, struct alloc_sites *ret)
{
	size_t n = strlen(m->path);
	_cleanup_free_ char *path =
		elf_text_clean(n > PATH_SHOWN ? m->path + n - PATH_SHOWN : m->path);

	alloc_add_problem(ret,
			  "%s%s contains an allocator (%s) whose functions have no known names "
			  "(stripped?): what they allocate is not seen",
			  n > PATH_SHOWN ? "..." : "", path, row->allocator);
}

static void look_at(const struct runtime_look *look, size_t mapping, struct alloc_sites *ret)
{
	const struct elf_index *index = look->indexes[mapping];

	for (size_t k = 0; k < ARRAY_SIZE(rows); k++)
		if (has_mark(index, rows[k].text) &&
		    !(rows[k].owner && has_mark(index, rows[k].owner)) &&
		    !has_names(index, &rows[k], alloc_native_families(look, mapping)) &&
		    !has_rust_site(look, index, ret))
			tell(&look->maps->items[mapping], &rows[k], ret);
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	(void)event_mask;
	for (size_t i = 0; i < look->maps->n; i++)
		if (look->indexes[i] && (!i || look->indexes[i] != look->indexes[i - 1]))
			look_at(look, i, ret);
	return 0;
}

const struct alloc_finder alloc_hidden_finder = {
	.name = "hidden", .events = ALLOC_MEMORY_EVENTS, .marks = marks, .find = find};
