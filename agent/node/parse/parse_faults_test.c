/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that if a child cannot be started or reached, the file fails with a reason, and the next
 * file is read.
 */
#include "lib/base/fault.h"
#include "node/parse/parse.h"

#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>

static int self_fd;

static int read_one(void *arg)
{
	struct parser_config c = {.timeout_ns = 60 * NSEC_PER_SEC};
	struct elf_index *index = NULL;
	struct parser *p = NULL;
	int r = parse_new(&c, &p);

	(void)arg;
	if (r) {
		assert_null(p);
		return r;
	}
	r = parse_elf(p, self_fd, &index);
	assert_true(!r == !!index);
	assert_true(!r == !parse_reason(p)[0]);
	elf_index_unref(index);
	if (r) { /* after all works again, the same parser reads the file */
		fault_disarm();
		index = NULL;
		assert_int_equal(parse_elf(p, self_fd, &index), 0);
		elf_index_unref(index);
	}
	parse_free(p);
	return r;
}

static void test_child(void **state)
{
	static const struct fault_row row = {.name = "parser_new, parser_elf",
					     .calls = FAULT(OPEN) | FAULT(FD) | FAULT(STAT) |
						      FAULT(MMAP) | FAULT(SEND) | FAULT(RECV) |
						      FAULT(POLL) | FAULT(START),
					     .run = read_one,
					     .threads = true};

	(void)state;
	fault_each(&row, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_child)};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	self_fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
	return self_fd < 0 ? 1 : cmocka_run_group_tests_name("parse_faults", tests, NULL, NULL);
}
