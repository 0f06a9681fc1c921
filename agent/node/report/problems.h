/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problems: one kind of problem of containers, collected anew each time, and reported to the
 * targets of these containers. A problem of several containers is reported once, with their names.
 * Loop thread.
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
	 * "mem-alloc" gives "mem-alloc of container a of pod p is off"; NULL gives "container a of
	 * pod p: ..."
	 */
	const char *event;
	const char *problem; /* "is off"; containers with the same text share one message */
	const char *detail;  /* of the first of these containers; may be NULL */
};
/* Adds a problem of a container, for the targets that the plan has for it (plan NULL: none). */
void report_problems_add(struct problem_list *l, const struct plan *plan, const struct owner *o,
			 const struct problem *what);
/*
 * Reports the problems of `now` to r (may be NULL). If a target has one only in `before`, this
 * reports that it is over. Then `now` becomes `before`.
 */
void report_problems_tell(struct problem_list *before, struct problem_list *now, struct report *r,
			  enum reason reason);
void report_problems_done(struct problem_list *l);
