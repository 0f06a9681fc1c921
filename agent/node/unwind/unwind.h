/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind decides which unwind tables the kernel has. It puts files' tables and processes' mappings
 * into chunks (bpf/unwind_tables.h), and takes out unused tables when the byte budget is reached.
 * It does not call BPF itself: it writes through ops, to the kernel or, in tests and fuzzers, to
 * memory. Only one thread uses the module (the os worker).
 */
#pragma once

#include "lib/symbols/symbols.h"
#include "node/proc/proc.h"
#include "node/runtime/runtime.h"

struct unwind_ops {
	/*
	 * Copies n bytes to a chunk. The chunk is made at its first use. The copy may be delayed
	 * until flush().
	 */
	int (*write)(void *arg, uint32_t chunk, uint32_t offset, const void *bytes, size_t n);
	int (*flush)(void *arg);
	/* the caller has removed all references to the chunk */
	int (*drop_chunk)(void *arg, uint32_t chunk);
	/* A BPF program that sees PF_FILE_READY also sees everything that was written before. */
	int (*set_file)(void *arg, uint32_t slot, const struct pf_file *f);
	int (*set_process)(void *arg, const struct pf_process_key *k, const struct pf_process *p);
	int (*remove_process)(void *arg, const struct pf_process_key *k);
	int (*set_image)(void *arg, uint64_t tag, const struct pf_image *i);
	int (*remove_image)(void *arg, uint64_t tag);
	/*
	 * Waits until all BPF programs have ended that may still see what was replaced before
	 * (RCU).
	 */
	int (*grace)(void *arg);
};
struct unwind;
/* budget_bytes: limit of the chunks in the kernel; 0: 64 MiB. -errno: an op failed. */
int unwind_new(const struct unwind_ops *ops, void *arg, size_t budget_bytes, struct unwind **ret);
struct unwind *unwind_free(struct unwind *u);

/*
 * Sets the executable mappings of a process (of one exec). indexes[i] is the index of the file of
 * mapping i. It is NULL if there is no file, if the file cannot be read, or if it has no index yet
 * (pending[i]). runtimes: the runtimes of the process that are known so far; NULL: none.
 *
 * The caller calls again when it has more indexes, or when mappings have changed. The call replaces
 * the mappings, also those of an older exec. Two files count as one if the bytes of their indexes
 * are equal. A file's table is put into the kernel as a whole or not at all. If it is not,
 * podflame_unwind_files_refused_total counts the reason, and stacks are walked through that file by
 * frame pointers.
 *
 * charged_ns: the namespace (struct charged) whose share the tables of its own files count against.
 * A file that several namespaces use counts against none. If there is no room for a table, the
 * namespace that uses most beyond its share loses its largest ones. If there is no room for one
 * more process, the namespace that has most processes loses the one that changed longest ago.
 *
 * -ESTALE: the kernel has the mappings of a newer exec. -ENOSPC: there is no room even for the
 * mappings.
 */
int unwind_process(struct unwind *u, const struct mappings *m, uint64_t charged_ns,
		   struct elf_index *const *indexes, const bool *pending,
		   const struct runtime_process *runtimes);
/* Removes the process, whatever its exec. Tables of its files stay until room is needed. */
void unwind_exited(struct unwind *u, struct process_id id);
/*
 * Returns a namespace that has lost tables to the processes of others, and forgets it. 0: there is
 * none. The caller calls unwind_process() again for its processes, so that it learns of it.
 */
uint64_t unwind_taken_from(struct unwind *u);
/*
 * Returns a namespace that has lost a process or an image of a file, because the kernel has no
 * room for more and the namespace has most, and forgets it. 0: there is none.
 */
uint64_t unwind_crowded(struct unwind *u);
/*
 * Returns why a file of a process has no table. NULL: it has one.
 * - "budget": no room; the agent tries again when there is room
 * - "too_large", "too_spread": the table is too large, or the file's code covers too many addresses
 * - "slots": no slot is free
 * - "kernel": the kernel refused the memory
 * - "memory": the indexes of all files in use are too large
 */
const char *unwind_why_not(const struct unwind *u, const struct elf_index *index);

struct unwind_stats {
	/*
	 * table_bytes: of the tables; chunk_bytes: of all chunks in the kernel; budget_bytes: the
	 * limit
	 */
	size_t table_bytes, chunk_bytes, budget_bytes;
	/* files with a table; files without a table (because of budget, slots or limits) */
	size_t n_files, n_files_without;
	size_t n_processes, n_mappings;
	uint64_t n_evicted; /* evicted files, since the start */
};
void unwind_stats(const struct unwind *u, struct unwind_stats *ret);
