/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack: raw addresses -> frames with names. Owns the kernel's symbols and what is mapped in which
 * process; files has the rest. Pipeline worker only (record: the main thread).
 */
#pragma once

#include "node/files/files.h"
#include "node/runtime/runtime.h"
#include "node/sample/sample.h"

struct stacks_config {
	struct files *files;		/* borrowed: names of processes' functions */
	const char *kallsyms_path;	/* NULL: /proc/kallsyms */
};
struct stacks;
int stacks_new(const struct stacks_config *c, struct stacks **ret);
struct stacks *stacks_free(struct stacks *s);

/* Mappings of a process become known or replace older ones of the same exec id. Takes a reference. */
void stacks_mappings(struct stacks *s, struct mappings *m);
/* What else this exec of a process runs; NULL: nothing. Takes a reference; names known before stay. */
void stacks_runtimes(struct stacks *s, struct process_id id, uint32_t exec_id,
		     struct runtime_process *r);
/*
 * The process has ended, then (CLOCK_BOOTTIME): forgets its mappings after hold_ns, so that late samples still get
 * names. What was read after its end may be another process's, which has its PID and began within a clock tick of it.
 */
void stacks_exited(struct stacks *s, struct process_id id, uint64_t exited_ns,
		   uint64_t hold_ns);
/* The same of those whose end nobody told: gone says who is not there. */
typedef bool stacks_gone_fn(struct process_id id, void *arg);
void stacks_sweep(struct stacks *s, uint64_t now_boot_ns, uint64_t hold_ns, stacks_gone_fn *gone, void *arg);
/*
 * true when an address of this stack lies outside the process's known mappings: read them again.
 * Wild addresses (code without frame pointers) never get a mapping, so the answer is true at most
 * once a second for a process whose mappings are known.
 */
bool stacks_misses(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * Files that nobody has parsed, among stacks_unparsed then: of programs that the process was before, whom nobody follows any more,
 * and of mappings that were read a moment ago, to whose files those who follow have not come yet.
 */
void stacks_want_files(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * Names of runtimes' frames must be read from the process, and code that may differ from its file's
 * (mapping_is_unsure) be compared with it, at each drain; both may block: stacks_want notes what a
 * stack lacks, stacks_wanted hands all of it out, whoever may read does (stacks_wanted_read), stacks_named
 * takes it in. A name that could not be read is asked for again after ten seconds, a known one
 * after runtime_ops.names_last_ns.
 */
struct names_wanted {
	struct process_id process;
	uint32_t exec_id;
	struct runtime_process *runtimes;	/* a reference; NULL: no asks */
	struct runtime_ask *asks;
	size_t n_asks, cap_asks;
	bool fresh;				/* not only what is known is asked for again */
	uint64_t touch[8];			/* pages that the kernel's part found absent */
	size_t n_touch;
	struct compare_ask *compares; /* private: pages of code to be compared with their files */
	size_t n_compares, cap_compares;
	struct mappings *compare_maps;		/* a reference; NULL: none */
	struct files *files;			/* borrowed */
};
void stacks_want(struct stacks *s, struct process_id id, const struct raw_stack *ustack);
/* One a process; caller frees each with stacks_wanted_free, and the array. */
struct names_wanted **stacks_wanted(struct stacks *s, size_t *ret_n);
void stacks_wanted_read(struct names_wanted *w);	/* reader's thread */
void stacks_named(struct stacks *s, struct names_wanted *w);	/* takes the names out of w */
struct names_wanted *stacks_wanted_free(struct names_wanted *w);

/*
 * The stacks that are handed to stacks_end and stacks_resolve from now on were taken then (CLOCK_BOOTTIME) or later: of code in a
 * file in memory nobody knows what it was before the file was read. At first: after everything.
 */
void stacks_taken(struct stacks *s, uint64_t first_ns);
/*
 * NULL: the stack is whole; else why it is not. The walk's own reason, or "bad_address": it ended
 * well, but at an address where the process has no code. A frame pointer that was none led there. "runtime_pending": it
 * has code of a runtime that the kernel did not know of yet, so that its program's frames are not there. Or what a runtime
 * could not tell ("no_thread_state").
 */
const char *stacks_end(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * One sample's frames, root first, kernel frames last, a marker frame where the
 * walk stopped early. The result is interned in b. Either stack may be NULL: with
 * lost set, or when there is no frame at all, "[stack trace lost]" stands for it.
 *
 * A frame with a name has the start of its function as address, so that equal functions
 * are equal frames; a function inlined there follows the one it was inlined into, with the same
 * address. Without a name: module, build_id and the ELF address to look up
 * later (of a return address: the byte before it), 0 when the file could not be read
 * (podflame_symbol_files_failed_total says why); without a mapping the raw address alone.
 * Names and paths are cleaned: valid UTF-8, no control characters. May block as long as
 * files_names does, once a file. -E2BIG: b has BATCH_MAX_BYTES; the last stack may take it beyond them.
 */
int stacks_resolve(struct stacks *s, struct batch *b, struct process_id id,
		   const struct raw_stack *ustack, const struct raw_stack *kstack, bool lost, uint32_t *ret_stack);
/*
 * Files that the stacks since the last call had no names for because nobody has parsed them (files_config.queued), a few of a
 * process: *ret_n of them, for stacks_unparsed_free.
 */
struct unparsed_file {
	struct mappings *m;
	size_t k;	/* which of them */
};
struct unparsed_file *stacks_unparsed(struct stacks *s, size_t *ret_n);
void stacks_unparsed_free(struct unparsed_file *u, size_t n);
/* Kernel symbols again (modules and BPF programs come and go); cheap when nothing changed. */
int stacks_refresh_kernel(struct stacks *s);
/* "" when all is well, else why kernel names are missing ("kallsyms shows no addresses: CAP_SYSLOG ..."). */
const char *stacks_kernel_problem(const struct stacks *s);
