/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private header of node/files. One lock guards the cache. No thread holds the lock while it
 * parses, opens or fetches a file. During that time the entry of the file is `busy`, and is not
 * evicted.
 */
#pragma once

#include "node/files/files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uthash.h>

/*
 * ---- image.c: an index, and its names as they are shown; callers hold the lock, but not for the
 * hash ----
 */
struct shown {
	const char *raw; /* points into the index */
	char *text;
	char *mangled;	   /* the text that was shown while no child could demangle; NULL: none */
	uint64_t again_ns; /* from elf_demangler_text(): when the name may become readable */
	UT_hash_handle hh;
};
/*
 * the names of an image; may exist longer than the image, because each answer with names holds a
 * reference
 */
struct names {
	unsigned refs;
	struct elf_index *index;
	struct shown *items;
	size_t bytes;
};
/* an index and its names; files whose indexes have the same bytes share one image */
struct image {
	uint64_t hash; /* hash of the bytes of the index */
	unsigned refs;
	struct elf_index *index;
	struct names *names;
	struct name_cost cost; /* the cost of its names, for elf_demangler_text() */
	UT_hash_handle hh;
};
/* Reads the whole index, so the caller must not hold the lock. */
uint64_t files_image_hash(const struct files *f, const struct elf_index *index);
/* Returns how many bytes the image takes, with its names. */
size_t files_image_bytes(const struct image *i);
/*
 * Returns the image of an index, and takes the caller's reference to the index. hash: the result of
 * files_image_hash() for the index.
 */
struct image *files_image_of(struct files *f, struct elf_index *index, uint64_t hash);
void files_image_unref(struct files *f, struct image *i);
/*
 * Returns a reference for one answer of files_names: texts from files_image_shown are valid until
 * files_names_unref.
 */
struct names *files_image_names(struct files *f, struct image *i);
/* Returns the name demangled and clean; NULL for "". */
const char *files_image_shown(struct files *f, struct image *i, const char *raw);
void files_names_unref(struct names *n);

/* ---- files.c: the cache ---- */
enum file_kind {
	FILE_MAIN,
	FILE_MEMORY, /* like FILE_MAIN, but a memory file: its entry has a copy */
	FILE_VDSO,
	FILE_DEBUG,
};
struct file_key {
	struct file_id file; /* FILE_VDSO: zeros */
	uint64_t root; /* FILE_DEBUG: id of the root with the debug directories; 0: for all roots */
	uint64_t kind; /* enum file_kind */
};
struct file {
	struct file_key key;
	struct image *image; /* NULL: the file is not parsed yet, or parsing failed */
	int error;
	uint64_t retry_ns;
	uint64_t tried_dev;    /* mapping.file_dev of the last try */
	uint64_t owner;	       /* the file's owner, as in files_expect(); 0: none */
	uint64_t used_ns;      /* CLOCK_MONOTONIC */
	uint64_t parsed_ns;    /* CLOCK_MONOTONIC: when parsing began */
	/* CLOCK_BOOTTIME: when files_rewritten() had the file parsed again */
	uint64_t rewritten_ns;
	uint64_t copied_ns;    /* CLOCK_BOOTTIME: time of a memory file's copy */
	int copy_fd;	       /* the copy of a memory file that was parsed; -1: none */
	size_t copy_bytes;
	/* busy: the file is being parsed; expected: files_index will be called */
	bool busy, expected;
	/* whether the last parse found that the file is no program or library */
	bool no_program;
	UT_hash_handle hh;   /* in order of use; the head was used least recently */
};
struct slow_parser { /* parses one file at a time, under its lock */
	pthread_mutex_t lock;
	struct parser_config config;
	struct parser *parser; /* NULL: not started yet, or it could not be started */
};
struct files {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* signalled when a file is no longer busy */
	size_t cache_bytes, bytes;
	size_t copy_bytes; /* bytes of memory files' copies */
	struct file *by_key;
	/* seed of the hashes of files and indexes, so that pods cannot predict the hashes */
	uint64_t seed;
	struct image *images;
	int vdso_fd;
	char *self_exe; /* the program of all children; NULL: the default */
	struct demangler *demangler;
	struct counter *bytes_gauge;
	struct slow_parser main, debug;
	char *host_debug_dir;
	/* the id that files_root() returns for podflame's own root */
	uint64_t own_root;
	struct debuginfod *debuginfod; /* NULL: off */
	uint64_t debug_timeout_ns;
	size_t debug_max_bytes;
	bool queued;
	struct tagged *tagged;
	size_t tagged_bytes;
};
/* ---- tagged.c ---- */
void files_forget_tags(struct files *f);

/* Finds or makes an entry, and marks it as used last. */
struct file *files_file_get(struct files *f, const struct file_key *key);
/* Finds an entry, and marks it as used last; NULL: there is none. */
struct file *files_file_find(struct files *f, const struct file_key *key);
/*
 * Returns the entry of a mapping's file. Parses the file if needed, and then waits without the
 * lock. -ENOENT: the mapping has no file.
 */
int files_file_of(struct files *f, const struct mapping *m, struct file **ret);
/*
 * Like files_file_of(), for names. Does not wait if files_index will be called for the file, or if
 * files_config.queued is set. -EAGAIN: the file must be parsed first.
 */
int files_file_for_names(struct files *f, const struct mapping *m, struct file **ret,
			 bool *ret_unparsed);
struct file_key files_file_key_of(const struct mapping *m, enum file_kind kind, uint64_t root);
/* Counts in podflame_symbol_files_incomplete_total what is missing in a new index. */
void files_count_incomplete(const struct elf_index *index);
void files_file_evict(struct files *f, struct file *x);
/*
 * Returns with the lock held, also on errors. Makes the parser at its first use. -errno: the parser
 * cannot be started.
 */
int files_slow_parser_lock(struct slow_parser *p);

/* ---- memory_file.c: files that may be rewritten at any time (mapping.memory_file) ---- */
#define MEMORY_FILES_BYTES_MAX (64u << 20) /* limit of all copies together */
/* Makes a copy to be parsed. *ret_fd -1: the file is no ELF file. -E2BIG: it is too large. */
int files_memory_file_copy(int fd, int *ret_fd, size_t *ret_bytes);
/* Stores the copy in x. The caller holds the lock, and then calls files_trim to make room. */
void files_memory_file_keep(struct files *f, struct file *x, int fd, size_t bytes);
void files_memory_file_drop(struct files *f, struct file *x);
/*
 * Sets *ret to the mapping, with the file as it was when it was parsed: fd is a duplicate of the
 * copy's descriptor, which the caller closes; ctime_ns is the time of the parse, which identifies
 * this version of the file. -ENOENT: the file is not known.
 */
int files_memory_file_seen(struct files *f, const struct mapping *m, struct mapping *ret);

/* ---- trim.c ---- */
/* To be called after the last use of an entry that files_file_get returned. */
void files_trim(struct files *f);

/* ---- vdso.c ---- */
/* Returns a file with a copy of the vdso; -1: there is none. */
int files_vdso_copy(void);

/*
 * ---- find.c: files that belong to another file ----
 * Each function returns 0; -ENOENT, -ENOTDIR: no such file; -ENOTSUP: not a regular file; -E2BIG;
 * -EBADMSG: wrong checksum; -ETIMEDOUT; -errno
 */
struct place {
	int dir_fd;	       /* look-ups stay below this directory; -1: there is none */
	const char *debug_dir; /* the debug directory's path below dir_fd; "": dir_fd itself */
	bool beside;	       /* also look beside the file itself */
	uint64_t resolve;      /* RESOLVE_* flags for openat2() */
	size_t max_bytes;      /* limit of the size of a file */
	uint64_t timeout_ns;   /* time limit for the check of one file's CRC */
};
int files_find_open(const struct place *p, const char *path, int *ret_fd);
int files_find_build_id(const struct place *p, const char *build_id, int *ret_fd);
/* path: the path of the file that has the link. */
int files_find_debuglink(const struct place *p, const char *path, const char *name, uint32_t crc,
		   int *ret_fd);

/* ---- debug.c ---- */
void files_debug_count(const char *result); /* counts in podflame_debug_files_total */
/*
 * Ends a search at debuginfod: parses the file that the server sent. The file must have the build
 * id that the agent asked for. See debuginfod_fetched_fn.
 */
int files_debug_fetched(struct files *f, const struct file_key *key, const char *build_id,
			int main_fd, int debug_fd);

/* ---- fetch.c ---- */
struct fetch_request {
	const struct url *url;
	const char *path;    /* path of the file, appended to the path of url */
	const char *ca_file; /* "" or NULL: the CA certificates of the system */
	int fd;		     /* the file is written to it */
	size_t max_bytes;
	uint64_t timeout_ns; /* time limit for the whole request */
	const atomic_bool *stopping;
};
/*
 * Returns 0, or -ENOENT: the server has no such file; -E2BIG; -ETIMEDOUT; -ECANCELED: the program
 * ends; -errno.
 */
int files_fetch(const struct fetch_request *r);

/* ---- debuginfod.c ---- */
struct debuginfod;
/*
 * Called on the thread of debuginfod when the search for a file has ended. debug_fd: the file that
 * the server sent; -1: none. Returns -errno if there is no index. If it returns -EBADMSG, -ENOEXEC
 * or -E2BIG, debuginfod deletes the file.
 */
typedef int debuginfod_fetched_fn(struct files *f, const struct file_key *key,
				  const char *build_id, int main_fd, int debug_fd);
int files_debuginfod_new(struct files *f, const struct files_config *c,
			 debuginfod_fetched_fn *fetched, struct debuginfod **ret);
struct debuginfod *files_debuginfod_free(struct debuginfod *d);
/*
 * Queues a request. It ends with a call of `fetched`, unless this function returns an error or the
 * program ends.
 */
int files_debuginfod_ask(struct debuginfod *d, const struct file_key *key, const char *build_id,
		   int main_fd);
