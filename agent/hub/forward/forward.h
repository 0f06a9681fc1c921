/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward: for a hub that stores nothing itself. It sends each request of an agent, as this hub has
 * judged it, on to the central hub, and says what the agent is to be answered. So the spools of
 * the agents keep what is not stored yet, and nothing is lost if either hub restarts. The central
 * hub knows each profile's id, so a profile that is sent twice counts once. Runs on the loop
 * thread, except forward_pack().
 */
#pragma once

#include "lib/loop/loop.h"
#include "lib/otlp/otlp.h"

struct forward;
struct forward_config {
	const char *url;	/* of the central hub: https, or http on a loopback address */
	/* "": the CAs of the system; no token. Both are read again for each request */
	const char *ca_file, *token_file;
	/* for tests; 0: the defaults of forward.c */
	size_t max_under_way;
	uint64_t timeout_ns, max_waiting_ns, calm_ns;
};
/* *reterr names a key of the configuration: store.url. */
int forward_new(struct loop *l, const struct forward_config *c, struct forward **ret,
		struct field_error *reterr);
/* Answers all requests that wait or are under way with 503. */
struct forward *forward_free(struct forward *f);

/* A request, encoded and compressed, and the credentials of that moment. */
struct forward_request;
/*
 * Any thread, as long as f is not freed. -E2BIG: the request would be larger than OTLP_MAX_BYTES.
 */
int forward_pack(const struct forward *f, const struct batch *b, struct forward_request **ret);
struct forward_request *forward_request_free(struct forward_request *p);
size_t forward_request_bytes(const struct forward_request *p);

struct forward_answer {		/* the strings are valid only while done runs */
	/*
	 * 200: the central hub has stored the request. 503: the sender must send it again. Else
	 * the central hub will never store it, and has answered with this status.
	 */
	int status;
	uint64_t n_rejected;	/* with 200: profiles that the central hub has left out */
	/* with 200 and n_rejected: why; else what happened, a text that names the central hub */
	const char *message;
	const char *reason;	/* that of the google.rpc.ErrorInfo; "": none */
};
/* Called on the loop thread, exactly once for each send. */
typedef void forward_done_fn(const struct forward_answer *a, void *arg);
/*
 * Takes ownership of p. If too many requests are under way, p waits for some seconds. done may be
 * called before this function returns.
 */
void forward_send(struct forward *f, struct forward_request *p, forward_done_fn *done, void *arg);

/*
 * Why the central hub does not take profiles; "": it does, or nothing was sent yet. The text names
 * no address and no file, because /healthz shows it to anybody.
 */
const char *forward_problem(const struct forward *f);
