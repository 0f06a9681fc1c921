/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: asks the API server which user a token belongs to (TokenReview) and which rights
 * that user has (SubjectAccessReview). It caches the answers, up to a limit: "yes" for 60 s, "no"
 * for 10 s, of one namespace for 60 s. A request that failed is not cached.
 */
#pragma once

#include "hub/api/api.h"

/*
 * The answer to a review. status is 200, 401, 403 or 503. The strings are valid only while
 * verdict_fn runs.
 */
struct auth_verdict {
	int status;
	const char *error; /* NULL if status is 200 */
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
	unsigned max_kept;   /* reviews in the cache; if it is full, the oldest is removed */
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

struct gate {
	struct gate_config config;
	/* access: rights in all namespaces; namespaces: those in one */
	struct reviews *tokens, *access, *namespaces;
	/* rights.c: questions in their order, and how many reviews are under way */
	struct asking *askings;
	unsigned n_open;
	uint64_t turn; /* counts the reviews */
	bool is_asking;
};
/*
 * A SubjectAccessReview of the user of a TokenReview. ns: the namespace; NULL: all of them. The
 * caller owns it. NULL: the user has no name.
 */
json_t *api_access_review(const json_t *user, const struct gate_right *right, const char *ns);

/* ---- rights.c: in which namespaces a user has a right ---- */

struct asking;
enum may_see { MAY_NOT_SEE, MAY_SEE, MAY_NOT_KNOWN }; /* the last: it was not asked for */
/*
 * status: 200 or 503. error: NULL if the status is 200. may: for each of the namespaces. All are
 * valid only while the function runs.
 */
typedef void asking_fn(int status, const char *error, const enum may_see *may, void *arg);
/*
 * Asks for each of the namespaces, but only for a limited number of those that the cache does not
 * have. *ret is set first, and NULL before fn is called, once, maybe before this function returns.
 * names must stay valid until then.
 */
void api_rights_ask(struct gate *g, const json_t *user, const struct gate_right *right,
		    char *const *names, size_t n, asking_fn *fn, void *arg, struct asking **ret);
/*
 * Frees g->namespaces. Questions get the status 503 if answer is true; else there must be none.
 */
void api_rights_stop(struct gate *g, bool answer);
/* Ends a question without a call of fn. NULL is allowed. */
void api_rights_end(struct asking *a);
