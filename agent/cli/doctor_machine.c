/* SPDX-License-Identifier: Apache-2.0 */
/* podflame doctor: what this kernel and podflame's own capabilities allow. */
#include "cli/doctor.h"
#include "node/confine/confine.h"
#include "node/probe/probe.h"
#include "node/stack/stack.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

static void tell(struct doctor *d, const char *check, bool ok, const char *detail)
{
	cli_doctor_tell(d, check, ok, detail);
}

/*
 * Checks that podflame has the capabilities that it needs (include/uapi/linux/capability.h). A
 * process with SYS_ADMIN also has the rights of the newer capabilities, which were once a part of
 * it.
 */
static void check_capabilities(struct doctor *d)
{
	static const struct {
		unsigned bit, also;
		const char *name, *without;
	} wanted[] = {
		{39, 21, "BPF", "podflame cannot load BPF programs"},
		{38, 21, "PERFMON", "podflame cannot sample"},
		{19, 19, "SYS_PTRACE",
		 "podflame cannot read memory and files of other users' processes"},
		{2, 1, "DAC_READ_SEARCH", "podflame cannot read files of other users"},
		{40, 21, "CHECKPOINT_RESTORE", "deleted podflame cannot read files of other users"},
		{34, 21, "SYSLOG", "podflame cannot name kernel functions"},
	};
	_cleanup_free_ char *status = NULL;
	_cleanup_buf_ struct buf out = {0};
	const char *p = NULL, *admin = confine_needs_sys_admin();
	uint64_t have;

	if (file_read(AT_FDCWD, "/proc/self/status", 65536, &status, NULL) == 0)
		p = strstr(status, "CapEff:");
	have = p ? strtoull(p + strlen("CapEff:"), NULL, 16) : 0;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!(have & (1ull << wanted[i].bit | 1ull << wanted[i].also)))
			buf_printf(&out, "%s%s is missing: %s", out.len ? "; " : "", wanted[i].name,
				   wanted[i].without);
	if (admin && !(have & 1ull << 21))
		buf_printf(&out, "%sSYS_ADMIN is missing: %s", out.len ? "; " : "", admin);
	tell(d, "capabilities", !out.len, out.len ? out.data : "podflame has all that it needs");
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
		tell(d, "kernel symbols", false, "cannot read /proc/kallsyms");
		return;
	}
	tell(d, "kernel symbols", !*stacks_kernel_problem(s),
	     *stacks_kernel_problem(s) ? stacks_kernel_problem(s) : "/proc/kallsyms");
	stacks_free(s);
}

/*
 * The programs of an event are loaded only if a process is selected for it. So this function
 * selects podflame itself for a moment.
 */
static int try_events(struct probes *p)
{
	struct listed_process self = {
		.id.tgid = getpid(),
		.event_mask = (1u << _EVENT_MAX) - 1,
		.sample_hz = 1,
		.settings = {.min_block_us = 50,
			     .max_block_us = 1000000,
			     .alloc_sample_bytes = 1 << 20,
			     .inuse_sample_bytes = 1 << 20},
	};
	int r = proc_start_boottime(self.id.tgid, &self.id.start_boottime_ns);

	return r ? r : probes_list(p, &self, 1);
}

static bool works(const struct probes *p, enum event e)
{
	const struct support *s;
	size_t n;

	s = probes_support(p, &n);
	for (size_t i = 0; i < n; i++)
		if (streq(s[i].feature, profile_event_info(e)->name))
			return s[i].ok;
	return false;
}

static void check_uprobes(struct doctor *d, struct probes *p)
{
	_cleanup_free_ char *text = NULL;
	json_t *c;

	if (!works(p, EVENT_MEM_ALLOC))
		return; /* the check of mem-alloc shows the reason */
	d->hit_ns = probes_trap_ns(p);
	text = xasprintf("%s; a hit costs the process about %" PRIu64 " ns", probes_uprobe_form(p),
			 d->hit_ns);
	c = cli_doctor_tell(d, "uprobes", true, text);
	json_object_set_new(c, "hitNs", json_integer((json_int_t)d->hit_ns));
}

static void check_probes(struct doctor *d)
{
	struct probe_config c = {.use_cgroups = true, .use_list = true, .max_sample_hz = 99};
	struct field_error err = {0};
	struct probes *p = NULL;
	const struct support *support;
	size_t n;

	if (proc_cgroup_choose("", &c.hierarchy, &err)) {
		tell(d, "cgroups", false, err.reason);
		c.use_cgroups = false;
	} else {
		tell(d, "cgroups", true, c.hierarchy.v2 ? "version 2" : c.hierarchy.controller);
	}
	if (probes_new(&c, &p, &err)) {
		tell(d, "BPF programs", false, err.reason);
		return;
	}
	if (c.use_list)
		(void)try_events(p); /* if it fails, the list of features has the reason */
	support = probes_support(p, &n);
	for (size_t i = 0; i < n; i++)
		tell(d, support[i].feature, support[i].ok,
		     support[i].reason ? support[i].reason : "works");
	check_uprobes(d, p);
	probes_free(p);
}

void cli_doctor_machine(struct doctor *d, struct files *files)
{
	check_kernel(d);
	check_capabilities(d);
	check_probes(d);
	check_symbols(d, files);
	tell(d, "process files", !*proc_mappings_problem(),
	     *proc_mappings_problem() ? proc_mappings_problem() : "podflame can read them");
}
