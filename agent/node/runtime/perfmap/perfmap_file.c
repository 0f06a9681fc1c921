/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens /tmp/perf-PID.map of a process, in the root of the process, with its PID in its own PID
 * namespace, and has a child read it. Any program that can write into that /tmp may have made the
 * file. So the agent opens only a regular file that belongs to the process's user or to root, and
 * follows no link. The child reads no more than the size that the file had at the beginning.
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
	case -ETIMEDOUT:
		return "reading it takes too long";
	case -EPIPE:
		return "the child that reads it dies";
	case -EBADMSG:
		return "the child that reads it gives wrong answers";
	case -ECANCELED:
		return "a perf map of its namespace stopped the child that reads it, so it is read "
		       "later";
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
	runtime_perf_file_set(f, runtime_perf_map_new(f->charged_ns));
	f->dev = st->st_dev;
	f->inode = st->st_ino;
	f->place = (struct perf_place){0};
	f->written_ns = 0;
	f->restarted_ns = now_ns;
	return 0;
}

static uint64_t time_ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * NSEC_PER_SEC + (uint64_t)t->tv_nsec;
}

static bool is_same_file(const struct perf_file *f, const struct stat *st)
{
	return f->map && f->dev == st->st_dev && f->inode == st->st_ino;
}

/* Whether the file is as it was when it was read whole, so that no child need read it. */
static bool is_unchanged(const struct perf_file *f, const struct stat *st)
{
	return is_same_file(f, st) && f->written_ns && f->size == (uint64_t)st->st_size &&
	       f->written_ns == time_ns(&st->st_mtim);
}

/*
 * Notes that the file was read whole. Times of files are coarse: a file that was written just now
 * may be written once more with the same time, so it is read again.
 */
static void note_whole(struct perf_file *f, const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	f->size = (uint64_t)st->st_size;
	f->written_ns =
		time_ns(&st->st_mtim) + OLDER_NS < time_ns(&now) ? time_ns(&st->st_mtim) : 0;
}

/* Reads a slice, at most up to the size at the beginning. Later lines are read next time. */
static int read_slice(struct perf_file *f, int fd, const struct stat *st)
{
	bool more;
	int r = runtime_perf_ask(f->map, f->charged_ns, f->writer, fd, (uint64_t)st->st_size,
				 &f->place, &more);

	if (r < 0)
		return r;
	if (more)
		return -EAGAIN;
	note_whole(f, st);
	return 0;
}

int runtime_perf_file_read(struct perf_file *f)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = open_map(f, &st, &fd);

	if (r < 0 || is_unchanged(f, &st))
		return r;
	f->written_ns = 0;
	/* -ESTALE: the file has not only grown since the last read: HotSpot rewrites it */
	r = is_same_file(f, &st) && (uint64_t)st.st_size >= f->place.offset ? read_slice(f, fd, &st)
									    : -ESTALE;
	if (r != -ESTALE)
		return r;
	r = start_anew(f, &st);
	return r < 0 ? r : read_slice(f, fd, &st);
}
