/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroups_test: cgroups for a test of probe/, made under a hierarchy's mount point and removed at
 * the end. The test sets `run`.
 */
#pragma once

#include "node/probe/workload_test.h"

static char mount_v1[256], mount_v2[256];
static int run; /* number of this run, because several tests may run on one machine */

static inline char *cgroup_make(const char *parent, const char *name)
{
	char *dir = streq(name, "child") ? xasprintf("%s/%s", parent, name)
					 : xasprintf("%s/pf_test-%d-%s", parent, run, name);

	if (mkdir(dir, 0755) && errno != EEXIST)
		fail_msg("mkdir %s: %s", dir, strerror(errno));
	return dir;
}

static inline uint64_t cgroup_id(const char *dir)
{
	struct stat st;

	assert_int_equal(stat(dir, &st), 0);
	return st.st_ino;
}

static inline void cgroup_move(const char *dir, pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", dir), *text = xasprintf("%d", pid);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Removes the cgroup. This fails with EBUSY until its last process is reaped. */
static inline void cgroup_remove(char *dir)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (rmdir(dir) && errno == EBUSY && now_mono_ns() < deadline)
		nap(10);
	free(dir);
}

static inline struct cgroup_hierarchy hierarchy(bool v2)
{
	struct cgroup_hierarchy h = {};
	struct field_error err;

	if (proc_cgroup_choose(v2 ? "v2" : "v1:memory", &h, &err)) {
		print_message("skipped: %s\n", err.reason);
		skip();
	}
	snprintf(v2 ? mount_v2 : mount_v1, sizeof(mount_v1), "%s", h.mount);
	return h;
}

static inline void select_cgroups(struct probes *p, const uint64_t *ids, size_t n)
{
	struct container_filter f[4];

	for (size_t i = 0; i < n; i++)
		f[i] = (struct container_filter){
			.cgroup_id = ids[i], .event_mask = 1u << EVENT_ON_CPU, .sample_hz = 999};
	assert_int_equal(probes_filter(p, f, n), 0);
}
