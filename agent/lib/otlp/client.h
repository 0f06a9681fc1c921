/* SPDX-License-Identifier: Apache-2.0 */
/*
 * otlp_client: sends requests with profiles to a receiver: a hub, or any OpenTelemetry Collector.
 * All functions run on the loop thread, except otlp_client_read().
 */
#pragma once

#include "lib/loop/http.h"
#include "lib/otlp/otlp.h"

struct otlp_client;
struct otlp_client_config {
	const char *url;	/* if it has no path that ends in OTLP_PATH, OTLP_PATH is added */
	/* NULL or "": the CAs of the system, or no token. Not used without TLS: ca_file */
	const char *ca_file, *token_file;
	const char *user_agent;
	uint64_t timeout_ns;	/* of one try; 0: 30 s */
};
/* *reterr: "url" is wrong. */
int otlp_client_new(struct loop *l, const struct otlp_client_config *c, struct otlp_client **ret,
		    struct field_error *reterr);
/* Cancels the requests of c. Their callbacks are not called. */
struct otlp_client *otlp_client_free(struct otlp_client *c);

/*
 * What the files of the token and of the CA contain. Any thread may read them, as long as the
 * client is not freed. If a file cannot be read, otlp_client_send() reports it.
 */
struct otlp_credentials;
struct otlp_credentials *otlp_client_read(const struct otlp_client *c);
struct otlp_credentials *otlp_credentials_free(struct otlp_credentials *k);

enum otlp_result {
	OTLP_STORED,
	OTLP_AGAIN,	/* the receiver cannot accept the request now */
	OTLP_REFUSED,	/* the receiver will never accept this request */
};
struct otlp_outcome {
	enum otlp_result result;
	int status;		/* of HTTP; 0: there is no answer */
	uint64_t retry_after_ns; /* 0: the receiver gave no time */
	/* with OTLP_STORED: how many profiles of the request the receiver rejected */
	uint64_t n_rejected;
	/*
	 * "", or what the receiver says itself: why it rejected some, or the message of the
	 * google.rpc.Status with which it refused the request. Control characters are blanks.
	 */
	const char *message;
	/* with OTLP_REFUSED: the reason of the google.rpc.ErrorInfo, upper-case; "": none */
	const char *reason;
	const char *error;	/* a text for the user, with the receiver; "" if all is stored */
};
/* Called on the loop thread, once for each send, unless the client was freed before. */
typedef void otlp_done_fn(const struct otlp_outcome *o, void *arg);
/*
 * Sends a request that http_compress() has compressed; copies it. Several may be under way. done
 * may be called before this function returns. k: what was read before this try; borrowed.
 */
void otlp_client_send(struct otlp_client *c, const struct otlp_credentials *k, const void *body,
		      size_t n, otlp_done_fn *done, void *arg);
/*
 * The same for another request to this receiver, which is sent as it is. path: below the address of
 * the url, with a query. *ret is set before done is called.
 */
struct otlp_post {
	const char *path, *content_type;
	const void *body;
	size_t n;
};
struct otlp_call;
void otlp_client_post(struct otlp_client *c, const struct otlp_credentials *k,
		      const struct otlp_post *post, otlp_done_fn *done, void *arg,
		      struct otlp_call **ret);
void otlp_client_cancel(struct otlp_call *q); /* done is not called after this */
