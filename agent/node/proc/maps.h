/* SPDX-License-Identifier: Apache-2.0 */
/* Private to proc: what a process has mapped, by the texts of /proc/PID (maps_line.c: pure). */
#pragma once

#include "node/proc/proc.h"

struct maps_line {
	struct mapping m; /* path NULL, fd -1 */
	bool executable;
	const char *name; /* as the line has it, inside of it; "" none */
};
/* Everything that the line tells. -EINVAL: no such line. line may lose its newline. */
int proc_maps_parse(char *line, struct maps_line *ret);
/* Gives m the path that a line has; caller frees it. */
void proc_maps_take_name(struct mapping *m, const char *name);
/* Both of an executable mapping. -ENOENT: it is none. */
int proc_maps_parse_line(char *line, struct mapping *ret);
/* What /proc/PID/stat counts in, USER_HZ, is 100 on every x86-64 kernel. */
#define TICK_NS (NSEC_PER_SEC / 100)
/* Field 22, in clock ticks since boot; the command's name may contain anything. */
int proc_stat_parse_start(const char *text, uint64_t *ret_ticks);
/* Field 28, where the stack of its program began; 0: who reads it may not know. */
int proc_stat_parse_stack(const char *text, uint64_t *ret_address);

/* living.c: /proc/PID, or that of a thread. -ESRCH: it is gone. */
int proc_dir_open(uint32_t pid, int *ret_fd);
/* proc_open_living of the process whose directory proc_fd is; and the number of that thread. */
int proc_living_thread_at(int proc_fd, uint32_t *ret_tid, int *ret_fd);

/* maps_file.c: the regular file behind a mapping, opened for reading, shared between processes.
 * -ENOENT gone, -EPERM/-EACCES, -ENOTSUP no regular file, -ESTALE/-EXDEV another file by now. */
struct maps_file {
	int fd;
	uint64_t dev, ctime_ns, bytes; /* dev: as fstat() tells it */
	bool in_memory; /* of hugetlbfs; of tmpfs, without a name */
	bool in_tmpfs;	/* and nobody has sealed it against writing */
};
/* written.c: files that proc_mapping_files_look() found written. now_ns: CLOCK_MONOTONIC. */
void proc_maps_written_add(uint64_t dev, uint64_t inode, uint64_t ctime_ns, uint64_t now_ns);
void proc_maps_written_expire(uint64_t now_ns);
int proc_maps_file_open(int proc_fd, const struct mapping *m, struct maps_file *ret);
/* The process's root directory (O_PATH), shared between the processes of a container. */
int proc_maps_root_open(int proc_fd, int *ret_fd);
void proc_maps_file_release(int fd);

/* ---- files of one process, each opened once ---- */
struct layout { /* copies.c: PT_LOAD headers */
	struct segment {
		uint64_t address, offset, bytes; /* bytes: of the file */
		bool executable;
	} * items;
	size_t n;
};
struct open_file {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	struct maps_file file;
	int error;
	size_t n_users;	       /* mappings that have its descriptor */
	struct layout *layout; /* NULL: nobody has asked */
};
struct open_files {
	int proc_fd;
	struct open_file *items;
	size_t n, cap;
};
/* NULL: there are too many. */
struct open_file *proc_open_files_get(struct open_files *f, const struct mapping *m);
/* m has its file, or says why not. */
void proc_open_files_use(struct open_files *f, struct mapping *m);
/* Another mapping has m's descriptor, and one that had it is none any more. */
void proc_open_files_share(struct open_files *f, const struct mapping *m);
void proc_open_files_leave(struct open_files *f, const struct mapping *m);
/* Closes those that no mapping has. */
void proc_open_files_done(struct open_files *f);

/* ---- copies.c: code of files that lies in memory without a file ---- */
struct copies {
	struct mapping before; /* the last mapping of a file, its path as the line has it: */
	char *before_name;     /* NULL: there was none yet */
	size_t name_cap;
	struct mapping *anchors; /* mappings of files beside candidates */
	struct candidate {
		size_t item, before, after; /* SIZE_MAX: none */
	} * items;
	size_t n_anchors, cap_anchors, n, cap, n_open; /* n_open: those without `after` */
};
/* To be told each line, in order. item: the i-th of the mappings, if the line became one; else NULL. */
void proc_copies_line(struct copies *c, const struct maps_line *l, const struct mapping *item, size_t i);
/* Makes mappings of files of the items that hold their code; mem_fd: /proc/PID/mem, -1: it cannot be read. */
void proc_copies_find(struct copies *c, struct open_files *files, int mem_fd, struct mappings *m);
void proc_copies_done(struct copies *c);
