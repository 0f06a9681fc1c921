/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pod makes more cgroups than the tables hold. The cgroups of other pods stay in the tables, and
 * what is no longer selected leaves the filter.
 */
#include "node/plan/testplan.h"
#include "node/proc/internal.h"

#include <setjmp.h>

#include <cmocka.h>

#define S	  NSEC_PER_SEC
#define GREEDY_ID "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define VICTIM_ID "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define GREEDY	  "401b6bf6-91e0-4a28-870a-232376283f12"
#define VICTIM	  "5d2a11c0-0000-4a28-870a-00000000beef"
#define GREEDY_AT "/kubepods/pod" GREEDY "/" GREEDY_ID
#define VICTIM_AT "/kubepods/pod" VICTIM "/" VICTIM_ID
#define FIRST	  1000	 /* id of the greedy container's first child */
#define LATER	  900000 /* id of the victim's cgroup, which is made last */

static struct plan *plan_of_both(void)
{
	struct plan *both = testplan(GREEDY, GREEDY, GREEDY_ID, false),
		    *other = testplan(VICTIM, VICTIM, VICTIM_ID, false);

	testplan_take(both, other);
	return both;
}

static struct containers *begin(struct plan *plan, unsigned n_children)
{
	struct containers *p;
	char path[160];

	assert_int_equal(proc_containers_new(&p), 0);
	proc_containers_apply(p, plan, 1 * S);
	proc_containers_cgroup(p, 11, 10, GREEDY_AT, false, 1 * S);
	for (unsigned i = 0; i < n_children; i++) {
		snprintf(path, sizeof(path), GREEDY_AT "/%u", i);
		proc_containers_cgroup(p, FIRST + i, 11, path, false, 1 * S);
	}
	return p;
}

static void add_victim(struct containers *p)
{
	char path[160];

	proc_containers_cgroup(p, LATER, 9, VICTIM_AT, false, 1 * S);
	for (unsigned i = 1; i <= 5; i++) {
		snprintf(path, sizeof(path), VICTIM_AT "/%u", i);
		proc_containers_cgroup(p, LATER + i, LATER, path, false, 1 * S);
	}
}

static void note_cut(uint64_t cgroup_id, struct owner *o, void *arg)
{
	(void)o;
	*(uint64_t *)arg += cgroup_id;
}

/* The sum of the ids of the containers that lack cgroups. */
static uint64_t cuts(const struct containers *p)
{
	uint64_t sum = 0;

	proc_containers_each_cut(p, note_cut, &sum);
	return sum;
}

static void each_container_has_its_share_of_the_filter(void **state)
{
	struct containers *p = begin(plan_of_both(), 20000);
	const struct container_filter *f;
	bool changed;
	size_t n;

	(void)state;
	add_victim(p);
	f = proc_containers_filter(p, 1 * S, &n, &changed);
	assert_int_equal(n, CONTAINERS_FILTER_MAX);
	assert_int_equal(f[0].cgroup_id, 11);
	assert_int_equal(f[n - 7].cgroup_id, FIRST + n - 8); /* the oldest of the greedy one */
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(f[n - 6 + i].cgroup_id, LATER + i);
	assert_int_equal(cuts(p), 11);
	proc_containers_apply(p, testplan(VICTIM, VICTIM, VICTIM_ID, false), 2 * S);
	f = proc_containers_filter(p, 2 * S, &n, &changed);
	assert_true(changed);
	assert_int_equal(n, 6);
	assert_int_equal(f[0].cgroup_id, LATER);
	assert_int_equal(cuts(p), 0);
	proc_containers_free(p);
}

static bool is_known(struct containers *p, uint64_t id)
{
	uint64_t until_ns;
	struct owner *o = proc_containers_owner(p, id, &until_ns);

	proc_owner_unref(o);
	return o != NULL;
}

static void containers_take_the_place_of_cgroups_below_others(void **state)
{
	struct counter *dropped = counter("podflame_cgroups_dropped_total", "reason", "table_full");
	struct containers *p = begin(plan_of_both(), 65535);
	uint64_t before = counter_get(dropped);

	(void)state;
	assert_true(is_known(p, FIRST + 65534));
	proc_containers_cgroup(p, LATER, 9, VICTIM_AT, false, 1 * S);
	assert_true(is_known(p, LATER));
	assert_false(is_known(p, FIRST + 65534));
	assert_int_equal(counter_get(dropped), before + 1);
	proc_containers_cgroup(p, LATER + 1, 11, GREEDY_AT "/more", false, 1 * S);
	assert_false(is_known(p, LATER + 1));
	assert_int_equal(counter_get(dropped), before + 2);
	proc_containers_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_container_has_its_share_of_the_filter),
		cmocka_unit_test(containers_take_the_place_of_cgroups_below_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
