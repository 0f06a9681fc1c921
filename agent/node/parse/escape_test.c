/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a parse child can do that hostile bytes have taken over: nothing. The test program is its
 * own child: testescapechild.h.
 */
#include "node/parse/build.h"
#include "node/parse/parse.h"

#include "lib/child/testescapechild.h"

/* Attempts that are no row of the table. */
enum { STAT_BY_PATH = -1, STAT_BY_DIRECTORY = -2, MUCH_MEMORY = -3, A_LARGE_FILE = -4 };

/* ---- the child ---- */

/* Returns 0 if the size of the file is known, else -errno. */
static int stat_path(int dir_fd, const char *path)
{
	struct stat st = {.st_size = -1};

	if (syscall(SYS_newfstatat, dir_fd, path, &st, AT_EMPTY_PATH) < 0)
		return -errno;
	return st.st_size == -1;
}

static int take_memory(void)
{
	return mmap(NULL, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			       MAP_FAILED
		       ? -errno
		       : 0;
}

static int fill_file(void)
{
	int fd = memfd_create("escape", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return pwrite(fd, "x", 1, 64l << 30) == 1 ? 0 : -errno;
}

static int attempt(const struct escape_question *q)
{
	switch (q->attempt) {
	case STAT_BY_PATH:
		return stat_path(AT_FDCWD, q->outside.file);
	case STAT_BY_DIRECTORY:
		return stat_path(CHILD_SOCKET_FD, "..");
	case MUCH_MEMORY:
		return take_memory();
	default:
		return fill_file();
	}
}

/* ---- the owner ---- */

static int ask(struct child *c, int number)
{
	return escape_ask(c, number);
}

static void no_system_call_leads_out(void **state)
{
	(void)state;
	escape_assert_none(IN_PARSER, 70);
}

/* fstat() works, and fstatat() says nothing of a path, whatever its flags are. */
static void no_path_is_looked_up(void **state)
{
	struct child *c = escape_child_new();

	(void)state;
	assert_int_equal(ask(c, STAT_BY_PATH), -EBADF); /* of AT_FDCWD */
	assert_int_equal(ask(c, STAT_BY_DIRECTORY), 0); /* of the descriptor, not of "..", */
	assert_int_equal(child_restarts(c), 0);
	child_free(c);
}

static void memory_and_files_have_a_limit(void **state)
{
	struct child *c = escape_child_new();

	(void)state;
	assert_int_equal(ask(c, MUCH_MEMORY), -ENOMEM);
	assert_int_equal(ask(c, A_LARGE_FILE), -EFBIG);
	assert_int_equal(child_restarts(c), 0);
	child_free(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_system_call_leads_out),
		cmocka_unit_test(no_path_is_looked_up),
		cmocka_unit_test(memory_and_files_have_a_limit),
	};

	if (argc > 1 && streq(argv[1], ESCAPE_VERB))
		return escape_child_main(parse_child_begin, attempt);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a child with a sanitizer has no sandbox\n");
	return 0;
#endif
	return cmocka_run_group_tests(tests, escape_setup, escape_teardown);
}
