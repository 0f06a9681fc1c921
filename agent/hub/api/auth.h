/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: asks the API server which user a token belongs to (TokenReview) and which rights
 * that user has (SubjectAccessReview). It caches the answers, up to a limit: "yes" for 60 s, "no"
 * for 10 s, of one namespace or of who pushes for 60 s. A request that failed is not cached.
 */
#pragma once

#include "hub/api/api.h"

/*
 * The answer to a review. status is 200, 401, 403 or 503. The strings are valid only while
 * verdict_fn runs.
 */
struct auth_verdict {
	int status;
	const char *error;  /* NULL if status is 200 */
	const json_t *user; /* TokenReview: status.user */
};
typedef void verdict_fn(const struct auth_verdict *v, void *arg);

struct reviews;
struct reviews_config {
	struct kube *kube;
	const char *path; /* the path to which the review object is posted */
	/*
	 * Fills v from the status in the API server's answer. judge_arg must stay valid until the
	 * reviews are freed.
	 */
	void (*judge)(const json_t *status, struct auth_verdict *v, void *judge_arg);
	void *judge_arg;
	unsigned max_kept; /* reviews in the cache; if it is full, the oldest is removed */
	/*
	 * if more than half of them are a "no", the oldest of these is removed instead: so made-up
	 * tokens do not drive out good ones
	 */
	bool spares_yes;
	uint64_t keep_no_ns; /* how long a "no" stays in the cache */
};
struct reviews *api_reviews_new(const struct reviews_config *c);
/* Frees the reviews. Requests that still wait get 503 if answer is true, else no answer. */
struct reviews *api_reviews_free(struct reviews *r, bool answer);
/*
 * Gets the verdict on object from the cache or from the API server. If requests with the same key
 * wait already, the API server is asked only once. fn is called once, maybe before this function
 * returns. Takes ownership of object.
 */
void api_reviews_ask(struct reviews *r, const void *key, size_t n, json_t *object, verdict_fn *fn,
		     void *arg);
/* The status that the cache has for the key; 0: none. */
int api_reviews_kept(struct reviews *r, const void *key, size_t n);
/*
 * Whether the cache has an answer, the API server is being asked, or its last answer was a "yes",
 * however old it is.
 */
bool api_reviews_knows(struct reviews *r, const void *key, size_t n);

/* ---- sign_ins.c: how often the API server is asked about tokens that it may refuse ---- */

struct sign_ins;
struct sign_in_peer;
struct sign_ins *api_sign_ins_new(void);
struct sign_ins *api_sign_ins_free(struct sign_ins *s);
/*
 * Returns 0 if the API server may be asked about one more token of this peer; then the caller calls
 * api_sign_ins_end with *ret. Else returns the status of the refusal, 429 or 503, and sets
 * *ret_error to a constant.
 */
int api_sign_ins_begin(struct sign_ins *s, const char *peer, struct sign_in_peer **ret,
		       const char **ret_error);
/* refused: the API server has refused the token. p NULL is allowed. */
void api_sign_ins_end(struct sign_ins *s, struct sign_in_peer *p, bool refused);

struct gate {
	struct gate_config config;
	char *own_issuer; /* NULL: not known */
	struct sign_ins *sign_ins;
	/*
	 * access: rights in all namespaces; namespaces: in one. Those of who pushes have rooms of
	 * their own: there may be many more of them
	 */
	struct reviews *tokens, *pusher_tokens, *access, *pushers, *namespaces;
	/* rights.c: questions in their order, and how many reviews are under way */
	struct asking *askings;
	unsigned n_open;
	uint64_t turn; /* counts the reviews */
	bool is_asking;
};
/*
 * A SubjectAccessReview of the user of a TokenReview, about a place as in struct scope; NULL: all
 * namespaces of the hub's own cluster. The right in another cluster is that to get an object of
 * clusters.podflame.io, NAME or NAME:NAMESPACE, which no API server has. The caller owns the
 * review. NULL: the user has no name, or the place is no text of JSON.
 */
json_t *api_access_review(const json_t *user, const struct gate_right *right, const char *place);

/* ---- rights.c: in which places a user has a right ---- */

struct asking;
enum may_see { MAY_NOT_SEE, MAY_SEE, MAY_NOT_KNOWN }; /* the last: it was not asked for */
/*
 * status: 200 or 503. error: NULL if the status is 200. may: for each of the places. All are
 * valid only while the function runs.
 */
typedef void asking_fn(int status, const char *error, const enum may_see *may, void *arg);
/*
 * Asks for each of the places (as in struct scope), but only for a limited number of those that
 * the cache does not have. *ret is set first, and NULL before fn is called, once, maybe before this
 * function returns. names must stay valid until then.
 */
void api_rights_ask(struct gate *g, const json_t *user, const struct gate_right *right,
		    char *const *names, size_t n, asking_fn *fn, void *arg, struct asking **ret);
/*
 * Frees g->namespaces. Questions get the status 503 if answer is true; else there must be none.
 */
void api_rights_stop(struct gate *g, bool answer);
/* Ends a question without a call of fn. NULL is allowed. */
void api_rights_end(struct asking *a);
