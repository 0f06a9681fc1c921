/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests frames of code that may differ from its file: they are shown with names and callers only if
 * the code was compared after the sample was taken. This process loads a library with two
 * functions, whose code it copies into anonymous memory, or whose file is in memory. The test
 * program is its own parse child (PARSE_CHILD_VERB).
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cmocka.h>

#include "lib/base/testclock.h"
#include "node/files/testfiles.h"
#include "node/stack/internal.h"

#define PAGE  4096u
#define LATER (11 * NSEC_PER_SEC) /* after this time, a memory file may be parsed again */
/* a file that the process can write must be found equal this number of times in a row */
#define WRITTEN	  3
#define COMPARED  "podflame_code_pages_compared_total"
#define NOT_YET	  "[unwind: code_not_compared]"
#define DIFFERENT "[unwind: code_differs_from_file]"
#define USER(a)	  ((struct raw_frame){.exec_id = 1, .address = (uintptr_t)(a)})
#define STACK(...)                                                                                 \
	(&(struct raw_stack){.hash = 1,                                                            \
			     .frames = (struct raw_frame[]){__VA_ARGS__},                          \
			     .n = sizeof((struct raw_frame[]){__VA_ARGS__}) /                      \
				  sizeof(struct raw_frame)})

static const char functions[] = "volatile unsigned long sink;\n"
				"#define KEEP __attribute__((noinline, noclone, aligned(16)))\n"
				"KEEP void first(int x) { sink += x * FACTOR; sink ^= x; }\n"
				"KEEP void second(int x) { sink -= x * FACTOR; sink ^= x; }\n";

static struct files *files;

/* ---- the library ---- */

struct library {
	void *handle;
	uint8_t *first, *second; /* functions of the library */
	uint8_t *text;		 /* the pages with both functions */
	size_t text_bytes;
};

static char *build(const char *name, unsigned factor)
{
	_cleanup_free_ char *path = xasprintf("%s/functions.c", dir);

	assert_int_equal(file_write_atomic(path, functions, strlen(functions), 0600), 0);
	run("cd %s && gcc -O2 -fPIC -shared -DFACTOR=%u -o %s functions.c", dir, factor, name);
	return xasprintf("%s/%s", dir, name);
}

static struct library load(const char *path)
{
	struct library l = {.handle = dlopen(path, RTLD_NOW)};

	assert_non_null(l.handle);
	l.first = dlsym(l.handle, "first");
	l.second = dlsym(l.handle, "second");
	l.text = (uint8_t *)((uintptr_t)l.first & ~(uintptr_t)(PAGE - 1));
	l.text_bytes = PAGE;
	assert_true(l.second > l.text && l.second + 16 < l.text + PAGE);
	return l;
}

/*
 * Copies the library's code into anonymous memory at the same address, as programs do that want
 * huge pages. The copy can be written.
 */
static void move_text(const struct library *l)
{
	_cleanup_free_ uint8_t *bytes = xmemdup(l->text, l->text_bytes);

	assert_ptr_equal(mmap(l->text, l->text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
			      MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			 l->text);
	memcpy(l->text, bytes, l->text_bytes);
}

static struct library copied(void)
{
	_cleanup_free_ char *path = build("copied.so", 3);
	struct library l = load(path);

	move_text(&l);
	return l;
}

/* ---- the frames that are shown ---- */

struct fixture {
	struct stacks *s;
	struct batch *b;
	struct process_id id;
};

static void read_mappings(struct fixture *f)
{
	struct mappings *m;

	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	assert_true(m->unsure);
	stacks_mappings(f->s, m, 0);
	proc_mappings_unref(m);
}

static struct fixture make(uint32_t tgid)
{
	struct stacks_config c = {.files = files, .kallsyms_path = "/dev/null"};
	struct fixture f = {.b = profile_batch_new(), .id.tgid = tgid};

	assert_int_equal(stacks_new(&c, &f.s), 0);
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	read_mappings(&f);
	return f;
}

static void done(struct fixture *f)
{
	profile_batch_free(f->b);
	stacks_free(f->s);
}

/* Parses the file that is mapped at the address, as the module follow does. */
static void parse(struct fixture *f, const uint8_t *address)
{
	struct elf_index *index;
	struct mappings *m;

	assert_int_equal(proc_mappings_read(f->id, 1, &m), 0);
	assert_int_equal(files_index(files, proc_mappings_find(m, (uintptr_t)address), &index), 0);
	elf_index_unref(index);
	proc_mappings_unref(m);
}

/*
 * Compares the code of the stack's frames, as at a drain. is_read: whether the reader's thread
 * reads that code.
 */
static void compare(struct fixture *f, const struct raw_stack *u, bool is_read)
{
	struct names_wanted **wanted;
	size_t n;

	stacks_want(f->s, f->id, u);
	wanted = stacks_wanted(f->s, &n);
	assert_int_equal(n, 1);
	assert_true(wanted[0]->fresh);
	if (is_read)
		stacks_wanted_read(wanted[0]);
	stacks_named(f->s, wanted[0]);
	stacks_wanted_free(wanted[0]);
	free(wanted);
}

static void compare_often(struct fixture *f, const struct raw_stack *u)
{
	for (int i = 0; i < WRITTEN; i++)
		compare(f, u, true);
}

static void assert_shown(struct fixture *f, const struct raw_stack *u, const char *want)
{
	struct stack_head head = {0};
	struct frame frames[16];
	const struct stack_ref *r;
	const char *end;
	struct buf text;
	uint32_t index;

	assert_int_equal(stacks_resolve(f->s, f->b, f->id, u, NULL, false, &index), 0);
	r = &f->b->stacks[index];
	for (size_t i = 0; i < r->n; i++)
		frames[i] = *r->frames[i];
	buf_init(&text, 0);
	profile_stack_render(&head, frames, r->n, &text);
	assert_string_equal(text.data, want);
	buf_done(&text);
	/* stacks_end(), which counters and conditions use, must give the same reason. */
	end = stacks_end(f->s, f->id, u);
	assert_int_equal(strstr(want, "[unwind: ") != NULL, end != NULL);
	assert_true(!end || strstr(want, end));
}

static uint64_t compared(const char *word)
{
	return counter_get(counter(COMPARED, "result", word));
}

/* ---- copies ---- */

static void equal_code_has_names(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	uint64_t equal = compared("equal");

	(void)state;
	compare(&f, u, true);
	assert_shown(&f, u, "[l] second;[l] first");
	assert_int_equal(compared("equal"), equal + 1); /* both functions are in one page */
	done(&f);
	dlclose(l.handle);
}

/*
 * A file in memory that is no longer mapped cannot be compared. The walk has found the callers by
 * the file's rows, so they are not shown.
 */
static void code_that_is_gone_was_not_compared(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	struct raw_frame gone = {.exec_id = 1, .address = 0x12345, .tag = PF_TAG_FIRST};

	(void)state;
	compare(&f, STACK(USER(l.first), USER(l.second + 2)), true);
	assert_shown(&f, STACK(USER(l.first), gone, USER(l.second + 2)), NOT_YET ";[l] first");
	assert_shown(&f, STACK(USER(l.first), gone), "[unknown start_thread?];[l] first");
	done(&f);
	dlclose(l.handle);
}

/*
 * If the code could not be read, or the reader's thread has not answered, an earlier comparison
 * does not count any more.
 */
static void code_that_was_not_compared_has_none(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));

	(void)state;
	assert_shown(&f, u, NOT_YET);
	compare(&f, u, true);
	assert_shown(&f, u, "[l] second;[l] first");
	compare(&f, u, false);
	assert_shown(&f, u, NOT_YET);
	done(&f);
	dlclose(l.handle);
}

/*
 * The callers of the replaced function are not shown: the walk has found them by rules of other
 * code.
 */
static void a_function_that_was_replaced_ends_the_stack(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2), USER(l.first + 2));
	uint64_t differs = compared("differs");

	(void)state;
	compare(&f, u, true);
	assert_shown(&f, u, "[l] first;[l] second;[l] first");
	l.second[3] ^= 1;
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT ";[l] first");
	assert_shown(&f, STACK(USER(l.first), USER(l.first + 2)), "[l] first;[l] first");
	assert_int_equal(compared("differs"), differs + 1);
	done(&f);
	dlclose(l.handle);
}

/*
 * Code that is changed and changed back may be found equal by chance, so it is doubted for many
 * rounds.
 */
static void code_that_is_changed_to_and_fro(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	int rounds = 0;

	(void)state;
	l.second[3] ^= 1;
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT ";[l] first");
	l.second[3] ^= 1;
	l.second[4] ^= 1;
	compare(&f, u, true);
	l.second[4] ^= 1;
	do {
		compare(&f, u, true);
		assert_shown(&f, STACK(USER(l.first)), "[l] first");
		rounds++;
	} while (stacks_end(f.s, f.id, u) && rounds < 100);
	assert_int_equal(rounds, 30); /* DOUBT_ROUNDS */
	assert_shown(&f, u, "[l] second;[l] first");
	done(&f);
	dlclose(l.handle);
}

static void breakpoints_are_no_other_code(void **state)
{
	struct library l = copied();
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first));

	(void)state;
	l.first[0] = 0xcc;
	compare(&f, u, true);
	assert_shown(&f, u, "[l] first");
	done(&f);
	dlclose(l.handle);
}

/*
 * Tests the last samples of a process that has ended: its code cannot be read any more, so the last
 * comparison still counts.
 */
static void a_process_that_has_ended(void **state)
{
	struct library l = copied();
	const struct raw_stack *u = STACK(USER(l.first));
	pid_t pid = fork();
	struct fixture f, never;

	(void)state;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	f = make((uint32_t)pid);
	never = make((uint32_t)pid);
	compare(&f, u, true);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	compare(&f, u, true);
	assert_shown(&f, u, "[l] first");
	compare(&never, u, true);
	assert_shown(&never, u, NOT_YET);
	done(&f);
	done(&never);
	dlclose(l.handle);
}

/* ---- limits ---- */

/* Made-up mappings with very many pages. */
static struct mappings *large(uint32_t tgid)
{
	struct mappings *m = xcalloc(1, sizeof(*m));

	m->items = xcalloc(1, sizeof(*m->items));
	m->items[0] = (struct mapping){.start = 1 << 20,
				       .end = (1 << 20) + 8192ull * PAGE,
				       .path = xstrdup("/app"),
				       .copy = true,
				       .fd = -1};
	m->id.tgid = tgid;
	m->exec_id = m->n = m->refs = 1;
	m->root_fd = -1;
	m->unsure = true;
	return m;
}

static void want_pages(struct stacks *s, uint32_t tgid, size_t n)
{
	struct raw_frame frame = {.exec_id = 1};
	struct raw_stack u = {.hash = 1, .frames = &frame, .n = 1};

	for (size_t i = 0; i < n; i++) {
		frame.address = (1 << 20) + i * PAGE;
		stacks_want(s, (struct process_id){0, tgid}, &u);
	}
}

static void add_large(struct stacks *s, uint32_t tgid, uint64_t ns)
{
	struct mappings *m = large(tgid);

	stacks_mappings(s, m, ns);
	proc_mappings_unref(m);
}

/* One namespace alone has at most three quarters of ALL_PAGES_MAX. */
static void pages_beyond_the_limits_are_counted(void **state)
{
	const uint32_t n_full = 131072 / 4 * 3 / 4096; /* 4096: DRAIN_PAGES_MAX */
	struct stacks_config c = {.files = files, .kallsyms_path = "/dev/null"};
	uint64_t before = compared("over_limit");
	struct stacks *s;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	for (uint32_t tgid = 1; tgid <= n_full + 1; tgid++)
		add_large(s, tgid, 8);
	want_pages(s, 1, 4096 + 5);
	assert_int_equal(compared("over_limit"), before + 5);
	for (uint32_t tgid = 2; tgid <= n_full; tgid++)
		want_pages(s, tgid, 4096);
	assert_int_equal(compared("over_limit"), before + 5);
	want_pages(s, n_full + 1, 3);
	assert_int_equal(compared("over_limit"), before + 8);
	/* Pages that no stack needs for KEPT_ROUNDS rounds are forgotten, which makes room. */
	for (int i = 0; i < 20; i++) {
		struct names_wanted **wanted;
		size_t n;

		want_pages(s, 1, 1);
		wanted = stacks_wanted(s, &n);
		for (size_t k = 0; k < n; k++)
			stacks_wanted_free(wanted[k]);
		free(wanted);
	}
	want_pages(s, n_full + 1, 3);
	assert_int_equal(compared("over_limit"), before + 8);
	stacks_free(s);
}

static void pages_of_one_namespace_leave_room(void **state)
{
	const uint32_t n_all = 131072 / 4096, victim = n_all + 1; /* as above */
	struct stacks_config c = {.files = files, .kallsyms_path = "/dev/null"};
	struct stacks *s;
	uint64_t before;

	(void)state;
	assert_int_equal(stacks_new(&c, &s), 0);
	for (uint32_t tgid = 1; tgid <= n_all; tgid++) {
		add_large(s, tgid, 8);
		want_pages(s, tgid, 4096);
	}
	add_large(s, victim, 7);
	before = compared("over_limit");
	want_pages(s, victim, 4096);
	assert_int_equal(compared("over_limit"), before);
	stacks_free(s);
}

/* Beyond MAPS_MAX pages, a whole page counts as changed: none of its functions has a name. */
static void more_pages_differ_than_are_told_byte_by_byte(void **state)
{
	const size_t n = 64 + 8; /* MAPS_MAX is 64 */
	struct raw_frame frame = {.exec_id = 1};
	struct raw_stack u = {.hash = 1, .frames = &frame, .n = 1};
	struct mappings *m = large((uint32_t)getpid());
	size_t shown = 0;
	struct fixture f = {.id.tgid = (uint32_t)getpid(), .b = profile_batch_new()};
	struct stacks_config c = {.files = files, .kallsyms_path = "/dev/null"};
	uint8_t *code =
		mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct names_wanted **wanted;
	size_t n_wanted;

	(void)state;
	assert_int_equal(proc_start_boottime(f.id.tgid, &f.id.start_boottime_ns), 0);
	m->id = f.id;
	m->items[0].start = (uintptr_t)code;
	m->items[0].end = (uintptr_t)code + n * PAGE;
	m->items[0].fd = memfd_create("zeros", MFD_CLOEXEC);
	assert_int_equal(ftruncate(m->items[0].fd, (off_t)(n * PAGE)), 0);
	assert_int_equal(stacks_new(&c, &f.s), 0);
	stacks_mappings(f.s, m, 0);
	for (size_t i = 0; i < n; i++) {
		code[i * PAGE] = 1;
		frame.address = (uintptr_t)code + i * PAGE + PAGE / 2;
		stacks_want(f.s, f.id, &u);
	}
	wanted = stacks_wanted(f.s, &n_wanted);
	stacks_wanted_read(wanted[0]);
	stacks_named(f.s, wanted[0]);
	stacks_wanted_free(wanted[0]);
	free(wanted);
	for (size_t i = 0; i < n; i++) {
		frame.address = (uintptr_t)code + i * PAGE + PAGE / 2;
		shown += !stacks_end(f.s, f.id, &u);
	}
	assert_int_equal(shown, 64);
	close(m->items[0].fd);
	m->items[0].fd = -1;
	proc_mappings_unref(m);
	done(&f);
	munmap(code, n * PAGE);
}

/* ---- files in memory ---- */

struct memory_file {
	int fd;
	/*
	 * a mapping that was written already, so that later writes do not change the file's times
	 */
	uint8_t *to;
	size_t bytes;
};

static void put(const char *path, uint8_t *to, size_t n)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(read(fd, to, n), n);
}

static struct memory_file in_memory(const char *path)
{
	struct memory_file x = {.fd = memfd_create("library", MFD_CLOEXEC)};
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	x.bytes = (size_t)st.st_size;
	assert_int_equal(ftruncate(x.fd, st.st_size), 0);
	x.to = mmap(NULL, x.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, x.fd, 0);
	assert_ptr_not_equal(x.to, MAP_FAILED);
	put(path, x.to, x.bytes);
	return x;
}

static struct library load_memory_file(const struct memory_file *x)
{
	_cleanup_free_ char *path = xasprintf("/proc/self/fd/%d", x->fd);

	return load(path);
}

/* Makes a fixture as if a system call had written the file: the file has no writable mapping. */
static struct fixture make_unwritten(struct memory_file *x)
{
	struct fixture f;

	munmap(x->to, x->bytes);
	f = make((uint32_t)getpid());
	x->to = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, x->fd, 0);
	assert_ptr_not_equal(x->to, MAP_FAILED);
	return f;
}

static void unload(struct library *l, struct memory_file *x)
{
	dlclose(l->handle);
	munmap(x->to, x->bytes);
	close(x->fd);
}

static uint64_t rewritten(void)
{
	return counter_get(counter("podflame_memory_files_rewritten_total", NULL, NULL));
}

/* The file is rewritten with code of the same length at the same offset; nothing else changes. */
static void a_memory_file_that_is_rewritten(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3), *two = build("two.so", 5);
	struct memory_file x = in_memory(one);
	struct library l = load_memory_file(&x);
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	uint64_t before = rewritten();

	(void)state;
	parse(&f, l.first);
	assert_false(stacks_misses(f.s, f.id, u));
	compare(&f, u, true);
	compare(&f, u, true);
	assert_shown(&f, u, NOT_YET);
	compare(&f, u, true);
	assert_shown(&f, u, "second;first");
	put(two, x.to, x.bytes);
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT);
	/* the file was parsed a moment ago, so it is not parsed again yet */
	assert_int_equal(rewritten(), before);

	/*
	 * The file is parsed anew, and the kernel gets new rows. Until it has them, nothing is
	 * trusted.
	 */
	test_clock.later_ns += LATER;
	compare(&f, u, true);
	assert_int_equal(rewritten(), before + 1);
	parse(&f, l.first);
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT);
	assert_true(stacks_misses(f.s, f.id, u));
	read_mappings(&f);
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT);
	test_clock.later_ns += LATER;
	compare_often(&f, u);
	assert_shown(&f, u, "second;first");
	assert_int_equal(rewritten(), before + 1);
	done(&f);
	unload(&l, &x);
}

/*
 * The mappings were read again before the agent has compared the code, so the kernel still has rows
 * of the old code.
 */
static void a_memory_file_that_is_written(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3), *two = build("two.so", 5);
	struct memory_file x = in_memory(one);
	struct library l = load_memory_file(&x);
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));

	(void)state;
	parse(&f, l.first);
	compare_often(&f, u);
	assert_shown(&f, u, "second;first");
	/*
	 * The clock of file times ticks only every few milliseconds, so one write may not change
	 * the ctime.
	 */
	for (int i = 0; i < 1000 && !stacks_end(f.s, f.id, u); i++) {
		put(two, x.to, x.bytes);
		assert_int_equal(pwrite(x.fd, x.to, x.bytes, 0), x.bytes);
		read_mappings(&f);
		parse(&f, l.first);
		compare(&f, u, true);
	}
	assert_shown(&f, u, DIFFERENT);
	test_clock.later_ns += LATER;
	compare_often(&f, u);
	assert_shown(&f, u, "second;first");
	done(&f);
	unload(&l, &x);
}

/*
 * The process has a changed page of its own, as an inline hook makes it. Other copies and the file
 * have not changed.
 */
static void a_process_that_changes_its_own_copy(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3);
	struct memory_file x = in_memory(one);
	struct library l = load_memory_file(&x);
	struct fixture f = make_unwritten(&x);
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	uint64_t before = rewritten();

	(void)state;
	parse(&f, l.first);
	assert_int_equal(mprotect(l.text, l.text_bytes, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	l.second[3] ^= 1;
	test_clock.later_ns += LATER;
	compare(&f, u, true);
	assert_shown(&f, u, DIFFERENT ";first");
	test_clock.later_ns += LATER;
	compare(&f, u, true);
	assert_int_equal(rewritten(), before);
	assert_false(stacks_misses(f.s, f.id, u));
	assert_shown(&f, STACK(USER(l.first)), "first");
	done(&f);
	unload(&l, &x);
}

/* The file is parsed anew each time. Which code ran in between stays unknown. */
static void a_memory_file_that_is_changed_to_and_fro(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3), *two = build("two.so", 5);
	struct memory_file x = in_memory(one);
	struct library l = load_memory_file(&x);
	struct fixture f = make((uint32_t)getpid());
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	size_t n_shown = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		put(i % 4 ? one : two, x.to, x.bytes);
		parse(&f, l.first);
		test_clock.later_ns += LATER / 2;
		read_mappings(&f);
		compare(&f, u, true);
		n_shown += !stacks_end(f.s, f.id, u);
	}
	assert_int_equal(n_shown, 0);
	done(&f);
	unload(&l, &x);
}

/* What a memory file contained before it was read is not known. */
static void samples_of_before_a_memory_file_was_read(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3);
	struct memory_file x = in_memory(one);
	struct library l = load_memory_file(&x);
	struct fixture f = make_unwritten(&x);
	const struct raw_stack *u = STACK(USER(l.first), USER(l.second + 2));
	uint64_t before_ns = now_boot_ns(), after_ns;

	(void)state;
	parse(&f, l.first);
	after_ns = now_boot_ns();
	compare(&f, u, true);
	stacks_taken(f.s, &(struct drain){0}, &(struct raw_sample){.first_ns = before_ns});
	assert_shown(&f, u, NOT_YET);
	stacks_taken(f.s, &(struct drain){0}, &(struct raw_sample){.first_ns = after_ns});
	assert_shown(&f, u, "second;first");
	done(&f);
	unload(&l, &x);
}

/*
 * A memory file with the code of a just-in-time compiler: the agent has no names and the kernel has
 * no rows that could be wrong.
 */
static void a_memory_file_that_is_no_program(void **state)
{
	_cleanup_free_ char *one = build("one.so", 3);
	int fd = memfd_create("generated", MFD_CLOEXEC);
	struct library l = load(one);
	const uint8_t *code;
	struct fixture f;
	struct elf_index *index;
	struct mappings *m;

	(void)state;
	assert_int_equal(ftruncate(fd, PAGE), 0);
	code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	f = make((uint32_t)getpid());
	assert_shown(&f, STACK(USER(code), USER(l.first + 2)), NOT_YET);
	assert_int_equal(proc_mappings_read(f.id, 1, &m), 0);
	assert_int_equal(files_index(files, proc_mappings_find(m, (uintptr_t)code), &index),
			 -ENOEXEC);
	proc_mappings_unref(m);
	for (int i = 0; i < 3; i++) { /* the agent does not ask to parse it again and again */
		assert_shown(&f, STACK(USER(code), USER(l.first + 2)),
			     "[l] first;[/memfd:generated]");
		test_clock.later_ns += 60 * NSEC_PER_SEC;
	}
	done(&f);
	munmap((void *)code, PAGE);
	close(fd);
	dlclose(l.handle);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_code_has_names),
		cmocka_unit_test(code_that_is_gone_was_not_compared),
		cmocka_unit_test(code_that_was_not_compared_has_none),
		cmocka_unit_test(a_function_that_was_replaced_ends_the_stack),
		cmocka_unit_test(code_that_is_changed_to_and_fro),
		cmocka_unit_test(breakpoints_are_no_other_code),
		cmocka_unit_test(a_process_that_has_ended),
		cmocka_unit_test(pages_beyond_the_limits_are_counted),
		cmocka_unit_test(pages_of_one_namespace_leave_room),
		cmocka_unit_test(more_pages_differ_than_are_told_byte_by_byte),
		cmocka_unit_test(a_memory_file_that_is_rewritten),
		cmocka_unit_test(a_memory_file_that_is_written),
		cmocka_unit_test(a_process_that_changes_its_own_copy),
		cmocka_unit_test(a_memory_file_that_is_changed_to_and_fro),
		cmocka_unit_test(samples_of_before_a_memory_file_was_read),
		cmocka_unit_test(a_memory_file_that_is_no_program),
	};
	struct files_config c = {0};
	int failed;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	assert_int_equal(testdir_make(dir), 0);
	assert_int_equal(files_new(&c, &files), 0);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	files_free(files);
	testdir_remove(dir);
	return failed;
}
