/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `podflame query`, and their checks. */
#include "cli/query.h"

#include "cli/cli.h"
#include "lib/profile/profile.h"

#include <stdlib.h>

enum option_key { KEY_SERIES = 256, KEY_STEP, KEY_DIFF, KEY_FUNCTION, KEY_UNNAMED };

static const struct argp_option option_list[] = {
	{"from", 'f', "TIME", 0,
	 "begin: -15m, 2026-11-21T13:00:00Z or Unix seconds (default: -15m)", 0},
	{"to", 'T', "TIME", 0, "end: the same forms, or now (default: now)", 0},
	{"event", 'e', "EVENT", 0, "which event", 0},
	{"app-service", 'a', "NAME", 0, "name of a process (default: all)", 0},
	{"tag-filter", 'q', "TEXT", 0, "a filter, such as pod_ns='app' AND pod LIKE 'web-*'", 0},
	{"filter", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"format", 'F', "FORMAT", 0, "form of the answer", 0},
	{"limit", 'n', "N", 0,
	 "rows of the table; 0 shows all (default: 50). With --series: groups (default: 10)", 0},
	{"group-by", 'g', "TAG", 0,
	 "which values of a tag have the profile: pod, image, pod_node, thread, ...", 0},
	{"function", KEY_FUNCTION, "NAME", 0,
	 "with --group-by: which have the function. NAME is as in the table: malloc, or [l] "
	 "malloc for that of libraries only",
	 0},
	{"series", KEY_SERIES, NULL, 0, "the value over time, with --group-by for each group", 0},
	{"step", KEY_STEP, "TIME", 0, "with --series: the length of a step, such as 30s or 5m", 0},
	{"diff", KEY_DIFF, "FROM..TO", 0,
	 "compare with the time FROM..TO, such as -2h..-1h, which is \"before\"", 0},
	{"unnamed", KEY_UNNAMED, "HOW", 0,
	 "functions without a name: module or start, where they begin (default: module)", 0},
	{0},
};

const char *cli_query_format_name(enum query_format f)
{
	static const char *const own[FORMAT_FILES] = {[FORMAT_TABLE] = "table",
						      [FORMAT_JSON] = "json",
						      [FORMAT_CSV] = "csv",
						      [FORMAT_SVG] = "svg"};

	return f < FORMAT_FILES ? own[f] : query_file_format(f - FORMAT_FILES)->name;
}

const struct file_format_info *cli_query_file(enum query_format f)
{
	return f < FORMAT_FILES || f == FORMAT_FOLDED ? NULL : query_file_format(f - FORMAT_FILES);
}

/* Adds the names of the formats that a mode has. The mode _QUERY_MODE_MAX has all. */
static void put_formats(struct buf *out, enum query_mode mode)
{
	for (enum query_format f = 0; f < _FORMAT_MAX; f++)
		if (mode == _QUERY_MODE_MAX || cli_query_path(mode, f))
			buf_printf(out, "%s%s", out->len ? ", " : "", cli_query_format_name(f));
}

static void parse_format(struct argp_state *state, struct query_options *o, const char *arg)
{
	_cleanup_buf_ struct buf known = {0};

	for (enum query_format f = 0; f < _FORMAT_MAX; f++)
		if (streq(cli_query_format_name(f), arg)) {
			o->format = f;
			return;
		}
	put_formats(&known, _QUERY_MODE_MAX);
	argp_error(state, "--format: '%s' is not one of %s", arg, known.data);
}

/* Checks options that depend on each other. */
static void check_together(struct argp_state *state, const struct query_options *o)
{
	static const char *const modes[_QUERY_MODE_MAX] = {[QUERY_PROFILE] = "a profile",
							   [QUERY_GROUPS] = "--group-by",
							   [QUERY_SERIES] = "--series",
							   [QUERY_DIFFERENCE] = "--diff"};
	enum query_mode mode = cli_query_mode(o);
	_cleanup_buf_ struct buf has = {0};

	put_formats(&has, mode);
	if (o->series && o->difference)
		argp_error(state, "--series and --diff do not go together");
	if (o->step && !o->series)
		argp_error(state, "--step needs --series");
	if (!cli_query_path(mode, o->format))
		argp_error(state, "--format: %s has no %s; it has %s", modes[mode],
			   cli_query_format_name(o->format), has.data);
	if (o->function &&
	    (mode != QUERY_GROUPS || (o->format != FORMAT_TABLE && o->format != FORMAT_JSON)))
		argp_error(state, "--function needs --group-by, and a table or json");
	if (mode == QUERY_DIFFERENCE && o->group_by && o->format == FORMAT_TABLE)
		argp_error(state,
			   "--group-by: the table of a difference has no groups; folded, json and "
			   "svg have them");
}

bool cli_query_is_snapshot(const char *name)
{
	enum event event;

	return profile_event_from_name(name, &event) == 0 && profile_event_info(event)->snapshot;
}

error_t cli_query_parse_shared(int key, char *arg, struct argp_state *state,
			       struct query_options *o)
{
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->hub;
		return 0;
	case 'e':
		o->event = arg;
		return 0;
	case 'a':
		o->app_service = arg;
		return 0;
	case 'q':
		o->filter = arg;
		return 0;
	case 'g':
		o->group_by = arg;
		return 0;
	case 'n':
		if (str_to_u64(arg, 1000000, &o->limit))
			argp_error(state, "--limit: '%s' is not a number from 0 to 1000000", arg);
		return 0;
	default:
		return cli_parse_other(key, arg, state);
	}
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct query_options *o = state->input;
	const struct {
		int key;
		const char **to;
	} texts[] = {
		{'f', &o->from},
		{'T', &o->to},
		{KEY_STEP, &o->step},
		{KEY_DIFF, &o->difference},
		{KEY_FUNCTION, &o->function},
		{KEY_UNNAMED, &o->unnamed},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].key == key) {
			*texts[i].to = arg;
			return 0;
		}
	switch (key) {
	case 'F':
		parse_format(state, o, arg);
		return 0;
	case KEY_SERIES:
		o->series = true;
		return 0;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return cli_query_parse_shared(key, arg, state, o);
	}
}

/* Adds the names of formats and events to their options. */
static char *help(int key, const char *text, void *input)
{
	_cleanup_buf_ struct buf names = {0};

	if (key != 'F')
		return cli_event_help(key, text, input);
	put_formats(&names, _QUERY_MODE_MAX);
	return xasprintf("%s: %s (default: table)", text, names.data);
}

static const struct argp_child children[] = {{&cli_client_argp, 0, "The hub:", 0}, {0}};
const struct argp cli_query_argp = {
	option_list,
	parse_option,
	NULL,
	"Asks a hub for a profile and prints it.\v"
	"Example: podflame query --from -1h --tag-filter \"pod_ns='app'\"\n"
	"Waits for locks: podflame query -e off-cpu --tag-filter \"wait='lock'\"\n"
	"Which pods: podflame query --group-by pod --function malloc\n"
	"Since when: podflame query --from -6h --series --group-by pod\n"
	"What has changed: podflame query --from -10m --diff -70m..-60m\n"
	"A flame graph: podflame query --format svg >web.svg\n"
	"Exit status: 0 the answer was printed, 1 it was not, 2 bad usage. More: docs/cli.md.",
	children,
	help,
	NULL};

void cli_query_parse(int argc, char **argv, struct query_options *ret)
{
	static char name[] = "podflame query";

	*ret = (struct query_options){.hub = {.url = CLIENT_DEFAULT_URL},
				      .event = "on-cpu",
				      .app_service = "",
				      .filter = "",
				      .from = "-15m",
				      .to = "now",
				      .limit = QUERY_NOT_GIVEN};
	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_query_argp, argc, argv, 0, NULL, ret);
}
