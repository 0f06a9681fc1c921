/* SPDX-License-Identifier: Apache-2.0 */
/* Functions about a mapped file that several finders use. Reader's thread. */
#include "node/alloc/internal.h"

bool alloc_is_first(const struct runtime_look *look, size_t mapping)
{
	const struct elf_index *index = look->indexes[mapping];

	return index && (!mapping || index != look->indexes[mapping - 1]);
}

bool alloc_mark_address(const struct runtime_look *look, size_t mapping,
			const struct elf_mark *mark, uint64_t *ret)
{
	uint64_t address = runtime_bias(look, &look->maps->items[mapping]) + mark->address;
	const struct mapping *m = proc_mappings_find(look->maps, address);

	if (mark->thread_local || !m ||
	    look->indexes[m - look->maps->items] != look->indexes[mapping])
		return false;
	*ret = address;
	return true;
}

bool alloc_file_defines(const struct runtime_look *look, size_t mapping, const char *name)
{
	struct elf_mark mark;
	uint64_t address;

	return elf_index_find_mark(look->indexes[mapping], name, &mark) == 0 &&
	       alloc_mark_address(look, mapping, &mark, &address);
}

const char *alloc_file_name(const struct mapping *m)
{
	const char *slash = strrchr(m->path, '/');

	return slash ? slash + 1 : m->path;
}

void alloc_add_file_problem(struct alloc_sites *s, const struct mapping *m, const char *text)
{
	_cleanup_free_ char *name = elf_text_clean(alloc_file_name(m));

	alloc_add_problem(s, "%.100s %s", name, text);
}
