/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file opens files that belong to another file: debug files by build id and .gnu_debuglink,
 * and .dwo files. The names come from hostile files and are looked up in the root of a hostile
 * container. So no path leads out of that root, and only regular files are opened. A file on
 * another file system is not opened, because FUSE could block the agent. Only if the process has
 * the same root as podflame, other file systems are allowed.
 */
#include "node/files/internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#define OPEN_ATTEMPTS  8 /* the kernel gives up if names change during the lookup */
#define CRC_STEP_BYTES (1u << 20)

static int open_path(const struct place *p, const char *path, int *ret_fd)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = p->resolve};
	int fd;

	for (int i = 0; i < OPEN_ATTEMPTS; i++) {
		fd = syscall(SYS_openat2, p->dir_fd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int files_find_open(const struct place *p, const char *path, int *ret_fd)
{
	_cleanup_close_ int path_fd = -1;
	char self[40];
	struct stat st;
	int r = open_path(p, path, &path_fd), fd;

	if (r < 0)
		return r;
	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	if ((uint64_t)st.st_size > p->max_bytes)
		return -E2BIG;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/*
 * Computes the CRC-32 of a file. The file may grow during the read, so the limits apply to the
 * bytes that were read.
 */
static int crc_of(int fd, size_t max_bytes, uint64_t deadline_ns, uint32_t *ret_crc)
{
	_cleanup_free_ uint8_t *buf = xmalloc(CRC_STEP_BYTES);
	uint32_t crc = 0;

	for (off_t at = 0;;) {
		ssize_t n = pread(fd, buf, CRC_STEP_BYTES, at);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += n;
		if ((uint64_t)at > max_bytes)
			return -E2BIG;
		if (now_mono_ns() > deadline_ns)
			return -ETIMEDOUT;
		crc = crc32(crc, buf, n);
	}
	*ret_crc = crc;
	return 0;
}

int files_find_build_id(const struct place *p, const char *build_id, int *ret_fd)
{
	_cleanup_free_ char *path = NULL;

	if (strlen(build_id) < 4)
		return -ENOENT;
	path = xasprintf("%s/.build-id/%.2s/%s.debug", p->debug_dir, build_id, build_id + 2);
	return files_find_open(p, path, ret_fd);
}

static int open_with_crc(const struct place *p, const char *path, uint32_t crc, int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	uint32_t have = 0;
	int r = files_find_open(p, path, &fd);

	if (r == 0)
		r = crc_of(fd, p->max_bytes, now_mono_ns() + p->timeout_ns, &have);
	if (r == 0 && have != crc)
		r = -EBADMSG;
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

int files_find_debuglink(const struct place *p, const char *path, const char *name, uint32_t crc,
			 int *ret_fd)
{
	const char *slash = strrchr(path, '/');
	int dir = slash ? slash - path : 0, worst = -ENOENT;
	char *paths[] = {
		p->beside ? xasprintf("%.*s/%s", dir, path, name) : NULL,
		p->beside ? xasprintf("%.*s/.debug/%s", dir, path, name) : NULL,
		xasprintf("%s%.*s/%s", p->debug_dir, dir, path, name),
	};
	int r = -ENOENT;

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		if (r != 0 && paths[i] && *name) {
			r = open_with_crc(p, paths[i], crc, ret_fd);
			/* Reports an error of an existing file rather than a missing file. */
			worst = r == -ENOENT || r == -ENOTDIR ? worst : r;
		}
		free(paths[i]);
	}
	return r == 0 ? 0 : worst;
}
