/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's own mounts, read-only. They limit what a path of the agent's own root can name. They
 * do not limit /proc/PID/root, which leads to the mounts of another process.
 */
#include "node/confine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static int set_attributes(const char *path, unsigned flags, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = {.attr_set = set, .attr_clr = clear};

	return syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &attr, sizeof(attr)) < 0 ? -errno
											  : 0;
}

/*
 * Changes of the mounts of the namespace before still arrive (MS_SLAVE): for example the cgroups of
 * a controller that is mounted later.
 */
static int own_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	return 0;
}

/* Makes a directory a mount, so that it can have another setting than what is around it. */
static int make_mount(const char *path)
{
	return mount(path, path, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static char text[256];
static const char *problem;

static int fail(int error, const char *what)
{
	if (error < 0)
		snprintf(text, sizeof(text), "%s: %s", what, strerror(-error));
	return error;
}

static bool is_given(const char *path)
{
	return path && *path;
}

static int make_read_only(const char *const *writable, size_t n)
{
	int r = 0;

	for (size_t i = 0; !r && i < n; i++)
		if (is_given(writable[i]))
			r = fail(make_mount(writable[i]), writable[i]);
	if (!r)
		r = fail(set_attributes("/", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0), "/");
	for (size_t i = 0; !r && i < n; i++)
		if (is_given(writable[i]))
			r = fail(set_attributes(writable[i], 0, 0, MOUNT_ATTR_RDONLY), writable[i]);
	return r;
}

static bool root_is_read_only(void)
{
	struct statvfs st;

	return statvfs("/", &st) == 0 && st.f_flag & ST_RDONLY;
}

int confine_mounts(const char *const *writable, size_t n)
{
	int r = fail(own_namespace(), "a mount namespace (capability SYS_ADMIN)");

	if (!r)
		r = make_read_only(writable, n);
	/* as in the pod of the chart, where AppArmor may refuse changes of mounts */
	if (r && root_is_read_only())
		r = 0;
	problem = r ? text : "";
	return r;
}

const char *confine_mounts_problem(void)
{
	return problem;
}
