/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: what the os worker does for a sender, whose files it owns. A sender that is freed lives until its last job is
 * done.
 */
#pragma once

#include "node/send/sink.h"
#include "node/send/spool.h"

struct sender {
	struct loop *loop;
	struct worker *os;
	size_t max_bytes;
	const struct sink_type *type;
	struct sink *sink;
	struct spool *spool; /* os worker's, but for making and freeing */

	struct spool_item *items; /* oldest first */
	struct spool_item *sending;
	size_t n_items, file_bytes, memory_bytes;
	struct buf body; /* of sending */
	struct timer retry;
	bool waiting; /* retry is armed */
	unsigned n_tries;
	bool has_losses; /* the account is to be sent once the sink works */

	unsigned n_jobs; /* posted and not done: they hold the sender */
	bool closed, ready;
	struct sender_stats stats;
	char last_error[512];
	void (*on_stored)(const struct stored_event *e, size_t n, void *arg);
	void *stored_arg;
};

/* What the os worker does for a sender. */
struct send_job {
	struct job job; /* first */
	struct sender *s;
	void (*work)(struct send_job *j); /* os worker */
	void (*then)(struct send_job *j); /* loop, unless the sender is closed */
	struct batch *batch;		  /* owned */
	struct spool_item *item;	  /* owned unless borrowed */
	struct spool_item *borrowed;	  /* the one being sent */
	struct spool_item *found;	  /* a list, owned */
	size_t n_delivered;		  /* so many of its first ones are stored */
	struct sender_stats lost;	  /* what never became an item */
	const char *reason;
	struct buf body;
	bool has_losses;
	int r;
};

/* work: on the os worker; then: back on the loop, may be NULL. */
struct send_job *send_job_new(struct sender *s, void (*work)(struct send_job *),
			      void (*then)(struct send_job *));
/* -ENOBUFS: the mailbox is full, the caller still has the job. */
int send_job_post(struct send_job *j, size_t n_bytes);
void send_job_free(struct send_job *j);
/* Only while no job is under way. */
void send_destroy(struct sender *s);
