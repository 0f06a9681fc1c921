/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which namespaces a user has a right: a SubjectAccessReview for each one that the cache does
 * not have.
 */
#include "hub/api/auth.h"

#include <openssl/sha.h>
#include <stdlib.h>

/* This is half of what the cache of reviews takes, so sign-ins go on. */
#define MAX_OPEN 32 /* reviews of namespaces under way at once, of all requests together */

struct asking {
	struct gate *gate;
	json_t *user;
	const struct gate_right *right;
	char *const *names;
	size_t n, next, n_open; /* n_open: the reviews that the API server has not answered yet */
	bool *may;
	uint8_t user_hash[SHA256_DIGEST_LENGTH];
	int status;
	char *error;
	bool is_filling; /* fill() runs */
	asking_fn *fn;	 /* NULL: the question was ended */
	void *arg;
	struct asking **self;
};

/* One review that is under way. */
struct one {
	struct asking *asking;
	size_t i; /* of the namespace */
};

static void asking_free(struct asking *a)
{
	a->gate->n_asking--;
	json_decref(a->user);
	free(a->may);
	free(a->error);
	free(a);
}

/* How many reviews of this question may be under way: its share, and at least one. */
static size_t share(const struct asking *a)
{
	return MAX(MAX_OPEN / a->gate->n_asking, 1U);
}

static bool is_done(const struct asking *a)
{
	return a->next == a->n && !a->n_open;
}

static void finish(struct asking *a)
{
	asking_fn *fn = a->fn;

	if (fn) {
		*a->self = NULL;
		fn(a->status, a->error, a->may, a->arg);
	}
	asking_free(a);
}

/* The key of a review: what decides about its answer. The caller frees it. */
static char *key_of(const struct asking *a, const char *ns, size_t *ret_n)
{
	struct buf b = {0};

	buf_add(&b, a->user_hash, sizeof(a->user_hash));
	buf_puts(&b, a->right->verb);
	buf_putc(&b, ' ');
	buf_puts(&b, a->right->resource);
	buf_putc(&b, ' ');
	buf_puts(&b, ns);
	*ret_n = b.len;
	return buf_steal(&b);
}

static void fill(struct asking *a);

static void answered(const struct auth_verdict *v, void *arg)
{
	struct one *one = arg;
	struct asking *a = one->asking;

	a->may[one->i] = v->status == 200;
	free(one);
	a->n_open--;
	if (v->status != 200 && v->status != 403 && a->status == 200) {
		a->status = 503;
		a->error = xstrdup(v->error);
		a->next = a->n; /* no further ones */
	}
	if (a->is_filling)
		return;
	fill(a);
	if (is_done(a))
		finish(a);
}

/* Asks for one namespace, or takes the answer of the cache. */
static void ask(struct asking *a, size_t i)
{
	size_t n;
	_cleanup_free_ char *key = key_of(a, a->names[i], &n);
	int kept = api_reviews_kept(a->gate->access, key, n);
	json_t *object;
	struct one *one;

	if (kept) {
		a->may[i] = kept == 200;
		return;
	}
	object = api_access_review(a->user, a->right, a->names[i]);
	if (!object) /* the name of the namespace is no text of JSON: there is none of this name */
		return;
	one = xcalloc(1, sizeof(*one));
	*one = (struct one){a, i};
	a->n_open++;
	api_reviews_ask(a->gate->access, key, n, object, answered, one);
}

static void fill(struct asking *a)
{
	a->is_filling = true;
	while (a->fn && a->next < a->n && a->n_open < share(a))
		ask(a, a->next++);
	a->is_filling = false;
}

void api_rights_ask(struct gate *g, const json_t *user, const struct gate_right *right,
		    char *const *names, size_t n, asking_fn *fn, void *arg, struct asking **ret)
{
	_cleanup_free_ char *text = json_dumps(user, JSON_SORT_KEYS | JSON_ENCODE_ANY);
	struct asking *a = xcalloc(1, sizeof(*a));

	*a = (struct asking){
		.gate = g,
		.user = json_incref((json_t *)user),
		.right = right,
		.names = names,
		.n = n,
		.may = xcalloc(n + 1, sizeof(bool)),
		.status = 200,
		.fn = fn,
		.arg = arg,
		.self = ret,
	};
	g->n_asking++;
	*ret = a;
	/* without a hash, one user could get the rights of another */
	if (!text || !SHA256((const uint8_t *)text, strlen(text), a->user_hash))
		out_of_memory();
	fill(a);
	if (is_done(a))
		finish(a);
}

void api_rights_end(struct asking *a)
{
	if (!a)
		return;
	a->fn = NULL;
	a->next = a->n;
	if (!a->n_open)
		asking_free(a);
}
