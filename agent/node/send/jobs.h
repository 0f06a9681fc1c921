/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to send: the sender, and the jobs that the os worker does for it, since only that worker
 * touches files. After send_free() a sender lives until its last job is done. Loop thread, but for
 * send_job.work.
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
	struct spool *spool; /* only the os worker uses it; the loop makes and frees it */

	struct spool_item *items; /* oldest first */
	struct spool_item *sending;
	size_t n_items, file_bytes, memory_bytes;
	struct buf body; /* of sending */
	struct timer retry;
	bool waiting; /* retry is armed */
	unsigned n_tries;
	bool has_losses; /* the spool has an account of losses; it is sent once the sink works */

	unsigned n_jobs; /* posted and not done: the sender must not be freed before */
	bool closed, ready;
	struct sender_stats stats;
	struct losses losses; /* for send_take_losses() */
	char last_error[512];
	void (*on_stored)(const struct stored_event *e, size_t n, void *arg);
	void *stored_arg;
};

struct send_job {
	struct job job; /* first */
	struct sender *s;
	void (*work)(struct send_job *j); /* os worker */
	void (*then)(struct send_job *j); /* loop, unless the sender is closed */
	struct batch *batch;		  /* owned */
	struct spool_item *item;	  /* owned unless borrowed */
	struct spool_item *borrowed;	  /* the one being sent */
	struct spool_item *found;	  /* a list, owned */
	size_t n_delivered;		  /* how many of its first items are stored already */
	struct send_lost lost;		  /* by work; job_done adds it to the sender's */
	const char *reason;
	struct buf body;
	bool has_losses;
	int r;
};

/* work runs on the os worker. then runs on the loop afterwards; it may be NULL. */
struct send_job *send_job_new(struct sender *s, void (*work)(struct send_job *),
			      void (*then)(struct send_job *));
/*
 * n_bytes: what the job takes of the mailbox. -ENOBUFS: that is full; the caller still owns the
 * job.
 */
int send_job_post(struct send_job *j, size_t n_bytes);
void send_job_free(struct send_job *j);
/* Adds to the sender's stats and losses. */
void send_count_lost(struct sender *s, struct send_lost *lost);
/* Only while the worker has no job of this sender. */
void send_destroy(struct sender *s);
