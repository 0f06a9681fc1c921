/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children that each serve one owner only, such as a namespace. Between questions a few of them
 * wait for their owners, so that most questions start no process. After a child was lost, its owner
 * gets none for a while, so that an owner whose bytes kill children costs others little. If the
 * kernel cannot end a lost child, because a pod's file system does not answer, its owner gets none
 * until then, so that an owner leaves few processes behind. The lock is not held while a process is
 * started, asked or ended.
 */
#include "lib/child/child.h"

#include <pthread.h>
#include <stdlib.h>

#define END_AGAIN_NS  NSEC_PER_SEC /* when an owner asks again whether its lost process has ended */
#define FULL_AGAIN_NS (100 * NSEC_PER_MSEC) /* the same, whether there is room for its child */

struct pooled {
	struct pooled *next;
	uint64_t owner;
	struct child *child;
	unsigned n_questions;
	bool taken;
	bool waits;	  /* has a process, and no question */
	uint64_t used_ns; /* CLOCK_MONOTONIC: when it was given back */
	/* CLOCK_MONOTONIC: until then the owner gets no child; 0: it has lost none lately */
	uint64_t paused_until_ns;
	uint64_t pause_ns;
};
struct child_pool {
	pthread_mutex_t lock;
	const struct child_config *config;
	size_t waiting_max;
	unsigned questions_max;
	struct pooled *items;
	size_t n;
};

static uint64_t now_ns(const struct child_pool *pool)
{
	return pool->config->ops ? pool->config->ops->now_ns() : now_mono_ns();
}

struct child_pool *child_pool_new(const struct child_config *c)
{
	struct child_pool *pool = xcalloc(1, sizeof(*pool));

	pthread_mutex_init(&pool->lock, NULL);
	pool->config = c;
	pool->waiting_max = c->waiting_max ? c->waiting_max : CHILD_POOL_WAITING_MAX;
	pool->questions_max = c->questions_max ? c->questions_max : CHILD_POOL_QUESTIONS;
	return pool;
}

static void pooled_free(struct pooled *p)
{
	struct pooled *next;

	for (; p; p = next) {
		next = p->next;
		child_free(p->child);
		free(p);
	}
}

struct child_pool *child_pool_free(struct child_pool *pool)
{
	if (!pool)
		return NULL;
	pooled_free(pool->items);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
	return NULL;
}

/* Whether the last loss is so long ago that the next one is the first again. */
static bool is_calm(const struct pooled *p, uint64_t now)
{
	return now >= p->paused_until_ns + p->pause_ns;
}

static void move(struct child_pool *pool, struct pooled **at, struct pooled **list)
{
	struct pooled *p = *at;

	*at = p->next;
	p->next = *list;
	*list = p;
	pool->n--;
}

/* Whether the entry's child has to answer a question before it makes room for another one. */
static bool has_its_turn(const struct pooled *p, uint64_t now)
{
	return p->waits && child_is_starting(p->child) && now < p->used_ns + CHILD_POOL_STARTING_NS;
}

static bool is_full(const struct child_pool *pool, uint64_t now)
{
	size_t n = 0;

	for (const struct pooled *p = pool->items; p; p = p->next)
		n += has_its_turn(p, now);
	return n >= pool->waiting_max;
}

/*
 * Finds the entry, not taken, that was used least recently. waits: only one that waits, and makes
 * room.
 */
static struct pooled **least_recent(struct child_pool *pool, bool waits)
{
	struct pooled **least = NULL;
	uint64_t now = now_ns(pool);

	for (struct pooled **p = &pool->items; *p; p = &(*p)->next)
		if (!(*p)->taken && (!waits || ((*p)->waits && !has_its_turn(*p, now))) &&
		    child_ended((*p)->child) && (!least || (*p)->used_ns < (*least)->used_ns))
			least = p;
	return least;
}

/* Whether the entry has neither a process that is needed nor a loss to be remembered. */
static bool is_unused(const struct pooled *p, uint64_t now)
{
	bool idle = !p->waits || now >= p->used_ns + CHILD_POOL_IDLE_NS;

	return !p->taken && idle && is_calm(p, now) && child_ended(p->child);
}

/* Moves the entries that are not needed any more to a list, which the caller frees. */
static struct pooled *trim(struct child_pool *pool)
{
	struct pooled *list = NULL, **at;
	uint64_t now = now_ns(pool);
	size_t n_waiting = 0;

	for (at = &pool->items; *at;) {
		if (is_unused(*at, now)) {
			move(pool, at, &list);
			continue;
		}
		n_waiting += (*at)->waits;
		at = &(*at)->next;
	}
	for (; n_waiting > pool->waiting_max && (at = least_recent(pool, true)); n_waiting--)
		move(pool, at, &list);
	while (pool->n > CHILD_POOL_OWNERS_MAX && (at = least_recent(pool, false)))
		move(pool, at, &list);
	return list;
}

/*
 * Finds an entry of the owner that is not taken; NULL: there is none. *ret_until_ns: until then
 * the owner must wait; 0: it need not.
 */
static struct pooled *find(struct child_pool *pool, uint64_t owner, uint64_t *ret_until_ns)
{
	uint64_t now = now_ns(pool), until_ns = 0;
	struct pooled *found = NULL;

	for (struct pooled *p = pool->items; p; p = p->next) {
		if (p->owner != owner)
			continue;
		if (now < p->paused_until_ns)
			until_ns = MAX(until_ns, p->paused_until_ns);
		else if (!p->taken && !child_ended(p->child))
			until_ns = MAX(until_ns, now + END_AGAIN_NS);
		if (!p->taken)
			found = p;
	}
	if (!(found && found->waits) && is_full(pool, now))
		until_ns = MAX(until_ns, now + FULL_AGAIN_NS);
	*ret_until_ns = until_ns;
	return found;
}

uint64_t child_pool_next_ns(struct child_pool *pool, uint64_t owner)
{
	uint64_t until_ns;

	pthread_mutex_lock(&pool->lock);
	find(pool, owner, &until_ns);
	pthread_mutex_unlock(&pool->lock);
	return until_ns;
}

static struct pooled *add(struct child_pool *pool, uint64_t owner)
{
	struct pooled *p = xcalloc(1, sizeof(*p));

	p->owner = owner;
	p->child = child_new(pool->config);
	p->next = pool->items;
	pool->items = p;
	pool->n++;
	return p;
}

int child_pool_take(struct child_pool *pool, uint64_t owner, struct child **ret)
{
	uint64_t until_ns;
	struct pooled *p;
	bool old;

	pthread_mutex_lock(&pool->lock);
	p = find(pool, owner, &until_ns);
	if (!until_ns) {
		if (!p)
			p = add(pool, owner);
		p->taken = true;
		p->waits = false;
		old = ++p->n_questions > pool->questions_max;
		if (old)
			p->n_questions = 1;
	}
	pthread_mutex_unlock(&pool->lock);
	if (until_ns)
		return -ECANCELED;
	if (old)
		child_end(p->child);
	*ret = p->child;
	return 0;
}

static void pause_owner(const struct child_pool *pool, struct pooled *p)
{
	uint64_t now = now_ns(pool);
	bool calm = is_calm(p, now);

	p->pause_ns = calm ? CHILD_POOL_PAUSE_NS : MIN(2 * p->pause_ns, CHILD_POOL_PAUSE_MAX_NS);
	p->paused_until_ns = now + p->pause_ns;
	p->n_questions = 0;
}

void child_pool_rest(struct child_pool *pool)
{
	struct pooled *unused;

	pthread_mutex_lock(&pool->lock);
	unused = trim(pool);
	pthread_mutex_unlock(&pool->lock);
	pooled_free(unused);
}

void child_pool_give(struct child_pool *pool, struct child *c, bool lost)
{
	struct pooled *p, *unused;

	if (lost)
		child_lose(c);
	if (lost && !child_ended(c))
		counter_add(counter(pool->config->stuck, NULL, NULL), 1);
	pthread_mutex_lock(&pool->lock);
	for (p = pool->items; p->child != c; p = p->next)
		;
	p->taken = false;
	p->waits = !lost;
	p->used_ns = now_ns(pool);
	if (lost)
		pause_owner(pool, p);
	child_forget_losses(c); /* the owner's pause is longer than the child's own */
	unused = trim(pool);
	pthread_mutex_unlock(&pool->lock);
	pooled_free(unused);
}
