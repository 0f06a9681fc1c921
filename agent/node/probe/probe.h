/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: BPF programs and maps: load, attach, filter, drain. No other module includes libbpf or
 * bpf/abi.h. Functions marked (os) run on the os worker: they may take milliseconds and wait for
 * RCU.
 */
#pragma once

#include "node/proc/proc.h"
#include "node/sample/sample.h"

struct probe_config {
	struct cgroup_hierarchy hierarchy;
	bool use_cgroups; /* false: only the process list is used (record --pid, local) */
	bool use_list;	  /* the programs look up the process list (read-only-data switch) */
	bool total;	  /* counts {leader comm, thread comm} of all processes */
	bool per_cpu;	  /* the key has the CPU */
	unsigned max_sample_hz;
	size_t ring_bytes, count_entries; /* 0: defaults that depend on the number of CPUs */
};
struct probes;
/*
 * (os) Loads the programs. If the kernel lacks a feature, one thing is missing, and probes_support
 * says so. -errno, with *reterr: it cannot work at all, or the machine lacks something for a
 * moment.
 */
int probes_new(const struct probe_config *c, struct probes **ret, struct field_error *reterr);
struct probes *probes_free(struct probes *p); /* (os) detaches and unloads everything */

/*
 * (os) Makes the kernel's filter equal to want. It attaches the sampler if something is wanted (or
 * total), at the highest rate that is asked for, and detaches it if nothing is. Rates are limited
 * to 1..max_sample_hz. It also looks for CPUs that came or went, as a full drain does.
 *
 * The kernel selects a cgroup at once that is made below a selected one. It stays selected until a
 * drain has reported it; then want decides about it, too. After a failure everything that was
 * possible is done.
 */
int probes_filter(struct probes *p, const struct container_filter *want, size_t n);
/*
 * (os) drain_number: the last drain whose cgroups the next filter takes into account. Cgroups that
 * the kernel has selected since, and that later drains reported, stay. Without this call, all
 * drains are taken into account.
 */
void probes_knows(struct probes *p, uint64_t drain_number);
struct listed_process {
	struct process_id id; /* its start is compared in the grain of /proc/PID/stat, 10 ms */
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep; /* as in proc_containers_filter; 0: all */
	/* its samples carry the call (trace and span) in which they were taken */
	bool context;
};
int probes_list(struct probes *p, const struct listed_process *want, size_t n); /* (os) */

/*
 * Returns the tag that frames in this file have, wherever it is mapped, as long as its bytes stay.
 * Any thread may call it that may wait for a pod's file system. fd: open for reading. -EOPNOTSUPP:
 * no BPF program is loaded, or mappings cannot be read on this kernel; -errno: the file cannot be
 * mapped.
 */
int probes_file_tag(int fd, uint64_t *ret_tag);

/* ---- uprobes of a process: memory events ---- */
struct pf_mem_proc; /* bpf/abi.h */
struct probe_site {
	uint64_t file_offset, cookie; /* cookie: struct pf_site */
};
struct probe_file {
	int fd; /* borrowed: the file, as the process maps it */
	const struct probe_site *sites;
	size_t n_sites;
};
struct attached; /* the probes of one process */
/* Returns whether the machine lacks something for a moment, so that it may work later. */
static inline bool probes_may_pass(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EAGAIN || r == -EINTR;
}
/* Places that the kernel refused to probe, because it cannot decode their code. */
struct probes_refused {
	size_t n;   /* number of sites */
	/* one of them frees, so freed memory would seem to live: the process has no mem-inuse */
	bool inuse;
	bool too_many; /* there were more places than can be probed one by one */
};
/*
 * Attaches probes to a process, after a filter that asks for one of these events. Any thread that
 * may wait, but not the os worker; one thread at a time for one struct attached. It takes 0.1 to 16
 * ms a file, or 0.3 ms a site with classic uprobes. All places that can be probed are probed;
 * *ret_refused says which are not.
 *
 * -EAGAIN: not now: no filter has asked for these events yet, the agent still tries whether returns
 * are safe, or an urgent detach goes first. -EOPNOTSUPP: the events do not work here. -EEXIST: the
 * process is attached already. -ENOENT: there was no place to probe. -ESRCH: the process has ended.
 * Another error that may pass: what loading the programs lacked.
 */
int probes_attach(struct probes *p, struct process_id id,
		  const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		  struct attached **ret, struct probes_refused *ret_refused);
/*
 * Likewise: changes the places, the inner code or the events of the same program. It attaches and
 * detaches the difference; what lives stays known as long as mem-inuse is asked for. After a
 * failure, either the old or the new probes are attached. If the kernel refuses even that, some
 * events do not count until the next change that works.
 */
int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n,
			 struct probes_refused *ret_refused);
/*
 * Likewise: detaches. It takes 20 to 110 ms, most of it waiting for RCU; the probes stop slowing
 * the process long before that. The agent forgets what lives of the process.
 */
struct attached *probes_detach(struct probes *p, struct attached *a);
/* The same for many at once, in hardly more time than for one. The array remains the caller's. */
void probes_detach_all(struct probes *p, struct attached **items, size_t n);
/*
 * Likewise: waits for the end of a span: until the process was attached for max_ns, or its probes
 * had max_hits hits (checked each millisecond or more often). Then the caller detaches; hits
 * meanwhile do not count. *ret_ns and *ret_hits: time and hits since probes_attach returned.
 */
void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits);
/*
 * Returns whether the thread has ended by which the process is probed. Then the kernel does not
 * probe what the process maps from now on, and with some forms of probes it probes nothing any
 * more. probes_attach_change() probes the process by another thread. Any thread may call this while
 * a is not being changed or detached.
 */
bool probes_attached_lost(const struct attached *a);
/*
 * Returns whether the probes are hit without that thread, too, as long as no probe of another
 * process is removed. Callers as above.
 */
bool probes_attached_outlives(const struct attached *a);
/* Returns all hits so far. Any thread may call it while a is not being detached. */
uint64_t probes_attached_hits(const struct attached *a);
/*
 * Returns how many bytes the probes saw allocated. It is estimated from the samples of mem-alloc,
 * or else of mem-inuse: a sample stands for its event's sampleBytes. Callers as above.
 */
uint64_t probes_attached_bytes(const struct attached *a);
/*
 * Announces an urgent probes_detach(a). Until that begins, spans of other processes end, and no
 * process is attached (-EAGAIN). Callers as above.
 */
void probes_leave(struct attached *a);
/*
 * Any thread. Grows with each link that is made or closed, so it shows that a long attach or detach
 * makes progress.
 */
uint64_t probes_moves(struct probes *p);
/* Any thread. Spans end at once, and from now on no process is attached (-EAGAIN). */
void probes_attach_no_more(struct probes *p);
/*
 * Makes the next full drain have a snapshot of what lives, even if the last one was made just now.
 */
void probes_live_ask(struct probes *p);

/* ---- what events cost: bpf/abi.h, struct pf_usage; (os) ---- */
struct probe_usage {
	uint64_t cgroup_id;
	enum event event;
	uint64_t hits, taken, value, square; /* since the cgroup was first seen */
};
int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n); /* the caller frees */
/*
 * Returns what one hit of a uprobe now costs its process, in ns. It is measured by probing the
 * agent itself.
 */
uint64_t probes_trap_ns(struct probes *p);
/* Returns a text for people: how this kernel attaches uprobes. */
const char *probes_uprobe_form(const struct probes *p);

/* ---- drain: node/sample/sample.h ---- */
/*
 * (os) Quick: takes only what the ring holds now (processes and cgroups, so that mappings are read
 * soon); samples stay. Full: swaps the generations, and takes the samples of the old one with their
 * stacks and names. Samples that were lost are in drain.lost and in the counter
 * "podflame_samples_dropped_total", records that were lost are in drain.lost_records and in
 * "podflame_records_dropped_total". Both have a reason.
 */
int probes_drain(struct probes *p, bool full, struct drain **ret);
/*
 * Returns a descriptor that becomes readable when the kernel asks for a quick drain (new process or
 * cgroup).
 */
int probes_wake_fd(const struct probes *p);

/* ---- unwind tables: the kernel's side of node/unwind's ops; all (os) ---- */
struct pf_file; /* bpf/unwind_tables.h */
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
 * (os) Makes the next quick drain report every selected process that no drain has reported yet
 * (RAW_PROC_SEEN), sampled or not. So its tables are loaded before its first sample.
 */
int probes_announce(struct probes *p);

/* ---- what works here ---- */
struct support {
	const char *feature; /* "on-cpu", "cgroup-events", "process-events", "kernel-stacks", ... */
	bool ok;
	const char *reason; /* if not ok: why; else what is missing, if anything */
};
const struct support *probes_support(const struct probes *p, size_t *ret_n);
struct probes_stats {
	uint64_t ticks, filtered, thinned, delivered;
	uint64_t crossed;	    /* records about processes that the kernel sent */
	uint64_t run_ns, run_count; /* of all programs of podflame; 0: statistics are off */
	uint64_t ticks_ns;	    /* the part of run_ns that on-cpu's programs took */
	unsigned n_programs, n_links;
	unsigned node_hz;
};
int probes_stats(struct probes *p, struct probes_stats *ret); /* (os) */
