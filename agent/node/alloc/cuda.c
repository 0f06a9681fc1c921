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

/* Finds where the process has an entry. Returns false if the mark lies in no code of this file. */
static bool address_of(const struct runtime_look *look, size_t mapping, const struct elf_mark *mark,
		       uint64_t *ret)
{
	uint64_t address = runtime_bias(look, &look->maps->items[mapping]) + mark->address;
	const struct mapping *m = proc_mappings_find(look->maps, address);

	if (mark->thread_local || !m ||
	    look->indexes[m - look->maps->items] != look->indexes[mapping])
		return false;
	*ret = address;
	return true;
}

static bool defines(const struct runtime_look *look, size_t mapping, const char *name)
{
	struct elf_mark mark;
	uint64_t address;

	return elf_index_find_mark(look->indexes[mapping], name, &mark) == 0 &&
	       address_of(look, mapping, &mark, &address);
}

static bool is_driver(const struct runtime_look *look, size_t mapping)
{
	return defines(look, mapping, "cuInit") && defines(look, mapping, "cuMemAlloc_v2") &&
	       defines(look, mapping, "cuMemFree_v2");
}

static const char *base_name(const struct mapping *m)
{
	const char *slash = strrchr(m->path, '/');

	return slash ? slash + 1 : m->path;
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

static bool has_driver_name(const struct mapping *m)
{
	return str_has_prefix(base_name(m), LIBRARY);
}

/* Adds the problem that the file has not been read yet, or cannot be read or parsed. */
static void tell_unread_driver(const struct mapping *m, struct alloc_sites *ret)
{
	_cleanup_free_ char *name = elf_text_clean(base_name(m));

	alloc_add_problem(ret, "%.100s has not been read yet, or cannot be read", name);
}

static void tell_unknown_driver(const struct mapping *m, struct alloc_sites *ret)
{
	_cleanup_free_ char *name = elf_text_clean(base_name(m));

	alloc_add_problem(ret, "%.100s is a CUDA driver whose functions podflame does not know",
			  name);
}

static void tell_unknown_entry(const struct mapping *m, const char *symbol, struct alloc_sites *ret)
{
	_cleanup_free_ char *name = elf_text_clean(base_name(m)), *shown = elf_text_clean(symbol);

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

	if (!address_of(look, mapping, mark, &address))
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

/* Returns whether a file that is no driver by is_driver() has a driver's name or functions. */
static bool is_like_driver(const struct runtime_look *look, size_t mapping)
{
	return has_driver_name(&look->maps->items[mapping]) ||
	       (defines(look, mapping, "cuInit") && defines(look, mapping, "cuCtxSetCurrent"));
}

static int find(const struct runtime_look *look, unsigned event_mask, struct alloc_sites *ret)
{
	int r = 0;

	(void)event_mask;
	for (size_t i = 0; r == 0 && i < look->maps->n; i++) {
		const struct mapping *m = &look->maps->items[i];

		if (!look->indexes[i] && has_driver_name(m))
			tell_unread_driver(m, ret);
		if (!look->indexes[i] || (i && look->indexes[i] == look->indexes[i - 1]))
			continue;
		if (is_driver(look, i))
			r = add_driver(look, i, ret);
		else if (is_like_driver(look, i))
			tell_unknown_driver(m, ret);
	}
	return r;
}

const struct alloc_finder alloc_cuda_finder = {
	.name = "cuda",
	.events = 1u << PF_EVENT_HBM_ALLOC | 1u << PF_EVENT_HBM_INUSE,
	.marks = alloc_cuda_marks,
	.find = find,
};
