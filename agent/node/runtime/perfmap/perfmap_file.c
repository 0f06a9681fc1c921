/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /tmp/perf-PID.map of a process, in the root of the process, with its PID in its own PID
 * namespace. Any program that can write into that /tmp may have made the file. So the agent reads
 * only a regular file that belongs to the process's user or to root, follows no link, and reads no
 * more than the size that the file had at the beginning.
 */
#include "node/runtime/perfmap/perfmap.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OPEN_ATTEMPTS 8 /* openat2() gives up when names change meanwhile */
#define STEP_BYTES    65536
/* tolerance: clocks of file systems are coarse, and users set clocks */
#define OLDER_NS   NSEC_PER_SEC
#define RESTART_NS (60 * NSEC_PER_SEC) /* least time between two reads from a file's start */

void runtime_perf_map_path(uint32_t own_pid, char ret[PERF_MAP_PATH_BYTES])
{
	snprintf(ret, PERF_MAP_PATH_BYTES, "tmp/perf-%" PRIu32 ".map", own_pid);
}

const char *runtime_perf_file_problem(int error)
{
	switch (error) {
	case -ELOOP:
		return "it is a symbolic link";
	case -ENOTSUP:
		return "it is no regular file";
	case -EPERM:
		return "it belongs to another user";
	case -EFBIG:
		return "it is larger than 256 MiB";
	case -ETIME:
		return "it was written before the process began";
	case 0:
	case -EAGAIN:
	case -EBUSY:
	case -ENOENT:
	case -ESRCH:
		return NULL;
	default:
		return strerror(-error);
	}
}

/* ---- the process ---- */

int runtime_perf_file_status(uint32_t tgid, char **ret)
{
	char path[40];
	int r;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/status", tgid);
	r = file_read(AT_FDCWD, path, 65536, ret, NULL);
	return r == -ENOENT ? -ESRCH : r;
}

bool runtime_perf_status_number(const char *status, const char *field, int k, uint32_t *ret)
{
	const char *p = strstr(status, field);
	bool found = false;

	if (!p)
		return false;
	p += strlen(field);
	for (int i = 0; k < 0 || i <= k; i++) {
		p += strspn(p, " \t");
		if (*p < '0' || *p > '9')
			break;
		*ret = (uint32_t)strtoul(p, (char **)&p, 10);
		found = k < 0 || i == k;
	}
	return found;
}

bool runtime_perf_file_same_process(const struct perf_file *f)
{
	return proc_check(f->id) == 0;
}

int runtime_perf_file_init(struct process_id id, struct perf_file *ret)
{
	struct perf_file f = {.id = id};
	_cleanup_free_ char *status = NULL;
	int r = runtime_perf_file_status((uint32_t)id.tgid, &status);

	if (r < 0)
		return r;
	if (!runtime_perf_status_number(status, "\nNSpid:", -1, &f.own_pid))
		f.own_pid = (uint32_t)id.tgid;
	if (!runtime_perf_file_same_process(&f))
		return -ESRCH;
	*ret = f;
	return 0;
}

void runtime_perf_file_done(struct perf_file *f)
{
	f->map = runtime_perf_map_free(f->map);
}

void runtime_perf_file_set(struct perf_file *f, struct perf_map *map)
{
	if (f->map)
		f->generation = runtime_perf_file_generation(f) + 1;
	runtime_perf_map_free(f->map);
	f->map = map;
}

uint64_t runtime_perf_file_generation(const struct perf_file *f)
{
	return f->generation + (f->map ? runtime_perf_map_replaced(f->map) : 0);
}

/* ---- opening ---- */

int runtime_perf_file_root(const struct perf_file *f, int *ret_fd)
{
	_cleanup_close_ int fd = -1, thread_fd = -1;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/root", f->id.tgid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		if (proc_open_living((uint32_t)f->id.tgid, &thread_fd) < 0)
			return -ESRCH;
		fd = openat(thread_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (!runtime_perf_file_same_process(f))
		return -ESRCH;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int runtime_perf_file_open_path(int root_fd, const char *path, uint64_t flags, int *ret_fd)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | flags,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	for (int i = 0; i < OPEN_ATTEMPTS; i++) {
		fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static bool is_trusted(const struct perf_file *f, uid_t owner)
{
	_cleanup_free_ char *status = NULL;
	uint32_t uid;

	return owner == 0 ||
	       (runtime_perf_file_status((uint32_t)f->id.tgid, &status) == 0 &&
		runtime_perf_status_number(status, "\nUid:", 1, &uid) && owner == uid);
}

/*
 * Checks the type of the file before it opens it for reading: to open a FIFO would block, and to
 * open a device might change something.
 */
static int open_map(const struct perf_file *f, struct stat *ret_st, int *ret_fd)
{
	_cleanup_close_ int root_fd = -1, path_fd = -1;
	char path[PERF_MAP_PATH_BYTES], self[40];
	int r, fd;

	runtime_perf_map_path(f->own_pid, path);
	r = runtime_perf_file_root(f, &root_fd);
	if (r < 0)
		return r;
	r = runtime_perf_file_open_path(root_fd, path, 0, &path_fd);
	if (r < 0)
		return r;
	if (fstat(path_fd, ret_st) < 0)
		return -errno;
	if (S_ISLNK(ret_st->st_mode))
		return -ELOOP;
	if (!S_ISREG(ret_st->st_mode))
		return -ENOTSUP;
	if (!is_trusted(f, ret_st->st_uid))
		return -EPERM;
	if ((uint64_t)ret_st->st_size > PERF_MAP_FILE_MAX)
		return -EFBIG;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* ---- reading ---- */

static size_t tail_n(const struct perf_file *f)
{
	return MIN(f->offset, sizeof(f->tail));
}

/* Returns whether the file has only grown since the last read. HotSpot rewrites the same file. */
static bool continues(const struct perf_file *f, int fd, const struct stat *st)
{
	char now[sizeof(f->tail)];
	size_t n = tail_n(f);

	return f->map && f->dev == st->st_dev && f->inode == st->st_ino &&
	       (uint64_t)st->st_size >= f->offset &&
	       pread(fd, now, n, f->offset - n) == (ssize_t)n && memcmp(now, f->tail, n) == 0;
}

/*
 * A /tmp may exist longer than a container, and the first process of each container has PID 1. This
 * function compares the time of the contents, not ctime, because start scripts of images chown the
 * files that they find.
 */
bool runtime_perf_file_is_older(const struct perf_file *f, const struct stat *st)
{
	int64_t older_ns = (int64_t)(now_boot_ns() - f->id.start_boottime_ns + OLDER_NS);
	const struct timespec *written = &st->st_mtim;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (written->tv_sec < 0 || written->tv_sec > now.tv_sec)
		return written->tv_sec < 0;
	return (now.tv_sec - written->tv_sec) * (int64_t)NSEC_PER_SEC + now.tv_nsec -
		       written->tv_nsec >
	       older_ns;
}

static int start_anew(struct perf_file *f, const struct stat *st)
{
	uint64_t now_ns = now_mono_ns();
	bool older = runtime_perf_file_is_older(f, st);

	if (f->map && (older || st->st_size == 0))
		return -ENOENT;
	if (older)
		return -ETIME;
	if (f->map && now_ns < f->restarted_ns + RESTART_NS)
		return -EBUSY;
	runtime_perf_file_set(f, runtime_perf_map_new());
	f->dev = st->st_dev;
	f->inode = st->st_ino;
	f->offset = 0;
	f->restarted_ns = now_ns;
	return 0;
}

static void keep_tail(struct perf_file *f, const char *bytes, size_t n)
{
	size_t old = MIN(tail_n(f), sizeof(f->tail) - MIN(n, sizeof(f->tail)));
	size_t new = MIN(n, sizeof(f->tail));

	memmove(f->tail, f->tail + tail_n(f) - old, old);
	memcpy(f->tail + old, bytes + n - new, new);
}

/* Reads a slice, at most up to `end`, the size at the beginning. Later lines are read next time. */
static int read_slice(struct perf_file *f, int fd, uint64_t end)
{
	uint64_t stop = MIN(end, f->offset + PERF_MAP_SLICE_BYTES);
	_cleanup_free_ char *bytes = xmalloc(STEP_BYTES);

	while (f->offset < stop) {
		ssize_t n = pread(fd, bytes, MIN(STEP_BYTES, stop - f->offset), f->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		runtime_perf_map_add(f->map, bytes, n);
		keep_tail(f, bytes, n);
		f->offset += n;
	}
	return f->offset < end ? -EAGAIN : 0;
}

int runtime_perf_file_read(struct perf_file *f)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = open_map(f, &st, &fd);

	if (r == 0 && !continues(f, fd, &st))
		r = start_anew(f, &st);
	return r < 0 ? r : read_slice(f, fd, st.st_size);
}
