/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests how stacks are shown, with addresses of this process, and kernel names from a file that the
 * test writes. The test program is its own parse child (PARSE_CHILD_VERB).
 */
#include "node/stack/teststack.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define HOLD_NS (3600 * NSEC_PER_SEC)

static void user_and_kernel_frames_have_names(void **state)
{
	struct fixture f = make(kallsyms);
	const struct frame *last_call;

	(void)state;
	/* For the leaf, its address is used; for a caller, the call before the return address. */
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
	assert_ptr_equal(a, b); /* frames of the same function are one frame */
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

/* The agent knows CUDA's libraries by their names. */
static void cuda_libraries_are_told_apart(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/libcudart.so.12", dir);
	struct fixture f;
	void *library;

	(void)state;
	run("cd %s && echo 'int cudaFree(void *p) { return p != 0; }' > cuda.c && "
	    "gcc -O2 -fPIC -shared -o %s cuda.c",
	    dir, path);
	library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	f = make(kallsyms);
	assert_rendered(&f, STACK(NULL, USER(dlsym(library, "cudaFree"))), NULL, false,
			"[c] cudaFree");
	done(&f);
	dlclose(library);
}

/* A local function of a stripped library has no name, but begins where the library calls it. */
static void functions_without_names_begin_somewhere(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/bare.so", dir), *text = NULL;
	const struct frame *a, *b, *shown;
	uintptr_t (*where)(void);
	struct fixture f;
	void *library;

	(void)state;
	run("cd %s && echo 'static __attribute__((noinline)) int hidden(int x) { return x + 3; } "
	    "void *where(void) { return (void *)hidden; }' > bare.c && "
	    "gcc -O1 -fPIC -shared -s -o %s bare.c",
	    dir, path);
	library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	*(void **)&where = dlsym(library, "where");
	f = make(kallsyms);
	a = resolve(&f, STACK(NULL, USER(where())), NULL, false)->frames[0];
	assert_null(a->name);
	assert_int_equal(a->start, a->address);
	b = resolve(&f, STACK(NULL, USER(where() + 2)), NULL, false)->frames[0];
	assert_int_equal(b->address, a->address + 2);
	assert_int_equal(b->start, a->start);
	shown = resolve(&f, STACK(NULL, USER(where)), NULL, false)->frames[0];
	assert_string_equal(shown->name, "where");
	assert_int_equal(shown->start, 0);
	f.s->unnamed_by_start = true;
	text = xasprintf("[l] bare.so+0x%" PRIx64, a->start);
	assert_rendered(&f, STACK(NULL, USER(where() + 2)), NULL, false, text);
	done(&f);
	dlclose(library);
}

/*
 * Adds the mappings of this process with tags, and has their files parsed. The tag is made from the
 * file's inode number.
 */
static void add_tagged_mappings(struct fixture *f)
{
	struct elf_index *index;
	struct mappings *m;

	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].fd >= 0) {
			m->items[i].tag = PF_TAG_FIRST + m->items[i].inode;
			files_tagged(files, &m->items[i]);
			if (files_index(files, &m->items[i], &index) == 0)
				elf_index_unref(index);
		}
	stacks_mappings(f->s, m, 0);
	proc_mappings_unref(m);
}

/*
 * Returns a frame with the tag of the file in which the address is, and the address as a file
 * offset.
 */
static struct raw_frame in_file(const struct fixture *f, const void *address)
{
	struct mappings *m;
	struct raw_frame r = USER(address);
	const struct mapping *x;

	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	x = proc_mappings_find(m, r.address);
	assert_non_null(x);
	r.file_offset = r.address - x->start + x->file_offset;
	r.tag = PF_TAG_FIRST + x->inode;
	proc_mappings_unref(m);
	return r;
}

/*
 * A frame has a name of the file with its tag, whatever is mapped at its address when the name is
 * asked for.
 */
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

/*
 * The process has ended before its mappings were read. Its frames have the names of the files with
 * their tags, and nothing is asked of the process. For a file that is not known, it is.
 */
static void a_process_that_was_never_read_has_the_names_of_known_files(void **state)
{
	struct fixture f = make(kallsyms);
	const struct process_id never = {f.id.start_boottime_ns + 1, f.id.tgid};
	struct raw_frame here, strange;

	(void)state;
	add_tagged_mappings(&f);
	here = in_file(&f, known_function);
	strange = here;
	strange.tag = 1;
	assert_false(stacks_misses(f.s, never, STACK(NULL, here)));
	assert_true(stacks_misses(f.s, never, STACK(NULL, here, strange)));
	f.id = never;
	assert_rendered(&f, STACK(NULL, here), NULL, false, "known_function");
	done(&f);
}

/*
 * The cgroup's container is known by the processes that were read. If they have several roots, it
 * is not known whose debug files would be right.
 */
static void an_ended_process_has_the_root_of_its_cgroup(void **state)
{
	struct fixture f = make(kallsyms);

	(void)state;
	stacks_roots_note(f.s, 7, 3, false);
	stacks_roots_note(f.s, 7, 3, false);
	stacks_roots_note(f.s, 8, 4, false);
	assert_int_equal(stacks_roots_find(f.s, 7), 3);
	assert_int_equal(stacks_roots_find(f.s, 8), 4);
	assert_int_equal(stacks_roots_find(f.s, 9), 0);
	stacks_roots_note(f.s, 7, 0, false); /* the root of a process that has ended is not known */
	assert_int_equal(stacks_roots_find(f.s, 7), 3);
	for (unsigned n = 1; n < 8; n++) {
		stacks_roots_note(f.s, 7, 4, false);
		assert_int_equal(stacks_roots_find(f.s, 7), 0);
	}
	/* the other root was that of a process that has gone */
	stacks_roots_note(f.s, 7, 4, false);
	assert_int_equal(stacks_roots_find(f.s, 7), 4);
	stacks_roots_note(f.s, 0, 5, false); /* the cgroup is not known */
	assert_int_equal(stacks_roots_find(f.s, 0), 0);
	done(&f);
}

/*
 * What starts a container has the node's root at first. That is not the root of the container's
 * processes. But a cgroup may have no other: that of a service of the node.
 */
static void the_nodes_root_counts_only_without_another(void **state)
{
	struct fixture f = make(kallsyms);
	int fd = open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	stacks_roots_note(f.s, 7, 3, true);
	assert_int_equal(stacks_roots_find(f.s, 7), 3);
	stacks_roots_note(f.s, 7, 4, false);
	assert_int_equal(stacks_roots_find(f.s, 7), 4);
	stacks_roots_note(f.s, 7, 5, true); /* `kubectl exec` */
	assert_int_equal(stacks_roots_find(f.s, 7), 4);
	assert_int_equal(stacks_root_is_nodes(f.s, fd), fd >= 0);
	closep(&fd);
	fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_false(stacks_root_is_nodes(f.s, fd));
	assert_false(stacks_root_is_nodes(f.s, -1));
	close(fd);
	done(&f);
}

static void the_cgroup_that_was_read_least_recently_is_forgotten(void **state)
{
	const char *name = "podflame_symbol_roots_evicted_total";
	struct fixture f = make(kallsyms);
	uint64_t before = counter_get(counter(name, NULL, NULL));

	(void)state;
	for (uint64_t id = 1; id <= 4096; id++)
		stacks_roots_note(f.s, id, 3, false);
	stacks_roots_note(f.s, 1, 3, false);
	stacks_roots_note(f.s, 4097, 3, false);
	assert_int_equal(stacks_roots_find(f.s, 1), 3);
	assert_int_equal(stacks_roots_find(f.s, 2), 0);
	assert_int_equal(stacks_roots_find(f.s, 4097), 3);
	assert_int_equal(counter_get(counter(name, NULL, NULL)), before + 1);
	done(&f);
}

/*
 * The path of a file that the agent could not open is not shown for frames of another file that was
 * mapped at the same address.
 */
static void a_file_without_a_tag_names_no_frame(void **state)
{
	struct fixture f = make(kallsyms);
	struct mappings *m;
	struct raw_frame here;

	(void)state;
	here = in_file(&f, known_function);
	assert_int_equal(proc_mappings_read(f.id, 1, &m), 0);
	for (size_t i = 0; i < m->n; i++)
		m->items[i].tag = PF_TAG_UNKNOWN;
	stacks_mappings(f.s, m, 0);
	proc_mappings_unref(m);
	here.tag = 3; /* the tag of a file that is not known */
	assert_rendered(&f, STACK(NULL, here), NULL, false, "[unknown start_thread?]");
	/*
	 * To read the mappings once more would not help. The BPF program asks for a new read
	 * itself, but rarely.
	 */
	assert_false(stacks_misses(f.s, f.id, STACK(NULL, here)));
	done(&f);
}

/*
 * The process was changing its mappings when the sample was taken, so it is not known whether the
 * file that is there now was there then.
 */
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
	/* The walk ended as at a root, but at an address where the process has no code. */
	assert_rendered(&f, STACK(NULL, USER(0x1234), USER(0x5678)), NULL, false,
			"[unwind: bad_address];[unknown start_thread?];"
			"[unknown] 0x0000000000001234");
	r = resolve(&f, STACK(NULL, USER(jit)), NULL, false)->frames[0];
	assert_null(r->module);
	assert_int_equal(r->address, (uintptr_t)jit);
	/* The mappings of another exec must not be used for these addresses. */
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

/*
 * The present mappings of the process belong to another program, so reading them again would not
 * help.
 */
static void a_past_program_is_not_read_again(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *wild = STACK(NULL, USER(64));

	(void)state;
	add_own_mappings(&f, 2);
	assert_false(stacks_misses(f.s, f.id, wild));
	done(&f);
}

/*
 * stacks_resolve() does not wait for a file that has not been parsed: such a file is reported,
 * once. A file of an earlier program is reported even before names are made.
 */
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
	/*
	 * reported if the mappings were just read; later, the module follow has handled their files
	 */
	stacks_want_files(f.s, f.id, known);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	stacks_unparsed_free(u, n);
	stacks_process(f.s, f.id)->execs[0].maps->read_at_ns -= 5 * NSEC_PER_SEC;
	stacks_want_files(f.s, f.id, known);
	assert_null(stacks_unparsed(f.s, &n));
	assert_int_equal(n, 0);
	assert_null(resolve(&f, known, NULL, false)->frames[0]->name);
	assert_int_equal(files_count(queued), 0);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	assert_true(str_has_suffix(u->m->items[u->k].path, "/stack_test"));
	stacks_unparsed_free(u, n);
	add_own_mappings(&f, 2);
	stacks_want_files(f.s, f.id, later);
	stacks_want_files(f.s, f.id, known);
	u = stacks_unparsed(f.s, &n);
	assert_int_equal(n, 1);
	assert_int_equal(files_index(queued, &u->m->items[u->k], &index), 0);
	elf_index_unref(index);
	stacks_unparsed_free(u, n);
	assert_rendered(&f, known, NULL, false, "known_function;known_function");
	assert_null(stacks_unparsed(f.s, &n));
	assert_int_equal(n, 0);
	done(&f);
	files_free(queued);
}

/*
 * Of one process, only a few files are reported at once, so that there is room for other processes.
 */
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
	*m = (struct mappings){.id = f.id,
			       .exec_id = 2,
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
	stacks_mappings(f.s, m, 0);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < m->n; i++)
			resolve(&f, STACK(NULL, {.exec_id = 2, .address = m->items[i].start + 1}),
				NULL, false);
		u = stacks_unparsed(f.s, &n);
		assert_int_equal(n, UNPARSED_MAX);
		stacks_unparsed_free(u, n);
	}
	proc_mappings_unref(m);
	done(&f);
	files_free(queued);
}

static void ended_processes_are_held_then_forgotten(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, USER(known_function));

	(void)state;
	stacks_exited(f.s, f.id, 0, UINT64_MAX, HOLD_NS);
	assert_rendered(&f, u, NULL, false, "known_function");
	stacks_exited(f.s, f.id, 0, UINT64_MAX, 0);
	assert_rendered(&f, u, NULL, false, "[unknown start_thread?]");
	done(&f);
}

/*
 * Processes that have ended are forgotten even if no stacks come any more, because mappings keep
 * files open.
 */
static void ended_processes_are_forgotten_without_stacks(void **state)
{
	struct fixture f = make(kallsyms);
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;
	struct mappings *m;

	(void)state;
	assert_int_equal(proc_mappings_read(f.id, 1, &m), 0);
	stacks_mappings(f.s, m, 0);
	stacks_exited(f.s, f.id, 0, UINT64_MAX, 1);
	while (__atomic_load_n(&m->refs, __ATOMIC_RELAXED) > 1 && now_mono_ns() < deadline)
		stacks_purge(f.s);
	assert_int_equal(m->refs, 1);
	proc_mappings_unref(m);
	done(&f);
}

/*
 * The PID was used for another process within one clock tick, before the mappings of the first one
 * could be read.
 */
static void what_is_read_after_the_end_is_anothers_104(void **state)
{
	struct fixture f = make(kallsyms);
	const struct raw_stack *u = STACK(NULL, USER(known_function));
	uint64_t exited_ns = now_boot_ns();

	(void)state;
	assert_rendered(&f, u, NULL, false, "known_function");
	stacks_exited(f.s, f.id, 0, exited_ns, HOLD_NS);
	/* these mappings were read before the end */
	assert_rendered(&f, u, NULL, false, "known_function");
	add_own_mappings(&f, 2);
	assert_rendered(&f,
			STACK(NULL, ((struct raw_frame){.exec_id = 2,
							.address = (uintptr_t)known_function})),
			NULL, false, "[unknown start_thread?]");
	assert_rendered(&f, u, NULL, false, "known_function");
	/* Here the end of the process was reported after the read. */
	stacks_exited(f.s, f.id, 0, 1, HOLD_NS);
	assert_rendered(&f, u, NULL, false, "[unknown start_thread?]");
	done(&f);
}

#define PROCESSES_MAX 49152 /* as in processes.c */

static void end_many(struct stacks *s, uint64_t ns, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		stacks_exited(s, (struct process_id){1, 5000000 + i}, ns, UINT64_MAX, HOLD_NS);
}

static void live_many(struct stacks *s, uint64_t ns, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mappings *m = xcalloc(1, sizeof(*m));

		*m = (struct mappings){.id = {2, 5000000 + i}, .root_fd = -1, .refs = 1};
		stacks_mappings(s, m, ns);
		proc_mappings_unref(m);
	}
}

/* Asserts that so many processes were forgotten, all of one namespace. */
static void assert_crowded(struct stacks *s, uint64_t n, uint64_t ns)
{
	struct shares crowded = {0};

	stacks_crowded(s, &crowded);
	assert_int_equal(crowded.all > 0, n > 0);
	assert_int_equal(shares_most(&crowded, 0), ns);
	shares_done(&crowded);
}

/*
 * The process keeps its names beside very many of another namespace, although it has ended and is
 * known for longer than these.
 */
static void processes_of_one_namespace_leave_room(void **state)
{
	struct counter *evicted = counter("podflame_symbol_processes_evicted_total", NULL, NULL);
	enum { GREEDY = 7, VICTIM };
	struct fixture f = make(kallsyms);
	uint64_t before = counter_get(evicted);

	(void)state;
	stacks_exited(f.s, f.id, VICTIM, UINT64_MAX, HOLD_NS);
	end_many(f.s, GREEDY, PROCESSES_MAX - 1);
	assert_crowded(f.s, 0, 0);
	end_many(f.s, GREEDY, PROCESSES_MAX + 10);
	assert_int_equal(counter_get(evicted) - before, 11);
	assert_rendered(&f, STACK(NULL, USER(known_function)), NULL, false, "known_function");
	assert_crowded(f.s, 11, GREEDY);
	assert_crowded(f.s, 0, 0);
	done(&f);
}

/*
 * The process lives, and is the oldest one of the namespace that has most. Those that have ended
 * make room before it, although their namespace has fewer.
 */
static void who_has_ended_makes_room_before_who_lives(void **state)
{
	enum { LARGE = 7, GREEDY, N_LIVE = PROCESSES_MAX / 2 + 1 };
	struct fixture f = make(kallsyms);
	struct mappings *own;

	(void)state;
	assert_int_equal(proc_mappings_read(f.id, 1, &own), 0);
	stacks_mappings(f.s, own, LARGE);
	proc_mappings_unref(own);
	live_many(f.s, LARGE, N_LIVE - 1);
	end_many(f.s, GREEDY, PROCESSES_MAX - N_LIVE + 10);
	assert_crowded(f.s, 10, GREEDY);
	assert_rendered(&f, STACK(NULL, USER(known_function)), NULL, false, "known_function");
	done(&f);
}

static void mappings_after_the_end_are_held_as_long(void **state)
{
	struct stacks_config c = {.files = files, .kallsyms_path = write_kallsyms(kallsyms)};
	struct fixture f = {.b = profile_batch_new(), .id.tgid = getpid()};
	const struct raw_stack *u = STACK(NULL, USER(known_function));
	uint64_t deadline = now_mono_ns() + 10 * NSEC_PER_SEC;

	(void)state;
	assert_int_equal(stacks_new(&c, &f.s), 0);
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	stacks_exited(f.s, f.id, 0, UINT64_MAX, 2 * NSEC_PER_SEC);
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

/*
 * Mappings that were read during an exec have the exec id of the old program, but are those of the
 * new one.
 */
static void another_programs_mappings_do_not_replace(void **state)
{
	struct fixture f = make(kallsyms);
	struct mapping item = {
		.start = 0x1000, .end = 0x2000, .inode = 1, .path = "/new", .fd = -1};
	struct mappings other = {
		.id = f.id, .exec_id = 1, .items = &item, .n = 1, .root_fd = -1, .refs = 1};

	(void)state;
	stacks_mappings(f.s, &other, 0);
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

/* Adds the mappings that proc_mappings_read() would give for a process that runs this program. */
static struct mapping map_program(struct fixture *f, uint32_t exec_id)
{
	_cleanup_free_ char *path = xasprintf("%s/inlined", dir);
	struct mappings *maps = xcalloc(1, sizeof(*maps));
	struct mapping m = map_of(path);

	*maps = (struct mappings){.id = f->id,
				  .exec_id = exec_id,
				  .items = xmemdup(&m, sizeof(m)),
				  .n = 1,
				  .root_fd = -1,
				  .refs = 1};
	maps->items[0].path = xstrdup("/app/inlined");
	stacks_mappings(f->s, maps, 0);
	proc_mappings_unref(maps);
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

/* wrapper ends with the call, so the return address is behind wrapper, in main. */
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(user_and_kernel_frames_have_names),
		cmocka_unit_test(frames_carry_module_build_id_and_function_start),
		cmocka_unit_test(libraries_and_vdso),
		cmocka_unit_test(cuda_libraries_are_told_apart),
		cmocka_unit_test(functions_without_names_begin_somewhere),
		cmocka_unit_test(names_are_those_of_the_file_that_was_sampled),
		cmocka_unit_test(a_process_that_was_never_read_has_the_names_of_known_files),
		cmocka_unit_test(an_ended_process_has_the_root_of_its_cgroup),
		cmocka_unit_test(the_nodes_root_counts_only_without_another),
		cmocka_unit_test(the_cgroup_that_was_read_least_recently_is_forgotten),
		cmocka_unit_test(a_file_without_a_tag_names_no_frame),
		cmocka_unit_test(a_frame_whose_file_could_not_be_seen_has_no_name),
		cmocka_unit_test(what_is_not_known_is_said),
		cmocka_unit_test(markers_stand_where_the_walk_stopped),
		cmocka_unit_test(misses_ask_for_mappings_once_a_second),
		cmocka_unit_test(a_past_program_is_not_read_again),
		cmocka_unit_test(files_that_nobody_has_parsed_are_told),
		cmocka_unit_test(a_process_tells_few_files_at_once),
		cmocka_unit_test(ended_processes_are_held_then_forgotten),
		cmocka_unit_test(ended_processes_are_forgotten_without_stacks),
		cmocka_unit_test(what_is_read_after_the_end_is_anothers_104),
		cmocka_unit_test(processes_of_one_namespace_leave_room),
		cmocka_unit_test(who_has_ended_makes_room_before_who_lives),
		cmocka_unit_test(mappings_after_the_end_are_held_as_long),
		cmocka_unit_test(newer_mappings_replace_older),
		cmocka_unit_test(another_programs_mappings_do_not_replace),
		cmocka_unit_test(inlined_functions_are_frames),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
