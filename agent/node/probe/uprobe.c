// SPDX-License-Identifier: Apache-2.0
/*
 * uprobe: attaches probes to functions of one process. A newer kernel attaches many places with one
 * BPF link (uprobe_multi). An older kernel needs one perf event for each place. To find out which
 * kernel it is, the agent asks for a link that must fail, so that nothing is attached.
 */
#include "node/probe/sets.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PMU_TYPE "/sys/bus/event_source/devices/uprobe/type"
/*
 * Bits of perf_event_attr.config: see format/retprobe and format/ref_ctr_offset of the PMU in
 * sysfs.
 */
#define PMU_RETURN	    1
#define PMU_SEMAPHORE_SHIFT 32

/* ---- links of many places: libbpf has them since 1.3 ---- */

/* The members that union bpf_attr has for BPF_LINK_CREATE: include/uapi/linux/bpf.h since 6.6. */
struct multi_attr {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t n, multi_flags, pid, pad;
};

static int multi_create(struct multi_attr *a)
{
	int fd = syscall(SYS_bpf, BPF_LINK_CREATE, a, offsetof(struct multi_attr, pad));

	return fd < 0 ? -errno : fd;
}

static int trivial_program(int attach_type)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach_type);
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "pf_trivial", "GPL", insns, ARRAY_SIZE(insns),
			     &opts);
}

/*
 * Returns whether links of many places work for a process. A kernel that has such links returns
 * EBADF for a path that is not a file. But it checks the PID before that: if its links are for a
 * process and not for one of its threads (6.10 and later versions of older series: "bpf: Fix
 * multi-uprobe PID filtering logic"), it refuses a PID of -1 with EINVAL.
 */
static bool has_multi(int attach_type)
{
	int prog = trivial_program(attach_type);
	uint64_t offset = 0;
	struct multi_attr a = {.prog_fd = prog,
			       .attach_type = attach_type,
			       .path = (uintptr_t) "/",
			       .offsets = (uintptr_t)&offset,
			       .n = 1};
	bool ok;

	if (prog < 0)
		return false;
	ok = multi_create(&a) == -EBADF;
	a.pid = -1;
	ok = ok && multi_create(&a) == -EINVAL;
	close(prog);
	return ok;
}

/*
 * Reads the PMU's type once and keeps it. If it were read for each place, a failed read would look
 * like an error of that place.
 */
static int pmu_type(void)
{
	static int known;
	_cleanup_free_ char *text = NULL;
	int r = __atomic_load_n(&known, __ATOMIC_RELAXED);
	uint64_t type;

	if (r > 0)
		return r;
	r = file_read(-1, PMU_TYPE, 64, &text, NULL);
	if (r)
		return r;
	text[strcspn(text, "\n")] = 0;
	if (str_to_u64(text, INT32_MAX, &type))
		return -EBADMSG;
	__atomic_store_n(&known, (int)type, __ATOMIC_RELAXED);
	return (int)type;
}

enum uprobe_mode probes_uprobe_mode(void)
{
	if (has_multi(ATTACH_UPROBE_SESSION))
		return UPROBE_SESSION;
	if (has_multi(ATTACH_UPROBE_MULTI))
		return UPROBE_MULTI;
	return pmu_type() >= 0 ? UPROBE_SINGLE : UPROBE_NONE;
}

const char *probes_uprobe_form(const struct probes *p)
{
	static const char *const forms[] = {
		[UPROBE_NONE] = "none: not permitted, or this kernel has none",
		[UPROBE_SINGLE] =
			"one perf event per place (before 6.6): at most 128 places per process",
		[UPROBE_MULTI] = "one link for many places of a file (6.6)",
		[UPROBE_SESSION] = "one link for many places and their returns (6.13)",
	};

	return forms[p->uprobes->mode];
}

/* ---- attaching ---- */

static int multi_attach(const struct uprobe_places *b, size_t from, size_t n)
{
	struct multi_attr a = {
		.prog_fd = b->prog,
		.attach_type = b->attach_type,
		.path = (uintptr_t)b->path,
		.offsets = (uintptr_t)(b->offsets + from),
		.ref_ctr_offsets = (uintptr_t)(b->semaphores + from),
		.cookies = (uintptr_t)(b->cookies + from),
		.n = n,
		.multi_flags = b->at_return ? UPROBE_MULTI_RETURN : 0,
		.pid = b->pid,
	};

	return multi_create(&a);
}

static int single_attach(const struct uprobe_places *b, size_t at)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = b->cookies[at]);
	int type = pmu_type(), link;
	struct perf_event_attr attr = {
		.type = type,
		.size = sizeof(attr),
		.config =
			b->semaphores[at] << PMU_SEMAPHORE_SHIFT | (b->at_return ? PMU_RETURN : 0),
		.config1 = (uintptr_t)b->path,
		.config2 = b->offsets[at],
	};
	_cleanup_close_ int event = -1;

	if (type < 0)
		return type;
	if (b->semaphores[at] > UINT32_MAX)
		return -ERANGE;
	event = syscall(SYS_perf_event_open, &attr, (int)b->pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	/* the link keeps the perf event open */
	link = bpf_link_create(b->prog, event, BPF_PERF_EVENT, &opts);
	return link;
}

int probes_uprobe_attach(enum uprobe_mode mode, const struct uprobe_places *b, size_t from,
			 size_t n)
{
	return mode == UPROBE_SINGLE ? single_attach(b, from) : multi_attach(b, from, n);
}

int probes_uprobe_attach_trivial(enum uprobe_mode mode, const char *path, uint64_t offset,
				 uint32_t pid, bool at_return)
{
	uint64_t cookie = 0, semaphore = 0;
	struct uprobe_places b = {
		.prog = trivial_program(mode == UPROBE_SINGLE ? 0 : ATTACH_UPROBE_MULTI),
		.attach_type = ATTACH_UPROBE_MULTI,
		.at_return = at_return,
		.pid = pid,
		.offsets = &offset,
		.cookies = &cookie,
		.semaphores = &semaphore,
		.n = 1,
	};
	int link;

	if (b.prog < 0)
		return b.prog;
	snprintf(b.path, sizeof(b.path), "%s", path);
	link = probes_uprobe_attach(mode, &b, 0, 1);
	close(b.prog);
	return link;
}
