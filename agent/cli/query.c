/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame query: asks a hub over its API and prints folded stacks, a table, the API's JSON, or a
 * file as the hub makes it.
 */
#include "cli/cli.h"

#include "cli/client.h"
#include "cli/query.h"
#include "lib/profile/profile.h"

#include <stdlib.h>

enum format { FORMAT_TABLE, FORMAT_FOLDED, FORMAT_JSON, FORMAT_PPROF, FORMAT_SPEEDSCOPE };

static const struct {
	const char *name, *path;
	bool file; /* the answer is printed as it is */
} formats[] = {
	[FORMAT_TABLE] = {"table", "/v1/profile/ProfileTracing", false},
	[FORMAT_FOLDED] = {"folded", "/v1/profile/ProfileTracing", false},
	[FORMAT_JSON] = {"json", "/v1/profile/ProfileTracing", false},
	[FORMAT_PPROF] = {"pprof", "/v1/profile/pprof", true},
	[FORMAT_SPEEDSCOPE] = {"speedscope", "/v1/profile/speedscope", true},
};

struct query_options {
	struct client_options hub;
	const char *event, *app_service, *filter, *from, *to;
	enum format format;
	uint64_t limit;
};

static const struct argp_option option_list[] = {
	{"from", 'f', "TIME", 0,
	 "begin: -15m, 2026-11-21T13:00:00Z or Unix seconds (default: -15m)", 0},
	{"to", 'T', "TIME", 0, "end: the same forms, or now (default: now)", 0},
	{"event", 'e', "EVENT", 0, "which event", 0},
	{"app-service", 'a', "NAME", 0, "name of a process (default: all)", 0},
	{"tag-filter", 'q', "TEXT", 0, "a filter, such as pod_ns='app' AND pod LIKE 'web-*'", 0},
	{"filter", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"format", 'F', "FORMAT", 0, "table, folded, json, pprof or speedscope (default: table)",
	 0},
	{"limit", 'n', "N", 0, "rows of the table; 0 shows all (default: 50)", 0},
	{0},
};

static void parse_format(struct argp_state *state, struct query_options *o, const char *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (streq(formats[i].name, arg)) {
			o->format = (enum format)i;
			return;
		}
	argp_error(state, "--format: '%s' is not one of table, folded, json, pprof, speedscope",
		   arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct query_options *o = state->input;
	const struct {
		int key;
		const char **to;
	} texts[] = {
		{'f', &o->from},	{'T', &o->to},	   {'e', &o->event},
		{'a', &o->app_service}, {'q', &o->filter},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].key == key) {
			*texts[i].to = arg;
			return 0;
		}
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->hub;
		return 0;
	case 'F':
		parse_format(state, o, arg);
		return 0;
	case 'n':
		if (str_to_u64(arg, 1000000, &o->limit))
			argp_error(state, "--limit: '%s' is not a number from 0 to 1000000", arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected here", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- values of options ---- */

int cli_query_time_parse(const char *s, uint64_t now_wall_ns, int64_t *ret_s)
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
	/* not before second 1, because the API takes 0 as a missing value */
	*ret_s = (int64_t)MAX(v / NSEC_PER_SEC, (uint64_t)1);
	return 0;
}

static int make_body(const struct query_options *o, char **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *body = NULL;
	uint64_t now_ns = now_wall_ns();
	int64_t from, to;

	if (cli_query_time_parse(o->from, now_ns, &from))
		return field_error_set(reterr, "--from",
				       "'%.100s' is not a time (such as -15m, now, Unix seconds, "
				       "2026-11-21T13:00:00Z)",
				       o->from);
	if (cli_query_time_parse(o->to, now_ns, &to))
		return field_error_set(reterr, "--to",
				       "'%.100s' is not a time (such as -15m, now, Unix seconds, "
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

/* ---- requests ---- */

static int send_question(const struct query_options *o, struct client **ret_client,
			 struct client_answer *ret, struct field_error *reterr)
{
	_cleanup_free_ char *body = NULL;
	struct client_question q = {.method = "POST",
				    .path = formats[o->format].path,
				    .content_type = "application/json"};
	int r = make_body(o, &body, reterr);

	if (!r)
		r = cli_client_new(&o->hub, ret_client, reterr);
	if (r)
		return r;
	q.body = body;
	q.n_body = strlen(body);
	return cli_client_ask(*ret_client, &q, ret, reterr);
}

/* ---- answers ---- */

static int print(const void *text, size_t n)
{
	errno = 0;
	if (n && fwrite(text, 1, n, stdout) < n)
		return errno ? -errno : -EIO;
	return cli_flush();
}

static int print_answer(const struct client_answer *a, const struct query_options *o,
			const json_t *reply)
{
	_cleanup_buf_ struct buf out = {0}, notes = {0};
	int r;

	if (o->format == FORMAT_JSON) {
		r = print(a->body, a->n);
		return r ? r : print("\n", 1);
	}
	r = o->format == FORMAT_TABLE ? cli_query_print_table(reply, o->limit, &out)
				      : cli_query_print_folded(reply, &out);
	if (!r)
		r = print(out.data, out.len);
	if (r)
		return r;
	cli_query_print_notes(reply, &notes);
	fwrite(notes.data ? notes.data : "", 1, notes.len, stderr);
	return 0;
}

static int finish(const struct client *c, const struct client_answer *a,
		  const struct query_options *o)
{
	_cleanup_json_ json_t *reply = NULL;
	int r;

	if (a->status != 200) {
		cli_client_print_refusal(c, a, "podflame query");
		return 1;
	}
	reply = formats[o->format].file ? NULL : json_loadb(a->body, a->n, 0, NULL);
	r = formats[o->format].file ? print(a->body, a->n)
	    : reply		    ? print_answer(a, o, reply)
				    : -EBADMSG;
	if (r == -EBADMSG)
		fprintf(stderr,
			"podflame query: %s: the answer does not come from podflame's API\n",
			o->hub.url);
	else if (r && r != -EPIPE) /* EPIPE: the reader has closed the pipe, which is no failure */
		fprintf(stderr, "podflame query: cannot print: %s\n", strerror(-r));
	return r ? 1 : 0;
}

int cli_cmd_query(int argc, char **argv)
{
	static const struct argp_child children[] = {{&cli_client_argp, 0, "The hub:", 0}, {0}};
	static const struct argp argp = {
		option_list,
		parse_option,
		NULL,
		"Asks a hub for a profile and prints it.\v"
		"Example: podflame query --from -1h --tag-filter \"pod_ns='app'\"\nWaits for "
		"locks: podflame query -e off-cpu --tag-filter \"wait='lock'\"\nExit status: 0 the "
		"hub answered, 1 it did not, 2 bad usage. API and filters: docs/api.md.",
		children,
		cli_event_help,
		NULL};
	struct query_options o = {.hub = {.url = CLIENT_DEFAULT_URL},
				  .event = "on-cpu",
				  .app_service = "",
				  .filter = "",
				  .from = "-15m",
				  .to = "now",
				  .limit = 50};
	static char name[] = "podflame query";
	struct client_answer answer = {0};
	struct client *client = NULL;
	struct field_error e = {0};
	int r;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &o);
	r = send_question(&o, &client, &answer, &e);
	if (r)
		fprintf(stderr, "podflame query: %s: %s\n", e.path, e.reason);
	r = r ? 2 : finish(client, &answer, &o);
	cli_client_answer_done(&answer);
	cli_client_free(client);
	return r;
}
