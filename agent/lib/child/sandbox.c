/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a child gives up before it reads the first hostile byte: capabilities, the file system, new
 * privileges, memory beyond a limit, and all system calls that its work does not need.
 */
#include "lib/child/child.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0 /* clang has __has_feature(), other compilers do not */
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                     \
	__has_feature(memory_sanitizer)
/* A sanitizer maps terabytes and makes any system call, so a build with one has no sandbox. */
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static int limit(int resource, uint64_t value)
{
	struct rlimit l;

	if (getrlimit(resource, &l) < 0)
		return -errno;
	l.rlim_max = MIN(l.rlim_max, (rlim_t)value);
	l.rlim_cur = l.rlim_max;
	return setrlimit(resource, &l) < 0 ? -errno : 0;
}

static int set_limits(const struct child_rights *rights)
{
	int r = limit(RLIMIT_CORE, 0);

	if (!r)
		r = limit(RLIMIT_NOFILE, rights->n_fds);
	if (!r)
		r = limit(RLIMIT_NPROC, 0);
	if (!r)
		r = limit(RLIMIT_FSIZE, rights->file_bytes);
	if (!r && rights->cpu_s)
		r = limit(RLIMIT_CPU, rights->cpu_s);
	if (!r && !SANITIZED && rights->address_bytes)
		r = limit(RLIMIT_AS, rights->address_bytes);
	if (!r && !SANITIZED && rights->data_bytes)
		r = limit(RLIMIT_DATA, rights->data_bytes);
	signal(SIGXFSZ, SIG_IGN);
	return r;
}

/*
 * Makes a directory of /proc the child's root, if the child has CAP_SYS_CHROOT. Without it, only
 * seccomp keeps the child from opening files.
 */
static void leave_file_system(void)
{
	if (chroot("/proc/self/fdinfo") == 0)
		(void)!chdir("/");
}

static int drop_capabilities(void)
{
	capng_clear(CAPNG_SELECT_ALL);
	/*
	 * The first call needs CAP_SETPCAP. If it fails, the child still cannot gain rights by
	 * exec.
	 */
	(void)capng_apply(CAPNG_SELECT_BOUNDS);
	if (capng_apply(CAPNG_SELECT_CAPS) != 0)
		return -EPERM;
	(void)capng_apply(CAPNG_SELECT_AMBIENT);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int filter_system_calls(const struct child_rights *rights)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = 0;

	if (!ctx)
		return -ENOMEM;
	for (size_t i = 0; !r && i < rights->n_calls; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, rights->calls[i], 0);
	if (!r && rights->allow)
		r = rights->allow(ctx);
	if (!r)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

static int give_up_rights(const struct child_rights *rights)
{
	int r = set_limits(rights);

	if (r < 0)
		return r;
	leave_file_system();
	r = drop_capabilities();
	if (r < 0)
		return r;
	prctl(PR_SET_DUMPABLE, 0);
	return SANITIZED ? 0 : filter_system_calls(rights);
}

/* ---- the start of a child ---- */

/*
 * Opens /dev/null as descriptors 0, 1 and 2, so that no file of a pod can become one of them.
 * Closes all descriptors that the owner left open.
 */
static void close_others(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < CHILD_SOCKET_FD; fd++) {
		if (null < 0)
			close(fd);
		else
			dup2(null, fd);
	}
	close_range(CHILD_SOCKET_FD + 1, ~0U, 0);
}

static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

int child_begin(const char *verb, const char *process_name, const struct child_rights *rights)
{
	int32_t error;

	if (!is_socket(CHILD_SOCKET_FD)) {
		log_err("%s is started by podflame itself, not by hand", verb);
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, process_name);
	close_others();
	error = give_up_rights(rights) < 0 ? EPERM : 0;
	if (child_send(CHILD_SOCKET_FD, &error, sizeof(error), NULL, 0) < 0 || error)
		_exit(1);
	return 0;
}
