/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool of send: encoded batches as files, oldest first, and the account of
 * what had to be thrown away. Everything here runs on the os worker; only the
 * items themselves pass between it and the loop.
 */
#pragma once

#include "node/send/send.h"

/* One encoded batch. In a file, or in body where there is no spool or it cannot be written. */
struct spool_item {
	uint64_t seq;
	char *path;	 /* NULL: in body */
	struct buf body; /* compressed, but for the direct sink */
	size_t bytes;	 /* of the file or of body */
	bool loss_only;	 /* the account itself: never thrown away for room */
	size_t n_profiles, n_samples; /* 0 for one found at the start */
	struct stored_event *events;  /* strings owned */
	size_t n_events;
	struct spool_item *prev, *next;
};
struct spool_item *send_spool_item_free(struct spool_item *i);	/* memory only, not the file */

struct spool;
/* dir "" or NULL: memory. compress: false for the direct sink. Touches no file yet. */
struct spool *send_spool_new(const char *dir, bool compress);
struct spool *send_spool_free(struct spool *s);
/* Makes the directory, lists what an earlier run left, its account the last (utlist DL, oldest first). On
 * failure the spool is in memory from now on: what could not be looked at stays for the next run. */
int send_spool_scan(struct spool *s, struct spool_item **ret_items);
/* -E2BIG: not encodable. A file that cannot be written leaves the bytes in body. */
int send_spool_put(struct spool *s, const struct batch *b, struct spool_item **ret);
/*
 * The bytes to send. -EBADMSG: not what was written; the file was set aside and counted. -EAGAIN: it is not the file's fault,
 * which is as it was. Other errors are counted, and the file stays for the next run.
 */
int send_spool_get(struct spool *s, const struct spool_item *i, struct buf *ret_body);
void send_spool_remove(struct spool *s, const struct spool_item *i);
/* Throws an item away: its samples go to the account under reason: "spool_full", "hub_refused", "too_large". */
void send_spool_drop(struct spool *s, const struct spool_item *i, const char *reason);
/* One whose bytes are gone: counted, for the account there is nothing to tell. */
void send_spool_count_unreadable(const struct spool_item *i);
/* A batch that never became an item. */
void send_spool_lose(struct spool *s, const struct batch *b, const char *reason);
bool send_spool_has_losses(const struct spool *s);
/* The account as an item to send; it is empty after. *ret NULL when there is none. */
int send_spool_take_losses(struct spool *s, struct spool_item **ret);
