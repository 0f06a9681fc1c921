/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes small files as a whole. Makes random numbers. */
#include "lib/base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, struct buf *b)
{
	char chunk[16384];

	for (;;) {
		ssize_t n = read(fd, chunk, sizeof(chunk));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		r = buf_add(b, chunk, (size_t)n);
		if (r)
			return r;
	}
}

int file_read(int dirfd, const char *path, size_t max_bytes, char **ret_data, size_t *ret_n)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_buf_ struct buf b;
	int r;

	buf_init(&b, max_bytes);
	if (fd < 0)
		return -errno;
	r = read_all(fd, &b);
	if (r)
		return r;
	if (ret_n)
		*ret_n = b.len;
	*ret_data = buf_steal(&b);
	return 0;
}

/* Returns the text of EFBIG for E2BIG, because strerror(E2BIG) is about arguments, not files. */
const char *file_error_text(int error)
{
	return strerror(error == -E2BIG ? EFBIG : -error);
}

int fd_write_all(int fd, const void *data, size_t n)
{
	const char *p = data;

	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

int file_write_atomic(const char *path, const void *data, size_t n, mode_t mode)
{
	_cleanup_free_ char *tmp = xasprintf("%s.tmp", path);
	_cleanup_close_ int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, n);
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (!r && rename(tmp, path) < 0)
		r = -errno;
	if (r)
		unlink(tmp);
	return r;
}

int mkdir_parents(const char *path, mode_t mode)
{
	_cleanup_free_ char *p = xstrdup(path);
	struct stat st;

	for (char *s = p + 1;; s++) {
		char c = *s;

		if (c != '/' && c)
			continue;
		*s = '\0';
		if (mkdir(p, mode) < 0 && errno != EEXIST)
			return -errno;
		*s = c;
		if (!c)
			break;
	}
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

void random_bytes(void *p, size_t n)
{
	uint8_t *out = p;

	while (n) {
		ssize_t got = getrandom(out, n, 0);

		if (got < 0 && errno != EINTR)
			/* without flags, getrandom does not fail on a system that has booted */
			abort();
		if (got > 0) {
			out += got;
			n -= (size_t)got;
		}
	}
}

uint64_t random_below(uint64_t bound)
{
	uint64_t r, limit = UINT64_MAX - UINT64_MAX % bound;

	do {
		random_bytes(&r, sizeof(r));
	} while (r >= limit);
	return r % bound;
}
