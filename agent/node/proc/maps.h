/* SPDX-License-Identifier: Apache-2.0 */
/* Private to proc: one line of /proc/PID/maps, one field of /proc/PID/stat (maps_line.c: pure). */
#pragma once

#include "node/proc/proc.h"

/*
 * Everything of a mapping that the line tells; fd -1. Caller frees ret->path ("" when there
 * is none). -ENOENT: not executable. -EINVAL: no such line. line may lose its newline.
 */
int maps_parse_line(char *line, struct mapping *ret);
/* What /proc/PID/stat counts in, USER_HZ, is 100 on every x86-64 kernel. */
#define TICK_NS (NSEC_PER_SEC / 100)
/* Field 22, in clock ticks since boot; the command's name may contain anything. */
int stat_parse_start(const char *text, uint64_t *ret_ticks);
/* Field 28, where the stack of its program began; 0: who reads it may not know. */
int stat_parse_stack(const char *text, uint64_t *ret_address);

/* maps_file.c: the regular file behind a mapping, opened for reading, shared between processes.
 * -ENOENT gone, -EPERM/-EACCES, -ENOTSUP no regular file, -ESTALE/-EXDEV another file by now. */
struct maps_file {
	int fd;
	uint64_t ctime_ns, bytes;
};
int maps_file_open(int proc_fd, const struct mapping *m, struct maps_file *ret);
/* The process's root directory (O_PATH), shared between the processes of a container. */
int maps_root_open(int proc_fd, int *ret_fd);
void maps_file_release(int fd);
