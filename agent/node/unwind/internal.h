/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private header of unwind: extents in chunks, files with their tables, and struct unwind. Only
 * one thread uses them (the os worker).
 */
#pragma once

#include "lib/base/shares.h"
#include "node/unwind/unwind.h"

#define uthash_fatal(msg) abort()
#include <stdlib.h>
#include <uthash.h>

/* ---- chunks.c: which bytes of the chunks are in use ---- */
#define GRANULE_BYTES 256u
struct extent {
	uint32_t ref, bytes; /* bytes 0: no extent */
};
struct space;
struct space *unwind_space_new(size_t max_bytes);
struct space *unwind_space_free(struct space *s);
/*
 * Reserves `bytes` bytes (at most PF_CHUNK_BYTES) in the first chunk that has room for them.
 * -ENOSPC: no chunk has room.
 */
int unwind_space_take(struct space *s, size_t bytes, struct extent *ret);
void unwind_space_give(struct space *s, struct extent e);
/* Forgets a chunk without extents, and returns its number. -ENOENT: there is no such chunk. */
int unwind_space_empty_chunk(struct space *s, uint32_t *ret_chunk);
size_t unwind_space_used_bytes(const struct space *s);
size_t unwind_space_chunk_bytes(const struct space *s);
/* Returns how many bytes an extent of this size takes: a multiple of GRANULE_BYTES. */
static inline size_t space_rounded(size_t bytes)
{
	return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
}

#define SEVERAL_NS UINT64_MAX /* instead of a namespace: several namespaces use it */

/* ---- table.c: files ---- */
#define FILE_SLOTS_MAX 16 /* of a file: 8 GiB of code; only hostile ones have more, or wider gaps */

struct table_file {
	struct elf_index *index;
	struct {
		uint32_t number, first_page;
	} slots[FILE_SLOTS_MAX];
	size_t n_slots;
	struct extent *extents; /* extents of the file's table; NULL: the file has no table */
	size_t n_extents, cap_extents;
	size_t need_bytes;
	const char *without; /* why the file has no table; NULL: it has one */
	uint64_t charged_ns; /* for shares.c: the only namespace that uses it, or SEVERAL_NS */
	size_t n_users;	     /* how many processes use the file */
	/* rows of one process's generated code: nobody uses them again */
	bool generated;
	uint64_t used;	   /* value of unwind.turn when the file was last used */
	UT_hash_handle hh; /* the key is index, as a pointer */
};

struct unwound_process {
	struct pf_process_key key;
	struct pf_process value;
	struct extent extents[PF_PARTS_MAX], data[PF_RUNTIMES_MAX];
	struct table_file **files; /* the files of its mappings; the process is a user of each */
	size_t n_files, n_mappings, data_bytes;
	uint64_t charged_ns;
	uint64_t hash; /* hash of the mappings and runtimes that the kernel has */
	UT_hash_handle hh;
};

struct unwind {
	struct unwind_ops ops;
	void *arg;
	struct space *space;
	size_t budget_bytes;
	struct table_file *files;
	struct unwound_process *processes; /* in the order of their last change */
	struct shares process_shares;	   /* how many of them each namespace has */
	struct table_image *images;
	struct shares image_shares;  /* those that one namespace uses */
	struct shares shared_images; /* those of SEVERAL_NS */
	size_t n_mappings, data_bytes; /* data_bytes: data of all runtimes */
	uint32_t *free_slots;
	size_t n_free_slots;
	uint64_t *taken_from; /* see unwind_taken_from() */
	size_t n_taken_from, cap_taken_from;
	uint64_t crowded_ns;	   /* see unwind_crowded() */
	uint64_t turn, charged_ns; /* charged_ns: of the process that is being set */
	/*
	 * Extents and slots that are out of use, but that BPF programs may still read. They are
	 * free after the next grace period (unwind_ops.grace).
	 */
	struct extent *old_extents;
	size_t n_old_extents, cap_old_extents, old_bytes;
	uint32_t *old_slots;
	size_t n_old_slots, cap_old_slots;
	/* bytes of the indexes of all files, and of the files that no process uses */
	size_t index_bytes, unused_index_bytes;
	/*
	 * stands for all files whose index is not kept, because all indexes together would have too
	 * many bytes
	 */
	struct table_file refused;
	bool has_room; /* room became free since the agent last tried to make missing tables */
	uint64_t n_evicted;
};

/* Returns the file of an index, with one more user. Never NULL. The file may have no table. */
struct table_file *unwind_file_use(struct unwind *u, struct elf_index *index);
void unwind_file_leave(struct unwind *u, struct table_file *f);
/*
 * Evicts files that no process uses: those without a table, and others if the indexes are too large
 * together.
 */
void unwind_files_tidy(struct unwind *u);
void unwind_file_free(struct unwind *u, struct table_file *f);
/*
 * Returns whether one more index in use stays within the limit on memory. An index of a pod's file
 * has up to 256 MiB.
 */
bool unwind_index_fits(const struct unwind *u, const struct elf_index *index);
/* If there is room now, gives tables to the files in use for which there was no room before. */
void unwind_files_retry(struct unwind *u);
/*
 * Returns the slot for an ELF address. *ret_end: where the next slot's part begins, or UINT64_MAX.
 */
uint32_t unwind_file_slot(const struct table_file *f, uint64_t address, uint64_t *ret_end);

/*
 * Returns whether a table of this size fits. A part of the budget is not for tables, so that there
 * is room for the next process's mappings. Tables of unused files are kept as long as possible,
 * because they may be used again; if there is no room otherwise, this function evicts them.
 */
bool unwind_table_fits(struct unwind *u, size_t bytes);
/* Takes the table of a file in use. It gets it again if there is room. */
void unwind_table_take(struct unwind *u, struct table_file *f);

/* ---- shares.c ---- */
/*
 * Whether there is room for the table of a file, or the mappings of a process, after other
 * namespaces have lost some to it if they must.
 */
bool unwind_share_table(struct unwind *u, const struct table_file *f);
/* Whether the file may take its slots, so that enough of them are left for other namespaces. */
bool unwind_share_slots(struct unwind *u, const struct table_file *f);
bool unwind_share_mappings(struct unwind *u, const struct unwound_process *p);
/*
 * Removes a process, but not `keep` (NULL: any), so that there is room for one of the namespace:
 * the one that changed longest ago of the namespace that has most.
 */
void unwind_share_process(struct unwind *u, uint64_t ns, const struct unwound_process *keep);

/* ---- mappings and data of processes: unwind.c ---- */
size_t unwind_mapping_bytes(const struct unwound_process *p);
/*
 * Returns whether the process's mappings and data are within the part of the budget that all
 * processes have for them.
 */
bool unwind_mappings_fit(const struct unwind *u, const struct unwound_process *p);
/* Removes the process, and counts why. The kernel reports it again when it is sampled. */
void unwind_process_take(struct unwind *u, struct unwound_process *p, const char *reason);

/* ---- images.c ---- */
/* A part of a file, by offsets in the file. */
struct image_span {
	uint64_t start, end;
};
/*
 * Lets the kernel find the file by its tag from now on. index: the file's index. runtime: where in
 * the file the code of a runtime was found; NULL: the caller has found no such code.
 */
void unwind_image_of_file(struct unwind *u, uint64_t tag, const struct elf_index *index,
			  const struct table_file *f, const struct image_span *runtime);
/* Does the same for a file without an index. slot: one of the slots that belong to no file. */
void unwind_image_of_slot(struct unwind *u, uint64_t tag, uint32_t slot);
/*
 * Returns the index of the file to which the tag leads, without a new reference; NULL: it leads to
 * none.
 */
struct elf_index *unwind_image_index(const struct unwind *u, uint64_t tag);
/* Removes all images that lead to the file's slots. */
void unwind_images_leave(struct unwind *u, const struct table_file *f);
void unwind_images_free(struct unwind *u);

/* ---- mappings.c ---- */
struct list {
	struct pf_mapping *items;
	size_t n, cap;
	/*
	 * files of the mappings; no two neighbours are equal; the list counts as a user of each
	 * item
	 */
	struct table_file **files;
	size_t n_files, cap_files;
	bool cut;
};
void unwind_list_build(struct unwind *u, const struct mappings *m, struct elf_index *const *indexes,
		       const bool *pending, const struct runtime_process *runtimes, struct list *l);
void unwind_list_leave(struct unwind *u, struct list *l);

/* ---- room: table.c ---- */
/*
 * Reserves `bytes` bytes in one chunk. If needed, evicts files that no process uses, and waits for
 * a grace period.
 */
int unwind_room_take(struct unwind *u, size_t bytes, struct extent *ret);
void unwind_room_leave(struct unwind *u, struct extent e);
/* Frees extents that are out of use, if there are many. */
void unwind_room_tidy(struct unwind *u);
