/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the executable mappings of a process and opens their files. Each opened file is the one
 * that is mapped, even if the pod replaces the path meanwhile, and always a regular file. This may
 * block as long as a pod's file system does not answer: files or attach worker.
 */
#include "node/proc/maps.h"
#include "node/proc/stat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MAPS_LINES_MAX 1000000 /* lines of the maps of one process; further ones are not read */
/* The most files that are held open for one process. Only an attacker maps more. */
#define MAPS_FILES_MAX 1024 /* open files of one process */
#define WRITTEN_MAX    256  /* files of one process that are mapped shared and writable */
#define MAPS_LINE_MAX  8192 /* bytes of such a line; only an attacker has more */
#define PAGE_BYTES     4096

/*
 * Files that are mapped shared and writable. If there are more than WRITTEN_MAX, `any` is set, and
 * each file counts as such a file.
 */
struct written {
	struct {
		uint64_t inode;
		uint32_t dev_major, dev_minor;
	} items[WRITTEN_MAX];
	size_t n;
	bool any;
};
struct maps_reader {
	int dir_fd;
	struct mappings *m;
	size_t cap;
	struct open_files files;
	struct copies copies;
	struct written written;
};

/* ---- start time ---- */

static int read_stat(int proc_fd, char **ret)
{
	int r = file_read(proc_fd, "stat", 4096, ret, NULL);

	return r == -ENOENT ? -ESRCH : r;
}

static int start_of(int proc_fd, uint64_t *ret_ns)
{
	_cleanup_free_ char *text = NULL;
	uint64_t ticks;
	int r = read_stat(proc_fd, &text);

	if (r == 0)
		r = proc_stat_parse_start(text, &ticks);
	if (r == 0)
		*ret_ns = ticks * TICK_NS;
	return r;
}

int proc_start_boottime(uint32_t tgid, uint64_t *ret_ns)
{
	_cleanup_close_ int fd = -1;
	int r = proc_dir_open(tgid, &fd);

	return r < 0 ? r : start_of(fd, ret_ns);
}

/*
 * Whether both times are start times of one process. /proc/PID/stat rounds down to a tick, and the
 * caller's time may be rounded or exact.
 */
static bool is_same_start(uint64_t want_ns, uint64_t have_ns)
{
	return want_ns + TICK_NS > have_ns && want_ns < have_ns + 2 * TICK_NS;
}

/*
 * Returns -ESTALE if the process does not have this stack: see proc_mappings_read_of(). If the
 * thread is ending, /proc does not show its stack any more; then this returns 0.
 */
static int check_stack(int dir_fd, uint32_t stack)
{
	_cleanup_free_ char *text = NULL;
	uint64_t address;
	int r;

	if (!stack)
		return 0;
	r = read_stat(dir_fd, &text);
	if (r < 0)
		return r;
	if (proc_stat_parse_stack(text, &address) < 0 || !address)
		return 0;
	return (uint32_t)address == stack ? 0 : -ESTALE;
}

static int check_start(int proc_fd, uint64_t want_ns)
{
	uint64_t have_ns = 0;
	int r = start_of(proc_fd, &have_ns);

	return r < 0 ? r : is_same_start(want_ns, have_ns) ? 0 : -ESRCH;
}

int proc_check(struct process_id id)
{
	_cleanup_close_ int fd = -1;
	int r = proc_dir_open((uint32_t)id.tgid, &fd);

	return r < 0 ? r : check_start(fd, id.start_boottime_ns);
}

int proc_check_living(struct process_id id)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	struct proc_stat s;
	int r = proc_dir_open((uint32_t)id.tgid, &fd);

	if (!r)
		r = read_stat(fd, &text);
	if (!r)
		r = proc_stat_parse(text, &s);
	if (r)
		return r;
	if (!is_same_start(id.start_boottime_ns, s.start_ticks * TICK_NS))
		return -ESRCH;
	return s.state == 'Z' && proc_has_ended((uint32_t)id.tgid) ? -ESRCH : 0;
}

/* ---- opening files ---- */

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

struct open_file *proc_open_files_get(struct open_files *f, const struct mapping *m)
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
	x->error = proc_maps_file_open(f->proc_fd, m, &x->file);
	return x;
}

void proc_open_files_use(struct open_files *f, struct mapping *m)
{
	struct open_file *x;

	if (m->path[0] != '/') {
		m->open_error = -ENODATA;
		return;
	}
	x = proc_open_files_get(f, m);
	if (!x) {
		m->open_error = -EMFILE;
		return;
	}
	x->n_users++;
	m->fd = x->file.fd;
	m->open_error = x->error;
	m->ctime_ns = x->file.ctime_ns;
	m->file_dev = x->file.dev;
	m->file_bytes = x->file.bytes;
	m->memory_file = x->file.in_memory || (x->file.in_tmpfs && m->shared);
}

void proc_open_files_share(struct open_files *f, const struct mapping *m)
{
	struct open_file *x = m->fd >= 0 ? find_file(f, m) : NULL;

	if (x)
		x->n_users++;
}

void proc_open_files_leave(struct open_files *f, const struct mapping *m)
{
	struct open_file *x = m->fd >= 0 ? find_file(f, m) : NULL;

	if (x)
		x->n_users--;
}

void proc_open_files_done(struct open_files *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct open_file *x = &f->items[i];

		if (!x->n_users && x->file.fd >= 0)
			proc_maps_file_release(x->file.fd);
		if (x->layout)
			free(x->layout->items);
		free(x->layout);
	}
	free(f->items);
	*f = (struct open_files){0};
}

/* ---- reading all mappings ---- */

/*
 * Whether the kernel counts the mapping in mm->exec_vm: is_exec_mapping(), mm/internal.h
 * (include/linux/mm.h before 6.9). [vsyscall] is not a mapping of the process.
 */
static bool is_counted(const struct mapping *m)
{
	return !m->writable && !streq(m->path, "[stack]") && !streq(m->path, "[vsyscall]");
}

static void add_mapping(struct maps_reader *r, const struct maps_line *l)
{
	struct mapping x = l->m;

	proc_maps_take_name(&x, l->name);
	if (is_counted(&x))
		r->m->exec_pages += (x.end - x.start) / PAGE_BYTES;
	if (r->m->n == MAPPINGS_MAX) {
		free(x.path);
		r->m->truncated = true;
		return;
	}
	proc_open_files_use(&r->files, &x);
	GROW(r->m->items, r->m->n, r->cap);
	r->m->items[r->m->n++] = x;
}

static bool is_written(const struct written *w, const struct mapping *m)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->items[i].inode == m->inode && w->items[i].dev_major == m->dev_major &&
		    w->items[i].dev_minor == m->dev_minor)
			return true;
	return w->any;
}

static void note_written(struct written *w, const struct maps_line *l)
{
	if (w->any || !l->m.shared || !l->m.writable || !l->m.inode || is_written(w, &l->m))
		return;
	w->any = w->n == WRITTEN_MAX;
	if (w->any)
		return;
	w->items[w->n].inode = l->m.inode;
	w->items[w->n].dev_major = l->m.dev_major;
	w->items[w->n++].dev_minor = l->m.dev_minor;
}

static int add_line(struct maps_reader *r, char *line)
{
	size_t n = r->m->n;
	struct maps_line l;
	int e = proc_maps_parse(line, &l);

	if (e < 0)
		return e;
	note_written(&r->written, &l);
	if (l.executable)
		add_mapping(r, &l);
	proc_copies_line(&r->copies, &l, r->m->n > n ? &r->m->items[n] : NULL, n);
	return 0;
}

/*
 * Whether the process has no mappings any more, because it is ending. Then the list that was read
 * may lack some or all of them.
 */
static bool has_ended(int maps_fd)
{
	char c;

	return pread(maps_fd, &c, 1, 0) < 1;
}

/*
 * Reads a line, and of one that is too long the beginning. A pod can make directories so deep that
 * the kernel writes a path of any length. Returns false at the end.
 */
static bool read_line(FILE *f, char line[MAPS_LINE_MAX])
{
	int c = '\0';

	if (!fgets(line, MAPS_LINE_MAX, f))
		return false;
	if (strlen(line) < MAPS_LINE_MAX - 1 || line[MAPS_LINE_MAX - 2] == '\n')
		return true;
	counter_add(counter("podflame_mappings_dropped_total", "reason", "long_path"), 1);
	while (c != '\n' && c != EOF)
		c = getc(f);
	return true;
}

static int read_lines(struct maps_reader *r)
{
	char line[MAPS_LINE_MAX];
	int fd = openat(r->dir_fd, "maps", O_RDONLY | O_CLOEXEC), e = 0;
	FILE *f;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	f = fdopen(fd, "r");
	if (!f) {
		e = -errno;
		close(fd);
		return e;
	}
	for (size_t n = 0; e == 0 && read_line(f, line); n++) {
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

/*
 * Orders mappings by address. The kernel lists them so, but if a mapping is made during the read,
 * the list may be out of order.
 */
static int compare_mappings(const void *left, const void *right)
{
	const struct mapping *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

static void find_copies(struct maps_reader *r)
{
	_cleanup_close_ int mem_fd = -1;

	if (r->copies.n) {
		mem_fd = openat(r->dir_fd, "mem", O_RDONLY | O_CLOEXEC);
		proc_copies_find(&r->copies, &r->files, mem_fd, r->m);
	}
	for (size_t i = 0; i < r->m->n; i++) {
		struct mapping *x = &r->m->items[i];

		r->m->unsure |= mapping_is_unsure(x);
		x->written = x->memory_file && is_written(&r->written, x);
	}
}

int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret)
{
	return proc_mappings_read_of(id, exec_id, 0, ret);
}

/* dir_fd: the directory of the process, or of one of its threads that lives. */
static int read_from(int dir_fd, uint32_t stack, struct mappings *m)
{
	struct maps_reader r = {.dir_fd = dir_fd, .m = m, .files.proc_fd = dir_fd};
	int e = read_lines(&r);

	if (!e)
		find_copies(&r);
	if (!e && proc_maps_root_open(dir_fd, &m->root_fd) < 0)
		/* without root_fd, the agent does not search for debug files in the container */
		m->root_fd = -1;
	if (!e)
		e = check_stack(dir_fd, stack);
	proc_open_files_done(&r.files);
	proc_copies_done(&r.copies);
	return e;
}

static struct mappings *mappings_new(struct process_id id, uint32_t exec_id)
{
	struct mappings *m = xcalloc(1, sizeof(*m));

	*m = (struct mappings){.id = id,
			       .exec_id = exec_id,
			       .read_at_ns = now_boot_ns(),
			       .root_fd = -1,
			       .refs = 1};
	return m;
}

int proc_mappings_read_of(struct process_id id, uint32_t exec_id, uint32_t stack,
			  struct mappings **ret)
{
	/* If the process's number is used again, proc_fd still belongs to the old process. */
	_cleanup_close_ int proc_fd = -1, thread_fd = -1;
	uint64_t began_ns = thread_cpu_ns();
	struct mappings *m;
	uint32_t tid;
	int e = proc_dir_open((uint32_t)id.tgid, &proc_fd);

	if (!e)
		e = check_start(proc_fd, id.start_boottime_ns);
	if (e < 0)
		return e;
	m = mappings_new(id, exec_id);
	e = read_from(proc_fd, stack, m);
	if (e == -ESRCH && (e = proc_living_thread_at(proc_fd, &tid, &thread_fd)) == 0) {
		proc_mappings_unref(m);
		m = mappings_new(id, exec_id);
		e = read_from(thread_fd, stack, m);
	}
	if (!e)
		e = check_start(proc_fd, id.start_boottime_ns);
	if (e < 0) {
		proc_mappings_unref(m);
		return e;
	}
	if (m->n)
		qsort(m->items, m->n, sizeof(*m->items), compare_mappings);
	m->cost_ns = thread_cpu_ns() - began_ns;
	*ret = m;
	return 0;
}

struct mappings *proc_mappings_ref(struct mappings *m)
{
	ref_take(&m->refs);
	return m;
}

static int compare_ints(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}

/*
 * Releases each descriptor once: the mappings of one file have one descriptor, with one reference.
 */
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
			proc_maps_file_release(fds[i]);
	free(fds);
}

struct mappings *proc_mappings_unref(struct mappings *m)
{
	if (!m || !ref_drop(&m->refs))
		return NULL;
	close_files(m);
	if (m->root_fd >= 0)
		proc_maps_file_release(m->root_fd);
	for (size_t i = 0; i < m->n; i++)
		free(m->items[i].path);
	free(m->items);
	free(m);
	return NULL;
}

const struct mapping *proc_mappings_find(const struct mappings *m, uint64_t address)
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
