/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack: turns raw addresses into frames with names. It owns the kernel's symbols and the mappings
 * of each process; the module files owns the symbols of files. All functions run on the pipeline
 * worker (in record: on the main thread). Only stacks_wanted_read() runs on the reader's thread:
 * only this function reads the memory of processes.
 */
#pragma once

#include "lib/base/shares.h"
#include "node/files/files.h"
#include "node/runtime/runtime.h"
#include "node/sample/sample.h"

struct stacks_config {
	struct files *files;		/* borrowed: names of processes' functions */
	const char *kallsyms_path;	/* NULL: /proc/kallsyms */
	/* functions without a name get one by where they begin: profile_frame_start_name() */
	bool unnamed_by_start;
};
struct stacks;
int stacks_new(const struct stacks_config *c, struct stacks **ret);
struct stacks *stacks_free(struct stacks *s);

/*
 * Adds a process's mappings, or replaces older ones with the same exec id. Takes a reference to m.
 * ns: struct charged; 0: nobody.
 */
void stacks_mappings(struct stacks *s, struct mappings *m, uint64_t ns);
/*
 * Sets the runtimes of this exec of a process; NULL: none. Takes a reference to r. Names that are
 * known already stay.
 */
void stacks_runtimes(struct stacks *s, struct process_id id, uint32_t exec_id,
		     struct runtime_process *r);
/*
 * Notes that the kernel has the rows of generated code that r has (NULL: none), in place of those
 * of the call before. It got them between the two times (CLOCK_BOOTTIME). Stacks that were taken
 * with rows of other code are cut: see stacks_end().
 */
void stacks_rows_set(struct stacks *s, struct process_id id, uint32_t exec_id,
		     const struct runtime_process *r, uint64_t since_ns, uint64_t until_ns);
/*
 * Notes that stacks_rows_set() was not called for rows that the kernel had for some time before
 * until_ns (CLOCK_BOOTTIME). Stacks through generated code that were taken before are cut.
 */
void stacks_rows_skipped(struct stacks *s, struct process_id id, uint32_t exec_id,
			 uint64_t until_ns);
/*
 * Notes that the process ended at exited_ns (CLOCK_BOOTTIME). Its mappings are forgotten after
 * hold_ns, so that late samples still get names. Mappings that were read after its end are dropped:
 * they may be of another process that got the same PID within a clock tick. ns: struct charged; 0:
 * nobody.
 */
void stacks_exited(struct stacks *s, struct process_id id, uint64_t ns, uint64_t exited_ns,
		   uint64_t hold_ns);
/*
 * Adds to `to` the namespaces that had more than their share of the processes whose mappings are
 * kept, so that one of them was forgotten since the last call.
 */
void stacks_crowded(struct stacks *s, struct shares *to);
/*
 * The same for the share of rows that generated code had lately, so that stacks since the last call
 * may end in such code.
 */
void stacks_rows_refused(struct stacks *s, struct shares *to);
/*
 * Adds to `to` each namespace that had more names of runtimes' functions than its share since the
 * last call. Any thread.
 */
void stacks_names_refused(struct shares *to);
/*
 * Forgets processes that ended long enough ago. If the caller does not call this now and then, the
 * files of such processes stay open until there are stacks of other processes.
 */
void stacks_purge(struct stacks *s);
/*
 * Returns true if an address of this stack is outside of the process's known mappings: then the
 * caller must read the mappings again. Wild addresses (from code without frame pointers) never have
 * a mapping. So for a process whose mappings are known, this returns true at most once a second.
 */
bool stacks_misses(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * Adds files of this stack that have not been parsed to the next stacks_unparsed(). These are files
 * of an earlier program of the process, which the module follow does not handle any more, and files
 * of mappings that were read a moment ago, which follow has not handled yet.
 */
void stacks_want_files(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * What must be read from the memory of one process: the names of runtimes' frames, and code that
 * may differ from its file (mapping_is_unsure), which is compared with the file at each drain. Such
 * reads may block, so there are four steps. stacks_want() notes what is needed for a stack,
 * stacks_wanted() returns all that was noted, stacks_wanted_read() reads it on the reader's thread,
 * and stacks_named() takes the results. A name that could not be read is asked for again after ten
 * seconds, a known name after runtime_ops.names_last_ns.
 */
struct names_wanted {
	struct process_id process;
	uint32_t exec_id;
	struct mappings *maps;		  /* a reference: those of exec_id */
	struct files *files;		  /* borrowed */
	struct runtime_process *runtimes; /* a reference; NULL: there are no asks */
	struct runtime_ask *asks;
	size_t n_asks, cap_asks;
	bool fresh;				/* some asks are for names that are not known yet */
	/* addresses in pages that the walk did not find in memory */
	uint64_t touch[8];
	size_t n_touch;
	/* the rows of generated code must be read; whether they were, and since when */
	bool rows_wanted, rows_read;
	uint64_t rows_read_ns;	      /* CLOCK_BOOTTIME: when the reading began */
	struct elf_index *rows;	      /* what was read; NULL: there are none */
	bool comparing;		      /* private: the round of these compares has begun */
	struct compare_ask *compares; /* private: pages of code to be compared with their files */
	size_t n_compares, cap_compares;
};
void stacks_want(struct stacks *s, struct process_id id, const struct raw_stack *ustack);
/*
 * Returns one result for each process. The caller frees each with stacks_wanted_free(), and then
 * the array.
 */
struct names_wanted **stacks_wanted(struct stacks *s, size_t *ret_n);
void stacks_wanted_read(struct names_wanted *w);	/* on the reader's thread */
void stacks_named(struct stacks *s, struct names_wanted *w); /* moves the names out of w */
struct names_wanted *stacks_wanted_free(struct names_wanted *w);

/*
 * Sets of which sample of a drain the following stacks are: those that stacks_end() and
 * stacks_resolve() get from now on. The debug files of its cgroup's container also name the frames
 * of a process that ended before it was read. What a file in memory contained before the agent read
 * it is not known, nor what code a process had generated after the agent read its rows. Without
 * this call, all stacks count as taken between these readings.
 */
void stacks_taken(struct stacks *s, const struct drain *d, const struct raw_sample *sample);
/*
 * Returns NULL if the stack is whole; else the reason why it is not:
 * - the reason with which the walk ended;
 * - "bad_address": the walk ended as at a root, but at an address where the process has no code: a
 *   wrong frame pointer led there;
 * - "generated_code_changed", "code_not_compared": the code of a frame may have changed, or could
 *   not be compared;
 * - "runtime_pending": the kernel's part did not know of the process's runtime yet, so frames of
 *   the runtime's program are missing;
 * - the reason why a runtime's walk has not shown its frames ("no_thread_state").
 */
const char *stacks_end(struct stacks *s, struct process_id id, const struct raw_stack *ustack);

/*
 * Makes one sample's frames: root first, kernel frames or a GPU's work last, and a marker frame
 * where the walk stopped early. *ret_stack: the result, interned in b. Either stack may be NULL. If
 * lost is set, or there is no frame at all, "[stack trace lost]" stands for the stack.
 *
 * The address of a frame with a name is the start of its function, so that frames of one function
 * are equal. An inlined function follows the function into which it was inlined, and has the same
 * address. A frame without a name has its module, its build_id, and the ELF address for a later
 * look-up (for a return address: the byte before it); 0 if the file could not be read
 * (podflame_symbol_files_failed_total says why). It also has where its function begins, if that is
 * known. A frame without a mapping has only the raw address. Names and paths are cleaned: valid
 * UTF-8, no control characters.
 *
 * The call may block as long as files_names() does, once for each file. -E2BIG: b has more than
 * BATCH_MAX_BYTES; the last stack before may have exceeded that limit.
 */
int stacks_resolve(struct stacks *s, struct batch *b, struct process_id id,
		   const struct raw_stack *ustack, const struct raw_stack *kstack, bool lost,
		   uint32_t *ret_stack);
/*
 * Returns the files that the stacks since the last call needed, but that have not been parsed
 * (files_config.queued): *ret_n files, at most a few of each process. The caller frees them with
 * stacks_unparsed_free().
 */
struct unparsed_file {
	struct mappings *m;
	size_t k;	/* index into m->items */
};
struct unparsed_file *stacks_unparsed(struct stacks *s, size_t *ret_n);
void stacks_unparsed_free(struct unparsed_file *u, size_t n);
/*
 * Reads the kernel's symbols again if modules or BPF programs were loaded; cheap if none was
 * loaded.
 */
int stacks_refresh_kernel(struct stacks *s);
/*
 * Returns why kernel names are missing ("kallsyms shows no addresses: CAP_SYSLOG ..."); "": none
 * are.
 */
const char *stacks_kernel_problem(const struct stacks *s);
