/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines as kernels write them, and mappings of real processes: this one, a deleted program, a
 * process that has ended.
 */
#include "node/proc/maps.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/proc/testliving.h"

static int parse(const char *text, struct mapping *ret)
{
	_cleanup_free_ char *line = xstrdup(text);

	return proc_maps_parse_line(line, ret);
}

static void assert_path(const char *text, const char *path, bool deleted)
{
	struct mapping m;

	assert_int_equal(parse(text, &m), 0);
	assert_string_equal(m.path, path);
	assert_int_equal(m.deleted, deleted);
	assert_int_equal(m.fd, -1);
	free(m.path);
}

static void lines_of_maps(void **state)
{
	struct mapping m;

	(void)state;
	assert_int_equal(parse("7f1c4a628000-7f1c4a77d000 r-xp 00026000 fe:1f 1835     "
			       "                  /usr/lib/libc.so.6\n",
			       &m),
			 0);
	assert_int_equal(m.start, 0x7f1c4a628000);
	assert_int_equal(m.end, 0x7f1c4a77d000);
	assert_int_equal(m.file_offset, 0x26000);
	assert_int_equal(m.dev_major, 0xfe);
	assert_int_equal(m.dev_minor, 0x1f);
	assert_int_equal(m.inode, 1835);
	free(m.path);
	assert_path("400000-401000 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n",
		    "/usr/lib/libc.so.6", false);
	assert_path("400000-401000 r-xp 00000000 fe:00 12 /srv/my app (deleted)\n", "/srv/my app",
		    true);
	assert_path("400000-401000 r-xp 00000000 fe:00 12 /srv/a\\012b\n", "/srv/a\nb", false);
	assert_path("7ffd0000-7ffd2000 r-xp 00000000 00:00 0    [vdso]\n", "[vdso]", false);
	assert_path("7ffd0000-7ffd2000 rwxp 00000000 00:00 0 \n", "", false);
	assert_path("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
		    "[vsyscall]", false);
	assert_int_equal(parse("400000-401000 r--p 00000000 fe:00 12 /bin/x\n", &m), -ENOENT);
}

static void bad_lines_of_maps(void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"x",
		"400000",
		"400000-",
		"400000-401000",
		"400000-401000 r-xp",
		"400000-401000 r-xp 0",
		"400000-401000 r-xp 0 fe",
		"400000-401000 r-xp 0 fe:",
		"401000-400000 r-xp 0 fe:00 12 /x",
		"400000-401000 rx 0 fe:00 12 /x",
		"400000-401000 r-xp 0 fe:00 12x /x",
		"-400000-401000 r-xp 0 fe:00 12 /x",
		"11111111111111111-2 r-xp 0 fe:00 12 /x",
		"400000-401000 r-xp 0 fffffffff:00 12 /x",
	};
	struct mapping m;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse(bad[i], &m), -EINVAL);
}

static void start_time_of_stat(void **state)
{
	uint64_t ticks;

	(void)state;
	assert_int_equal(
		proc_stat_parse_start(
			"1 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n",
			&ticks),
		0);
	assert_int_equal(ticks, 4711);
	assert_int_equal(proc_stat_parse_start("1 (a) S 1 2 3", &ticks), -EINVAL);
	assert_int_equal(proc_stat_parse_start("", &ticks), -EINVAL);
	assert_int_equal(
		proc_stat_parse_start("1 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x 20\n",
				      &ticks),
		-EINVAL);
}

static struct mappings *read_of(pid_t pid)
{
	struct mappings *m;
	uint64_t start;

	assert_int_equal(proc_start_boottime(pid, &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, pid}, 7, &m), 0);
	return m;
}

static void own_process(void **state)
{
	struct mappings *m = read_of(getpid());
	const struct mapping *text = proc_mappings_find(m, (uintptr_t)own_process);
	const struct mapping *libc = proc_mappings_find(m, (uintptr_t)qsort);
	char self[PATH_MAX] = "";
	struct stat ours, theirs;

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	assert_int_equal(m->exec_id, 7);
	assert_non_null(text);
	assert_string_equal(text->path, self);
	assert_int_equal(stat(self, &ours), 0);
	assert_int_equal(fstat(text->fd, &theirs), 0);
	assert_int_equal(ours.st_ino, theirs.st_ino);
	assert_non_null(libc);
	assert_true(libc->fd >= 0);
	assert_null(proc_mappings_find(m, 0));
	assert_null(proc_mappings_find(m, 0x7fffffffffffULL << 16));
	assert_null(proc_mappings_find(m, (uintptr_t)&text));
	proc_mappings_unref(proc_mappings_ref(m));
	assert_int_equal(fcntl(text->fd, F_GETFD), FD_CLOEXEC);
	proc_mappings_unref(m);
}

/* The sum of VmExe and VmLib is mm->exec_vm in KiB: task_mem() of fs/proc/task_mmu.c. */
static uint64_t exec_kib(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/status", pid), *text = NULL;
	unsigned long long exe, lib;

	assert_int_equal(file_read(AT_FDCWD, path, 65536, &text, NULL), 0);
	assert_int_equal(sscanf(strstr(text, "VmExe:"), "VmExe: %llu", &exe), 1);
	assert_int_equal(sscanf(strstr(text, "VmLib:"), "VmLib: %llu", &lib), 1);
	return exe + lib;
}

static void executable_pages_as_the_kernel_counts_them(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	void *code = mmap(NULL, 5 * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), *jit;
	struct mappings *before, *after;

	(void)state;
	close(fd);
	before = read_of(getpid());
	/* VmExe is rounded down to KiB, and VmLib is the rest, so the sum is exact */
	assert_int_equal(before->exec_pages * 4, exec_kib(getpid()));
	jit = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	after = read_of(getpid());
	/* a writable mapping is not counted */
	assert_int_equal(after->exec_pages, before->exec_pages);
	proc_mappings_unref(after);
	mprotect(jit, 4096, PROT_READ | PROT_EXEC);
	after = read_of(getpid());
	assert_int_equal(after->exec_pages, before->exec_pages + 1);
	assert_int_equal(after->exec_pages * 4, exec_kib(getpid()));
	proc_mappings_unref(after);
	proc_mappings_unref(before);
	munmap(jit, 3 * 4096);
	munmap(code, 5 * 4096);
}

static void root_directory(void **state)
{
	struct mappings *one = read_of(getpid()), *two = read_of(getpid());
	struct stat ours, theirs;

	(void)state;
	assert_int_equal(stat("/", &ours), 0);
	assert_int_equal(fstat(one->root_fd, &theirs), 0);
	assert_int_equal(ours.st_ino, theirs.st_ino);
	assert_int_equal(ours.st_dev, theirs.st_dev);
	assert_int_equal(one->root_fd, two->root_fd);
	proc_mappings_unref(one);
	assert_int_equal(fcntl(two->root_fd, F_GETFD), FD_CLOEXEC);
	proc_mappings_unref(two);
}

static void anonymous_code_is_known(void **state)
{
	void *jit = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mappings *m = read_of(getpid());
	const struct mapping *x = proc_mappings_find(m, (uintptr_t)jit + 5);

	(void)state;
	assert_non_null(x);
	assert_string_equal(x->path, "");
	assert_int_equal(x->fd, -1);
	proc_mappings_unref(m);
	munmap(jit, 4096);
}

static void one_file_has_one_descriptor(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	void *again = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	struct mappings *m = read_of(getpid()), *other = read_of(getpid());
	const struct mapping *a = proc_mappings_find(m, (uintptr_t)again);
	const struct mapping *b = proc_mappings_find(m, (uintptr_t)own_process);

	(void)state;
	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	assert_int_equal(a->fd, b->fd);
	/* drops one reference for all mappings of the file, not one for each */
	proc_mappings_unref(other);
	assert_int_equal(fcntl(a->fd, F_GETFD), FD_CLOEXEC);
	proc_mappings_unref(m);
	munmap(again, 4096);
	close(fd);
}

/* A process that writes to a file may set the mtime back, but not the ctime. */
static void changed_file_is_another_one(void **state)
{
	static const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	_cleanup_close_ int fd = memfd_create("code", MFD_CLOEXEC);
	struct mappings *before, *after;
	uint64_t before_ns;
	void *code;

	(void)state;
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(futimens(fd, times), 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(code, MAP_FAILED);
	before = read_of(getpid());
	before_ns = proc_mappings_find(before, (uintptr_t)code)->ctime_ns;
	do { /* the clock of inodes ticks only every few milliseconds */
		assert_int_equal(pwrite(fd, "x", 1, 0), 1);
		assert_int_equal(futimens(fd, times), 0);
		after = read_of(getpid());
		if (proc_mappings_find(after, (uintptr_t)code)->ctime_ns != before_ns)
			break;
		proc_mappings_unref(after);
	} while (true);
	proc_mappings_unref(before);
	proc_mappings_unref(after);
	munmap(code, 4096);
}

static void processes_share_descriptors(void **state)
{
	struct mappings *one = read_of(getpid()), *two = read_of(getpid());
	int fd = proc_mappings_find(one, (uintptr_t)own_process)->fd;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(proc_mappings_find(two, (uintptr_t)own_process)->fd, fd);
	proc_mappings_unref(one);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	proc_mappings_unref(two);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/*
 * The process is a shell that waits on a pipe. It runs a copy of the program, which is then
 * deleted.
 */
static void deleted_program(void **state)
{
	char path[] = "/tmp/podflame-maps-XXXXXX";
	int to[2], ready[2], copy = mkstemp(path);
	struct mappings *m;
	bool found = false;
	char byte;
	pid_t pid;
	_cleanup_free_ char *data = NULL;
	size_t n;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, "/bin/sh", 8 << 20, &data, &n), 0);
	assert_int_equal(fd_write_all(copy, data, n), 0);
	fchmod(copy, 0700);
	close(copy);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		dup2(to[0], 0);
		dup2(ready[1], 1);
		close(to[1]);
		execl(path, "sh", "-c", "echo; read x", NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	unlink(path);
	m = read_of(pid);
	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];

		if (!streq(x->path, path))
			continue;
		found = true;
		assert_true(x->deleted);
		if (x->fd < 0 && (x->open_error == -EPERM || x->open_error == -ENOENT))
			print_message(
				"no right to open map_files: the deleted file was not opened\n");
		else
			assert_int_equal(lseek(x->fd, 0, SEEK_END), n);
	}
	assert_true(found);
	proc_mappings_unref(m);
	close(to[0]);
	close(to[1]);
	close(ready[0]);
	waitpid(pid, NULL, 0);
}

static void wrong_process(void **state)
{
	struct mappings *m;
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime(UINT32_MAX, &start), -ESRCH);
	assert_int_equal(proc_mappings_read((struct process_id){0, UINT32_MAX}, 0, &m), -ESRCH);
	assert_int_equal(proc_start_boottime(getpid(), &start), 0);
	assert_true(start <= now_boot_ns());
	/*
	 * The start time from BPF lies within the clock tick that stat shows. A start time that
	 * differs by a second is that of another process.
	 */
	assert_int_equal(proc_mappings_read((struct process_id){start + 9999999, getpid()}, 0, &m),
			 0);
	proc_mappings_unref(m);
	assert_int_equal(
		proc_mappings_read((struct process_id){start + NSEC_PER_SEC, getpid()}, 0, &m),
		-ESRCH);
	assert_int_equal(
		proc_mappings_read((struct process_id){start - NSEC_PER_SEC, getpid()}, 0, &m),
		-ESRCH);
}

#define MAPPED_PATH "/tmp/podflame-maps-test-deleted"

static void map_a_file_and_delete_it(void)
{
	int fd = open(MAPPED_PATH, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	if (fd < 0 || ftruncate(fd, 4096) < 0 ||
	    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(1);
	unlink(MAPPED_PATH);
}

static const struct mapping *mapping_of(const struct mappings *m, const char *path)
{
	for (size_t i = 0; i < m->n; i++)
		if (streq(m->items[i].path, path))
			return &m->items[i];
	return NULL;
}

/*
 * After the first thread has ended, the other threads go on. The files of their process are found,
 * also a file that was deleted.
 */
static void the_first_thread_has_ended(void **state)
{
	pid_t pid = testliving_start(map_a_file_and_delete_it);
	const struct mapping *own, *deleted;
	struct mappings *m;
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, pid}, 0, &m), 0);
	own = proc_mappings_find(m, (uintptr_t)testliving_waits);
	assert_non_null(own);
	assert_true(own->fd >= 0);
	assert_true(m->root_fd >= 0);
	deleted = mapping_of(m, MAPPED_PATH);
	assert_non_null(deleted);
	assert_true(deleted->deleted);
	if (deleted->fd < 0 && deleted->open_error == -EPERM)
		print_message("no right to open map_files: the deleted file was not opened\n");
	else
		assert_true(deleted->fd >= 0);
	proc_mappings_unref(m);
	testliving_stop(pid);
}

/* ---- a file of a container's image is overwritten ---- */

/*
 * Mounts an overlay with a lower layer (an image) and an upper layer. Returns false if this machine
 * cannot mount one.
 */
static bool mount_overlay(const char *at)
{
	static const char *const names[] = {"lower", "upper", "work", "merged"};
	_cleanup_free_ char *options =
		xasprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", at, at, at);
	_cleanup_free_ char *merged = xasprintf("%s/merged", at);

	if (mount("none", at, "tmpfs", 0, NULL) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", at, names[i]);

		assert_int_equal(mkdir(path, 0700), 0);
	}
	return mount("none", merged, "overlay", 0, options) == 0;
}

static void write_page(const char *path, char c)
{
	char page[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	assert_true(fd >= 0);
	memset(page, c, sizeof(page));
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	close(fd);
}

static pid_t start_mapping(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	pid_t pid;

	assert_ptr_not_equal(at, MAP_FAILED);
	close(fd);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		testliving_waits(NULL);
	}
	munmap(at, 4096);
	return pid;
}

static void assert_maps(int fd, char c)
{
	char *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(*at, c);
	munmap(at, 4096);
}

/*
 * Waits for the next tick of the kernel's coarse clock, which sets times of files. Two writes in
 * one tick would have the same time.
 */
static void await_next_tick(void)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_REALTIME_COARSE, &begin);
	do
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	while (now.tv_nsec == begin.tv_nsec && now.tv_sec == begin.tv_sec);
}

/*
 * Checks that the overwritten file and the new one are different files, although they have the same
 * inode number and the old one is still mapped.
 */
static void check_written_over(const char *at)
{
	_cleanup_free_ char *lower = xasprintf("%s/lower/x", at),
			    *path = xasprintf("%s/merged/x", at);
	struct mappings *before, *after;
	const struct mapping *old, *new;
	pid_t one, two;

	write_page(lower, 'a');
	one = start_mapping(path);
	before = read_of(one);
	await_next_tick();
	write_page(path, 'b');
	two = start_mapping(path);
	after = read_of(two);
	old = mapping_of(before, path);
	new = mapping_of(after, path);
	assert_non_null(old);
	assert_non_null(new);
	assert_int_equal(old->inode, new->inode);
	assert_maps(old->fd, 'a');
	assert_maps(new->fd, 'b');
	proc_mappings_unref(before);
	proc_mappings_unref(after);
	testliving_stop(one);
	testliving_stop(two);
}

static void a_file_of_an_image_that_is_written_over(void **state)
{
	char at[] = "/tmp/podflame-maps-XXXXXX";

	(void)state;
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("skipped: it cannot have mounts of its own here\n");
		skip();
	}
	assert_non_null(mkdtemp(at));
	if (mount_overlay(at))
		check_written_over(at);
	else
		print_message("skipped: overlayfs cannot be mounted here: %s\n", strerror(errno));
	(void)umount2(at, MNT_DETACH);
	rmdir(at);
}

/*
 * The address of the stack shows that the process executes another program than the caller means.
 * So the mappings are not used, also if they were read from another thread's maps.
 */
static void another_program_than_the_kernel_told_of(void **state)
{
	pid_t pid = testliving_start(NULL);
	struct mappings *m;
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	assert_int_equal(proc_mappings_read_of((struct process_id){start, pid}, 0, 1, &m), -ESTALE);
	testliving_stop(pid);
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_mappings_read_of((struct process_id){start, getpid()}, 0, 1, &m),
			 -ESTALE);
}

static int open_thread(uint32_t tgid, uint32_t tid)
{
	int fd = proc_thread_open(tgid, tid);

	assert_true(fd >= 0);
	return fd;
}

static void a_thread_that_lives(void **state)
{
	pid_t pid = testliving_start(NULL);
	_cleanup_close_ int first_fd = open_thread((uint32_t)pid, (uint32_t)pid), fd = -1;
	uint32_t tid = 0;

	(void)state;
	assert_false(proc_opened_thread_lives(first_fd));
	assert_false(proc_thread_lives((uint32_t)pid, (uint32_t)pid));
	assert_int_equal(proc_living_thread((uint32_t)pid, &tid), 0);
	assert_true(tid && tid != (uint32_t)pid);
	assert_true(proc_thread_lives((uint32_t)pid, tid));
	fd = open_thread((uint32_t)pid, tid);
	assert_true(proc_opened_thread_lives(fd));
	/* the thread belongs to another process */
	assert_false(proc_thread_lives((uint32_t)getpid(), tid));
	assert_true(proc_thread_open((uint32_t)getpid(), tid) < 0);
	assert_false(proc_has_ended((uint32_t)pid));
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	assert_false(proc_thread_lives((uint32_t)pid, (uint32_t)pid));
	assert_false(proc_thread_lives((uint32_t)pid, tid));
	assert_false(proc_opened_thread_lives(fd));
	/* the process is a zombie: its parent has not waited for it */
	assert_true(proc_has_ended((uint32_t)pid));
	assert_int_equal(proc_living_thread((uint32_t)pid, &tid), -ESRCH);
	waitpid(pid, NULL, 0);
	assert_false(proc_opened_thread_lives(first_fd));
	assert_true(proc_has_ended((uint32_t)pid));
	assert_int_equal(proc_living_thread((uint32_t)pid, &tid), -ESRCH);
	assert_int_equal(proc_living_thread((uint32_t)getpid(), &tid), 0);
	assert_int_equal(tid, getpid());
	assert_true(proc_thread_lives((uint32_t)getpid(), (uint32_t)getpid()));
}

/*
 * A process that has ended and is not reaped has an entry in /proc with its start time, but no
 * mappings.
 */
static void ended_process(void **state)
{
	struct mappings *m;
	siginfo_t info;
	uint64_t start;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, pid}, 0, &m), -ESRCH);
	waitpid(pid, NULL, 0);
}

/*
 * Half of the agent's descriptors must stay free, even if very many files are mapped or there are
 * very many roots.
 */
static void descriptors_are_left(void **state)
{
	struct mappings *m;
	struct rlimit old, few;
	size_t n_open = 0, n_refused = 0;
	void *code[20];
	uint64_t start;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	for (size_t i = 0; i < ARRAY_SIZE(code); i++) {
		int fd = memfd_create("code", MFD_CLOEXEC);

		assert_int_equal(ftruncate(fd, 4096), 0);
		code[i] = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		assert_ptr_not_equal(code[i], MAP_FAILED);
		close(fd);
	}
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = 32;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, getpid()}, 0, &m), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (size_t i = 0; i < m->n; i++) {
		n_open += m->items[i].fd >= 0;
		n_refused += m->items[i].open_error == -EMFILE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(code); i++)
		munmap(code[i], 4096);
	assert_int_equal(n_open, 16);
	assert_true(n_refused > 0);
	assert_int_equal(m->root_fd, -1);
	proc_mappings_unref(m);
}

/* Every second page of a region is executable, which makes one mapping more than are kept. */
static void mappings_beyond_the_limit_are_counted(void **state)
{
	struct counter *cut = counter("podflame_mappings_dropped_total", "reason", "limit");
	size_t page = 4096, bytes = 2 * (MAPPINGS_MAX + 1) * page;
	uint8_t *region = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t before = counter_get(cut), start;
	struct mappings *m;

	(void)state;
	assert_ptr_not_equal(region, MAP_FAILED);
	for (size_t i = 0; i <= MAPPINGS_MAX; i++)
		if (mprotect(region + 2 * i * page, page, PROT_READ | PROT_EXEC) < 0) {
			print_message("skipped: no room for so many mappings\n");
			munmap(region, bytes);
			skip();
		}
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, getpid()}, 0, &m), 0);
	munmap(region, bytes);
	assert_int_equal(m->n, MAPPINGS_MAX);
	assert_true(m->truncated);
	assert_int_equal(counter_get(cut), before + 1);
	proc_mappings_unref(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_maps),
		cmocka_unit_test(bad_lines_of_maps),
		cmocka_unit_test(start_time_of_stat),
		cmocka_unit_test(own_process),
		cmocka_unit_test(executable_pages_as_the_kernel_counts_them),
		cmocka_unit_test(root_directory),
		cmocka_unit_test(anonymous_code_is_known),
		cmocka_unit_test(one_file_has_one_descriptor),
		cmocka_unit_test(changed_file_is_another_one),
		cmocka_unit_test(processes_share_descriptors),
		cmocka_unit_test(descriptors_are_left),
		cmocka_unit_test(deleted_program),
		cmocka_unit_test(a_file_of_an_image_that_is_written_over),
		cmocka_unit_test(wrong_process),
		cmocka_unit_test(the_first_thread_has_ended),
		cmocka_unit_test(another_program_than_the_kernel_told_of),
		cmocka_unit_test(a_thread_that_lives),
		cmocka_unit_test(ended_process),
		cmocka_unit_test(mappings_beyond_the_limit_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
