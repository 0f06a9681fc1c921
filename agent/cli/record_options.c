/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `record`, and their checks. */
#include "cli/record.h"

#include <argp.h>
#include <stdlib.h>

#define MAX_HZ	       4999	       /* samples per second and CPU, largest value of --hz */
#define MAX_PIDS       256	       /* processes of --pid */
#define MAX_DURATION_S (7 * 24 * 3600) /* seconds, largest value of --duration and --delay */

enum option_key { KEY_UNNAMED = 256 };

static const struct argp_option option_list[] = {
	{"pid", 'p', "PID[,PID...]", 0, "profile these processes, with all of their threads", 0},
	{"cgroup", 'c', "DIR", 0,
	 "profile a cgroup and all cgroups below it. DIR is its directory, or its path in the "
	 "hierarchy by which podflame tells containers apart",
	 0},
	{"hz", 'F', "N", 0, "on-cpu: samples per second on each CPU, 1 to 4999 (default: 99)", 0},
	{"duration", 'd', "S", 0,
	 "how long to record: seconds, or 500ms, 2m, 1h (default: until SIGINT)", 0},
	{"delay", 'D', "S", 0,
	 "leave out the samples of so long a time before the duration: files that are new to "
	 "`record` are read meanwhile (default: 0)",
	 0},
	{"event", 'e', "SAMPLED_EVENT", 0, "what to measure", 0},
	{"min-block", 'b', "T", 0, "off-cpu: leave out shorter waits, 1us to 1s (default: 50us)",
	 0},
	{"max-block", 'B', "T", 0,
	 "off-cpu: a wait counts up to this length, 1ms to 1h (default: 1h)", 0},
	{"sample-bytes", 's', "N", 0,
	 "memory: take one sample every N bytes on average; 1 takes each allocation (default: "
	 "524288)",
	 0},
	{"unnamed", KEY_UNNAMED, "HOW", 0,
	 "functions without a name: module or start, where they begin (default: module)", 0},
	{"output", 'o', "FILE", 0,
	 "the file to write: .folded, .svg (a flame graph), .pb.gz (pprof), .otlp or "
	 ".speedscope.json",
	 0},
	{0},
};

static void parse_pids(struct argp_state *state, struct record_options *o, char *arg)
{
	for (char *s; (s = strsep(&arg, ","));) {
		bool known = false;
		uint64_t pid;

		if (str_to_u64(s, 1u << 22, &pid) || !pid)
			argp_error(state, "--pid: '%s' is not a process id", s);
		for (size_t i = 0; i < o->n_pids; i++)
			known |= o->pids[i] == pid;
		if (known)
			continue;
		if (o->n_pids == MAX_PIDS)
			argp_error(state, "--pid: more than %d processes", MAX_PIDS);
		GROW(o->pids, o->n_pids, o->cap_pids);
		o->pids[o->n_pids++] = (uint32_t)pid;
	}
}

static void parse_duration(struct argp_state *state, struct record_options *o, const char *arg)
{
	if (cli_parse_seconds(arg, MAX_DURATION_S, &o->duration_ns))
		argp_error(state,
			   "--duration: '%s' is not a time of at most %d s (such as 10, 500ms, 2m)",
			   arg, MAX_DURATION_S);
	if (!o->duration_ns)
		argp_error(state, "--duration: must be longer than 0");
}

static void parse_delay(struct argp_state *state, struct record_options *o, const char *arg)
{
	if (cli_parse_seconds(arg, MAX_DURATION_S, &o->delay_ns))
		argp_error(state, "--delay: '%s' is not a time of at most %d s (such as 1, 500ms)",
			   arg, MAX_DURATION_S);
}

static void parse_hz(struct argp_state *state, struct record_options *o, const char *arg)
{
	uint64_t hz;

	if (str_to_u64(arg, MAX_HZ, &hz) || !hz)
		argp_error(state, "--hz: '%s' is not a number from 1 to %d", arg, MAX_HZ);
	o->hz = (unsigned)hz;
}

static void parse_event(struct argp_state *state, struct record_options *o, const char *arg)
{
	_cleanup_free_ char *known = profile_sampled_event_names();
	enum event event;

	if (profile_event_from_name(arg, &event) || !profile_event_info(event)->spec_field)
		argp_error(state, "--event: '%s' is not one of %s", arg, known);
	if (o->event_given && event != o->event)
		argp_error(state,
			   "--event: %s and %s: a recording has one event; run a second `podflame "
			   "record` at the same time for the other",
			   profile_event_info(o->event)->name, arg);
	o->event = event;
	o->event_given = true;
}

static uint64_t parse_time(struct argp_state *state, const char *option, const char *arg,
			   uint64_t min_ns, uint64_t max_ns)
{
	uint64_t ns;

	if (str_to_duration_ns(arg, &ns) || ns < min_ns || ns > max_ns)
		argp_error(state,
			   "--%s: '%s' is not a time from %" PRIu64 " us to %" PRIu64
			   " s (such as 5ms)",
			   option, arg, min_ns / 1000, (uint64_t)(max_ns / NSEC_PER_SEC));
	return ns / 1000;
}

static void parse_sample_bytes(struct argp_state *state, struct record_options *o, const char *arg)
{
	uint64_t n;

	if (str_to_u64(arg, 1u << 31, &n) || !n)
		argp_error(state, "--sample-bytes: '%s' is not a number from 1 to %u", arg,
			   1u << 31);
	o->settings.alloc_sample_bytes = o->settings.inuse_sample_bytes = n;
}

static void parse_unnamed(struct argp_state *state, struct record_options *o, const char *arg)
{
	if (!streq(arg, "module") && !streq(arg, "start"))
		argp_error(state, "--unnamed: '%s' is not one of module, start", arg);
	o->unnamed_by_start = streq(arg, "start");
}

static void check_settings(struct argp_state *state, const struct record_options *o)
{
	bool memory = probes_set_of(o->event) == PROBES_MEMORY;
	const struct event_settings *s = &o->settings;

	if (o->event != EVENT_ON_CPU && o->hz)
		argp_error(state, "--hz needs --event on-cpu");
	if (o->event != EVENT_OFF_CPU && (s->min_block_us || s->max_block_us))
		argp_error(state, "--min-block and --max-block need --event off-cpu");
	if (!memory && s->alloc_sample_bytes)
		argp_error(state, "--sample-bytes needs --event mem-alloc or mem-inuse");
	if (profile_event_info(o->event)->snapshot && o->delay_ns)
		argp_error(state, "--delay: --event %s has what is in use at the end",
			   profile_event_info(o->event)->name);
	if (s->min_block_us && s->max_block_us && s->max_block_us <= s->min_block_us)
		argp_error(state, "--max-block must be longer than --min-block");
}

static void check_output(struct argp_state *state, const char *output)
{
	_cleanup_buf_ struct buf endings = {0};

	if (cli_record_form(output, NULL) != RECORD_UNKNOWN)
		return;
	for (enum file_format f = 0; f < _FILE_FORMAT_MAX; f++)
		buf_printf(&endings, ", .%s", query_file_format(f)->ending);
	argp_error(state, "--output: '%s' must end in one of .folded, .svg%s", output,
		   endings.data);
}

static void check_together(struct argp_state *state, const struct record_options *o)
{
	if (!o->n_pids == !o->cgroup)
		argp_error(state, "give either --pid or --cgroup");
	check_settings(state, o);
	if (!o->output)
		argp_error(state, "--output is missing");
	else
		check_output(state, o->output);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct record_options *o = state->input;

	switch (key) {
	case 'p':
		parse_pids(state, o, arg);
		return 0;
	case 'c':
		if (!*arg)
			argp_error(state, "--cgroup: the path is empty; the root is /");
		o->cgroup = arg;
		return 0;
	case 'F':
		parse_hz(state, o, arg);
		return 0;
	case 'd':
		parse_duration(state, o, arg);
		return 0;
	case 'D':
		parse_delay(state, o, arg);
		return 0;
	case 'e':
		parse_event(state, o, arg);
		return 0;
	case 'b':
		o->settings.min_block_us =
			(uint32_t)parse_time(state, "min-block", arg, 1000, NSEC_PER_SEC);
		return 0;
	case 'B':
		o->settings.max_block_us =
			parse_time(state, "max-block", arg, NSEC_PER_MSEC, 3600 * NSEC_PER_SEC);
		return 0;
	case 's':
		parse_sample_bytes(state, o, arg);
		return 0;
	case KEY_UNNAMED:
		parse_unnamed(state, o, arg);
		return 0;
	case 'o':
		o->output = arg;
		return 0;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return cli_parse_other(key, arg, state);
	}
}

static void set_defaults(struct record_options *o)
{
	struct event_settings *s = &o->settings;

	if (!o->hz)
		o->hz = 99;
	if (!s->min_block_us)
		s->min_block_us = 50;
	if (!s->max_block_us)
		s->max_block_us = 3600 * 1000000ull;
	if (!s->alloc_sample_bytes)
		s->alloc_sample_bytes = s->inuse_sample_bytes = 512 * 1024;
}

const struct argp cli_record_argp = {
	option_list,
	parse_option,
	"",
	"Profiles processes or a cgroup and writes the profile to a file. Needs no hub.\v"
	"Prints \"recording\" on standard error when sampling has begun. Ends on SIGINT or "
	"SIGTERM, after the duration, or when all processes of --pid have ended, and then "
	"writes the complete file. A second signal ends the reading of debug files, so "
	"some names are missing.\n\n--pid follows a process through exec, but does not "
	"profile its children. --cgroup profiles all processes in the cgroup and below it, "
	"also in cgroups that are made later.\n\n"
	"A line of a .folded file is PROCESS;THREAD;FRAME;... and a number. The number is "
	"in samples for on-cpu, in microseconds for off-cpu and on-gpu, in allocated bytes "
	"for mem-alloc and hbm-alloc, for mem-inuse and hbm-inuse in bytes that are still "
	"allocated at the end, and in posted bytes for rdma. A .pb.gz file has the samples "
	"and the unit of the event.\n\nThe memory events (mem-...) put probes on the "
	"allocator of the process, those of GPU memory (hbm-...) on its CUDA driver, "
	"on-gpu on libpodflame-cuda.so, and rdma on libibverbs and the driver of the "
	"device. Each call of these then takes about a microsecond more; `record` has no "
	"limit for that.",
	NULL,
	cli_event_help,
	NULL};

void cli_record_parse(int argc, char **argv, struct record_options *ret)
{
	static char name[] = "podflame record";

	*ret = (struct record_options){.event = EVENT_ON_CPU};
	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_record_argp, argc, argv, 0, NULL, ret);
	set_defaults(ret);
}

void cli_record_options_done(struct record_options *o)
{
	free(o->pids);
	*o = (struct record_options){0};
}
