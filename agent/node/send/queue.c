/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of send: its order, its limits, and the items that it drops if full: the oldest ones of
 * the namespace that has most. So a namespace with less than its share loses nothing. What several
 * namespaces have together counts as one more. Loop thread.
 */
#include "node/send/jobs.h"

#include <uthash.h>
#include <utlist.h>

void send_queue_unlink(struct sender *s, struct spool_item *i)
{
	DL_DELETE(s->items, i);
	s->n_items--;
	*(i->path ? &s->file_bytes : &s->memory_bytes) -= i->bytes;
}

void send_queue_add(struct sender *s, struct spool_item *i)
{
	DL_APPEND(s->items, i);
	s->n_items++;
	*(i->path ? &s->file_bytes : &s->memory_bytes) += i->bytes;
}

static void drop_work(struct send_job *j)
{
	/* an account of losses that the sink refused is not added to the next account */
	if (j->item->loss_only)
		send_spool_remove(j->s->spool, j->item);
	else
		send_spool_drop(j->s->spool, j->item, j->reason, &j->lost);
}

static void drop_then(struct send_job *j)
{
	send_queue_next(j->s); /* an account of losses may have to be sent now */
}

bool send_queue_drop(struct sender *s, struct spool_item *i, const char *reason)
{
	struct send_job *j = send_job_new(s, drop_work, drop_then);

	j->item = i;
	j->reason = reason;
	if (send_job_post(j, i->bytes) < 0) {
		j->item = NULL;
		send_job_free(j);
		return false;
	}
	send_queue_unlink(s, i);
	return true;
}

struct share { /* what a namespace has in files or in memory */
	uint64_t ns;
	size_t bytes;
	struct spool_item *oldest;
	UT_hash_handle hh;
};

static bool may_drop(const struct sender *s, const struct spool_item *i, bool in_files)
{
	return (i->path != NULL) == in_files && i != s->sending && !i->loss_only;
}

static void count(struct share **shares, struct spool_item *i)
{
	struct share *x;

	HASH_FIND(hh, *shares, &i->ns, sizeof(i->ns), x);
	if (!x) {
		x = xcalloc(1, sizeof(*x));
		x->ns = i->ns;
		x->oldest = i; /* the list begins with the oldest */
		HASH_ADD(hh, *shares, ns, sizeof(x->ns), x);
	}
	x->bytes += i->bytes;
}

/* Returns the oldest item of the namespace that has most. NULL: nothing may be dropped. */
static struct spool_item *victim_of(const struct sender *s, bool in_files)
{
	struct share *shares = NULL, *x, *next;
	struct spool_item *i, *victim = NULL;
	size_t most = 0;

	DL_FOREACH (s->items, i) {
		if (may_drop(s, i, in_files))
			count(&shares, i);
	}
	HASH_ITER (hh, shares, x, next) {
		if (!victim || x->bytes > most) {
			most = x->bytes;
			victim = x->oldest;
		}
		HASH_DEL(shares, x);
		free(x);
	}
	return victim;
}

static bool is_full(const struct sender *s, bool in_files)
{
	if (in_files)
		return s->file_bytes > s->max_bytes || s->n_items > SPOOL_ITEMS_MAX;
	return s->memory_bytes > MIN(s->max_bytes, (size_t)SEND_MEMORY_MAX_BYTES);
}

void send_queue_make_room(struct sender *s)
{
	for (int in_files = 0; in_files < 2; in_files++)
		while (is_full(s, in_files)) {
			struct spool_item *i = victim_of(s, in_files);

			if (!i || !send_queue_drop(s, i, "spool_full"))
				break;
		}
}
