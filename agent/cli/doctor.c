/* SPDX-License-Identifier: Apache-2.0 */
/* podflame doctor: what can be profiled on this machine, or in one process, and why not. */
#include "cli/cli.h"

#include "node/probe/probe.h"
#include "node/stack/stack.h"

#include <argp.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

struct doctor {
	uint32_t pid; /* 0: the machine */
	bool as_json;
	json_t *checks; /* [{check, ok, detail}] */
	unsigned n_bad;
};

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

static void tell(struct doctor *d, const char *check, bool ok, const char *detail)
{
	json_array_append_new(d->checks, json_pack("{s:s, s:b, s:s}", "check", check, "ok", ok,
						   "detail", detail));
	d->n_bad += !ok;
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

/* What a stack through this file will be like. */
static char *describe(const struct elf_index *index)
{
	size_t unsupported = elf_index_unsupported_rows(index), n;
	const char *build_id = elf_index_build_id(index);
	struct elf_lack lacks[ELF_LACKS_MAX];
	_cleanup_buf_ struct buf out = {0};
	unsigned flags = elf_index_flags(index);
	struct elf_tables tables;

	elf_index_tables(index, &tables);
	buf_printf(&out, "%zu functions%s, %zu unwind rows", elf_index_n_symbols(index),
		   flags & ELF_INDEX_GO		 ? " (Go)"
		   : flags & ELF_INDEX_HAS_DWARF ? " (DWARF)"
						 : "",
		   tables.n_rows);
	if (unsupported)
		buf_printf(&out, " (%zu not supported)", unsupported);
	if (!tables.n_rows)
		buf_puts(&out, " (frame pointers only)");
	buf_printf(&out, ", build id %s", *build_id ? build_id : "none");
	n = elf_index_lacks(index, lacks);
	for (size_t i = 0; i < n; i++)
		buf_printf(&out, "; %s", lacks[i].text);
	return buf_steal(&out);
}

static void check_mapping(struct doctor *d, struct files *files, const struct mapping *m)
{
	_cleanup_free_ char *detail = NULL;
	struct elf_index *index = NULL;
	int r = files_index(files, m, &index);

	detail = r ? xasprintf("not readable: %s", strerror(-r)) : describe(index);
	tell(d, m->path, r == 0, detail);
	elf_index_unref(index);
}

static void check_process(struct doctor *d, struct files *files)
{
	struct mappings *m = NULL;
	uint64_t start;
	int r = proc_start_boottime(d->pid, &start);

	if (!r)
		r = mappings_read(d->pid, start, 0, &m);
	if (r) {
		tell(d, "process", false,
		     r == -ESRCH || r == -ENOENT ? "there is no such process" : strerror(-r));
		return;
	}
	tell(d, "process", true, "its mappings can be read");
	for (size_t i = 0; i < m->n; i++)
		if (i == 0 || !streq(m->items[i].path, m->items[i - 1].path))
			if (m->items[i].path[0] == '/')
				check_mapping(d, files, &m->items[i]);
	mappings_unref(m);
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
	const struct argp argp = {
		option_list,
		parse_option,
		"",
		"What can be profiled on this machine, or with --pid in one process, and why not.\v"
		"Ends with 0 when everything works, 1 when something does not.",
		NULL,
		NULL,
		NULL};
	const struct files_config fc = {.parser.marks = runtime_marks()};
	struct doctor d = {0};
	struct files *files = NULL;

	argv[0] = name;
	argp_parse(&argp, argc, argv, 0, NULL, &d);
	d.checks = json_array();
	if (files_new(&fc, &files))
		tell(&d, "parse child", false, "could not be started");
	if (d.pid && files) {
		check_process(&d, files);
	} else if (files) {
		check_kernel(&d);
		check_probes(&d);
		check_symbols(&d, files);
		tell(&d, "process files", !*mappings_problem(),
		     *mappings_problem() ? mappings_problem() : "may be read");
	}
	print(&d);
	files_free(files);
	json_decref(d.checks);
	return d.n_bad ? 1 : 0;
}
