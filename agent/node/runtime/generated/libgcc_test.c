/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This program is the process with generated code. It gives call frame information to libgcc, and
 * podflame finds it there: in the libgcc of this machine, and in newer ones if `.ci/deps long` has
 * fetched them.
 */
#include "node/runtime/generated/testgenerated.h"
#include "node/runtime/generated/testpublished.h"

#include <dlfcn.h>
#include <glob.h>

#define OBJECTS_MANY 5000 /* more than OBJECTS_MAX of libgcc.c */
#define LIBGCC	     "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1"

/* The functions of one copy of libgcc. */
struct gcc {
	void (*add)(const void *frames), (*remove)(const void *frames);
	const void *(*find)(const void *pc, void *bases);
	struct dwarf_eh_bases {
		void *text, *data, *function;
	} bases;
};

static struct gcc gcc_at(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	struct gcc g = {0};

	if (!library)
		fail_msg("%s: %s", path, dlerror());
	*(void **)&g.add = dlsym(library, "__register_frame");
	*(void **)&g.remove = dlsym(library, "__deregister_frame");
	*(void **)&g.find = dlsym(library, "_Unwind_Find_FDE");
	assert_true(g.add && g.remove && g.find);
	return g;
}

/* So many that a tree has several levels. */
static void add_many(const struct gcc *g)
{
	enum { N = 400 };
	struct test_frames *all = xcalloc(N, sizeof(*all));
	struct elf_index *index;

	for (size_t i = 0; i < N; i++) {
		all[i] = testgenerated_frames(published.code + i * 64, 16, true);
		g->add(&all[i]);
	}
	index = published_read(published_read_own);
	for (size_t i = 0; i < N; i++)
		published_assert_rows(index, published.code + i * 64, published.code + i * 64 + 16);
	elf_index_unref(index);
	for (size_t i = 0; i < N; i++)
		g->remove(&all[i]);
	free(all);
}

static void check_copy(const char *path)
{
	struct gcc g = gcc_at(path);
	struct test_frames a, b;
	struct elf_index *index;

	print_message("%s\n", path);
	published_open();
	a = testgenerated_frames(published.code, 0x1000, true);
	b = testgenerated_frames(published.code + 0x2000, 0x80, true);
	assert_null(published_read(published_read_own));
	assert_true(published.facts.publishes);
	assert_int_equal(published.facts.lacks[GENERATED_UNKNOWN], 0);
	g.add(&a);
	g.add(&b);
	index = published_read(published_read_own);
	published_assert_rows(index, published.code, published.code + 0x1000);
	published_assert_rows(index, published.code + 0x2000, published.code + 0x2080);
	elf_index_unref(index);
	/* libgcc has searched and sorted them */
	assert_ptr_equal(g.find((void *)(published.code + 8), &g.bases), &a.fde);
	index = published_read(published_read_own);
	published_assert_rows(index, published.code, published.code + 0x1000);
	published_assert_rows(index, published.code + 0x2000, published.code + 0x2080);
	elf_index_unref(index);
	g.remove(&a);
	index = published_read(published_read_own);
	assert_null(published_rule(index, published.code));
	published_assert_rows(index, published.code + 0x2000, published.code + 0x2080);
	elf_index_unref(index);
	g.remove(&b);
	assert_null(published_read(published_read_own));
	add_many(&g);
	published_close();
}

static void what_is_registered_gives_rows(void **state)
{
	_cleanup_free_ char *pattern =
		xasprintf("%s/.cache/podflame/*/*%s", getenv("HOME") ?: "/root", LIBGCC);
	glob_t others;

	(void)state;
	check_copy(LIBGCC);
	if (glob(pattern, 0, NULL, &others) == 0)
		for (size_t i = 0; i < others.gl_pathc; i++)
			check_copy(others.gl_pathv[i]);
	globfree(&others);
}

static void many_objects_have_a_limit(void **state)
{
	struct test_frames *all = xcalloc(OBJECTS_MANY, sizeof(*all));
	struct gcc g = gcc_at(LIBGCC);

	(void)state;
	published_open();
	for (size_t i = 0; i < OBJECTS_MANY; i++) {
		all[i] = testgenerated_frames(published.code + i * 16, 16, true);
		g.add(&all[i]);
	}
	elf_index_unref(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_TOO_MANY], 1);
	for (size_t i = 0; i < OBJECTS_MANY; i++)
		g.remove(&all[i]);
	published_close();
	free(all);
}

static struct test_frames *changing;

static int read_changing(void *arg, uint64_t at, void *to, size_t n)
{
	int r = published_read_own(arg, at, to, n);

	if (at == (uint64_t)changing)
		changing->cie.cfa[1] ^= 1;
	return r;
}

static void what_changes_or_is_damaged_is_left_out(void **state)
{
	struct gcc g = gcc_at(LIBGCC);
	struct test_frames f;

	(void)state;
	published_open();
	f = testgenerated_frames(published.code, 16, true);
	changing = &f;
	g.add(&f);
	assert_null(published_read(read_changing));
	assert_int_equal(published.facts.lacks[GENERATED_CHANGED], 1);
	f.fde.bytes = GENERATED_FRAMES_MAX;
	elf_index_unref(published_read(published_read_own));
	assert_int_equal(published.facts.lacks[GENERATED_TOO_LARGE], 1);
	f.fde.bytes = sizeof(f.fde) - sizeof(f.fde.bytes);
	g.remove(&f);
	published_close();
}

/* The code of the functions is other code. */
static int read_other_code(void *arg, uint64_t at, void *to, size_t n)
{
	memset(to, 0x90, n);
	return n < 64 ? published_read_own(arg, at, to, n) : 0;
}

static void another_libgcc_is_told(void **state)
{
	(void)state;
	published_open();
	assert_null(published_read(read_other_code));
	assert_true(published.facts.lacks[GENERATED_UNKNOWN] >= 1);
	assert_false(published.facts.publishes);
	published_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_libgcc_is_told),
		cmocka_unit_test(many_objects_have_a_limit),
		cmocka_unit_test(what_changes_or_is_damaged_is_left_out),
		cmocka_unit_test(what_is_registered_gives_rows),
	};

	/* it must be loaded, and no test may depend on another */
	(void)gcc_at(LIBGCC);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
