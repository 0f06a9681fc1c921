/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to proc/: what a process has mapped, from the texts in /proc/PID (maps_line.c: pure), the
 * opened files, and copies of code.
 */
#pragma once

#include "node/proc/proc.h"

struct maps_line {
	struct mapping m; /* path NULL, fd -1 */
	bool executable;
	const char *name; /* inside the line; "": none */
};
/* Reads everything that the line has. -EINVAL: it is no such line. line may lose its newline. */
int proc_maps_parse(char *line, struct maps_line *ret);
/* Gives m the path of a line. The caller frees it. */
void proc_maps_take_name(struct mapping *m, const char *name);
/* Both of the above, for an executable mapping. -ENOENT: it is not executable. */
int proc_maps_parse_line(char *line, struct mapping *ret);
/* The unit of times in /proc/PID/stat: USER_HZ is 100 on every x86-64 kernel. */
#define TICK_NS (NSEC_PER_SEC / 100)
/* Field 22, in clock ticks since boot. The command's name before it may contain any character. */
int proc_stat_parse_start(const char *text, uint64_t *ret_ticks);
/* Field 28, where the stack of its program began; 0: the reader has no right to see it. */
int proc_stat_parse_stack(const char *text, uint64_t *ret_address);

/* living_thread.c: opens /proc/PID, or that of a thread. -ESRCH: it is gone. */
int proc_dir_open(uint32_t pid, int *ret_fd);
/*
 * proc_open_living() for the process whose directory proc_fd is; also returns the number of that
 * thread.
 */
int proc_living_thread_at(int proc_fd, uint32_t *ret_tid, int *ret_fd);

/*
 * maps_file.c: the regular file behind a mapping, opened for reading and shared between processes.
 * -ENOENT: it is gone; -EPERM, -EACCES: not permitted; -ENOTSUP: it is no regular file; -ESTALE,
 * -EXDEV: it is another file by now.
 */
struct maps_file {
	int fd;
	uint64_t dev, ctime_ns, bytes; /* dev: as in fstat() */
	bool in_memory; /* in hugetlbfs; or in tmpfs without a name */
	bool in_tmpfs;	/* and not sealed against writing */
};
/*
 * written_files.c: files that proc_mapping_files_look() found to be written. now_ns:
 * CLOCK_MONOTONIC.
 */
void proc_maps_written_add(uint64_t dev, uint64_t inode, uint64_t ctime_ns, uint64_t now_ns);
void proc_maps_written_expire(uint64_t now_ns);
int proc_maps_file_open(int proc_fd, const struct mapping *m, struct maps_file *ret);
/* The process's root directory (O_PATH), shared between the processes of a container. */
int proc_maps_root_open(int proc_fd, int *ret_fd);
void proc_maps_file_release(int fd);

/* ---- files of one process, each opened once ---- */
struct layout { /* code_copies.c: PT_LOAD headers */
	struct segment {
		uint64_t address, offset, bytes; /* bytes: in the file */
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
	struct layout *layout; /* NULL: not read yet */
};
struct open_files {
	int proc_fd;
	struct open_file *items;
	size_t n, cap;
};
/* Returns NULL if there are too many. */
struct open_file *proc_open_files_get(struct open_files *f, const struct mapping *m);
/* Gives m its file, or the error. */
void proc_open_files_use(struct open_files *f, struct mapping *m);
/* Another mapping has m's descriptor; a mapping that had it has been removed. */
void proc_open_files_share(struct open_files *f, const struct mapping *m);
void proc_open_files_leave(struct open_files *f, const struct mapping *m);
/* Closes the files that no mapping has. */
void proc_open_files_done(struct open_files *f);

/* ---- code_copies.c: code of files that lies in memory without a file ---- */
struct copies {
	struct mapping before; /* the last mapping of a file; its path is before_name */
	char *before_name;     /* NULL: there was none yet */
	size_t name_cap;
	struct mapping *anchors; /* mappings of files beside candidates */
	struct candidate {
		size_t item, before, after; /* SIZE_MAX: none */
	} * items;
	size_t n_anchors, cap_anchors, n, cap, n_open; /* n_open: those without `after` */
};
/*
 * The caller passes each line, in order. item: the i-th mapping, if the line became one; otherwise
 * NULL.
 */
void proc_copies_line(struct copies *c, const struct maps_line *l,
		      const struct mapping *item, size_t i);
/*
 * Turns items that hold a file's code into mappings of that file. mem_fd: /proc/PID/mem, -1: it
 * cannot be read.
 */
void proc_copies_find(struct copies *c, struct open_files *files, int mem_fd, struct mappings *m);
void proc_copies_done(struct copies *c);
