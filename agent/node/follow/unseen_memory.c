/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether the probes of allocators miss memory. Now and then the os worker reads how much
 * memory each process uses whose allocators are probed all the time, and the loop thread compares
 * that with what the probes saw. Go and Java are left out: they have heaps of their own, which
 * other reasons report.
 */
#include "node/follow/internal.h"

#include "node/alloc/alloc.h"

#include <stdlib.h>

#define LOOK_NS	      (10 * NSEC_PER_SEC)
#define READ_LIMIT_NS (10 * NSEC_PER_SEC)

struct memory_item {
	struct process_id id;
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

/* The sampleBytes of the event whose bytes probes_attached_bytes() returns. */
static uint64_t sample_bytes(const struct tracked *t)
{
	uint64_t until_ns, bytes = 0;
	struct owner *o =
		proc_containers_owner(t->follow->config.containers, t->cgroup_id, &until_ns);

	if (o)
		bytes = t->probed[PROBES_MEMORY].attached_mask & 1u << EVENT_MEM_ALLOC
				? o->settings.alloc_sample_bytes
				: o->settings.inuse_sample_bytes;
	proc_owner_unref(o);
	return bytes;
}

static void take(struct tracked *t, const struct memory_item *i)
{
	struct compared *c = &t->compared;
	uint64_t bytes = t->follow->calls->probes->attached_bytes(t->probed[PROBES_MEMORY].attached);

	if (!learn_unseen(&c->unseen, &i->memory, bytes, sample_bytes(t)))
		return;
	free(c->text);
	c->text = learn_unseen_text(&c->unseen);
	counter_add(counter("podflame_memory_unseen_total", NULL, NULL), 1);
}

static void read_done(struct task *task)
{
	struct memory_reading *r = (struct memory_reading *)task;

	r->follow->reading_memory = false;
	for (size_t i = 0; i < r->n && !task->refused; i++) {
		struct tracked *t = follow_find(r->follow, r->items[i].id);

		if (t && t->probed[PROBES_MEMORY].attached && r->items[i].result == 0)
			take(t, &r->items[i]);
	}
	free(r->items);
}

static bool is_due(const struct tracked *t, bool all)
{
	const struct probed *x = &t->probed[PROBES_MEMORY];

	return x->attached && x->sites && !x->sites->own_heap && (all || !t->compared.unseen.begun);
}

void follow_unseen_tick(struct follow *f)
{
	bool all = now_mono_ns() >= f->unseen_ns;
	struct memory_reading *r;
	struct tracked *t, *next;

	if (f->reading_memory || !f->n_attached)
		return;
	r = xcalloc(1, sizeof(*r));
	HASH_ITER (hh, f->tracked, t, next) {
		if (!is_due(t, all))
			continue;
		GROW(r->items, r->n, r->cap);
		r->items[r->n++] = (struct memory_item){.id = t->id};
	}
	if (all)
		f->unseen_ns = now_mono_ns() + LOOK_NS;
	if (!r->n) {
		free(r);
		return;
	}
	r->follow = f;
	r->calls = f->calls;
	r->task.run = read_run;
	r->task.done = read_done;
	r->task.job.deadline_ns = READ_LIMIT_NS;
	f->reading_memory = true;
	work_post(f->config.work, f->config.work->os, &r->task, r->n * sizeof(*r->items));
}

void follow_unseen_begin_anew(struct tracked *t)
{
	learn_unseen_begin_anew(&t->compared.unseen);
}

void follow_unseen_forget(struct tracked *t)
{
	free(t->compared.text);
	t->compared = (struct compared){0};
}
