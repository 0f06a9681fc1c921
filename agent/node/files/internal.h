/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of node/files share. One lock guards the cache; nobody holds it while a file is
 * parsed, opened or fetched: the entry that waits for that is busy, and stays.
 */
#pragma once

#include "node/files/files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uthash.h>

/* ---- image.c: an index with its names as they are shown; all under the lock ---- */
struct shown {
	const char *raw; /* its place in the index */
	char *text;
	char *mangled;	   /* what was shown while no child could be asked; NULL: nothing */
	uint64_t again_ns; /* of elf_demangler_text */
	UT_hash_handle hh;
};
struct names { /* may outlive its image: whoever was given names holds a reference */
	unsigned refs;
	struct elf_index *index;
	struct shown *items;
	size_t bytes;
};
struct image {	       /* files with the same bytes share one */
	uint64_t hash; /* of them */
	unsigned refs;
	struct elf_index *index;
	struct names *names;
	struct name_cost cost; /* of elf_demangler_text */
	UT_hash_handle hh;
};
/* Reads the whole index: not under the lock. */
uint64_t files_image_hash(const struct files *f, const struct elf_index *index);
/* With its names. */
size_t files_image_bytes(const struct image *i);
/* Takes over the index; hash is its files_image_hash. */
struct image *files_image_of(struct files *f, struct elf_index *index, uint64_t hash);
void files_image_unref(struct files *f, struct image *i);
/* For one answer: what files_image_shown gives until files_names_unref is the reference's. */
struct names *files_image_names(struct files *f, struct image *i);
/* Demangled and clean; NULL for "". */
const char *files_image_shown(struct files *f, struct image *i, const char *raw);
void files_names_unref(struct names *n);

/* ---- files.c: the cache ---- */
enum file_kind {
	FILE_MAIN,
	FILE_MEMORY, /* the same as a memory file: it has a copy */
	FILE_VDSO,
	FILE_DEBUG,
};
struct file_key {
	uint64_t inode, ctime_ns;
	uint64_t root; /* FILE_DEBUG: whose debug directories; 0: nobody's, good for everyone */
	uint32_t dev_major, dev_minor;
	uint64_t kind; /* enum file_kind */
};
struct file {
	struct file_key key;
	struct image *image; /* NULL: failed */
	int error;
	uint64_t retry_ns;
	uint64_t owner;	       /* of files_expect; 0: nobody in particular */
	uint64_t used_ns;      /* CLOCK_MONOTONIC */
	uint64_t parsed_ns;    /* CLOCK_MONOTONIC: when that began */
	uint64_t rewritten_ns; /* CLOCK_BOOTTIME: files_rewritten */
	uint64_t copied_ns;    /* CLOCK_BOOTTIME: of a memory file */
	int copy_fd;	       /* what was parsed of a memory file; -1: no such file */
	size_t copy_bytes;
	bool busy, expected; /* being parsed; to be parsed by files_index */
	bool no_program;     /* when it was parsed last */
	UT_hash_handle hh;   /* in order of use: the head was used least recently */
};
struct slow_parser { /* one file at a time, each by one thread */
	pthread_mutex_t lock;
	struct parser_config config;
	struct parser *parser; /* NULL: not yet, or it could not be started */
};
struct files {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a file is not busy any more */
	size_t cache_bytes, bytes;
	size_t copy_bytes; /* of memory files */
	struct file *by_key;
	uint64_t seed; /* of its hash and of the images': pods choose what is hashed */
	struct image *images;
	int vdso_fd;
	char *self_exe; /* of all children; NULL: the default */
	struct demangler *demangler;
	struct counter *bytes_gauge;
	struct slow_parser main, debug;
	char *host_debug_dir;
	uint64_t own_root;	       /* of files_root: podflame's own */
	struct debuginfod *debuginfod; /* NULL: off */
	uint64_t debug_timeout_ns;
	size_t debug_max_bytes;
	bool queued;
	struct tagged *tagged;
	size_t tagged_bytes;
};
/* tagged.c */
void files_forget_tags(struct files *f);

/* Found or made, and now the one used last. */
struct file *files_file_get(struct files *f, const struct file_key *key);
/* NULL, or used last by now. */
struct file *files_file_find(struct files *f, const struct file_key *key);
/* A mapping's file, parsed if need be: waits, without the lock. -ENOENT: it has none. */
int files_file_of(struct files *f, const struct mapping *m, struct file **ret);
/* The same for names, at once where files_index will be asked for it, or who has a queue shall do so. -EAGAIN: it is to be parsed. */
int files_file_for_names(struct files *f, const struct mapping *m, struct file **ret, bool *ret_unparsed);
struct file_key files_file_key_of(const struct mapping *m, enum file_kind kind, uint64_t root);
/* podflame_symbol_files_incomplete_total: what a new index lacks. */
void files_count_incomplete(const struct elf_index *index);
void files_file_evict(struct files *f, struct file *x);
/* Returns locked; makes the parser at its first use. -errno: it cannot be started. */
int files_slow_parser_lock(struct slow_parser *p);

/* ---- memory_file.c: files that may be rewritten at any time (mapping.memory_file) ---- */
#define MEMORY_FILES_BYTES_MAX (64u << 20) /* of all copies */
/* A copy to be parsed. *ret_fd -1: it is no ELF file. -E2BIG: it is too large. */
int files_memory_file_copy(int fd, int *ret_fd, size_t *ret_bytes);
/* Under the lock: x has it; files_trim makes room. */
void files_memory_file_keep(struct files *f, struct file *x, int fd, size_t bytes);
void files_memory_file_drop(struct files *f, struct file *x);
/*
 * The mapping as the file was when it was parsed: fd is a copy's, for the caller to close, ctime_ns tells it from what
 * else the file has been. -ENOENT: it is not known.
 */
int files_memory_file_seen(struct files *f, const struct mapping *m, struct mapping *ret);

/* ---- trim.c ---- */
/* To be called after the last use of what files_file_get gave. */
void files_trim(struct files *f);

/* ---- vdso.c ---- */
/* A copy of the vdso as a file; -1: there is none. */
int files_vdso_copy(void);

/* ---- find.c: files beside another one. 0; -ENOENT, -ENOTDIR: no such file; -ENOTSUP: no regular
 * one; -E2BIG; -EBADMSG: wrong checksum; -ETIMEDOUT; -errno ---- */
struct place {
	int dir_fd;	       /* what is looked up is below it; -1: nowhere */
	const char *debug_dir; /* as it is called there; "": itself */
	bool beside;	       /* looks beside the file too */
	uint64_t resolve;      /* of openat2 */
	size_t max_bytes;      /* of a file */
	uint64_t timeout_ns;   /* to check one */
};
int files_find_open(const struct place *p, const char *path, int *ret_fd);
int files_find_build_id(const struct place *p, const char *build_id, int *ret_fd);
/* path: of the file that has the link */
int files_find_debuglink(const struct place *p, const char *path, const char *name, uint32_t crc,
		   int *ret_fd);

/* ---- debug.c ---- */
void files_debug_count(const char *result); /* podflame_debug_files_total */
/* The index of a debug file; it must have this build id, unless "". */
int files_debug_parse(struct files *f, int main_fd, int debug_fd, const char *build_id,
		struct elf_index **ret);
/* Ends the search for a debug index that began with a claim; takes over the index, NULL: none. */
void files_debug_settle(struct files *f, const struct file_key *key, struct elf_index *index);

/* ---- fetch.c ---- */
struct fetch_request {
	const struct url *url;
	const char *path;    /* below the URL's */
	const char *ca_file; /* "" or NULL: the system's */
	int fd;		     /* written to */
	size_t max_bytes;
	uint64_t timeout_ns; /* of the whole */
	const atomic_bool *stopping;
};
/* 0; -ENOENT: the server says so; -E2BIG; -ETIMEDOUT; -ECANCELED: stopping; -errno */
int files_fetch(const struct fetch_request *r);

/* ---- debuginfod.c ---- */
struct debuginfod;
int files_debuginfod_new(struct files *f, const struct files_config *c, struct debuginfod **ret);
struct debuginfod *files_debuginfod_free(struct debuginfod *d);
/* Later calls files_debug_settle, unless it fails now or the program ends. */
int files_debuginfod_ask(struct debuginfod *d, const struct file_key *key, const char *build_id,
		   int main_fd);
