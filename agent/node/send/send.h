/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send: the node's sinks (null, otlp) behind one table, with a spool on disk so
 * that a hub that is away costs nothing that fits. Loop thread; files by the os worker.
 */
#pragma once

#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

#define SEND_MAILBOX_BYTES (2 * BATCH_MAX_BYTES) /* of .os: a window, whose last stack may take it beyond its limit, and more */
struct send_config {
	const char *url;		/* "https://podflame-hub.podflame-system.svc:4318"; "" is the null sink */
	const char *ca_file, *token_file;	/* re-read when they change */
	const char *spool_dir;		/* "": memory only, 8 MiB */
	size_t spool_max_bytes;		/* oldest go first, counted as loss and told to the hub */
	const char *user_agent;
	struct worker *os;
	/* In-process hand-over instead of HTTP (podflame local): returns 0 when stored. */
	int (*direct)(const void *body, size_t n, void *arg);
	void *direct_arg;
};
struct sender;
int send_new(struct loop *l, const struct send_config *c, struct sender **ret, struct field_error *reterr);
struct sender *send_free(struct sender *s);
/* Takes b. Encodes, compresses, spools, sends; retries with backoff and jitter until stored. */
int send_send(struct sender *s, struct batch *b);
struct sender_stats {
	uint64_t n_sent, n_failed, n_dropped_profiles, n_dropped_samples, spool_bytes, n_spooled;
	const char *last_error;		/* "" when the last try worked */
};
void send_stats(const struct sender *s, struct sender_stats *ret);
/* Called on the loop after a batch was stored by the hub, with what the batch said at send time. */
struct stored_event {
	const char *pod_uid, *container_id;
	enum event event;
	uint64_t n_samples;
};
void send_on_stored(struct sender *s, void (*fn)(const struct stored_event *e, size_t n, void *arg), void *arg);
