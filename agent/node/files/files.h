/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files: what is known of the ELF files that are mapped on this node, parsed once each: device,
 * inode and change time (ctime) tell them apart, equal indexes are shared. A forged build id gets nobody another
 * file's names. Finds separate debug files. Any thread.
 */
#pragma once

#include "lib/symbols/symbols.h"
#include "node/parse/parse.h"
#include "node/proc/proc.h"

struct files_config {
	struct parser_config parser;
	size_t cache_bytes;		/* indexes and names kept; 0: 256 MiB. Of who has most the least recently used go */
	const char *host_debug_dir;	/* "" or NULL: no debug files of the host; "/usr/lib/debug" */
	const char *debuginfod_url;	/* "" or NULL: off. Asked by build id, in the background */
	const char *debuginfod_cache;	/* directory for what came from there; "" or NULL: not kept */
	const char *debuginfod_ca_file;	/* PEM, read for each file; "" or NULL: the system's */
	uint64_t debuginfod_cache_bytes, debuginfod_timeout_ns;	/* 0: 1 GiB; 60 s a file */
	uint64_t debug_timeout_ns;	/* for the debug index of a file; 0: 10 s */
	size_t debug_max_bytes;		/* largest debug file read; 0: 2 GiB */
	/*
	 * Others call files_index: files_names never parses, not what was evicted or is to be tried again either, for whoever
	 * makes names must not wait for a hostile file. It says what is to be parsed.
	 */
	bool queued;
	bool patient;	/* files_names may wait for a child that demangles (up to half a minute): nobody else waits */
};
struct files;
/* -EINVAL: debuginfod_url is no http:// or https:// URL. */
int files_new(const struct files_config *c, struct files **ret);
struct files *files_free(struct files *f);	/* nobody may be in a call */

/*
 * The index of a mapping's file, parsed at its first use (blocks as long as parse_elf). New
 * reference. -ENOENT: no file (anonymous). Other errors are remembered for a minute and counted by reason in
 * podflame_symbol_files_failed_total.
 */
int files_index(struct files *f, const struct mapping *m, struct elf_index **ret);
/*
 * Somebody will ask files_index for it: until then files_names answers without, and nobody waits for a
 * file that takes long but who asked for it. owner: whose file it is, such as a cgroup; with what else is
 * his it has a fair share of the cache.
 */
void files_expect(struct files *f, const struct mapping *m, uint64_t owner);
/* The same at once: -EAGAIN when the file would have to be parsed, or is being parsed. */
int files_index_known(struct files *f, const struct mapping *m, struct elf_index **ret);
/*
 * Whether the file is known to be no program or library: its code has neither names nor rows. That stands until it was
 * parsed as one.
 */
bool files_no_program(struct files *f, const struct mapping *m);
/*
 * Looks for the file's debug index now (its own DWARF, .gnu_debuglink, build id, in the container's
 * and the host's debug directories, .dwo files), once a file; blocks. For a worker that nobody waits
 * for. debuginfod answers later by itself.
 */
void files_debug(struct files *f, const struct mapping *m, int root_fd);
/* What that has found, and what files_names takes names from first; a new reference. -ENOENT: nothing. */
int files_debug_index(struct files *f, const struct mapping *m, int root_fd,
		      struct elf_index **ret);

/*
 * The bytes of the file that its index was made of: of a memory file, those of the copy that was
 * parsed. *ret_n: how many bytes there are, fewer than n at the end of the file. -ENOENT: the
 * file is not known; -errno. May block, as any read of a pod's file.
 */
int files_code(struct files *f, const struct mapping *m, uint64_t offset, void *to, size_t n, size_t *ret_n);
/*
 * When a memory file was copied to be parsed (CLOCK_BOOTTIME, or somewhat later). 0: it has no
 * index, or m is no memory file.
 */
uint64_t files_parsed_ns(struct files *f, const struct mapping *m);
/*
 * A memory file has other bytes than files_code() gives: it is parsed anew, unless it was a moment
 * ago.
 */
void files_rewritten(struct files *f, const struct mapping *m);
/*
 * When files_rewritten() was last told (CLOCK_BOOTTIME): what was made of its index before holds
 * no more. 0: never.
 */
uint64_t files_rewritten_ns(struct files *f, const struct mapping *m);

/* ---- names ---- */
struct file_name {
	const char *name;		/* demangled and clean; NULL: inside no symbol */
	const char *file;		/* where it is declared; NULL: not known */
	uint32_t line;			/* 0: not known */
	bool inlined;
};
struct file_names {
	size_t n;			/* of names; innermost first, the function itself last; 0: no symbol */
	struct file_name names[ELF_INLINES_MAX + 1];
	char build_id[129];		/* hex; "" none */
	uint64_t address;		/* of the function, or the one asked for; 0: the file has no index */
	bool unparsed;			/* queued: for want of files_index, which nobody is about to call */
	void *held;			/* private */
};
/*
 * What a tag means (mapping.tag), of files that have been seen in any process; of the last ones, 8 MiB of them. A frame may
 * lie in a file that is mapped nowhere any more.
 */
void files_tagged(struct files *f, const struct mapping *m);
/* false: not known. *ret has the file's path, for the caller to free, and no descriptor. */
bool files_of_tag(struct files *f, uint64_t tag, struct mapping *ret);
bool files_knows_tag(struct files *f, uint64_t tag);

/* Tells processes' roots apart (of mappings.root_fd): a container's debug files name its own processes only. 0: none. */
uint64_t files_root(int root_fd);
/*
 * file_offset is that of the address, root its process's files_root. Parses the file if need be (blocks), unless queued. With a debug
 * index, its names; while one is being made, without. Strings live until files_names_done(ret), which
 * must follow each call.
 */
void files_names(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset,
		 struct file_names *ret);
void files_names_done(struct files *f, struct file_names *n);
/* The same without names: bytes of the function before that address, and from it on. -ENOENT: it lies in no known function. */
int files_function(struct files *f, const struct mapping *m, uint64_t root, uint64_t file_offset, uint64_t *ret_before,
		   uint64_t *ret_behind);
/* As file_names.unparsed says, of a mapping; false: not queued. */
bool files_unparsed(struct files *f, const struct mapping *m);
size_t files_bytes(struct files *f);
size_t files_count(struct files *f);
