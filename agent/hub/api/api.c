/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of each request, and replies. In a cluster, the API server tells the hub who the
 * user is, on every route that shows data. Without Kubernetes, the hub answers only requests whose
 * header Host names this machine. Else a web page could read profiles by making its own host name
 * resolve to 127.0.0.1.
 */
#include "hub/api/api_private.h"

#include "page.h"

#include <stdlib.h>
#include <strings.h>

/*
 * The browser keeps the page, but asks each time whether it is still the same. So a reload costs
 * one small answer, and the page of an upgraded hub is seen at once.
 */
static const char *const page_caching[] = {"Cache-Control: no-cache", "ETag: W/" PAGE_ETAG,
					   "Vary: Accept-Encoding", NULL};

void api_handle_page(struct call *c)
{
	c->caching = page_caching;
	if (c->has_page) {
		api_call_reply(c, 304, NULL, NULL, 0);
		return;
	}
	c->encoded = c->accepts_gzip ? ENCODING_GZIP : ENCODING_NONE;
	api_call_reply(c, 200, "text/html; charset=utf-8", c->accepts_gzip ? page_gzip : page_html,
		       c->accepts_gzip ? sizeof(page_gzip) : sizeof(page_html));
}

void api_handle_info(struct call *c)
{
	const struct api_config *f = &c->api->config;
	struct store_stats store;

	/* The page shows only that the store has a problem; /healthz shows the problem itself. */
	store_stats(f->store, &store);
	api_call_json(
		c, 200,
		json_pack("{s:s, s:s, s:b, s:s, s:s, s:I, s:O, s:o, s:{s:s, s:s}}", "version",
			  f->version, "cluster_name", f->cluster_name, "auth_required",
			  c->api->gate != NULL, "token_hint", f->token_hint, "store_note",
			  *store.error ? "The store has a problem: see /healthz." : f->store_note,
			  "time", (json_int_t)(now_wall_ns() / NSEC_PER_SEC), "tags", c->api->tags,
			  "files", api_files_list(), "links", "trace", f->link_trace, "logs",
			  f->link_logs));
}

/* ---- replies ---- */

/*
 * The page is one file with its script and style, which the browser knows by their hashes. This
 * policy keeps the browser from loading or running anything else.
 */
static const char *const headers[] = {
	"Content-Security-Policy: default-src 'none'; script-src " PAGE_SCRIPT_HASH "; "
	"style-src " PAGE_STYLE_HASH "; connect-src 'self'; img-src data:; base-uri 'none'; "
	"form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options: nosniff",
	"Referrer-Policy: no-referrer",
};
static const char *const not_kept[] = {"Cache-Control: no-store", NULL};
#define RETRY_AFTER   "Retry-After: 2" /* seconds; most queries take less */
#define ROOM_FOR_MORE 8		       /* headers of one reply, with the NULL at their end */

void api_call_free(struct call *c)
{
	api_call_leave(c);
	api_upload_free(c->upload);
	free(c->path);
	free(c->body);
	free(c->parameters);
	free(c->user);
	json_decref(c->user_info);
	store_scope_done(&c->scope);
	free(c->scope_note);
	free(c->left_out);
	free(c->connect.encoding);
	free(c);
}

typedef void reply_fn(struct http_conn *c, int status, const char *content_type,
		      const char *const *headers, const void *body, size_t n);

static void reply_with(reply_fn *fn, const struct call *c, int status, const char *content_type,
		       const void *body, size_t n)
{
	const char *all[ARRAY_SIZE(headers) + ROOM_FOR_MORE];
	_cleanup_free_ char *encoding = NULL, *disposition = NULL, *left_out = NULL;
	_cleanup_free_ char *allow = status == 405 ? api_allowed_methods(c->path) : NULL;
	size_t i = ARRAY_SIZE(headers);

	memcpy(all, headers, sizeof(headers));
	for (const char *const *h = c->caching ?: not_kept; *h; h++)
		all[i++] = *h;
	if (status == 401)
		all[i++] = "WWW-Authenticate: Bearer realm=\"podflame\"";
	if (status == 429 || status == 503)
		all[i++] = RETRY_AFTER;
	if (allow)
		all[i++] = allow;
	if (c->encoded != ENCODING_NONE) {
		encoding = xasprintf("Content-Encoding: %s", api_encoding_name(c->encoded));
		all[i++] = encoding;
	}
	if (status == 200 && c->left_out) {
		left_out = xasprintf("Podflame-Left-Out: %s", c->left_out);
		all[i++] = left_out;
	}
	if (c->file_name) {
		disposition =
			xasprintf("Content-Disposition: attachment; filename=\"%s\"", c->file_name);
		all[i++] = disposition;
	}
	all[i] = NULL;
	fn(c->conn, status, content_type, all, body, n);
}

void api_call_reply(struct call *c, int status, const char *content_type, const void *body,
		    size_t n)
{
	reply_with(http_reply, c, status, content_type, body, n);
	api_call_free(c);
}

void api_call_reply_first(struct call *c, int status, const char *content_type, const void *body,
			  size_t n)
{
	reply_with(http_reply_first, c, status, content_type, body, n);
}

void api_call_reply_more(struct call *c, const void *body, size_t n)
{
	http_reply_more(c->conn, body, n);
}

void api_call_reply_last(struct call *c, const void *body, size_t n)
{
	http_reply_last(c->conn, body, n);
	api_call_free(c);
}

void api_call_cut(struct call *c)
{
	http_reply_cut(c->conn);
	api_call_free(c);
}

const char *api_call_body(const struct call *c, char **ret_made, struct field_error *reterr)
{
	if (streq(c->route->method, "GET"))
		return *ret_made = query_parameters(c->parameters, reterr);
	return c->body;
}

/* ---- the check of the caller ---- */

/* Accepts for example "localhost", "127.0.0.1:20416" and "[::1]:80". */
static bool is_loopback_host(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i]);

		if (strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':'))
			return true;
	}
	return false;
}

static bool is_loopback_origin(const char *origin)
{
	if (!*origin)
		return true;
	return str_has_prefix(origin, "http://") && is_loopback_host(origin + strlen("http://"));
}

/* An empty picture would look like an answer. */
static void say_where_profiles_are(struct call *c)
{
	_cleanup_free_ char *text = xasprintf("this hub keeps no profiles and no symbols: it "
					      "forwards profiles to %s. Ask the hub there",
					      c->api->config.forwards_to);

	api_call_error(c, "RESOURCE_NOT_FOUND", text);
}

static void handle(struct call *c)
{
	if (!api_call_enter(c))
		return;
	if (c->api->config.forwards_to && c->route && c->route->flags & BY_NAMESPACE) {
		say_where_profiles_are(c);
		return;
	}
	if (c->route) {
		c->route->handle(c);
		return;
	}
	for (size_t i = 0; i < c->api->n_pages; i++) {
		const struct debug_page *p = &c->api->pages[i];

		if (!streq(p->path, c->path))
			continue;
		api_call_json(c, 200, p->fn(p->arg));
		return;
	}
	api_call_error(c, "RESOURCE_NOT_FOUND", "there is nothing at this path");
}

/* What the right in all namespaces of the hub's own cluster opens. */
static struct scope rights_of(const struct api *a, const struct gate_answer *answer)
{
	size_t n_clusters = 0;

	if (answer->status != 200)
		return (struct scope){0};
	if (a->config.store)
		store_clusters(a->config.store, &n_clusters);
	return (struct scope){.all = !n_clusters || !answer->user_info, .own = true};
}

/* Whether a call goes on, with what is known of its user; if not, it is refused. */
static bool is_let_in(struct call *c, const struct gate_answer *a)
{
	_cleanup_free_ char *text = NULL;

	if (a->status == 200 ||
	    (a->status == 403 && c->route && c->route->flags & BY_NAMESPACE && a->user_info)) {
		c->user = xstrdup(a->user);
		c->user_info = json_incref((json_t *)a->user_info);
		c->scope = rights_of(c->api, a);
		return true;
	}
	counter_add(counter("api_refused_total", "reason",
			    a->status == 401   ? "no_sign_in"
			    : a->status == 403 ? "not_allowed"
			    : a->status == 429 ? "too_many_sign_ins"
					       : "sign_in_unavailable"),
		    1);
	if (a->status == 401 && *c->api->config.token_hint)
		text = xasprintf("%s; make one with: %s", a->error, c->api->config.token_hint);
	api_call_error(c,
		       a->status == 401	  ? "UNAUTHORIZED"
		       : a->status == 403 ? "FORBIDDEN"
		       : a->status == 429 ? "TOO_MANY_REQUESTS"
					  : "UNAVAILABLE",
		       text ? text : a->error);
	return false;
}

static void checked(const struct gate_answer *a, void *arg)
{
	struct call *c = arg;

	if (is_let_in(c, a))
		handle(c);
}

static struct call *call_new(struct api *a, struct http_conn *conn, const struct http_in *in)
{
	struct call *c = xcalloc(1, sizeof(*c));

	*c = (struct call){
		.api = a,
		.conn = conn,
		.route = api_find_route(in->path, in->method),
		.path = xstrdup(in->path),
		.parameters = xstrdup(in->query),
		.body = xmalloc(in->body_bytes + 1),
		.n_body = in->body_bytes,
		.content_length = in->content_length,
		.began_ns = now_mono_ns(),
		.accepts = api_encoding_of(in->accept_encoding),
		.accepts_gzip = api_accepts(in->accept_encoding, ENCODING_GZIP),
		.has_page = strstr(in->if_none_match, PAGE_ETAG) != NULL,
	};
	if (in->body_bytes)
		memcpy(c->body, in->body, in->body_bytes);
	c->body[c->n_body] = '\0';
	if (c->route && c->route->flags & CONNECT)
		api_connect_begin(c, in);
	return c;
}

/*
 * Checks the Host (without sign-in), the method and the caller's right. If the Host or the method
 * is wrong, this function answers the request. Else it calls done with the result of the check of
 * the right.
 */
static void check(struct call *c, const struct http_in *in, gate_fn *done)
{
	struct api *a = c->api;

	if (!a->gate &&
	    ((*in->host && !is_loopback_host(in->host)) || !is_loopback_origin(in->origin))) {
		counter_add(counter("api_refused_total", "reason", "foreign_host"), 1);
		api_call_error(c, "FORBIDDEN",
			       "without sign-in only requests to localhost, 127.0.0.1 or [::1] are "
			       "answered (headers Host and Origin)");
		return;
	}
	if (c->route && !streq(c->route->method, in->method))
		api_call_error(c, "METHOD_NOT_ALLOWED",
			       "this path takes other methods: see the header Allow");
	else if (!a->gate || (c->route && !c->route->right))
		done(&(struct gate_answer){.status = 200, .user = "", .node = ""}, c);
	else
		api_gate_check(a->gate, in->authorization, in->peer,
			       c->route ? c->route->right : &api_read_profiles, done, c);
}

void api_http(struct http_conn *conn, const struct http_in *in, void *arg)
{
	struct call *c = call_new(arg, conn, in);

	c->upload = api_upload_came(arg, conn);
	counter_add(counter("api_requests_total", "path", c->route ? c->route->path : "other"), 1);
	check(c, in, checked);
}

/* ---- large bodies: only from users who have the right ---- */

static void head_checked(const struct gate_answer *answer, void *arg)
{
	struct call *c = arg;

	if (is_let_in(c, answer))
		api_handle_symbols_head(c);
}

void api_http_head(struct http_conn *conn, const struct http_in *in, void *arg)
{
	const struct route *r = api_find_route(in->path, in->method);

	if (r && r->flags & UPLOAD && streq(r->method, in->method))
		check(call_new(arg, conn, in), in, head_checked);
	else
		http_accept_body(conn, QUERY_MAX_BODY_BYTES);
}

/* ---- start and end ---- */

/* requests of all users that are under way; each holds a connection of the server, which has 256 */
#define MAX_REQUESTS	192
#define MAX_REPLY_BYTES (768u << 20) /* answers that are made or sent, of all users */

int api_new(struct loop *l, const struct api_config *f, struct api **ret)
{
	struct api *a = xcalloc(1, sizeof(*a));

	a->loop = l;
	a->config = *f;
	a->queue = api_queue_new(&(struct query_queue_config){
		.workers = f->query,
		.n_workers = f->n_query,
		.choices = f->choices,
		.max_bytes = f->query_bytes,
	});
	a->shares = api_shares_new((const size_t[_SHARE_MAX]){
		[SHARE_REQUESTS] = MAX_REQUESTS,
		[SHARE_BODY_BYTES] = f->query_bytes,
		[SHARE_REPLY_BYTES] = f->reply_bytes ?: MAX_REPLY_BYTES,
		[SHARE_UPLOAD_BYTES] = f->upload_bytes,
	});
	a->tags = api_tags_new();
	a->scope_names = api_scope_names_new();
	a->config.version = xstrdup(f->version ? f->version : "");
	a->config.cluster_name = xstrdup(f->cluster_name ? f->cluster_name : "");
	a->config.token_hint = xstrdup(f->token_hint ? f->token_hint : "");
	a->config.store_note = xstrdup(f->store_note ? f->store_note : "");
	a->config.ns = xstrdup(f->ns ? f->ns : "");
	a->config.link_trace = xstrdup(f->link_trace ? f->link_trace : "");
	a->config.link_logs = xstrdup(f->link_logs ? f->link_logs : "");
	if (f->kube)
		a->gate = api_gate_new(
			&(struct gate_config){f->kube, f->audiences, f->own_token_file});
	*ret = a;
	return 0;
}

struct api *api_free(struct api *a)
{
	if (!a)
		return NULL;
	api_gate_free(a->gate, true);
	api_queue_free(a->queue);
	api_shares_free(a->shares);
	json_decref(a->tags);
	api_scope_names_free(a->scope_names);
	for (size_t i = 0; i < a->n_pages; i++)
		free(a->pages[i].path);
	free(a->pages);
	free((char *)a->config.version);
	free((char *)a->config.cluster_name);
	free((char *)a->config.token_hint);
	free((char *)a->config.store_note);
	free((char *)a->config.ns);
	free((char *)a->config.link_trace);
	free((char *)a->config.link_logs);
	free(a);
	return NULL;
}

void api_debug(struct api *a, const char *path, json_t *(*fn)(void *arg), void *arg)
{
	GROW(a->pages, a->n_pages, a->cap_pages);
	a->pages[a->n_pages++] = (struct debug_page){xstrdup(path), fn, arg};
}
