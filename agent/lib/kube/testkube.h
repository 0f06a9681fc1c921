/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a kube that keeps the last request instead of sending it. Include it once, after
 * cmocka.h.
 */
#pragma once

#include "lib/kube/kube.h"

static struct {
	unsigned n;
	char method[8], path[256], type[64];
	json_t *body;
	kube_done_fn *fn; /* NULL once the test has answered */
	void *arg;
} sent;
static bool holds; /* requests are kept in `held`, so that many may wait for their answers */
static struct {
	kube_done_fn *fn;
	void *arg;
} held[64];
static size_t n_held;

static int keep_request(struct kube *k, const char *method, const char *path,
			const char *content_type, const json_t *body, kube_done_fn *fn, void *arg)
{
	(void)k;
	/* the code under test sends no request before the last one is answered */
	assert_null(sent.fn);
	sent.n++;
	snprintf(sent.method, sizeof(sent.method), "%s", method);
	snprintf(sent.path, sizeof(sent.path), "%s", path);
	snprintf(sent.type, sizeof(sent.type), "%s", content_type ? content_type : "");
	json_decref(sent.body);
	sent.body = json_deep_copy(body);
	if (holds) {
		assert_true(n_held < ARRAY_SIZE(held));
		held[n_held].fn = fn;
		held[n_held++].arg = arg;
		return 0;
	}
	sent.fn = fn;
	sent.arg = arg;
	return 0;
}

static inline struct kube *testkube(void)
{
	static const struct kube_ops ops = {.request = keep_request};
	static struct kube_base k = {&ops};

	return (struct kube *)&k;
}
