/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: sends batches to a sink: the hub (otlp), a function of this process (direct), or none
 * (null). A spool on disk keeps them while the hub is away; only what does not fit there is lost.
 * Loop thread; the os worker reads and writes the files.
 */
#pragma once

#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

/* Of the mailbox of .os. A window may be larger than its limit by its last stack. */
#define SEND_MAILBOX_BYTES (2 * BATCH_MAX_BYTES)
struct send_config {
	const char *url; /* "https://podflame-hub.podflame-system.svc:4318"; "": the null sink */
	const char *ca_file, *token_file; /* read again before each try */
	const char *spool_dir;		/* "": memory only, 8 MiB */
	/* Over it the oldest batches are dropped, counted as losses and reported to the hub. */
	size_t spool_max_bytes;
	const char *user_agent;
	struct worker *os;
	/*
	 * podflame local: this function takes each batch instead of HTTP. It returns 0 when it is
	 * stored.
	 */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
struct sender;
/* *reterr: the field that is wrong. */
int send_new(struct loop *l, const struct send_config *c, struct sender **ret,
	     struct field_error *reterr);
struct sender *send_free(struct sender *s);
/*
 * Takes over b. Encodes, compresses, spools and sends it, and tries again, with backoff and jitter,
 * until the sink has stored it.
 */
int send_send(struct sender *s, struct batch *b);
struct sender_stats {
	uint64_t n_sent, n_failed, n_dropped_profiles, n_dropped_samples, spool_bytes, n_spooled;
	const char *last_error;		/* "" when the last try worked */
};
void send_stats(const struct sender *s, struct sender_stats *ret);
/* Moves the samples that were lost and are in no account of losses that goes to the sink. */
void send_take_losses(struct sender *s, struct losses *into);
/* One container's event in a batch that the sink has stored. */
struct stored_event {
	const char *pod_uid, *container_id;
	enum event event;
	uint64_t n_samples;
};
/* fn is called on the loop each time that the sink has stored a batch. */
void send_on_stored(struct sender *s, void (*fn)(const struct stored_event *e, size_t n, void *arg),
		    void *arg);
