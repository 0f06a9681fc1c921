/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame doctor: what podflame can profile on this machine, or in one process, and what prevents
 * more. See docs/doctor.md.
 */
#include "cli/doctor.h"

#include "cli/cli.h"
#include "node/learn/learn.h"

#include <argp.h>

static const struct argp_option option_list[] = {
	{"pid", 'p', "PID", 0, "check this process, too", 0},
	{"json", 'j', NULL, 0, "print JSON", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct doctor *d = state->input;
	uint64_t pid;

	switch (key) {
	case 'p':
		if (str_to_u64(arg, 1u << 22, &pid) || !pid)
			argp_error(state, "--pid: '%s' is not a process id", arg);
		d->pid = (uint32_t)pid;
		return 0;
	case 'j':
		d->as_json = true;
		return 0;
	default:
		return cli_parse_other(key, arg, state);
	}
}

json_t *cli_doctor_tell(struct doctor *d, const char *check, bool ok, const char *detail)
{
	json_t *c = json_pack("{s:s, s:b, s:s}", "check", check, "ok", ok, "detail", detail);

	json_array_append_new(d->checks, c);
	d->n_bad += !ok;
	return c;
}

static void print(const struct doctor *d)
{
	size_t i;
	json_t *c;

	if (d->as_json) {
		json_dumpf(d->checks, stdout, JSON_INDENT(1));
		printf("\n");
		return;
	}
	json_array_foreach (d->checks, i, c)
		printf("%-4s %-28s %s\n", json_bool_at(c, "ok", false) ? "ok" : "NO",
		       json_str_at(c, "check", ""), json_str_at(c, "detail", ""));
}

const struct argp cli_doctor_argp = {
	option_list,
	parse_option,
	"",
	"Says what podflame can profile on this machine, or with --pid in one process, and why not "
	"more.\v"
	"Exit status: 0 every check is ok, 1 one is not, 2 bad usage. What the checks say: "
	"docs/doctor.md.",
	NULL,
	NULL,
	NULL};

int cli_cmd_doctor(int argc, char **argv)
{
	static char name[] = "podflame doctor";
	const struct files_config fc = {.parser.marks = learn_markers(),
					.host_debug_dir = "/usr/lib/debug",
					.patient = true};
	struct doctor d = {0};
	struct files *files = NULL;
	json_t *process, *machine = json_array();
	int r;

	argv[0] = name;
	argp_err_exit_status = 2;
	argp_parse(&cli_doctor_argp, argc, argv, 0, NULL, &d);
	d.checks = process = json_array();
	if (files_new(&fc, &files))
		cli_doctor_tell(&d, "parse child", false, "podflame cannot start it");
	/*
	 * the checks of the machine run first, because they measure the cost of a hit of a probe,
	 * which the checks of the process show
	 */
	d.checks = machine;
	if (files)
		cli_doctor_machine(&d, files);
	d.checks = process;
	if (d.pid && files)
		cli_doctor_process(&d, files);
	json_array_extend(process, machine);
	json_decref(machine);
	print(&d);
	r = cli_flush();
	if (r && r != -EPIPE)
		fprintf(stderr, "podflame doctor: cannot print: %s\n", strerror(-r));
	files_free(files);
	json_decref(d.checks);
	return d.n_bad || r ? 1 : 0;
}
