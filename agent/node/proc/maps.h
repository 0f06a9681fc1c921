/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to proc/: the mappings of a process: parsing of the texts in /proc/PID (maps_line.c:
 * pure), opened files, and copies of code.
 */
#pragma once

#include "node/proc/proc.h"

struct maps_line {
	struct mapping m; /* what the line says of the mapping; path is NULL and fd is -1 */
	bool executable;
	const char *name; /* the name in the line; "": there is none */
};
/*
 * Parses a line of /proc/PID/maps. -EINVAL: the line has another form. The function may remove the
 * newline of line.
 */
int proc_maps_parse(char *line, struct maps_line *ret);
/* Sets the path of m from a name in a line. The caller frees m->path. */
void proc_maps_take_name(struct mapping *m, const char *name);
/*
 * Calls proc_maps_parse() and, for an executable mapping, proc_maps_take_name(). -ENOENT: the
 * mapping is not executable.
 */
int proc_maps_parse_line(char *line, struct mapping *ret);
/* The unit of times in /proc/PID/stat: USER_HZ is 100 on every x86-64 kernel. */
#define TICK_NS (NSEC_PER_SEC / 100)
/*
 * Reads field 22 of the text of /proc/PID/stat: the start time in clock ticks since boot. Before it
 * stands the name of the process, which may contain any character.
 */
int proc_stat_parse_start(const char *text, uint64_t *ret_ticks);
/*
 * Reads field 28: the address at which the stack of the program began. 0: the reader has no
 * permission to see the address.
 */
int proc_stat_parse_stack(const char *text, uint64_t *ret_address);

/*
 * living_thread.c: opens /proc/PID; pid may also be the number of a thread. -ESRCH: there is no
 * such process or thread.
 */
int proc_dir_open(uint32_t pid, int *ret_fd);
/*
 * As proc_open_living(), for the process whose directory is proc_fd. Also returns the number of the
 * thread.
 */
int proc_living_thread_at(int proc_fd, uint32_t *ret_tid, int *ret_fd);

/*
 * maps_file.c: opens the regular file of a mapping for reading; its descriptor is shared between
 * processes. -ENOENT: it is deleted; -EPERM, -EACCES: not permitted; -ENOTSUP: it is no regular
 * file; -ESTALE, -EXDEV: the path now leads to another file.
 */
struct maps_file {
	int fd;
	uint64_t dev, ctime_ns, bytes; /* dev: as fstat() shows it */
	bool in_memory; /* in hugetlbfs, or a file in tmpfs without a name */
	bool in_tmpfs;	/* in tmpfs or hugetlbfs, and not sealed against writing */
};
/*
 * written_files.c: the table of files of which proc_mapping_files_look() has found that they were
 * written. now_ns: CLOCK_MONOTONIC.
 */
void proc_maps_written_add(uint64_t dev, uint64_t inode, uint64_t ctime_ns, uint64_t now_ns);
void proc_maps_written_expire(uint64_t now_ns);
int proc_maps_file_open(int proc_fd, const struct mapping *m, struct maps_file *ret);
/* Opens the process's root directory (O_PATH); processes of a container share the descriptor. */
int proc_maps_root_open(int proc_fd, int *ret_fd);
void proc_maps_file_release(int fd);

/* ---- files of one process; each is opened once ---- */
struct layout { /* the PT_LOAD headers of a file, for code_copies.c */
	struct segment {
		uint64_t address, offset, bytes; /* bytes: size in the file */
		bool executable;
	} * items;
	size_t n;
};
struct open_file {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	struct maps_file file;
	int error;
	size_t n_users;	       /* number of mappings that have its descriptor */
	struct layout *layout; /* NULL: the headers have not been read yet */
};
struct open_files {
	int proc_fd;
	struct open_file *items;
	size_t n, cap;
};
/* Returns the file of m, opened or with an error. NULL: there are too many files. */
struct open_file *proc_open_files_get(struct open_files *f, const struct mapping *m);
/* Sets the descriptor and the other data of the file in m, or open_error. */
void proc_open_files_use(struct open_files *f, struct mapping *m);
/*
 * proc_open_files_share(): another mapping also has m's descriptor. proc_open_files_leave(): m is
 * removed.
 */
void proc_open_files_share(struct open_files *f, const struct mapping *m);
void proc_open_files_leave(struct open_files *f, const struct mapping *m);
/* Closes the files whose descriptor no mapping uses. */
void proc_open_files_done(struct open_files *f);

/* ---- code_copies.c: code of files that was copied into memory without a file ---- */
struct copies {
	struct mapping before; /* the last mapping of a file so far; its path is in before_name */
	char *before_name;     /* NULL: there has been none */
	size_t name_cap;
	/* mappings of files beside candidates: the file of one may have the code */
	struct mapping *anchors;
	struct candidate {
		/* item: index of the mapping; before, after: indexes in anchors; SIZE_MAX: none */
		size_t item, before, after;
	} * items;
	/* n_open: candidates whose `after` is not known yet */
	size_t n_anchors, cap_anchors, n, cap, n_open;
};
/*
 * Takes the next line of maps: the caller passes each line, in order. item: the i-th mapping, if it
 * was made from this line; otherwise NULL.
 */
void proc_copies_line(struct copies *c, const struct maps_line *l,
		      const struct mapping *item, size_t i);
/*
 * Changes mappings that have a copy of a file's code: they become mappings of that file. mem_fd:
 * /proc/PID/mem; -1: it cannot be read.
 */
void proc_copies_find(struct copies *c, struct open_files *files, int mem_fd, struct mappings *m);
void proc_copies_done(struct copies *c);
