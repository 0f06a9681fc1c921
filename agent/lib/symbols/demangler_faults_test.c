/* SPDX-License-Identifier: Apache-2.0 */
/* If a child cannot be started or reached, the name stays mangled, and the reason is counted. */
#include "lib/base/fault.h"
#include "lib/symbols/symbols.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#define MANGLED "_ZN4shop5priceITkNS_6NumberEiEET_S1_"

static uint64_t n_counted(void)
{
	static const char *const reasons[] = {"no_child", "child_died", "timeout",
					      "answer_refused"};
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		n += counter_get(counter("podflame_names_mangled_total", "reason", reasons[i]));
	return n;
}

static int name_one(void *arg)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};
	uint64_t again_ns, before = n_counted();
	_cleanup_free_ char *text = elf_demangler_text(d, MANGLED, &cost, &again_ns);
	bool readable = streq(text, "int shop::price<int>(int)");

	(void)arg;
	assert_true(readable || streq(text, MANGLED));
	assert_int_equal(n_counted() - before, !readable);
	elf_demangler_free(d);
	return readable ? 0 : -EIO;
}

static void test_child(void **state)
{
	static const struct fault_row row = {.name = "demangler_text",
					     .calls = FAULT(OPEN) | FAULT(FD) | FAULT(STAT) |
						      FAULT(MMAP) | FAULT(SEND) | FAULT(RECV) |
						      FAULT(POLL) | FAULT(START),
					     .run = name_one,
					     .threads = true};

	(void)state;
	fault_each(&row, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_child)};

	return cmocka_run_group_tests_name("demangler_faults", tests, NULL, NULL);
}
