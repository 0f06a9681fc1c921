/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces a worker whose thread does not return from its job, for example because it reads a pod's
 * file on an NFS server that does not answer. Such a thread cannot be ended. So a worker leaves at
 * most LEFT_BEHIND_MAX of them behind. This file does not know what the jobs do. Loop thread.
 */
#include "node/work/work.h"

static bool replace(struct work *work, struct left_behind *l, struct worker **w)
{
	/* the thread may have returned by now, and may run another job */
	if (!l->waits || l->n == LEFT_BEHIND_MAX || !work->threads->is_stuck(*w) ||
	    work->threads->replace(*w, w) < 0)
		return false;
	l->jobs[l->n++] = TAKE_PTR(l->waits);
	return true;
}

bool work_left_behind(struct work *work, struct left_behind *l, struct worker **w,
		      const struct job *j)
{
	loop_assert(work->loop);
	l->waits = j;
	return replace(work, l, w);
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
	if (l->waits == j)
		l->waits = NULL;
	for (size_t i = 0; i < l->n; i++)
		if (l->jobs[i] == j) {
			l->jobs[i] = l->jobs[--l->n];
			return replace(work, l, w);
		}
	return false;
}
