/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of send: its order, its limits, and the items that it drops if full. Loop thread. */
#include "node/send/jobs.h"

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

void send_queue_make_room(struct sender *s)
{
	struct spool_item *i, *next;

	DL_FOREACH_SAFE(s->items, i, next)
	{
		bool full = i->path ? s->file_bytes > s->max_bytes
				    : s->memory_bytes >
					      MIN(s->max_bytes, (size_t)SEND_MEMORY_MAX_BYTES);

		if (full && i != s->sending && !i->loss_only &&
		    !send_queue_drop(s, i, "spool_full"))
			return;
	}
}
