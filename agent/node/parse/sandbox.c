/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parse child gives up before it sees a pod's first byte: capabilities, the file
 * system, new privileges, memory without end, and every system call that reading a
 * descriptor and answering does not need.
 */
#include "node/parse/format.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0 /* clang's way to ask */
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                     \
	__has_feature(memory_sanitizer)
/* A sanitizer's run time maps terabytes and calls what it likes: only its own builds go without. */
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define PARSE_DATA_BYTES (1ULL << 30)
#define PARSE_DATA_MIN	 (64ULL << 20)
#define DATA_SHARE	 4 /* of the pod's memory; chromium, 300 MB, takes less than 128 MiB */

static int limit(int resource, uint64_t value)
{
	struct rlimit l;

	if (getrlimit(resource, &l) < 0)
		return -errno;
	l.rlim_max = MIN(l.rlim_max, (rlim_t)value);
	l.rlim_cur = l.rlim_max;
	return setrlimit(resource, &l) < 0 ? -errno : 0;
}

/*
 * Two children share the pod's memory with the agent, and a kernel that finds it used up may end all
 * of them (memory.oom.group): the child must meet its own limit first.
 */
static uint64_t data_bytes(void)
{
	const char *pod = getenv("MEMORY_LIMIT"); /* set by the chart */
	uint64_t limit = 0;

	if (!pod || str_to_u64(pod, UINT64_MAX, &limit) < 0 || limit == 0)
		return PARSE_DATA_BYTES;
	return MIN(MAX(limit / DATA_SHARE, PARSE_DATA_MIN), PARSE_DATA_BYTES);
}

static int set_limits(uint64_t max_file_bytes)
{
	int r = limit(RLIMIT_CORE, 0);

	if (!r)
		r = limit(RLIMIT_NOFILE, PARSE_FDS_MAX + 16);
	if (!r)
		r = limit(RLIMIT_NPROC, 0);
	if (!r)
		r = limit(RLIMIT_FSIZE, max_file_bytes);
	if (!r && !SANITIZED)
		r = limit(RLIMIT_AS, PARSE_FILE_MAX + 2 * PARSE_DATA_BYTES);
	if (!r && !SANITIZED)
		r = limit(RLIMIT_DATA, data_bytes());
	signal(SIGXFSZ, SIG_IGN);
	return r;
}

/* Needs CAP_SYS_CHROOT; without it seccomp alone keeps the child from opening anything. */
static void leave_file_system(void)
{
	if (chroot("/proc/self/fdinfo") == 0)
		(void)!chdir("/");
}

static int drop_capabilities(void)
{
	capng_clear(CAPNG_SELECT_ALL);
	/* The bounding set needs CAP_SETPCAP; without it there is nothing to gain by exec either. */
	(void)capng_apply(CAPNG_SELECT_BOUNDS);
	if (capng_apply(CAPNG_SELECT_CAPS) != 0)
		return -EPERM;
	(void)capng_apply(CAPNG_SELECT_AMBIENT);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int allow_plain(scmp_filter_ctx ctx)
{
	static const int calls[] = {
		SCMP_SYS(recvmsg),    SCMP_SYS(sendmsg), SCMP_SYS(close),
		SCMP_SYS(read),	      SCMP_SYS(pread64), SCMP_SYS(pwrite64),
		SCMP_SYS(lseek),      SCMP_SYS(fstat),	 SCMP_SYS(munmap),
		SCMP_SYS(mremap),     SCMP_SYS(brk),	 SCMP_SYS(madvise),
		SCMP_SYS(futex),      SCMP_SYS(sysinfo), SCMP_SYS(clock_gettime),
		SCMP_SYS(exit_group), SCMP_SYS(exit),	 SCMP_SYS(rt_sigreturn),
		SCMP_SYS(getrandom),
	};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);

		if (r < 0)
			return r;
	}
	return 0;
}

static int allow_with_arguments(scmp_filter_ctx ctx)
{
	const struct scmp_arg_cmp no_exec = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, no_exec);

	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, no_exec);
	if (!r) /* glibc's fstat() */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
				     SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(memfd_create), 1,
				     SCMP_A1(SCMP_CMP_EQ, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_ADD_SEALS));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_GETFL));
	if (!r) /* elf_begin() */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_GETFD));
	return r;
}

static int filter_system_calls(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!ctx)
		return -ENOMEM;
	r = allow_plain(ctx);
	if (!r)
		r = allow_with_arguments(ctx);
	if (!r)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

int parse_sandbox(uint64_t max_file_bytes)
{
	int r = set_limits(max_file_bytes);

	if (r < 0)
		return r;
	leave_file_system();
	r = drop_capabilities();
	if (r < 0)
		return r;
	prctl(PR_SET_DUMPABLE, 0);
	return SANITIZED ? 0 : filter_system_calls();
}
