/* SPDX-License-Identifier: Apache-2.0 */
/* The namespaces whose targets may be missing in a full report. */
#include "hub/status/omitted.h"

#include <setjmp.h>
#include <cmocka.h>

/* Makes a report from a text such as "a:3 b:1": the number of targets of each namespace. */
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
		bool may_be;
	} rows[] = {
		{"a:4 b:3 c:2", 1, "a", true},	{"a:4 b:3 c:2", 1, "b", true},
		{"a:4 b:3 c:2", 1, "c", false}, {"a:4 b:3 c:2", 1, "other", false},
		{"a:4 b:3 c:2", 0, "a", false}, {"a:2 b:1", 9, "b", true},
		{"a:2 b:1", 9, "other", false}, {"a:1 b:1", 9, "other", true},
		{"a:1 b:1", 9, "", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ json_t *r = report(rows[i].named, rows[i].omitted);
		struct omitted *all = NULL;

		status_omitted_update(&all, NULL, r);
		if (status_omitted_may_be(all, rows[i].ns) != rows[i].may_be)
			fail_msg("%s of %s", rows[i].ns, rows[i].named);
		status_omitted_update(&all, r, NULL);
		assert_null(all);
	}
}

static void changes_are_told(void **state)
{
	_cleanup_json_ json_t *r = report("a:4 b:2", 1), *more = report("a:4 b:2", 7),
			      *other = report("a:1 b:3", 1), *each = report("a:1 b:1", 1);
	struct omitted *all = NULL;

	(void)state;
	assert_true(status_omitted_update(&all, NULL, r));
	assert_false(status_omitted_update(&all, r, more));
	assert_false(status_omitted_update(&all, NULL, r)); /* the report of a second node */
	assert_true(status_omitted_may_be(all, "a"));
	assert_true(status_omitted_update(&all, r, other));
	/* the report of the first node may still lack some targets */
	assert_true(status_omitted_may_be(all, "a"));
	assert_true(status_omitted_may_be(all, "b"));
	assert_false(status_omitted_may_be(all, "c"));
	assert_true(status_omitted_update(&all, other, each));
	assert_true(status_omitted_may_be(all, "c"));
	status_omitted_done(&all);
	assert_null(all);
}

/* A node's agent has no room for all targets of some namespaces. */
static void crowded_namespaces_are_told(void **state)
{
	_cleanup_json_ json_t *r = report("a:4 b:2", 0), *full = report("a:4 b:2", 1), *most = NULL;
	json_t *names = json_pack("[s, s, i]", "crowd", "", 3);
	struct omitted *all = NULL;

	(void)state;
	json_object_set_new(json_object_get(r, "status"), "crowdedNamespaces", names);
	assert_true(status_omitted_update(&all, NULL, r));
	assert_true(status_omitted_may_be(all, "crowd"));
	assert_true(status_omitted_may_be(all, ""));
	assert_false(status_omitted_may_be(all, "a"));
	assert_false(status_omitted_update(&all, r, r));
	/* "*": the list itself has no room */
	most = json_deep_copy(r);
	json_array_append_new(json_object_get(json_object_get(most, "status"), "crowdedNamespaces"),
			      json_string("*"));
	assert_true(status_omitted_update(&all, r, most));
	assert_true(status_omitted_may_be(all, "a"));
	assert_true(status_omitted_update(&all, most, full));
	assert_true(status_omitted_may_be(all, "a"));
	assert_false(status_omitted_may_be(all, "crowd"));
	status_omitted_update(&all, full, NULL);
	assert_null(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_fewer_is_whole),
		cmocka_unit_test(changes_are_told),
		cmocka_unit_test(crowded_namespaces_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
