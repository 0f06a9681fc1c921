// SPDX-License-Identifier: Apache-2.0
/*
 * See thread_clocks.h. A software event of perf a thread: reading one asks the CPU that runs the thread. It takes
 * some 10 us a thread, and costs the thread something at each of its switches while it is open.
 */
#include "node/thread_clocks.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 512

static int open_one(uint64_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_TASK_CLOCK,
	};
	int fd = syscall(SYS_perf_event_open, &attr, (int)tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int open_all(DIR *dir, struct thread_clocks *c)
{
	const struct dirent *entry;
	uint64_t tid;

	while ((entry = readdir(dir))) {
		int fd;

		if (str_to_u64(entry->d_name, INT32_MAX, &tid))
			continue;
		if (c->n == MAX_THREADS)
			return -E2BIG;
		fd = open_one(tid);
		if (fd == -ESRCH)
			continue; /* it has just ended */
		if (fd < 0)
			return fd;
		c->fds = xrealloc(c->fds, (c->n + 1) * sizeof(*c->fds));
		c->fds[c->n++] = fd;
	}
	return c->n ? 0 : -ESRCH;
}

int thread_clocks_open(uint32_t tgid, struct thread_clocks *ret)
{
	struct thread_clocks c = {0};
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
		thread_clocks_close(&c);
	else
		*ret = c;
	return r;
}

uint64_t thread_clocks_ns(const struct thread_clocks *c)
{
	uint64_t sum = 0, ns;

	for (size_t i = 0; i < c->n; i++)
		if (read(c->fds[i], &ns, sizeof(ns)) == sizeof(ns))
			sum += ns;
	return sum;
}

void thread_clocks_close(struct thread_clocks *c)
{
	for (size_t i = 0; i < c->n; i++)
		close(c->fds[i]);
	free(c->fds);
	*c = (struct thread_clocks){0};
}
