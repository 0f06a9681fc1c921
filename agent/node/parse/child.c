/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parse child: it reads one request with descriptors, answers with one index, and ends. It also
 * ends when its parent ends, and at the first call that the sandbox forbids.
 */
#include "node/parse/build.h"
#include "node/parse/parse.h"

#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define PARSE_DATA_BYTES (1ULL << 30)
#define PARSE_DATA_MIN	 (64ULL << 20)
/* A child gets 1/4 of the pod's memory. For chromium's file (300 MB), it needs < 128 MiB. */
#define DATA_SHARE 4

/* ---- the child's rights ---- */

/*
 * Returns the limit on the child's memory. Two children share the pod's memory with the agent. If
 * that memory is used up, the kernel may kill all of them (memory.oom.group). So the child has a
 * limit of its own, which it reaches first.
 */
static uint64_t data_bytes(void)
{
	const char *pod = getenv("MEMORY_LIMIT"); /* the chart sets it */
	uint64_t limit = 0;

	if (!pod || str_to_u64(pod, UINT64_MAX, &limit) < 0 || limit == 0)
		return PARSE_DATA_BYTES;
	return MIN(MAX(limit / DATA_SHARE, PARSE_DATA_MIN), PARSE_DATA_BYTES);
}

static const int calls[] = {
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),	   SCMP_SYS(close),	    SCMP_SYS(read),
	SCMP_SYS(pread64), SCMP_SYS(pwrite64),	   SCMP_SYS(lseek),	    SCMP_SYS(fstat),
	SCMP_SYS(munmap),  SCMP_SYS(mremap),	   SCMP_SYS(brk),	    SCMP_SYS(madvise),
	SCMP_SYS(futex),   SCMP_SYS(sysinfo),	   SCMP_SYS(clock_gettime), SCMP_SYS(exit_group),
	SCMP_SYS(exit),	   SCMP_SYS(rt_sigreturn), SCMP_SYS(getrandom),
};

/*
 * glibc's fstat() is newfstatat() with an empty path. A filter cannot read the path, so it could
 * not refuse one that names a file. The kernel sends SIGSYS instead of making the call, and this
 * handler asks for the descriptor's file alone. So no path is looked up, whatever it is.
 */
static void stat_descriptor(int signo, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	int saved = errno;

	(void)signo;
	if (info->si_syscall != SYS_newfstatat)
		_exit(1);
	registers[REG_RAX] = syscall(SYS_fstat, (int)registers[REG_RDI], registers[REG_RDX]);
	if (registers[REG_RAX] < 0)
		registers[REG_RAX] = -errno;
	errno = saved;
}

static int allow_with_arguments(void *filter)
{
	scmp_filter_ctx ctx = filter;
	const struct scmp_arg_cmp no_exec = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, no_exec);

	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, no_exec);
	if (!r) /* stat_descriptor() */
		r = seccomp_rule_add(ctx, SCMP_ACT_TRAP, SCMP_SYS(newfstatat), 0);
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(memfd_create), 1,
				     SCMP_A1(SCMP_CMP_EQ, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_ADD_SEALS));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_GETFL));
	if (!r) /* elf_begin() checks the descriptor with it */
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, F_GETFD));
	return r;
}

/* ---- the child's work ---- */

/* The descriptors arrive in order, but missing ones are left out. Puts each one at its index. */
static void place_fds(const struct parse_request *request, const int *got, size_t n_got,
		      int ret[PARSE_FDS_MAX])
{
	uint64_t has = request->has | (uint64_t)request->has_high << 32;
	size_t next = 0;

	for (size_t i = 0; i < PARSE_FDS_MAX; i++)
		ret[i] = has >> i & 1 && next < n_got ? got[next++] : -1;
}

static enum parse_reason work(const struct parse_request *request, char **marks, const int *got,
			      size_t n_got, int *ret_memfd)
{
	int fds[PARSE_FDS_MAX];

	if (n_got == 0)
		return PARSE_IO;
	if (request->what != PARSE_DEBUG)
		return parse_elf_to_index(got[0], (const char *const *)marks,
					  request->max_index_bytes, ret_memfd);
	place_fds(request, got, n_got, fds);
	return parse_elf_to_debug_index(fds, PARSE_FDS_MAX, request->max_index_bytes, ret_memfd);
}

static int answer(const struct parse_request *request, char **marks, const int *fds, size_t n_fds)
{
	struct parse_reply reply = {0};
	_cleanup_close_ int memfd = -1;

	reply.reason = work(request, marks, fds, n_fds, &memfd);
	return child_send(CHILD_SOCKET_FD, &reply, sizeof(reply), &memfd, memfd >= 0);
}

int parse_child_begin(void)
{
	const struct sigaction on_stat = {.sa_sigaction = stat_descriptor, .sa_flags = SA_SIGINFO};
	const struct child_rights rights = {
		.data_bytes = data_bytes(),
		.address_bytes = PARSE_FILE_MAX + 2 * PARSE_DATA_BYTES,
		.file_bytes = INDEX_BYTES_MAX,
		.n_fds = PARSE_FDS_MAX + 16,
		.calls = calls,
		.n_calls = ARRAY_SIZE(calls),
		.allow = allow_with_arguments,
	};

	sigaction(SIGSYS, &on_stat, NULL);
	return child_begin(PARSE_CHILD_VERB, "podflame-parse", &rights);
}

int parse_child_main(int argc, char **argv)
{
	int r = parse_child_begin();
	struct parse_request request;
	int fds[PARSE_FDS_MAX];
	size_t n, n_fds;

	if (r)
		return r;
	if (child_receive(CHILD_SOCKET_FD, &request, sizeof(request), &n, fds, PARSE_FDS_MAX,
			  &n_fds) < 0 ||
	    n != sizeof(request))
		_exit(0);
	(void)answer(&request, argc > 2 ? argv + 2 : NULL, fds, n_fds);
	_exit(0);
}
