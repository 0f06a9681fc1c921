/* SPDX-License-Identifier: Apache-2.0 */
/* Sinks of send: where an encoded batch goes. A new one is one file and one row in sink.c. */
#pragma once

#include "node/send/send.h"

enum sink_result {
	SINK_STORED,
	SINK_RETRY,   /* the receiver cannot now */
	SINK_REFUSED, /* it never will: this batch is at fault */
};
struct sink_answer {
	enum sink_result result;
	uint64_t retry_after_ns; /* 0: not said */
	uint64_t n_rejected;	 /* stored: but for so many profiles, which it never takes */
	const char *error;	 /* for people; "" when all is stored */
};
/* On the loop, once per sink_send that was not cancelled. */
typedef void sink_done_fn(const struct sink_answer *a, void *arg);

struct sink;
struct sink_type {
	const char *name;
	bool remote;	 /* may be away for long: batches wait in the spool directory, compressed */
	bool in_worker;	 /* deliver is called on the os worker, send is not used */
	int (*open)(struct loop *l, const struct send_config *c, struct sink **ret,
		    struct field_error *reterr);
	void (*close)(struct sink *s);
	/* os worker: reads again what may have changed (token, CA). */
	void (*refresh)(struct sink *s);
	void (*send)(struct sink *s, const void *body, size_t n, sink_done_fn *done, void *arg);
	int (*deliver)(struct sink *s, const void *body, size_t n);
};
/* The row that fits the configuration: null without url and direct. */
const struct sink_type *send_sink_type_for(const struct send_config *c);
extern const struct sink_type send_sink_otlp;
