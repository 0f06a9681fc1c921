/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: questions to the API server about who somebody is
 * (TokenReview) and what they may do (SubjectAccessReview), with a bounded cache
 * of the answers. Yes is kept 60 s, no 10 s, "could not ask" not at all.
 */
#pragma once

#include "hub/api/api.h"

/* What was decided. status: 200, 401, 403, 503; strings are borrowed during the call. */
struct verdict {
	int status;
	const char *error; /* NULL with 200 */
	const json_t *user; /* TokenReview: status.user */
};
typedef void verdict_fn(const struct verdict *v, void *arg);

struct reviews;
struct reviews_config {
	struct kube *kube;
	const char *path; /* where the review object is posted */
	/* Fills v from the answer's status; judge_arg is borrowed for as long as reviews lives. */
	void (*judge)(const json_t *status, struct verdict *v, void *judge_arg);
	void *judge_arg;
};
struct reviews *api_reviews_new(const struct reviews_config *c);
/* answer: who still waits is told 503; else they are forgotten. */
struct reviews *api_reviews_free(struct reviews *r, bool answer);
/*
 * The verdict on the object, from the cache or the API server; equal keys that
 * wait are asked once. fn is called once, maybe before this returns. Takes object.
 */
void api_reviews_ask(struct reviews *r, const void *key, size_t n, json_t *object, verdict_fn *fn,
		 void *arg);
