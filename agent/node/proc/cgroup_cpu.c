/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CPU time of a cgroup by its id. The id is the inode number and also a file handle that
 * kernfs accepts (FILEID_KERNFS, include/linux/exportfs.h, kernel 5.5), so no path has to be kept.
 * os or files worker.
 */
#include "node/proc/internal.h"

#include <fcntl.h>
#include <unistd.h>

#define FILEID_KERNFS  0xfe
#define MAX_STAT_BYTES 4096 /* bytes of cpu.stat and of each file of v1 */

static int open_by_id(const char *mount, uint64_t id, int *ret_fd)
{
	_cleanup_close_ int root = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	union {
		struct file_handle handle;
		uint8_t bytes[sizeof(struct file_handle) + sizeof(id)];
	} h = {.handle = {.handle_bytes = sizeof(id), .handle_type = FILEID_KERNFS}};
	int fd;

	if (root < 0)
		return -errno;
	memcpy(h.bytes + offsetof(struct file_handle, f_handle), &id, sizeof(id));
	fd = open_by_handle_at(root, &h.handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/*
 * Sets *ret to the number in the line "name value" of text. For the files see cgroup-v2.rst
 * "cpu.stat", cgroup-v1/cpuacct.rst, scheduler/sched-bwc.rst.
 */
static bool value_of(const char *text, const char *name, uint64_t *ret)
{
	size_t n = strlen(name);

	for (const char *line = text; line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		unsigned long long v;

		if (strncmp(line, name, n) != 0 || line[n] != ' ' ||
		    sscanf(line + n, "%llu", &v) != 1)
			continue;
		*ret = v;
		return true;
	}
	return false;
}

static int read_v2(int dirfd, struct cgroup_cpu *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = file_read(dirfd, "cpu.stat", MAX_STAT_BYTES, &text, NULL);
	uint64_t usage_us = 0, throttled_us = 0;

	if (r < 0)
		return r;
	if (!value_of(text, "usage_usec", &usage_us))
		return -ENODATA;
	/* these two lines exist only if the cgroup has the cpu controller */
	(void)value_of(text, "nr_throttled", &ret->n_throttled);
	(void)value_of(text, "throttled_usec", &throttled_us);
	ret->usage_ns = usage_us * 1000;
	ret->throttled_ns = throttled_us * 1000;
	return 0;
}

/*
 * Finds the cgroup's path relative to the mount of its hierarchy. In v1, other hierarchies have a
 * cgroup with the same path.
 */
static int path_below(const struct cgroup_hierarchy *h, int dirfd, char *path, size_t size)
{
	char link[64], target[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (!str_has_prefix(target, h->mount) || (size_t)n - strlen(h->mount) >= size)
		return -ENODATA;
	snprintf(path, size, "%s", target + strlen(h->mount));
	return 0;
}

static int read_v1_file(const char *mount, const char *path, const char *file, char **ret)
{
	_cleanup_free_ char *full = xasprintf("%s%s/%s", mount, path, file);

	return *mount ? file_read(AT_FDCWD, full, MAX_STAT_BYTES, ret, NULL) : -ENODATA;
}

static int read_v1(const struct cgroup_hierarchy *h, int dirfd, struct cgroup_cpu *ret)
{
	_cleanup_free_ char *usage = NULL, *stat = NULL;
	char path[4096];
	int r = path_below(h, dirfd, path, sizeof(path));

	if (r == 0)
		r = read_v1_file(h->cpuacct_mount, path, "cpuacct.usage", &usage);
	if (r < 0)
		return r;
	usage[strcspn(usage, "\n")] = '\0';
	if (str_to_u64(usage, UINT64_MAX, &ret->usage_ns) < 0)
		return -ENODATA;
	if (read_v1_file(h->cpu_mount, path, "cpu.stat", &stat) == 0) {
		(void)value_of(stat, "nr_throttled", &ret->n_throttled);
		(void)value_of(stat, "throttled_time", &ret->throttled_ns);
	}
	return 0;
}

int proc_cgroup_cpu_read(const struct cgroup_hierarchy *h, uint64_t cgroup_id,
			 struct cgroup_cpu *ret)
{
	struct cgroup_cpu cpu = {0};
	_cleanup_close_ int fd = -1;
	int r = open_by_id(h->mount, cgroup_id, &fd);

	if (r == 0)
		r = *h->cpuacct_mount ? read_v1(h, fd, &cpu) : read_v2(fd, &cpu);
	if (r == 0)
		*ret = cpu;
	return r;
}
