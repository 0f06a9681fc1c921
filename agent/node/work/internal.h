/* SPDX-License-Identifier: Apache-2.0 */
/* Private to work/: declarations that its files share. */
#pragma once

#include "node/work/work.h"

/*
 * bytes of the tasks that wait for `files`. No task has more than half of it, so the worker's own
 * mailbox has room for the two that it gets.
 */
#define FILES_MAILBOX (32u << 20)

/* process_task.c: handles a blocked job of the files worker. Loop thread. */
void work_files_stuck(struct worker *w, struct job *j, void *work);

/* work.c: ends a task, as if the worker's mailbox were full. */
void work_refuse(struct work *w, struct task *t);

/* ---- turns.c: the order of tasks that read processes ---- */
/*
 * Takes p, which goes to the files worker when it is its namespace's turn. Refuses p if the tasks
 * of its namespace that wait have half of the bytes that those of others leave.
 */
void work_turns_add(struct work *w, struct process_task *p, size_t n_bytes);
/*
 * To be called when p has ended, was refused or blocks the worker: another one may begin. ns: for
 * how long it has had the worker.
 */
void work_turns_ended(struct work *w, struct process_task *p, uint64_t ns);
void work_turns_post_all(struct work *w); /* no task waits after it */
