/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sign-in (TokenReview), and the right to do what the request wants (SubjectAccessReview on a
 * resource of podflame.io in all namespaces). If the API server does not answer, nothing is
 * allowed.
 */
#include "hub/api/auth.h"

#include "hub/issuers/issuers.h"

#include <stdlib.h>
#include <strings.h>

#define MAX_TOKEN_BYTES (16 << 10) /* bytes of a bearer token; a longer one is refused */
#define NODE_CLAIM	"authentication.kubernetes.io/node-name"
#define MAX_TOKENS	4096		    /* tokens in the cache */
#define MAX_RIGHTS	4096		    /* rights in all namespaces in the cache */
#define MAX_PUSHERS	16384		    /* tokens of programs that push, and such rights */
#define MAX_NAMESPACES	65536		    /* rights in one namespace in the cache */
#define KEEP_NO_NS	(10 * NSEC_PER_SEC) /* how long a "no" stays in the cache */
#define KEEP_NO_LONG_NS (60 * NSEC_PER_SEC) /* of one namespace, and of who pushes */

struct gate_call {
	struct gate *gate;
	struct reviews *access; /* which of the gate's is asked about the right */
	const struct gate_right *right;
	struct sign_in_peer *sign_in; /* NULL: the token is no concern of sign_ins.c */
	gate_fn *fn;
	void *arg;
	char *user, *node;
	json_t *info;
};

/* ---- sign-in ---- */

static bool has_text(const json_t *array, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach ((json_t *)array, i, item)
		if (str_equal(json_string_value(item), text))
			return true;
	return false;
}

static bool has_one_of(const json_t *array, const char *const *texts)
{
	for (; *texts; texts++)
		if (has_text(array, *texts))
			return true;
	return false;
}

/*
 * Judges a token. The status names those of the audiences asked for that the token is made for. If
 * an authenticator does not support audiences, it names none. Then the token is refused.
 */
static void judge_token(const json_t *status, struct auth_verdict *v, void *arg)
{
	const struct gate *g = arg;

	v->status = 401;
	if (!json_bool_at(status, "authenticated", false)) {
		v->error = json_str_at(status, "error", "the token is not valid");
	} else if (!has_one_of(json_object_get(status, "audiences"), g->config.audiences)) {
		v->error = "the token is not made for an audience of this hub";
	} else {
		v->status = 200;
		v->user = json_object_get(status, "user");
	}
}

const char *api_gate_bearer(const char *authorization, const char **ret_error)
{
	static const char scheme[] = "Bearer ";
	const char *token = authorization + strlen(scheme);

	*ret_error = "a bearer token is needed";
	if (!*authorization)
		return NULL;
	*ret_error = "Authorization must be 'Bearer TOKEN'";
	if (strncasecmp(authorization, scheme, strlen(scheme)) != 0)
		return NULL;
	token += strspn(token, " ");
	*ret_error = "the bearer token is empty or longer than 16 KiB";
	return *token && strlen(token) <= MAX_TOKEN_BYTES ? token : NULL;
}

static json_t *token_review(const char *token, const char *const *audiences)
{
	json_t *spec = json_pack("{s:s, s:[]}", "token", token, "audiences");

	if (!spec)
		return NULL;
	for (; *audiences; audiences++)
		json_array_append_new(json_object_get(spec, "audiences"), json_string(*audiences));
	return json_pack("{s:s, s:s, s:o}", "apiVersion", "authentication.k8s.io/v1", "kind",
			 "TokenReview", "spec", spec);
}

/* ---- rights ---- */

static void judge_access(const json_t *status, struct auth_verdict *v, void *arg)
{
	(void)arg;
	v->status = json_bool_at(status, "allowed", false) ? 200 : 403;
}

/* What the right is about. */
static json_t *attributes(const struct gate_right *right, const char *place)
{
	size_t ns_at = place ? store_place_ns_at(place) : 0;
	const char *slash = strchr(right->resource, '/');
	_cleanup_free_ char *resource = xstrndup(right->resource, strcspn(right->resource, "/")),
			    *cluster = ns_at ? xstrndup(place, ns_at - 1) : NULL;

	if (ns_at)
		return json_pack("{s:s, s:s, s:s, s:s}", "group", "podflame.io", "resource",
				 "clusters", "verb", right->verb, "name",
				 place[ns_at] ? place : cluster);
	return json_pack("{s:s, s:s, s:s*, s:s, s:s*}", "group", "podflame.io", "resource",
			 resource, "subresource", slash ? slash + 1 : NULL, "verb", right->verb,
			 "namespace", place);
}

/*
 * The field "username" of the TokenReview is named "user" in the SubjectAccessReview; the other
 * fields have the same names.
 */
json_t *api_access_review(const json_t *user, const struct gate_right *right, const char *place)
{
	json_t *spec = json_pack("{s:o, s:O}", "resourceAttributes", attributes(right, place),
				 "user", json_object_get(user, "username"));
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

/* ---- the gate ---- */

static void finish(const struct auth_verdict *v, void *arg)
{
	struct gate_call *c = arg;
	_cleanup_free_ char *forbidden = NULL;

	if (v->status == 403)
		forbidden = xasprintf("this user may not do that: a ClusterRole with verb %s on "
				      "%s.podflame.io is needed",
				      c->right->verb, c->right->resource);
	c->fn(
		&(struct gate_answer){
			.status = v->status,
			.user = v->status == 200 || v->status == 403 ? c->user : "",
			.user_info = v->status == 200 || v->status == 403 ? c->info : NULL,
			.node = c->node ?: "",
			.error = forbidden ?: v->error,
		},
		c->arg);
	json_decref(c->info);
	free(c->user);
	free(c->node);
	free(c);
}

static void user_known(const struct auth_verdict *v, void *arg)
{
	struct gate_call *c = arg;
	const json_t *claim = json_object_get(json_object_get(v->user, "extra"), NODE_CLAIM);
	json_t *object = v->status == 200 ? api_access_review(v->user, c->right, NULL) : NULL;
	_cleanup_free_ char *key = object ? json_dumps(object, JSON_SORT_KEYS) : NULL;
	const struct auth_verdict odd = {.status = 503,
					 .error = "the API server named no user for the token"};

	api_sign_ins_end(c->gate->sign_ins, TAKE_PTR(c->sign_in), v->status == 401);
	if (!object || !key) {
		json_decref(object);
		finish(v->status == 200 ? &odd : v, c);
		return;
	}
	c->user = xstrdup(json_str_at(v->user, "username", ""));
	c->info = json_incref((json_t *)v->user);
	c->node = xstrdup(json_string_value(json_array_get(claim, 0)));
	api_reviews_ask(c->access, key, strlen(key), object, finish, c);
}

/* Whether the API server may be asked about the token. Returns 0, or the status of the refusal. */
static int admit(struct gate *g, struct reviews *tokens, const char *token, const char *peer,
		 struct sign_in_peer **ret, const char **ret_error)
{
	const char *reason;

	if (api_reviews_knows(tokens, token, strlen(token)))
		return 0;
	reason = issuers_hopeless(token, g->own_issuer, g->config.audiences, ret_error);
	if (reason) {
		counter_add(counter("sign_ins_refused_total", "reason", reason), 1);
		return 401;
	}
	return api_sign_ins_begin(g->sign_ins, peer, ret, ret_error);
}

static void check(struct gate *g, struct reviews *tokens, struct reviews *access,
		  const char *authorization, const char *peer, const struct gate_right *right,
		  gate_fn *fn, void *arg)
{
	const char *error, *token = api_gate_bearer(authorization, &error);
	_cleanup_json_ json_t *object = token ? token_review(token, g->config.audiences) : NULL;
	struct sign_in_peer *sign_in = NULL;
	struct gate_call *c;
	int status = 401;

	if (object)
		status = admit(g, tokens, token, peer, &sign_in, &error);
	else if (token)
		error = "the bearer token is not text";
	if (status) {
		fn(&(struct gate_answer){.status = status, .user = "", .node = "", .error = error},
		   arg);
		return;
	}
	c = xcalloc(1, sizeof(*c));
	*c = (struct gate_call){.gate = g,
				.access = access,
				.right = right,
				.sign_in = sign_in,
				.fn = fn,
				.arg = arg};
	api_reviews_ask(tokens, token, strlen(token), TAKE_PTR(object), user_known, c);
}

void api_gate_check(struct gate *g, const char *authorization, const char *peer,
		    const struct gate_right *right, gate_fn *fn, void *arg)
{
	check(g, g->tokens, g->access, authorization, peer, right, fn, arg);
}

void api_gate_check_pusher(struct gate *g, const char *authorization, const char *peer,
			   const struct gate_right *right, gate_fn *fn, void *arg)
{
	check(g, g->pusher_tokens, g->pushers, authorization, peer, right, fn, arg);
}

struct gate *api_gate_new(const struct gate_config *c)
{
	struct gate *g = xcalloc(1, sizeof(*g));
	const struct reviews_config tokens = {
		.kube = c->kube,
		.path = "/apis/authentication.k8s.io/v1/tokenreviews",
		.judge = judge_token,
		.judge_arg = g,
		.max_kept = MAX_TOKENS,
		.spares_yes = true,
		.keep_no_ns = KEEP_NO_NS,
	};
	const struct reviews_config access = {
		.kube = c->kube,
		.path = "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		.judge = judge_access,
		.max_kept = MAX_RIGHTS,
		.keep_no_ns = KEEP_NO_NS,
	};
	struct reviews_config pusher_tokens = tokens, pushers = access, namespaces = access;

	g->config = *c;
	g->own_issuer = c->own_token_file ? issuers_of_file(c->own_token_file) : NULL;
	g->sign_ins = api_sign_ins_new();
	g->tokens = api_reviews_new(&tokens);
	pusher_tokens.max_kept = MAX_PUSHERS;
	g->pusher_tokens = api_reviews_new(&pusher_tokens);
	g->access = api_reviews_new(&access);
	pushers.max_kept = MAX_PUSHERS;
	pushers.keep_no_ns = KEEP_NO_LONG_NS;
	g->pushers = api_reviews_new(&pushers);
	namespaces.max_kept = MAX_NAMESPACES;
	namespaces.keep_no_ns = KEEP_NO_LONG_NS;
	g->namespaces = api_reviews_new(&namespaces);
	return g;
}

struct gate *api_gate_free(struct gate *g, bool answer)
{
	if (!g)
		return NULL;
	/*
	 * Frees the token reviews first. A request goes from the token review to the access review,
	 * never back, so none asks reviews that are freed already.
	 */
	api_reviews_free(g->tokens, answer);
	api_reviews_free(g->pusher_tokens, answer);
	api_reviews_free(g->access, answer);
	api_reviews_free(g->pushers, answer);
	api_rights_stop(g, answer);
	api_sign_ins_free(g->sign_ins);
	free(g->own_issuer);
	free(g);
	return NULL;
}
