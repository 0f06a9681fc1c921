/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which namespaces a user has a right: a SubjectAccessReview for each one that the cache does
 * not have. All questions together have a limit for the reviews that are under way. Of each user
 * one question is served at a time, and the users take turns.
 */
#include "hub/api/auth.h"

#include <openssl/sha.h>
#include <stdlib.h>

#define MAX_OPEN  32   /* reviews of namespaces under way at once, of all requests together */
#define MAX_ASKED 1000 /* reviews that one request may cause */

struct asking {
	struct gate *gate;
	json_t *user;
	const struct gate_right *right;
	char *const *names;
	size_t n, next, n_open; /* n_open: the reviews that the API server has not answered yet */
	size_t n_asked;
	enum may_see *may;
	uint8_t user_hash[SHA256_DIGEST_LENGTH]; /* of all that decides about its rights */
	uint8_t name_hash
		[SHA256_DIGEST_LENGTH]; /* of whose turn it is: tokens differ in the rest */
	uint64_t turn;			/* of its last review, among all */
	int status;
	char *error;
	bool waits;    /* for an earlier question of the same user */
	asking_fn *fn; /* NULL: the question was ended */
	void *arg;
	struct asking **self, *later;
};

/* One review that is under way. */
struct one {
	struct asking *asking;
	size_t i; /* of the namespace */
};

/* ---- the list of questions ---- */

static struct asking *of_same_user(struct asking *from, const struct asking *a)
{
	for (; from && from != a; from = from->later)
		if (memcmp(from->name_hash, a->name_hash, sizeof(a->name_hash)) == 0)
			return from;
	return NULL;
}

static void add_last(struct asking *a)
{
	struct asking **end = &a->gate->askings;

	a->waits = of_same_user(a->gate->askings, a) != NULL;
	while (*end)
		end = &(*end)->later;
	*end = a;
}

/* Takes the question out of the list. The next one of its user need not wait any more. */
static void take_out(struct asking *a)
{
	struct asking **at = &a->gate->askings, *next;

	while (*at != a)
		at = &(*at)->later;
	*at = a->later;
	for (next = a->waits ? NULL : a->later; next; next = next->later)
		if (memcmp(next->name_hash, a->name_hash, sizeof(a->name_hash)) == 0) {
			next->waits = false;
			return;
		}
}

static void asking_free(struct asking *a)
{
	take_out(a);
	json_decref(a->user);
	free(a->may);
	free(a->error);
	free(a);
}

/* ---- asking ---- */

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

static void go_on(struct gate *g);

static void answered(const struct auth_verdict *v, void *arg)
{
	struct one *one = arg;
	struct asking *a = one->asking;
	struct gate *g = a->gate;

	a->may[one->i] = v->status == 200 ? MAY_SEE : MAY_NOT_SEE;
	free(one);
	a->n_open--;
	g->n_open--;
	if (v->status != 200 && v->status != 403 && a->status == 200) {
		a->status = 503;
		a->error = xstrdup(v->error);
		a->next = a->n; /* no further ones */
	}
	go_on(g);
}

/* Takes what the cache has, up to the first namespace that must be asked about. false: none. */
static bool take_known(struct asking *a)
{
	for (; a->next < a->n; a->next++) {
		size_t n;
		_cleanup_free_ char *key = key_of(a, a->names[a->next], &n);
		int kept = api_reviews_kept(a->gate->namespaces, key, n);

		if (!kept && a->n_asked < MAX_ASKED)
			return true;
		a->may[a->next] = !kept ? MAY_NOT_KNOWN : kept == 200 ? MAY_SEE : MAY_NOT_SEE;
	}
	return false;
}

/* Asks about the next namespace, which the cache does not have. */
static void ask(struct asking *a)
{
	size_t n, i = a->next++;
	_cleanup_free_ char *key = key_of(a, a->names[i], &n);
	json_t *object = api_access_review(a->user, a->right, a->names[i]);
	struct one *one;

	a->may[i] = MAY_NOT_SEE;
	if (!object) /* the name is no text of JSON: there is no namespace of this name */
		return;
	one = xcalloc(1, sizeof(*one));
	*one = (struct one){a, i};
	a->n_asked++;
	a->n_open++;
	a->turn = ++a->gate->turn;
	a->gate->n_open++;
	api_reviews_ask(a->gate->namespaces, key, n, object, answered, one);
}

static bool is_before(const struct asking *a, const struct asking *b)
{
	return a->n_open != b->n_open ? a->n_open < b->n_open : a->turn < b->turn;
}

/*
 * The question whose turn it is to ask: of those with the fewest reviews under way, the one that
 * has not asked for the longest time. NULL: none.
 */
static struct asking *choose(struct gate *g)
{
	struct asking *best = NULL;

	for (struct asking *a = g->askings; a; a = a->later)
		if (!a->waits && a->fn && (!best || is_before(a, best)) && take_known(a))
			best = a;
	return best;
}

/* A question that needs no further answer, also if the cache has the last ones. NULL: none. */
static struct asking *done(struct gate *g)
{
	for (struct asking *a = g->askings; a; a = a->later)
		if (!a->waits && !a->n_open && (!a->fn || !take_known(a)))
			return a;
	return NULL;
}

static void finish(struct asking *a)
{
	asking_fn *fn = a->fn;
	void *arg = a->arg;
	struct asking copy = *a;

	/* out of the list first, because fn may ask again */
	a->may = NULL;
	a->error = NULL;
	if (fn)
		*a->self = NULL;
	asking_free(a);
	if (fn)
		fn(copy.status, copy.error, copy.may, arg);
	free(copy.may);
	free(copy.error);
}

/* Asks as much as it may, and ends the questions that are answered. */
static void go_on(struct gate *g)
{
	struct asking *a;

	if (g->is_asking) /* the caller's loop goes on */
		return;
	g->is_asking = true;
	do {
		while (g->n_open < MAX_OPEN && (a = choose(g)))
			ask(a);
		a = done(g);
		if (a)
			finish(a);
	} while (a);
	g->is_asking = false;
}

void api_rights_ask(struct gate *g, const json_t *user, const struct gate_right *right,
		    char *const *names, size_t n, asking_fn *fn, void *arg, struct asking **ret)
{
	_cleanup_free_ char *text = json_dumps(user, JSON_SORT_KEYS | JSON_ENCODE_ANY);
	_cleanup_free_ char *name =
		xasprintf("%s/%s", json_str_at(user, "uid", ""), json_str_at(user, "username", ""));
	struct asking *a = xcalloc(1, sizeof(*a));

	*a = (struct asking){
		.gate = g,
		.user = json_incref((json_t *)user),
		.right = right,
		.names = names,
		.n = n,
		.may = xcalloc(n + 1, sizeof(*a->may)),
		.status = 200,
		.fn = fn,
		.arg = arg,
		.self = ret,
	};
	*ret = a;
	/* without a hash, one user could get the rights of another */
	if (!text || !SHA256((const uint8_t *)text, strlen(text), a->user_hash) ||
	    !SHA256((const uint8_t *)name, strlen(name), a->name_hash))
		out_of_memory();
	add_last(a);
	go_on(g);
}

void api_rights_end(struct asking *a)
{
	struct gate *g;

	if (!a)
		return;
	g = a->gate;
	a->fn = NULL;
	a->next = a->n;
	if (!a->n_open)
		asking_free(a);
	go_on(g);
}

/* ---- the right in each of some namespaces ---- */

struct check_in {
	struct asking *asking;
	const struct gate_right *right;
	char **names;
	size_t n;
	gate_in_fn *fn;
	void *arg;
};

static void check_in_done(struct check_in *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->names[i]);
	free(c->names);
	free(c);
}

static void all_asked(int status, const char *error, const enum may_see *may, void *arg)
{
	struct check_in *c = arg;
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; status == 200 && i < c->n; i++) {
		if (may[i] == MAY_SEE)
			continue;
		status = may[i] == MAY_NOT_SEE ? 403 : 503;
		error = text = xasprintf("this user may not do that in namespace %.63s: a Role "
					 "with verb %s on %s.podflame.io is needed there",
					 c->names[i], c->right->verb, c->right->resource);
	}
	c->fn(status, error, c->arg);
	check_in_done(c);
}

void api_gate_check_in(struct gate *g, const json_t *user, const struct gate_right *right,
		       const char *const *namespaces, size_t n, gate_in_fn *fn, void *arg)
{
	struct check_in *c = xcalloc(1, sizeof(*c));

	*c = (struct check_in){.right = right,
			       .names = xcalloc(n + 1, sizeof(*c->names)),
			       .n = n,
			       .fn = fn,
			       .arg = arg};
	for (size_t i = 0; i < n; i++)
		c->names[i] = xstrdup(namespaces[i]);
	api_rights_ask(g, user, right, c->names, n, all_asked, c, &c->asking);
}

void api_rights_stop(struct gate *g, bool answer)
{
	g->is_asking = true; /* no further review begins */
	g->namespaces = api_reviews_free(g->namespaces, answer);
	assert_se(answer || !g->askings);
	while (g->askings) {
		struct asking *a = g->askings;

		a->status = 503;
		free(a->error);
		a->error = xstrdup("the hub is stopping");
		finish(a);
	}
}
