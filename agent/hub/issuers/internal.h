/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to issuers/: registrations.c (the file of registrations), keys.c (a JWKS), token.c (a
 * JWT), source.c (where the keys come from), issuers.c (the checks).
 */
#pragma once

#include "hub/issuers/issuers.h"
#include "lib/loop/http.h"

#include <openssl/evp.h>
#include <sys/stat.h>

/* ---- keys.c ---- */

struct issuers_key {
	char *kid;
	bool is_ec; /* P-256, for ES256; else RSA, for RS256 */
	EVP_PKEY *key;
};
struct issuers_keys {
	size_t n;
	struct issuers_key keys[];
};
/*
 * Reads a JWKS (RFC 7517). Leaves out keys of other kinds and for other uses. -EINVAL: the field is
 * in reterr, as "keys[2].n".
 */
int issuers_keys_parse(const char *text, size_t n, struct issuers_keys **ret,
		       struct field_error *reterr);
struct issuers_keys *issuers_keys_free(struct issuers_keys *k);
/* keys NULL: there are none. */
const struct issuers_key *issuers_keys_find(const struct issuers_keys *keys, const char *kid);

/* ---- token.c ---- */

/*
 * Decodes base64url of RFC 7515: no padding, no other characters, no bits behind the last byte. The
 * caller frees *ret, which is NUL-terminated. -EINVAL: it is no such text.
 */
int issuers_base64url(const char *s, size_t n, uint8_t **ret, size_t *ret_n);
/*
 * Parses JSON of which a stranger is the author: no member twice, at most 16 levels. NULL: it is
 * none.
 */
json_t *issuers_json(const char *text, size_t n);

struct issuers_token {
	const char *text; /* borrowed */
	size_t n_signed;  /* bytes of the text that the signature is of */
	json_t *header, *claims;
	uint8_t *signature;
	size_t n_signature;
};
/*
 * Reads the parts of a token. Checks no signature: the claims are what a stranger says. reterr
 * names the field: "token", "alg", "kid", "crit"; none of its texts has anything of the token.
 */
int issuers_token_parse(const char *text, struct issuers_token *ret, struct field_error *reterr);
void issuers_token_done(struct issuers_token *t);
/* The claims of a token of any algorithm; NULL: it is no JWT. Checks no signature. */
json_t *issuers_token_claims_of(const char *text);
const char *issuers_token_kid(const struct issuers_token *t);
const char *issuers_token_issuer(const struct issuers_token *t); /* "": it has none */
/* Checks that this key has signed the token, and with the algorithm that the token names. */
int issuers_token_verify(const struct issuers_token *t, const struct issuers_key *k,
			 struct field_error *reterr);
/* Checks the claims of a token whose signature is right. reterr names the claim. */
int issuers_token_claims(const struct issuers_token *t, const char *issuer, const char *subject,
			 struct field_error *reterr);

/* ---- registrations.c ---- */

struct registration {
	struct issuers *issuers;
	char *name, *issuer, *subject;
	/* jwks_file, or jwks_ca_file if by_url is set; and the state of the file that was read */
	char *file;
	bool by_url;
	struct stat stat;
	struct url url;
	struct http_client *client; /* NULL: the CA could not be read so far */
	struct http_call *call;
	bool was_asked;
	uint64_t asked_ns, next_ns; /* CLOCK_MONOTONIC: of the last request, and of the next one */
	struct issuers_keys *keys;  /* NULL: none were read so far */
	/* why the file, and why the URL cannot be used; and which of them was told last */
	char *file_problem, *url_problem, *told;
};
struct waiting { /* a check that waits for the answer of a URL */
	char *token, *peer;
	const struct registration *of;
	issuers_fn *fn;
	void *arg;
	struct waiting *next;
};
struct issuers {
	struct loop *loop;
	void (*tell)(const char *cluster, const char *error, void *arg);
	void *arg;
	char *own_issuer; /* NULL: it is not known */
	struct registration *registrations;
	size_t n;
	struct worker *reader;
	struct reading *reading; /* the job that reads the files now; NULL: none */
	struct timer timer;
	struct waiting *waiting;
	unsigned n_waiting;
};
/* Sets i->registrations and i->n. */
int issuers_register(struct issuers *i, const char *file, const char *own_cluster,
		     struct field_error *reterr);

/* ---- source.c ---- */
/* Reads all files now, asks all URLs, and does so again and again. */
int issuers_source_start(struct issuers *i);
void issuers_source_stop(struct issuers *i);
/*
 * Whether an answer of the registration's URL is coming that may bring new keys. If there is none,
 * and the last request was long enough ago, asks.
 */
bool issuers_source_ask(struct registration *r);

/* ---- issuers.c ---- */
/* The URL of the registration has answered, or has failed. */
void issuers_answered(struct registration *r);
