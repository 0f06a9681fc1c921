/* SPDX-License-Identifier: Apache-2.0 */
/* See tables.h: what a process runs besides native code, and what is said where that is not walked. */
#include "node/tables.h"

#include <stdlib.h>

#define PATH_SHOWN 200

int tables_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
		    struct runtime_process **ret, bool *ret_again)
{
	_cleanup_free_ struct elf_index **indexes = xcalloc(m->n + 1, sizeof(struct elf_index *));
	int r = 0;

	for (size_t i = 0; i < m->n; i++)
		(void)files_index_known(f, &m->items[i], &indexes[i]);
	if (old || runtimes_likely(m, indexes)) {
		r = runtimes_learn(old, m, indexes, ret, ret_again);
	} else {
		*ret = NULL;
		*ret_again = false;
	}
	for (size_t i = 0; i < m->n; i++)
		elf_index_unref(indexes[i]);
	return r;
}

/* Of the first of its code that lies in a file. */
static char *path_of(const struct mappings *m, const struct runtime_learnt *l)
{
	for (size_t i = 0; i < l->n_ranges; i++) {
		const struct mapping *x = mappings_find(m, l->ranges[i].start);
		size_t n = x ? strlen(x->path) : 0;

		if (n && x->path[0] == '/')
			return text_clean(n > PATH_SHOWN ? x->path + n - PATH_SHOWN : x->path);
	}
	return NULL;
}

char *tables_runtimes_problem(const struct mappings *m, const struct runtime_process *p)
{
	for (size_t i = 0; i < runtime_process_n(p); i++) {
		struct runtime_view v = runtime_process_at(p, i);
		const struct runtime_ops *ops = runtime_ops(v.kind);
		_cleanup_free_ char *path = NULL;

		/* Contexts take no functions away: `doctor` tells of theirs. */
		if (!v.learnt->problem[0] || !ops || !ops->resolve)
			continue;
		path = path_of(m, v.learnt);
		return xasprintf("%s%s%s%s%s: %s", ops->title, *v.learnt->version ? " " : "",
				 v.learnt->version, path ? " of " : "", path ? path : "",
				 v.learnt->problem);
	}
	return NULL;
}
