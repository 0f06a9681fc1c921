/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the files of mappings and owns their descriptors. Each file has one descriptor, even if
 * many processes map it: otherwise a hundred workers of one server would need a hundred times as
 * many. It also finds out whether a file was written since it was opened. Any thread: a lock guards
 * the tables.
 */
#include "node/proc/maps.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <uthash.h>

/*
 * As long as a file is open, its inode number is not used again. But in overlayfs, once a file of
 * the lower layer is written, another file has the same number. If an old descriptor is mapped, it
 * gives the bytes of the lower file; if it is read, the bytes of the new file. So the key also has
 * the change time, which differs.
 */
struct shared {
	struct shared_key {
		uint64_t dev, inode, ctime_ns; /* ctime_ns 0: it is a directory */
	} key;
	int fd;
	uint64_t dev, inode, ctime_ns, mtime_ns, bytes; /* values when the file was opened */
	enum { IGNORED, WATCHED, WRITTEN } state;
	unsigned refs;
	UT_hash_handle hh, by_fd;
};
/*
 * Workers open files. The thread that drops the last reference to a struct mappings releases them.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *files, *descriptors;

static uint64_t ctime_of(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * NSEC_PER_SEC + st->st_ctim.tv_nsec;
}

static struct shared_key key_of(const struct stat *st)
{
	return (struct shared_key){st->st_dev, st->st_ino, S_ISDIR(st->st_mode) ? 0 : ctime_of(st)};
}

static struct shared *take(const struct stat *st)
{
	struct shared_key key = key_of(st);
	struct shared *s;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh, files, &key, sizeof(key), s);
	if (s)
		s->refs++;
	pthread_mutex_unlock(&lock);
	return s;
}

/*
 * Whether the agent watches the file for writes. It does not on 9P and CIFS: to find the times of a
 * file, these file systems may ask their server in spite of AT_STATX_DONT_SYNC, and wait.
 */
static bool is_looked_at(const struct stat *st, int fd)
{
	struct statfs fs;

	return S_ISREG(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type != V9FS_MAGIC &&
	       (uint32_t)fs.f_type != CIFS_SUPER_MAGIC && (uint32_t)fs.f_type != SMB2_SUPER_MAGIC;
}

/*
 * Adds an opened file to the tables. If another thread has added the same file meanwhile, this one
 * gets a key that no look-up uses, so only its descriptor finds it.
 */
static void share(const struct stat *st, int fd)
{
	struct shared *s = xcalloc(1, sizeof(*s)), *other;

	s->key = key_of(st);
	s->fd = fd;
	s->dev = st->st_dev;
	s->inode = st->st_ino;
	s->ctime_ns = ctime_of(st);
	s->mtime_ns = (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + st->st_mtim.tv_nsec;
	s->bytes = (uint64_t)st->st_size;
	s->state = is_looked_at(st, fd) ? WATCHED : IGNORED;
	s->refs = 1;
	pthread_mutex_lock(&lock);
	HASH_FIND(hh, files, &s->key, sizeof(s->key), other);
	if (other)
		s->key.inode = s->key.dev = UINT64_MAX - fd;
	HASH_ADD(hh, files, key, sizeof(s->key), s);
	HASH_ADD(by_fd, descriptors, fd, sizeof(s->fd), s);
	pthread_mutex_unlock(&lock);
}

/*
 * Whether the time of the last write or the size has changed. A change of owner, mode or links does
 * not change the code.
 */
static bool is_written(const struct shared *s)
{
	struct statx now;

	return statx(s->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MTIME | STATX_SIZE,
		     &now) == 0 &&
	       (now.stx_size != s->bytes ||
		(uint64_t)now.stx_mtime.tv_sec * NSEC_PER_SEC + now.stx_mtime.tv_nsec !=
			s->mtime_ns);
}

static void look(struct shared *s, uint64_t now_ns)
{
	if (s->state == WATCHED && is_written(s))
		s->state = WRITTEN;
	if (s->state == WRITTEN)
		proc_maps_written_add(s->dev, s->inode, s->ctime_ns, now_ns);
}

void proc_mapping_files_look(void)
{
	uint64_t now_ns = now_mono_ns();
	struct shared *s, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER (by_fd, descriptors, s, next) {
		look(s, now_ns);
	}
	pthread_mutex_unlock(&lock);
	if (proc_mapping_files_were_written())
		proc_maps_written_expire(now_ns);
}

/*
 * Whether the agent must not open more files. Pods may map very many files or have very many roots.
 * Half of the agent's descriptors are left for its connections.
 */
static bool is_full(void)
{
	struct rlimit l;
	size_t n;

	pthread_mutex_lock(&lock);
	n = HASH_CNT(by_fd, descriptors);
	pthread_mutex_unlock(&lock);
	return getrlimit(RLIMIT_NOFILE, &l) == 0 && n >= l.rlim_cur / 2;
}

void proc_maps_file_release(int fd)
{
	struct shared *s;

	pthread_mutex_lock(&lock);
	HASH_FIND(by_fd, descriptors, &fd, sizeof(fd), s);
	if (s && --s->refs == 0) {
		HASH_DELETE(hh, files, s);
		HASH_DELETE(by_fd, descriptors, s);
		close(s->fd);
		free(s);
	}
	pthread_mutex_unlock(&lock);
}

#define HUGE_PAGE_BYTES (2 << 20)

/*
 * Whether the file is in tmpfs or hugetlbfs (no other file system has seals) and is not sealed
 * against writing. No mapping can write to a file with this seal.
 */
static bool may_be_written(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && !(seals & F_SEAL_WRITE);
}

/*
 * Whether the file is in huge pages, or in memory without a name: a process that has it open can
 * write to it through a mapping, and its times do not change. fstatfs() is called only if the file
 * is likely to be such a file, because for another file system the kernel may have to ask a pod's
 * daemon.
 */
static bool is_in_memory(int path_fd, const struct stat *st)
{
	struct statfs fs;

	if ((st->st_nlink && st->st_blksize < HUGE_PAGE_BYTES) || fstatfs(path_fd, &fs) < 0)
		return false;
	return fs.f_type == HUGETLBFS_MAGIC || (fs.f_type == TMPFS_MAGIC && !st->st_nlink);
}

bool proc_mapping_file_is_unchanged(const struct mapping *m)
{
	struct stat st;

	return fstat(m->fd, &st) == 0 && ctime_of(&st) == m->ctime_ns;
}

/*
 * Opens a file for reading, but only if it is a regular file with the mapping's inode. path_fd was
 * opened with O_PATH, which does not call the file's driver.
 */
static int open_checked(int path_fd, const struct mapping *m, bool check_device,
			struct maps_file *ret)
{
	struct shared *s;
	char self[40];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	if (st.st_ino != m->inode)
		return -ESTALE;
	if (check_device && (major(st.st_dev) != m->dev_major || minor(st.st_dev) != m->dev_minor))
		return -EXDEV;
	s = take(&st);
	if (s) {
		fd = s->fd;
	} else if (is_full()) {
		return -EMFILE;
	} else {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
		fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		share(&st, fd);
	}
	*ret = (struct maps_file){
		.fd = fd,
		.dev = st.st_dev,
		.ctime_ns = ctime_of(&st),
		.bytes = (uint64_t)st.st_size,
		.in_memory = may_be_written(fd) && is_in_memory(path_fd, &st),
		.in_tmpfs = may_be_written(fd),
	};
	return 0;
}

/*
 * Opens the mapped file by /proc/PID/map_files. This is always the right file, even if it is
 * deleted. Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. The device number may differ: for
 * overlayfs, maps shows that of the lower file.
 */
static int open_map_file(int proc_fd, const struct mapping *m, struct maps_file *ret)
{
	_cleanup_close_ int fd = -1;
	char name[64];

	snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, m->start, m->end);
	fd = openat(proc_fd, name, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : open_checked(fd, m, false, ret);
}

/* Opens the file by its path inside the process's root. Fails if it is not the mapped file. */
static int open_in_root(int proc_fd, const struct mapping *m, struct maps_file *ret)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	_cleanup_close_ int root = openat(proc_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd = -1;

	if (root < 0)
		return -errno;
	if (m->deleted)
		return -ENOENT;
	fd = syscall(SYS_openat2, root, m->path, &how, sizeof(how));
	return fd < 0 ? -errno : open_checked(fd, m, true, ret);
}

int proc_maps_file_open(int proc_fd, const struct mapping *m, struct maps_file *ret)
{
	if (open_map_file(proc_fd, m, ret) == 0)
		return 0;
	return open_in_root(proc_fd, m, ret);
}

/* Opens only the directory itself (O_PATH), which /proc shows. */
int proc_maps_root_open(int proc_fd, int *ret_fd)
{
	int fd = openat(proc_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct shared *s;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0) {
		close(fd);
		return -errno;
	}
	s = take(&st);
	if (s) {
		close(fd);
		fd = s->fd;
	} else if (is_full()) {
		close(fd);
		return -EMFILE;
	} else {
		share(&st, fd);
	}
	*ret_fd = fd;
	return 0;
}

const char *proc_mappings_problem(void)
{
	if (capng_get_caps_process() < 0 || capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_PTRACE))
		return "";
	return "CAP_SYS_PTRACE is missing: files of processes with other rights cannot be read";
}
