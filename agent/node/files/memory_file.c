/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file handles files in memory without a name (memfd). A process that has such a file mapped
 * may rewrite the file without a new change time. So the agent parses a copy, and keeps the copy as
 * long as the index. Before the agent names running code, it compares that code with the copy.
 */
#include "node/files/internal.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (64u << 10)
/* a file that changes all the time is parsed anew at most this often */
#define AGAIN_NS (10 * NSEC_PER_SEC)

static bool is_elf(int fd)
{
	char magic[SELFMAG];

	return pread(fd, magic, SELFMAG, 0) == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/*
 * Copies n bytes. If the file becomes shorter during the copy, the copy is shorter, and the parser
 * reports what is wrong.
 */
static int copy_bytes(int from, int to, uint64_t n)
{
	_cleanup_free_ char *piece = xmalloc(PIECE_BYTES);

	for (uint64_t at = 0; at < n;) {
		ssize_t got = pread(from, piece, MIN(n - at, PIECE_BYTES), (off_t)at);
		int r;

		if (got < 0)
			return -errno;
		if (got == 0)
			return 0;
		r = fd_write_all(to, piece, (size_t)got);
		if (r < 0)
			return r;
		at += (uint64_t)got;
	}
	return 0;
}

int files_memory_file_copy(int fd, int *ret_fd, size_t *ret_bytes)
{
	_cleanup_close_ int copy = -1;
	struct stat st;
	int r;

	if (!is_elf(fd)) {
		*ret_fd = -1;
		*ret_bytes = 0;
		return 0;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > MEMORY_FILES_BYTES_MAX)
		return -E2BIG;
	copy = memfd_create("podflame-memory-file", MFD_CLOEXEC);
	if (copy < 0)
		return -errno;
	r = copy_bytes(fd, copy, (uint64_t)st.st_size);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(copy);
	*ret_bytes = (size_t)st.st_size;
	return 0;
}

void files_memory_file_keep(struct files *f, struct file *x, int fd, size_t bytes)
{
	x->copy_fd = fd;
	x->copy_bytes = bytes;
	f->copy_bytes += bytes;
}

void files_memory_file_drop(struct files *f, struct file *x)
{
	closep(&x->copy_fd);
	x->copy_fd = -1;
	f->copy_bytes -= x->copy_bytes;
	x->copy_bytes = 0;
}

/* ---- for callers that use names of a memory file ---- */

static struct file *find(struct files *f, const struct mapping *m)
{
	struct file_key key = files_file_key_of(m, FILE_MAIN, 0);

	return files_file_find(f, &key);
}

int files_memory_file_seen(struct files *f, const struct mapping *m, struct mapping *ret)
{
	int fd = -1;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = find(f, m);
	if (x && x->image && x->copy_fd >= 0)
		fd = fcntl(x->copy_fd, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0) {
		*ret = *m;
		ret->fd = fd;
		ret->ctime_ns = x->parsed_ns;
	}
	pthread_mutex_unlock(&f->lock);
	return fd >= 0 ? 0 : -ENOENT;
}

static int read_copy(struct files *f, const struct mapping *m, uint64_t offset, void *to, size_t n,
		     size_t *ret_n)
{
	ssize_t got = -1;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = find(f, m);
	if (x && x->image && x->copy_fd >= 0)
		got = pread(x->copy_fd, to, n, (off_t)offset);
	pthread_mutex_unlock(&f->lock);
	if (got < 0)
		return -ENOENT;
	*ret_n = (size_t)got;
	return 0;
}

int files_code(struct files *f, const struct mapping *m, uint64_t offset, void *to, size_t n,
	       size_t *ret_n)
{
	ssize_t got;

	if (offset > INT64_MAX)
		return -EINVAL;
	if (m->memory_file)
		return read_copy(f, m, offset, to, n, ret_n);
	got = pread(m->fd, to, n, (off_t)offset);
	if (got < 0)
		return -errno;
	*ret_n = (size_t)got;
	return 0;
}

uint64_t files_parsed_ns(struct files *f, const struct mapping *m)
{
	uint64_t ns = 0;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = m->memory_file ? find(f, m) : NULL;
	if (x && x->image)
		ns = x->copied_ns;
	pthread_mutex_unlock(&f->lock);
	return ns;
}

void files_rewritten(struct files *f, const struct mapping *m)
{
	uint64_t now_ns = now_mono_ns();
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = m->memory_file ? find(f, m) : NULL;
	if (x && !x->busy && x->image && now_ns >= x->parsed_ns + AGAIN_NS) {
		files_image_unref(f, TAKE_PTR(x->image));
		files_memory_file_drop(f, x);
		x->error = -EAGAIN;
		x->retry_ns = 0;
		x->rewritten_ns = now_boot_ns();
		counter_add(counter("podflame_memory_files_rewritten_total", NULL, NULL), 1);
	}
	pthread_mutex_unlock(&f->lock);
}

uint64_t files_rewritten_ns(struct files *f, const struct mapping *m)
{
	uint64_t ns = 0;
	struct file *x;

	pthread_mutex_lock(&f->lock);
	x = m->memory_file ? find(f, m) : NULL;
	if (x)
		ns = x->rewritten_ns;
	pthread_mutex_unlock(&f->lock);
	return ns;
}
