/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads how much memory a process has from /proc/PID/status, which the kernel writes from its
 * counters (proc_pid_status(5)). os worker.
 */
#include "node/proc/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define STATUS_MAX (1u << 20) /* bytes of a process's status: up to 65,536 supplementary groups */

/* Reads the number in a line "name: 123 kB". Returns false if there is no such line. */
static bool field(const char *text, const char *name, uint64_t *ret)
{
	const char *line = strstr(text, name);
	char *end;

	if (!line)
		return false;
	line += strlen(name);
	*ret = strtoull(line, &end, 10);
	return end > line;
}

int proc_memory_parse(const char *text, struct proc_memory *ret)
{
	uint64_t anon, data, threads, swapped = 0, libraries = 0;

	/*
	 * The text begins with the process's name, but newlines in it are escaped, so each of these
	 * is a line.
	 */
	if (!field(text, "\nRssAnon:", &anon) || !field(text, "\nVmData:", &data) ||
	    !field(text, "\nThreads:", &threads))
		return -ENODATA;
	(void)field(text, "\nVmSwap:", &swapped);
	(void)field(text, "\nVmLib:", &libraries);
	*ret = (struct proc_memory){
		.anon_bytes = (anon + swapped) << 10,
		.data_bytes = data << 10,
		.library_bytes = libraries << 10,
		.n_threads = (unsigned)threads,
	};
	return 0;
}

static int read_of(int dir_fd, const char *path, struct proc_memory *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = file_read(dir_fd, path, STATUS_MAX, &text, NULL);

	return r < 0 ? r : proc_memory_parse(text, ret);
}

int proc_memory(struct process_id id, struct proc_memory *ret)
{
	_cleanup_close_ int fd = -1;
	struct proc_memory m = {0};
	char path[32];
	int r;

	snprintf(path, sizeof(path), "/proc/%u/status", (unsigned)id.tgid);
	r = read_of(AT_FDCWD, path, &m);
	if (r == -ENODATA &&
	    /* the first thread has ended: another thread shows the memory */
	    proc_open_living((uint32_t)id.tgid, &fd) == 0)
		r = read_of(fd, "status", &m);
	if (r == 0)
		r = proc_check(id);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	*ret = m;
	return 0;
}
