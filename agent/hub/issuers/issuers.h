/* SPDX-License-Identifier: Apache-2.0 */
/*
 * issuers: the other clusters whose hubs may send profiles to this one. The user registers each of
 * them with the issuer of its tokens, the keys that sign them (a JWKS), and the one subject whose
 * tokens this hub accepts. Everything here runs on the loop thread; a worker reads the files.
 */
#pragma once

#include "lib/loop/loop.h"

#define ISSUERS_AUDIENCE "podflame-ingest" /* for which a sender's token must be made */

struct issuers;
struct issuers_config {
	/* the file of registrations (docs/clusters.md); it is read once, by issuers_new */
	const char *file;
	const char *own_cluster; /* the name of the hub's own cluster: no other one may have it */
	/*
	 * A file with a token of the hub's own cluster, which tells the issuer of that cluster. A
	 * file that is not there, or that has no such token, is ignored.
	 */
	const char *own_token_file;
	/*
	 * Called when the keys of a cluster cannot be read (error: why, with the name of the file
	 * or the address), when the reason changes, and when they can be read again (error NULL).
	 * Until then the hub uses the last keys that it has read. It must not call issuers_free.
	 */
	void (*tell)(const char *cluster, const char *error, void *arg);
	void *arg;
};
/*
 * Reads the registrations and the files that they name. An error in the registrations is
 * "FILE:LINE:COLUMN" and names the field. Keys that cannot be read are no error: `tell` reports
 * them.
 */
int issuers_new(struct loop *l, const struct issuers_config *c, struct issuers **ret,
		struct field_error *reterr);
/* Answers the checks that wait with 503. */
struct issuers *issuers_free(struct issuers *i);
/*
 * Whether issuers_check decides on this token, and not the API server of the hub's own cluster: the
 * token says that a registered issuer has made it. If that is also the issuer of the own cluster,
 * the token must name a key of a registered cluster, too. The signature is not checked here.
 */
bool issuers_knows(const struct issuers *i, const char *token);
/*
 * status: 200, 401 or 503 (no keys could be read so far). cluster: the registered name; NULL if the
 * status is not 200. error: a text for people that has nothing of the token; NULL if the status is
 * 200. Both are valid only while the function runs.
 */
typedef void issuers_fn(int status, const char *cluster, const char *error, void *arg);
/*
 * Checks a token: its form, algorithm, key and signature, and then iss, sub, aud, exp and nbf.
 * Calls fn once, maybe before this function returns. If the token names a key that the hub does not
 * have, the check may wait for the cluster's keys. A peer (as in struct http_in) may have as many
 * of these checks as it leaves to others.
 */
void issuers_check(struct issuers *i, const char *token, const char *peer, issuers_fn *fn,
		   void *arg);
/*
 * Why no API server would accept this token, by what the token says of itself: it has expired
 * ("expired"), or own_issuer has made it for other audiences ("audience"). NULL: the API server may
 * accept it, or it is no JWT. The signature is not checked. own_issuer NULL: it is not known.
 * audiences: NULL at the end. *ret_error: a text for people, a constant.
 */
const char *issuers_hopeless(const char *token, const char *own_issuer,
			     const char *const *audiences, const char **ret_error);
/* Returns the issuer of a token in a file. NULL: there is no such token. The caller frees it. */
char *issuers_of_file(const char *path);
/* The name of registered cluster k, from 0 on; NULL: there are no more. */
const char *issuers_cluster(const struct issuers *i, size_t k);
/*
 * How many clusters are registered, and of how many of them the keys could not be read the last
 * time.
 */
void issuers_count(const struct issuers *i, unsigned *ret_n, unsigned *ret_n_failed);
