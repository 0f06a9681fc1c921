/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `record`, checked: what it may be asked for. */
#include "cli/record.h"

#include <argp.h>
#include <stdlib.h>

#define MAX_HZ	       4999
#define MAX_PIDS       256
#define MAX_DURATION_S (7 * 24 * 3600)

static const struct argp_option option_list[] = {
	{"pid", 'p', "PID[,PID...]", 0, "profile these processes, with all of their threads", 0},
	{"cgroup", 'c', "PATH", 0,
	 "profile a cgroup and all below it: its directory, or its path in the hierarchy that "
	 "tells containers apart here",
	 0},
	{"hz", 'F', "N", 0, "on-cpu: samples a second and CPU, 1 to 4999 (99)", 0},
	{"duration", 'd', "S", 0, "seconds, or 500ms, 2m, 1h (until SIGINT)", 0},
	{"event", 'e', "E", 0, "what is measured: on-cpu, off-cpu, mem-alloc or mem-inuse (on-cpu)",
	 0},
	{"min-block", 'b', "T", 0, "off-cpu: shorter waits are left out: 1us to 1s (50us)", 0},
	{"max-block", 'B', "T", 0, "off-cpu: a wait counts until it is so long: 1ms to 1h (1h)", 0},
	{"sample-bytes", 's', "N", 0,
	 "memory: one sample for so many bytes, on average; 1: each allocation (524288)", 0},
	{"output", 'o', "FILE", 0, "ends in .folded or in .pb.gz (pprof)", 0},
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
	uint64_t max_ns = MAX_DURATION_S * NSEC_PER_SEC, s;

	if (!str_to_u64(arg, MAX_DURATION_S, &s))
		o->duration_ns = s * NSEC_PER_SEC;
	else if (str_to_duration_ns(arg, &o->duration_ns) || o->duration_ns > max_ns)
		argp_error(state, "--duration: '%s' is no time of at most %d s (10, 500ms, 2m)",
			   arg, MAX_DURATION_S);
	if (!o->duration_ns)
		argp_error(state, "--duration: 0 records nothing");
}

static void parse_hz(struct argp_state *state, struct record_options *o, const char *arg)
{
	uint64_t hz;

	if (str_to_u64(arg, MAX_HZ, &hz) || !hz)
		argp_error(state, "--hz: '%s' is not in 1..%d", arg, MAX_HZ);
	o->hz = (unsigned)hz;
}

static void parse_event(struct argp_state *state, struct record_options *o, const char *arg)
{
	enum event event;

	if (profile_event_from_name(arg, &event))
		argp_error(state, "--event: '%s' is none of: on-cpu, off-cpu, mem-alloc, mem-inuse",
			   arg);
	if (o->event_given && event != o->event)
		argp_error(state,
			   "--event: %s and %s: one a recording; several may run at the same time",
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
			   "--%s: '%s' is no time of %" PRIu64 " us to %" PRIu64 " s (such as 5ms)",
			   option, arg, min_ns / 1000, (uint64_t)(max_ns / NSEC_PER_SEC));
	return ns / 1000;
}

static void parse_sample_bytes(struct argp_state *state, struct record_options *o, const char *arg)
{
	uint64_t n;

	if (str_to_u64(arg, 1u << 31, &n) || !n)
		argp_error(state, "--sample-bytes: '%s' is not in 1..%u", arg, 1u << 31);
	o->settings.alloc_sample_bytes = o->settings.inuse_sample_bytes = n;
}

static void check_settings(struct argp_state *state, const struct record_options *o)
{
	bool memory = o->event == EVENT_MEM_ALLOC || o->event == EVENT_MEM_INUSE;
	const struct event_settings *s = &o->settings;

	if (o->event != EVENT_ON_CPU && o->hz)
		argp_error(state, "--hz is for --event on-cpu");
	if (o->event != EVENT_OFF_CPU && (s->min_block_us || s->max_block_us))
		argp_error(state, "--min-block and --max-block are for --event off-cpu");
	if (!memory && s->alloc_sample_bytes)
		argp_error(state, "--sample-bytes is for --event mem-alloc and mem-inuse");
	if (s->min_block_us && s->max_block_us && s->max_block_us <= s->min_block_us)
		argp_error(state, "--max-block must be longer than --min-block");
}

static void check_together(struct argp_state *state, const struct record_options *o)
{
	if (!o->n_pids == !o->cgroup)
		argp_error(state, "one of --pid and --cgroup is needed");
	check_settings(state, o);
	if (!o->output)
		argp_error(state, "--output is needed");
	if (!str_has_suffix(o->output, ".folded") && !str_has_suffix(o->output, ".pb.gz"))
		argp_error(state, "--output: '%s' ends neither in .folded nor in .pb.gz",
			   o->output);
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
			argp_error(state, "--cgroup: is empty; / is the root");
		o->cgroup = arg;
		return 0;
	case 'F':
		parse_hz(state, o, arg);
		return 0;
	case 'd':
		parse_duration(state, o, arg);
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
	case 'o':
		o->output = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected here", arg);
		return EINVAL;
	case ARGP_KEY_END:
		check_together(state, o);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
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

void cli_record_parse(int argc, char **argv, struct record_options *ret)
{
	static char name[] = "podflame record";
	const struct argp argp = {
		option_list,
		parse_option,
		"",
		"Profile processes or a cgroup once, into a file; no hub is needed.\v"
		"Prints \"recording\" on standard error when sampling has begun. Ends on SIGINT, "
		"SIGTERM, after the duration, or when all processes of --pid have ended; the file "
		"is complete then; a second signal leaves out names of debug files not read yet. "
		"A process of --pid is followed through exec, its children are "
		"not; below --cgroup everything is, what is made later too.\n\n"
		"A line of a .folded file is PROCESS;THREAD;FRAME;... and a number: samples of "
		"on-cpu, microseconds of off-cpu, bytes of mem-alloc, and of mem-inuse those that "
		"were still alive at the end; a .pb.gz file carries samples and the event's unit. "
		"Memory events put probes on the process's allocator, each hit of which takes "
		"about "
		"a microsecond of it: nothing limits that here.",
		NULL,
		NULL,
		NULL};

	*ret = (struct record_options){.event = EVENT_ON_CPU};
	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, ret);
	set_defaults(ret);
}

void cli_record_options_done(struct record_options *o)
{
	free(o->pids);
	*o = (struct record_options){0};
}
