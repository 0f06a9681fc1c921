/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to fault.c: second definitions of the calls that can fail. Each calls fault(), and then
 * the next definition of its name: that of a sanitizer or of the C library. Calls inside the C
 * library do not use these definitions.
 */
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <poll.h>

static void *real_of(void **slot, const char *name)
{
	void *f = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		if (!f)
			abort();
		__atomic_store_n(slot, f, __ATOMIC_RELAXED);
	}
	return f;
}

#define REAL(type, name, params)                                                                   \
	static void *slot_;                                                                        \
	type(*real) params = (type(*) params)real_of(&slot_, name)

/* Defines a call that fails as system calls do: it returns `bad` and sets errno. */
#define CALL(kind, type, bad, name, params, args)                                                  \
	type name params;                                                                          \
	type name params                                                                           \
	{                                                                                          \
		REAL(type, #name, params);                                                         \
		int e_ = fault(FAULT_##kind);                                                      \
                                                                                                   \
		if (e_ > 0) {                                                                      \
			errno = e_;                                                                \
			return bad;                                                                \
		}                                                                                  \
		return real args;                                                                  \
	}
/* As CALL, for calls that read or write n bytes: a short call handles half of them. */
#define MOVE(kind, name, params, args)                                                             \
	ssize_t name params                                                                        \
	{                                                                                          \
		REAL(ssize_t, #name, params);                                                      \
		int e_ = fault(FAULT_##kind);                                                      \
                                                                                                   \
		if (e_ > 0) {                                                                      \
			errno = e_;                                                                \
			return -1;                                                                 \
		}                                                                                  \
		if (e_ == FAULT_SHORT && n > 1)                                                    \
			n /= 2;                                                                    \
		return real args;                                                                  \
	}

/* ---- files ---- */

/*
 * Defines a call that opens a file. params, types: parameters that name the file, and their types;
 * where...: the same as arguments.
 */
#define OPEN(name, params, types, where...)                                                        \
	int name params                                                                            \
	{                                                                                          \
		REAL(int, #name, types);                                                           \
		int e_ = fault(FAULT_OPEN);                                                        \
		va_list ap;                                                                        \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(ap, flags);                                                               \
		mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                     \
		va_end(ap);                                                                        \
		if (e_ > 0) {                                                                      \
			errno = e_;                                                                \
			return -1;                                                                 \
		}                                                                                  \
		return real(where, flags, mode);                                                   \
	}
OPEN(open, (const char *path, int flags, ...), (const char *, int, ...), path)
OPEN(open64, (const char *path, int flags, ...), (const char *, int, ...), path)
OPEN(openat, (int fd, const char *path, int flags, ...), (int, const char *, int, ...), fd, path)
OPEN(openat64, (int fd, const char *path, int flags, ...), (int, const char *, int, ...), fd, path)
CALL(OPEN, FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
CALL(OPEN, FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
CALL(OPEN, FILE *, NULL, fdopen, (int fd, const char *mode), (fd, mode))
CALL(OPEN, DIR *, NULL, opendir, (const char *path), (path))
CALL(OPEN, DIR *, NULL, fdopendir, (int fd), (fd))
MOVE(READ, read, (int fd, void *p, size_t n), (fd, p, n))
MOVE(READ, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
MOVE(READ, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at))
MOVE(WRITE, write, (int fd, const void *p, size_t n), (fd, p, n))
MOVE(WRITE, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
MOVE(WRITE, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at))
CALL(READDIR, struct dirent *, NULL, readdir, (DIR * d), (d))
CALL(READDIR, struct dirent64 *, NULL, readdir64, (DIR * d), (d))
CALL(OPEN, int, -1, mkostemp, (char *path, int flags), (path, flags))
CALL(OPEN, int, -1, mkostemp64, (char *path, int flags), (path, flags))
CALL(SYNC, int, -1, fsync, (int fd), (fd))
CALL(SYNC, int, -1, fdatasync, (int fd), (fd))
CALL(RENAME, int, -1, rename, (const char *a, const char *b), (a, b))
CALL(RENAME, int, -1, renameat, (int fa, const char *a, int fb, const char *b), (fa, a, fb, b))
CALL(UNLINK, int, -1, unlink, (const char *path), (path))
CALL(UNLINK, int, -1, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
CALL(STAT, int, -1, stat, (const char *path, struct stat *st), (path, st))
CALL(STAT, int, -1, stat64, (const char *path, struct stat64 *st), (path, st))
CALL(STAT, int, -1, lstat, (const char *path, struct stat *st), (path, st))
CALL(STAT, int, -1, lstat64, (const char *path, struct stat64 *st), (path, st))
CALL(STAT, int, -1, fstat, (int fd, struct stat *st), (fd, st))
CALL(STAT, int, -1, fstat64, (int fd, struct stat64 *st), (fd, st))
CALL(STAT, int, -1, fstatat, (int fd, const char *p, struct stat *st, int f), (fd, p, st, f))
CALL(STAT, int, -1, statx, (int fd, const char *p, int f, unsigned m, struct statx *st),
     (fd, p, f, m, st))
CALL(MKDIR, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
CALL(TRUNCATE, int, -1, ftruncate, (int fd, off_t n), (fd, n))
CALL(TRUNCATE, int, -1, ftruncate64, (int fd, off64_t n), (fd, n))
CALL(MMAP, void *, MAP_FAILED, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at),
     (p, n, prot, flags, fd, at))
CALL(MMAP, void *, MAP_FAILED, mmap64, (void *p, size_t n, int prot, int flags, int fd, off64_t at),
     (p, n, prot, flags, fd, at))

/*
 * Replaces getline(), which reads by calls inside the C library that cannot be replaced. Returns
 * the error that the stream would return.
 */
ssize_t getline(char **line, size_t *cap, FILE *f)
{
	REAL(ssize_t, "getline", (char **, size_t *, FILE *));
	int e = fault(FAULT_READ);

	if (e <= 0 || e == EINTR)
		return real(line, cap, f);
	f->_flags |= 0x20; /* _IO_ERR_SEEN: the flag that ferror() reads */
	errno = e;
	return -1;
}

/* ---- descriptors ---- */

CALL(FD, int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(FD, int, -1, socketpair, (int d, int type, int protocol, int fds[2]), (d, type, protocol, fds))
CALL(FD, int, -1, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
CALL(FD, int, -1, pipe2, (int fds[2], int flags), (fds, flags))
CALL(FD, int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(FD, int, -1, eventfd, (unsigned n, int flags), (n, flags))
CALL(FD, int, -1, epoll_create1, (int flags), (flags))
CALL(FD, int, -1, dup, (int fd), (fd))
CALL(CONNECT, int, -1, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
MOVE(SEND, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
MOVE(RECV, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
CALL(SEND, ssize_t, -1, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
CALL(RECV, ssize_t, -1, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
CALL(POLL, int, -1, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
CALL(POLL, int, -1, ppoll,
     (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *s), (p, n, t, s))
CALL(POLL, int, -1, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))

int ioctl(int fd, unsigned long request, ...)
{
	REAL(int, "ioctl", (int, unsigned long, ...));
	int e = fault(FAULT_IOCTL);
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (e > 0) {
		errno = e;
		return -1;
	}
	return real(fd, request, arg);
}

/* Fails only for EPOLL_CTL_ADD: the other operations need no memory, so they cannot fail. */
int epoll_ctl(int fd, int op, int of, struct epoll_event *e)
{
	REAL(int, "epoll_ctl", (int, int, int, struct epoll_event *));
	int error = op == EPOLL_CTL_ADD ? fault(FAULT_EPOLL) : 0;

	if (error > 0) {
		errno = error;
		return -1;
	}
	return real(fd, op, of, e);
}

/* ---- processes and threads: the error is what they return ---- */

CALL(START, pid_t, -1, fork, (void), ())

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	REAL(int, "posix_spawn",
	     (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
	      char *const[], char *const[]));
	int e = fault(FAULT_START);

	return e ? e : real(pid, path, actions, attr, argv, envp);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	REAL(int, "pthread_create",
	     (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
	int e = fault(FAULT_START);

	return e ? e : real(t, attr, fn, arg);
}

/* ---- calls without a function of their own ---- */

static int fault_bpf(long command)
{
	int e = fault(FAULT_BPF);

	if (!e && (command == BPF_LINK_CREATE || command == BPF_RAW_TRACEPOINT_OPEN ||
		   command == BPF_ITER_CREATE))
		e = fault(FAULT_LINK);
	return e;
}

static int fault_syscall(long number, long first)
{
	switch (number) {
	case SYS_bpf:
		return fault_bpf(first);
	case SYS_perf_event_open:
		return fault(FAULT_PERF);
	case SYS_openat2:
	case SYS_pidfd_open:
		return fault(FAULT_OPEN);
	default:
		return 0;
	}
}

long syscall(long number, ...)
{
	REAL(long, "syscall", (long, ...));
	va_list ap;
	long a[6];
	int e;

	va_start(ap, number);
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	e = fault_syscall(number, a[0]);
	if (e > 0) {
		errno = e;
		return -1;
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- memory ---- */

/*
 * Whether the caller is a library that can work without the memory. podflame and the C library
 * cannot (mem.c aborts).
 */
static bool can_do_without(void *caller)
{
	static const char *const libraries[] = {"libyaml", "libsqlite3", "libbpf",
						"libzstd", "libcrypto",	 "libssl"};
	/* dl_find_object() is fast; dladdr() would search all names of the library */
	struct dl_find_object found;
	const char *name;

	if (atomic_load(&armed->call) != FAULT_MALLOC || _dl_find_object(caller, &found) != 0)
		return false;
	name = strrchr(found.dlfo_link_map->l_name, '/');
	for (size_t i = 0; name && i < ARRAY_SIZE(libraries); i++)
		if (str_has_prefix(name + 1, libraries[i]))
			return true;
	return false;
}

static void *counted(void *p)
{
	if (p)
		atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
	return p;
}

#define NO_MEMORY (can_do_without(__builtin_return_address(0)) && fault(FAULT_MALLOC))

void *malloc(size_t n)
{
	REAL(void *, "malloc", (size_t));

	if (NO_MEMORY) {
		errno = ENOMEM;
		return NULL;
	}
	return counted(real(n));
}

void *calloc(size_t n, size_t size)
{
	REAL(void *, "calloc", (size_t, size_t));

	if (NO_MEMORY) {
		errno = ENOMEM;
		return NULL;
	}
	return counted(real(n, size));
}

void *realloc(void *p, size_t n)
{
	REAL(void *, "realloc", (void *, size_t));
	void *q;

	if (NO_MEMORY) {
		errno = ENOMEM;
		return NULL;
	}
	q = real(p, n);
	if (!p)
		counted(q);
	else if (!n && !q)
		atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
	return q;
}

void *aligned_alloc(size_t align, size_t n)
{
	REAL(void *, "aligned_alloc", (size_t, size_t));

	return counted(real(align, n));
}

int posix_memalign(void **ret, size_t align, size_t n)
{
	REAL(int, "posix_memalign", (void **, size_t, size_t));
	int r = real(ret, align, n);

	if (!r)
		counted(*ret);
	return r;
}

void free(void *p)
{
	REAL(void, "free", (void *));

	if (p)
		atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
	real(p);
}
