/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problems: a list of containers with problems of one kind. A caller makes the list anew each time,
 * and this module reports it to the targets of these containers. If several containers have the
 * same problem, it is reported once, with their names. Loop thread.
 */
#pragma once

#include "node/report/report.h"

#include "node/proc/proc.h"

struct container_problem;
struct problem_list {
	struct container_problem *items;
	size_t n, cap;
};
struct problem {
	/*
	 * The event, as in "mem-alloc of container a of pod p is off". NULL: the message begins
	 * with the container: "container a of pod p: ...".
	 */
	const char *event;
	/* for example "is off"; containers with the same text share one message */
	const char *problem;
	const char *detail;  /* about the first of these containers; may be NULL */
};
/*
 * Adds a problem of a container to the targets that select the container in the plan (plan NULL: no
 * target).
 */
void report_problems_add(struct problem_list *l, const struct plan *plan, const struct owner *o,
			 const struct problem *what);
/*
 * Reports the problems of `now` to r (may be NULL). If a target has a problem in `before` but not
 * in `now`, reports that the problem is over. Then moves `now` to `before`.
 */
void report_problems_tell(struct problem_list *before, struct problem_list *now, struct report *r,
			  enum reason reason);
void report_problems_done(struct problem_list *l);
