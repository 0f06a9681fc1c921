// SPDX-License-Identifier: Apache-2.0
/* Finds where processes allocate, in known and in hostile files; without BPF. */
#include "node/alloc/testalloc.h"

#include <unistd.h>

#include "node/alloc/internal.h"
#include "node/alloc/allocators.h"

static char dir[] = "/tmp/alloc-test.XXXXXX";

#define EVENT (1u << PF_EVENT_MEM_ALLOC)

static pid_t start(const char *source, const char *flags)
{
	return alloc_program_start(dir, source, flags);
}

static void the_c_library_has_its_entry_points(void **state)
{
	static const char *const must[] = {"malloc", "calloc", "realloc", "free", "posix_memalign"};
	struct alloc_process p;
	pid_t pid = start(ALLOC_WAITS, "");
	struct alloc_sites *s = alloc_find(&p, pid, EVENT);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(must); i++)
		assert_non_null(alloc_site_of(s, must[i]));
	assert_int_equal(alloc_site_of(s, "calloc")->site.count_arg, 1);
	assert_int_equal(alloc_site_of(s, "posix_memalign")->site.kind, PF_SITE_OUT);
	assert_true(alloc_site_of(s, "realloc")->site.flags & PF_SITE_NULL_IS_ALLOC);
	assert_null(alloc_site_of(s, "reallocarray")); /* it calls realloc, which has a site */
	assert_string_equal(s->problem, "");
	assert_true(s->n_inner);
	for (size_t i = 1; i < s->n; i++)
		assert_true(s->items[i].file_offset > s->items[i - 1].file_offset);
	alloc_process_stop(pid, &p, s);
}

static void a_static_program_without_symbols_says_so(void **state)
{
	struct alloc_process p;
	pid_t pid = start(ALLOC_WAITS, "-static -s");
	struct alloc_sites *s = alloc_find(&p, pid, EVENT);

	(void)state;
	assert_int_equal(s->n, 0);
	assert_non_null(strstr(s->problem, "podflame found no function that allocates"));
	alloc_process_stop(pid, &p, s);
}

/*
 * Builds a program that contains the string `text` and the code `more`, and returns the problem
 * that alloc reports about it.
 */
static char *problem_with(const char *text, const char *more, const char *flags)
{
	_cleanup_free_ char *source =
		xasprintf("const char *volatile text = \"%s\";\n%s\n" ALLOC_WAITS, text, more);
	struct alloc_process p;
	pid_t pid = start(source, flags);
	struct alloc_sites *s = alloc_find(&p, pid, EVENT);
	char *problem = xstrdup(s->problem);

	alloc_process_stop(pid, &p, s);
	return problem;
}

static void an_allocator_without_names_is_told(void **state)
{
	static const struct {
		const char *text, *allocator;
	} rows[] = {
		{"<jemalloc>: Error in munmap(): %s", "(jemalloc)"},
		{"mimalloc: warning: ", "(mimalloc)"},
		{"MALLOC:   %12u (%7.1f MiB) Bytes in use by application\\n", "(tcmalloc)"},
		{"Failed to initialise snmalloc.", "(snmalloc)"},
		{"Scudo ERROR: internal map failure", "(Scudo)"},
		{"TBBmalloc: VERSION", "(oneTBB's malloc)"},
		{"malloc(): corrupted top size", "(glibc's malloc)"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *problem = problem_with(rows[i].text, "", "-s");

		assert_true(str_has_prefix(problem, dir));
		assert_non_null(strstr(problem, rows[i].allocator));
	}
}

/*
 * No problem is reported if the allocator's functions have names, because then they are probed. Nor
 * if a file only has a string that names an allocator, nor for the mimalloc of CPython, which is
 * CPython's own.
 */
static void an_allocator_with_names_is_not(void **state)
{
	static const char jemalloc[] = "<jemalloc>: Error in munmap(): %s";
	static const struct {
		const char *text, *more, *flags;
	} rows[] = {
		{jemalloc, "void *malloc(unsigned long n) { return 0; } void free(void *p) {}", ""},
		{jemalloc,
		 "void *je_malloc(unsigned long n) { return 0; } void je_free(void *p) {}", ""},
		{"MALLOC_CONF=narenas:1 jemalloc mimalloc tcmalloc", "", ""},
		{"mimalloc: warning: ", "int _PyRuntime;", ""},
		{jemalloc,
		 "void *je_malloc(unsigned long n) { return 0; } void je_free(void *p) {}",
		 "-static"},
		/* jemalloc under the names malloc and free: mallocx shows that these are its own */
		{jemalloc, "void *mallocx(unsigned long n, int f) { return 0; }", "-static"},
		{"TBBmalloc: VERSION",
		 "void *scalable_malloc(unsigned long n) { return 0; } "
		 "void scalable_free(void *p) {}",
		 "-static"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *problem =
			problem_with(rows[i].text, rows[i].more, rows[i].flags);

		assert_string_equal(problem, "");
	}
}

/*
 * Rust's code calls the allocator by these names, which are probed. So the problem is the one of
 * all such Rust programs, and does not name snmalloc.
 */
static void an_allocator_behind_rusts_names_is_not(void **state)
{
	_cleanup_free_ char *problem =
		problem_with("Failed to initialise snmalloc.",
			     "void *__rust_alloc(unsigned long n, unsigned long a) { return 0; } "
			     "void __rust_dealloc(void *p) {}",
			     "");

	(void)state;
	assert_true(str_has_prefix(problem, "this Rust program has an allocator of its own"));
	assert_null(strstr(problem, "(snmalloc)"));
}

/*
 * The functions with names are the program's own. The allocator that is also in the program has
 * names with an unknown prefix.
 */
static void an_allocator_beside_one_with_names_is_told(void **state)
{
	static const char *const mores[] = {
		"void *foo_malloc(unsigned long n) { return 0; } void foo_free(void *p) {}",
		"void *mi_malloc(unsigned long n) { return 0; } void mi_free(void *p) {}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mores); i++) {
		_cleanup_free_ char *problem =
			problem_with("<jemalloc>: Error in munmap(): %s", mores[i], "-static");

		assert_non_null(strstr(problem, "(jemalloc)"));
		assert_null(strstr(problem, ";")); /* there is no second problem */
	}
}

/*
 * The functions have names, but their code is in anonymous memory: there is no file in which to set
 * a probe.
 */
static void a_program_in_anonymous_memory_is_told_once(void **state)
{
	static const char source[] =
		"#define _GNU_SOURCE\n#include <string.h>\n#include <sys/mman.h>\n"
		"#include <unistd.h>\nextern char __executable_start[], etext[];\n"
		"int main(void) {\n"
		"char *text = __executable_start + 4096; long n = etext - text + 4095 & ~4095l;\n"
		"char *copy = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, "
		"0);\n"
		"memcpy(copy, text, n); mprotect(copy, n, PROT_READ | PROT_EXEC);\n"
		"if (mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, text) != text) return 1;\n"
		"write(1, \"x\", 1); for (;;) pause(); }\n";
	struct alloc_process p;
	pid_t pid = start(source, "-static -no-pie -Wl,-z,separate-code");
	struct alloc_sites *s = alloc_find(&p, pid, EVENT);

	(void)state;
	assert_int_equal(s->n, 0);
	assert_string_equal(s->problem,
			    "code of p is in anonymous memory, where the kernel sets no probe: "
			    "what its own allocator gives is not seen");
	alloc_process_stop(pid, &p, s);
}

/*
 * Symbols far outside of the file, of huge size, in data, and one that jumps to itself: all sites
 * must be in code, and all ranges inside the mapping.
 */
static void hostile_symbols_give_no_site(void **state)
{
	static const char source[] =
		"asm(\".text\\n.globl malloc,free,calloc,realloc,memalign,valloc\\n\"\n"
		"    \"malloc: jmp malloc\\n.type malloc,@function\\n\"\n"
		"    \".size malloc,0x7fffffffffffffff\\n\"\n"
		"    \"free: ret\\n.type free,@function\\n\"\n"
		"    \".set calloc,free+0x7000000\\n.set realloc,free-0x7000000\\n\"\n"
		"    \"memalign: .byte 0x0f,0xff,0x06\\n\"\n"
		"    \".data\\nvalloc: .quad 0\\n.text\\n\");\n" ALLOC_WAITS;
	struct alloc_process p;
	pid_t pid = start(source, "-no-pie");
	struct alloc_sites *s = alloc_find(&p, pid, EVENT);

	(void)state;
	for (size_t i = 0; i < s->n; i++) {
		const struct mapping *m = proc_mappings_find(p.maps, s->items[i].address);

		assert_non_null(m);
		if (!str_has_suffix(m->path, "/p"))
			continue;
		assert_false(streq(s->items[i].symbol, "calloc") ||
			     streq(s->items[i].symbol, "realloc") ||
			     streq(s->items[i].symbol, "valloc"));
	}
	assert_true(s->n_inner <= PF_MEM_INNER_MAX);
	alloc_process_stop(pid, &p, s);
}

static void each_problem_is_told_once(void **state)
{
	struct alloc_sites s = {0};

	(void)state;
	alloc_add_problem(&s, "%d are not seen", 5);
	alloc_add_problem(&s, "free is not there");
	alloc_add_problem(&s, "5 are not seen");
	assert_string_equal(s.problem, "5 are not seen; free is not there");
	for (int i = 0; i < 100; i++)
		alloc_add_problem(&s, "one more, %d", i);
	assert_true(str_has_prefix(s.problem, "5 are not seen; free is not there; one more, 0; "));
	assert_int_equal(strlen(s.problem), ALLOC_PROBLEM_BYTES - 1);
	assert_string_equal(s.problem + ALLOC_PROBLEM_BYTES - 4, "...");
}

static void inner_ranges_are_apart_and_have_a_limit(void **state)
{
	struct alloc_sites s = {0};

	(void)state;
	alloc_add_inner(&s, 1000, 2000);
	alloc_add_inner(&s, 5000, 6000);
	alloc_add_inner(&s, 2010, 3000); /* only padding is between this range and the first one */
	assert_int_equal(s.n_inner, 2);
	assert_int_equal(s.inner[0].end, 3000);
	alloc_add_inner(&s, 0, 1 << 20); /* contains both ranges */
	assert_int_equal(s.n_inner, 1);
	alloc_add_inner(&s, 7, 7);
	assert_int_equal(s.n_inner, 1);
	for (uint64_t i = 1; i < 40; i++)
		alloc_add_inner(&s, i << 30, (i << 30) + 100);
	alloc_add_inner(&s, (5ull << 30) + 1000, (5ull << 30) + 1100);
	assert_true(s.n_inner <= PF_MEM_INNER_MAX);
	for (size_t i = 1; i < s.n_inner; i++)
		assert_true(s.inner[i - 1].end < s.inner[i].start);
	assert_true(s.inner[s.n_inner - 1].end >= (39ull << 30) + 100);
	assert_non_null(strstr(s.problem, "more than 12 pieces of code"));
	/*
	 * As many pieces as fit, and then some that are inside of these or next to them and so need
	 * no room.
	 */
	s = (struct alloc_sites){0};
	for (uint64_t i = 1; i <= PF_MEM_INNER_MAX; i++)
		alloc_add_inner(&s, i << 30, (i << 30) + 100);
	for (uint64_t i = 1; i <= PF_MEM_INNER_MAX; i++)
		alloc_add_inner(&s, (i << 30) + 50, (i << 30) + 50 + i);
	alloc_add_inner(&s, (3ull << 30) + 110, (3ull << 30) + 120);
	assert_int_equal(s.n_inner, PF_MEM_INNER_MAX);
	assert_string_equal(s.problem, "");
	/*
	 * Small gaps: the pieces are taken for those of one allocator, and no problem is reported.
	 */
	s = (struct alloc_sites){0};
	for (uint64_t i = 1; i < 40; i++)
		alloc_add_inner(&s, i * 1000, i * 1000 + 100);
	assert_string_equal(s.problem, "");
}

/*
 * Builds a library that has all functions of the table except Rust's, and starts a program that
 * loads n copies of it.
 */
static pid_t start_with_libraries(unsigned n)
{
	_cleanup_free_ char *path = xasprintf("%s/all.s", dir), *command = NULL, *source = NULL;
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (const char *const *m = alloc_table_marks; *m; m++)
		if (!strstr(*m, "rust") && !streq(*m, TABLE_GLIBC_LOADER))
			fprintf(f, ".globl %s\n.type %s,@function\n%s: ret\n", *m, *m, *m);
	fclose(f);
	command = xasprintf("cd %s && gcc -shared -nostdlib all.s -o 0.so && for i in 1 2 3; do cp "
			    "0.so $i.so; done",
			    dir);
	assert_int_equal(system(command), 0);
	source = xasprintf("#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\n"
			   "int main(void) { char path[99]; for (int i = 0; i < %u; i++) {\n"
			   "snprintf(path, sizeof(path), \"%s/%%d.so\", i);\n"
			   "if (!dlopen(path, RTLD_NOW)) return 1; }\n"
			   "write(1, \"x\", 1); for (;;) pause(); }",
			   n, dir);
	return start(source, "-ldl");
}

static void more_functions_than_are_taken_are_told(void **state)
{
	(void)state;
	for (unsigned n = 3; n <= 4; n++) {
		struct alloc_process p;
		pid_t pid = start_with_libraries(n);
		struct alloc_sites *s = alloc_find(&p, pid, EVENT);

		if (n == 3)
			assert_string_equal(s->problem, "");
		else
			assert_non_null(strstr(s->problem, "more than 512 functions"));
		assert_true(n == 3 ? s->n > 400 && s->n < 450 : s->n > 500);
		alloc_process_stop(pid, &p, s);
	}
}

/* ---- code that is not followed to its end ---- */

#define ASM(text)                                                                                  \
	"asm(\".text\\n.globl malloc,free,calloc,je_malloc,je_free\\n" text "\");\n" ALLOC_WAITS

static const struct {
	const char *source;
	bool told;
} codes[] = {
	{ASM("malloc: .fill 1000,1,0x90; ret\\nfree: ret\\ncalloc: ret"), false},
	{ASM("malloc: .fill 10000,1,0x90; ret\\nfree: ret\\ncalloc: ret"), true},
	/* If only a free may be seen twice, no problem is reported. */
	{ASM("malloc: ret\\nfree: .fill 10000,1,0x90; ret\\ncalloc: ret"), false},
	{ASM("malloc: .rept 500; je 1f; .endr; 1: ret\\nfree: ret\\ncalloc: ret"), false},
	{ASM("malloc: .rept 600; je 1f; .endr; 1: ret\\nfree: ret\\ncalloc: ret"), true},
	{ASM("malloc: jmp 1f; 1: jmp 2f; 2: jmp 3f; 3: ret\\nfree: ret\\ncalloc: ret"), false},
	{ASM("malloc: jmp 1f; 1: jmp 2f; 2: jmp 3f; 3: jmp 4f; 4: ret\\nfree: ret\\ncalloc: ret"),
	 false},
	{ASM("malloc: jmp 1f; 1: jmp 2f; 2: jmp 3f; 3: jmp 4f; 4: jmp 5f; 5: ret\\n"
	     "free: ret\\ncalloc: ret"),
	 true},
	{ASM("malloc: call 1f; ret; 1: jmp 2f; 2: jmp 3f; 3: jmp 4f; 4: jmp 5f; 5: jmp 6f; 6: ret"
	     "\\nfree: ret\\ncalloc: ret"),
	 true},
	/* 16 calls have 16 return addresses, which is the limit. */
	{ASM("malloc: .rept 16; call calloc; .endr; ret\\nfree: ret\\ncalloc: ret"), false},
	{ASM("malloc: .rept 17; call calloc; .endr; ret\\nfree: ret\\ncalloc: ret"), true},
};

static void code_that_is_not_followed_to_its_end_is_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct alloc_process p;
		pid_t pid = start(codes[i].source, "-no-pie");
		struct alloc_sites *s = alloc_find(&p, pid, EVENT);
		bool told =
			strstr(s->problem, "podflame did not read the code of malloc to its end");

		if (told != codes[i].told || (!told && *s->problem))
			fail_msg("%s: %s", codes[i].source, s->problem);
		assert_non_null(alloc_site_of(s, "malloc"));
		alloc_process_stop(pid, &p, s);
	}
}

/* ---- hooks before CPython's allocator ---- */

/*
 * As in CPython. o, m and r are _PyObject, _PyMem and _PyMem_Raw; HOOKS hooks h are called before
 * o.
 */
static const char hooked[] =
	"typedef struct { void *c, *(*m)(void *, long), *(*k)(void *, long, long);\n"
	"void *(*r)(void *, void *, long); void (*f)(void *, void *); } A;\n"
	"#define F(n) void *n##m(void *c, long b) { return 0; }\\\n"
	"void *n##k(void *c, long a, long b) { return 0; }\\\n"
	"void *n##r(void *c, void *p, long b) { return 0; } void n##f(void *c, void *p) {}\n"
	"F(small) F(raw)\n"
	"#define T(c, n) {c, n##m, n##k, n##r, n##f}\n"
	"A h[7] = {T(h + 1, small), T(h + 2, small), T(h + 3, small), T(h + 4, small),\n"
	"T(h + 5, small), T(0, small)};\n"
	"A o = T(h + 6 - HOOKS, small), m = T(0, small), r = T(0, raw);\n"
	"#define P(name, t) void *name##Malloc(long n) { return t.m(t.c, n); }\\\n"
	"void name##Free(void *p) { t.f(t.c, p); }\n"
	"P(PyObject_, o) P(PyMem_, m) P(PyMem_Raw, r)\n" ALLOC_WAITS;

static void more_hooks_than_are_followed_are_told(void **state)
{
	(void)state;
	for (unsigned n = 4; n <= 5; n++) {
		struct alloc_process p;
		_cleanup_free_ char *flags = xasprintf("-O1 -DHOOKS=%u", n);
		pid_t pid = start(hooked, flags);
		struct alloc_sites *s = alloc_find(&p, pid, EVENT);

		if (n == 4)
			assert_string_equal(s->problem, "");
		else
			assert_non_null(strstr(s->problem, "more than 4 hooks"));
		assert_int_equal(n == 4, !!alloc_site_of(s, "_PyObject_Malloc"));
		alloc_process_stop(pid, &p, s);
	}
}

static int remove_all(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -rf %s", dir);

	(void)state;
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_c_library_has_its_entry_points),
		cmocka_unit_test(a_static_program_without_symbols_says_so),
		cmocka_unit_test(an_allocator_without_names_is_told),
		cmocka_unit_test(an_allocator_with_names_is_not),
		cmocka_unit_test(an_allocator_behind_rusts_names_is_not),
		cmocka_unit_test(an_allocator_beside_one_with_names_is_told),
		cmocka_unit_test(a_program_in_anonymous_memory_is_told_once),
		cmocka_unit_test(hostile_symbols_give_no_site),
		cmocka_unit_test(each_problem_is_told_once),
		cmocka_unit_test(inner_ranges_are_apart_and_have_a_limit),
		cmocka_unit_test(more_functions_than_are_taken_are_told),
		cmocka_unit_test(code_that_is_not_followed_to_its_end_is_told),
		cmocka_unit_test(more_hooks_than_are_followed_are_told),
	};

	if (!mkdtemp(dir))
		return 1;
	return cmocka_run_group_tests(tests, NULL, remove_all);
}
