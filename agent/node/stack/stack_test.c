/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks as they are rendered: this very process's addresses, with kernel names from a
 * fixture. The test program is its own parse child (PARSE_CHILD_VERB).
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "node/files/testfiles.h"
#include "node/runtime/internal.h"
#include "node/stack/internal.h"

#define HOLD_NS (3600 * NSEC_PER_SEC)

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

static const char *write_kallsyms(const char *text)
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

static void add_own_mappings(struct fixture *f, uint32_t exec_id)
{
	struct mappings *m;

	assert_int_equal(mappings_read(f->id, exec_id, &m), 0);
	stacks_mappings(f->s, m);
	mappings_unref(m);
}

static struct fixture make(const char *symbols)
{
	struct stacks_config c = {.files = files, .kallsyms_path = write_kallsyms(symbols)};
	struct fixture f = {.b = batch_new(), .id.tgid = getpid()};

	assert_int_equal(stacks_new(&c, &f.s), 0);
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	add_own_mappings(&f, 1);
	return f;
}

static void done(struct fixture *f)
{
	batch_free(f->b);
	stacks_free(f->s);
}

static const struct stack_ref *resolve(struct fixture *f, const struct raw_stack *u,
				       const struct raw_stack *k, bool lost)
{
	uint32_t index;

	assert_int_equal(stacks_resolve(f->s, f->b, f->id, u, k, lost, &index), 0);
	return &f->b->stacks[index];
}

static void assert_rendered(struct fixture *f, const struct raw_stack *u, const struct raw_stack *k,
			    bool lost, const char *expected)
{
	const struct stack_ref *r = resolve(f, u, k, lost);
	struct frame frames[64];
	struct stack_head head = {0};
	struct buf text;

	buf_init(&text, 0);
	for (size_t i = 0; i < r->n; i++)
		frames[i] = *r->frames[i];
	stack_render(&head, frames, r->n, &text);
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
	(&(struct raw_stack){1, (struct raw_frame[]){__VA_ARGS__},                                 \
			     sizeof((struct raw_frame[]){__VA_ARGS__}) / sizeof(struct raw_frame), \
			     end})

static void user_and_kernel_frames_have_names(void **state)
{
	struct fixture f = make(kallsyms);
	const struct frame *last_call;

	(void)state;
	/* The leaf's address is taken as it is, a return address belongs to the call before it. */
	assert_rendered(&f, STACK(NULL, USER(known_function), USER((uintptr_t)known_function + 4)),
			NULL, false, "known_function;known_function");
	last_call =
		resolve(&f, STACK(NULL, USER(known_function), USER(known_function)), NULL, false)
			->frames[0];
	assert_false(str_equal(last_call->name, "known_function"));
	assert_rendered(&f, STACK(NULL, USER(known_function)),
			STACK(NULL, KERNEL(0xffffffff81000210), KERNEL(0xffffffff81000280),
			      KERNEL(0xffffffff81000290)),
			false,
			"known_function;[k] do_syscall_64;[k] __x64_sys_write;[k] ksys_write");
	done(&f);
}

static void frames_carry_module_build_id_and_function_start(void **state)
{
	struct fixture f = make(kallsyms);
	const struct frame *a, *b;

	(void)state;
	a = resolve(&f, STACK(NULL, USER(known_function)), NULL, false)->frames[0];
	assert_int_equal(a->kind, FRAME_APP);
	assert_non_null(strstr(a->module, "stack_test"));
	assert_non_null(a->build_id);
	b = resolve(&f, STACK(NULL, USER((uintptr_t)known_function + 5)), NULL, false)->frames[0];
	assert_ptr_equal(a, b); /* equal functions are one frame */
	b = resolve(&f, NULL, STACK(NULL, KERNEL(0xffffffffc0001010)), false)->frames[0];
	assert_string_equal(b->module, "nf_tables");
	b = resolve(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false)->frames[0];
	assert_string_equal(b->module, "[kernel]");
	done(&f);
}

static void libraries_and_vdso(void **state)
{
	struct fixture f = make(kallsyms);
	void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *clock = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;
	const struct frame *r;

	(void)state;
	assert_rendered(&f, STACK(NULL, USER(dlsym(RTLD_DEFAULT, "qsort_r"))), NULL, false,
			"[l] qsort_r");
	if (!clock) {
		print_message("skipped: no vdso here\n");
		done(&f);
		skip();
	}
	r = resolve(&f, STACK(NULL, USER(clock)), NULL, false)->frames[0];
	assert_string_equal(r->module, "[vdso]");
	assert_non_null(strstr(r->name, "clock_gettime"));
	done(&f);
}

/* Tags as the node gives them: any number for a file. */
static void add_tagged_mappings(struct fixture *f)
{
	struct mappings *m;

	assert_int_equal(mappings_read(f->id, 1, &m), 0);
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].fd >= 0) {
			m->items[i].tag = PF_TAG_FIRST + m->items[i].inode;
			files_tagged(files, &m->items[i]);
		}
	stacks_mappings(f->s, m);
	mappings_unref(m);
}

/* A frame that was sampled in the file that has this address now. */
static struct raw_frame in_file(const struct fixture *f, const void *address)
{
	struct mappings *m;
	struct raw_frame r = USER(address);
	const struct mapping *x;

	assert_int_equal(mappings_read(f->id, 1, &m), 0);
	x = mappings_find(m, r.address);
	assert_non_null(x);
	r.file_offset = r.address - x->start + x->file_offset;
	r.tag = PF_TAG_FIRST + x->inode;
	mappings_unref(m);
	return r;
}

/* Whatever is mapped at the address when names are asked for. */
static void names_are_those_of_the_file_that_was_sampled(void **state)
{
	struct fixture f = make(kallsyms);
	struct raw_frame here, moved, no_file, strange;

	(void)state;
	add_tagged_mappings(&f);
	here = in_file(&f, known_function);
	moved = in_file(&f, dlsym(RTLD_DEFAULT, "qsort_r"));
	moved.address = here.address;
	no_file = USER(known_function);
	no_file.no_file = true;
	strange = here;
	strange.tag = 1;
	assert_rendered(&f, STACK(NULL, here), NULL, false, "known_function");
	assert_rendered(&f, STACK(NULL, moved), NULL, false, "[l] qsort_r");
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, here, moved)));
	assert_rendered(&f, STACK(NULL, no_file), NULL, false, "[unknown start_thread?]");
	assert_rendered(&f, STACK(NULL, strange), NULL, false, "[unknown start_thread?]");
	assert_true(stacks_misses(f.s, f.id, STACK(NULL, strange)));
	done(&f);
}

/* A file that the agent could not open gives its path to no other that is mapped in its place. */
static void a_file_without_a_tag_names_no_frame(void **state)
{
	struct fixture f = make(kallsyms);
	struct mappings *m;
	struct raw_frame here;

	(void)state;
	here = in_file(&f, known_function);
	assert_int_equal(mappings_read(f.id, 1, &m), 0);
	for (size_t i = 0; i < m->n; i++)
		m->items[i].tag = PF_TAG_UNKNOWN;
	stacks_mappings(f.s, m);
	mappings_unref(m);
	here.tag = 3; /* of a file that is not known */
	assert_rendered(&f, STACK(NULL, here), NULL, false, "[unknown start_thread?]");
	/* Reading the mappings once more would not help: the kernel's part asks for that rarely. */
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, here)));
	done(&f);
}

/* Its mappings were just being changed: nothing says that it was the file which is there now. */
static void a_frame_whose_file_could_not_be_seen_has_no_name(void **state)
{
	struct fixture f = make(kallsyms);
	struct raw_frame unseen = USER(known_function);

	(void)state;
	add_tagged_mappings(&f);
	unseen.tag = PF_TAG_UNKNOWN;
	unseen.file_offset = unseen.address;
	assert_rendered(&f, STACK("mapping_changed", unseen), NULL, false,
			"[unwind: mapping_changed];[unknown start_thread?]");
	assert_false(stacks_misses(f.s, f.id, STACK("mapping_changed", unseen)));
	done(&f);
}

static void what_is_not_known_is_said(void **state)
{
	void *jit = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fixture f = make(kallsyms);
	const struct frame *r;

	(void)state;
	/* It ended well, but where the process has no code. */
	assert_rendered(&f, STACK(NULL, USER(0x1234), USER(0x5678)), NULL, false,
			"[unwind: bad_address];[unknown start_thread?];"
			"[unknown] 0x0000000000001234");
	r = resolve(&f, STACK(NULL, USER(jit)), NULL, false)->frames[0];
	assert_null(r->module);
	assert_int_equal(r->address, (uintptr_t)jit);
	/* Another exec's mappings say nothing about these addresses. */
	assert_rendered(&f,
			STACK(NULL, ((struct raw_frame){.exec_id = 2,
							.address = (uintptr_t)known_function})),
			NULL, false, "[unknown start_thread?]");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000400)), false,
			"[k] [unknown] 0xffffffff81000400");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff80000000)), false,
			"[k] [unknown] 0xffffffff80000000");
	munmap(jit, 4096);
	done(&f);
}

static void markers_stand_where_the_walk_stopped(void **state)
{
	struct fixture f = make(kallsyms);

	(void)state;
	assert_rendered(&f, STACK("truncated", USER(known_function)), NULL, false,
			"[truncated];known_function");
	assert_rendered(&f, STACK("no_frame_pointer", USER(known_function)),
			STACK("truncated", KERNEL(0xffffffff81000110)), false,
			"[unwind: no_frame_pointer];known_function;[truncated];[k] do_idle");
	assert_rendered(&f, NULL, NULL, true, "[stack trace lost]");
	assert_rendered(&f, NULL, NULL, false, "[stack trace lost]");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), true,
			"[stack trace lost];[k] do_idle");
	assert_rendered(&f, STACK(NULL, USER(known_function)), NULL, true,
			"known_function;[stack trace lost]");
	done(&f);
}

static void misses_ask_for_mappings_once_a_second(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *known = STACK(NULL, USER(known_function)),
			       *wild = STACK(NULL, USER(64));

	(void)state;
	assert_false(stacks_misses(f.s, f.id, known));
	assert_true(stacks_misses(f.s, f.id, wild));
	assert_false(stacks_misses(f.s, f.id, wild));
	assert_true(stacks_misses(f.s, (struct process_id){f.id.start_boottime_ns, f.id.tgid + 1},
				  known));
	done(&f);
}

/* Its present mappings are another program's. */
static void a_past_program_is_not_read_again(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *wild = STACK(NULL, USER(64));

	(void)state;
	add_own_mappings(&f, 2);
	assert_false(stacks_misses(f.s, f.id, wild));
	done(&f);
}

/* Whoever makes names waits for no file: it is told, once, and a program's that is past before names are made. */
static void files_that_nobody_has_parsed_are_told(void **state)
{
	struct files_config fc = {.queued = true};
	struct files *queued, *parsing = files;
	struct unparsed_file *u;
	struct elf_index *index;
	struct fixture f;
	const struct raw_stack *known = STACK(NULL, USER(known_function),
					      USER((uintptr_t)known_function + 1)),
			       *later = STACK(NULL, {.exec_id = 2, .address = 64});
	size_t n;

	(void)state;
	assert_int_equal(files_new(&fc, &queued), 0);
	files = queued;
	f = make(kallsyms);
	files = parsing;
	/* of mappings that were just read; later those who follow have come to their files */
	stacks_want_files(f.s, f.id, known);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	unparsed_free(u, n);
	stacks_process(f.s, f.id)->execs[0].maps->read_at_ns -= 5 * NSEC_PER_SEC;
	stacks_want_files(f.s, f.id, known);
	assert_null(stacks_unparsed(f.s, &n));
	assert_int_equal(n, 0);
	assert_null(resolve(&f, known, NULL, false)->frames[0]->name);
	assert_int_equal(files_count(queued), 0);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	assert_true(str_has_suffix(u->m->items[u->k].path, "/stack_test"));
	unparsed_free(u, n);
	add_own_mappings(&f, 2);
	stacks_want_files(f.s, f.id, later);
	stacks_want_files(f.s, f.id, known);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	assert_int_equal(files_index(queued, &u->m->items[u->k], &index), 0);
	elf_index_unref(index);
	unparsed_free(u, n);
	assert_rendered(&f, known, NULL, false, "known_function;known_function");
	assert_null(stacks_unparsed(f.s, &n));
	assert_int_equal(n, 0);
	done(&f);
	files_free(queued);
}

/* One with very many files leaves others their place. */
static void a_process_tells_few_files_at_once(void **state)
{
	struct files_config fc = {.queued = true};
	struct mappings *m = xcalloc(1, sizeof(*m));
	struct files *queued, *parsing = files;
	struct unparsed_file *u;
	struct fixture f;
	size_t n;

	(void)state;
	assert_int_equal(files_new(&fc, &queued), 0);
	files = queued;
	f = make(kallsyms);
	files = parsing;
	*m = (struct mappings){.tgid = f.id.tgid,
			       .exec_id = 2,
			       .start_boottime_ns = f.id.start_boottime_ns,
			       .items = xcalloc(100, sizeof(*m->items)),
			       .n = 100,
			       .root_fd = -1,
			       .refs = 1};
	for (size_t i = 0; i < m->n; i++)
		m->items[i] = (struct mapping){.start = 4096 * (i + 1),
					       .end = 4096 * (i + 2),
					       .path = xstrdup("/x"),
					       .inode = i + 1,
					       .fd = -1};
	stacks_mappings(f.s, m);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < m->n; i++)
			resolve(&f, STACK(NULL, {.exec_id = 2, .address = m->items[i].start + 1}),
				NULL, false);
		u = stacks_unparsed(f.s, &n);
		assert_int_equal(n, UNPARSED_MAX);
		unparsed_free(u, n);
	}
	mappings_unref(m);
	done(&f);
	files_free(queued);
}

static void ended_processes_are_held_then_forgotten(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, USER(known_function));

	(void)state;
	stacks_exited(f.s, f.id, UINT64_MAX, HOLD_NS);
	assert_rendered(&f, u, NULL, false, "known_function");
	stacks_exited(f.s, f.id, UINT64_MAX, 0);
	assert_rendered(&f, u, NULL, false, "[unknown start_thread?]");
	done(&f);
}

/* Its PID was given out again within a clock tick, before its mappings could be read. */
static void what_is_read_after_the_end_is_anothers_104(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, USER(known_function));
	uint64_t exited_ns = now_boot_ns();

	(void)state;
	assert_rendered(&f, u, NULL, false, "known_function");
	stacks_exited(f.s, f.id, exited_ns, HOLD_NS);
	assert_rendered(&f, u, NULL, false, "known_function"); /* read before */
	add_own_mappings(&f, 2);
	assert_rendered(&f,
			STACK(NULL, ((struct raw_frame){.exec_id = 2,
							.address = (uintptr_t)known_function})),
			NULL, false, "[unknown start_thread?]");
	assert_rendered(&f, u, NULL, false, "known_function");
	/* Told of the end after that. */
	stacks_exited(f.s, f.id, 1, HOLD_NS);
	assert_rendered(&f, u, NULL, false, "[unknown start_thread?]");
	done(&f);
}

static void mappings_after_the_end_are_held_as_long(void **state)
{
	struct stacks_config c = {.files = files, .kallsyms_path = write_kallsyms(kallsyms)};
	struct fixture f = {.b = batch_new(), .id.tgid = getpid()};
	const struct raw_stack *u = STACK(NULL, USER(known_function));
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;

	(void)state;
	assert_int_equal(stacks_new(&c, &f.s), 0);
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	stacks_exited(f.s, f.id, UINT64_MAX, 2 * NSEC_PER_SEC);
	add_own_mappings(&f, 1);
	assert_rendered(&f, u, NULL, false, "known_function");
	while (resolve(&f, u, NULL, false)->frames[0]->name && now_mono_ns() < deadline)
		sched_yield();
	assert_rendered(&f, u, NULL, false, "[unknown start_thread?]");
	done(&f);
}

static void newer_mappings_replace_older(void **state)
{
	struct fixture f = make(kallsyms);

	(void)state;
	for (uint32_t i = 0; i < 10; i++)
		add_own_mappings(&f, i / 2);
	assert_rendered(&f,
			STACK(NULL, ((struct raw_frame){.exec_id = 4,
							.address = (uintptr_t)known_function})),
			NULL, false, "known_function");
	assert_rendered(&f,
			STACK(NULL, ((struct raw_frame){.exec_id = 0,
							.address = (uintptr_t)known_function})),
			NULL, false, "[unknown start_thread?]");
	done(&f);
}

/* An exec was under way when they were read: told as the old program's, they are the new one's. */
static void another_programs_mappings_do_not_replace(void **state)
{
	struct fixture f = make(kallsyms);
	struct mapping item = {
		.start = 0x1000, .end = 0x2000, .inode = 1, .path = "/new", .fd = -1};
	struct mappings other = {.tgid = f.id.tgid,
				 .exec_id = 1,
				 .start_boottime_ns = f.id.start_boottime_ns,
				 .items = &item,
				 .n = 1,
				 .root_fd = -1,
				 .refs = 1};

	(void)state;
	stacks_mappings(f.s, &other);
	assert_int_equal(other.refs, 1);
	assert_rendered(&f, STACK(NULL, USER(known_function)), NULL, false, "known_function");
	done(&f);
}

/* ---- inlined functions ---- */

static const char inlined_source[] =
	"static volatile int sink;\n"
	"#define ALWAYS static inline __attribute__((always_inline))\n"
	"#define NEVER __attribute__((noinline))\n"
	"ALWAYS void inner(void) { sink++; __asm__ volatile(\"in_inner: nop\"); sink++; }\n"
	"ALWAYS void outer(void) { inner(); sink += 2; }\n"
	"NEVER void work(void) { outer(); sink += 3; }\n"
	"ALWAYS void wrapper(void) { work(); }\n"
	"int main(void) { wrapper(); __asm__ volatile(\"after_call: nop\"); return sink; }\n";

static uint64_t address_of(const struct mapping *m, const char *symbol)
{
	_cleanup_free_ char *line = line_of("nm %s/inlined | sed -n 's/ . %s$//p'", dir, symbol);

	return m->start + strtoull(line, NULL, 16);
}

/* What mappings_read would say of a process that has this program at this place. */
static struct mapping map_program(struct fixture *f, uint32_t exec_id)
{
	_cleanup_free_ char *path = xasprintf("%s/inlined", dir);
	struct mappings *maps = xcalloc(1, sizeof(*maps));
	struct mapping m = map_of(path);

	*maps = (struct mappings){.tgid = f->id.tgid,
				  .exec_id = exec_id,
				  .start_boottime_ns = f->id.start_boottime_ns,
				  .items = xmemdup(&m, sizeof(m)),
				  .n = 1,
				  .root_fd = -1,
				  .refs = 1};
	maps->items[0].path = xstrdup("/app/inlined");
	stacks_mappings(f->s, maps);
	mappings_unref(maps);
	return m;
}

static void assert_frame(const struct frame *f, const char *name, bool inlined, uint64_t address,
			 uint32_t line)
{
	assert_string_equal(f->name, name);
	assert_int_equal(f->inlined, inlined);
	assert_int_equal(f->address, address);
	assert_string_equal(f->module, "/app/inlined");
	assert_int_equal(f->line, line);
	assert_non_null(strstr(f->file, "inlined.c"));
}

/* The call is the last thing that wrapper does: its return address is behind it, in main. */
static void inlined_functions_are_frames(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/inlined.c", dir);
	struct fixture f = make(kallsyms);
	uint64_t in_inner, after_call, main_start, work_start;
	const struct frame *const *frames;
	const struct raw_stack *stack;
	const struct stack_ref *r;
	struct mapping m;

	(void)state;
	assert_int_equal(file_write_atomic(path, inlined_source, strlen(inlined_source), 0600), 0);
	run("gcc -g -O2 -o %s/inlined %s", dir, path);
	m = map_program(&f, 7);
	in_inner = address_of(&m, "in_inner");
	after_call = address_of(&m, "after_call");
	main_start = address_of(&m, "main") - m.start;
	work_start = address_of(&m, "work") - m.start;
	stack = STACK(NULL, ((struct raw_frame){.exec_id = 7, .address = in_inner}),
		      ((struct raw_frame){.exec_id = 7, .address = after_call}));
	assert_rendered(&f, stack, NULL, false, "main;work");
	files_debug(files, &m, -1);
	assert_rendered(&f, stack, NULL, false, "main;wrapper;work;outer;inner");
	r = resolve(&f, stack, NULL, false);
	frames = r->frames;
	assert_frame(frames[0], "main", false, main_start, 8);
	assert_frame(frames[1], "wrapper", true, main_start, 7);
	assert_frame(frames[2], "work", false, work_start, 6);
	assert_frame(frames[3], "outer", true, work_start, 5);
	assert_frame(frames[4], "inner", true, work_start, 4);
	done(&f);
	close(m.fd);
}

/* ---- kernel symbols ---- */

static void assert_kernel(const struct kernel_symbols *k, uint64_t address, const char *name)
{
	const char *found = NULL, *module;
	uint64_t start;

	if (!name) {
		assert_int_equal(kernel_symbols_find(k, address, &start, &found, &module), -ENOENT);
		return;
	}
	assert_int_equal(kernel_symbols_find(k, address, &start, &found, &module), 0);
	assert_string_equal(found, name);
}

static void kernel_symbols_end_at_holes(void **state)
{
	_cleanup_free_ char *text = xstrdup(kallsyms);
	struct kernel_symbols *k = kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_kernel(k, 0xffffffff80ffffff, NULL);
	assert_kernel(k, 0xffffffff81000000, "_text");
	assert_kernel(k, 0xffffffff810001ff, "do_idle");
	assert_kernel(k, 0xffffffff81000200, "ksys_write");
	assert_kernel(k, 0xffffffff810002ff, "do_syscall_64");
	assert_kernel(k, 0xffffffff81000300, NULL); /* past the text */
	assert_kernel(k, 0xffffffff82000000, NULL); /* data */
	assert_kernel(k, 0xffffffffc0001150, "nf_last");
	assert_kernel(k, 0xffffffffc0201100, NULL); /* far behind the last of its module */
	assert_kernel(k, 0xffffffffc0301010, "bpf_prog_6deef7357e7b4530_on_cpu");
	assert_kernel(k, UINT64_MAX, NULL);
	assert_int_equal(kernel_symbols_count(k), 9);
	kernel_symbols_free(k);
}

/* arm64: its image is not at the end of the addresses, and modules lie below it. */
static void other_layouts_have_names(void **state)
{
	char text[] = "0000000000000000 A absolute\n"
		      "ffff800080000000 T _text\n"
		      "ffff800080010000 T do_idle\n"
		      "ffff800081000000 T _etext\n"
		      "ffff80007a1f0000 t nf_hook\t[nf_tables]\n"
		      "ffff900000000000 t too_far\t[bpf]\n";
	struct kernel_symbols *k = kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_false(kernel_symbols_hidden(k));
	assert_int_equal(kernel_symbols_count(k), 4);
	assert_kernel(k, 0xffff800080010004, "do_idle");
	assert_kernel(k, 0xffff80007a1f0004, "nf_hook");
	assert_kernel(k, 0xffff900000000000, NULL);
	assert_kernel(k, 0x10004, NULL);
	kernel_symbols_free(k);
}

/* Nothing is hidden from us: no privilege would help. */
static void addresses_without_code_are_not_hidden(void **state)
{
	struct fixture f = make("0000000000000000 A absolute\n0000000001000000 D data\n");

	(void)state;
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false,
			"[k] [unknown] 0xffffffff81000110");
	assert_non_null(strstr(stacks_kernel_problem(f.s), "names no function"));
	done(&f);
}

static void padding_has_a_name_of_its_own(void **state)
{
	char text[] = "ffffffff81000100 T __pfx_do_idle\n"
		      "ffffffff81000110 T do_idle\n"
		      "ffffffff81000200 t idle\n"
		      "ffffffff81000210 t le\n";
	struct kernel_symbols *k = kernel_symbols_parse(text, strlen(text));

	(void)state;
	assert_kernel(k, 0xffffffff81000100, "__pfx_do_idle");
	assert_kernel(k, 0xffffffff81000110, "do_idle");
	assert_kernel(k, 0xffffffff81000200, "idle");
	assert_kernel(k, 0xffffffff81000210, "le");
	kernel_symbols_free(k);
}

static void hidden_addresses_are_a_problem_with_a_reason(void **state)
{
	struct fixture f = make("0000000000000000 T _stext\n0000000000000000 T do_idle\n");

	(void)state;
	assert_non_null(strstr(stacks_kernel_problem(f.s), "shows no addresses"));
	assert_non_null(strstr(stacks_kernel_problem(f.s), "CAP_SYSLOG"));
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false,
			"[k] [unknown] 0xffffffff81000110");
	/* The administrator grants it: the next refresh sees that. */
	write_kallsyms(kallsyms);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_string_equal(stacks_kernel_problem(f.s), "");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false, "[k] do_idle");
	done(&f);
}

static void new_programs_are_not_mistaken_for_old_ones(void **state)
{
	_cleanup_free_ char *more = xasprintf("%sffffffffc0401000 t bpf_prog_2\t[bpf]\n", kallsyms);
	_cleanup_free_ char *most = xasprintf("%sffffffffc0501000 t bpf_prog_3\t[bpf]\n", more);
	const struct raw_stack *old = STACK(NULL, KERNEL(0xffffffffc0301010));
	const struct raw_stack *second = STACK(NULL, KERNEL(0xffffffffc0401010));
	struct fixture f = make(kallsyms);

	(void)state;
	assert_rendered(&f, NULL, old, false, "[k] bpf_prog_6deef7357e7b4530_on_cpu");
	write_kallsyms(more);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_rendered(&f, NULL, second, false, "[k] bpf_prog_2");
	/* Again within seconds: too dear to read, so BPF programs have no names for a while. */
	write_kallsyms(most);
	assert_int_equal(stacks_refresh_kernel(f.s), 0);
	assert_rendered(&f, NULL, second, false, "[k] [unknown] 0xffffffffc0401010");
	assert_rendered(&f, NULL, STACK(NULL, KERNEL(0xffffffff81000110)), false, "[k] do_idle");
	done(&f);
}

static void absent_kallsyms_is_a_problem(void **state)
{
	struct stacks_config c = {.kallsyms_path = "/nonexistent/kallsyms"};
	struct stacks *s;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	assert_non_null(strstr(stacks_kernel_problem(s), "cannot read /nonexistent/kallsyms"));
	stacks_free(s);
}

static void real_kallsyms(void **state)
{
	struct stacks_config c = {0};
	struct stacks *s;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	if (*stacks_kernel_problem(s)) {
		print_message("skipped: %s\n", stacks_kernel_problem(s));
		stacks_free(s);
		skip();
	}
	assert_int_equal(stacks_refresh_kernel(s), 0);
	stacks_free(s);
}

/* ---- frames of a runtime's program ---- */

/* Words {1, n} are function "f<n>" that inlined "g"; {2, n} can never be read; {3, n}: as the caller says. */
static int fake_resolve(void *own, struct memory *m, const struct runtime_words *f,
			const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)own;
	(void)m;
	if (f->a == 2)
		return -ESTALE;
	runtime_names_add(ret,
			  f->a == 1 ? xasprintf("f%" PRIu64, f->b)
				    : xasprintf("called_by_%" PRIu64, caller ? caller->b : 0),
			  xstrdup("f.py"), (uint32_t)f->b, false);
	if (f->a == 1)
		runtime_names_add(ret, xstrdup("g"), NULL, 0, true);
	return 0;
}

static void fake_forget(void *own)
{
	(void)own;
}

static const struct runtime_ops fake = {
	.name = "fake",
	.frame_kind = FRAME_PYTHON,
	.by_caller = true,
	.resolve = fake_resolve,
	.forget = fake_forget,
};
static const struct runtime_ops *const fakes[_PF_RUNTIME_MAX] = {[1] = &fake};
#define RUN(a_, b_) ((struct raw_frame){.runtime = 1, .type = 5, .exec_id = 1, .words = {a_, b_}})
#define TROUBLE(reason, a_)                                                                        \
	((struct raw_frame){                                                                       \
		.runtime = 1, .type = PF_TYPE_TROUBLE, .exec_id = 1, .words = {reason, a_}})

static void run_fake(struct fixture *f)
{
	struct runtime_range loop = {
		.start = (uintptr_t)known_function,
		.end = (uintptr_t)known_function + 8,
	};
	struct runtime_learnt learnt = {
		.data = xcalloc(1, 8),
		.data_bytes = 8,
		.ranges = xmemdup(&loop, sizeof(loop)),
		.n_ranges = 1,
	};
	struct runtime_process *r;
	struct mappings *m;

	runtime_table = fakes;
	assert_int_equal(mappings_read(f->id, 1, &m), 0);
	r = runtime_process_with(NULL, m, (enum pf_runtime_kind)1, &learnt);
	stacks_runtimes(f->s, f->id, 1, r);
	runtime_process_unref(r);
	mappings_unref(m);
}

/* What is wanted of the one process there is, read and taken in; returns how many frames were asked for. */
static size_t read_wanted(struct fixture *f, const struct raw_stack *u)
{
	struct names_wanted **w;
	size_t n, n_asks = 0;

	stacks_want(f->s, f->id, u);
	w = stacks_wanted(f->s, &n);
	assert_true(n <= 1);
	if (n) {
		n_asks = w[0]->n_asks;
		wanted_read(w[0]);
		stacks_named(f->s, w[0]);
		wanted_free(w[0]);
	}
	free(w);
	return n_asks;
}

static void names_of_runtimes_are_read_once(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u =
		STACK(NULL, RUN(1, 7), USER((uintptr_t)known_function + 4), RUN(1, 7), RUN(1, 8));
	const struct frame *inlined;

	(void)state;
	run_fake(&f);
	assert_rendered(&f, u, NULL, false,
			"[fake: no_name];[fake: no_name];known_function;[fake: no_name]");
	assert_int_equal(read_wanted(&f, u), 3); /* by_caller: f7 by f7, f7 by f8, f8 */
	assert_int_equal(read_wanted(&f, u), 0);
	assert_rendered(&f, u, NULL, false, "f8;g;f7;g;known_function;f7;g");
	inlined = resolve(&f, u, NULL, false)->frames[6];
	assert_true(inlined->inlined);
	assert_int_equal(inlined->kind, FRAME_PYTHON);
	assert_null(stacks_end(f.s, f.id, u));
	assert_false(stacks_misses(f.s, f.id, u));
	/* Mappings of the same program again: names stay. */
	add_own_mappings(&f, 1);
	assert_rendered(&f, u, NULL, false, "f8;g;f7;g;known_function;f7;g");
	done(&f);
}

/* Behind it is the allocator's first instruction, not a return address. */
static void what_was_allocated_comes_before_the_leaf(void **state)
{
	struct fixture f = make(kallsyms);
	struct raw_frame object = RUN(1, 7);
	const struct raw_stack *u;

	(void)state;
	object.type = PF_TYPE_OBJECT;
	u = STACK(NULL, object, USER(known_function), USER((uintptr_t)known_function + 4));
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false,
			"[unwind: runtime_pending];known_function;known_function;f7;g");
	assert_false(stacks_misses(f.s, f.id, u));
	/* It does not tell that its program's functions are there. */
	assert_string_equal(stacks_end(f.s, f.id, u), "runtime_pending");
	done(&f);
}

/* Words {4, _} are another function each time. */
static size_t n_resolved;
static int changing_resolve(void *own, struct memory *m, const struct runtime_words *f,
			    const struct runtime_words *caller, struct runtime_names *ret)
{
	(void)own;
	(void)m;
	(void)f;
	(void)caller;
	if (++n_resolved == 3)
		return -ESTALE;
	runtime_names_add(ret, xasprintf("f%zu", n_resolved), NULL, 0, false);
	return 0;
}
static const struct runtime_ops changing = {
	.name = "changing",
	.frame_kind = FRAME_PYTHON,
	.names_last_ns = 1,
	.resolve = changing_resolve,
	.forget = fake_forget,
};

static void names_are_asked_for_again(void **state)
{
	static const struct runtime_ops *const table[_PF_RUNTIME_MAX] = {[1] = &changing};
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(4, 0));

	(void)state;
	run_fake(&f);
	runtime_table = table;
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false, "f1");
	assert_int_equal(read_wanted(&f, u), 1);
	assert_rendered(&f, u, NULL, false, "f2");
	assert_int_equal(read_wanted(&f, u), 1); /* freed: no name is better than that one */
	assert_rendered(&f, u, NULL, false, "[changing: no_name]");
	done(&f);
}

/* The reader's mailbox was full, say: that is no answer. */
static void names_that_nobody_read_are_not_known(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, u);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 1);
	stacks_named(f.s, w[0]);
	wanted_free(w[0]);
	free(w);
	assert_rendered(&f, u, NULL, false, "[fake: no_name]");
	done(&f);
}

static void runtimes_that_are_not_known_are_a_miss(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));

	(void)state;
	assert_true(stacks_misses(f.s, f.id, u));
	done(&f);
	f = make(kallsyms);
	run_fake(&f);
	assert_false(stacks_misses(f.s, f.id, u));
	done(&f);
}

/* Names go into the batch before the stack does: a full one takes none of them. */
static void a_full_batch_takes_no_names(void **state)
{
	struct fixture f = make(kallsyms);
	_cleanup_free_ char *large = xmalloc(BATCH_MAX_BYTES + 1);
	uint32_t index;
	size_t bytes;

	(void)state;
	memset(large, 'x', BATCH_MAX_BYTES);
	large[BATCH_MAX_BYTES] = '\0';
	batch_str(f.b, large);
	bytes = batch_bytes(f.b);
	assert_int_equal(stacks_resolve(f.s, f.b, f.id, STACK(NULL, USER(known_function)), NULL,
					false, &index),
			 -E2BIG);
	assert_int_equal(batch_bytes(f.b), bytes);
	done(&f);
}

static void stacks_taken_before_their_runtime_was_known_are_told(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *early =
		STACK(NULL, USER(run_fake), USER((uintptr_t)known_function + 4));
	const struct raw_stack *whole =
		STACK(NULL, USER(run_fake), USER((uintptr_t)known_function + 4), RUN(1, 7));

	(void)state;
	assert_null(stacks_end(f.s, f.id, early));
	run_fake(&f);
	assert_string_equal(stacks_end(f.s, f.id, early), "runtime_pending");
	assert_rendered(&f, early, NULL, false,
			"[unwind: runtime_pending];known_function;run_fake");
	assert_null(stacks_end(f.s, f.id, whole));
	assert_null(stacks_end(f.s, f.id, STACK(NULL, USER(run_fake))));
	done(&f);
}

static void a_function_has_its_callers_name_for_it(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(3, 1), RUN(1, 4), RUN(3, 1));

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 3);
	assert_rendered(&f, u, NULL, false, "called_by_0;f4;g;called_by_4");
	done(&f);
}

static void what_a_runtime_cannot_tell_is_said(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u =
		STACK(NULL, TROUBLE(PF_TROUBLE_THREAD, 0), USER((uintptr_t)known_function + 4),
		      RUN(2, 1), USER((uintptr_t)known_function + 4));

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 1);
	assert_int_equal(read_wanted(&f, u), 0); /* not again for a while */
	assert_rendered(&f, u, NULL, false,
			"known_function;[fake: no_name];known_function;[fake: no_thread_state]");
	assert_string_equal(stacks_end(f.s, f.id, u), "no_thread_state");
	done(&f);
}

static void absent_pages_are_touched(void **state)
{
	struct fixture f = make(kallsyms);
	static char page[2];
	const struct raw_stack *u =
		STACK(NULL, TROUBLE(PF_TROUBLE_READ, (uintptr_t)page), USER(known_function));
	struct counter *touched = counter("podflame_runtime_pages_touched_total", NULL, NULL);
	uint64_t before = counter_get(touched);

	(void)state;
	run_fake(&f);
	assert_int_equal(read_wanted(&f, u), 0);
	assert_int_equal(counter_get(touched), before + 1);
	done(&f);
}

static void names_of_another_exec_are_not_taken(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, RUN(1, 7));
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, u);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 1);
	w[0]->exec_id = 2; /* an answer that came too late */
	wanted_read(w[0]);
	stacks_named(f.s, w[0]);
	wanted_free(w[0]);
	free(w);
	assert_rendered(&f, u, NULL, false, "[fake: no_name]");
	done(&f);
}

static void names_of_who_has_ended_are_not_wanted(void **state)
{
	struct fixture f = make(kallsyms);
	struct names_wanted **w;
	size_t n;

	(void)state;
	run_fake(&f);
	stacks_want(f.s, f.id, STACK(NULL, RUN(1, 7)));
	stacks_exited(f.s, f.id, UINT64_MAX, 0);
	w = stacks_wanted(f.s, &n);
	assert_int_equal(n, 0);
	free(w);
	done(&f);
}

static int start(void **state)
{
	struct files_config c = {0};

	(void)state;
	return testdir_make(dir) || files_new(&c, &files);
}

static int stop(void **state)
{
	(void)state;
	files_free(files);
	return testdir_remove(dir);
}

/* Names have a limit in bytes, too: those asked for last stay, the others are counted and asked for again. */
static void long_names_make_room_for_others(void **state)
{
	enum { N = 2048, NAME_BYTES = 16384, LIMIT = 16 << 20 };
	struct counter *evicted = counter("podflame_runtime_names_evicted_total", NULL, NULL);
	uint64_t before = counter_get(evicted);
	struct named *n = named_new();
	struct names_wanted w = {0}, again = {0};
	size_t kept = 0;

	(void)state;
	for (uint64_t i = 0; i < N; i++)
		named_want(n, STACK(NULL, RUN(1, i)), &w);
	assert_int_equal(w.n_asks, N);
	for (size_t i = 0; i < N; i++) {
		char *name = xcalloc(1, NAME_BYTES);

		memset(name, 'n', NAME_BYTES - 1);
		w.asks[i].error = 0;
		w.asks[i].names.items = xcalloc(1, sizeof(*w.asks[i].names.items));
		w.asks[i].names.items->name = name;
		w.asks[i].names.n = 1;
	}
	named_take(n, &w);
	for (uint64_t i = 0; i < N; i++)
		kept += named_find(n, &RUN(1, i), NULL) != NULL;
	assert_in_range(kept, LIMIT / NAME_BYTES / 2, LIMIT / NAME_BYTES);
	assert_int_equal(counter_get(evicted) - before, N - kept);
	assert_non_null(named_find(n, &RUN(1, N - 1), NULL));
	named_want(n, STACK(NULL, RUN(1, 0)), &again);
	named_want(n, STACK(NULL, RUN(1, N - 1)), &again);
	assert_int_equal(again.n_asks, 1);
	for (size_t i = 0; i < N; i++)
		runtime_names_done(&w.asks[i].names);
	free(w.asks);
	free(again.asks);
	named_free(n);
}

/* Nor do places without names add up for ever: of many programs each has its share. */
static void places_of_many_programs_make_room(void **state)
{
	enum { PROGRAMS = 40, PLACES = 16384 /* that one may have */ };
	struct counter *evicted = counter("podflame_runtime_names_evicted_total", NULL, NULL);
	uint64_t before = counter_get(evicted);
	struct named *n[PROGRAMS];
	struct names_wanted w = {0};

	(void)state;
	for (size_t k = 0; k < PROGRAMS; k++) {
		n[k] = named_new();
		for (uint64_t i = 0; i < PLACES; i++)
			named_want(n[k], STACK(NULL, RUN(1, i)), &w);
	}
	assert_true(counter_get(evicted) > before);
	for (size_t k = 0; k < PROGRAMS; k++)
		named_free(n[k]);
	free(w.asks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(user_and_kernel_frames_have_names),
		cmocka_unit_test(frames_carry_module_build_id_and_function_start),
		cmocka_unit_test(libraries_and_vdso),
		cmocka_unit_test(names_are_those_of_the_file_that_was_sampled),
		cmocka_unit_test(a_file_without_a_tag_names_no_frame),
		cmocka_unit_test(a_frame_whose_file_could_not_be_seen_has_no_name),
		cmocka_unit_test(what_is_not_known_is_said),
		cmocka_unit_test(markers_stand_where_the_walk_stopped),
		cmocka_unit_test(misses_ask_for_mappings_once_a_second),
		cmocka_unit_test(a_past_program_is_not_read_again),
		cmocka_unit_test(files_that_nobody_has_parsed_are_told),
		cmocka_unit_test(a_process_tells_few_files_at_once),
		cmocka_unit_test(ended_processes_are_held_then_forgotten),
		cmocka_unit_test(what_is_read_after_the_end_is_anothers_104),
		cmocka_unit_test(mappings_after_the_end_are_held_as_long),
		cmocka_unit_test(newer_mappings_replace_older),
		cmocka_unit_test(another_programs_mappings_do_not_replace),
		cmocka_unit_test(inlined_functions_are_frames),
		cmocka_unit_test(kernel_symbols_end_at_holes),
		cmocka_unit_test(other_layouts_have_names),
		cmocka_unit_test(addresses_without_code_are_not_hidden),
		cmocka_unit_test(padding_has_a_name_of_its_own),
		cmocka_unit_test(hidden_addresses_are_a_problem_with_a_reason),
		cmocka_unit_test(new_programs_are_not_mistaken_for_old_ones),
		cmocka_unit_test(absent_kallsyms_is_a_problem),
		cmocka_unit_test(real_kallsyms),
		cmocka_unit_test(names_of_runtimes_are_read_once),
		cmocka_unit_test(names_are_asked_for_again),
		cmocka_unit_test(what_was_allocated_comes_before_the_leaf),
		cmocka_unit_test(names_that_nobody_read_are_not_known),
		cmocka_unit_test(runtimes_that_are_not_known_are_a_miss),
		cmocka_unit_test(a_full_batch_takes_no_names),
		cmocka_unit_test(stacks_taken_before_their_runtime_was_known_are_told),
		cmocka_unit_test(a_function_has_its_callers_name_for_it),
		cmocka_unit_test(what_a_runtime_cannot_tell_is_said),
		cmocka_unit_test(absent_pages_are_touched),
		cmocka_unit_test(names_of_another_exec_are_not_taken),
		cmocka_unit_test(names_of_who_has_ended_are_not_wanted),
		cmocka_unit_test(long_names_make_room_for_others),
		cmocka_unit_test(places_of_many_programs_make_room),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
