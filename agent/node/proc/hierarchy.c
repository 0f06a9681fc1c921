/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the cgroup hierarchy that podflame uses to find containers on this node. The choice is
 * made once, when the agent starts. This file keeps no state.
 */
#include "node/proc/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUP_ROOT    "/sys/fs/cgroup"
#define MAX_PROC_BYTES (4u << 20) /* bytes of /proc/self/mountinfo and of /proc/cgroups */

static const char *const v1_controllers[] = {"memory", "cpu", "pids"};

struct mount {
	char root[PATH_MAX], point[256], type[16], options[256];
};

/* Parses "36 35 98:0 ROOT POINT rw,... shared:1 - TYPE SOURCE SUPEROPTIONS", see proc(5). */
static bool parse_mount(const char *line, struct mount *m)
{
	const char *dash = strstr(line, " - ");
	/* end of POINT in the line; if POINT is too long for its array, the mount is ignored */
	int end = 0;

	*m = (struct mount){0};
	return dash && sscanf(line, "%*s %*s %*s %4095s %255s%n", m->root, m->point, &end) == 2 &&
	       line[end] == ' ' && sscanf(dash, " - %15s %*s %255s", m->type, m->options) == 2;
}

static bool has_option(const char *options, const char *name)
{
	size_t n = strlen(name);

	for (const char *s = options; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (strncmp(s, name, n) == 0 && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

/*
 * Finds the mount of a controller ("": cgroup2). It prefers a mount of a whole hierarchy to a mount
 * of a part (a container's own view; in a cgroup namespace, the whole hierarchy has the root
 * "/.."). It prefers /sys/fs/cgroup to other paths. A later mount at the same path hides the
 * earlier one.
 */
static bool find_mount(const char *mountinfo, const char *controller, struct mount *ret)
{
	int best = -1;

	*ret = (struct mount){0};

	for (const char *line = mountinfo; line && *line;) {
		struct mount m;
		int score;

		if (parse_mount(line, &m) &&
		    (*controller ? streq(m.type, "cgroup") && has_option(m.options, controller)
				 : streq(m.type, "cgroup2"))) {
			score = (streq(m.root, "/") || str_has_prefix(m.root, "/..")) * 2 +
				str_has_prefix(m.point, CGROUP_ROOT);
			if (score > best || streq(m.point, ret->point)) {
				best = score;
				*ret = m;
			}
		}
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return best >= 0;
}

static uint32_t hierarchy_id(const char *controllers, const char *name)
{
	for (const char *line = controllers; line && *line;) {
		char word[32];
		unsigned id;

		if (sscanf(line, "%31s %u", word, &id) == 2 && streq(word, name))
			return id;
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return 0;
}

static void take(const struct mount *m, const char *controllers, const char *controller,
		 struct cgroup_hierarchy *ret)
{
	struct cgroup_hierarchy h = {.v2 = !*controller, .subsys_index = UINT32_MAX};

	snprintf(h.controller, sizeof(h.controller), "%s", controller);
	snprintf(h.mount, sizeof(h.mount), "%s", m->point);
	h.hierarchy_id = h.v2 ? 0 : hierarchy_id(controllers, controller);
	*ret = h;
}

static int take_forced(const char *mountinfo, const char *controllers, const char *force,
		       struct cgroup_hierarchy *ret, struct field_error *reterr)
{
	const char *controller = str_has_prefix(force, "v1:") ? force + 3 : "";
	struct mount m;

	if (!*controller && !streq(force, "v2"))
		return field_error_set(reterr, "cgroup_hierarchy", "%s is neither v2 nor v1:NAME",
				       force);
	if (!find_mount(mountinfo, controller, &m)) {
		field_error_set(reterr, "cgroup_hierarchy", "%s is not mounted here", force);
		return -ENOENT;
	}
	take(&m, controllers, controller, ret);
	return 0;
}

static int choose(const char *mountinfo, const char *controllers, const char *force,
		  cgroup_has_pods_fn *has_pods, struct cgroup_hierarchy *ret,
		  struct field_error *reterr)
{
	struct mount v2, v1, first = {0};
	const char *first_name = NULL;
	bool have_v2 = find_mount(mountinfo, "", &v2);

	if (force && *force)
		return take_forced(mountinfo, controllers, force, ret, reterr);
	if (have_v2 && streq(v2.point, CGROUP_ROOT)) {
		take(&v2, controllers, "", ret);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(v1_controllers); i++) {
		if (!find_mount(mountinfo, v1_controllers[i], &v1))
			continue;
		if (has_pods(v1.point)) {
			take(&v1, controllers, v1_controllers[i], ret);
			return 0;
		}
		if (!first_name) {
			first = v1;
			first_name = v1_controllers[i];
		}
	}
	if (have_v2 && (!first_name || has_pods(v2.point))) {
		take(&v2, controllers, "", ret);
		return 0;
	}
	if (!first_name) {
		field_error_set(
			reterr, "cgroup_hierarchy",
			"no cgroup hierarchy is mounted (cgroup2, or v1 memory, cpu, pids)");
		return -ENOENT;
	}
	take(&first, controllers, first_name, ret);
	return 0;
}

int proc_cgroup_choose_from(const char *mountinfo, const char *controllers, const char *force,
			    cgroup_has_pods_fn *has_pods, struct cgroup_hierarchy *ret,
			    struct field_error *reterr)
{
	int r = choose(mountinfo, controllers, force, has_pods, ret, reterr);
	struct mount m;

	if (r < 0)
		return r;
	/* these mounts exist only in v1: a controller of a v1 hierarchy is not available in v2 */
	if (find_mount(mountinfo, "cpu", &m))
		snprintf(ret->cpu_mount, sizeof(ret->cpu_mount), "%s", m.point);
	if (find_mount(mountinfo, "cpuacct", &m))
		snprintf(ret->cpuacct_mount, sizeof(ret->cpuacct_mount), "%s", m.point);
	return 0;
}

/*
 * Whether there is a directory with kubepods in its name, at most two levels down (kind:
 * kubelet.slice/kubelet-kubepods.slice).
 */
static bool dir_has_pods(int dirfd, int levels)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *e;
	bool found = false;

	if (!d) {
		close(dirfd);
		return false;
	}
	while (!found && (e = readdir(d))) {
		int fd;

		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		found = strstr(e->d_name, "kubepods") != NULL;
		if (found || levels == 0)
			continue;
		fd = openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			found = dir_has_pods(fd, levels - 1);
	}
	closedir(d);
	return found;
}

static bool mount_has_pods(const char *mount)
{
	int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && dir_has_pods(fd, 2);
}

int proc_cgroup_choose(const char *force, struct cgroup_hierarchy *ret, struct field_error *reterr)
{
	_cleanup_free_ char *mountinfo = NULL, *controllers = NULL;
	int r = file_read(AT_FDCWD, "/proc/self/mountinfo", MAX_PROC_BYTES, &mountinfo, NULL);

	if (r < 0) {
		field_error_set(reterr, "/proc/self/mountinfo", "%s", strerror(-r));
		return r;
	}
	/* This file does not exist if the kernel has no v1. */
	if (file_read(AT_FDCWD, "/proc/cgroups", MAX_PROC_BYTES, &controllers, NULL) < 0)
		controllers = NULL;
	return proc_cgroup_choose_from(mountinfo, controllers, force, mount_has_pods, ret, reterr);
}

int proc_cgroup_id_of(const struct cgroup_hierarchy *h, const char *path, uint64_t *ret_id)
{
	_cleanup_free_ char *full = xasprintf("%s/%s", h->mount, path);
	struct stat st;

	if (stat(full, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	*ret_id = st.st_ino;
	return 0;
}
