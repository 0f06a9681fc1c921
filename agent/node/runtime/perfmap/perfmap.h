/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: perf maps. Programs with generated code write such files, with lines "START
 * SIZE NAME" (tools/perf/Documentation/jit-interface.txt). All of their content is hostile. Runs on
 * the reader's thread. The module java_attach (below: attach) uses its own struct perf_file on its
 * own thread.
 */
#pragma once

#include "node/runtime/runtime.h"

struct stat;

/* ---- perfmap_lines.c: the lines of a map ---- */
/* limit for the functions of one map; further ones are refused */
#define PERF_MAP_LIVE_BYTES (16u << 20)
/* limit for all maps together; above it, each map may still grow to an equal share of its half */
#define PERF_MAP_ALL_BYTES (64u << 20)
#define PERF_MAP_LINE_MAX 1024 /* longer lines are cut */

struct perf_map;
struct perf_map *runtime_perf_map_new(void);
struct perf_map *runtime_perf_map_free(struct perf_map *m);
/*
 * Adds the next bytes of the file, which may begin and end anywhere in a line. A line replaces all
 * earlier functions in its range.
 */
void runtime_perf_map_add(struct perf_map *m, const char *bytes, size_t n);
/*
 * Returns the name that the file has for the function at an address; valid until the next add.
 * NULL: the file has none.
 */
const char *runtime_perf_map_find(const struct perf_map *m, uint64_t address);
size_t runtime_perf_map_n(const struct perf_map *m); /* number of functions */
/* Returns how often another function replaced a function at its address. */
uint64_t runtime_perf_map_replaced(const struct perf_map *m);

/* ---- perfmap_file.c: the file of a process ---- */
#define PERF_MAP_FILE_MAX    (256ull << 20) /* bytes of a perf map; a larger one is not read */
#define PERF_MAP_SLICE_BYTES (8u << 20)	    /* how much is read at a time */

struct perf_file {
	struct process_id id;
	uint32_t own_pid;	     /* the PID in the process's own namespace */
	uint64_t dev, inode, offset; /* the file that was read, and up to which offset */
	char tail[64];		     /* the last bytes before offset */
	/* CLOCK_MONOTONIC: when the agent last began to read the file from its start */
	uint64_t restarted_ns;
	uint64_t generation; /* what earlier maps add to runtime_perf_file_generation() */
	struct perf_map *map;
};
/*
 * Prepares to read the file of a process. ret->map is NULL at first. -ESRCH: the process has ended.
 */
int runtime_perf_file_init(struct process_id id, struct perf_file *ret);
void runtime_perf_file_done(struct perf_file *f);
/* Replaces the map. f then owns the new one. */
void runtime_perf_file_set(struct perf_file *f, struct perf_map *map);
/* Returns a number that grows when an address may have got another function. */
uint64_t runtime_perf_file_generation(const struct perf_file *f);
/*
 * Reads the next slice of the file. 0: the whole file is read. -EAGAIN: the file has more slices.
 * -ENOENT: the file does not exist. -ELOOP: it is a symbolic link. -ENOTSUP: it is not a regular
 * file. -EPERM: it belongs to another user. -EFBIG: it is larger than PERF_MAP_FILE_MAX. -ETIME: it
 * was written before the process began. If a map was read before, a new file that is empty or older
 * than the process is treated as missing.
 */
int runtime_perf_file_read(struct perf_file *f);
/*
 * Returns whether the file was last written before the process began. A forked child may call this.
 */
bool runtime_perf_file_is_older(const struct perf_file *f, const struct stat *st);
/* Writes the file's path in the process's root. attach uses this function, too. */
#define PERF_MAP_PATH_BYTES 32
void runtime_perf_map_path(uint32_t own_pid, char ret[PERF_MAP_PATH_BYTES]);
/* attach uses these functions, too. */
int runtime_perf_file_status(uint32_t tgid, char **ret); /* reads /proc/PID/status */
/* Finds the k-th number after a field's name ("\nUid:"); k < 0: the last number of the line. */
bool runtime_perf_status_number(const char *status, const char *field, int k, uint32_t *ret);
bool runtime_perf_file_same_process(const struct perf_file *f);
int runtime_perf_file_root(const struct perf_file *f, int *ret_fd); /* opens with O_PATH */
/*
 * Opens a path with O_PATH, never outside of the root. If the path ends in a link, opens the link
 * itself.
 */
int runtime_perf_file_open_path(int root_fd, const char *path, uint64_t flags, int *ret_fd);
/* Returns a text for a user: why the file is not used; NULL: the file has no problem. */
const char *runtime_perf_file_problem(int error);

/* ---- perfmap_names.c: makes a function's name from the name in a line ---- */
enum perf_map_writer { PERF_MAP_ANY, PERF_MAP_HOTSPOT };
void runtime_perf_map_names(const char *line_name, enum perf_map_writer writer,
			    struct runtime_names *ret);
