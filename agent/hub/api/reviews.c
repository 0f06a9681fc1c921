/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of reviews. The key is a SHA-256, so no token stays in memory after its request. The
 * number of cached answers has a limit, and so has the number of requests to the API server at a
 * time. So many made-up tokens cannot flood the API server.
 */
#include "hub/api/auth.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <uthash.h>

#define KEEP_YES_NS (60 * NSEC_PER_SEC)
#define MAX_OPEN    64	/* reviews under way at once; a further one is answered 503 */
#define MAX_WAITING 256 /* requests that may wait for one answer */

struct waiter {
	verdict_fn *fn;
	void *arg;
	struct waiter *next;
};

struct review {
	uint8_t key[SHA256_DIGEST_LENGTH];
	struct reviews *all;
	bool open;
	struct auth_verdict verdict;
	char *error;
	json_t *user;
	/* CLOCK_BOOTTIME, because an answer also gets old while the machine is suspended */
	uint64_t until_ns;
	struct waiter *waiters;
	unsigned n_waiters;
	UT_hash_handle hh;
};

struct reviews {
	struct reviews_config config;
	struct review *kept;	 /* oldest first */
	unsigned n_open, n_noes; /* n_noes: answers in the cache that are not a "yes" */
};

struct reviews *api_reviews_new(const struct reviews_config *c)
{
	struct reviews *r = xcalloc(1, sizeof(*r));

	r->config = *c;
	return r;
}

/*
 * Calls all waiters. A waiter may ask again or free all reviews, and that may free v. So this
 * function works on copies, and does not use v after the first call.
 */
static void tell(struct waiter *waiters, const struct auth_verdict *v)
{
	_cleanup_free_ char *error = xstrdup(v->error);
	_cleanup_json_ json_t *user = json_incref((json_t *)v->user);
	const struct auth_verdict out = {.status = v->status, .error = error, .user = user};

	for (struct waiter *w = waiters, *next; w; w = next) {
		next = w->next;
		w->fn(&out, w->arg);
		free(w);
	}
}

static void forget(struct waiter *waiters)
{
	for (struct waiter *w = waiters, *next; w; w = next) {
		next = w->next;
		free(w);
	}
}

static void review_free(struct review *v)
{
	forget(v->waiters);
	free(v->error);
	json_decref(v->user);
	free(v);
}

struct reviews *api_reviews_free(struct reviews *r, bool answer)
{
	const struct auth_verdict ending = {.status = 503, .error = "the hub is stopping"};
	struct review *v, *next;

	if (!r)
		return NULL;
	HASH_ITER (hh, r->kept, v, next) {
		HASH_DEL(r->kept, v);
		if (v->open && answer)
			tell(TAKE_PTR(v->waiters), &ending);
		/* The answer of the API server may still come; answered() then frees v. */
		if (v->open)
			v->all = NULL;
		else
			review_free(v);
	}
	free(r);
	return NULL;
}

static void refuse(verdict_fn *fn, void *arg, int status, const char *error)
{
	const struct auth_verdict v = {.status = status, .error = error};

	fn(&v, arg);
}

static bool is_no(const struct review *v)
{
	return !v->open && v->verdict.status != 200;
}

static void take_out(struct reviews *r, struct review *v)
{
	HASH_DEL(r->kept, v);
	r->n_noes -= is_no(v);
	review_free(v);
}

/* Makes room for one answer: removes the oldest one, or the oldest "no". */
static void make_room(struct reviews *r)
{
	bool only_no = r->config.spares_yes && r->n_noes > r->config.max_kept / 2;
	struct review *v, *next;

	if (HASH_COUNT(r->kept) < r->config.max_kept)
		return;
	HASH_ITER (hh, r->kept, v, next) {
		if (v->open || (only_no && !is_no(v)))
			continue;
		take_out(r, v);
		return;
	}
}

static void judge(struct review *v, int status, const json_t *body, const char *error)
{
	const struct reviews_config *c = &v->all->config;

	v->verdict = (struct auth_verdict){.status = 503};
	if (status == 200 || status == 201)
		c->judge(json_object_get(body, "status"), &v->verdict, c->judge_arg);
	else
		v->verdict.error = error ? error : "no answer";
	/* copied, because the strings of v->verdict are freed with the API server's answer */
	if (v->verdict.status == 503)
		v->error = xasprintf("the Kubernetes API server cannot be asked (%s): %s", c->path,
				     v->verdict.error ? v->verdict.error : "no answer");
	else
		v->error = xstrdup(v->verdict.error);
	v->user = v->verdict.user ? json_deep_copy(v->verdict.user) : NULL;
	v->verdict.error = v->error;
	v->verdict.user = v->user;
}

static void answered(int status, const json_t *body, const char *error, void *arg)
{
	struct review *v = arg;
	struct reviews *r = v->all;
	struct waiter *waiters;
	bool keep;

	if (!r) {
		review_free(v);
		return;
	}
	waiters = TAKE_PTR(v->waiters);
	judge(v, status, body, error);
	keep = v->verdict.status != 503;
	v->until_ns =
		now_boot_ns() + (v->verdict.status == 200 ? KEEP_YES_NS : r->config.keep_no_ns);
	v->open = false;
	r->n_open--;
	r->n_noes += keep && is_no(v);
	if (!keep)
		HASH_DEL(r->kept, v);
	tell(waiters, &v->verdict);
	if (!keep) /* the review is not in the cache, so nobody else can use it */
		review_free(v);
}

static void wait_for(struct review *v, verdict_fn *fn, void *arg)
{
	struct waiter *w, **end = &v->waiters;

	if (v->n_waiters == MAX_WAITING) {
		counter_add(counter("api_refused_total", "reason", "reviews_busy"), 1);
		refuse(fn, arg, 503, "too many requests wait for the same sign-in");
		return;
	}
	w = xcalloc(1, sizeof(*w));
	*w = (struct waiter){.fn = fn, .arg = arg};
	while (*end)
		end = &(*end)->next;
	*end = w;
	v->n_waiters++;
}

static void ask(struct reviews *r, const uint8_t key[SHA256_DIGEST_LENGTH], const json_t *object,
		verdict_fn *fn, void *arg)
{
	struct review *v;
	int e;

	if (r->n_open >= MAX_OPEN) {
		counter_add(counter("api_refused_total", "reason", "reviews_busy"), 1);
		refuse(fn, arg, 503, "too many sign-ins are being checked; try again");
		return;
	}
	make_room(r);
	v = xcalloc(1, sizeof(*v));
	memcpy(v->key, key, sizeof(v->key));
	v->all = r;
	v->open = true;
	HASH_ADD(hh, r->kept, key, sizeof(v->key), v);
	r->n_open++;
	wait_for(v, fn, arg);
	e = kube_request(r->config.kube, "POST", r->config.path, NULL, object, answered, v);
	if (e)
		answered(0, NULL, strerror(-e), v);
}

/* Without a hash, a request could get the answer for another key. */
static struct review *find(const struct reviews *r, const void *key, size_t n,
			   uint8_t ret_hash[SHA256_DIGEST_LENGTH])
{
	struct review *v;

	if (!SHA256(key, n, ret_hash))
		out_of_memory();
	HASH_FIND(hh, r->kept, ret_hash, SHA256_DIGEST_LENGTH, v);
	return v;
}

static bool is_fresh(const struct review *v)
{
	return !v->open && v->until_ns > now_boot_ns();
}

int api_reviews_kept(struct reviews *r, const void *key, size_t n)
{
	uint8_t hash[SHA256_DIGEST_LENGTH];
	const struct review *v = find(r, key, n, hash);

	return v && is_fresh(v) ? v->verdict.status : 0;
}

bool api_reviews_knows(struct reviews *r, const void *key, size_t n)
{
	uint8_t hash[SHA256_DIGEST_LENGTH];
	const struct review *v = find(r, key, n, hash);

	return v && (v->open || v->verdict.status == 200 || is_fresh(v));
}

void api_reviews_ask(struct reviews *r, const void *key, size_t n, json_t *object, verdict_fn *fn,
		     void *arg)
{
	_cleanup_json_ json_t *owned = object;
	uint8_t hash[SHA256_DIGEST_LENGTH];
	struct review *v = find(r, key, n, hash);

	if (v && v->open) {
		wait_for(v, fn, arg);
		return;
	}
	if (v && is_fresh(v)) {
		fn(&v->verdict, arg);
		return;
	}
	if (v)
		take_out(r, v);
	ask(r, hash, owned, fn, arg);
}
