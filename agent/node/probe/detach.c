/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detach: closes links of uprobes. Each close waits for RCU, and closes of several threads can wait
 * for the same RCU period. So several threads close the links of all processes that are detached.
 */
#include "node/probe/sets.h"

#include <limits.h>
#include <unistd.h>

#define CLOSERS	    32
#define STACK_BYTES (PTHREAD_STACK_MIN + 16384)

struct closing {
	struct uprobes *uprobes;
	int *fds;
	size_t n, cap, next;
};

static void *close_links(void *arg)
{
	struct closing *c = arg;
	size_t i;

	while ((i = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->n) {
		close(c->fds[i]);
		probes_moved(c->uprobes);
	}
	return NULL;
}

static void close_together(struct closing *c)
{
	pthread_t threads[CLOSERS];
	size_t n = 0;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	while (n + 1 < c->n && n < CLOSERS && !pthread_create(&threads[n], &attr, close_links, c))
		n++;
	pthread_attr_destroy(&attr);
	close_links(c);
	while (n)
		pthread_join(threads[--n], NULL);
}

static void take_going(struct attached *a, struct closing *c)
{
	size_t kept = 0;

	for (size_t i = 0; i < a->n_links; i++) {
		struct attached_link *l = &a->links[i];

		if (!l->goes) {
			a->links[kept++] = *l;
			continue;
		}
		GROW(c->fds, c->n, c->cap);
		c->fds[c->n++] = l->fd;
		free(l->offsets);
		free(l->cookies);
	}
	a->n_links = kept;
}

void probes_links_close_going(struct attached **items, size_t n)
{
	struct closing c = {.uprobes = n ? items[0]->set->uprobes : NULL};

	for (size_t i = 0; i < n; i++)
		take_going(items[i], &c);
	close_together(&c);
	free(c.fds);
}

static void mark_from(struct attached *a, size_t from)
{
	for (size_t i = 0; i < a->n_links; i++)
		a->links[i].goes = i >= from;
}

void probes_links_close_from(struct attached *a, size_t from)
{
	mark_from(a, from);
	probes_links_close_going(&a, 1);
}

/*
 * If the process has ended, forgets what the set knows of it while it is still in the table: only
 * there the set sees that it has ended.
 */
static void forget_ended(const struct attached *a)
{
	bool ended;

	pthread_mutex_lock(&a->set->lock);
	ended = a->ended;
	pthread_mutex_unlock(&a->set->lock);
	if (ended && a->set->ops->forget)
		a->set->ops->forget(a->set);
}

/*
 * Removes the process of `a` from the table of attached processes. From now on hits of its probes
 * do not count, and no thread waits until its links are closed, however long that takes.
 */
static void forget(struct attached *a)
{
	struct probe_set_state *s = a->set;

	if (a->leaving)
		__atomic_fetch_sub(&s->uprobes->n_leaving, 1, __ATOMIC_RELAXED);
	forget_ended(a);
	pthread_mutex_lock(&s->lock);
	HASH_DEL(s->attached, a);
	s->n_links -= a->n_links;
	bpf_map_delete_elem(s->procs, &a->key);
	pthread_mutex_unlock(&s->lock);
	mark_from(a, 0);
}

/* Forgets what the set knows of processes that are not attached. */
static void forget_detached(struct probe_set_state *s)
{
	if (s->ops->forget)
		s->ops->forget(s);
	else
		probes_live_forget(s);
}

void probes_detach_all(struct probes *p, struct attached **items, size_t n)
{
	bool forgets[_PROBES_SET_MAX] = {0};

	for (size_t i = 0; i < n; i++)
		forget(items[i]);
	probes_links_close_going(items, n);
	for (size_t i = 0; i < n; i++) {
		struct attached *a = items[i];

		forgets[a->set - p->uprobes->sets] |=
			a->inuse || a->set->ops->ends_read || !a->set->object.live;
		if (a->thread_fd >= 0)
			close(a->thread_fd);
		free(a->links);
		free(a);
	}
	for (enum probe_set i = 0; i < _PROBES_SET_MAX; i++)
		if (forgets[i])
			forget_detached(&p->uprobes->sets[i]);
}

struct attached *probes_detach(struct probes *p, struct attached *a)
{
	if (a)
		probes_detach_all(p, &a, 1);
	return NULL;
}
