// SPDX-License-Identifier: Apache-2.0
/*
 * uprobe_try: measures what this kernel's uprobes cost, and tries whether they are safe. It probes
 * functions of the agent itself.
 */
#include "node/probe/sets.h"

#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * pf_trap_here begins as most functions do, with an instruction that the kernel emulates
 * (probe_offset.c).
 */
__asm__(".pushsection .text\n"
	"pf_trap_here:\n"
	"	push %rbp\n"
	"	pop %rbp\n"
	"	ret\n"
	"pf_step_here:\n" /* begins with an instruction that the kernel steps over */
	"	mov %eax, %eax\n"
	"	ret\n"
	".popsection\n");
void pf_trap_here(void);
void pf_step_here(void);

struct try_place {
	uint64_t address, offset;
	bool found;
};

static int find_place(struct dl_phdr_info *info, size_t n, void *arg)
{
	struct try_place *place = arg;

	(void)n;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || place->address < start ||
		    place->address >= start + ph->p_memsz)
			continue;
		place->offset = place->address - start + ph->p_offset;
		place->found = true;
	}
	return 1; /* stop: the first entry is the program itself */
}

static int attach_here(enum uprobe_mode mode, void (*function)(void), pid_t pid, bool at_return)
{
	struct try_place place = {.address = (uintptr_t)function};

	dl_iterate_phdr(find_place, &place);
	return place.found ? probes_uprobe_attach_trivial(mode, "/proc/self/exe", place.offset, pid,
							  at_return)
			   : -ENOENT;
}

/* ---- what a hit costs ---- */

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

#define HITS   200
#define ROUNDS 10

static uint64_t burst_ns(void (*function)(void), unsigned hits)
{
	uint64_t start = thread_ns();

	for (unsigned i = 0; i < hits; i++)
		function();
	return (thread_ns() - start) / hits;
}

/* Returns the least time of a hit in some rounds; 0: the function cannot be probed. */
static uint64_t hit_ns(enum uprobe_mode mode, void (*function)(void))
{
	int link = attach_here(mode, function, getpid(), false);
	uint64_t least = UINT64_MAX;

	if (link < 0)
		return 0;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t ns = burst_ns(function, HITS);

		least = MIN(least, ns);
	}
	close(link);
	return least;
}

#define TRAP_NS_GUESS	   1000
#define STEPPED_MORE_GUESS 10

#define TRAP_WEIGHT 0.9 /* weight of the old value when the cost is measured again */
#define BURSTS	    5

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t probes_call_typical_ns(void (*function)(void))
{
	uint64_t ns[BURSTS];

	for (size_t i = 0; i < BURSTS; i++)
		ns[i] = burst_ns(function, HITS / BURSTS);
	qsort(ns, BURSTS, sizeof(ns[0]), compare_ns);
	return ns[BURSTS / 2];
}

/*
 * On a busy machine a trap costs more, as everything does. So the cost is measured again in each
 * call. This takes a fifth of a millisecond.
 */
uint64_t probes_trap_ns(struct probes *p)
{
	struct uprobes *u = p->uprobes;

	if (u->mode == UPROBE_NONE)
		return TRAP_NS_GUESS;
	if (u->trap_link <= 0)
		u->trap_link = attach_here(u->mode, pf_trap_here, getpid(), false);
	if (u->trap_link <= 0)
		return TRAP_NS_GUESS;
	if (!u->trap_ns)
		u->trap_ns = (double)probes_call_typical_ns(pf_trap_here);
	u->trap_ns = u->trap_ns * TRAP_WEIGHT +
		     (double)probes_call_typical_ns(pf_trap_here) * (1 - TRAP_WEIGHT);
	return (uint64_t)u->trap_ns;
}

unsigned probes_uprobe_stepped_more(enum uprobe_mode mode)
{
	uint64_t trap_ns = hit_ns(mode, pf_trap_here), step_ns = hit_ns(mode, pf_step_here);

	if (!trap_ns || !step_ns)
		return STEPPED_MORE_GUESS;
	return step_ns > trap_ns ? (unsigned)MIN(step_ns / trap_ns, (uint64_t)PF_SITE_MORE_MAX) : 0;
}

/* ---- whether returns are safe ---- */

/*
 * Since 6.11 a probed return makes a system call of its own, uretprobe. Some seccomp filters, such
 * as Docker's, did not know that call. They made it fail, and that killed the process. This was
 * fixed by "seccomp: passthrough uretprobe systemcall without filtering" (6.14, and later versions
 * of 6.12 and 6.13).
 */
#define SYSCALL_URETPROBE 335

static void become_filtered(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYSCALL_URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_SIZE(code), code};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/*
 * Runs in a child. The child was forked from a process with threads, so it may only make system
 * calls.
 */
static _Noreturn void return_once(int go)
{
	char byte;

	become_filtered();
	if (read(go, &byte, 1) == 1)
		pf_trap_here();
	_exit(0);
}

int probes_uprobe_try_return(enum uprobe_mode mode)
{
	_cleanup_close_ int from = -1, to = -1, link = -1;
	int ends[2], status = 0, r = 0;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	from = ends[0];
	to = ends[1];
	pid = fork();
	if (pid == 0)
		return_once(from);
	if (pid < 0)
		return -errno;
	link = attach_here(mode, pf_trap_here, pid, true);
	if (link < 0)
		/*
		 * -EPERM would mean that a probed return kills the process, but here only attaching
		 * failed
		 */
		r = link == -EPERM ? -EACCES : link;
	else if (write(to, "", 1) != 1)
		r = -errno;
	if (r)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r)
		return r;
	return WIFSIGNALED(status) ? -EPERM : 0;
}
