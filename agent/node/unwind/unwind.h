/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind: which unwind tables the kernel has. Gives out chunks (bpf/tables.h), puts files'
 * tables and processes' mappings into them, takes unused ones out when the byte budget is
 * reached. Knows no BPF: what it decides is written through ops, to the kernel or, in tests and
 * fuzzers, to memory. One thread (os worker).
 */
#pragma once

#include "lib/symbols/symbols.h"
#include "node/proc/proc.h"
#include "node/runtime/runtime.h"

struct unwind_ops {
	/* Copies n bytes to a chunk, which is made at its first use. May be kept back until flush. */
	int (*write)(void *arg, uint32_t chunk, uint32_t offset, const void *bytes, size_t n);
	int (*flush)(void *arg);
	int (*drop_chunk)(void *arg, uint32_t chunk); /* nobody refers to it any more */
	/* Whoever sees PF_FILE_READY sees the rest, too. */
	int (*set_file)(void *arg, uint32_t slot, const struct pf_file *f);
	int (*set_process)(void *arg, const struct pf_process_key *k, const struct pf_process *p);
	int (*remove_process)(void *arg, const struct pf_process_key *k);
	int (*set_image)(void *arg, uint64_t tag, const struct pf_image *i);
	int (*remove_image)(void *arg, uint64_t tag);
	/* Returns after everyone has left who may still see what was replaced before (RCU). */
	int (*grace)(void *arg);
};
struct unwind;
/* budget_bytes: of chunks in the kernel; 0: 64 MiB */
int unwind_new(const struct unwind_ops *ops, void *arg, size_t budget_bytes, struct unwind **ret);
struct unwind *unwind_free(struct unwind *u);

/*
 * A process's executable mappings (of one exec), with the index of each one's file: NULL where it
 * has none (anonymous, not readable) or not yet (pending[i]). Called again when more is known, or when
 * mappings changed; replaces, also an older exec's; -ESTALE: a newer exec's are there. Files are
 * told apart by their index's bytes. A file's table goes in whole or not at all: reason to
 * podflame_unwind_files_refused_total, and that file is left on frame pointers. -ENOSPC: no room
 * even for the mappings. runtimes: what it runs besides, as far as that is known; NULL: nothing.
 */
int unwind_process(struct unwind *u, const struct mappings *m, struct elf_index *const *indexes,
		   const bool *pending, const struct runtime_process *runtimes);
/* All execs of it. Its tables stay until room is needed. */
void unwind_exited(struct unwind *u, struct process_id id);
/* Processes whose end nobody told (a full ring): lives says who is there. */
typedef bool unwind_lives_fn(struct process_id id, void *arg);
void unwind_sweep(struct unwind *u, unwind_lives_fn *lives, void *arg);
/*
 * Why a file of a process has no table: "budget" (tried again when there is room), "too_large",
 * "too_spread" (text over too many addresses), "slots", "kernel" (refused the memory), "memory" (the
 * indexes of all files in use are too large); NULL: it has.
 */
const char *unwind_why_not(const struct unwind *u, const struct elf_index *index);

struct unwind_stats {
	size_t table_bytes, chunk_bytes, budget_bytes; /* used of; in the kernel; of at most */
	size_t n_files, n_files_without; /* with tables; that got none (budget, slots, limits) */
	size_t n_processes, n_mappings;
	uint64_t n_evicted; /* files, since the start */
};
void unwind_stats(const struct unwind *u, struct unwind_stats *ret);
