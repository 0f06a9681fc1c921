/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the verbs that send requests to a hub's API: address, credentials, requests and
 * answers.
 */
#pragma once

#include "lib/base/base.h"

#include <argp.h>

#define CLIENT_DEFAULT_URL "http://127.0.0.1:20416"

struct client_options {
	const char *url, *token_file, *ca_file;
	bool insecure;
};
/*
 * argp parser of the options that choose a hub, for use as a child of another parser. Its input is
 * a struct client_options *.
 */
extern const struct argp cli_client_argp;

/* text: "https://HOST[:PORT][/]" */
int cli_client_url_parse(const char *text, struct url *ret, struct field_error *reterr);

struct client;
/* o must stay valid as long as the client */
int cli_client_new(const struct client_options *o, struct client **ret, struct field_error *reterr);
struct client *cli_client_free(struct client *c);
/*
 * Reads the files of token and CA again, and makes new connections. Afterwards, no callback of an
 * older request is called.
 */
int cli_client_renew(struct client *c, struct field_error *reterr);
struct loop *cli_client_loop(struct client *c);

struct client_question {
	const char *method, *path;
	const char *content_type;	/* NULL: the request has no body */
	const void *body;
	size_t n_body;
	/*
	 * Gets an answer with status 200 piece by piece, which then has no body and no limit. If it
	 * does not return 0, the rest is not read. NULL: the answer is kept.
	 */
	int (*on_piece)(const void *p, size_t n, void *arg);
	void *arg;
};
struct client_answer {
	/* HTTP status; 0: there was no answer, and error has the reason */
	int status;
	char *body;
	size_t n;
	char *error;
	char *left_out; /* of a file: what the hub says that it lacks, as words; NULL: nothing */
};
/* Sends the request and waits for the answer. Fails only if the request could not be sent. */
int cli_client_ask(struct client *c, const struct client_question *q, struct client_answer *ret,
	       struct field_error *reterr);
void cli_client_answer_done(struct client_answer *a);
/*
 * Sends the request and returns. While the caller runs the loop, fn is called with the answer. The
 * answer is freed when fn returns. One request at a time.
 */
typedef void client_fn(struct client_answer *a, void *arg);
int cli_client_send(struct client *c, const struct client_question *q, client_fn *fn, void *arg,
		    struct field_error *reterr);
/*
 * Why there is no answer, or the hub's own message: "tag_filter: position 5: ... (HTTP 500)",
 * without characters that control a terminal. The caller frees it.
 */
char *cli_client_refusal(const struct client *c, const struct client_answer *a);
/* Prints `who` and the refusal on standard error. */
void cli_client_print_refusal(const struct client *c, const struct client_answer *a,
			      const char *who);
