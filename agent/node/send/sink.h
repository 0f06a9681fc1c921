/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to send: sinks. A sink gets encoded batches. A new sink is one file and one row in
 * sink.c. All functions run on the loop thread, except refresh and deliver.
 */
#pragma once

#include "node/send/send.h"

enum sink_result {
	SINK_STORED,
	SINK_RETRY,   /* the receiver cannot accept the batch now */
	SINK_REFUSED, /* the receiver will never accept this batch */
};
struct sink_answer {
	enum sink_result result;
	uint64_t retry_after_ns; /* 0: the receiver gave no time */
	/* with SINK_STORED: how many profiles of the batch the receiver rejected */
	uint64_t n_rejected;
	bool pods_stored; /* nothing of a pod was rejected */
	const char *error;	 /* a text for the user; "" if all is stored */
	/* with SINK_REFUSED by the hub, because this node's clock is ahead: its text; else NULL */
	const char *clock_ahead;
};
/* Called on the loop thread, once for each send, unless the sink was closed before. */
typedef void sink_done_fn(const struct sink_answer *a, void *arg);

struct sink;
struct sink_type {
	const char *name;
	/* the receiver may be away for long, so batches wait in the spool directory, compressed */
	bool remote;
	bool in_worker;	 /* the worker calls deliver, and send is not used */
	int (*open)(struct loop *l, const struct send_config *c, struct sink **ret,
		    struct field_error *reterr);
	void (*close)(struct sink *s);
	/*
	 * Runs on the worker: reads files that may have changed (token, CA) again. NULL: there are
	 * no such files.
	 */
	void (*refresh)(struct sink *s);
	void (*send)(struct sink *s, const void *body, size_t n, sink_done_fn *done, void *arg);
	/* Runs on the worker. Returns 0 if the batch is stored. */
	int (*deliver)(struct sink *s, const void *body, size_t n);
};
/* Returns the sink for the configuration: the null sink if it has neither url nor direct. */
const struct sink_type *send_sink_type_for(const struct send_config *c);
extern const struct sink_type send_sink_otlp;
