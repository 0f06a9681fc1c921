/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace with very many cgroups leaves room for the costs of others. */
#include "node/limit/internal.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#define MAX_PAYERS	 8192 /* as in payers.c */
#define VICTIM_CGROUP	 5
#define VICTIM_POD	 "401b6bf6-91e0-4a28-870a-232376283f13"
#define C16(c)		 #c #c #c #c #c #c #c #c #c #c #c #c #c #c #c #c
#define VICTIM_CONTAINER C16(2) C16(2) C16(2) C16(2)

static struct work node_work;

/* Plans the pod of testowner.h, and one of another namespace. */
static void plan_both(struct containers *c)
{
	struct plan *plan = testowner_plan();
	struct plan *other = testplan(VICTIM_POD, VICTIM_POD, VICTIM_CONTAINER, false);

	free(other->pods->ns);
	other->pods->ns = xstrdup("bank");
	testplan_take(plan, other);
	testowner_apply(c, plan);
	proc_containers_cgroup(c, VICTIM_CGROUP, VICTIM_CGROUP - 1,
			       "/kubepods/pod" VICTIM_POD "/" VICTIM_CONTAINER, false, 1);
}

/* Makes cgroups below the greedy container, and has the limit hold their costs. */
static size_t hold_many(struct limit *l, size_t n)
{
	size_t n_held = 0;

	for (uint64_t id = 1000; id < 1000 + n; id++) {
		_cleanup_free_ char *path =
			xasprintf("/kubepods/pod" TEST_POD "/" TEST_CONTAINER "/%u", (unsigned)id);

		proc_containers_cgroup(node_work.containers, id, TEST_CGROUP, path, false, 1);
		n_held += limit_payer_get(l, id) != NULL;
	}
	return n_held;
}

static void cgroups_of_one_namespace_leave_room(void **state)
{
	struct counter *c = counter("podflame_container_limits_dropped_total", NULL, NULL);
	uint64_t before = counter_get(c);
	struct limit_config config = {.work = &node_work};
	struct shares crowded = {0};
	struct limit *l;
	size_t n;

	(void)state;
	testwork(&node_work);
	config.containers = node_work.containers;
	plan_both(config.containers);
	l = limit_new(&config);
	n = hold_many(l, MAX_PAYERS + 10);
	assert_int_equal(n, MAX_PAYERS / 4 * 3);
	assert_int_equal(counter_get(c) - before, MAX_PAYERS + 10 - n);
	assert_non_null(limit_payer_get(l, VICTIM_CGROUP));
	limit_crowded(l, &crowded);
	assert_int_equal(crowded.all, 1);
	assert_int_equal(shares_most(&crowded, 0),
			 proc_containers_charged(config.containers, TEST_CGROUP).ns);
	shares_done(&crowded);
	limit_crowded(l, &crowded);
	assert_int_equal(crowded.all, 0);
	limit_free(l);
	proc_containers_free(node_work.containers);
	node_work.containers = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cgroups_of_one_namespace_leave_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
