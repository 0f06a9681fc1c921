/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executable mappings of a process, with their files opened: the very file that is
 * mapped, whatever the pod does to the path meanwhile, and never anything but a regular one.
 */
#include "node/proc/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MAPS_LINES_MAX 1000000
/* Different files of one process that are held open; more are mapped by nobody but an attacker. */
#define MAPS_FILES_MAX 1024
#define PAGE_BYTES     4096

struct reader {
	int proc_fd; /* /proc/PID: stays this process's, also when the number is used again */
	struct mappings *m;
	size_t cap;
	struct open_files files;
	struct copies copies;
};

/* ---- start time ---- */

static int read_stat(int proc_fd, char **ret)
{
	int r = file_read(proc_fd, "stat", 4096, ret, NULL);

	return r == -ENOENT ? -ESRCH : r;
}

static int start_in(const char *stat, uint64_t *ret_ns)
{
	uint64_t ticks;
	int r = stat_parse_start(stat, &ticks);

	if (r == 0)
		*ret_ns = ticks * TICK_NS;
	return r;
}

static int start_of(int proc_fd, uint64_t *ret_ns)
{
	_cleanup_free_ char *text = NULL;
	int r = read_stat(proc_fd, &text);

	return r < 0 ? r : start_in(text, ret_ns);
}

static int open_proc(uint32_t tgid, int *ret_fd)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%u", tgid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret_fd = fd;
	return 0;
}

int proc_start_boottime(uint32_t tgid, uint64_t *ret_ns)
{
	_cleanup_close_ int fd = -1;
	int r = open_proc(tgid, &fd);

	return r < 0 ? r : start_of(fd, ret_ns);
}

/* stat rounds down to a tick; a caller may have either form. */
static bool is_same_start(uint64_t want_ns, uint64_t have_ns)
{
	return want_ns + TICK_NS > have_ns && want_ns < have_ns + 2 * TICK_NS;
}

/* stack: of mappings_read_of. One that is ending has none any more. */
static int check_program(int proc_fd, uint64_t want_ns, uint32_t stack)
{
	_cleanup_free_ char *text = NULL;
	uint64_t have_ns = 0, address;
	int r = read_stat(proc_fd, &text);

	if (r == 0)
		r = start_in(text, &have_ns);
	if (r < 0)
		return r;
	if (!is_same_start(want_ns, have_ns))
		return -ESRCH;
	if (!stack || stat_parse_stack(text, &address) < 0 || !address)
		return 0;
	return (uint32_t)address == stack ? 0 : -ESTALE;
}

int proc_check(uint32_t tgid, uint64_t start_boottime_ns)
{
	_cleanup_close_ int fd = -1;
	int r = open_proc(tgid, &fd);

	return r < 0 ? r : check_program(fd, start_boottime_ns, 0);
}

/* ---- opening ---- */

static struct open_file *find_file(struct open_files *f, const struct mapping *m)
{
	for (size_t i = f->n; i-- > 0;) {
		struct open_file *x = &f->items[i];

		if (x->inode == m->inode && x->dev_major == m->dev_major &&
		    x->dev_minor == m->dev_minor)
			return x;
	}
	return NULL;
}

struct open_file *open_files_get(struct open_files *f, const struct mapping *m)
{
	struct open_file *x = find_file(f, m);

	if (x || f->n == MAPS_FILES_MAX)
		return x;
	GROW(f->items, f->n, f->cap);
	x = &f->items[f->n++];
	*x = (struct open_file){.inode = m->inode,
				.dev_major = m->dev_major,
				.dev_minor = m->dev_minor,
				.file.fd = -1};
	x->error = maps_file_open(f->proc_fd, m, &x->file);
	return x;
}

void open_files_use(struct open_files *f, struct mapping *m)
{
	struct open_file *x;

	if (m->path[0] != '/') {
		m->open_error = -ENODATA;
		return;
	}
	x = open_files_get(f, m);
	if (!x) {
		m->open_error = -EMFILE;
		return;
	}
	x->n_users++;
	m->fd = x->file.fd;
	m->open_error = x->error;
	m->ctime_ns = x->file.ctime_ns;
	m->file_bytes = x->file.bytes;
	m->memory_file = x->file.in_memory;
}

void open_files_share(struct open_files *f, const struct mapping *m)
{
	struct open_file *x = m->fd >= 0 ? find_file(f, m) : NULL;

	if (x)
		x->n_users++;
}

void open_files_leave(struct open_files *f, const struct mapping *m)
{
	struct open_file *x = m->fd >= 0 ? find_file(f, m) : NULL;

	if (x)
		x->n_users--;
}

void open_files_done(struct open_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct open_file *x = &f->items[i];

		if (!x->n_users && x->file.fd >= 0)
			maps_file_release(x->file.fd);
		if (x->layout)
			free(x->layout->items);
		free(x->layout);
	}
	free(f->items);
	*f = (struct open_files){0};
}

/* ---- the whole ---- */

/*
 * What the kernel counts in mm->exec_vm: is_exec_mapping(), mm/internal.h (include/linux/mm.h
 * before 6.9). vsyscall is in no mm.
 */
static bool is_counted(const struct mapping *m)
{
	return !m->writable && !streq(m->path, "[stack]") && !streq(m->path, "[vsyscall]");
}

static void add_mapping(struct reader *r, const struct maps_line *l)
{
	struct mapping x = l->m;

	maps_take_name(&x, l->name);
	if (is_counted(&x))
		r->m->exec_pages += (x.end - x.start) / PAGE_BYTES;
	if (r->m->n == MAPPINGS_MAX) {
		free(x.path);
		r->m->truncated = true;
		return;
	}
	open_files_use(&r->files, &x);
	GROW(r->m->items, r->m->n, r->cap);
	r->m->items[r->m->n++] = x;
}

static int add_line(struct reader *r, char *line)
{
	size_t n = r->m->n;
	struct maps_line l;
	int e = maps_parse(line, &l);

	if (e < 0)
		return e;
	if (l.executable)
		add_mapping(r, &l);
	copies_line(&r->copies, &l, r->m->n > n ? &r->m->items[n] : NULL, n);
	return 0;
}

/* One that is ending has no mappings any more: what was read may lack some, or all. */
static bool has_ended(int maps_fd)
{
	char c;

	return pread(maps_fd, &c, 1, 0) < 1;
}

static int read_lines(struct reader *r)
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	int fd = openat(r->proc_fd, "maps", O_RDONLY | O_CLOEXEC), e = 0;
	FILE *f;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	f = fdopen(fd, "r");
	if (!f) {
		e = -errno;
		close(fd);
		return e;
	}
	for (size_t n = 0; e == 0 && getline(&line, &size, f) >= 0; n++) {
		if (n == MAPS_LINES_MAX) {
			r->m->truncated = true;
			break;
		}
		e = add_line(r, line);
	}
	if (r->m->truncated)
		counter_add(counter("podflame_mappings_dropped_total", "reason", "limit"), 1);
	if (!e && (ferror(f) || has_ended(fileno(f))))
		e = -ESRCH;
	fclose(f);
	return e;
}

static bool has_mappings(int dir_fd)
{
	_cleanup_close_ int fd = openat(dir_fd, "maps", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && !has_ended(fd);
}

/*
 * /proc/PID shows the memory and the root of the first thread, which may have ended before the others: then these
 * are in another one's directory. Returns a descriptor; -ESRCH: none has any.
 */
static int open_other_thread(int proc_fd)
{
	int fd = openat(proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = -ESRCH;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -ESRCH;
	}
	while (found < 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		found = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (found >= 0 && !has_mappings(found)) {
			close(found);
			found = -ESRCH;
		}
	}
	closedir(dir);
	return found < 0 ? -ESRCH : found;
}

int proc_open_living(uint32_t tgid, int *ret_fd)
{
	_cleanup_close_ int proc_fd = -1;
	int r = open_proc(tgid, &proc_fd), fd;

	if (r < 0)
		return r;
	fd = open_other_thread(proc_fd);
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

/* The kernel lists them so; a mapping made while we read may break it. */
static int compare_mappings(const void *left, const void *right)
{
	const struct mapping *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static void find_copies(struct reader *r)
{
	_cleanup_close_ int mem_fd = -1;

	if (r->copies.n) {
		mem_fd = openat(r->proc_fd, "mem", O_RDONLY | O_CLOEXEC);
		copies_find(&r->copies, &r->files, mem_fd, r->m);
	}
	for (size_t i = 0; i < r->m->n; i++)
		r->m->unsure |= mapping_is_unsure(&r->m->items[i]);
}

/* dir_fd: the process's directory, or that of the thread that has all of it. */
static int read_program(struct reader *r, int dir_fd)
{
	int proc_fd = r->proc_fd, e;

	r->proc_fd = r->files.proc_fd = dir_fd;
	e = read_lines(r);
	if (!e)
		find_copies(r);
	if (!e && maps_root_open(r->proc_fd, &r->m->root_fd) < 0)
		r->m->root_fd = -1; /* then its container's debug files are not looked for */
	r->proc_fd = proc_fd;
	return e;
}

int mappings_read(uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id,
		  struct mappings **ret)
{
	return mappings_read_of(tgid, start_boottime_ns, exec_id, 0, ret);
}

int mappings_read_of(uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_id, uint32_t stack,
		     struct mappings **ret)
{
	struct reader r = {.proc_fd = -1};
	_cleanup_close_ int thread_fd = -1;
	int e = open_proc(tgid, &r.proc_fd);

	if (e < 0)
		return e;
	r.m = xcalloc(1, sizeof(*r.m));
	*r.m = (struct mappings){.tgid = tgid,
				 .exec_id = exec_id,
				 .start_boottime_ns = start_boottime_ns,
				 .read_at_ns = now_boot_ns(),
				 .root_fd = -1,
				 .refs = 1};
	e = check_program(r.proc_fd, start_boottime_ns, stack);
	if (!e)
		e = read_program(&r, r.proc_fd);
	if (e == -ESRCH && !r.m->n && (thread_fd = open_other_thread(r.proc_fd)) >= 0)
		e = read_program(&r, thread_fd);
	if (!e)
		e = check_program(r.proc_fd, start_boottime_ns, stack);
	close(r.proc_fd);
	open_files_done(&r.files);
	copies_done(&r.copies);
	if (e < 0) {
		mappings_unref(r.m);
		return e;
	}
	if (r.m->n)
		qsort(r.m->items, r.m->n, sizeof(*r.m->items), compare_mappings);
	*ret = r.m;
	return 0;
}

struct mappings *mappings_ref(struct mappings *m)
{
	__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

static int compare_ints(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}

/* Mappings of one file share its descriptor: each is closed once. */
static void close_files(struct mappings *m)
{
	int *fds = xcalloc(2 * m->n + 1, sizeof(*fds));
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		const struct mapping *x = &m->items[i];

		if (x->fd >= 0)
			fds[n++] = x->fd;
		if (x->copy && x->backing_fd >= 0)
			fds[n++] = x->backing_fd;
	}
	qsort(fds, n, sizeof(*fds), compare_ints);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || fds[i] != fds[i - 1])
			maps_file_release(fds[i]);
	free(fds);
}

struct mappings *mappings_unref(struct mappings *m)
{
	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	close_files(m);
	if (m->root_fd >= 0)
		maps_file_release(m->root_fd);
	for (size_t i = 0; i < m->n; i++)
		free(m->items[i].path);
	free(m->items);
	free(m);
	return NULL;
}

const struct mapping *mappings_find(const struct mappings *m, uint64_t address)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->items[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < m->items[low - 1].end ? &m->items[low - 1] : NULL;
}
