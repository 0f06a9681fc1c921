/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the marks in the files of a process, and code that was made at run time. A mark is the name
 * of a symbol by which a runtime is found.
 */
#include "node/runtime/generated/generated.h"

#include <pthread.h>
#include <stdlib.h>

#define MARKS_MAX 256 /* symbols of all runtimes; the parser accepts no more */

static const char *marks[MARKS_MAX + 1];

static void collect(void)
{
	size_t n = 0;

	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)k);

		for (size_t i = 0; ops && ops->marks[i] && n < MARKS_MAX; i++)
			marks[n++] = ops->marks[i];
	}
	n += runtime_recognised_marks(marks + n, MARKS_MAX - n);
	runtime_generated_marks(marks + n, MARKS_MAX - n);
}

const char *const *runtime_marks(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, collect);
	return marks;
}

/* .NET writes its code through one mapping and runs it in another. Both map a file in memory. */
bool runtime_mapping_is_generated(const struct mapping *m, const struct elf_index *index)
{
	static const char *const names[] = {"[anon:", "[anon_shmem:", "/memfd:", "/dev/zero",
					    "/anon_hugepage"};

	if (index || m->copy)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_has_prefix(m->path, names[i]))
			return true;
	return !*m->path || m->memory_file;
}

bool runtime_is_mark(const char *const *of, const char *name)
{
	for (const char *const *m = of; *m; m++) {
		size_t stem = (*m)[0] == name[0] ? strcspn(*m, "*") : 0;

		if (stem && strncmp(*m, name, stem) == 0 && ((*m)[stem] == '*' || !name[stem]))
			return true;
	}
	return false;
}

/*
 * Returns whether the index has a mark of a runtime. It also has marks for other modules, and those
 * that count only beside generated code.
 */
static bool has_mark(const struct elf_index *index)
{
	for (size_t i = 0; i < elf_index_n_marks(index); i++) {
		const char *name = elf_index_mark(index, i).name;

		if (runtime_is_mark(runtime_marks(), name) && !runtime_generated_is_mark(name))
			return true;
	}
	return false;
}

bool runtime_is_in(const struct elf_index *index)
{
	return elf_index_flags(index) & (ELF_INDEX_GO | ELF_INDEX_NATIVE_IMAGE) || has_mark(index);
}

bool runtime_likely(const struct mappings *maps, struct elf_index *const *indexes)
{
	for (size_t i = 0; i < maps->n; i++)
		if ((indexes[i] && runtime_is_in(indexes[i])) ||
		    runtime_mapping_is_generated(&maps->items[i], indexes[i]))
			return true;
	return false;
}

static int bias_of(const struct runtime_look *look, const struct mapping *m, uint64_t *ret)
{
	const struct elf_index *index = look->indexes[m - look->maps->items];
	uint64_t address;
	int r = index ? elf_index_mapping_address(index, m->file_offset, m->end - m->start,
						  &address)
		      : -ENOENT;

	if (r == 0)
		*ret = m->start - address;
	return r;
}

uint64_t runtime_bias(const struct runtime_look *look, const struct mapping *m)
{
	uint64_t bias = 0;

	(void)bias_of(look, m, &bias);
	return bias;
}

int runtime_find_mark(const struct runtime_look *look, const char *mark,
		      const struct mapping **ret_mapping, uint64_t *ret_address, uint64_t *ret_size)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		const struct mapping *m = &look->maps->items[i];
		struct elf_mark found;
		uint64_t bias = 0;

		if (!look->indexes[i] || elf_index_find_mark(look->indexes[i], mark, &found) < 0 ||
		    bias_of(look, m, &bias) < 0)
			continue;
		*ret_mapping = m;
		*ret_address = found.thread_local ? found.address : bias + found.address;
		*ret_size = found.size;
		return 0;
	}
	return -ENOENT;
}
