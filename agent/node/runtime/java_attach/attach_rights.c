/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the child that asks a JVM gives up. It has the JVM's user, and is forked from the agent, so
 * it could act on all processes of this user, of other pods, too. It keeps: the JVM's /tmp, one
 * signal, one local socket and the pipe to the agent. The agent makes the filter; the child, which
 * is forked from a program with threads, only loads it.
 */
#include "node/runtime/java_attach/attach.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* A sanitizer makes any system call, so a build with one has no filter. */
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- in the agent: the filter ---- */

static const int calls[] = {
	SCMP_SYS(openat),	 SCMP_SYS(close),	    SCMP_SYS(read),
	SCMP_SYS(write),	 SCMP_SYS(newfstatat),	    SCMP_SYS(unlinkat),
	SCMP_SYS(connect),	 SCMP_SYS(setsockopt),	    SCMP_SYS(poll),
	SCMP_SYS(ppoll),	 SCMP_SYS(nanosleep),	    SCMP_SYS(clock_nanosleep),
	SCMP_SYS(clock_gettime), SCMP_SYS(restart_syscall), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(exit),		 SCMP_SYS(exit_group),
};

static int add_rules(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(calls); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				     SCMP_A0(SCMP_CMP_EQ, AF_UNIX),
				     SCMP_A1(SCMP_CMP_EQ, SOCK_STREAM | SOCK_CLOEXEC));
	if (!r)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(pidfd_send_signal), 1,
				     SCMP_A1(SCMP_CMP_EQ, SIGQUIT));
	return r;
}

/* Takes the filter as an array out of libseccomp, which can only write it to a file. */
static int export(scmp_filter_ctx ctx, struct sock_fprog *ret)
{
	_cleanup_close_ int fd = memfd_create("podflame-attach-filter", MFD_CLOEXEC);
	_cleanup_free_ void *program = NULL;
	struct stat st;
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	program = xmalloc((size_t)st.st_size);
	if (pread(fd, program, (size_t)st.st_size, 0) != st.st_size)
		return -EIO;
	ret->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
	ret->filter = TAKE_PTR(program);
	return 0;
}

static int make_filter(struct sock_fprog *ret)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? add_rules(ctx) : -ENOMEM;

	if (!r)
		r = export(ctx, ret);
	seccomp_release(ctx);
	return r;
}

int runtime_attach_filter(const struct sock_fprog **ret)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct sock_fprog filter;
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!filter.filter)
		r = make_filter(&filter);
	pthread_mutex_unlock(&lock);
	if (!r)
		*ret = &filter;
	return r;
}

/* ---- in the child ---- */

/* Without the capability SETPCAP, the bounding set stays. It grants nothing without an exec. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

/*
 * Leaves of the file system what the child makes and removes in the JVM's /tmp. It also keeps the
 * child from the memory and the files in /proc of other processes of this user. A kernel without
 * Landlock (ENOSYS, EOPNOTSUPP) leaves it to the rights of the user.
 */
static int keep_to_tmp(const struct attach *a)
{
	const struct landlock_ruleset_attr handled = {
		/* the rights that Landlock has had since its first version (Linux 5.13) */
		.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1,
	};
	const struct landlock_path_beneath_attr tmp = {
		.allowed_access = LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_WRITE_FILE |
				  LANDLOCK_ACCESS_FS_REMOVE_FILE,
		.parent_fd = a->tmp_fd,
	};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0), r = 0;

	if (fd < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
	if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &tmp, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		r = -errno;
	close(fd);
	return r;
}

int runtime_attach_give_up(const struct attach *a, const struct sock_fprog *program)
{
	int r;

	prctl(PR_SET_DUMPABLE, 0); /* of JVMs of root; for other users, the kernel has done it */
	r = drop_capabilities();
	if (!r && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	if (!r)
		r = keep_to_tmp(a);
	if (!r && !SANITIZED && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0)
		r = -errno;
	return r;
}
