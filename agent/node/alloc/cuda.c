/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs: finds the process's CUDA driver, and adds a site for each of its entries that
 * gives or frees memory. A file is a driver if it defines the driver's main functions, whatever its
 * name is. All calls of a program go through the driver, also those of the runtime library
 * (libcudart), which may be linked into the program. Reader's thread. docs/gpu-memory.md.
 */
#include "node/alloc/cuda_entries.h"
#include "node/alloc/internal.h"

#define LIBRARY "libcuda.so"

bool alloc_cuda_is_driver(const struct runtime_look *look, size_t mapping)
{
	return alloc_file_defines(look, mapping, "cuInit") &&
	       alloc_file_defines(look, mapping, "cuMemAlloc_v2") &&
	       alloc_file_defines(look, mapping, "cuMemFree_v2");
}

/*
 * Returns whether the mark may be an entry that podflame does not know: that of a newer driver.
 * Marks of other modules are no entries. Nor are names with dots, which are names of parts of
 * functions.
 */
static bool is_unknown_entry(const struct elf_mark *mark)
{
	if (alloc_cuda_find(mark->name) || strchr(mark->name, '.'))
		return false;
	for (const char *const *p = alloc_cuda_marks; *p; p++)
		if (strncmp(*p, mark->name, strcspn(*p, "*")) == 0)
			return true;
	return false;
}

bool alloc_cuda_has_name(const struct mapping *m)
{
	return str_has_prefix(alloc_file_name(m), LIBRARY);
}

static void tell_unknown_entry(const struct mapping *m, const char *symbol, struct alloc_sites *ret)
{
	_cleanup_free_ char *name = elf_text_clean(alloc_file_name(m)),
			    *shown = elf_text_clean(symbol);

	alloc_add_problem(ret,
			  "%.100s has a function that podflame does not know (%.60s): what it "
			  "allocates or frees is not seen",
			  name, shown);
}

static int add_entry(const struct runtime_look *look, size_t mapping, const struct elf_mark *mark,
		     struct alloc_sites *ret)
{
	const struct cuda_entry *entry = alloc_cuda_find(mark->name);
	uint64_t address;

	if (!alloc_mark_address(look, mapping, mark, &address))
		return 0;
	if (entry && entry->site.kind)
		return alloc_add_site(look, address, mark->name, entry->site, ret);
	if (is_unknown_entry(mark))
		tell_unknown_entry(&look->maps->items[mapping], mark->name, ret);
	return 0;
}

static int add_driver(const struct runtime_look *look, size_t mapping, struct alloc_sites *ret)
{
	const struct elf_index *index = look->indexes[mapping];
	int r = 0;

	for (size_t i = 0; r == 0 && i < elf_index_n_marks(index); i++) {
		struct elf_mark mark = elf_index_mark(index, i);

		r = add_entry(look, mapping, &mark, ret);
	}
	return r;
}

/* Returns whether a file that is not known as a driver has a driver's name or functions. */
static bool is_like_driver(const struct runtime_look *look, size_t mapping)
{
	return alloc_cuda_has_name(&look->maps->items[mapping]) ||
	       (alloc_file_defines(look, mapping, "cuInit") &&
		alloc_file_defines(look, mapping, "cuCtxSetCurrent"));
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	int r = 0;

	(void)event_mask;
	for (size_t i = 0; r == 0 && i < look->maps->n; i++) {
		const struct mapping *m = &look->maps->items[i];

		if (!look->indexes[i] && alloc_cuda_has_name(m))
			alloc_add_file_problem(ret, m, ALLOC_UNREAD);
		if (!alloc_is_first(look, i))
			continue;
		if (alloc_cuda_is_driver(look, i))
			r = add_driver(look, i, ret);
		else if (is_like_driver(look, i))
			alloc_add_file_problem(
				ret, m, "is a CUDA driver whose functions podflame does not know");
	}
	return r;
}

const struct alloc_finder alloc_cuda_finder = {
	.name = "cuda",
	.events = 1u << PF_EVENT_HBM_ALLOC | 1u << PF_EVENT_HBM_INUSE,
	.marks = alloc_cuda_marks,
	.find = find,
};
