/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the targets that selected a container. */
#include "node/plan/testplan.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define UID  "401b6bf6-91e0-4a28-870a-232376283f12"
#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void add_container(struct plan_pod *pod, const char *id, uint16_t target)
{
	struct plan_container *c;

	pod->containers =
		xrealloc(pod->containers, (pod->n_containers + 1) * sizeof(*pod->containers));
	c = &pod->containers[pod->n_containers++];
	*c = (struct plan_container){.id = xstrdup(id),
				     .name = xstrdup("c"),
				     .n_targets = 1,
				     .targets = xmemdup(&target, sizeof(target))};
}

static void add_uid(const char *uid, void *arg)
{
	buf_printf(arg, "%s ", uid);
}

static void assert_targets(const struct plan *p, const char *id, const char *pod, const char *want)
{
	_cleanup_buf_ struct buf b = {0};

	plan_targets_of(p, id, pod, add_uid, &b);
	assert_string_equal(b.data ? b.data : "", want);
}

/*
 * Samples of a container that the plan knows belong only to its own targets, not to those of a
 * container that has not started.
 */
static void test_whose_container(void **state)
{
	struct plan *p = testplan(UID, UID, ID_A, true);

	(void)state;
	p->targets = xrealloc(p->targets, 2 * sizeof(*p->targets));
	p->targets[p->n_targets++] = (struct plan_target){.uid = xstrdup("t2")};
	add_container(p->pods, NULL, 1);
	assert_targets(p, ID_A, UID, "t1 ");
	/* the container runs, but the API server has not reported its id yet */
	assert_targets(p, ID_B, UID, "t2 ");
	assert_targets(p, ID_B, "another", "");
	/* the sample was in the pod's own cgroup, so it may be of any container */
	assert_targets(p, NULL, UID, "t1 t2 ");
	plan_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whose_container),
	};

	return cmocka_run_group_tests_name("node/plan/owners", tests, NULL, NULL);
}
