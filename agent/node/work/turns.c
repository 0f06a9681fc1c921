/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has namespaces take turns at the files worker, so that one with very many processes does not make
 * the names of others late. Tasks wait here, in a queue for each namespace. The worker gets few of
 * them at a time, always of the namespace that has used the least of its time. A namespace that
 * comes back gets no credit for the time in which it wanted nothing. When no task is left, all this
 * is forgotten. Loop thread.
 */
#include "node/work/internal.h"

#include <stdlib.h>
#include <uthash.h>

/* The worker has one task that it runs, and the next one, so that it need not wait for the loop. */
#define POSTED_TURNS 2

struct turn_ns {
	uint64_t ns; /* the key: process_task.ns */
	uint64_t spent_ns;
	struct process_task *first, **last;
	size_t bytes; /* of its tasks that wait */
	UT_hash_handle hh;
};

/* ---- namespaces ---- */

/*
 * Forgets the time that namespaces without a task have used, once the others have used as much, or
 * when no task is left.
 */
static void forget_idle(struct turns *t)
{
	bool over = !t->n_waiting && !t->n_posted;
	struct turn_ns *n, *next;

	HASH_ITER (hh, t->namespaces, n, next) {
		if (n->first || (!over && n->spent_ns > t->now_ns))
			continue;
		HASH_DEL(t->namespaces, n);
		free(n);
	}
}

static struct turn_ns *get(struct turns *t, uint64_t ns)
{
	struct turn_ns *n;

	HASH_FIND(hh, t->namespaces, &ns, sizeof(ns), n);
	if (n)
		return n;
	n = xcalloc(1, sizeof(*n));
	n->ns = ns;
	n->spent_ns = t->now_ns;
	n->last = &n->first;
	HASH_ADD(hh, t->namespaces, ns, sizeof(n->ns), n);
	return n;
}

/* ---- queues ---- */

static void push(struct turns *t, struct turn_ns *n, struct process_task *p)
{
	if (!n->first) {
		t->n_waiting++;
		n->spent_ns = MAX(n->spent_ns, t->now_ns);
	}
	p->next_turn = NULL;
	*n->last = p;
	n->last = &p->next_turn;
	n->bytes += p->turn_bytes;
	t->bytes += p->turn_bytes;
}

static struct process_task *pop(struct turns *t, struct turn_ns *n)
{
	struct process_task *p = n->first;

	n->first = p->next_turn;
	if (!n->first) {
		n->last = &n->first;
		t->n_waiting--;
	}
	n->bytes -= p->turn_bytes;
	t->bytes -= p->turn_bytes;
	t->now_ns = MAX(t->now_ns, n->spent_ns);
	return p;
}

/* The namespace, among those with a task, that has used the least time. NULL: no task waits. */
static struct turn_ns *next_ns(const struct turns *t)
{
	struct turn_ns *least = NULL;

	for (struct turn_ns *n = t->namespaces; n; n = n->hh.next)
		if (n->first && (!least || n->spent_ns < least->spent_ns))
			least = n;
	return least;
}

/* Posts tasks to the worker. all: not only as many as it needs. */
static void post(struct work *w, bool all)
{
	struct turns *t = &w->turns;
	struct turn_ns *n;

	if (t->posting)
		return; /* a task that the worker refused ends in the loop below */
	t->posting = true;
	while ((all || t->n_posted < POSTED_TURNS) && (n = next_ns(t))) {
		struct process_task *p = pop(t, n);

		p->has_turn = true;
		t->n_posted++;
		work_post(w, w->files, &p->task, p->turn_bytes);
	}
	t->posting = false;
}

void work_turns_add(struct work *w, struct process_task *p, size_t n_bytes)
{
	struct turns *t = &w->turns;
	struct turn_ns *n = get(t, p->ns);

	p->turn_bytes = sizeof(*p) + n_bytes;
	if (n->bytes + p->turn_bytes > (FILES_MAILBOX - (t->bytes - n->bytes)) / 2) {
		work_refuse(w, &p->task);
		return;
	}
	push(t, n, p);
	post(w, false);
}

void work_turns_ended(struct work *w, struct process_task *p, uint64_t ns)
{
	struct turns *t = &w->turns;

	if (!p->has_turn)
		return;
	p->has_turn = false;
	t->n_posted--;
	get(t, p->ns)->spent_ns += ns + 1;
	forget_idle(t);
	if (!w->closing)
		post(w, false);
}

void work_turns_post_all(struct work *w)
{
	post(w, true);
}
