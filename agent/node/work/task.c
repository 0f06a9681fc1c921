/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: jobs that know their node and outlive its end safely. */
#include "node/internal.h"

#include <stdlib.h>

void node_unref(struct node *n)
{
	if (--n->refs == 0)
		free(n);
}

static void unlink_task(struct task *t)
{
	*t->prev = t->next;
	if (t->next)
		t->next->prev = t->prev;
	else
		t->node->tasks_tail = t->prev;
}

static void handle(struct task *t)
{
	/* After the end there is nothing left to tell: only a thread that was stuck comes this late. */
	if (t->handled || t->node->closed)
		return;
	t->handled = true;
	t->done(t);
}

/* Loop thread; for a task that tasks_finish has handled this is only the end of its memory. */
static void on_done(struct job *j)
{
	struct task *t = (struct task *)j;
	struct node *n = t->node;

	handle(t);
	unlink_task(t);
	free(t);
	node_unref(n);
}

static void on_run(struct job *j)
{
	struct task *t = (struct task *)j;

	if (t->run)
		t->run(t);
	__atomic_store_n(&t->ran, true, __ATOMIC_RELEASE);
}

void task_post(struct node *n, struct worker *w, struct task *t, size_t n_bytes)
{
	t->node = n;
	t->job.run = on_run;
	t->job.done = on_done;
	t->job.n_bytes = sizeof(*t) + n_bytes;
	t->prev = n->tasks_tail;
	*n->tasks_tail = t;
	n->tasks_tail = &t->next;
	n->refs++;
	if (n->closing) {
		on_run(&t->job);
		on_done(&t->job);
		return;
	}
	if (worker_post(w, &t->job) == 0)
		return;
	t->refused = true;
	on_done(&t->job);
}

/* A task whose thread is stuck has not run: it stays, and keeps the node's memory. */
void tasks_finish(struct node *n)
{
	for (struct task *t = n->tasks; t; t = t->next)
		if (__atomic_load_n(&t->ran, __ATOMIC_ACQUIRE))
			handle(t);
}
