/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: asks the API server which user a token belongs to (TokenReview) and which rights
 * that user has (SubjectAccessReview), with a bounded cache of the answers. A yes is kept for 60 s,
 * a no for 10 s, a failed request not at all.
 */
#pragma once

#include "hub/api/api.h"

/* The verdict. status: 200, 401, 403, 503; strings are borrowed during the call. */
struct auth_verdict {
	int status;
	const char *error; /* NULL with 200 */
	const json_t *user; /* TokenReview: status.user */
};
typedef void verdict_fn(const struct auth_verdict *v, void *arg);

struct reviews;
struct reviews_config {
	struct kube *kube;
	const char *path; /* where the review object is posted */
	/* Fills v from the answer's status; judge_arg is borrowed until the reviews are freed. */
	void (*judge)(const json_t *status, struct auth_verdict *v, void *judge_arg);
	void *judge_arg;
};
struct reviews *api_reviews_new(const struct reviews_config *c);
/* answer: requests that still wait get 503; else they get no answer */
struct reviews *api_reviews_free(struct reviews *r, bool answer);
/*
 * The verdict on the object, from the cache or the API server; equal keys that
 * wait are asked once. fn is called once, maybe before this returns. Takes object.
 */
void api_reviews_ask(struct reviews *r, const void *key, size_t n, json_t *object, verdict_fn *fn,
		 void *arg);
