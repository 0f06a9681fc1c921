/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parse child is killed or stopped in the middle of a file. Callers must see one failure, which
 * is remembered and counted once. Other files must be read as before. The test program is its own
 * parse child.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/files/testfiles.h"
#include "node/parse/testkinds.h"

#define TIMEOUT_NS NSEC_PER_SEC /* small files are read in this time even on a busy machine */
#define TRIES	   20		/* to hit the child before it has read the file */

static struct mapping file_of_test(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	return map_of(path);
}

static uint64_t cpu_of(bool debug, int fd)
{
	struct parser_config c = {.timeout_ns = 60 * NSEC_PER_SEC};
	struct parse_debug_files files = {.main_fd = fd, .debug_fd = -1};
	struct elf_index *index;
	struct parser *p;
	uint64_t started, ns;

	assert_int_equal(parse_new(&c, &p), 0);
	started = program_cpu_ns(test_child_waits(1));
	ns = test_ended_cpu_ns();
	assert_int_equal(debug ? parse_debug(p, &files, &index) : parse_elf(p, fd, &index), 0);
	ns = test_ended_cpu_ns() - ns;
	elf_index_unref(index);
	parse_free(p);
	return ns - MIN(started, ns);
}

/* The expected result if the child is killed or stopped. */
struct outcome {
	const char *word; /* the reason in the counters */
	int error;
	uint64_t timeout_ns;
};
static const struct outcome outcomes[] = {
	[TEST_KILL] = {"child_died", -EPIPE, 0},
	[TEST_STOP] = {"timeout", -ETIMEDOUT, TIMEOUT_NS},
};

static struct files *make(enum test_blow blow)
{
	struct files_config c = {.parser.timeout_ns = outcomes[blow].timeout_ns,
				 .debug_timeout_ns = outcomes[blow].timeout_ns};
	struct files *f;

	assert_int_equal(files_new(&c, &f), 0);
	return f;
}

/* ---- main indexes ---- */

/* Returns false if the child had read the file before it was killed or stopped. */
static bool main_fails_once(const struct mapping *m, uint64_t ns, enum test_blow blow)
{
	const struct outcome *o = &outcomes[blow];
	struct counter *failed = counter("podflame_symbol_files_failed_total", "reason", o->word);
	struct mapping other = file_of_test("small"), next = file_of_test("next");
	struct files *f = make(blow);
	struct elf_index *before, *after;
	uint64_t failures;
	pid_t striker;
	int r;

	assert_int_equal(files_index(f, &other, &before), 0);
	failures = counter_get(failed);
	striker = test_strike(test_child_waits(1), ns, blow, -1);
	r = files_index(f, m, &after);
	test_strike_done(striker);
	if (r == 0) {
		elf_index_unref(after);
	} else {
		assert_int_equal(r, o->error);
		assert_int_equal(counter_get(failed), failures + 1);
		for (int times = 0; times < 3; times++)
			assert_int_equal(files_index(f, m, &after), o->error);
		assert_int_equal(files_index_known(f, m, &after), o->error);
		assert_int_equal(counter_get(failed), failures + 1);
		assert_int_equal(files_index(f, &other, &after), 0);
		assert_ptr_equal(after, before);
		elf_index_unref(after);
		assert_int_equal(files_index(f, &next, &after), 0);
		elf_index_unref(after);
	}
	elf_index_unref(before);
	close(other.fd);
	close(next.fd);
	files_free(f);
	return r < 0;
}

/* ---- debug indexes ---- */

static bool debug_fails_once(const struct mapping *m, uint64_t ns, enum test_blow blow)
{
	const struct outcome *o = &outcomes[blow];
	uint64_t failures, own;
	struct mapping first = file_of_test("small"), next = file_of_test("next");
	struct files *f = make(blow);
	struct elf_index *before, *after;
	pid_t striker;
	bool failed;

	assert_int_equal(files_index(f, m, &before), 0);
	files_debug(f, &first, -1); /* starts the child for debug indexes, the newest one */
	failures = result(o->word);
	striker = test_strike(test_child_waits(2), ns, blow, -1);
	files_debug(f, m, -1);
	test_strike_done(striker);
	failed = result(o->word) == failures + 1;
	if (failed) {
		files_debug(f, m, -1); /* the file is not tried again */
		assert_int_equal(result(o->word), failures + 1);
		assert_int_equal(files_index(f, m, &after), 0);
		assert_ptr_equal(after, before);
		elf_index_unref(after);
		own = result("own");
		files_debug(f, &next, -1);
		assert_int_equal(result("own"), own + 1);
	}
	elf_index_unref(before);
	close(first.fd);
	close(next.fd);
	files_free(f);
	return failed;
}

static void a_hit_child_costs_one_failure(void **state)
{
	const struct test_kind *k = *state;
	bool (*fails_once)(const struct mapping *, uint64_t, enum test_blow) =
		k->debug ? debug_fails_once : main_fails_once;
	struct test_files small = test_kind_make(k, dir, 1), big;
	struct mapping m;
	uint64_t ns;

	run("cd %s && cp main small && cp main next && echo >>next", dir);
	big = test_kind_make(k, dir, k->copies);
	m = file_of_test("main");
	ns = cpu_of(k->debug, m.fd);
	for (enum test_blow blow = TEST_KILL; blow <= TEST_STOP; blow++) {
		int tries = 0;

		while (!fails_once(&m, ns / 2, blow))
			assert_true(++tries < TRIES);
	}
	close(m.fd);
	test_files_done(&small);
	test_files_done(&big);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[ARRAY_SIZE(test_kinds)];
	size_t n = 0;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	for (size_t i = 0; i < ARRAY_SIZE(test_kinds); i++)
		if (streq(test_kinds[i].name, "eh_frame") || streq(test_kinds[i].name, "dwarf"))
			tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
				a_hit_child_costs_one_failure, (void *)&test_kinds[i]);
	return _cmocka_run_group_tests("files and a hit child", tests, n, dir_make, dir_remove);
}
