/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: drains become windows on this thread, without a queue and workers. All samples
 * are of one cgroup.
 */
#pragma once

#include "node/pipeline/internal.h"

#include <stdlib.h>

/* Returns 0 or -errno. */
static inline int testwindows_new(struct files *files, uint64_t window_ns, struct windows **ret)
{
	const struct fold_config c = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = window_ns};

	return pipeline_windows_new(&c, files, NULL, ret);
}

static inline void testwindows_read(struct windows *w, const struct missing *m)
{
	struct mappings *found;

	if (proc_mappings_read(m->id, m->exec_id, &found) < 0)
		abort();
	pipeline_windows_mappings(w, found, 0);
	proc_mappings_unref(found);
}

/*
 * Reads the mappings of new processes, and folds the drain, as sample_queue.c does. Takes ownership
 * of d. exit: of a process that has ended since the last drain; NULL: no process has ended. Returns
 * the window if one ended, or NULL.
 */
static inline struct batch *testwindows_drain(struct windows *w, struct drain *d,
					      uint64_t cgroup_id, struct owner *owner,
					      const struct process_exit *exit)
{
	const struct attribution of = {
		.cgroup_id = cgroup_id, .until_ns = UINT64_MAX, .owner = proc_owner_ref(owner)};
	struct feed f = {.drain = d, .full = true, .n_owners = 1, .n_exits = exit ? 1 : 0};
	struct feed_answer answer = {0};
	struct batch *ended;

	f.owners = xmemdup(&of, sizeof(of));
	f.exits = exit ? xmemdup(exit, sizeof(*exit)) : NULL;
	pipeline_windows_fold(w, &f, &answer);
	for (size_t i = 0; i < answer.n_missing; i++)
		testwindows_read(w, &answer.missing[i]);
	if (answer.waits) {
		f.last_pass = true;
		f.files_asked = answer.files_asked;
		pipeline_feed_answer_done(&answer);
		answer = (struct feed_answer){0};
		pipeline_windows_fold(w, &f, &answer);
	}
	ended = TAKE_PTR(answer.batch);
	pipeline_feed_answer_done(&answer);
	pipeline_feed_done(&f);
	return ended;
}
