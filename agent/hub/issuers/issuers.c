/* SPDX-License-Identifier: Apache-2.0 */
/* Decides on the tokens of registered clusters. See issuers.h. */
#include "hub/issuers/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <utlist.h>

#define MAX_WAITING	    256	       /* checks that wait for keys, of all peers */
#define MAX_OWN_TOKEN_BYTES (64 << 10) /* bytes of the file with the token of the own cluster */

/* ---- which registration ---- */

/*
 * Finds the registration whose key the token names. If there is none, *ret_of is one with the
 * issuer of the token; NULL: the issuer is not registered. *ret_key NULL: no key, or *ret_several.
 */
static void find(const struct issuers *i, const struct issuers_token *t,
		 struct registration **ret_of, const struct issuers_key **ret_key,
		 bool *ret_several)
{
	const char *issuer = issuers_token_issuer(t), *kid = issuers_token_kid(t);
	unsigned n_found = 0;

	*ret_of = NULL;
	*ret_key = NULL;
	for (size_t k = 0; k < i->n; k++) {
		struct registration *r = &i->registrations[k];
		const struct issuers_key *key = issuers_keys_find(r->keys, kid);

		if (!streq(r->issuer, issuer) || (*ret_key && !key))
			continue;
		n_found += key != NULL;
		if (!*ret_of || key || (*ret_of)->keys)
			*ret_of = r;
		*ret_key = key;
	}
	*ret_several = n_found > 1;
}

bool issuers_knows(const struct issuers *i, const char *token)
{
	_cleanup_(issuers_token_done) struct issuers_token t = {0};
	const struct issuers_key *key;
	struct registration *of;
	bool several;

	if (issuers_token_parse(token, &t, NULL) < 0)
		return false;
	find(i, &t, &of, &key, &several);
	return of && (key || !str_equal(of->issuer, i->own_issuer));
}

/* ---- the check ---- */

static void accept_token(const struct registration *r, issuers_fn *fn, void *arg)
{
	fn(200, r->name, NULL, arg);
}

static void refuse(const struct field_error *e, issuers_fn *fn, void *arg)
{
	_cleanup_free_ char *text =
		xasprintf("the token of another cluster: %s: %s", e->path, e->reason);

	counter_add(counter("podflame_cluster_tokens_refused_total", "reason", e->path), 1);
	fn(401, NULL, text, arg);
}

struct asker {		  /* of a check */
	const char *peer; /* NULL: the check has waited, and waits no more */
	issuers_fn *fn;
	void *arg;
};

static void not_now(const char *reason, const char *text, const struct asker *a)
{
	counter_add(counter("podflame_cluster_tokens_refused_total", "reason", reason), 1);
	a->fn(503, NULL, text, a->arg);
}

static void have_no_keys(const struct asker *a)
{
	not_now("no_keys", "the hub cannot read the keys of the cluster now", a);
}

/* How many checks of the peer wait. */
static unsigned waiting_of(const struct issuers *i, const char *peer)
{
	const struct waiting *w;
	unsigned n = 0;

	LL_FOREACH (i->waiting, w)
		n += streq(w->peer, peer);
	return n;
}

static void wait_for_keys(struct registration *r, const char *token, const struct asker *a)
{
	struct issuers *i = r->issuers;
	struct waiting *w;

	/* one more must leave as many to others as the peer then has */
	if (waiting_of(i, a->peer) + 1 > MAX_WAITING - MIN(i->n_waiting + 1, MAX_WAITING)) {
		not_now("too_many_wait",
			"too many requests of this address, or of all, wait for the keys of a "
			"cluster; try again",
			a);
		return;
	}
	w = xcalloc(1, sizeof(*w));
	*w = (struct waiting){.token = xstrdup(token),
			      .peer = xstrdup(a->peer),
			      .of = r,
			      .fn = a->fn,
			      .arg = a->arg};
	LL_APPEND(i->waiting, w);
	i->n_waiting++;
}

/* The token names a key that the hub does not have. */
static void check_unknown_key(struct registration *r, const char *token, const struct asker *a)
{
	struct field_error e = {0};

	if (a->peer && r->by_url && issuers_source_ask(r)) {
		wait_for_keys(r, token, a);
	} else if (!r->keys) {
		have_no_keys(a);
	} else {
		field_error_set(&e, "kid", "the keys that are registered have none of this name%s",
				r->by_url ? "" : "; if the cluster has new keys, register them");
		refuse(&e, a->fn, a->arg);
	}
}

static void check(struct issuers *i, const char *token, const struct asker *a)
{
	_cleanup_(issuers_token_done) struct issuers_token t = {0};
	const struct issuers_key *key = NULL;
	struct registration *of = NULL;
	struct field_error e = {0};
	bool several = false;
	int r = issuers_token_parse(token, &t, &e);

	if (r == 0) {
		find(i, &t, &of, &key, &several);
		if (!of)
			r = field_error_set(&e, "iss", "is not registered");
		else if (several)
			r = field_error_set(&e, "kid",
					    "several clusters are registered with this key");
	}
	if (r == 0 && !key) {
		check_unknown_key(of, token, a);
		return;
	}
	if (r == 0)
		r = issuers_token_verify(&t, key, &e);
	if (r == 0)
		r = issuers_token_claims(&t, of->issuer, of->subject, &e);
	if (r == 0)
		accept_token(of, a->fn, a->arg);
	else
		refuse(&e, a->fn, a->arg);
}

void issuers_check(struct issuers *i, const char *token, const char *peer, issuers_fn *fn,
		   void *arg)
{
	loop_assert(i->loop);
	check(i, token, &(struct asker){peer, fn, arg});
}

static void waiting_free(struct waiting *w)
{
	free(w->token);
	free(w->peer);
	free(w);
}

void issuers_answered(struct registration *r)
{
	struct issuers *i = r->issuers;
	struct waiting *w, *next;

	LL_FOREACH_SAFE(i->waiting, w, next)
	{
		if (w->of != r)
			continue;
		LL_DELETE(i->waiting, w);
		i->n_waiting--;
		check(i, w->token, &(struct asker){NULL, w->fn, w->arg});
		waiting_free(w);
	}
}

/* ---- start and end ---- */

char *issuers_of_file(const char *path)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *claims = NULL;
	const char *issuer;

	if (!path || file_read(AT_FDCWD, path, MAX_OWN_TOKEN_BYTES, &text, NULL) < 0)
		return NULL;
	text[strcspn(text, " \t\r\n")] = '\0';
	claims = issuers_token_claims_of(text);
	issuer = json_string_value(json_object_get(claims, "iss"));
	return issuer && *issuer ? xstrdup(issuer) : NULL;
}

int issuers_new(struct loop *l, const struct issuers_config *c, struct issuers **ret,
		struct field_error *reterr)
{
	struct issuers *i = xcalloc(1, sizeof(*i));
	int r;

	loop_assert(l);
	*i = (struct issuers){.loop = l,
			      .tell = c->tell,
			      .arg = c->arg,
			      .own_issuer = issuers_of_file(c->own_token_file)};
	r = issuers_register(i, c->file, c->own_cluster, reterr);
	if (r == 0)
		r = issuers_source_start(i);
	if (r < 0)
		issuers_free(i);
	else
		*ret = i;
	return r;
}

static void registration_done(struct registration *r)
{
	free(r->name);
	free(r->issuer);
	free(r->subject);
	free(r->file);
	url_done(&r->url);
	issuers_keys_free(r->keys);
	free(r->file_problem);
	free(r->url_problem);
	free(r->told);
}

struct issuers *issuers_free(struct issuers *i)
{
	struct waiting *w, *next;

	if (!i)
		return NULL;
	loop_assert(i->loop);
	issuers_source_stop(i);
	LL_FOREACH_SAFE(i->waiting, w, next)
	{
		w->fn(503, NULL, "the hub is stopping", w->arg);
		waiting_free(w);
	}
	for (size_t k = 0; k < i->n; k++)
		registration_done(&i->registrations[k]);
	free(i->registrations);
	free(i->own_issuer);
	free(i);
	return NULL;
}

const char *issuers_cluster(const struct issuers *i, size_t k)
{
	return k < i->n ? i->registrations[k].name : NULL;
}

void issuers_count(const struct issuers *i, unsigned *ret_n, unsigned *ret_n_failed)
{
	*ret_n = (unsigned)i->n;
	*ret_n_failed = 0;
	for (size_t k = 0; k < i->n; k++)
		*ret_n_failed += i->registrations[k].told != NULL;
}
