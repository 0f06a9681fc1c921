/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of unwind share: places in chunks, files with their tables, the whole. */
#pragma once

#include "node/unwind/unwind.h"

#define uthash_fatal(msg) abort()
#include <stdlib.h>
#include <uthash.h>

/* ---- alloc.c: which bytes of the chunks are given out ---- */
#define GRANULE_BYTES 256u
struct extent {
	uint32_t ref, bytes; /* bytes 0: none */
};
struct space;
struct space *unwind_space_new(size_t max_bytes);
struct space *unwind_space_free(struct space *s);
/* At most PF_CHUNK_BYTES, wholly in one chunk, first fit; -ENOSPC. */
int unwind_space_take(struct space *s, size_t bytes, struct extent *ret);
void unwind_space_give(struct space *s, struct extent e);
/* A chunk that holds nothing, which it forgets; -ENOENT: none. */
int unwind_space_empty_chunk(struct space *s, uint32_t *ret_chunk);
size_t unwind_space_used_bytes(const struct space *s);
size_t unwind_space_chunk_bytes(const struct space *s);
/* What an extent of so many bytes takes. */
static inline size_t space_rounded(size_t bytes)
{
	return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

/* ---- table.c: files ---- */
#define FILE_SLOTS_MAX 16 /* 8 GiB of text; sparser or larger is made up to waste memory */

struct file {
	struct elf_index *index;
	struct {
		uint32_t number, first_page;
	} slots[FILE_SLOTS_MAX];
	size_t n_slots;
	struct extent *extents; /* of its table; NULL: it has none */
	size_t n_extents, cap_extents;
	size_t need_bytes;
	const char *without; /* why it has no table; NULL: it has */
	size_t n_users;	     /* processes */
	uint64_t used;	     /* turn of its last use */
	UT_hash_handle hh;   /* by index, the pointer */
};

struct process {
	struct pf_process_key key;
	struct pf_process value;
	struct extent extents[PF_PARTS_MAX], data[PF_RUNTIMES_MAX];
	struct file **files; /* distinct, each with one user counted */
	size_t n_files, n_mappings, data_bytes;
	uint64_t hash; /* of its mappings and runtimes as the kernel has them */
	UT_hash_handle hh;
};

struct unwind {
	struct unwind_ops ops;
	void *arg;
	struct space *space;
	size_t budget_bytes;
	struct file *files;
	struct process *processes; /* in order of their last change */
	struct image *images;
	size_t n_mappings, data_bytes; /* data: of runtimes */
	uint32_t *free_slots;
	size_t n_free_slots;
	uint64_t turn;
	/* Out of use, but someone in the kernel may still look at it: free after the next grace. */
	struct extent *old_extents;
	size_t n_old_extents, cap_old_extents, old_bytes;
	uint32_t *old_slots;
	size_t n_old_slots, cap_old_slots;
	size_t index_bytes, unused_index_bytes; /* of files; of those that nobody uses */
	struct file refused; /* stands for each file whose index is not kept for want of memory */
	bool has_room;	     /* something became free since files without a table were tried */
	uint64_t n_evicted;
};

/* The file of an index, with one user more; never NULL. It may have no table. */
struct file *unwind_file_use(struct unwind *u, struct elf_index *index);
void unwind_file_leave(struct unwind *u, struct file *f);
/* Files that nobody uses and that are not worth their indexes: without a table, or too large together. */
void unwind_files_tidy(struct unwind *u);
void unwind_file_free(struct unwind *u, struct file *f);
/* Whether one more may be kept: a pod's file has up to 256 MiB. */
bool unwind_index_fits(const struct unwind *u, const struct elf_index *index);
/* Files in use that found no room get their tables if there is room now. */
void unwind_files_retry(struct unwind *u);
/* The slot for an ELF address, and where the next slot's part begins (UINT64_MAX: nowhere). */
uint32_t unwind_file_slot(const struct file *f, uint64_t address, uint64_t *ret_end);

/* ---- images.c ---- */
/* A part of a file, by offsets. */
struct image_span {
	uint64_t start, end;
};
/*
 * The kernel finds the file by its tag from now on; index is its. runtime: code of one was found
 * there; NULL: not here.
 */
void unwind_image_of_file(struct unwind *u, uint64_t tag, const struct elf_index *index,
		   const struct file *f, const struct image_span *runtime);
/* The same of one without an index: a slot that no file owns. */
void unwind_image_of_slot(struct unwind *u, uint64_t tag, uint32_t slot);
/* No tag leads to the file's slots any more. */
void unwind_images_leave(struct unwind *u, const struct file *f);
void unwind_images_free(struct unwind *u);

/* ---- mappings.c ---- */
struct list {
	struct pf_mapping *items;
	size_t n, cap;
	struct file **files; /* one user each; neighbours differ */
	size_t n_files, cap_files;
	bool cut;
};
void unwind_list_build(struct unwind *u, const struct mappings *m, struct elf_index *const *indexes,
		const bool *pending, const struct runtime_process *runtimes, struct list *l);
void unwind_list_leave(struct unwind *u, struct list *l);

/* ---- room: table.c ---- */
/* bytes in one chunk: waits for what is going, evicts what nobody uses. */
int unwind_room_take(struct unwind *u, size_t bytes, struct extent *ret);
void unwind_room_leave(struct unwind *u, struct extent e);
/* Frees what is out of use when there is much of it. */
void unwind_room_tidy(struct unwind *u);
