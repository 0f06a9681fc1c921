/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `podflame top`, and their checks. */
#include "cli/top.h"

#include "cli/cli.h"

#include <stdlib.h>

#define MAX_LAST_S  (24 * 3600) /* seconds, largest value of --last */
#define MAX_DELAY_S 3600	/* seconds, largest value of --delay */

static const struct argp_option option_list[] = {
	{"event", 'e', "EVENT", 0, "which event", 0},
	{"app-service", 'a', "NAME", 0, "name of a process (default: all)", 0},
	{"tag-filter", 'q', "TEXT", 0, "a filter, such as pod_ns='app' AND pod LIKE 'web-*'", 0},
	{"filter", 0, NULL, OPTION_ALIAS, NULL, 0},
	{"group-by", 'g', "TAG", 0, "begin with the values of a tag instead of functions", 0},
	{"last", 'l', "TIME", 0, "the time that the table is about, up to now (default: 1m)", 0},
	{"delay", 'd', "TIME", 0, "time between two tables (default: 3s)", 0},
	{"limit", 'n', "N", 0, "rows without a terminal; 0 shows all (default: 50)", 0},
	{0},
};

static uint64_t parse_time(struct argp_state *state, const char *option, const char *arg,
			   uint64_t max_s)
{
	uint64_t ns = 0;

	if (cli_parse_seconds(arg, max_s, &ns) || ns < NSEC_PER_SEC)
		argp_error(state, "--%s: '%s' is not a time from 1s to %llus (such as 30s, 5m)",
			   option, arg, (unsigned long long)max_s);
	return ns;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct top_options *o = state->input;

	switch (key) {
	case 'l':
		o->last_s = parse_time(state, "last", arg, MAX_LAST_S) / NSEC_PER_SEC;
		return 0;
	case 'd':
		o->delay_ns = parse_time(state, "delay", arg, MAX_DELAY_S);
		return 0;
	default:
		return cli_query_parse_shared(key, arg, state, &o->query);
	}
}

static const struct argp_child children[] = {{&cli_client_argp, 0, "The hub:", 0}, {0}};
const struct argp cli_top_argp = {
	option_list,
	parse_option,
	NULL,
	"Shows which functions of the last minute have most, again and again, as top does.\v"
	"Keys: q ends, s sorts by the next column, g goes on to the values of the next tag "
	"(process, thread, pod, ...) and back to functions, the space bar pauses.\n"
	"CHANGE is that of the share of self against the same time before.\n"
	"Without a terminal, prints one table and ends. Exit status: 0 the answer was printed, 1 "
	"it "
	"was not, 2 bad usage. More: docs/cli.md.",
	children,
	cli_event_help,
	NULL};

void cli_top_parse(int argc, char **argv, struct top_options *ret)
{
	static char name[] = "podflame top";

	*ret = (struct top_options){.query = {.hub = {.url = CLIENT_DEFAULT_URL},
					      .event = "on-cpu",
					      .app_service = "",
					      .filter = "",
					      .to = "now",
					      .limit = QUERY_NOT_GIVEN},
				    .last_s = 60,
				    .delay_ns = 3 * NSEC_PER_SEC};
	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_top_argp, argc, argv, 0, NULL, ret);
}
