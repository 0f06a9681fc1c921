/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that are left behind with a job that does not come back: a file of a pod on NFS whose server is gone. Such a
 * thread cannot be ended, so there are few.
 */
#include "node/work/work.h"

static bool replace(struct left_behind *l, struct worker **w)
{
	/* by now it may be back, and at another job */
	if (!l->waits || l->n == LEFT_BEHIND_MAX || !worker_is_stuck(*w) ||
	    worker_replace(*w, w) < 0)
		return false;
	l->jobs[l->n++] = TAKE_PTR(l->waits);
	return true;
}

bool work_left_behind(struct left_behind *l, struct worker **w, const struct job *j)
{
	l->waits = j;
	return replace(l, w);
}

bool work_left_behind_again(struct left_behind *l, struct worker **w)
{
	return replace(l, w);
}

bool work_left_behind_ended(struct left_behind *l, struct worker **w, const struct job *j)
{
	if (l->waits == j)
		l->waits = NULL;
	for (size_t i = 0; i < l->n; i++)
		if (l->jobs[i] == j) {
			l->jobs[i] = l->jobs[--l->n];
			return replace(l, w);
		}
	return false;
}
