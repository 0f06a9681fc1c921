/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a hub: options, sign-in, and requests, one at a time, on a loop of its own. A caller waits
 * for the answer, or runs the loop itself and gets the answer in a callback.
 */
#include "cli/client.h"

#include "cli/text.h"
#include "lib/loop/http.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>

#define MAX_TOKEN_BYTES	 (16 << 10)   /* bytes of the file of --token-file */
#define MAX_PEM_BYTES	 (1 << 20)    /* bytes of the file of --ca-file */
#define MAX_ANSWER_BYTES (300u << 20) /* bytes of one answer of the hub; a larger one is an error */
#define TIMEOUT_NS	 (90 * NSEC_PER_SEC) /* of a request; the hub ends a query after 30 s */

struct client {
	const struct client_options *options;
	struct loop *loop;
	struct http_client *http;
	struct tls *tls;
	char *authorization; /* NULL: no header */
	char *left_out;	     /* of the answer that is coming; NULL: nothing */
	client_fn *fn;	     /* of the request that is under way */
	void *arg;
	/* of a question with on_piece */
	int (*on_piece)(const void *p, size_t n, void *arg);
	void *piece_arg;
	struct http_call *call;
	int status;	    /* of its answer, once it has come */
	struct buf refusal; /* the body of another status than 200 */
};

/* ---- options ---- */

static const struct argp_option option_list[] = {
	{"url", 'u', "URL", 0, "address of the hub (default: " CLIENT_DEFAULT_URL ")", 0},
	{"server", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"token-file", 't', "FILE", 0, "file with the bearer token for a hub in a cluster", 0},
	{"ca-file", 'c', "FILE", 0,
	 "file with the CA of the hub's certificate (default: those of the system)", 0},
	{"insecure", 'k', NULL, 0, "do not check the hub's certificate", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct client_options *o = state->input;

	switch (key) {
	case 'u':
		o->url = arg;
		return 0;
	case 't':
		o->token_file = arg;
		return 0;
	case 'c':
		o->ca_file = arg;
		return 0;
	case 'k':
		o->insecure = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cli_client_argp = {option_list, parse_option, NULL, NULL, NULL, NULL, NULL};

int cli_client_url_parse(const char *text, struct url *ret, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};
	struct field_error e = {0};

	if (url_parse(text, &u, &e) < 0 && strchr(text, '@'))
		/* url_parse()'s own message does not contain the URL, which may have a password */
		return field_error_set(reterr, "--url", "%s", e.reason);
	if (*e.reason)
		return field_error_set(reterr, "--url", "'%.200s' %s", text, e.reason);
	if (*u.path)
		return field_error_set(reterr, "--url",
				       "'%.200s': the address must end after host and port", text);
	*ret = u;
	u = (struct url){0};
	return 0;
}

static int read_text(const char *option, const char *path, size_t max, char **ret,
		     struct field_error *reterr)
{
	int r = path ? file_read(AT_FDCWD, path, max, ret, NULL) : 0;

	return r ? field_error_set(reterr, option, "%s: %s", *path ? path : "''",
				   file_error_text(r))
		 : 0;
}

static int make_authorization(const struct client_options *o, char **ret,
			      struct field_error *reterr)
{
	_cleanup_free_ char *token = NULL;
	int r = read_text("--token-file", o->token_file, MAX_TOKEN_BYTES, &token, reterr);
	size_t n;

	if (r || !token)
		return r;
	n = strlen(token);
	while (n && isspace((unsigned char)token[n - 1]))
		token[--n] = '\0';
	for (const char *c = token; *c; c++)
		if (*c <= ' ' || *c > '~')
			return field_error_set(reterr, "--token-file", "%s does not hold a token",
					       o->token_file);
	if (!n)
		return field_error_set(reterr, "--token-file", "%s is empty", o->token_file);
	*ret = xasprintf("Authorization: Bearer %s", token);
	return 0;
}

static bool stays_here(const char *host)
{
	return streq(host, "localhost") || streq(host, "::1") || str_has_prefix(host, "127.");
}

/* ---- asking ---- */

static int open_tls(struct client *c, const char *ca, struct field_error *reterr)
{
	const char *ca_file = c->options->ca_file;
	struct tls_config t = {.ca_pem = ca, .ca_name = ca_file, .insecure = c->options->insecure};
	struct field_error e = {0};
	int r = tls_new(&t, false, &c->tls, &e);

	if (!r)
		return 0;
	if (!*e.reason)
		return field_error_set(reterr, "TLS", "%s", strerror(-r));
	return field_error_set(reterr, "--ca-file", "%s: %s", ca_file, e.reason);
}

static int connect_hub(struct client *c, struct field_error *reterr)
{
	const struct client_options *o = c->options;
	_cleanup_free_ char *ca = NULL;
	_cleanup_(url_done) struct url url = {0};
	struct http_client_config h = {.user_agent = "podflame/" PODFLAME_VERSION};
	int r = cli_client_url_parse(o->url, &url, reterr);

	if (!r && o->token_file && !url.tls && !stays_here(url.host))
		r = field_error_set(reterr, "--token-file",
				    "not sent to '%.200s': the connection is not encrypted",
				    o->url);
	if (!r)
		r = read_text("--ca-file", o->ca_file, MAX_PEM_BYTES, &ca, reterr);
	if (!r && url.tls)
		r = open_tls(c, ca, reterr);
	if (!r) {
		h.address = url.host;
		h.port = url.port;
		h.tls = c->tls;
		r = http_client_new(c->loop, &h, &c->http);
		if (r)
			field_error_set(reterr, "--url", "'%.200s' cannot be used: %s", o->url,
					strerror(-r));
	}
	return r;
}

static void forget_hub(struct client *c)
{
	c->http = http_client_free(c->http);
	c->tls = tls_unref(c->tls);
	free(TAKE_PTR(c->authorization));
}

int cli_client_renew(struct client *c, struct field_error *reterr)
{
	int r;

	forget_hub(c);
	r = make_authorization(c->options, &c->authorization, reterr);
	if (!r)
		r = connect_hub(c, reterr);
	if (r)
		forget_hub(c);
	return r;
}

struct loop *cli_client_loop(struct client *c)
{
	return c->loop;
}

int cli_client_new(const struct client_options *o, struct client **ret, struct field_error *reterr)
{
	struct client *c = xcalloc(1, sizeof(*c));
	int r = loop_new(&c->loop);

	c->options = o;
	if (r)
		field_error_set(reterr, "loop", "%s", strerror(-r));
	else
		r = cli_client_renew(c, reterr);
	if (r) {
		cli_client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct client *cli_client_free(struct client *c)
{
	if (!c)
		return NULL;
	forget_hub(c);
	loop_free(c->loop);
	free(c->left_out);
	buf_done(&c->refusal);
	free(c);
	return NULL;
}

static void head_came(int status, const struct http_headers *h, void *arg)
{
	struct client *c = arg;
	const char *left_out = http_header(h, "Podflame-Left-Out");

	c->status = status;
	free(c->left_out);
	c->left_out = left_out ? xstrdup(left_out) : NULL;
}

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct client *c = arg;
	struct client_answer a = {.status = status, .n = n, .error = xstrdup(error)};

	a.body = xmalloc(n + 1); /* not xstrndup(): a file may have NULs */
	if (n)
		memcpy(a.body, body, n);
	a.body[n] = '\0';
	a.left_out = TAKE_PTR(c->left_out);
	c->fn(&a, c->arg);
	cli_client_answer_done(&a);
}

static void piece_came(const void *p, size_t n, void *arg)
{
	struct client *c = arg;

	if (c->status != 200) {
		buf_add(&c->refusal, p, n);
	} else if (c->on_piece(p, n, c->piece_arg)) {
		http_cancel(c->call);
		answered(c->status, NULL, 0, NULL, c);
	}
}

static void pieces_ended(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct client *c = arg;

	(void)body;
	(void)n;
	answered(status, c->refusal.data, c->refusal.len, error, arg);
}

int cli_client_send(struct client *c, const struct client_question *q, client_fn *fn, void *arg,
		    struct field_error *reterr)
{
	_cleanup_free_ char *type =
		q->content_type ? xasprintf("Content-Type: %s", q->content_type) : NULL;
	const char *headers[] = {type ? type : c->authorization, type ? c->authorization : NULL,
				 NULL};
	struct http_request h = {.method = q->method,
				 .path = q->path,
				 .headers = headers,
				 .body = q->body,
				 .body_bytes = q->n_body,
				 .timeout_ns = TIMEOUT_NS,
				 .max_body_bytes = MAX_ANSWER_BYTES,
				 .on_head = head_came,
				 .on_data = q->on_piece ? piece_came : NULL,
				 .on_done = q->on_piece ? pieces_ended : answered,
				 .arg = c};
	int r;

	c->fn = fn;
	c->arg = arg;
	c->on_piece = q->on_piece;
	c->piece_arg = q->arg;
	buf_done(&c->refusal);
	buf_init(&c->refusal, MAX_ANSWER_BYTES);
	r = c->http ? http_send(c->http, &h, &c->call) : -ENOTCONN;
	return r ? field_error_set(reterr, c->options->url, "%s", strerror(-r)) : 0;
}

struct waiting {
	struct client *client;
	struct client_answer *answer;
};

static void end_waiting(struct client_answer *a, void *arg)
{
	struct waiting *w = arg;

	*w->answer = *a;
	*a = (struct client_answer){0};
	loop_stop(w->client->loop, 0);
}

int cli_client_ask(struct client *c, const struct client_question *q, struct client_answer *ret,
		   struct field_error *reterr)
{
	struct waiting w = {c, ret};
	int r = cli_client_send(c, q, end_waiting, &w, reterr);

	if (r)
		return r;
	r = loop_run(c->loop);
	return r ? field_error_set(reterr, c->options->url, "%s", strerror(-r)) : 0;
}

void cli_client_answer_done(struct client_answer *a)
{
	free(a->body);
	free(a->error);
	free(a->left_out);
	*a = (struct client_answer){0};
}

char *cli_client_refusal(const struct client *c, const struct client_answer *a)
{
	_cleanup_json_ json_t *reply = json_loadb(a->body ?: "", a->n, 0, NULL);
	_cleanup_buf_ struct buf plain = {0};
	const char *why = json_str_at(reply, "DESCRIPTION", NULL);

	if (!why)
		why = json_str_at(reply, "error", NULL);
	if (!a->status)
		return xasprintf("%s: %s", c->options->url, a->error ? a->error : "no answer");
	if (!why)
		return xasprintf("%s: the answer does not come from podflame's API (HTTP %d)",
				 c->options->url, a->status);
	cli_put_name(&plain, why);
	return xasprintf("%s (HTTP %d)%s", plain.data ?: "", a->status,
			 a->status == 401 && !c->options->token_file
				 ? "; give the token with --token-file"
				 : "");
}

void cli_client_print_refusal(const struct client *c, const struct client_answer *a,
			      const char *who)
{
	_cleanup_free_ char *text = cli_client_refusal(c, a);

	fprintf(stderr, "%s: %s\n", who, text);
}
