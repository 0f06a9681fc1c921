/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to send: the sender, and its jobs on the worker send_config.disk, because only that
 * worker uses the files of the spool. After send_free() a sender stays in memory until its last job
 * is done. An account of losses is a batch that reports dropped samples (spool.h). Everything runs
 * on the loop thread, except send_job.work.
 */
#pragma once

#include "node/send/sink.h"
#include "node/send/spool.h"

struct sender {
	struct loop *loop;
	struct worker *disk;
	size_t max_bytes;
	const struct sink_type *type;
	struct sink *sink;
	struct spool *spool; /* only the worker uses it; the loop thread makes and frees it */

	struct spool_item *items; /* oldest first */
	struct spool_item *sending;
	size_t n_items, file_bytes, memory_bytes;
	struct buf body; /* the bytes of `sending` */
	struct timer retry;
	bool waiting; /* the timer retry is set */
	unsigned n_tries;
	/* the spool has an account of losses, which must be sent when the sink accepts batches */
	bool has_losses;

	/*
	 * number of jobs that are posted and not done; until it is 0, the sender must not be freed
	 */
	unsigned n_jobs;
	bool closed, ready;
	struct sender_stats stats;
	struct losses losses; /* for send_take_losses() */
	char last_error[512], clock_ahead[200];
	void (*on_stored)(const struct stored_event *e, size_t n, void *arg);
	void *stored_arg;
};

struct send_job {
	struct job job; /* must be the first member */
	struct sender *s;
	void (*work)(struct send_job *j); /* runs on the worker */
	void (*then)(struct send_job *j); /* runs on the loop thread, unless the sender is closed */
	struct batch *batch;		  /* owned */
	bool apart;			  /* each namespace of the batch becomes an item */
	/* owned: an item to remove or drop, or the account to send */
	struct spool_item *item;
	struct spool_item *borrowed;	  /* the item that is being sent */
	struct spool_item *found;	  /* a list of items; owned */
	/* how many items at the head of found are stored already */
	size_t n_delivered;
	struct send_lost lost; /* set by work; job_done adds it to the losses of the sender */
	const char *reason;
	struct buf body;
	bool has_losses;
	int r;
};

/*
 * Makes a job. `work` runs on the worker. After that, `then` runs on the loop thread; it may be
 * NULL.
 */
struct send_job *send_job_new(struct sender *s, void (*work)(struct send_job *),
			      void (*then)(struct send_job *));
/*
 * Gives the job to the worker. n_bytes counts towards the limit of the worker's mailbox. -ENOBUFS:
 * the mailbox is full, and the caller still owns the job.
 */
int send_job_post(struct send_job *j, size_t n_bytes);
void send_job_free(struct send_job *j);
/* Adds lost to the sender's stats and losses. */
void send_count_lost(struct sender *s, struct send_lost *lost);
/* ---- queue.c ---- */
#define SEND_MEMORY_MAX_BYTES (8u << 20) /* limit of the bytes of items that have no file */
/* adds i at the end; owns i from now on */
void send_queue_add(struct sender *s, struct spool_item *i);
void send_queue_unlink(struct sender *s, struct spool_item *i);
/*
 * Removes the item from the queue and has the worker drop it. Returns false if the mailbox is full;
 * the item then stays.
 */
bool send_queue_drop(struct sender *s, struct spool_item *i, const char *reason);
/*
 * Drops items if there is not enough room: the oldest ones of the namespace that has most. Never
 * drops the item that is being sent or an account of losses.
 */
void send_queue_make_room(struct sender *s);

/* send.c: sends the next item, unless one is being sent or the sender waits to try again. */
void send_queue_next(struct sender *s);
/* To be called only while the worker has no job of this sender. */
void send_destroy(struct sender *s);
