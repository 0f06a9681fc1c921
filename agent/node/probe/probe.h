/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe loads, attaches and controls the BPF programs, writes their filter and drains their maps.
 * No other module includes libbpf or bpf/abi.h. Functions marked (os) run on the os worker: they
 * may take milliseconds and wait for RCU.
 */
#pragma once

#include "cuda/podflame_cuda.h"
#include "node/proc/proc.h"
#include "node/sample/sample.h"

struct probe_config {
	struct cgroup_hierarchy hierarchy;
	bool use_cgroups; /* false: only the process list selects (record --pid, local) */
	/* the programs look up the process list (a constant in their read-only data) */
	bool use_list;
	bool total;   /* also counts samples of all processes by {leader comm, thread comm} */
	bool per_cpu; /* samples of each CPU are counted apart */
	unsigned max_sample_hz;
	size_t ring_bytes, count_entries; /* 0: defaults that depend on the number of CPUs */
	uint32_t wait_entries; /* off-cpu: threads whose waits are followed; 0: PF_WAITS_MAX */
	const char *devices_path; /* borrowed; NULL: /proc/devices */
};
struct probes;
/*
 * (os) Loads the programs. If the kernel lacks something that only one feature needs, that feature
 * is missing, and probes_support() gives the reason. -errno, with *reterr: no feature can work
 * here, or the machine lacks something for a moment.
 */
int probes_new(const struct probe_config *c, struct probes **ret, struct field_error *reterr);
struct probes *probes_free(struct probes *p); /* (os) detaches and unloads all programs */

/*
 * (os) Makes the kernel's filter equal to want. If want (or total) needs the CPU clock, attaches it
 * at the highest rate that is asked for, at most max_sample_hz and at least 1; else detaches it.
 * Also looks for CPUs that went online or offline, as a full drain does.
 *
 * If a cgroup is made below a selected one, the kernel selects it at once. It stays selected until
 * a drain has reported it; from then on want decides about it, too. If a part fails, the rest is
 * done. -E2BIG: want has more than PF_FILTER_MAX rows; those behind them count as not in it.
 */
int probes_filter(struct probes *p, const struct container_filter *want, size_t n);
/*
 * (os) drain_number: the last drain whose cgroups the caller knows when it makes the next filter.
 * Cgroups that the kernel selected and that only later drains report stay selected. If this
 * function is never called, the filter takes the cgroups of all drains into account.
 */
void probes_knows(struct probes *p, uint64_t drain_number);
struct listed_process {
	/* its start time is compared with the precision of /proc/PID/stat, 10 ms */
	struct process_id id;
	uint64_t ns; /* struct charged */
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep; /* as in struct container_filter; 0: all waits */
	/* samples of the process carry the trace and the span in which they were taken */
	bool context;
};
int probes_list(struct probes *p, const struct listed_process *want, size_t n); /* (os) */

/*
 * Returns the tag that frames in this file have, wherever it is mapped, as long as its bytes do not
 * change. It may be called on any thread that may wait for a pod's file system. fd: open for
 * reading. -EOPNOTSUPP: no BPF program is loaded, or programs of this kernel cannot read mappings.
 * Other -errno: the file cannot be mapped.
 */
int probes_file_tag(int fd, uint64_t *ret_tag);

/* ---- uprobes of a process ---- */
/* The uprobes of a set are found, attached, limited and detached together. */
enum probe_set {
	PROBES_MEMORY,	   /* allocators: mem-alloc, mem-inuse */
	PROBES_GPU_MEMORY, /* the CUDA driver: hbm-alloc, hbm-inuse */
	PROBES_GPU,	   /* the library in CUDA programs that reports their work: on-gpu */
	PROBES_RDMA,	   /* libibverbs and its providers: rdma */
	PROBES_RDMA_LATENCY, /* the same: rdma-latency */
	_PROBES_SET_MAX,
};
struct probe_set_info {
	const char *name; /* "memory", "gpu_memory" */
	/*
	 * The event that counts what calls do: allocate memory, launch work, post requests. If its
	 * cost is above the limit, its probes are attached in spans, and its values are estimates.
	 */
	enum event counted;
	/*
	 * The event whose value is a snapshot of the memory that is allocated and not freed yet. It
	 * needs its probes all the time. _EVENT_MAX: the set has no such event.
	 */
	enum event live;
};
const struct probe_set_info *probes_set_info(enum probe_set s);
unsigned probes_set_events(enum probe_set s); /* 1 << event for each event of the set */
enum probe_set probes_set_of(enum event e);   /* _PROBES_SET_MAX: the event has no uprobes */

struct pf_site; /* defined in bpf/abi.h */
/* Returns how many hits a call of the site costs for these events; 0: it is not probed for them. */
unsigned probes_site_hits(enum probe_set s, const struct pf_site *site, unsigned event_mask);

struct pf_mem_proc; /* defined in bpf/abi.h */
struct probe_site {
	uint64_t file_offset, cookie; /* cookie: struct pf_site */
	/*
	 * The offset in the file of the place's semaphore, a counter of 16 bits. While the place is
	 * probed in a process, the kernel keeps the process's copy of it above 0. 0: none.
	 */
	uint64_t semaphore;
};
struct probe_file {
	int fd; /* the file that the process maps; not closed here */
	const struct probe_site *sites;
	size_t n_sites;
};
struct attached; /* the probes of one set in one process */
/*
 * Returns whether r is an error because the machine lacks something for a moment. A later try may
 * work.
 */
static inline bool probes_may_pass(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EAGAIN || r == -EINTR;
}
/* Sites that the kernel refused to probe, because it cannot decode their instruction. */
struct probes_refused {
	size_t n; /* number of sites */
	/*
	 * a refused site frees memory, so freed memory would seem to live: the set's live event is
	 * not attached
	 */
	bool inuse;
	bool too_many; /* the process has more sites than can be probed one by one */
	/* PROBES_GPU_MEMORY: objects are not probed any more, because they come too often */
	bool objects;
};
/*
 * Attaches the probes of a set to a process. proc->event_mask has events of the set only; a filter
 * that asks for one of them must have been set before. It runs on any thread that may wait, but not
 * on the os worker; only one thread at a time may use one struct attached. It takes 0.1 to 16 ms a
 * file, or 0.3 ms a site with classic uprobes. All sites that can be probed are probed;
 * *ret_refused describes the others. A process may be attached in several sets at once.
 *
 * -EAGAIN: it cannot attach now: no filter has asked for these events yet, the agent does not know
 * yet whether probed returns are safe, or an urgent detach comes first. -EOPNOTSUPP: the events do
 * not work here. -EEXIST: the process is attached already in this set. -ENOENT: no site could be
 * probed. -ESRCH: the process has ended. Another error that may pass: what the machine lacked when
 * the programs were loaded.
 */
int probes_attach(struct probes *p, enum probe_set set, struct process_id id,
		  const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		  struct attached **ret, struct probes_refused *ret_refused);
/*
 * Changes the probed files, the allocators' own code (pf_mem_proc.inner) or the events, while the
 * process executes the same program; threads and errors as of probes_attach(). It attaches and
 * detaches only the difference, so the agent still knows the living memory, as long as the live
 * event is asked for. After a failure, either the old or the new probes are attached. If the kernel
 * refuses even that, some events do not count until the next change that works.
 */
int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n,
			 struct probes_refused *ret_refused);
/*
 * Detaches; threads as for probes_attach(). It takes 20 to 110 ms, most of it waiting for RCU. The
 * probes stop slowing the process long before that. The agent forgets the living memory that the
 * set knows of the process.
 */
struct attached *probes_detach(struct probes *p, struct attached *a);
/*
 * Detaches many processes at once, in hardly more time than one takes. The caller keeps the array.
 */
void probes_detach_all(struct probes *p, struct attached **items, size_t n);
/*
 * Waits for the end of a span: until the process was attached for max_ns, or its probes had
 * max_hits hits (checked each millisecond or more often). Threads as for probes_attach(). After
 * that the caller detaches; hits until then do not count. *ret_ns and *ret_hits: time and hits
 * since probes_attach() returned.
 */
void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits);
/*
 * Returns whether the thread has ended that the kernel uses to find the process's memory. Then the
 * kernel does not probe what the process maps from now on, and with some forms of probes it probes
 * nothing any more. probes_attach_change() uses another thread of the process. Any thread may call
 * this function while a is not being changed or detached.
 */
bool probes_attached_lost(const struct attached *a);
/*
 * Returns whether the probes are still hit after probes_attached_lost() has become true, until a
 * probe of another process is removed. Threads as for probes_attached_lost().
 */
bool probes_attached_outlives(const struct attached *a);
/* Returns all hits so far. Any thread may call it while a is not being detached. */
uint64_t probes_attached_hits(const struct attached *a);
/*
 * Returns whether the process has called functions that only query something so often that their
 * probes have shown what they can show, and would only cost time from now on; or functions of an
 * allocator of objects so often that their probes cost too much. The next probes_attach_change()
 * removes these probes. Any thread may call this function while a is not
 * being changed or detached.
 */
bool probes_attached_queried(const struct attached *a);
/*
 * Returns an estimate of the bytes that the process allocated while it was probed, from the samples
 * of the set's counted event, or else of its live event. A sample of memory stands for its event's
 * sampleBytes. Any thread may call this function while a is not being detached.
 */
uint64_t probes_attached_bytes(const struct attached *a);
struct pf_rdma_functions; /* defined in bpf/rdma_abi.h */
/*
 * Gets the functions of RDMA providers that the programs of the set have found in the process's
 * memory: addresses that no symbol names. -ENOENT: none are known. Any thread.
 */
int probes_rdma_functions(struct probes *p, enum probe_set set, struct process_id id,
			  uint32_t exec_id, struct pf_rdma_functions *ret);
/*
 * Announces an urgent probes_detach(a). Until that call begins, all other spans end early, and no
 * process is attached in any set (-EAGAIN). Any thread may call this function while a is not being
 * detached.
 */
void probes_leave(struct attached *a);
/*
 * Returns a number that grows with each link that is made or closed. So a caller sees that a long
 * attach or detach makes progress. Any thread.
 */
uint64_t probes_moves(struct probes *p);
/* Ends all spans of all sets. From then on no process is attached (-EAGAIN). Any thread. */
void probes_attach_no_more(struct probes *p);
/*
 * The next full drain will have a snapshot of the living memory of each set, even if the last one
 * was made just now.
 */
void probes_live_ask(struct probes *p);

/* ---- what the library that reports the work of GPUs says of itself ---- */
struct on_gpu_status {
	/* CLOCK_BOOTTIME of the library's last report of its status; 0: there was none yet */
	uint64_t told_ns;
	/*
	 * CLOCK_BOOTTIME of the first report that said that CUPTI runs, if all later ones said so,
	 * too. 0: the last report says that it does not run.
	 */
	uint64_t running_ns;
	/*
	 * CLOCK_BOOTTIME until which launches count (pf_mem_proc.launches_ms); UINT64_MAX: as long
	 * as the process is attached
	 */
	uint64_t launches_until_ns;
	/* The process has parcagpu's library, which reports no status. */
	bool parcagpu;
	/* as the process has written it, so any member may have any value */
	struct podflame_cuda_status library;
};
/*
 * Returns what the library in a process that is attached in PROBES_GPU has said of itself. Any
 * thread may call it while a is not being detached. -ENOENT: nothing yet. -errno: the kernel's map
 * cannot be read.
 */
int probes_attached_status(const struct attached *a, struct on_gpu_status *ret);

/* ---- what events cost: bpf/abi.h, struct pf_usage; (os) ---- */
struct probe_usage {
	uint64_t cgroup_id;
	enum event event;
	/* sums since the cgroup was first seen; own_ns: struct pf_usage */
	uint64_t hits, taken, value, square, own_ns;
};
/* the caller frees *ret */
int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n);
/*
 * Returns what one hit of a uprobe costs its process now, in ns. The agent measures it with a probe
 * of itself.
 */
uint64_t probes_trap_ns(struct probes *p);
/* Returns a text for users: how this kernel attaches uprobes. */
const char *probes_uprobe_form(const struct probes *p);

/* ---- drain: node/sample/sample.h ---- */
/*
 * (os) A quick drain takes only the records that the ring holds now: new processes and cgroups, so
 * that the agent can read their mappings soon. Samples stay in the kernel. A full drain swaps the
 * generations, and takes the samples of the old one with their stacks and names. Lost samples are
 * in drain.lost and in the counter "podflame_samples_dropped_total", lost records in
 * drain.lost_records and in "podflame_records_dropped_total". Each loss has a reason.
 */
int probes_drain(struct probes *p, bool full, struct drain **ret);
/*
 * Returns a descriptor that becomes readable when a quick drain is needed: the kernel has seen a
 * new process or cgroup.
 */
int probes_wake_fd(const struct probes *p);

/* ---- unwind tables: the kernel's side of node/unwind's ops; all (os) ---- */
struct pf_file; /* these are defined in bpf/unwind_tables.h */
struct pf_process;
struct pf_image;
struct pf_process_key;
int probes_chunk_write(struct probes *p, uint32_t chunk, uint32_t offset, const void *bytes,
		       size_t n);
int probes_chunk_flush(struct probes *p);
int probes_chunk_drop(struct probes *p, uint32_t chunk);
int probes_file_set(struct probes *p, uint32_t slot, const struct pf_file *f);
int probes_process_set(struct probes *p, const struct pf_process_key *k,
		       const struct pf_process *v);
int probes_process_remove(struct probes *p, const struct pf_process_key *k);
int probes_image_set(struct probes *p, uint64_t tag, const struct pf_image *i);
int probes_image_remove(struct probes *p, uint64_t tag);
int probes_grace(struct probes *p);
/*
 * (os) Makes the next quick drain report (RAW_PROC_SEEN) every selected process that no drain has
 * reported yet, with or without samples. So the agent loads its tables before its first sample.
 */
int probes_announce(struct probes *p);
/*
 * (os) Returns whether a selected process has forked since probes_announce() began last. The first
 * such fork makes probes_wake_fd() readable. False if the kernel cannot report forks or list
 * processes, and without probe_config.use_cgroups.
 */
bool probes_forked(const struct probes *p);

/* ---- what works here ---- */
struct support {
	const char *feature; /* "on-cpu", "cgroup-events", "process-events", "kernel-stacks", ... */
	bool ok;
	const char *reason; /* not ok: why; ok: the part of it that is missing, or NULL */
};
const struct support *probes_support(const struct probes *p, size_t *ret_n);
struct probes_stats {
	uint64_t ticks, filtered, thinned, delivered;
	uint64_t crossed; /* records about processes that the kernel sent */
	/*
	 * run time and number of runs of all programs of podflame; 0: the kernel's statistics are
	 * off
	 */
	uint64_t run_ns, run_count;
	uint64_t ticks_ns; /* the part of run_ns that the programs of on-cpu took */
	unsigned n_programs, n_links;
	unsigned node_hz;
};
int probes_stats(struct probes *p, struct probes_stats *ret); /* (os) */
