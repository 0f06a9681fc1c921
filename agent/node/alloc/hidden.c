/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocators whose functions cannot be found: the file is stripped, or table.c does not have their
 * names. An allocator's messages are texts of the file, which stripping keeps. This finder adds no
 * sites, but the problem that memory is not seen. It must be the last row of ALLOC_FINDERS: by then
 * the other finders have added the sites of each file.
 */
#include "node/alloc/internal.h"

#include <stdlib.h>

#define PATH_SHOWN 160

static const struct row {
	const char *text, *allocator;
	const char *
		owner; /* a file with this symbol has it for itself, and another finder knows; NULL: none */
} rows[] = {
	{"\"<jemalloc>: Error in munmap(): ", "jemalloc", NULL},
	{"\"mimalloc: ", "mimalloc", "_PyRuntime"}, /* CPython from 3.13 on */
	/* of the statistics of both tcmallocs, gperftools' and Google's */
	{"\"Bytes in use by application\n", "tcmalloc", NULL},
	{"\"Failed to initialise snmalloc.", "snmalloc", NULL},
	{"\"Scudo ERROR: ", "Scudo", NULL},
	{"\"TBBmalloc: ", "oneTBB's malloc", NULL},
	{"\"malloc(): corrupted top size", "glibc's malloc", NULL},
};

static const char *const marks[] = {
	"\"<jemalloc>: Error in munmap(): ", "\"mimalloc: ",	"\"Bytes in use by application\n",
	"\"Failed to initialise snmalloc.",  "\"Scudo ERROR: ", "\"TBBmalloc: ",
	"\"malloc(): corrupted top size",    "_PyRuntime",	NULL,
};

static bool has_mark(const struct elf_index *index, const char *name)
{
	struct elf_mark mark;

	return elf_index_find_mark(index, name, &mark) == 0;
}

static bool has_site(const struct runtime_look *look, const struct elf_index *index,
		     const struct alloc_sites *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (look->indexes[s->items[i].mapping] == index)
			return true;
	return false;
}

static void tell(const struct mapping *m, const struct row *row, struct alloc_sites *ret)
{
	size_t n = strlen(m->path);
	_cleanup_free_ char *path = text_clean(n > PATH_SHOWN ? m->path + n - PATH_SHOWN : m->path);

	alloc_add_problem(ret,
			  "%s%s contains an allocator (%s) whose functions have no names there "
			  "(stripped?): what they allocate is not seen",
			  n > PATH_SHOWN ? "..." : "", path, row->allocator);
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	(void)event_mask;
	for (size_t i = 0; i < look->maps->n; i++) {
		const struct elf_index *index = look->indexes[i];

		if (!index || (i && index == look->indexes[i - 1]) || has_site(look, index, ret))
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(rows); k++)
			if (has_mark(index, rows[k].text) &&
			    !(rows[k].owner && has_mark(index, rows[k].owner)))
				tell(&look->maps->items[i], &rows[k], ret);
	}
	return 0;
}

const struct alloc_finder hidden_finder = {.name = "hidden", .marks = marks, .find = find};
