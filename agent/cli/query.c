/* SPDX-License-Identifier: Apache-2.0 */
/* podflame query: asks a hub over its API and prints folded stacks, a table, or the API's JSON. */
#include "cli/cli.h"

#include "cli/query.h"
#include "lib/loop/http.h"

#include <argp.h>
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>

#define DEFAULT_URL	 "http://127.0.0.1:20416"
#define MAX_TOKEN_BYTES	 (16 << 10)
#define MAX_PEM_BYTES	 (1 << 20)
#define MAX_ANSWER_BYTES (300u << 20)
#define TIMEOUT_NS	 (90 * NSEC_PER_SEC) /* the hub gives up after 30 s */

enum format { FORMAT_TABLE, FORMAT_FOLDED, FORMAT_JSON };

struct options {
	const char *url, *token_file, *ca_file, *event, *app_service, *filter, *from, *to;
	bool insecure;
	enum format format;
	uint64_t limit;
};

struct asking {
	struct options options;
	struct loop *loop;
	struct http_client *client;
	struct tls *tls;
	int status; /* HTTP */
	char *body;
	size_t n_body;
	char *error;
};

static const struct argp_option option_list[] = {
	{"url", 'u', "URL", 0, "the hub (" DEFAULT_URL ")", 0},
	{"server", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"token-file", 't', "FILE", 0, "bearer token for a hub in a cluster", 0},
	{"ca-file", 'c', "FILE", 0, "CA of the hub's certificate (the system's)", 0},
	{"insecure", 'k', NULL, 0, "do not check the hub's certificate", 0},
	{"from", 'f', "TIME", 0, "-15m, 2026-11-21T13:00:00Z or Unix seconds (-15m)", 0},
	{"to", 'T', "TIME", 0, "the same, or now (now)", 0},
	{"event", 'e', "EVENT", 0, "what was measured (on-cpu)", 0},
	{"app-service", 'a', "NAME", 0, "one process name (all)", 0},
	{"tag-filter", 'q', "TEXT", 0, "as pod_ns='app' AND pod LIKE 'web-*'", 0},
	{"filter", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"format", 'F', "FORMAT", 0, "table, folded or json (table)", 0},
	{"limit", 'n', "N", 0, "rows of the table; 0: all (50)", 0},
	{0},
};

static void parse_format(struct argp_state *state, struct options *o, const char *arg)
{
	static const char *const names[] = {"table", "folded", "json"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(names[i], arg)) {
			o->format = (enum format)i;
			return;
		}
	argp_error(state, "--format: '%s' is not one of table, folded, json", arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	const struct {
		int key;
		const char **to;
	} texts[] = {
		{'u', &o->url}, {'t', &o->token_file}, {'c', &o->ca_file},     {'f', &o->from},
		{'T', &o->to},	{'e', &o->event},      {'a', &o->app_service}, {'q', &o->filter},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].key == key) {
			*texts[i].to = arg;
			return 0;
		}
	switch (key) {
	case 'k':
		o->insecure = true;
		return 0;
	case 'F':
		parse_format(state, o, arg);
		return 0;
	case 'n':
		if (str_to_u64(arg, 1000000, &o->limit))
			argp_error(state, "--limit: '%s' is not in 0..1000000", arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected here", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- what options say ---- */

int query_url_parse(const char *url, struct query_url *ret, struct field_error *reterr)
{
	bool tls = str_has_prefix(url, "https://");
	const char *host = strstr(url, "://"), *end, *port;
	uint64_t number = tls ? 443 : 80;

	if (!host || (!tls && !str_has_prefix(url, "http://")))
		return field_error_set(reterr, "--url",
				       "'%.200s' does not begin with http:// or https://", url);
	host += strlen("://");
	if (*host == '[') {
		end = strchr(++host, ']');
		port = end ? end + 1 : NULL;
	} else {
		port = end = host + strcspn(host, ":/");
	}
	if (!end || end == host)
		return field_error_set(reterr, "--url", "'%.200s' names no host", url);
	if (*port == ':') {
		_cleanup_free_ char *digits = xstrndup(port + 1, strcspn(port + 1, "/"));

		if (str_to_u64(digits, 65535, &number) || !number)
			return field_error_set(reterr, "--url", "port '%.20s' is not in 1..65535",
					       digits);
		port += 1 + strlen(digits);
	}
	if (*port && !streq(port, "/"))
		return field_error_set(reterr, "--url",
				       "'%.200s': nothing may follow host and port", url);
	*ret = (struct query_url){tls, xstrndup(host, (size_t)(end - host)), (uint16_t)number};
	return 0;
}

int query_time_parse(const char *s, uint64_t now_wall_ns, int64_t *ret_s)
{
	uint64_t v;

	if (streq(s, "now"))
		v = now_wall_ns;
	else if (*s == '-' && str_to_duration_ns(s + 1, &v) == 0 && v < now_wall_ns)
		v = now_wall_ns - v;
	else if (str_to_u64(s, INT64_MAX / NSEC_PER_SEC, &v) == 0)
		v *= NSEC_PER_SEC;
	else if (time_parse(s, &v))
		return -EINVAL;
	*ret_s = (int64_t)(v / NSEC_PER_SEC);
	return 0;
}

static int make_body(const struct options *o, char **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *body = NULL;
	uint64_t now_ns = now_wall_ns();
	int64_t from, to;

	if (query_time_parse(o->from, now_ns, &from))
		return field_error_set(reterr, "--from",
				       "'%.100s' is no time (-15m, now, Unix seconds, "
				       "2026-11-21T13:00:00Z)",
				       o->from);
	if (query_time_parse(o->to, now_ns, &to))
		return field_error_set(reterr, "--to",
				       "'%.100s' is no time (-15m, now, Unix seconds, "
				       "2026-11-21T13:00:00Z)",
				       o->to);
	body = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "app_service", o->app_service,
			 "profile_event_type", o->event, "profile_language_type", "eBPF",
			 "tag_filter", o->filter, "time_start", (json_int_t)from, "time_end",
			 (json_int_t)to, "result_format",
			 o->format == FORMAT_JSON ? "list" : "flat");
	if (!body)
		return field_error_set(reterr, "--tag-filter, --app-service or --event",
				       "is not UTF-8");
	*ret = json_dumps(body, JSON_COMPACT);
	return 0;
}

static int read_text(const char *option, const char *path, size_t max, char **ret,
		     struct field_error *reterr)
{
	int r = path ? file_read(AT_FDCWD, path, max, ret, NULL) : 0;

	return r ? field_error_set(reterr, option, "%s: %s", path, strerror(-r)) : 0;
}

static int make_authorization(const struct options *o, char **ret, struct field_error *reterr)
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
			return field_error_set(reterr, "--token-file", "%s: is no token",
					       o->token_file);
	if (!n)
		return field_error_set(reterr, "--token-file", "%s: is empty", o->token_file);
	*ret = xasprintf("Authorization: Bearer %s", token);
	return 0;
}

/* ---- asking ---- */

static void answered(int status, const char *body, size_t n, const char *error, void *arg)
{
	struct asking *a = arg;

	a->status = status;
	a->body = xstrndup(body ? body : "", n);
	a->n_body = n;
	a->error = xstrdup(error);
	loop_stop(a->loop, 0);
}

static int connect_hub(struct asking *a, struct field_error *reterr)
{
	const struct options *o = &a->options;
	_cleanup_free_ char *ca = NULL;
	struct query_url url = {0};
	struct http_client_config c = {.user_agent = "podflame-query/" PODFLAME_VERSION};
	struct tls_config t = {.insecure = o->insecure};
	int r = query_url_parse(o->url, &url, reterr);

	if (!r)
		r = read_text("--ca-file", o->ca_file, MAX_PEM_BYTES, &ca, reterr);
	t.ca_pem = ca;
	if (!r && url.tls)
		r = tls_new(&t, false, &a->tls, reterr);
	if (!r) {
		c.address = url.host;
		c.port = url.port;
		c.tls = a->tls;
		r = http_client_new(a->loop, &c, &a->client);
		if (r)
			field_error_set(reterr, "--url", "'%.200s' cannot be used: %s", o->url,
					strerror(-r));
	}
	free(url.host);
	return r;
}

static int send_question(struct asking *a, struct field_error *reterr)
{
	_cleanup_free_ char *body = NULL, *authorization = NULL;
	const char *headers[] = {"Content-Type: application/json", NULL, NULL};
	struct http_request q = {.method = "POST",
				 .path = "/v1/profile/ProfileTracing",
				 .headers = headers,
				 .timeout_ns = TIMEOUT_NS,
				 .max_body_bytes = MAX_ANSWER_BYTES,
				 .on_done = answered,
				 .arg = a};
	struct http_call *call;
	int r = make_body(&a->options, &body, reterr);

	if (!r)
		r = make_authorization(&a->options, &authorization, reterr);
	if (!r)
		r = connect_hub(a, reterr);
	if (r)
		return r;
	headers[1] = authorization;
	q.body = body;
	q.body_bytes = strlen(body);
	r = http_send(a->client, &q, &call);
	return r ? field_error_set(reterr, a->options.url, "%s", strerror(-r)) : loop_run(a->loop);
}

/* ---- answers ---- */

static int print_answer(const struct asking *a, const json_t *reply)
{
	_cleanup_buf_ struct buf out = {0}, notes = {0};
	int r;

	if (a->options.format == FORMAT_JSON)
		return fwrite(a->body, 1, a->n_body, stdout) == a->n_body && putchar('\n') == '\n'
			       ? 0
			       : -EIO;
	r = a->options.format == FORMAT_TABLE ? query_print_table(reply, a->options.limit, &out)
					      : query_print_folded(reply, &out);
	if (r)
		return r;
	fwrite(out.data ? out.data : "", 1, out.len, stdout);
	query_print_notes(reply, &notes);
	fwrite(notes.data ? notes.data : "", 1, notes.len, stderr);
	return fflush(stdout) ? -EIO : 0;
}

/* "tag_filter: position 5: ...", as the hub says it. */
static int print_refusal(const struct asking *a, const json_t *reply)
{
	const char *why = json_str_at(reply, "DESCRIPTION", NULL);

	if (!a->status)
		fprintf(stderr, "podflame query: %s: %s\n", a->options.url,
			a->error ? a->error : "no answer");
	else
		fprintf(stderr, "podflame query: %s (HTTP %d)\n", why ? why : "not podflame's API",
			a->status);
	if (a->status == 401 && !a->options.token_file)
		fprintf(stderr, "podflame query: give the token with --token-file\n");
	return 1;
}

static int finish(const struct asking *a)
{
	_cleanup_json_ json_t *reply = json_loadb(a->body, a->n_body, 0, NULL);
	int r;

	if (a->status != 200)
		return print_refusal(a, reply);
	r = reply ? print_answer(a, reply) : -EBADMSG;
	if (r == -EBADMSG)
		fprintf(stderr, "podflame query: %s: the answer is not one of podflame's API\n",
			a->options.url);
	else if (r)
		fprintf(stderr, "podflame query: cannot print: %s\n", strerror(-r));
	return r ? 1 : 0;
}

int cmd_query(int argc, char **argv)
{
	static const struct argp argp = {
		option_list,
		parse_option,
		NULL,
		"Asks a hub for the profile of a time and a filter.\v"
		"Example: podflame query --from -1h --tag-filter \"pod_ns='app'\"\n"
		"Exit status: 0 answered, 1 not answered, 2 bad usage. API: docs/api.md.",
		NULL,
		NULL,
		NULL};
	struct asking a = {.options = {.url = DEFAULT_URL,
				       .event = "on-cpu",
				       .app_service = "",
				       .filter = "",
				       .from = "-15m",
				       .to = "now",
				       .limit = 50}};
	static char name[] = "podflame query";
	struct field_error e = {0};
	int r;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &a.options);
	r = loop_new(&a.loop);
	if (!r)
		r = send_question(&a, &e);
	if (r)
		fprintf(stderr, "podflame query: %s: %s\n", e.path[0] ? e.path : "loop",
			e.reason[0] ? e.reason : strerror(-r));
	r = r ? 2 : finish(&a);
	http_client_free(a.client);
	tls_unref(a.tls);
	loop_free(a.loop);
	free(a.body);
	free(a.error);
	return r;
}
