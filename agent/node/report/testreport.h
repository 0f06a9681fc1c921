/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a report that is never written, and the problems of a target in it. */
#pragma once

#include "node/plan/testplan.h"
#include "node/report/report.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/loop/loop.h"

/*
 * Makes a report of the only target of testplan(). Its loop does not run, and is not the one of
 * testtimer.h, so that a test never fires the timer that writes the report.
 */
static inline struct report *testreport(void)
{
	static struct loop *loop;
	const struct report_config c = {.node_name = "node1", .ns = "podflame-system"};
	struct plan *plan = testplan("", "", "", false);
	struct report *r = NULL;

	if (!loop)
		assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(report_new(loop, NULL, &c, &r), 0);
	plan->targets->pods_matched = 1;
	report_plan(r, plan);
	plan_free(plan);
	return r;
}

/*
 * Returns the message of the target's problem; "" if it has no such problem. *ret_pods: how many
 * pods have it; may be NULL.
 */
static inline const char *testreport_problem(const struct report *r, enum reason reason,
					     unsigned *ret_pods)
{
	static char message[2048];
	_cleanup_json_ json_t *o = report_json(r);
	const json_t *target = json_array_get(json_at(o, "status.targets"), 0), *x;
	size_t i;

	assert_non_null(target);
	message[0] = '\0';
	json_array_foreach (json_object_get(target, "reasons"), i, x) {
		if (!streq(json_str_at(x, "reason", ""), reason_name(reason)))
			continue;
		snprintf(message, sizeof(message), "%s", json_str_at(x, "message", ""));
		if (ret_pods)
			*ret_pods = (unsigned)json_int_at(x, "pods", 0);
	}
	return message;
}
