/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: makes a cgroup in each hierarchy that shows CPU time, with a process in it. Needs
 * root.
 */
#pragma once

#include "node/proc/proc.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct own_cgroup {
	struct cgroup_hierarchy h;
	char name[64];
	const char *mounts[3]; /* mounts in which the cgroup is made */
	size_t n_mounts;
	pid_t pid; /* the process in the cgroup; 0: none */
};

static inline int own_cgroup_put(const char *mount, const char *name, const char *file,
				 const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s/%s", mount, name, file);
	FILE *f = fopen(path, "w");
	int r;

	if (!f)
		return -errno;
	r = fputs(text, f) < 0 ? -EIO : 0;
	return fclose(f) < 0 ? -errno : r;
}

static inline void own_cgroup_mount(struct own_cgroup *o, const char *mount)
{
	for (size_t i = 0; i < o->n_mounts; i++)
		if (streq(o->mounts[i], mount))
			return;
	o->mounts[o->n_mounts++] = mount;
}

static inline bool own_cgroup_make(struct own_cgroup *o)
{
	struct field_error err;

	*o = (struct own_cgroup){0};
	if (geteuid() != 0 || proc_cgroup_choose("", &o->h, &err) < 0)
		return false;
	snprintf(o->name, sizeof(o->name), "podflame-cpu-test-%d", getpid());
	own_cgroup_mount(o, o->h.mount);
	if (*o->h.cpuacct_mount)
		own_cgroup_mount(o, o->h.cpuacct_mount);
	if (*o->h.cpu_mount)
		own_cgroup_mount(o, o->h.cpu_mount);
	for (size_t i = 0; i < o->n_mounts; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", o->mounts[i], o->name);

		if (mkdir(path, 0755) < 0)
			return false;
	}
	return true;
}

static inline void own_cgroup_remove(struct own_cgroup *o)
{
	if (o->pid > 0) {
		kill(o->pid, SIGKILL);
		waitpid(o->pid, NULL, 0);
	}
	for (size_t i = 0; i < o->n_mounts; i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", o->mounts[i], o->name);

		for (unsigned k = 0; k < 1000 && rmdir(path) < 0 && errno == EBUSY; k++)
			/*
			 * a cgroup is busy until the kernel has removed the dead process from it, a
			 * moment later
			 */
			usleep(10000);
	}
}

/* Limits the cgroup to a fifth of a CPU. Returns false if this machine cannot do so. */
static inline bool own_cgroup_limit(const struct own_cgroup *o)
{
	if (*o->h.cpu_mount)
		return own_cgroup_put(o->h.cpu_mount, o->name, "cpu.cfs_quota_us", "20000") == 0;
	(void)own_cgroup_put(o->h.mount, "", "cgroup.subtree_control", "+cpu");
	return own_cgroup_put(o->h.mount, o->name, "cpu.max", "20000 100000") == 0;
}

static inline void own_cgroup_burn(struct own_cgroup *o)
{
	volatile unsigned long x = 0;

	o->pid = fork();
	if (o->pid != 0)
		return;
	alarm(120);
	for (size_t i = 0; i < o->n_mounts; i++)
		if (own_cgroup_put(o->mounts[i], o->name, "cgroup.procs", "0") < 0)
			_exit(1);
	for (;;)
		x++;
}
