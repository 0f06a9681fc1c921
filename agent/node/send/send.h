/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: sends batches to a sink: the hub (otlp), a function of this process (direct), or nothing
 * (null). While the hub cannot be reached, a spool on disk keeps the batches, those of each
 * namespace apart. If the spool is full, the oldest ones of the namespace that has most there are
 * lost, and another batch, the account of losses, reports that to the sink. Everything runs on the
 * loop thread, but the worker `disk` reads and writes the files.
 */
#pragma once

#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

/*
 * Limit for the mailbox of send_config.disk. A window may be larger than BATCH_MAX_BYTES by its
 * last stack.
 */
#define SEND_MAILBOX_BYTES (2 * BATCH_MAX_BYTES)
struct send_config {
	const char *url; /* "https://podflame-hub.podflame-system.svc:4318"; "": the null sink */
	const char *ca_file, *token_file; /* files that are read again before each try */
	const char *spool_dir;		/* "": memory only, 8 MiB */
	/*
	 * If the spool has more bytes, batches are dropped, counted as losses and reported to the
	 * hub.
	 */
	size_t spool_max_bytes;
	const char *user_agent;
	struct worker *disk;
	/*
	 * podflame local: this function gets each batch, instead of an HTTP request. It returns 0
	 * if the batch is stored.
	 */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
struct sender;
/* *reterr: the wrong field of the configuration. */
int send_new(struct loop *l, const struct send_config *c, struct sender **ret,
	     struct field_error *reterr);
struct sender *send_free(struct sender *s);
/*
 * Takes ownership of b. Encodes, compresses, spools and sends it. If sending fails, tries again,
 * with a growing and random delay, until the sink has stored it.
 */
int send_send(struct sender *s, struct batch *b);
struct sender_stats {
	uint64_t n_sent, n_failed, n_dropped_profiles, n_dropped_samples, spool_bytes, n_spooled;
	const char *last_error;		/* "" if the last try succeeded */
	/* what the hub says of this node's clock if it refuses batches for it; "": it takes them */
	const char *clock_ahead;
};
void send_stats(const struct sender *s, struct sender_stats *ret);
/*
 * Moves the lost samples that no account of losses contains to *into. The caller must report them,
 * because no account tells the sink about them.
 */
void send_take_losses(struct sender *s, struct losses *into);
/* An event of a container, in a batch that the sink has stored. */
struct stored_event {
	const char *pod_uid, *container_id;
	enum event event;
	uint64_t n_samples;
};
/* Sets fn, which is called on the loop thread each time the sink has stored a batch. */
void send_on_stored(struct sender *s, void (*fn)(const struct stored_event *e, size_t n, void *arg),
		    void *arg);
