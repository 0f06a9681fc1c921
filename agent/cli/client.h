/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the verbs that ask a hub over its API: address and credentials, question and answer.
 */
#pragma once

#include "lib/base/base.h"

#include <argp.h>

#define CLIENT_DEFAULT_URL "http://127.0.0.1:20416"

struct client_options {
	const char *url, *token_file, *ca_file;
	bool insecure;
};
extern const struct argp cli_client_argp;	/* a child parser; input: struct client_options * */

/* "https://HOST[:PORT][/]" */
int cli_client_url_parse(const char *text, struct url *ret, struct field_error *reterr);

struct client;
/* o: borrowed */
int cli_client_new(const struct client_options *o, struct client **ret, struct field_error *reterr);
struct client *cli_client_free(struct client *c);

struct client_question {
	const char *method, *path;
	const char *content_type;	/* NULL: no body */
	const void *body;
	size_t n_body;
};
struct client_answer {
	int status;			/* HTTP; 0: none came, error says why */
	char *body;
	size_t n;
	char *error;
};
/* Waits for the answer; fails only when the question could not be sent at all. */
int cli_client_ask(struct client *c, const struct client_question *q, struct client_answer *ret,
	       struct field_error *reterr);
void cli_client_answer_done(struct client_answer *a);
/* Prints "WHO: tag_filter: position 5: ... (HTTP 500)" on standard error, with the hub's words. */
void cli_client_print_refusal(const struct client *c, const struct client_answer *a,
			      const char *who);
