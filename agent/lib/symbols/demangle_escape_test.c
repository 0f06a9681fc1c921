/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a child that demangles can do that a hostile name has taken over: nothing. The test program
 * is its own child: testescapechild.h.
 */
#include "lib/symbols/demangle.h"

#include "lib/child/testescapechild.h"

/* Attempts that are no row of the table. */
enum { MUCH_MEMORY = -1, MORE_DATA = -2, A_FILE = -3, STAT_BY_DESCRIPTOR = -4 };

static int attempt(const struct escape_question *q)
{
	switch (q->attempt) {
	case MUCH_MEMORY:
		return mmap(NULL, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0) == MAP_FAILED
			       ? -errno
			       : 0;
	case MORE_DATA:
		return syscall(SYS_brk, (char *)sbrk(0) + 4096) < 0 ? -errno : 0;
	case A_FILE:
		return memfd_create("escape", MFD_CLOEXEC) < 0 ? -errno : 0;
	default:
		return syscall(SYS_fstat, CHILD_SOCKET_FD, &(struct stat){}) < 0 ? -errno : 0;
	}
}

static void no_system_call_leads_out(void **state)
{
	(void)state;
	escape_assert_none(IN_ALL, 90);
}

/* It gets no memory and no file, so there is nothing that could need a limit. */
static void it_takes_no_memory_and_no_file(void **state)
{
	struct child *c = escape_child_new();

	(void)state;
	for (int i = STAT_BY_DESCRIPTOR; i <= MUCH_MEMORY; i++)
		assert_int_equal(escape_ask(c, i), -EPIPE);
	child_free(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_system_call_leads_out),
		cmocka_unit_test(it_takes_no_memory_and_no_file),
	};

	if (argc > 1 && streq(argv[1], ESCAPE_VERB))
		return escape_child_main(elf_demangle_child_begin, attempt);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a child with a sanitizer has no sandbox\n");
	return 0;
#endif
	return cmocka_run_group_tests(tests, escape_setup, escape_teardown);
}
