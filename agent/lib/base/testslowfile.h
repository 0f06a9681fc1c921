/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a file system (FUSE, implemented here) with one file, which is a copy of another
 * one. It can stop answering reads, like NFS if its server does not answer. The kernel does not
 * cache the file for read(), but a process that maps the file has pages of it. A thread of the test
 * program serves the file system. This thread has its own descriptors, so the kernel ends the file
 * system when the thread ends. So if the program is killed, it ends even if another of its threads
 * waits for an answer.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/base/base.h"

#define SLOW_NAME    "file"
#define SLOW_FILE    2 /* FUSE's nodeid of the file */
#define SLOW_PENDING 64

struct slow_file {
	const char *copy_of;
	char dir[64], path[80];
	/* descriptors of /dev/fuse and of the copied file; open in the serving thread only */
	int fd, copied;
	sem_t begun;
	int error;
	uint64_t size;
	atomic_bool silent, ended;
	pthread_t thread;
	struct slow_read {
		uint64_t unique, offset;
		uint32_t size;
	} pending[SLOW_PENDING];
	size_t n_pending;
};

static inline void slow_reply(struct slow_file *s, uint64_t unique, int error, const void *data,
			      size_t n)
{
	struct fuse_out_header h = {
		.len = (uint32_t)(sizeof(h) + n), .error = error, .unique = unique};
	struct iovec parts[] = {{&h, sizeof(h)}, {(void *)data, n}};

	(void)!writev(s->fd, parts, n ? 2 : 1); /* the reader may have been killed */
}

static inline struct fuse_attr slow_attr(const struct slow_file *s, uint64_t node)
{
	bool file = node == SLOW_FILE;

	return (struct fuse_attr){.ino = node,
				  .size = file ? s->size : 0,
				  .blksize = 4096,
				  .nlink = 1,
				  .mode = file ? S_IFREG | 0755 : S_IFDIR | 0755};
}

static inline void slow_answer_read(struct slow_file *s, const struct slow_read *r)
{
	char *data = malloc(r->size);
	ssize_t n = pread(s->copied, data, r->size, (off_t)r->offset);

	slow_reply(s, r->unique, n < 0 ? -EIO : 0, data, n < 0 ? 0 : (size_t)n);
	free(data);
}

static inline void slow_read_comes(struct slow_file *s, const struct fuse_in_header *h,
				   const struct fuse_read_in *in)
{
	struct slow_read r = {h->unique, in->offset, in->size};

	if (s->silent && s->n_pending < SLOW_PENDING)
		s->pending[s->n_pending++] = r;
	else
		slow_answer_read(s, &r);
}

static inline void slow_lookup(struct slow_file *s, const struct fuse_in_header *h,
			       const char *name)
{
	struct fuse_entry_out out = {.nodeid = SLOW_FILE,
				     .entry_valid = 3600,
				     .attr_valid = 3600,
				     .attr = slow_attr(s, SLOW_FILE)};
	bool known = !strcmp(name, SLOW_NAME);

	slow_reply(s, h->unique, known ? 0 : -ENOENT, &out, known ? sizeof(out) : 0);
}

static inline void slow_answer(struct slow_file *s, const struct fuse_in_header *h, const void *arg)
{
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
	struct fuse_attr_out attr = {.attr_valid = 3600, .attr = slow_attr(s, h->nodeid)};
	struct fuse_open_out open = {.open_flags = FOPEN_DIRECT_IO};

	switch (h->opcode) {
	case FUSE_INIT:
		slow_reply(s, h->unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		slow_lookup(s, h, arg);
		break;
	case FUSE_GETATTR:
		slow_reply(s, h->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		slow_reply(s, h->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		slow_read_comes(s, h, arg);
		break;
	case FUSE_RELEASE:
		slow_reply(s, h->unique, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break; /* the kernel expects no answer */
	default:
		slow_reply(s, h->unique, -ENOSYS, NULL, 0);
	}
}

/* Mounts the file system. The descriptors are open in this thread only. */
static inline int slow_begin(struct slow_file *s)
{
	_cleanup_free_ char *options = NULL;
	struct stat st;

	if (unshare(CLONE_FILES) < 0 || close_range(3, ~0u, 0) < 0)
		return -errno;
	s->copied = open(s->copy_of, O_RDONLY | O_CLOEXEC);
	s->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (s->copied < 0 || s->fd < 0 || fstat(s->copied, &st) < 0)
		return -errno;
	s->size = (uint64_t)st.st_size;
	options = xasprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", s->fd);
	return mount("slow-file", s->dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

static inline void *slow_serve(void *arg)
{
	static _Alignas(8) char request[FUSE_MIN_READ_BUFFER + 4096];
	struct slow_file *s = arg;
	int error = slow_begin(s);

	s->error = error;
	sem_post(&s->begun);
	while (!error && !s->ended) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};

		while (!s->silent && s->n_pending)
			slow_answer_read(s, &s->pending[--s->n_pending]);
		if (poll(&p, 1, 10) == 1 && read(s->fd, request, sizeof(request)) > 0)
			slow_answer(s, (struct fuse_in_header *)request,
				    request + sizeof(struct fuse_in_header));
	}
	close(s->fd);
	close(s->copied);
	return NULL;
}

/* Returns -errno if FUSE does not work here. */
static inline int slow_file_new(struct slow_file *s, const char *copy_of)
{
	*s = (struct slow_file){.copy_of = copy_of, .fd = -1, .copied = -1};
	snprintf(s->dir, sizeof(s->dir), "/tmp/slow-file-XXXXXX");
	if (!mkdtemp(s->dir))
		return -errno;
	snprintf(s->path, sizeof(s->path), "%s/" SLOW_NAME, s->dir);
	sem_init(&s->begun, 0, 0);
	if (pthread_create(&s->thread, NULL, slow_serve, s) != 0)
		abort();
	while (sem_wait(&s->begun) < 0)
		;
	if (s->error) {
		pthread_join(s->thread, NULL);
		rmdir(s->dir);
	}
	return s->error;
}

static inline void slow_file_free(struct slow_file *s)
{
	s->silent = false;
	umount2(s->dir, MNT_DETACH);
	s->ended = true;
	pthread_join(s->thread, NULL);
	rmdir(s->dir);
}
