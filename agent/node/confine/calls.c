/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the agent: a list of what the agent, its libraries and its children use.
 * Others get ENOSYS, as on a kernel that does not have the call. So a newer C library that tries a
 * newer call first goes on with the older one.
 */
#include "node/confine/confine.h"

#include <linux/bpf.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SYS_URETPROBE 335 /* Linux 6.11; since 6.14, no filter is asked */
#define SYS_UPROBE    336 /* Linux 6.18 */

/* clang-format off */
#define S(name) SCMP_SYS(name)

/* with any arguments */
static const int calls[] = {
	/* memory */
	S(brk), S(mmap), S(munmap), S(mremap), S(mprotect), S(madvise), S(mincore), S(membarrier),
	S(memfd_create), S(mlock), S(munlock),
	/* threads */
	S(futex), S(rseq), S(set_robust_list), S(get_robust_list), S(set_tid_address), S(gettid),
	S(sched_yield), S(sched_getaffinity), S(sched_setaffinity), S(getpriority), S(setpriority),
	S(arch_prctl), S(exit), S(exit_group), S(restart_syscall), S(getcpu),
	/* descriptors */
	S(open), S(openat), S(openat2), S(close), S(close_range), S(dup), S(dup2), S(dup3),
	S(fcntl), S(read), S(readv), S(pread64), S(preadv), S(write), S(writev), S(pwrite64),
	S(pwritev), S(lseek), S(pipe), S(pipe2), S(eventfd2), S(signalfd4), S(timerfd_create),
	S(timerfd_settime), S(timerfd_gettime), S(epoll_create1), S(epoll_create), S(epoll_ctl),
	S(epoll_wait), S(epoll_pwait), S(poll), S(ppoll), S(select), S(pselect6),
	/* files */
	S(stat), S(lstat), S(fstat), S(newfstatat), S(statx), S(statfs), S(fstatfs), S(access),
	S(faccessat), S(faccessat2), S(readlink), S(readlinkat), S(getdents64), S(getcwd),
	S(open_by_handle_at), S(fadvise64), S(fsync), S(fdatasync), S(ftruncate), S(fallocate),
	S(flock), S(umask), S(mkdir), S(mkdirat), S(rmdir), S(unlink), S(unlinkat), S(rename),
	S(renameat), S(renameat2), S(utimensat), S(sendfile), S(copy_file_range),
	/* network */
	S(socketpair), S(connect), S(bind), S(listen), S(accept), S(accept4), S(shutdown),
	S(getsockname), S(getpeername), S(getsockopt), S(setsockopt), S(sendto), S(sendmsg),
	S(sendmmsg), S(recvfrom), S(recvmsg), S(recvmmsg),
	/* signals and time */
	S(rt_sigaction), S(rt_sigprocmask), S(rt_sigreturn), S(rt_sigtimedwait), S(rt_sigsuspend),
	S(sigaltstack), S(pidfd_open), S(nanosleep), S(clock_nanosleep), S(clock_gettime),
	S(clock_getres), S(gettimeofday), S(time), S(times), S(getrusage),
	/* facts */
	S(getpid), S(getppid), S(getpgid), S(getpgrp), S(getuid), S(geteuid), S(getgid),
	S(getegid), S(getresuid), S(getresgid), S(getgroups), S(getrlimit), S(uname), S(sysinfo),
	S(getrandom), S(capget),
	/* profiling; what the kernel lets a probed function of the agent itself call */
	S(perf_event_open), S(process_vm_readv), SYS_URETPROBE, SYS_UPROBE,
	/* starting children, and what these give up before they read anything */
	S(execve), S(vfork), S(wait4), S(waitid), S(setpgid), S(setrlimit), S(prlimit64),
	S(prctl), S(capset), S(seccomp), S(chroot), S(chdir), S(setgroups), S(setresgid),
	S(setresuid), S(landlock_create_ruleset), S(landlock_add_rule), S(landlock_restrict_self),
	S(setitimer),
};

/* of bpf(2): not what reaches the programs, maps and links of others, or pins own ones */
static const unsigned bpf_commands[] = {
	BPF_MAP_CREATE, BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM,
	BPF_MAP_GET_NEXT_KEY, BPF_MAP_LOOKUP_AND_DELETE_ELEM, BPF_MAP_FREEZE,
	BPF_MAP_LOOKUP_BATCH, BPF_MAP_LOOKUP_AND_DELETE_BATCH, BPF_MAP_UPDATE_BATCH,
	BPF_MAP_DELETE_BATCH, BPF_PROG_LOAD, BPF_PROG_TEST_RUN, BPF_PROG_BIND_MAP,
	BPF_PROG_GET_NEXT_ID, BPF_OBJ_GET_INFO_BY_FD, BPF_RAW_TRACEPOINT_OPEN, BPF_BTF_LOAD,
	BPF_BTF_GET_NEXT_ID, BPF_BTF_GET_FD_BY_ID, BPF_LINK_CREATE, BPF_LINK_UPDATE,
	BPF_LINK_DETACH, BPF_ITER_CREATE,
};

/* of ioctl(2): by the whole number, or by its type (bits 8 to 15) */
static const unsigned ioctls[] = {FIONBIO, FIONREAD, 0x5401 /* TCGETS */, TIOCGWINSZ};
static const unsigned ioctl_types[] = {'$' << 8 /* perf events */, 0x89 << 8 /* sockets */};

static const struct {
	int family, type, protocol; /* protocol -1: any */
} sockets[] = {
	{AF_INET, SOCK_STREAM, -1}, {AF_INET, SOCK_DGRAM, -1},
	{AF_INET6, SOCK_STREAM, -1}, {AF_INET6, SOCK_DGRAM, -1},
	{AF_UNIX, SOCK_STREAM, -1}, {AF_UNIX, SOCK_DGRAM, -1},
	/* the C library asks for the machine's addresses before it looks up a name */
	{AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
};
/* clang-format on */

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

static int allow(scmp_filter_ctx ctx, int call, struct scmp_arg_cmp one)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, call, 1, one);
}

static int add_sockets(scmp_filter_ctx ctx)
{
	const uint64_t type_bits = ~(uint64_t)(SOCK_CLOEXEC | SOCK_NONBLOCK);
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(sockets); i++)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, S(socket), sockets[i].protocol < 0 ? 2 : 3,
			SCMP_A0(SCMP_CMP_EQ, (uint64_t)sockets[i].family),
			SCMP_A1(SCMP_CMP_MASKED_EQ, type_bits, (uint64_t)sockets[i].type),
			SCMP_A2(SCMP_CMP_EQ, (uint64_t)sockets[i].protocol));
	return r;
}

/*
 * To the agent itself: any signal (abort() and others). To other processes: the end of a child, the
 * question whether a process lives, and the signal that makes a JVM listen.
 */
static int add_signals(scmp_filter_ctx ctx)
{
	int r = allow(ctx, S(tgkill), SCMP_A0(SCMP_CMP_EQ, (uint64_t)getpid()));

	if (!r)
		r = allow(ctx, S(kill), SCMP_A1(SCMP_CMP_EQ, 0));
	if (!r)
		r = allow(ctx, S(kill), SCMP_A1(SCMP_CMP_EQ, SIGKILL));
	if (!r)
		r = allow(ctx, S(pidfd_send_signal), SCMP_A1(SCMP_CMP_EQ, SIGQUIT));
	return r;
}

static int add_rules(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(calls); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	for (size_t i = 0; !r && i < ARRAY_SIZE(bpf_commands); i++)
		r = allow(ctx, S(bpf), SCMP_A0(SCMP_CMP_EQ, bpf_commands[i]));
	for (size_t i = 0; !r && i < ARRAY_SIZE(ioctls); i++)
		r = allow(ctx, S(ioctl), SCMP_A1(SCMP_CMP_EQ, ioctls[i]));
	for (size_t i = 0; !r && i < ARRAY_SIZE(ioctl_types); i++)
		r = allow(ctx, S(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xff00, ioctl_types[i]));
	/* a thread or a process, in no namespace of its own */
	if (!r)
		r = allow(ctx, S(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACES, 0));
	if (!r)
		r = add_signals(ctx);
	return r ? r : add_sockets(ctx);
}

/* Adds rules to a filter that has none, and loads it. */
static int load(uint32_t otherwise, bool log, int (*add)(scmp_filter_ctx ctx))
{
	scmp_filter_ctx ctx = seccomp_init(otherwise);
	int r;

	if (!ctx)
		return -ENOMEM;
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_LOG, log);
	if (!r) /* the kernel finds a call by halving the list */
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!r)
		r = add(ctx);
	if (!r)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

/*
 * glibc tries clone3() for each thread and child, and then clone(). A filter cannot read the flags
 * of clone3(), which may name namespaces.
 */
static int add_expected(scmp_filter_ctx ctx)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), S(clone3), 0);
}

static int add_list(scmp_filter_ctx ctx)
{
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, S(clone3), 0); /* refused by the other one */

	return r ? r : add_rules(ctx);
}

static const char *problem;

int confine_calls(void)
{
	/* a filter logs all or none of its refusals, so there is one for refusals without a log */
	int r = load(SCMP_ACT_ALLOW, false, add_expected);

	if (!r)
		r = load(SCMP_ACT_ERRNO(ENOSYS), true, add_list);
	problem = r < 0 ? strerror(-r) : "";
	return r;
}

const char *confine_calls_problem(void)
{
	return problem;
}
