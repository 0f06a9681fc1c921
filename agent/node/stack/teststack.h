/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only for tests of stack: a process whose mappings are this program's own, with kernel names from
 * a file.
 */
#pragma once

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/files/testfiles.h"
#include "node/runtime/testruntime.h"
#include "node/stack/internal.h"

static struct files *files;

static const char kallsyms[] = "ffffffff81000000 T _stext\n"
			       "ffffffff81000000 T _text\n"
			       "ffffffff81000100 t do_idle\n"
			       "ffffffff81000200 T ksys_write\n"
			       "ffffffff81000200 W __weak_ksys_write\n"
			       "ffffffff81000240 T __x64_sys_write\n"
			       "ffffffff81000280 T do_syscall_64\n"
			       "ffffffff81000300 T _etext\n"
			       "ffffffff82000000 D some_data\n"
			       "ffffffffc0001000 t nf_hook\t[nf_tables]\n"
			       "ffffffffc0001100 T nf_last\t[nf_tables]\n"
			       "ffffffffc0301000 t bpf_prog_6deef7357e7b4530_on_cpu\t[bpf]\n";

static inline const char *write_kallsyms(const char *text)
{
	static char path[TESTDIR_BYTES + 16];

	snprintf(path, sizeof(path), "%s/kallsyms", dir);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600), 0);
	return path;
}

struct fixture {
	struct stacks *s;
	struct batch *b;
	struct process_id id;
};

static inline void add_own_mappings(struct fixture *f, uint32_t exec_id)
{
	struct mappings *m;

	assert_int_equal(proc_mappings_read(f->id, exec_id, &m), 0);
	stacks_mappings(f->s, m, 0);
	proc_mappings_unref(m);
}

static inline struct fixture make(const char *symbols)
{
	struct stacks_config c = {.files = files, .kallsyms_path = write_kallsyms(symbols)};
	struct fixture f = {.b = profile_batch_new(), .id.tgid = getpid()};

	assert_int_equal(stacks_new(&c, &f.s), 0);
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	add_own_mappings(&f, 1);
	return f;
}

static inline void done(struct fixture *f)
{
	profile_batch_free(f->b);
	stacks_free(f->s);
}

static inline const struct stack_ref *resolve(struct fixture *f, const struct raw_stack *u,
					      const struct raw_stack *k, bool lost)
{
	uint32_t index;

	assert_int_equal(stacks_resolve(f->s, f->b, f->id, u, k, lost, &index), 0);
	return &f->b->stacks[index];
}

static inline void assert_rendered(struct fixture *f, const struct raw_stack *u,
				   const struct raw_stack *k, bool lost, const char *expected)
{
	const struct stack_ref *r = resolve(f, u, k, lost);
	struct frame frames[64];
	struct stack_head head = {0};
	struct buf text;

	buf_init(&text, 0);
	for (size_t i = 0; i < r->n; i++)
		frames[i] = *r->frames[i];
	profile_stack_render(&head, frames, r->n, &text);
	assert_string_equal(text.data ? text.data : "", expected);
	buf_done(&text);
}

__attribute__((noinline)) int known_function(int x);
__attribute__((noinline)) int known_function(int x)
{
	volatile int y = x;

	return y * 3;
}

#define USER(a)	  ((struct raw_frame){.exec_id = 1, .address = (uintptr_t)(a)})
#define KERNEL(a) ((struct raw_frame){.kernel = true, .address = a})
#define STACK(end, ...)                                                                            \
	(&(struct raw_stack){.hash = 1,                                                            \
			     .frames = (struct raw_frame[]){__VA_ARGS__},                          \
			     .n = sizeof((struct raw_frame[]){__VA_ARGS__}) /                      \
				  sizeof(struct raw_frame),                                        \
			     .end_reason = end})

/* ---- frames of a runtime's program ---- */

static inline int start(void **state)
{
	struct files_config c = {0};

	(void)state;
	return testdir_make(dir) || files_new(&c, &files);
}

static inline int stop(void **state)
{
	(void)state;
	files_free(files);
	return testdir_remove(dir);
}
