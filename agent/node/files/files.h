/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: what the agent knows of the ELF files that are mapped on this node. Each file is parsed
 * once (struct file_id), and equal indexes are shared. A pod that forges a build id gets no names
 * of another pod's file. This module also finds separate debug files, and makes a debug index of
 * each, which adds names, lines and inlined functions. Any thread may call its functions.
 */
#pragma once

#include "lib/symbols/symbols.h"
#include "node/parse/parse.h"
#include "node/proc/proc.h"

struct files_config {
	struct parser_config parser;
	/*
	 * limit of indexes and names in bytes; 0: 256 MiB. Beyond it, the least recently used files
	 * of the owner that takes most are evicted.
	 */
	size_t cache_bytes;
	/* debug files of the host, such as "/usr/lib/debug"; "" or NULL: none */
	const char *host_debug_dir;
	/* server that is asked by build id, in the background; "" or NULL: off */
	const char *debuginfod_url;
	/* directory for files from debuginfod; "" or NULL: they are not kept */
	const char *debuginfod_cache;
	/* CA certificates (PEM), read for each request; "" or NULL: those of the system */
	const char *debuginfod_ca_file;
	/* limit of debuginfod_cache, 0: 1 GiB; time for one file, 0: 60 s */
	uint64_t debuginfod_cache_bytes, debuginfod_timeout_ns;
	/* limit of the time for the debug index of a file; 0: 10 s */
	uint64_t debug_timeout_ns;
	size_t debug_max_bytes;		/* limit of a debug file that is read; 0: 2 GiB */
	/*
	 * true: other threads call files_index, and files_names never parses, not even a file that
	 * was evicted or may be tried again. So the thread that names frames does not wait for a
	 * hostile file. If a file must be parsed, file_names.unparsed is set.
	 */
	bool queued;
	/*
	 * true: files_names may wait up to half a minute for the child that demangles, because no
	 * other thread waits for the calling thread
	 */
	bool patient;
};
struct files;
/* Returns 0 or -errno. -EINVAL: debuginfod_url is no http:// or https:// URL. */
int files_new(const struct files_config *c, struct files **ret);
struct files *files_free(struct files *f);	/* no other thread may be in a call */

/*
 * Identifies a mapping's file and its bytes, as a key of hash tables: it has no padding. Each
 * container of an image has the image's files on another device (overlayfs, on newer kernels), but
 * with the same tag.
 */
struct file_id {
	uint64_t tag; /* mapping.tag; 0: the file has none, and the members below identify it */
	uint64_t inode, ctime_ns;
	uint32_t dev_major, dev_minor;
};
struct file_id files_id_of(const struct mapping *m);

/*
 * Returns a new reference to the index of a mapping's file. The first call parses the file, and
 * blocks as long as parse_elf. -ENOENT: there is no file (anonymous). Other errors are remembered
 * for a minute and counted by reason in podflame_symbol_files_failed_total. -ESTALE: the file was
 * rewritten; a file with a tag may be tried at once where another container has it.
 */
int files_index(struct files *f, const struct mapping *m, struct elf_index **ret);
/*
 * Announces that some thread will call files_index for this file. Until that call has ended,
 * files_names gives no names for the file, so only threads that call files_index wait for a slow
 * file. owner: an id of the file's owner, such as struct charged.ns. All files of an owner together
 * have a fair share of the cache.
 */
void files_expect(struct files *f, const struct mapping *m, uint64_t owner);
/*
 * The same as files_index, but never blocks. -EAGAIN: the file must be parsed first, or is being
 * parsed.
 */
int files_index_known(struct files *f, const struct mapping *m, struct elf_index **ret);
/*
 * Returns whether the last parse found that the file is no program or library, so that its code has
 * neither names nor unwind rows. The answer may change when the file is parsed again.
 */
bool files_no_program(struct files *f, const struct mapping *m);
/*
 * Searches for the file's debug index now: in its own DWARF, by .gnu_debuglink and build id in the
 * debug directories of the container and the host, and in .dwo files. Each file's debug index is
 * searched for once. The call blocks, so only a worker for which no other thread waits may call.
 * The answer of debuginfod is added later.
 */
void files_debug(struct files *f, const struct mapping *m, int root_fd);
/*
 * Returns a new reference to the debug index, in which files_names looks first. -ENOENT: there is
 * none.
 */
int files_debug_index(struct files *f, const struct mapping *m, int root_fd,
		      struct elf_index **ret);

/*
 * Reads bytes of the file from which the index was made. For a memory file (a memfd), these are the
 * bytes of the copy that was parsed. *ret_n: how many bytes there are, fewer than n at the end of
 * the file. -ENOENT: the file is not known; -errno. May block, like any read of a pod's file.
 */
int files_code(struct files *f, const struct mapping *m, uint64_t offset, void *to, size_t n,
	       size_t *ret_n);
/*
 * Returns the time at which a memory file was copied to be parsed, or a little later
 * (CLOCK_BOOTTIME). 0: the file has no index, or is no memory file.
 */
uint64_t files_parsed_ns(struct files *f, const struct mapping *m);
/*
 * To be called if a memory file has other bytes than files_code() gives. The file is parsed anew,
 * unless it was parsed within the last 10 s.
 */
void files_rewritten(struct files *f, const struct mapping *m);
/*
 * Returns the time at which files_rewritten() last had an effect (CLOCK_BOOTTIME). What was made
 * from the file's index before that time is no longer valid. 0: never.
 */
uint64_t files_rewritten_ns(struct files *f, const struct mapping *m);

/* ---- names ---- */
struct file_name {
	const char *name;		/* demangled and cleaned */
	const char *file;		/* the source file; NULL: not known */
	uint32_t line;			/* 0: not known */
	bool inlined;
};
struct file_names {
	/*
	 * number of names: the innermost inlined function first, the function itself last; 0: no
	 * symbol has the address
	 */
	size_t n;
	struct file_name names[ELF_INLINES_MAX + 1];
	char build_id[129];		/* in hex; "": none */
	/* start of the function, or else the address asked for; 0: the file has no index */
	uint64_t address;
	uint64_t start;			/* without names: where the function begins; 0: not known */
	/*
	 * only if queued: files_index must be called for the file, and no thread has announced this
	 * call
	 */
	bool unparsed;
	void *held;			/* private */
};
/*
 * Remembers which file a tag (mapping.tag) stands for. The module remembers the tags of all
 * processes' files, up to 8 MiB, because a frame may be in a file that is no longer mapped.
 */
void files_tagged(struct files *f, const struct mapping *m);
/*
 * Finds the file of a tag. Returns false if the tag is not known. *ret has the file's path, which
 * the caller frees, and no descriptor.
 */
bool files_of_tag(struct files *f, uint64_t tag, struct mapping *ret);
bool files_knows_tag(struct files *f, uint64_t tag);

/*
 * Returns an id of a process's root (mappings.root_fd). It limits the use of a container's debug
 * files to the container's own processes. 0: none.
 */
uint64_t files_root(int root_fd);
/*
 * Names an address. file_offset: the address, as an offset in the file. root: files_root of its
 * process. Parses the file if needed (blocks), unless queued. Takes names from the debug index if
 * there is one; while that is being made, only from the file itself. Strings are valid until
 * files_names_done(ret), which must follow each call.
 */
void files_names(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset,
		 struct file_names *ret);
void files_names_done(struct files *f, struct file_names *n);
/*
 * Finds the function of an address, like files_names, but makes no names. *ret_before: how many
 * bytes of the function are before the address; *ret_behind: how many from the address on. -ENOENT:
 * the address is in no known function.
 */
int files_function(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset,
		   uint64_t *ret_before, uint64_t *ret_behind);
/* Returns what file_names.unparsed would be for a mapping. Always false if not queued. */
bool files_unparsed(struct files *f, const struct mapping *m);
/*
 * Returns the demangler of these names, for names that are in no file. It belongs to f. Any thread
 * may use it.
 */
struct demangler *files_demangler(struct files *f);
size_t files_bytes(struct files *f);
size_t files_count(struct files *f);
