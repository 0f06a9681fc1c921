/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that if the file of kernel names cannot be read once, no name is wrong, the user gets a
 * reason, and later the names are there.
 */
#include "lib/base/fault.h"
#include "lib/base/testdir.h"
#include "node/stack/internal.h"

#include <setjmp.h>
#include <cmocka.h>
#include <unistd.h>

#define FIRST  0xffffffff81000000
#define SECOND 0xffffffff81000100

static char dir[TESTDIR_BYTES], path[128];
static const char text[] = "ffffffff81000000 T startup_64\n"
			   "ffffffff81000100 t do_work\n"
			   "ffffffff81000200 T _etext\n";

static void assert_names(struct kernel_names *k)
{
	struct frame a = {0}, b = {0};

	stacks_kernel_names_find(k, FIRST + 8, &a);
	stacks_kernel_names_find(k, SECOND + 8, &b);
	assert_string_equal(a.name, "startup_64");
	assert_true(a.address == FIRST);
	assert_string_equal(b.name, "do_work");
	assert_true(b.address == SECOND);
}

/* A file that could not be read is read again when names are next asked for. */
static int from_file(void *arg)
{
	struct kernel_names *k = stacks_kernel_names_new(path);
	int r = *stacks_kernel_names_problem(k) ? -ENODATA : 0;

	(void)arg;
	fault_disarm();
	assert_names(k);
	assert_string_equal(stacks_kernel_names_problem(k), "");
	stacks_kernel_names_free(k);
	return r;
}

static int real(void *arg)
{
	struct kernel_names *k = stacks_kernel_names_new(NULL);
	int r = *stacks_kernel_names_problem(k) ? -ENODATA : 0;

	(void)arg;
	if (r) /* the problem names the file and the reason */
		assert_non_null(strstr(stacks_kernel_names_problem(k), "/proc/kallsyms"));
	fault_disarm();
	assert_int_equal(stacks_kernel_names_refresh(k), 0);
	stacks_kernel_names_free(k);
	return r;
}

static void test_kernel_names(void **state)
{
	static const struct fault_row from = {
		.name = "kernel_names", .calls = FAULT_FILES, .run = from_file};

	(void)state;
	fault_each(&from, NULL);
}

static void test_real_ones(void **state)
{
	static const struct fault_row row = {.name = "kernel_names: /proc",
					     .calls = FAULT(OPEN) | FAULT(READ) | FAULT(BPF),
					     .run = real,
					     .step = 1999};

	(void)state;
	if (geteuid() != 0) {
		print_message("skip: kernel addresses need root\n");
		skip();
	}
	fault_each(&row, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_names),
		cmocka_unit_test(test_real_ones),
	};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/kallsyms", dir);
	r = file_write_atomic(path, text, strlen(text), 0600);
	r = r < 0 ? 1 : cmocka_run_group_tests_name("stack_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
