/* SPDX-License-Identifier: Apache-2.0 */
/* Whose targets may be missing in reports that are full. */
#include "hub/status/omitted.h"

#include <setjmp.h>
#include <cmocka.h>

struct told {
	unsigned n, n_everybody;
};

static void count(const char *ns, void *arg)
{
	struct told *t = arg;

	t->n++;
	t->n_everybody += !ns;
}

/* "a:3 b:1": targets of each namespace. */
static json_t *report(const char *named, int omitted)
{
	json_t *targets = json_array();
	char ns[16];
	int n, used;

	for (const char *s = named; sscanf(s, " %15[^:]:%d%n", ns, &n, &used) == 2; s += used)
		for (int i = 0; i < n; i++)
			json_array_append_new(targets, json_pack("{s:s}", "namespace", ns));
	return json_pack("{s:{s:o, s:i}}", "status", "targets", targets, "targetsOmitted", omitted);
}

static void who_has_fewer_is_whole(void **state)
{
	static const struct {
		const char *named;
		int omitted;
		const char *ns;
		unsigned n;
	} rows[] = {
		{"a:4 b:3 c:2", 1, "a", 1}, {"a:4 b:3 c:2", 1, "b", 1},
		{"a:4 b:3 c:2", 1, "c", 0}, {"a:4 b:3 c:2", 1, "other", 0},
		{"a:4 b:3 c:2", 0, "a", 0}, {"a:2 b:1", 9, "b", 1},
		{"a:2 b:1", 9, "other", 0}, {"a:1 b:1", 9, "other", 1},
		{"a:1 b:1", 9, "", 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ json_t *r = report(rows[i].named, rows[i].omitted);
		struct omitted *all = NULL;
		struct told told = {0};

		omitted_update(&all, NULL, r, count, &told);
		if (!omitted_reports(all, rows[i].ns) != !rows[i].n)
			fail_msg("%s of %s", rows[i].ns, rows[i].named);
		omitted_update(&all, r, NULL, count, &told);
		assert_null(all);
	}
}

/* A change is told of those whose answer is another one. */
static void changes_are_told_once(void **state)
{
	_cleanup_json_ json_t *r = report("a:4 b:2", 1), *more = report("a:4 b:2", 7),
			      *other = report("a:1 b:3", 1), *all_ones = report("a:1 b:1", 1);
	struct omitted *all = NULL;
	struct told told = {0};

	(void)state;
	omitted_update(&all, NULL, r, count, &told);
	assert_int_equal(told.n, 1); /* a */
	omitted_update(&all, r, more, count, &told);
	omitted_update(&all, NULL, r, count, &told); /* of another node */
	assert_int_equal(told.n, 1);
	assert_int_equal(omitted_reports(all, "a"), 2);
	omitted_update(&all, r, other, count, &told);
	assert_int_equal(told.n, 2); /* b */
	omitted_update(&all, other, all_ones, count, &told);
	assert_int_equal(told.n_everybody, 1);
	omitted_done(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_fewer_is_whole),
		cmocka_unit_test(changes_are_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
