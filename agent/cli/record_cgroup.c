/* SPDX-License-Identifier: Apache-2.0 */
/* record --cgroup: finds the hierarchy of a path, and all cgroups below the path. */
#include "cli/record.h"

#include <fts.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CGROUPS 8192 /* cgroups below the chosen one; if there are more, record fails */

/*
 * Finds the mounted hierarchy with this device number. Each hierarchy is a file system, with a
 * number of its own.
 */
static int hierarchy_of(dev_t dev, struct cgroup_hierarchy *ret)
{
	static const char *const forces[] = {"v2",	   "v1:memory", "v1:cpu",     "v1:pids",
					     "v1:cpuacct", "v1:cpuset", "v1:freezer", "v1:devices"};

	for (size_t i = 0; i < ARRAY_SIZE(forces); i++) {
		struct cgroup_hierarchy h;
		struct field_error err;
		struct stat st;

		if (proc_cgroup_choose(forces[i], &h, &err) || stat(h.mount, &st) ||
		    st.st_dev != dev)
			continue;
		*ret = h;
		return 0;
	}
	return -ENOENT;
}

/*
 * Finds the directory and the hierarchy of a cgroup. path is a directory, or else a path in the
 * hierarchy that podflame uses to find containers. The caller frees *ret_dir.
 */
static int find_cgroup(const char *path, struct cgroup_hierarchy *ret_h, char **ret_dir)
{
	struct field_error err;
	struct stat st, top;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && !hierarchy_of(st.st_dev, ret_h)) {
		*ret_dir = xstrdup(path);
		return 0;
	}
	if (!proc_cgroup_choose("", ret_h, &err)) {
		_cleanup_free_ char *dir =
			xasprintf("%s/%s", ret_h->mount, path + strspn(path, "/"));

		/* if ".." has led out of the hierarchy, inode numbers are no cgroup ids */
		if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode) && stat(ret_h->mount, &top) == 0 &&
		    st.st_dev == top.st_dev) {
			*ret_dir = TAKE_PTR(dir);
			return 0;
		}
		fprintf(stderr, "podflame record: --cgroup: neither %s nor %s is a cgroup\n", path,
			dir);
		return -ENOENT;
	}
	fprintf(stderr, "podflame record: --cgroup: %s\n", err.reason);
	return -ENOENT;
}

/* Makes a copy of f for dir and one for every cgroup below it. The caller frees *ret. */
static int select_below(const char *dir, struct container_filter f, struct container_filter **ret,
			size_t *ret_n)
{
	_cleanup_free_ struct container_filter *all = NULL;
	char *const roots[] = {(char *)dir, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_XDEV, NULL);
	size_t n = 0, cap = 0;
	FTSENT *e;

	if (!fts)
		return -errno;
	while ((e = fts_read(fts)) && n <= MAX_CGROUPS) {
		if (e->fts_info != FTS_D)
			continue;
		f.cgroup_id = e->fts_statp->st_ino;
		GROW(all, n, cap);
		all[n++] = f;
	}
	fts_close(fts);
	if (n > MAX_CGROUPS)
		return -E2BIG;
	*ret = TAKE_PTR(all);
	*ret_n = n;
	return 0;
}

int cli_record_begin_cgroup(struct recording *r, record_open_fn *open)
{
	struct probe_config c = {.use_cgroups = true, .max_sample_hz = r->options->hz};
	struct container_filter f = {.event_mask = 1u << r->options->event,
				     .sample_hz = r->options->hz,
				     .settings = r->options->settings,
				     .off_keep = UINT32_MAX};
	_cleanup_free_ struct container_filter *all = NULL;
	_cleanup_free_ char *dir = NULL;
	struct stat st;
	size_t n = 0;
	int e = find_cgroup(r->options->cgroup, &c.hierarchy, &dir);

	if (e)
		return e;
	if (stat(dir, &st))
		return -errno;
	f.cgroup_id = st.st_ino;
	e = open(r, &c);
	if (e)
		return e;
	/*
	 * Selects dir before it lists the cgroups below. If a cgroup is made meanwhile, the kernel
	 * selects it.
	 */
	e = probes_filter(r->probes, &f, 1);
	if (!e)
		e = select_below(dir, f, &all, &n);
	return e ? e : probes_filter(r->probes, all, n);
}
