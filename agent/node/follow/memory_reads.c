/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads how much memory of each kind the processes use, on the os worker, one job at a time.
 * unseen_memory.c needs it every 10 s for each process, lacking.c every second or more often. Loop
 * thread, except for the jobs on the worker.
 */
#include "node/follow/internal.h"

#include <stdlib.h>

#define COMPARE_NS    (10 * NSEC_PER_SEC)
#define READ_LIMIT_NS (10 * NSEC_PER_SEC) /* if a round of reads takes longer, /healthz fails */

struct memory_item {
	struct process_id id;
	bool compare; /* read for unseen_memory.c */
	struct proc_memory memory;
	int result;
};
struct memory_reading {
	struct task task;
	struct follow *follow;		  /* for the loop thread */
	const struct follow_calls *calls; /* for the os worker, which may outlive follow */
	struct memory_item *items;
	size_t n, cap;
};

static void read_run(struct task *task)
{
	struct memory_reading *r = (struct memory_reading *)task;

	for (size_t i = 0; i < r->n; i++)
		r->items[i].result = r->calls->read_memory(r->items[i].id, &r->items[i].memory);
}

static void read_done(struct task *task)
{
	struct memory_reading *r = (struct memory_reading *)task;

	r->follow->reading_memory = false;
	for (size_t i = 0; i < r->n && !task->refused; i++) {
		const struct memory_item *item = &r->items[i];
		struct tracked *t = follow_find(r->follow, item->id);

		if (!t || item->result)
			continue;
		if (item->compare)
			follow_unseen_compare(t, &item->memory);
		follow_lacking_read(t, &item->memory);
	}
	free(r->items);
}

static void add(struct memory_reading *r, const struct tracked *t, bool compare)
{
	GROW(r->items, r->n, r->cap);
	r->items[r->n++] = (struct memory_item){.id = t->id, .compare = compare};
}

/* Takes ownership of r. */
static void post(struct memory_reading *r)
{
	struct follow *f = r->follow;

	if (!r->n) {
		free(r);
		return;
	}
	r->calls = f->calls;
	r->task.run = read_run;
	r->task.done = read_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	f->reading_memory = true;
	work_post(f->config.work, f->config.work->os, &r->task, r->n * sizeof(*r->items));
}

static struct memory_reading *reading_new(struct follow *f)
{
	struct memory_reading *r = xcalloc(1, sizeof(*r));

	r->follow = f;
	return r;
}

void follow_memory_tick(struct follow *f)
{
	bool all = now_mono_ns() >= f->compare_ns;
	struct memory_reading *r;
	struct tracked *t, *next;

	if (f->reading_memory)
		return;
	r = reading_new(f);
	HASH_ITER (hh, f->tracked, t, next) {
		bool compare = follow_unseen_is_due(t, all);

		if (compare || follow_lacking_since_ns(t))
			add(r, t, compare);
	}
	if (all)
		f->compare_ns = now_mono_ns() + COMPARE_NS;
	post(r);
}

void follow_memory_read_young(struct follow *f, uint64_t since_ns)
{
	struct memory_reading *r;
	struct tracked *t, *next;

	if (f->reading_memory)
		return;
	r = reading_new(f);
	HASH_ITER (hh, f->tracked, t, next)
		if (follow_lacking_since_ns(t) > since_ns)
			add(r, t, false);
	post(r);
}
