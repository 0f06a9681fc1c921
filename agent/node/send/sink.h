/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to send: sinks, which take an encoded batch. A new sink is one file and one row in
 * sink.c. Loop thread, except for refresh and deliver.
 */
#pragma once

#include "node/send/send.h"

enum sink_result {
	SINK_STORED,
	SINK_RETRY,   /* the receiver cannot take it now */
	SINK_REFUSED, /* the receiver will never take this batch */
};
struct sink_answer {
	enum sink_result result;
	uint64_t retry_after_ns; /* 0: the receiver did not say it */
	uint64_t n_rejected;	 /* SINK_STORED: profiles of it that the receiver never takes */
	const char *error;	 /* for people; "" when all is stored */
};
/* Called on the loop, once for each send, unless the sink was closed before. */
typedef void sink_done_fn(const struct sink_answer *a, void *arg);

struct sink;
struct sink_type {
	const char *name;
	bool remote;	 /* may be away for long: batches wait compressed in the spool directory */
	bool in_worker;	 /* the os worker calls deliver; send is not used */
	int (*open)(struct loop *l, const struct send_config *c, struct sink **ret,
		    struct field_error *reterr);
	void (*close)(struct sink *s);
	/* os worker: reads files again that may have changed (token, CA). NULL: there are none. */
	void (*refresh)(struct sink *s);
	void (*send)(struct sink *s, const void *body, size_t n, sink_done_fn *done, void *arg);
	/* os worker. 0: stored. */
	int (*deliver)(struct sink *s, const void *body, size_t n);
};
/* The sink that the configuration asks for: null, if it has neither url nor direct. */
const struct sink_type *send_sink_type_for(const struct send_config *c);
extern const struct sink_type send_sink_otlp;
