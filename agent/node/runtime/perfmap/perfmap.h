/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: perf maps. Programs with generated code write such files, with lines "START
 * SIZE NAME" (tools/perf/Documentation/jit-interface.txt). All of their content is hostile: a child
 * (node/runtime/reader.h) parses it, and the agent checks the child's answer. The agent's part runs
 * on the reader's thread. The module java_attach (below: attach) uses its own struct perf_file on
 * its own thread.
 */
#pragma once

#include "node/runtime/runtime.h"

struct stat;

/* ---- what the agent and its child (node/runtime/reader.h) share ---- */
#define PERF_MAP_LINE_MAX 1024 /* longer lines are cut */
/* a name may be longer than in its line: "::" in the place of a dot, "(anonymous)" */
#define PERF_NAME_MAX	      (PERF_MAP_LINE_MAX + 16)
#define PERF_MAP_ADDRESS_MAX  (1ull << 56) /* a line with a higher address is refused */
#define PERF_MAP_FUNCTION_MAX (1ull << 30) /* bytes; a larger range is not a function */
#define PERF_MAP_TAIL_BYTES   64
#define PERF_MAP_SLICE_BYTES  (8u << 20) /* how much is read at a time */

enum perf_map_writer { PERF_MAP_ANY, PERF_MAP_HOTSPOT };
/* A function of a map, as it is shown. */
struct perf_function {
	uint64_t start, end;
	enum frame_kind kind; /* FRAME_APP, FRAME_JVM or FRAME_LIBRARY */
	uint32_t line;	      /* 0: not known */
	const char *name;     /* not clean yet: any bytes but NUL */
	const char *file;     /* file_n 0: not known */
	size_t name_n, file_n;
};

/* ---- perfmap_text.c: the child reads lines ---- */
struct perf_text {
	enum perf_map_writer writer;
	void (*found)(void *arg, const struct perf_function *f); /* texts without NUL at the end */
	void *arg;
	uint64_t n_malformed;
	/* the beginning of a line whose end has not been read yet */
	char line[PERF_MAP_LINE_MAX + 1];
	size_t line_n;
	bool behind; /* the line was too long, and has been cut and taken: its rest is skipped */
};
/* Adds the next bytes of the file, which may begin and end anywhere in a line. */
void runtime_perf_text_add(struct perf_text *t, const char *bytes, size_t n);

/* ---- perfmap_names.c: the child makes a function's name from the name in a line ---- */
struct perf_name {
	enum frame_kind kind;
	uint32_t line;
	size_t name_n, file_n;
	char name[PERF_NAME_MAX], file[PERF_MAP_LINE_MAX];
};
void runtime_perf_map_names(const char *line_name, enum perf_map_writer writer,
			    struct perf_name *ret);

/* ---- perfmap_answer.c: the child answers READ_PERF_MAP ---- */
/* Returns 0, or -errno: the answer could not be sent. message: a question of perfmap_ask.c. */
int runtime_perf_answer(const void *message, size_t n, int fd);

/* ---- perfmap_map.c: the functions of a map ---- */
/* limit for the functions of one map; further ones are refused */
#define PERF_MAP_LIVE_BYTES (16u << 20)
/* limit for all maps together: a budget (lib/base/budget.h) of which each namespace has a share */
#define PERF_MAP_ALL_BYTES (64u << 20)

struct perf_map;
struct perf_map *runtime_perf_map_new(uint64_t charged_ns); /* whose it is: of struct charged */
struct perf_map *runtime_perf_map_free(struct perf_map *m);
/* Adds a copy of a function, which replaces all earlier functions in its range. */
void runtime_perf_map_add(struct perf_map *m, const struct perf_function *f);
/*
 * Finds the function at an address. Its texts end with NUL, and are valid until the next add.
 * false: there is none.
 */
bool runtime_perf_map_find(const struct perf_map *m, uint64_t address, struct perf_function *ret);
size_t runtime_perf_map_n(const struct perf_map *m); /* number of functions */
/* Returns how often another function replaced a function at its address. */
uint64_t runtime_perf_map_replaced(const struct perf_map *m);
/* Counts lines that give no function. */
void runtime_perf_map_refuse(const char *reason, uint64_t n);

/* ---- perfmap_ask.c: has a child read a slice of a file ---- */
/* Up to where a file was read. */
struct perf_place {
	uint64_t offset;
	/* the last bytes before offset */
	char tail[PERF_MAP_TAIL_BYTES];
	size_t tail_n;
	bool behind; /* offset is inside of a line whose beginning was taken */
};
/*
 * Adds the functions of the next slice to m, and moves the place. end: the size of the file; *more:
 * whether the slice ends before. -ESTALE: the file was rewritten, because it has other bytes before
 * the place. Other errors: those of runtime_reader_ask(), or of reading the file; the place stays,
 * and m may have some of the functions.
 */
int runtime_perf_ask(struct perf_map *m, uint64_t charged_ns, enum perf_map_writer writer, int fd,
		     uint64_t end, struct perf_place *place, bool *more);

/* ---- perfmap_file.c: the file of a process ---- */
#define PERF_MAP_FILE_MAX (256ull << 20) /* bytes of a perf map; a larger one is not read */

struct perf_file {
	struct process_id id;
	uint32_t own_pid;    /* the PID in the process's own namespace */
	uint64_t charged_ns; /* of struct charged; the owner sets it */
	enum perf_map_writer writer; /* the owner sets it */
	uint64_t dev, inode; /* the file that was read */
	struct perf_place place;
	/* size and time of the file that was read whole; written_ns 0: it may have changed */
	uint64_t size, written_ns;
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
 * than the process is treated as missing. Also the errors of runtime_reader_ask().
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
