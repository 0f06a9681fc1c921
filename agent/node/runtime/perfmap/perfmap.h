/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: perf maps, files into which programs with generated code write lines "START
 * SIZE NAME" (tools/perf/Documentation/jit-interface.txt). Everything in them is hostile. Reader's
 * thread; attach uses a perf_file of its own on its thread.
 */
#pragma once

#include "node/runtime/runtime.h"

struct stat;

/* ---- perfmap_lines.c: the lines of a map ---- */
#define PERF_MAP_LIVE_BYTES (16u << 20) /* of one map's functions; more are refused */
#define PERF_MAP_ALL_BYTES                                                                         \
	(64u << 20)	       /* of all maps; half as much more, so that each has its share */
#define PERF_MAP_LINE_MAX 1024 /* longer lines are cut */

struct perf_map;
struct perf_map *runtime_perf_map_new(void);
struct perf_map *runtime_perf_map_free(struct perf_map *m);
/*
 * Adds the next bytes of the file, cut anywhere. A line replaces all earlier functions in its
 * range.
 */
void runtime_perf_map_add(struct perf_map *m, const char *bytes, size_t n);
/* The name that the file gives the function at an address, valid until the next add; NULL: none. */
const char *runtime_perf_map_find(const struct perf_map *m, uint64_t address);
size_t runtime_perf_map_n(const struct perf_map *m); /* functions */
/* How often a function was replaced by another at its address. */
uint64_t runtime_perf_map_replaced(const struct perf_map *m);

/* ---- perfmap_file.c: the file of a process ---- */
#define PERF_MAP_FILE_MAX    (256ull << 20)
#define PERF_MAP_SLICE_BYTES (8u << 20) /* read at once */

struct perf_file {
	struct process_id id;
	uint32_t own_pid;	     /* the PID in the process's own namespace */
	uint64_t dev, inode, offset; /* of the file that was read, up to offset */
	char tail[64];		     /* the bytes before offset */
	uint64_t restarted_ns;	     /* CLOCK_MONOTONIC: when a read last began at the start */
	uint64_t generation;	     /* of earlier maps */
	struct perf_map *map;
};
/* ret->map is NULL at first. -ESRCH: the process has ended. */
int runtime_perf_file_init(struct process_id id, struct perf_file *ret);
void runtime_perf_file_done(struct perf_file *f);
/* Replaces the map; takes over the new one. */
void runtime_perf_file_set(struct perf_file *f, struct perf_map *map);
/* A number that grows when an address may have got another function. */
uint64_t runtime_perf_file_generation(const struct perf_file *f);
/*
 * Reads the next slice of the file. 0: all is read. -EAGAIN: there is more. -ENOENT: there is no
 * file. -ELOOP: it is a symbolic link. -ENOTSUP: it is not a regular file. -EPERM: it belongs to
 * another user. -EFBIG: it is larger than PERF_MAP_FILE_MAX. -ETIME: it was written before the
 * process began. If a map is known, another file that is empty or so old counts as none.
 */
int runtime_perf_file_read(struct perf_file *f);
/* Whether a file was last written before the process began. Also for a forked child. */
bool runtime_perf_file_is_older(const struct perf_file *f, const struct stat *st);
/* Also for attach. The file's path in the process's root. */
#define PERF_MAP_PATH_BYTES 32
void runtime_perf_map_path(uint32_t own_pid, char ret[PERF_MAP_PATH_BYTES]);
/* Also for attach. */
int runtime_perf_file_status(uint32_t tgid, char **ret); /* /proc/PID/status */
/* The k-th number after a field's name ("\nUid:"); k < 0: the last one. */
bool runtime_perf_status_number(const char *status, const char *field, int k, uint32_t *ret);
bool runtime_perf_file_same_process(const struct perf_file *f);
int runtime_perf_file_root(const struct perf_file *f, int *ret_fd); /* O_PATH */
/* Opens a path with O_PATH, never outside of the root. A link at its end is opened itself. */
int runtime_perf_file_open_path(int root_fd, const char *path, uint64_t flags, int *ret_fd);
/* For a user: why the file is not used; NULL: nothing is wrong with it. */
const char *runtime_perf_file_problem(int error);

/* ---- perfmap_names.c: from a line's name to a function's ---- */
enum perf_map_writer { PERF_MAP_ANY, PERF_MAP_HOTSPOT };
void runtime_perf_map_names(const char *line_name, enum perf_map_writer writer,
			    struct runtime_names *ret);
