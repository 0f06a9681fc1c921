/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces a worker whose thread does not return from its job, for example because it reads a pod's
 * file on an NFS server that does not answer. Such a thread cannot be ended. So a worker leaves it
 * behind, at most one for each namespace. This file does not know what the jobs do. Loop thread,
 * except for work_is_blocked().
 */
#include "node/work/work.h"

#include <stdatomic.h>

static bool replace(struct work *work, struct left_behind *l, struct worker **w)
{
	/* the thread may have returned by now, and may run another job */
	if (!l->waits.job || l->n == LEFT_BEHIND_MAX || !work->threads->is_stuck(*w) ||
	    work->threads->replace(*w, w) < 0)
		return false;
	l->jobs[l->n++] = l->waits;
	l->waits = (struct blocking_job){0};
	return true;
}

static void replace_blocked(struct left_behind *l, uint64_t old, uint64_t new)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->blocked); i++)
		if (atomic_load(&l->blocked[i]) == old) {
			atomic_store(&l->blocked[i], new);
			return;
		}
}

static void forget_waits(struct left_behind *l)
{
	if (l->waits.job)
		replace_blocked(l, l->waits.ns, 0);
	l->waits = (struct blocking_job){0};
}

bool work_left_behind(struct work *work, struct left_behind *l, struct worker **w,
		      const struct job *j, uint64_t ns)
{
	loop_assert(work->loop);
	forget_waits(l); /* it has returned, because the thread runs another job now */
	l->waits = (struct blocking_job){j, ns};
	replace_blocked(l, 0, ns);
	return replace(work, l, w);
}

bool work_is_blocked(const struct left_behind *l, uint64_t ns)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->blocked); i++)
		if (atomic_load(&l->blocked[i]) == ns)
			return true;
	return false;
}

bool work_left_behind_again(struct work *work, struct left_behind *l, struct worker **w)
{
	loop_assert(work->loop);
	return replace(work, l, w);
}

bool work_left_behind_ended(struct work *work, struct left_behind *l, struct worker **w,
			    const struct job *j)
{
	loop_assert(work->loop);
	if (l->waits.job == j)
		forget_waits(l);
	for (size_t i = 0; i < l->n; i++)
		if (l->jobs[i].job == j) {
			replace_blocked(l, l->jobs[i].ns, 0);
			l->jobs[i] = l->jobs[--l->n];
			return !work->closing && replace(work, l, w);
		}
	return false;
}
