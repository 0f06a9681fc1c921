/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problems: one kind of problem of containers, gathered anew each time, and the targets that are told of it. What
 * several containers have is told once, with their names. Loop thread.
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
	const char *event;   /* "mem-alloc": "mem-alloc of container a of pod p is off"; NULL: "container a of pod p: ..." */
	const char *problem; /* "is off": the same of several containers is told once */
	const char *detail;  /* of the first of these; may be NULL */
};
/* For the targets of a container, by plan (may be NULL: no target). */
void report_problems_add(struct problem_list *l, const struct plan *plan, const struct owner *o,
			 const struct problem *what);
/*
 * Tells r (may be NULL) the problems of `now`, and of each target that has one in `before` only that it has none any
 * more; now becomes before.
 */
void report_problems_tell(struct problem_list *before, struct problem_list *now, struct report *r,
			  enum reason reason);
void report_problems_done(struct problem_list *l);
