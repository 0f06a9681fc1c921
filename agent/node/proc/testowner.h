/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a struct containers that knows the cgroup of one planned container. */
#pragma once

#include "node/plan/testplan.h"
#include "node/proc/proc.h"

#define TEST_CGROUP    11
#define TEST_POD       "401b6bf6-91e0-4a28-870a-232376283f12"
#define TEST_CONTAINER "a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9"

/* A plan with this container. The caller may change it before it calls testowner_apply(). */
static inline struct plan *testowner_plan(void)
{
	return testplan(TEST_POD, TEST_POD, TEST_CONTAINER, false);
}

/* plan belongs to p afterwards. */
static inline void testowner_apply(struct containers *p, struct plan *plan)
{
	proc_containers_apply(p, plan, 1);
	proc_containers_cgroup(p, TEST_CGROUP, TEST_CGROUP - 1,
			       "/kubepods/pod" TEST_POD "/" TEST_CONTAINER, false, 1);
}
