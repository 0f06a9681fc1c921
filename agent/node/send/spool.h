/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool of send. It has encoded batches as files, and the account of losses, which is a batch
 * that reports dropped samples. Everything here runs on the worker send_config.disk. The loop
 * thread gets the items from this worker and passes them back.
 */
#pragma once

#include "node/send/send.h"

#define SPOOL_ITEMS_MAX	 65536 /* items of a queue; files of an earlier run that are taken over */
#define SPOOL_SEVERAL_NS 0
/*
 * An encoded batch. Its bytes are in a file, or in body if there is no directory or the file cannot
 * be written.
 */
struct spool_item {
	uint64_t seq;
	uint64_t ns;	 /* hash of the namespace; SPOOL_SEVERAL_NS: of several */
	char *path;	 /* path of the file; NULL: the bytes are in body */
	struct buf body; /* compressed, except for the direct sink */
	size_t bytes;	 /* bytes of the file or of body */
	bool loss_only;	 /* an account of losses, which is never dropped to make room */
	size_t n_profiles, n_samples; /* 0 for an item of an earlier run */
	struct stored_event *events;  /* owned, with its strings */
	size_t n_events;
	struct spool_item *prev, *next;
};
/* frees the memory only, not the file */
struct spool_item *send_spool_item_free(struct spool_item *i);

struct spool;
/*
 * dir "" or NULL: the spool is in memory only. compress: false for the direct sink. This call uses
 * no file.
 */
struct spool *send_spool_new(const char *dir, bool compress);
struct spool *send_spool_free(struct spool *s);
/*
 * Makes the directory and lists the items that an earlier run left: a utlist DL, the oldest first,
 * the account of losses last. If this fails, the spool is in memory only from now on, and the files
 * stay for the next run.
 */
int send_spool_scan(struct spool *s, struct spool_item **ret_items);
/*
 * Makes an item of a batch. ns: as in struct spool_item. -E2BIG: the batch cannot be encoded. If
 * the file cannot be written, the bytes stay in body.
 */
int send_spool_put(struct spool *s, const struct batch *b, uint64_t ns, struct spool_item **ret);
/*
 * Reads the bytes to send. -EBADMSG: the file is damaged; it was renamed or deleted, and counted.
 * -EAGAIN: no memory or no descriptor was free; the file is unchanged. Other errors are counted,
 * and the file stays for the next run.
 */
int send_spool_get(struct spool *s, const struct spool_item *i, struct buf *ret_body);
void send_spool_remove(struct spool *s, const struct spool_item *i);
/* What was dropped. The counters of /metrics have the same numbers. */
struct send_lost {
	uint64_t n_profiles, n_samples;
	struct losses losses; /* the lost samples that no account contains; the caller frees it */
};
/*
 * Drops an item and adds its samples to the account. reason: "spool_full", "hub_refused" or
 * "too_large". This function and the next two add to *lost.
 */
void send_spool_drop(struct spool *s, const struct spool_item *i, const char *reason,
		     struct send_lost *lost);
/*
 * Counts an item whose bytes cannot be read. Nothing can be added to the account, because only the
 * bytes show to whom the samples belong.
 */
void send_spool_count_unreadable(const struct spool_item *i, struct send_lost *lost);
/* Adds a batch that did not become an item to the account. */
void send_spool_lose(struct spool *s, const struct batch *b, const char *reason,
		     struct send_lost *lost);
bool send_spool_has_losses(const struct spool *s);
/*
 * Makes an item of the account, to be sent, and begins an empty account. *ret NULL: there was no
 * account.
 */
int send_spool_take_losses(struct spool *s, struct spool_item **ret);
