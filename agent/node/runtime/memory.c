/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the memory of a process, up to a budget. The process may change the memory meanwhile. Runs
 * on the reader's thread.
 */
#include "node/runtime/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_COST_BYTES 64
#define PAGE_BYTES	4096

int runtime_memory_read(struct memory *m, uint64_t address, void *to, size_t n)
{
	if (n > SIZE_MAX - READ_COST_BYTES || n + READ_COST_BYTES > m->budget_bytes)
		return -E2BIG;
	m->budget_bytes -= n + READ_COST_BYTES;
	return m->read(m->arg, address, to, n);
}

#define READER(type, name)                                                                         \
	int runtime_memory_##name(struct memory *m, uint64_t address, type *ret)                   \
	{                                                                                          \
		type value;                                                                        \
		int r = runtime_memory_read(m, address, &value, sizeof(value));                    \
                                                                                                   \
		if (r == 0)                                                                        \
			*ret = value;                                                              \
		return r;                                                                          \
	}
READER(uint8_t, u8)
READER(uint16_t, u16)
READER(uint32_t, u32)
READER(uint64_t, u64)
#undef READER

/* Reads in pieces that end where pages end, because the page after the text may not be mapped. */
int runtime_memory_string(struct memory *m, uint64_t address, size_t max, char **ret)
{
	_cleanup_free_ char *text = NULL;
	size_t n = 0;

	if (max == 0)
		return -EINVAL;
	text = xmalloc(max);
	while (n < max - 1) {
		size_t piece = MIN(PAGE_BYTES - (address + n) % PAGE_BYTES, (size_t)256);
		const char *end;
		int r;

		piece = MIN(piece, max - 1 - n);
		r = runtime_memory_read(m, address + n, text + n, piece);
		if (r < 0)
			return r;
		end = memchr(text + n, '\0', piece);
		if (end) {
			*ret = TAKE_PTR(text);
			return 0;
		}
		n += piece;
	}
	text[n] = '\0';
	*ret = TAKE_PTR(text);
	return 0;
}

/* ---- a live process ---- */

struct process_memory {
	struct memory memory;
	int fd;
};

static int read_process(void *arg, uint64_t address, void *to, size_t n)
{
	const int *fd = arg;
	size_t done = 0;

	while (done < n) {
		ssize_t r;

		if (address + done > INT64_MAX)
			return -EFAULT;
		r = pread64(*fd, (char *)to + done, n - done, (off64_t)(address + done));
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return errno == EIO ? -EFAULT : -errno;
		if (r == 0)
			return -ESRCH; /* the process has no memory any more */
		done += r;
	}
	return 0;
}

struct memory runtime_memory_of(int *fd)
{
	return (struct memory){.read = read_process, .arg = fd, .budget_bytes = MEMORY_BUDGET};
}

int runtime_process_memory_fd(const struct process_memory *p)
{
	return p->fd;
}

/*
 * Returns whether the descriptor gives memory. If the thread has ended, its file reads as empty:
 * not even an error shows that the thread has no memory.
 */
static bool is_memory(int fd)
{
	char c;

	return fd >= 0 && pread(fd, &c, 1, 0) != 0;
}

static int open_memory(uint32_t tgid, int *ret_fd)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/mem", tgid);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC), dir = -1;

	if (fd < 0 && errno != ENOENT && errno != ESRCH)
		return -errno;
	if (!is_memory(fd)) {
		closep(&fd);
		if (proc_open_living(tgid, &dir) < 0)
			return -ESRCH;
		fd = openat(dir, "mem", O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int runtime_process_memory_open(struct process_id id, struct process_memory **ret)
{
	_cleanup_close_ int fd = -1;
	struct process_memory *p;
	int r = open_memory((uint32_t)id.tgid, &fd);

	if (r < 0)
		return r;
	/*
	 * The process is checked only after opening: before, its PID may have become another
	 * process's.
	 */
	r = proc_check(id);
	if (r < 0)
		return r;
	p = xcalloc(1, sizeof(*p));
	p->fd = TAKE_FD(fd);
	p->memory = runtime_memory_of(&p->fd);
	p->memory.opened_ns = now_mono_ns();
	*ret = p;
	return 0;
}

struct process_memory *runtime_process_memory_close(struct process_memory *p)
{
	if (p) {
		close(p->fd);
		free(p);
	}
	return NULL;
}

struct memory *runtime_process_memory(struct process_memory *p)
{
	p->memory.budget_bytes = MEMORY_BUDGET;
	return &p->memory;
}
