/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only, of limit and of a whole node: what limit knows of the cgroups that it has asked
 * the cost of. A test may change it, too, to begin with what takes long to come about.
 */
#pragma once

#include "node/limit/internal.h"

/* A cgroup that limit knows; NULL: it knows none. */
static inline struct payer *testpayers_one(const struct limit *o)
{
	return o->payers;
}

/* What an event of a set has cost that cgroup; NULL: spans have not shown it yet. */
static inline const struct account *testpayers_tried(const struct limit *o, enum event e)
{
	const struct payer *p = testpayers_one(o);

	return p && p->of[e].tried ? &p->of[e] : NULL;
}
