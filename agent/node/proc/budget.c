/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how much memory tables and caches may use. The kernel charges BPF maps to the cgroup of
 * the process that makes them, and kills an agent that exceeds its limit. Any thread.
 */
#include "node/proc/proc.h"

#include <fcntl.h>
#include <stdlib.h>

#define LIMIT_SHARE 4		 /* a budget has at most 1/4 of the memory limit */
#define NO_LIMIT    (1ULL << 60) /* from this value on, no limit: v1 writes one near 2^63 */

static uint64_t limit_in(const char *dir, const char *file)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, file), *text = NULL;
	uint64_t limit;

	if (file_read(AT_FDCWD, path, 64, &text, NULL) < 0)
		return UINT64_MAX;
	text[strcspn(text, "\n")] = '\0';
	return str_to_u64(text, UINT64_MAX, &limit) == 0 && limit < NO_LIMIT ? limit : UINT64_MAX;
}

/*
 * Returns the lowest limit of the cgroup at path and of all cgroups above it. In a container, the
 * mount may begin at the container's own cgroup. Then the path does not exist, and the limit of the
 * mount itself counts.
 */
static uint64_t limit_above(const char *mount, const char *path, const char *file)
{
	_cleanup_free_ char *dir = xasprintf("%s%s", mount, path);
	uint64_t limit = limit_in(mount, file), x;
	char *slash;

	while ((slash = strrchr(dir, '/')) && slash >= dir + strlen(mount)) {
		x = limit_in(dir, file);
		limit = MIN(limit, x);
		*slash = '\0';
	}
	return limit;
}

/*
 * Returns the limit of the cgroup in a line of /proc/self/cgroup: "0::/path" (v2), "5:memory:/path"
 * or "7:cpu,memory:/path" (v1).
 */
static uint64_t limit_of_line(char *line, const char *mount)
{
	_cleanup_free_ char *v1 = xasprintf("%s/memory", mount);
	char *controllers = strchr(line, ':'), *path, *save = NULL;

	path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return UINT64_MAX;
	*path++ = '\0';
	if (!*++controllers)
		return limit_above(mount, path, "memory.max");
	for (char *s = strtok_r(controllers, ",", &save); s; s = strtok_r(NULL, ",", &save))
		if (streq(s, "memory"))
			return limit_above(v1, path, "memory.limit_in_bytes");
	return UINT64_MAX;
}

uint64_t proc_memory_limit(const char *self_cgroup, const char *mount)
{
	_cleanup_free_ char *text = xstrdup(self_cgroup);
	uint64_t limit = UINT64_MAX;
	char *save = NULL;

	for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
		uint64_t x = limit_of_line(s, mount);

		limit = MIN(limit, x);
	}
	return limit;
}

size_t proc_memory_share(uint64_t wanted_bytes)
{
	/*
	 * the limit in the pod's spec, because in a container that sees the host's cgroup tree, the
	 * limit of its own cgroup may not be found
	 */
	const char *told = getenv("MEMORY_LIMIT");
	_cleanup_free_ char *text = NULL;
	uint64_t limit = UINT64_MAX, x;

	if (told && str_to_u64(told, UINT64_MAX, &x) == 0 && x > 0)
		limit = x;
	if (file_read(AT_FDCWD, "/proc/self/cgroup", 65536, &text, NULL) == 0) {
		x = proc_memory_limit(text, "/sys/fs/cgroup");
		limit = MIN(limit, x);
	}
	return MIN(wanted_bytes, limit / LIMIT_SHARE);
}
