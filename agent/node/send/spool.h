/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool of send: encoded batches as files, and the account of losses: a batch that says which
 * samples were dropped. Everything here runs on the os worker; the items pass between it and the
 * loop.
 */
#pragma once

#include "node/send/send.h"

/*
 * One encoded batch: in a file; or in body, if there is no directory or the file cannot be written.
 */
struct spool_item {
	uint64_t seq;
	char *path;	 /* NULL: in body */
	struct buf body; /* compressed, but for the direct sink */
	size_t bytes;	 /* of the file or of body */
	bool loss_only;	 /* an account of losses: never dropped to make room */
	size_t n_profiles, n_samples; /* 0 for an item that was found at the start */
	struct stored_event *events;  /* strings owned */
	size_t n_events;
	struct spool_item *prev, *next;
};
struct spool_item *send_spool_item_free(struct spool_item *i);	/* memory only, not the file */

struct spool;
/* dir "" or NULL: memory only. compress: false for the direct sink. Touches no file yet. */
struct spool *send_spool_new(const char *dir, bool compress);
struct spool *send_spool_free(struct spool *s);
/*
 * Makes the directory and lists what an earlier run left: a utlist DL, oldest first, its account
 * last. On failure the spool is in memory from now on, and the files stay for the next run.
 */
int send_spool_scan(struct spool *s, struct spool_item **ret_items);
/* -E2BIG: the batch cannot be encoded. If the file cannot be written, the bytes stay in body. */
int send_spool_put(struct spool *s, const struct batch *b, struct spool_item **ret);
/*
 * The bytes to send. -EBADMSG: the file has other bytes than were written; this function has set it
 * aside and counted it. -EAGAIN: there was no memory or descriptor; the file is as it was. Other
 * errors are counted, and the file stays for the next run.
 */
int send_spool_get(struct spool *s, const struct spool_item *i, struct buf *ret_body);
void send_spool_remove(struct spool *s, const struct spool_item *i);
/* What is dropped; the counters of /metrics have the same numbers. */
struct send_lost {
	uint64_t n_profiles, n_samples;
	struct losses losses; /* of these, the samples that are in no account; the caller's */
};
/*
 * Drops an item. Its samples go into the account, with a reason: "spool_full", "hub_refused",
 * "too_large". This function and the next two add to *lost.
 */
void send_spool_drop(struct spool *s, const struct spool_item *i, const char *reason,
		     struct send_lost *lost);
/* Counts an item whose bytes are gone: nothing is known that could go into the account. */
void send_spool_count_unreadable(const struct spool_item *i, struct send_lost *lost);
/* Adds a batch that did not become an item to the account. */
void send_spool_lose(struct spool *s, const struct batch *b, const char *reason,
		     struct send_lost *lost);
bool send_spool_has_losses(const struct spool *s);
/*
 * Makes the account into an item to send, and begins an empty one. *ret NULL: there is no account.
 */
int send_spool_take_losses(struct spool *s, struct spool_item **ret);
