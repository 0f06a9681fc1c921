/* SPDX-License-Identifier: Apache-2.0 */
/*
 * living_thread: finds a thread of a process that has not ended. All threads of a process share its
 * memory and root directory. /proc/PID shows those of the first thread, and nothing once that
 * thread has ended. The other threads may go on, and the directory of each of them shows the memory
 * and the root of the process. Any thread.
 */
#include "node/proc/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int proc_dir_open(uint32_t pid, int *ret_fd)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%u", pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret_fd = fd;
	return 0;
}

/*
 * Returns 0 if the thread has maps. -ESRCH: they are empty, because the thread has ended or is just
 * ending. Blocks while the process changes its mappings.
 */
static int has_maps(int dir_fd)
{
	_cleanup_close_ int fd = openat(dir_fd, "maps", O_RDONLY | O_CLOEXEC);
	char c;
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = pread(fd, &c, 1, 0);
	return n > 0 ? 0 : n < 0 ? -errno : -ESRCH;
}

/*
 * Opens /proc/TID, because /proc/PID/task/TID has no map_files. The number could be used again for
 * a thread of another process. So after opening the directory, this function checks that the
 * process has a thread of this number, and then that the thread of the opened directory lives.
 */
static int open_if_living(int task_fd, const char *tid_text, uint32_t tid, int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	int r = proc_dir_open(tid, &fd);

	if (r == 0 && faccessat(task_fd, tid_text, F_OK, 0) < 0)
		r = errno == ENOENT ? -ESRCH : -errno;
	if (r == 0)
		r = has_maps(fd);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/*
 * Returns the first thread in the list that lives. The kernel lists threads in the order in which
 * they began.
 */
int proc_living_thread_at(int proc_fd, uint32_t *ret_tid, int *ret_fd)
{
	int fd = openat(proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = -ESRCH;
	const struct dirent *entry;
	uint64_t tid;
	DIR *dir;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == -ESRCH && (errno = 0, entry = readdir(dir)))
		if (str_to_u64(entry->d_name, UINT32_MAX, &tid) == 0)
			r = open_if_living(fd, entry->d_name, (uint32_t)tid, ret_fd);
	if (r == -ESRCH && errno)
		r = -errno;
	if (r == 0)
		*ret_tid = (uint32_t)tid;
	closedir(dir);
	return r;
}

int proc_open_living(uint32_t tgid, int *ret_fd)
{
	_cleanup_close_ int proc_fd = -1;
	uint32_t tid;
	int r = proc_dir_open(tgid, &proc_fd);

	return r < 0 ? r : proc_living_thread_at(proc_fd, &tid, ret_fd);
}

int proc_living_thread(uint32_t tgid, uint32_t *ret_tid)
{
	_cleanup_close_ int proc_fd = -1, thread_fd = -1;
	int r;

	if (proc_thread_lives(tgid, tgid)) {
		*ret_tid = tgid;
		return 0;
	}
	r = proc_dir_open(tgid, &proc_fd);
	return r < 0 ? r : proc_living_thread_at(proc_fd, ret_tid, &thread_fd);
}

/*
 * Opens statm, which shows the size of the thread's memory: a thread that has ended has none. To
 * read statm, the kernel needs no permission, and no lock that the process can hold
 * (proc_pid_statm, fs/proc/array.c).
 */
int proc_thread_open(uint32_t tgid, uint32_t tid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/statm", tgid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool proc_opened_thread_lives(int fd)
{
	char c = '0';

	if (pread(fd, &c, 1, 0) < 0)
		return errno != ESRCH;
	return c != '0';
}

bool proc_thread_lives(uint32_t tgid, uint32_t tid)
{
	_cleanup_close_ int fd = proc_thread_open(tgid, tid);

	if (fd < 0)
		return fd != -ENOENT && fd != -ESRCH;
	return proc_opened_thread_lives(fd);
}

/*
 * Counts the threads by the links of the directory "task": it has two links, and one more for each
 * thread. The first thread is listed until the process is reaped.
 */
bool proc_has_ended(uint32_t tgid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u/task", tgid);
	if (stat(path, &st) < 0)
		return errno == ENOENT || errno == ESRCH;
	return st.st_nlink <= 3;
}
