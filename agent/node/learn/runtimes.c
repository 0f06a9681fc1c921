/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the runtimes of a process and the places where it allocates memory. It also makes the text
 * about runtimes that cannot be unwound or have no names. See learn.h.
 */
#include "node/learn/learn.h"

#include "node/alloc/alloc.h"

#include <stdlib.h>

#define PATH_SHOWN 200

/* Returns the index of the file of each mapping; NULL if the file is not parsed yet. */
static struct elf_index **indexes_known(struct files *f, const struct mappings *m)
{
	struct elf_index **indexes = xcalloc(m->n + 1, sizeof(struct elf_index *));

	for (size_t i = 0; i < m->n; i++)
		(void)files_index_known(f, &m->items[i], &indexes[i]);
	return indexes;
}

static void indexes_done(struct elf_index **indexes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		elf_index_unref(indexes[i]);
}

int learn_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
		   struct java_requests *java, struct runtime_process **ret, bool *ret_again)
{
	_cleanup_free_ struct elf_index **indexes = indexes_known(f, m);
	int r = 0;

	if (old || runtime_likely(m, indexes)) {
		r = runtime_learn(old, m, indexes, java, ret, ret_again);
	} else {
		*ret = NULL;
		*ret_again = false;
	}
	indexes_done(indexes, m->n);
	return r;
}

int learn_alloc_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      const struct pf_rdma_functions *rdma, struct alloc_sites **ret)
{
	_cleanup_free_ struct elf_index **indexes = NULL;
	struct process_memory *memory;
	struct runtime_look look = {.maps = m, .rdma = rdma};
	int r = runtime_process_memory_open(m->id, &memory);

	if (r < 0)
		return r;
	indexes = indexes_known(f, m);
	look.indexes = indexes;
	look.memory = runtime_process_memory(memory);
	r = alloc_sites_find(&look, event_mask, ret);
	indexes_done(indexes, m->n);
	runtime_process_memory_close(memory);
	return r;
}

/* Returns the path of the first file that contains code of the runtime. */
static char *path_of(const struct mappings *m, const struct runtime_learnt *l)
{
	for (size_t i = 0; i < l->n_ranges; i++) {
		const struct mapping *x = proc_mappings_find(m, l->ranges[i].start);
		size_t n = x ? strlen(x->path) : 0;

		if (n && x->path[0] == '/')
			return elf_text_clean(n > PATH_SHOWN ? x->path + n - PATH_SHOWN : x->path);
	}
	return NULL;
}

char *learn_runtimes_problem(const struct mappings *m, const struct runtime_process *p)
{
	for (size_t i = 0; i < runtime_process_n(p); i++) {
		struct runtime_view v = runtime_process_at(p, i);
		const struct runtime_ops *ops = runtime_ops(v.kind);
		_cleanup_free_ char *path = NULL;

		/*
		 * A runtime that is a trace context has no functions. `podflame doctor` reports its
		 * problems.
		 */
		if (!v.learnt->problem[0] || !ops || runtime_is_context(v.kind))
			continue;
		path = path_of(m, v.learnt);
		return xasprintf("%s%s%s%s%s: %s", ops->title, *v.learnt->version ? " " : "",
				 v.learnt->version, path ? " of " : "", path ? path : "",
				 v.learnt->problem);
	}
	return NULL;
}

char *learn_runtimes_unnamed(const struct runtime_process *p)
{
	_cleanup_buf_ struct buf b = {0};

	for (size_t i = 0; i < runtime_process_n_recognised(p); i++) {
		const struct runtime_recognised *s = runtime_process_recognised(p, i);

		if (s->by_map && runtime_process_has_map(p))
			continue;
		buf_printf(&b, "%sit runs %s: %s", b.len ? "; " : "", s->title, s->text);
	}
	return b.len ? buf_steal(&b) : NULL;
}
