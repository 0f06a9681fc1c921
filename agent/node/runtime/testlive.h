/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: learns the runtimes of a live process, as the agent does. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/parse/format.h"
#include "node/runtime/internal.h"

struct live_process {
	struct mappings *maps;
	struct elf_index **indexes;
	struct runtime_process *runtimes;
};

/* Reads the mappings and indexes. It does not learn the runtimes yet. */
static inline void live_open(struct live_process *l, pid_t pid)
{
	uint64_t start_ns;

	assert_int_equal(proc_start_boottime((uint32_t)pid, &start_ns), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start_ns, pid}, 1, &l->maps), 0);
	l->indexes = xcalloc(l->maps->n, sizeof(*l->indexes));
	for (size_t i = 0; i < l->maps->n; i++) {
		int fd = l->maps->items[i].fd, memfd;

		if (fd >= 0 &&
		    parse_elf_to_index(fd, runtime_marks(), 64 << 20, &memfd) == PARSE_OK)
			assert_int_equal(elf_index_open(memfd, &l->indexes[i]), 0);
	}
}

static inline void live_learn(struct live_process *l, pid_t pid)
{
	bool again = true;

	live_open(l, pid);
	assert_true(runtime_likely(l->maps, l->indexes));
	assert_int_equal(runtime_learn(NULL, l->maps, l->indexes, NULL, &l->runtimes, &again), 0);
	assert_false(again);
}

static inline struct elf_index *live_index(void *live, const struct mapping *m)
{
	const struct live_process *l = live;
	struct elf_index *index = l->indexes[m - l->maps->items];

	return index ? elf_index_ref(index) : NULL;
}

static inline int live_resolve(struct live_process *l, struct runtime_process *p,
			       struct runtime_ask *asks, size_t n)
{
	return runtime_resolve(p, &(struct runtime_source){l->maps, live_index, l}, asks, n);
}

/* Frees what live_open() and later calls have made. May also be called after live_open() alone. */
static inline void live_forget(struct live_process *l)
{
	runtime_process_unref(l->runtimes);
	for (size_t i = 0; l->indexes && i < l->maps->n; i++)
		elf_index_unref(l->indexes[i]);
	free(l->indexes);
	proc_mappings_unref(l->maps);
	*l = (struct live_process){0};
}

static inline const struct runtime_learnt *live_find(const struct live_process *l,
						     enum pf_runtime_kind kind)
{
	for (size_t i = 0; i < runtime_process_n(l->runtimes); i++)
		if (runtime_process_at(l->runtimes, i).kind == kind)
			return runtime_process_at(l->runtimes, i).learnt;
	fail_msg("nothing of kind %d was learnt", kind);
	return NULL;
}
