/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the runtimes of processes, and the rows of generated code that the kernel has of them, to
 * the pipeline worker. If its mailbox is full, runtimes are lost: the next search finds them again.
 * Rows are kept, and told before the worker gets further samples: it would judge samples by rows
 * that the kernel did not have. Loop thread.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

/*
 * The newest rows of an exec of a process of which the worker was not told yet. Only processes that
 * are followed have any, and each feed of the worker empties the list.
 */
struct untold {
	struct untold_key {
		struct process_id id;
		uint64_t exec_id;
	} key;
	struct rows_told rows; /* has a reference to the runtimes */
	UT_hash_handle hh;
};

static void runtimes_run(struct task *task)
{
	struct telling *t = (struct telling *)task;

	pipeline_windows_runtimes(t->pipeline->windows, t->id, t->exec_id, t->rows.runtimes);
}

static void rows_run(struct task *task)
{
	struct telling *t = (struct telling *)task;

	pipeline_windows_rows_set(t->pipeline->windows, t->id, t->exec_id, &t->rows);
}

static void tell_done(struct task *task)
{
	if (task->refused)
		counter_add(counter("podflame_mappings_dropped_total", "reason", "pipeline_full"),
			    1);
	runtime_process_unref(((struct telling *)task)->rows.runtimes);
}

static struct untold_key key_of(const struct telling *t)
{
	return (struct untold_key){t->id, t->exec_id};
}

/* ---- rows ---- */

static struct untold *find(const struct pipeline *p, const struct untold_key *key)
{
	struct untold *u;

	HASH_FIND(hh, p->untold, key, sizeof(*key), u);
	return u;
}

static void forget(struct pipeline *p, struct untold *u)
{
	HASH_DEL(p->untold, u);
	runtime_process_unref(u->rows.runtimes);
	free(u);
}

/* If the mailbox had no room for the rows, keeps them: pipeline_tell_again() tells them. */
static void rows_done(struct task *task)
{
	struct telling *t = (struct telling *)task;
	struct untold *u;

	if (!task->refused) {
		runtime_process_unref(t->rows.runtimes);
		return;
	}
	u = xcalloc(1, sizeof(*u));
	u->key = key_of(t);
	u->rows = t->rows; /* with its reference */
	HASH_ADD(hh, t->pipeline->untold, key, sizeof(u->key), u);
}

/* ---- both ---- */

static void tell(struct pipeline *p, struct telling what, void (*run)(struct task *task),
		 void (*done)(struct task *task))
{
	struct telling *t = xcalloc(1, sizeof(*t));

	*t = what;
	t->pipeline = p;
	runtime_process_ref(t->rows.runtimes);
	t->task.run = run;
	t->task.done = done;
	work_post(p->config.work, p->config.work->pipe, &t->task, 0);
}

void pipeline_runtimes(struct pipeline *p, struct process_id id, uint32_t exec_id,
		       struct runtime_process *found)
{
	tell(p, (struct telling){.id = id, .exec_id = exec_id, .rows.runtimes = found},
	     runtimes_run, tell_done);
}

void pipeline_rows_set(struct pipeline *p, struct process_id id, uint32_t exec_id,
		       struct runtime_process *r, uint64_t since_ns, uint64_t until_ns)
{
	struct telling t = {.id = id,
			    .exec_id = exec_id,
			    .rows = {.runtimes = r, .since_ns = since_ns, .until_ns = until_ns}};
	const struct untold_key key = key_of(&t);
	struct untold *u;

	pipeline_tell_again(p); /* in their order */
	u = find(p, &key);
	if (u) {
		t.rows.skipped = true;
		forget(p, u);
	}
	tell(p, t, rows_run, rows_done);
}

void pipeline_tell_again(struct pipeline *p)
{
	struct untold *all = TAKE_PTR(p->untold), *u, *next;

	HASH_ITER (hh, all, u, next) {
		HASH_DEL(all, u);
		tell(p,
		     (struct telling){
			     .id = u->key.id, .exec_id = (uint32_t)u->key.exec_id, .rows = u->rows},
		     rows_run, rows_done);
		runtime_process_unref(u->rows.runtimes);
		free(u);
	}
}

void pipeline_tell_done(struct pipeline *p)
{
	struct untold *u, *next;

	HASH_ITER (hh, p->untold, u, next)
		forget(p, u);
}
