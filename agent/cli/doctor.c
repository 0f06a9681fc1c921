/* SPDX-License-Identifier: Apache-2.0 */
/* podflame doctor: what can be profiled on this machine, or in one process, and why not. docs/doctor.md. */
#include "cli/doctor.h"

#include "cli/cli.h"
#include "node/probe/probe.h"
#include "node/stack/stack.h"
#include "node/tables.h"

#include <argp.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

static const struct argp_option option_list[] = {
	{"pid", 'p', "PID", 0, "look at this process", 0},
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
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not expected here", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

json_t *doctor_tell(struct doctor *d, const char *check, bool ok, const char *detail)
{
	json_t *c = json_pack("{s:s, s:b, s:s}", "check", check, "ok", ok, "detail", detail);

	json_array_append_new(d->checks, c);
	d->n_bad += !ok;
	return c;
}

static void tell(struct doctor *d, const char *check, bool ok, const char *detail)
{
	doctor_tell(d, check, ok, detail);
}

/* What podflame itself lacks; include/uapi/linux/capability.h. SYS_ADMIN has what was split from it. */
static void check_capabilities(struct doctor *d)
{
	static const struct {
		unsigned bit, also;
		const char *name, *without;
	} wanted[] = {
		{39, 21, "BPF", "no program is loaded"},
		{38, 21, "PERFMON", "nothing is sampled"},
		{19, 19, "SYS_PTRACE", "memory and files of other users' processes cannot be read"},
		{2, 1, "DAC_READ_SEARCH", "files of other users cannot be read"},
		{40, 21, "CHECKPOINT_RESTORE", "deleted files of other users cannot be read"},
		{34, 21, "SYSLOG", "kernel functions have no names"},
	};
	_cleanup_free_ char *status = NULL;
	_cleanup_buf_ struct buf out = {0};
	const char *p = NULL;
	uint64_t have;

	if (file_read(AT_FDCWD, "/proc/self/status", 65536, &status, NULL) == 0)
		p = strstr(status, "CapEff:");
	have = p ? strtoull(p + strlen("CapEff:"), NULL, 16) : 0;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!(have & (1ull << wanted[i].bit | 1ull << wanted[i].also)))
			buf_printf(&out, "%s%s is missing: %s", out.len ? "; " : "", wanted[i].name,
				   wanted[i].without);
	tell(d, "capabilities", !out.len, out.len ? out.data : "all that are needed");
}

static void check_kernel(struct doctor *d)
{
	struct utsname u;

	uname(&u);
	tell(d, "kernel", true, u.release);
	tell(d, "kernel types (BTF)", access("/sys/kernel/btf/vmlinux", R_OK) == 0,
	     "/sys/kernel/btf/vmlinux");
}

static void check_symbols(struct doctor *d, struct files *files)
{
	const struct stacks_config c = {.files = files};
	struct stacks *s = NULL;

	if (stacks_new(&c, &s)) {
		tell(d, "kernel symbols", false, "/proc/kallsyms cannot be read");
		return;
	}
	tell(d, "kernel symbols", !*stacks_kernel_problem(s),
	     *stacks_kernel_problem(s) ? stacks_kernel_problem(s) : "/proc/kallsyms");
	stacks_free(s);
}

static void check_probes(struct doctor *d)
{
	struct probe_config c = {.use_cgroups = true, .use_list = true, .max_sample_hz = 99};
	struct field_error err = {0};
	struct probes *p = NULL;
	const struct support *support;
	size_t n;

	if (cgroup_choose("", &c.hierarchy, &err)) {
		tell(d, "cgroups", false, err.reason);
		c.use_cgroups = false;
	} else {
		tell(d, "cgroups", true, c.hierarchy.v2 ? "version 2" : c.hierarchy.controller);
	}
	if (probes_new(&c, &p, &err)) {
		tell(d, "BPF programs", false, err.reason);
		return;
	}
	support = probes_support(p, &n);
	for (size_t i = 0; i < n; i++)
		tell(d, support[i].feature, support[i].ok,
		     support[i].reason ? support[i].reason : "works");
	probes_free(p);
}

static void check_machine(struct doctor *d, struct files *files)
{
	check_kernel(d);
	check_capabilities(d);
	check_probes(d);
	check_symbols(d, files);
	tell(d, "process files", !*mappings_problem(),
	     *mappings_problem() ? mappings_problem() : "may be read");
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

int cmd_doctor(int argc, char **argv)
{
	static char name[] = "podflame doctor";
	const struct argp argp = {option_list,
				  parse_option,
				  "",
				  "What can be profiled on this machine, or with --pid in one "
				  "process of it, and why not.\v"
				  "Ends with 0 when everything works, 1 when something does not.",
				  NULL,
				  NULL,
				  NULL};
	const struct files_config fc = {.parser.marks = tables_marks(),
					.host_debug_dir = "/usr/lib/debug"};
	struct doctor d = {0};
	struct files *files = NULL;

	argv[0] = name;
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	d.checks = json_array();
	if (files_new(&fc, &files))
		tell(&d, "parse child", false, "could not be started");
	if (d.pid && files)
		doctor_process(&d, files);
	if (files)
		check_machine(&d, files);
	print(&d);
	files_free(files);
	json_decref(d.checks);
	return d.n_bad ? 1 : 0;
}
