/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: finds where a live process allocates, as the agent does. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/alloc/alloc.h"
#include "node/parse/format.h"

struct alloc_process {
	struct mappings *maps;
	struct elf_index **indexes;
	struct process_memory *memory;
};

static inline void alloc_process_open(struct alloc_process *p, pid_t pid)
{
	uint64_t start_ns;

	assert_int_equal(proc_start_boottime((uint32_t)pid, &start_ns), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start_ns, pid}, 1, &p->maps), 0);
	assert_int_equal(
		runtime_process_memory_open((struct process_id){start_ns, pid}, &p->memory), 0);
	p->indexes = xcalloc(p->maps->n, sizeof(*p->indexes));
	for (size_t i = 0; i < p->maps->n; i++) {
		int fd = p->maps->items[i].fd, memfd;

		if (i && fd == p->maps->items[i - 1].fd && p->indexes[i - 1])
			p->indexes[i] = elf_index_ref(p->indexes[i - 1]);
		else if (fd >= 0 &&
			 parse_elf_to_index(fd, alloc_marks(), 64 << 20, &memfd) == PARSE_OK)
			assert_int_equal(elf_index_open(memfd, &p->indexes[i]), 0);
	}
}

static inline struct runtime_look alloc_process_look(struct alloc_process *p)
{
	return (struct runtime_look){
		.maps = p->maps,
		.indexes = p->indexes,
		.memory = runtime_process_memory(p->memory),
	};
}

static inline void alloc_process_close(struct alloc_process *p)
{
	for (size_t i = 0; i < p->maps->n; i++)
		elf_index_unref(p->indexes[i]);
	free(p->indexes);
	proc_mappings_unref(p->maps);
	runtime_process_memory_close(p->memory);
	*p = (struct alloc_process){0};
}
