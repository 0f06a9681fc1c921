// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the CPU time of a process's threads: see thread_clocks.h. Each thread has a software
 * event of perf. To read the event, the kernel interrupts the CPU on which the thread runs, which
 * takes some 10 us per thread. As long as the event is open, each switch of the thread costs a
 * little more. New threads inherit the event (kernel/events/core.c, inherit_event). This adds 2 to
 * 6 us to the start and end of a thread, which take some 23 us.
 */
#include "node/limit/thread_clocks.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 512 /* threads of one process; if it has more, its time is not measured */

static int open_one(pid_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.inherit = 1,
		.inherit_thread = 1, /* only threads inherit the event, not child processes */
	};
	int fd = syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int list(DIR *dir, pid_t *tids, size_t *ret_n)
{
	const struct dirent *entry;
	uint64_t tid;
	size_t n = 0;

	while ((entry = readdir(dir))) {
		if (str_to_u64(entry->d_name, INT32_MAX, &tid))
			continue;
		if (n == MAX_THREADS)
			return -E2BIG;
		tids[n++] = (pid_t)tid;
	}
	*ret_n = n;
	return 0;
}

/*
 * Lists all threads before it opens the first event. Else a thread that was started in between
 * would have an inherited event and another one, and would count twice.
 */
static int open_all(DIR *dir, struct limit_clocks *c)
{
	pid_t tids[MAX_THREADS];
	size_t n;
	int r = list(dir, tids, &n);

	if (r)
		return r;
	c->fds = xcalloc(n, sizeof(*c->fds));
	for (size_t i = 0; i < n; i++) {
		int fd = open_one(tids[i]);

		if (fd == -ESRCH)
			continue; /* the thread has just ended */
		if (fd < 0)
			return fd;
		c->fds[c->n++] = fd;
	}
	return c->n ? 0 : -ESRCH;
}

int limit_clocks_open(uint32_t tgid, struct limit_clocks *ret)
{
	struct limit_clocks c = {0};
	char path[64];
	DIR *dir;
	int r;

	snprintf(path, sizeof(path), "/proc/%u/task", tgid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	r = open_all(dir, &c);
	closedir(dir);
	if (r)
		limit_clocks_close(&c);
	else
		*ret = c;
	return r;
}

uint64_t limit_clocks_ns(const struct limit_clocks *c)
{
	uint64_t sum = 0, ns;

	for (size_t i = 0; i < c->n; i++)
		if (read(c->fds[i], &ns, sizeof(ns)) == sizeof(ns))
			sum += ns;
	return sum;
}

void limit_clocks_close(struct limit_clocks *c)
{
	for (size_t i = 0; i < c->n; i++)
		close(c->fds[i]);
	free(c->fds);
	*c = (struct limit_clocks){0};
}
