/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches a cgroup hierarchy once, within limits, for all directories that name a pod. This file
 * keeps no state. os worker.
 */
#include "node/proc/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCAN_MAX_DIRS  65536
#define SCAN_MAX_DEPTH 32   /* levels of cgroups; deeper ones are not profiled */
#define SCAN_MAX_PATH  4096 /* bytes of a cgroup's path; longer ones are not profiled */

struct cgroup_walk {
	struct cgroup_scan *scan;
	/* path of the directory that is being read, relative to the mount */
	char path[SCAN_MAX_PATH];
	size_t len;
	/*
	 * the first error: the scan fails, because otherwise cgroups that it has not seen would
	 * count as removed
	 */
	int error;
	/*
	 * limited: the scan lacks cgroups beyond a limit; refused: it lacks cgroups that it may not
	 * read
	 */
	bool limited, refused;
};

static void failed(struct cgroup_walk *w, int error)
{
	/* the same directory would be refused again, so the scan goes on */
	if (error == EACCES || error == EPERM)
		w->refused = true;
	else if (error && !w->error && error != ENOENT && error != ENODEV)
		w->error = -error;
}

static void note(struct cgroup_walk *w, uint64_t id, uint64_t parent_id)
{
	struct cgroup_scan *s = w->scan;
	struct cgroup_ref ref;

	if (proc_cgroup_parse_path(w->path, &ref) < 0)
		return;
	GROW(s->items, s->n, s->cap);
	s->items[s->n++] = (struct scanned){id, parent_id, ref};
}

static void walk_dir(struct cgroup_walk *w, int fd, uint64_t id, unsigned depth);

static void walk_child(struct cgroup_walk *w, int dirfd, const char *name, uint64_t parent_id,
		       unsigned depth)
{
	size_t len = w->len, n = strlen(name);
	struct stat st;
	int fd;

	if (w->scan->n_dirs >= SCAN_MAX_DIRS || depth >= SCAN_MAX_DEPTH ||
	    len + n + 2 > sizeof(w->path)) {
		w->limited = true;
		return;
	}
	/* If the cgroup was removed after readdir(), open() fails, which is no error. */
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		failed(w, errno);
		return;
	}
	if (fstat(fd, &st) < 0) {
		failed(w, errno);
		close(fd);
		return;
	}
	w->scan->n_dirs++;
	w->path[len] = '/';
	memcpy(w->path + len + 1, name, n + 1);
	w->len = len + 1 + n;
	note(w, st.st_ino, parent_id);
	walk_dir(w, fd, st.st_ino, depth + 1);
	w->len = len;
	w->path[len] = '\0';
}

/* Closes fd at the end. */
static void walk_dir(struct cgroup_walk *w, int fd, uint64_t id, unsigned depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;

	if (!d) {
		failed(w, errno);
		close(fd);
		return;
	}
	while (errno = 0, (e = readdir(d)))
		if (e->d_type == DT_DIR && !streq(e->d_name, ".") && !streq(e->d_name, ".."))
			walk_child(w, fd, e->d_name, id, depth);
	failed(w, errno);
	closedir(d);
}

static void tell(struct cgroup_walk *w)
{
	w->scan->truncated = w->limited || w->refused;
	if (w->limited)
		counter_add(counter("podflame_cgroups_dropped_total", "reason", "scan_limit"), 1);
	if (w->refused)
		counter_add(counter("podflame_cgroups_dropped_total", "reason", "not_permitted"),
			    1);
}

int proc_cgroup_scan(const struct cgroup_hierarchy *h, struct cgroup_scan **ret)
{
	struct cgroup_walk *w;
	struct stat st;
	int fd = open(h->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	w = xcalloc(1, sizeof(*w));
	w->scan = xcalloc(1, sizeof(*w->scan));
	w->scan->started_ns = now_boot_ns();
	walk_dir(w, fd, st.st_ino, 0);
	tell(w);
	r = w->error;
	if (r)
		proc_cgroup_scan_free(w->scan);
	else
		*ret = w->scan;
	free(w);
	return r;
}

struct cgroup_scan *proc_cgroup_scan_free(struct cgroup_scan *s)
{
	if (s) {
		free(s->items);
		free(s);
	}
	return NULL;
}
