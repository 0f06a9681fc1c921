/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's user. Root owns most files of a node, so an agent of root could write them through
 * /proc/PID/root, and the memory of root's processes. Another user without capabilities to write
 * reads what it needs (DAC_READ_SEARCH, SYS_PTRACE), and writes only what belongs to it.
 */
#include "node/confine/confine.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/*
 * What the agent works with. What is missing here would give back what it gives up: for example
 * SETUID the user root, DAC_OVERRIDE the files of others.
 */
static const unsigned kept[] = {
	CAP_BPF,	  CAP_PERFMON,
	CAP_SYS_PTRACE,	  CAP_DAC_READ_SEARCH,
	CAP_SYSLOG,	  CAP_CHECKPOINT_RESTORE,
	CAP_SYS_RESOURCE,
};

static const char *problem;

const char *confine_needs_sys_admin(void)
{
	_cleanup_free_ char *paranoid = NULL;
	struct utsname kernel;
	int level = 0, major = 0, minor = 0;

	if (file_read(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", 64, &paranoid, NULL) == 0 &&
	    sscanf(paranoid, "%d", &level) == 1 && level > 2)
		return "kernel.perf_event_paranoid is above 2, and the kernel samples nothing then";
	if (uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
	    (major < 6 || (major == 6 && minor < 12)))
		return "before Linux 6.12, libbpf reads the types of kernel modules for it";
	return NULL;
}

/* Selects those of `kept` that the process has, and SYS_ADMIN only where the kernel needs it. */
static void select_kept(void)
{
	bool has[ARRAY_SIZE(kept)], admin;

	capng_get_caps_process();
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		has[i] = capng_have_capability(CAPNG_PERMITTED, kept[i]);
	admin = capng_have_capability(CAPNG_PERMITTED, CAP_SYS_ADMIN) && confine_needs_sys_admin();
	capng_clear(CAPNG_SELECT_CAPS);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (has[i])
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, kept[i]);
	if (admin)
		capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_SYS_ADMIN);
}

/* The rights come first: who has given the directory away may not change them any more. */
static int give(const char *path, unsigned user)
{
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return -errno;
	(void)chmod(path, 0700); /* if it is another user's, an earlier agent has done so */
	if (chown(path, user, user) == 0)
		return 0;
	r = -errno;
	(void)chmod(path, st.st_mode & 07777);
	return r;
}

int confine_directory(const char *path, unsigned user)
{
	bool is_there = access(path, F_OK) == 0;
	int r = mkdir_parents(path, 0700), given;

	if (r < 0)
		return r;
	given = give(path, user);
	/* the user may be allowed to write it all the same, as in an emptyDir */
	if (!given || !user || is_there)
		return 0;
	rmdir(path);
	return given;
}

int confine_user(unsigned user)
{
	int id = (int)user;

	select_kept();
	if (capng_change_id(id, id, CAPNG_DROP_SUPP_GRP) != 0) {
		problem = "it may not become another user (capabilities SETUID and SETGID)";
		return -EPERM;
	}
	problem = "";
	return 0;
}

const char *confine_user_problem(void)
{
	return problem;
}
