/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: perf maps, files in which programs with generated code write "START SIZE NAME"
 * lines (tools/perf/Documentation/jit-interface.txt). Everything in them is hostile.
 */
#pragma once

#include "node/runtime/runtime.h"

struct stat;

/* ---- perfmap_lines.c: what the lines say ---- */
#define PERF_MAP_LIVE_BYTES (16u << 20) /* of one map's functions; more are refused */
#define PERF_MAP_ALL_BYTES                                                                         \
	(64u << 20)	       /* of all maps; half as much more, so that each has its share */
#define PERF_MAP_LINE_MAX 1024 /* longer ones are cut */

struct perf_map;
struct perf_map *runtime_perf_map_new(void);
struct perf_map *runtime_perf_map_free(struct perf_map *m);
/* More of the file; lines may be cut anywhere. A line ends all that lay in its range before. */
void runtime_perf_map_add(struct perf_map *m, const char *bytes, size_t n);
/* Name of the function at an address, as the file has it; NULL: none is known. Until the next add. */
const char *runtime_perf_map_find(const struct perf_map *m, uint64_t address);
size_t runtime_perf_map_n(const struct perf_map *m); /* functions */
/* How often an address was given to another function. */
uint64_t runtime_perf_map_replaced(const struct perf_map *m);

/* ---- perfmap_file.c: the file of a process ---- */
#define PERF_MAP_FILE_MAX    (256ull << 20)
#define PERF_MAP_SLICE_BYTES (8u << 20) /* read at once */

struct perf_file {
	struct process_id id;
	uint32_t own_pid;	     /* what the process calls itself */
	uint64_t dev, inode, offset; /* what was read, up to where */
	char tail[64];		     /* the bytes before offset */
	uint64_t restarted_ns;	     /* CLOCK_MONOTONIC: when it was last read from its begin */
	uint64_t generation;	     /* of the maps before this one */
	struct perf_map *map;
};
/* NULL map; -ESRCH. */
int runtime_perf_file_init(struct process_id id, struct perf_file *ret);
void runtime_perf_file_done(struct perf_file *f);
/* Another map than so far; takes it. */
void runtime_perf_file_set(struct perf_file *f, struct perf_map *map);
/* Raised when an address may have been given to another function. */
uint64_t runtime_perf_file_generation(const struct perf_file *f);
/*
 * Reads on, a slice at a time: 0: all is read; -EAGAIN: there is more. -ENOENT: there is no file. -ELOOP: a symbolic
 * link; -ENOTSUP: no regular file; -EPERM: of another user; -EFBIG: over PERF_MAP_FILE_MAX; -ETIME: written before
 * the process began. Where a map is known, another file that is empty or that old is as none.
 */
int runtime_perf_file_read(struct perf_file *f);
/* Whether a file was written last before the process began. In a forked child, too. */
bool runtime_perf_file_is_older(const struct perf_file *f, const struct stat *st);
/* The file, opened as runtime_perf_file_read does; also for attach. Name of the file in the process's root: path. */
#define PERF_MAP_PATH_BYTES 32
void runtime_perf_map_path(uint32_t own_pid, char ret[PERF_MAP_PATH_BYTES]);
/* Of its process; also for attach. */
int runtime_perf_file_status(uint32_t tgid, char **ret); /* /proc/PID/status */
/* The k-th number behind a field's name ("\nUid:"); the last one for k < 0. */
bool runtime_perf_status_number(const char *status, const char *field, int k, uint32_t *ret);
bool runtime_perf_file_same_process(const struct perf_file *f);
int runtime_perf_file_root(const struct perf_file *f, int *ret_fd); /* O_PATH */
/* O_PATH of what is there, itself when it is a link; no way leads out of the root. */
int runtime_perf_file_open_path(int root_fd, const char *path, uint64_t flags, int *ret_fd);
/* Why such a file is not used, for people; NULL: nothing is wrong with it. */
const char *runtime_perf_file_problem(int error);

/* ---- perfmap_names.c: what a name means ---- */
enum perf_map_writer { PERF_MAP_ANY, PERF_MAP_HOTSPOT };
void runtime_perf_map_names(const char *line_name, enum perf_map_writer writer, struct runtime_names *ret);
