/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sign-in (TokenReview) and the right to read profiles (SubjectAccessReview:
 * get profiles.podflame.io in all namespaces). Nothing is allowed on an answer
 * that could not be had.
 */
#include "hub/api/auth.h"

#include <stdlib.h>
#include <strings.h>

#define MAX_TOKEN_BYTES (16 << 10)
#define NODE_CLAIM	"authentication.kubernetes.io/node-name"

struct authn {
	struct reviews *reviews;
	char *audience; /* NULL: the API server's own */
};

static bool has_text(const json_t *array, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)array, i, item)
		if (str_equal(json_string_value(item), text))
			return true;
	return false;
}

/* An authenticator that knows no audiences answers without any: that is a no. */
static void judge_token(const json_t *status, struct verdict *v, void *arg)
{
	const struct authn *a = arg;

	v->status = 401;
	if (!json_bool_at(status, "authenticated", false)) {
		v->error = json_str_at(status, "error", "the token is not valid");
	} else if (a->audience && !has_text(json_object_get(status, "audiences"), a->audience)) {
		v->error = "the token is not made for this audience";
	} else {
		v->status = 200;
		v->user = json_object_get(status, "user");
	}
}

int authn_new(struct kube *k, const char *audience, struct authn **ret)
{
	struct authn *a = xcalloc(1, sizeof(*a));
	const struct reviews_config c = {
		.kube = k,
		.path = "/apis/authentication.k8s.io/v1/tokenreviews",
		.judge = judge_token,
		.judge_arg = a,
	};

	a->audience = xstrdup(audience);
	a->reviews = reviews_new(&c);
	*ret = a;
	return 0;
}

static struct authn *authn_end(struct authn *a, bool answer)
{
	if (!a)
		return NULL;
	reviews_free(a->reviews, answer);
	free(a->audience);
	free(a);
	return NULL;
}

struct authn *authn_free(struct authn *a)
{
	return authn_end(a, false);
}

static void refuse(verdict_fn *fn, void *arg, const char *error)
{
	const struct verdict v = {.status = 401, .error = error};

	fn(&v, arg);
}

void authn_review(struct authn *a, const char *authorization, verdict_fn *fn, void *arg)
{
	static const char scheme[] = "Bearer ";
	const char *token = authorization + strlen(scheme);
	json_t *object, *spec;

	if (!*authorization)
		return refuse(fn, arg, "a bearer token is needed");
	if (strncasecmp(authorization, scheme, strlen(scheme)) != 0)
		return refuse(fn, arg, "Authorization must be 'Bearer TOKEN'");
	token += strspn(token, " ");
	if (!*token || strlen(token) > MAX_TOKEN_BYTES)
		return refuse(fn, arg, "the bearer token is empty or longer than 16 KiB");
	spec = json_pack("{s:s}", "token", token);
	if (!spec)
		return refuse(fn, arg, "the bearer token is not text");
	if (a->audience)
		json_object_set_new(spec, "audiences", json_pack("[s]", a->audience));
	object = json_pack("{s:s, s:s, s:o}", "apiVersion", "authentication.k8s.io/v1", "kind",
			   "TokenReview", "spec", spec);
	reviews_ask(a->reviews, token, strlen(token), object, fn, arg);
}

struct authn_call {
	authn_fn *fn;
	void *arg;
};

static void authn_done(const struct verdict *v, void *arg)
{
	struct authn_call *c = arg;
	const json_t *claim = json_object_get(json_object_get(v->user, "extra"), NODE_CLAIM);
	const char *node = json_string_value(json_array_get(claim, 0));

	c->fn(v->status, json_str_at(v->user, "username", ""), node ? node : "", v->error, c->arg);
	free(c);
}

void authn_check(struct authn *a, const char *authorization, authn_fn *fn, void *arg)
{
	struct authn_call *c = xcalloc(1, sizeof(*c));

	*c = (struct authn_call){fn, arg};
	authn_review(a, authorization, authn_done, c);
}

/* ---- the right to read ---- */

struct gate {
	struct authn *authn;
	struct reviews *access;
};

struct gate_call {
	struct gate *gate;
	verdict_fn *fn;
	void *arg;
};

static void judge_access(const json_t *status, struct verdict *v, void *arg)
{
	(void)arg;
	v->status = json_bool_at(status, "allowed", false) ? 200 : 403;
	if (v->status == 403)
		v->error = "this user may not read profiles: a ClusterRole with verb get on "
			   "profiles.podflame.io is needed";
}

struct gate *gate_new(struct kube *k)
{
	struct gate *g = xcalloc(1, sizeof(*g));
	const struct reviews_config c = {
		.kube = k,
		.path = "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		.judge = judge_access,
	};

	(void)authn_new(k, NULL, &g->authn);
	g->access = reviews_new(&c);
	return g;
}

struct gate *gate_free(struct gate *g)
{
	if (!g)
		return NULL;
	/* in this order: what ends the first asks nothing of the second any more */
	authn_end(g->authn, true);
	reviews_free(g->access, true);
	free(g);
	return NULL;
}

static void access_done(const struct verdict *v, void *arg)
{
	struct gate_call *c = arg;

	c->fn(v, c->arg);
	free(c);
}

/* "username" of a TokenReview is "user" of a SubjectAccessReview; the rest has the same names. */
static json_t *access_review(const json_t *user)
{
	json_t *spec = json_pack("{s:{s:s, s:s, s:s}, s:O}", "resourceAttributes", "group",
				 "podflame.io", "resource", "profiles", "verb", "get", "user",
				 json_object_get(user, "username"));
	static const char *const same[] = {"uid", "groups", "extra"};

	for (size_t i = 0; spec && i < ARRAY_SIZE(same); i++) {
		json_t *value = json_object_get(user, same[i]);

		if (value)
			json_object_set(spec, same[i], value);
	}
	if (!spec)
		return NULL;
	return json_pack("{s:s, s:s, s:o}", "apiVersion", "authorization.k8s.io/v1", "kind",
			 "SubjectAccessReview", "spec", spec);
}

static void user_known(const struct verdict *v, void *arg)
{
	struct gate_call *c = arg;
	json_t *object = v->status == 200 ? access_review(v->user) : NULL;
	_cleanup_free_ char *key = object ? json_dumps(object, JSON_SORT_KEYS) : NULL;
	const struct verdict odd = {.status = 503,
				    .error = "the API server named no user for the token"};

	if (!object || !key) {
		json_decref(object);
		access_done(v->status == 200 ? &odd : v, c);
		return;
	}
	reviews_ask(c->gate->access, key, strlen(key), object, access_done, c);
}

void gate_check(struct gate *g, const char *authorization, verdict_fn *fn, void *arg)
{
	struct gate_call *c = xcalloc(1, sizeof(*c));

	*c = (struct gate_call){g, fn, arg};
	authn_review(g->authn, authorization, user_known, c);
}
