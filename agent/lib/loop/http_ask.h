/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_ask: an HTTP client for threads that wait for the answer, for example the workers of a
 * store. The requests run on a loop of its own, on a thread of its own.
 */
#pragma once

#include "lib/loop/http.h"

#include <stdatomic.h>

struct http_asker;
struct http_asker_config {
	const char *host; /* a name or an address */
	uint16_t port;
	bool tls;
	/*
	 * with tls: the file with the CA of the server's certificate (PEM); NULL or "": the CAs of
	 * the system. The asker reads it again for each question, so a new CA needs no restart.
	 */
	const char *ca_file;
	const char *user_agent;
};
int http_asker_new(const struct http_asker_config *c, struct http_asker **ret);
/* No thread may be in http_ask() any more. Returns NULL. */
struct http_asker *http_asker_free(struct http_asker *a);

#define HTTP_ASK_HEADERS 2 /* of an answer, that a caller may want */
struct http_question {
	const char *method, *path; /* as in struct http_request */
	const char *const *headers;
	const void *body;
	size_t body_bytes;
	bool repeatable;
	bool asks_for_zstd;    /* a compressed answer; http_ask() unpacks it */
	uint64_t deadline_ns;  /* CLOCK_MONOTONIC */
	size_t max_body_bytes; /* of the answer, unpacked; 0: HTTP_MAX_ANSWER */
	/* set when nobody needs the answer any more: the connection is closed; may be NULL */
	const atomic_bool *given_up;
	/* names of headers of the answer that the caller wants; NULL-terminated unless full */
	const char *want[HTTP_ASK_HEADERS];
};
struct http_answer {
	int status;
	char *headers[HTTP_ASK_HEADERS]; /* their values; NULL: the answer lacks it */
	char *body;
	size_t n;
	char *error; /* a text for people, if there is no answer */
};
/*
 * Any thread but the asker's own. 0: there is an answer, whatever its status. -ETIME: it did not
 * come until the deadline, or was given up. -EIO: there is none, and -E2BIG: unpacked it is too
 * large; ret->error says why. The caller
 * calls http_answer_done() in each case.
 */
int http_ask(struct http_asker *a, const struct http_question *q, struct http_answer *ret);
void http_answer_done(struct http_answer *a);
