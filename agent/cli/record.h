/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to record*.c: the state of a recording, and the functions of each file. A drain is the
 * samples and the news of processes that one reading of the kernel's maps returned.
 */
#pragma once

#include "cli/cli.h"
#include "hub/query/query.h"
#include "node/probe/probe.h"
#include "node/stack/stack.h"
#include "node/learn/learn.h"

#include <inttypes.h>

struct record_options {
	uint32_t *pids;
	size_t n_pids, cap_pids;
	const char *cgroup; /* the cgroup to record, if pids is empty */
	unsigned hz;
	uint64_t duration_ns; /* 0: until a signal arrives */
	uint64_t delay_ns;    /* samples of the time before are left out */
	enum event event;
	bool event_given;
	struct event_settings settings;
	bool unnamed_by_start; /* struct stacks_config */
	const char *output;
};
/* record_options.c. If the options are wrong, or the user asks for help, ends the program. */
void cli_record_parse(int argc, char **argv, struct record_options *ret);
void cli_record_options_done(struct record_options *o);

struct watched_pid {
	int fd; /* pidfd: readable when the process has ended */
	struct listed_process listed;
};

struct record_unmapped; /* processes whose mappings could not be read: record_mappings.c */
struct record_process;	/* which runtimes a process has: record_tables.c */
struct record_row;	/* which sample of a profile a raw sample adds to: record_output.c */
struct record_probed;	/* the uprobes of a process: record_probed.h */
struct record_debug;	/* debug files, and samples that wait for them: record_debug.c */

struct recording {
	const struct record_options *options;
	struct watched_pid *pids;
	size_t n_pids, cap_pids;

	struct probes *probes;
	struct files *files;
	struct stacks *stacks;
	struct unwind *unwind; /* NULL: stacks are unwound only by frame pointers */

	struct batch *batch; /* everything recorded so far: one profile per process and name */
	struct record_row *rows;
	uint64_t start_ns, end_ns; /* wall time */
	/* CLOCK_BOOTTIME of the delay's end; UINT64_MAX: it is not over; 0: there is none */
	uint64_t kept_from_ns;
	uint64_t n_samples, n_too_many, n_stacks, n_whole;
	struct losses lost;	  /* lost samples and records, for all events together */
	struct losses unfinished; /* stacks that end early, counted by reason */
	/* number of times that mappings were not read, because the last reading took much time */
	uint64_t n_resting;
	struct record_debug *debug;
	struct record_process *processes;
	size_t n_processes, cap_processes;
	struct record_probed *probed;
	size_t n_probed, cap_probed, n_refused_sites, n_attached;
	uint64_t next_go_ns, announced_ns;
	bool forks_wait;  /* a process has forked, and is not announced yet */
	char *missing;	  /* a file without unwind tables, and the reason */
	char *not_walked; /* a runtime that is not unwound, and the reason */
	char *not_named;  /* runtimes whose functions get no names, and what the user can do */
	struct record_unmapped *unmapped;
	struct learn_later *later;
	unsigned n_unmapped; /* processes whose samples lack names for want of mappings */
};

/* ---- record_mappings.c ---- */
/*
 * Reads the mappings of a process, and what depends on them. Returns false if the mappings cannot
 * be read, or if cli_record_rests() says that they must not be read yet. stack: raw_proc.stack;
 * cgroup_id: of the process; 0: not known.
 */
bool cli_record_read_mappings(struct recording *r, struct process_id id, uint32_t exec_id,
			      uint32_t stack, uint64_t cgroup_id);
/*
 * Reads them again if u, the user stack of the sample s, has an address in a file that the process
 * has mapped since (dlopen), or if a frame has no name because they were never read. At most once a
 * second for a process.
 */
void cli_record_read_again(struct recording *r, const struct raw_sample *s,
			   const struct raw_stack *u);
/* Prints how many processes have samples that lack names for want of mappings, if any has. */
void cli_record_print_unmapped(const struct recording *r);
void cli_record_unmapped_free(struct recording *r);

/* ---- record.c ---- */
/* Takes ownership of d. Reads names and tables that its samples need and the recording lacks. */
void cli_record_samples(struct recording *r, struct drain *d);

/* record_debug.c */
#define RECORD_WAIT_NS (60 * NSEC_PER_SEC) /* the longest time that samples wait for debug files */
struct record_debug_ops {
	/* Reads the debug file of a mapped file; may take minutes. */
	void (*read)(struct files *f, const struct mapping *m, int root_fd);
	/* Names the samples of a drain, into r->batch. */
	void (*name)(struct recording *r, const struct drain *d);
};
int cli_record_debug_new(const struct record_debug_ops *ops, struct record_debug **ret);
void cli_record_debug_free(struct record_debug *g);
/* A thread reads the debug files of the mapped files, one request after another. */
void cli_record_debug_read(struct recording *r, struct mappings *m);
bool cli_record_debug_reads(const struct recording *r); /* the thread still has files to read */
/*
 * Takes ownership of d. Names its samples now, or later if the thread is still reading debug files.
 */
void cli_record_debug_wait(struct recording *r, struct drain *d);
/*
 * Waits until the thread has read all files, or until signal_fd (-1: none) is readable. Then names
 * all samples that wait.
 */
void cli_record_debug_finish(struct recording *r, int signal_fd);

/*
 * record_cgroup.c: finds the cgroup's hierarchy, opens the probes for it, and selects the cgroup
 * and all cgroups below it.
 */
typedef int record_open_fn(struct recording *r, const struct probe_config *c);
int cli_record_begin_cgroup(struct recording *r, record_open_fn *open);

/* ---- record_tables.c ---- */
void cli_record_open_tables(struct recording *r);
/*
 * Loads the unwind tables of the process's files into the kernel, and gives the kernel the facts
 * about the process's runtimes. Blocks until this is done.
 */
void cli_record_give_tables(struct recording *r, struct mappings *m);
/* Looks again for runtimes in processes where a runtime was just starting. */
void cli_record_look_again(struct recording *r);
/*
 * Whether the process's mappings must not be read again yet, because the last reading took much
 * time.
 */
bool cli_record_rests(struct recording *r, struct process_id id, uint32_t exec_id);
void cli_record_forget(struct recording *r, struct process_id id);
void cli_record_tables_free(struct recording *r);
void cli_record_count_end(struct recording *r, const struct raw_sample *s,
			  const struct raw_stack *u);
void cli_record_print_stacks(const struct recording *r);

/* record_probes.c: these functions do nothing if the event has no uprobes */
/*
 * Finds the functions of the process to probe, and attaches probes to them. Called when the
 * process's files are known.
 */
void cli_record_probed_look(struct recording *r, struct mappings *m);
void cli_record_probed_forget(struct recording *r, struct process_id id);
/* Whether the sample is the first one of a new snapshot of the memory in use by its process. */
bool cli_record_probed_newer(struct recording *r, const struct raw_sample *s);
void cli_record_probes_tick(struct recording *r);
/* Called before each drain. While r->forks_wait is true, the caller must drain often. */
void cli_record_probes_announce(struct recording *r);
/* returns the time at which the caller must call this function again */
uint64_t cli_record_probes_watch(struct recording *r);
/* Reads how much memory is in use. Called regularly, and before the last drain. */
void cli_record_probes_read(struct recording *r);
/* Prints which memory the profile lacks, and why. -EOPNOTSUPP: it lacks all memory. */
int cli_record_probes_check(const struct recording *r);
void cli_record_probes_print(const struct recording *r); /* prints the cost of the probes */
void cli_record_probes_free(struct recording *r);

/* ---- record_output.c ---- */
/* -E2BIG: the batch is full. */
int cli_record_add(struct recording *r, const struct raw_sample *s, const struct raw_names *names,
		   uint32_t stack);
int cli_record_write(struct recording *r);
/*
 * What a file of this name is, by its ending. RECORD_FILE: as *ret_file (NULL: not wanted) says.
 */
enum record_form { RECORD_UNKNOWN, RECORD_FOLDED, RECORD_SVG, RECORD_FILE };
enum record_form cli_record_form(const char *name, const struct file_format_info **ret_file);
/* prints how many names stayed mangled because the child process that demangles them failed */
void cli_record_print_mangled(void);
void cli_record_rows_free(struct recording *r);
