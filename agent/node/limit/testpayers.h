/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of limit and of a whole node only: what limit knows of the cost of cgroups. A test may
 * also change it, to set a state that would take long to reach.
 */
#pragma once

#include "node/limit/internal.h"

/* Returns a cgroup that limit knows; NULL: it knows none. */
static inline struct payer *testpayers_one(const struct limit *o)
{
	return o->payers;
}

/* Returns what an event has cost that cgroup; NULL: spans have not measured it yet. */
static inline const struct account *testpayers_tried(const struct limit *o, enum event e)
{
	const struct payer *p = testpayers_one(o);

	return p && p->of[e].tried ? &p->of[e] : NULL;
}
