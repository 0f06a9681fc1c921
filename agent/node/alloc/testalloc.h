/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: finds where a live process allocates, as the agent does. */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Compiles this source in dir and starts the program, which writes a byte and then waits. */
static inline pid_t alloc_program_start(const char *dir, const char *source, const char *flags)
{
	_cleanup_free_ char *command = xasprintf(
		"cd %s && cat >p.c <<'END'\n%s\nEND\ngcc -w p.c -o p %s", dir, source, flags);
	_cleanup_free_ char *program = xasprintf("%s/p", dir);
	int out[2];
	pid_t pid;
	char c;

	assert_int_equal(system(command), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		execl(program, program, NULL);
		_exit(127);
	}
	close(out[1]);
	assert_int_equal(read(out[0], &c, 1), 1);
	close(out[0]);
	return pid;
}

#define ALLOC_WAITS                                                                                \
	"#include <unistd.h>\nint main(void) { write(1, \"x\", 1); for (;;) pause(); }\n"

/* Builds a library of this name from the source, and starts a program that has it. */
static inline pid_t alloc_library_start(const char *dir, const char *name, const char *source)
{
	_cleanup_free_ char *path = xasprintf("%s/l.c", dir);
	_cleanup_free_ char *command =
		xasprintf("cd %s && gcc -w -fno-ipa-icf -shared -fPIC -Wl,-soname,%s l.c -o %s",
			  dir, name, name);
	_cleanup_free_ char *flags = xasprintf("-Wl,--no-as-needed -Wl,-rpath,%s ./%s", dir, name);

	assert_int_equal(file_write_atomic(path, source, strlen(source), 0600), 0);
	assert_int_equal(system(command), 0);
	return alloc_program_start(dir, ALLOC_WAITS, flags);
}

static inline struct alloc_sites *alloc_find(struct alloc_process *p, pid_t pid, unsigned events)
{
	struct alloc_sites *s = NULL;
	struct runtime_look look;

	alloc_process_open(p, pid);
	look = alloc_process_look(p);
	assert_int_equal(alloc_sites_find(&look, events, &s), 0);
	return s;
}

static inline void alloc_process_stop(pid_t pid, struct alloc_process *p, struct alloc_sites *s)
{
	alloc_sites_free(s);
	alloc_process_close(p);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static inline const struct alloc_site *alloc_site_of(const struct alloc_sites *s,
						     const char *symbol)
{
	for (size_t i = 0; i < s->n; i++)
		if (streq(s->items[i].symbol, symbol))
			return &s->items[i];
	return NULL;
}
