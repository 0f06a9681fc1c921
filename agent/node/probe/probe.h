/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: BPF programs and maps: load, attach, filter, drain. The only directory
 * that includes libbpf and bpf/abi.h. Functions marked (os) run on the os worker:
 * they may take milliseconds and wait for RCU.
 */
#pragma once

#include "node/proc/proc.h"
#include "node/sample/sample.h"

struct probe_config {
	struct cgroup_hierarchy hierarchy;
	bool use_cgroups; /* false: only the process list (record --pid, local) */
	bool use_list;	  /* process list look-up compiled in (read-only-data switch) */
	bool total;	  /* count {leader comm, thread comm} of everything */
	bool per_cpu;	  /* `cpu` in the key */
	unsigned max_sample_hz;
	size_t ring_bytes, count_entries; /* 0: defaults by the number of CPUs */
};
struct probes;
/* (os) Loads; a missing feature removes one thing and is told by probes_support. */
int probes_new(const struct probe_config *c, struct probes **ret, struct field_error *reterr);
struct probes *probes_free(struct probes *p); /* (os) detaches and unloads all */

/*
 * (os) Makes the kernel's filter equal to want; attaches the sampler when something is wanted
 * (or total), at the highest rate asked for; detaches it when nothing is. A cgroup made below a
 * selected one is selected in the kernel at once; it stays so until a drain has told of it, then
 * want decides about it too. Rates are held to 1..max_sample_hz; CPUs that came or went are
 * looked for (by a full drain, too). A failure leaves what could be done done.
 */
int probes_filter(struct probes *p, const struct container_filter *want, size_t n);
/*
 * (os) The last drain whose cgroups the next filter's maker knew: what the kernel has selected since, and later
 * drains told of, stays. Without this it is all drains.
 */
void probes_knows(struct probes *p, uint64_t drain_number);
struct listed_process {
	uint32_t tgid;
	uint64_t start_boottime_ns; /* of /proc/PID/stat: compared in its grain of 10 ms */
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep; /* as proc_containers_filter has them; 0: all */
	bool context;	   /* its samples carry the call they were taken in */
};
int probes_list(struct probes *p, const struct listed_process *want, size_t n); /* (os) */

/*
 * The tag that frames in this file have, wherever it is mapped, as long as its bytes stay. For
 * any thread that may wait for a pod's file system. fd: open for reading. -EOPNOTSUPP: no BPF
 * program is loaded, or what is mapped cannot be read on this kernel; -errno: the file cannot be
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
/* What the machine lacks for a moment: it may work later. */
static inline bool probes_may_pass(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EAGAIN || r == -EINTR;
}
/* The kernel refuses to probe code that it cannot decode. */
struct probes_refused {
	size_t n;   /* sites */
	bool inuse; /* of which one frees: all of it would seem to live. So the process has no mem-inuse */
	bool too_many; /* there were more places than can be probed each by itself */
};
/*
 * Any thread that may wait, not the os worker; what is done to one struct attached is done by one thread at a time: 0.1 to 16 ms a file; with classic uprobes 0.3 ms a site. All of
 * what works is attached; *ret_refused: what is not. After a filter that asks for one of these events: else
 * -EOPNOTSUPP; what loading its programs lacked, where that may pass. -EEXIST: the process is attached already.
 */
int probes_attach(struct probes *p, struct process_id id,
		  const struct pf_mem_proc *proc, const struct probe_file *files, size_t n,
		  struct attached **ret, struct probes_refused *ret_refused);
/*
 * Likewise: other places, other inner code, other events of the same program: attaches and detaches the
 * difference; what lives stays known as long as mem-inuse is asked for. A failure leaves what was attached,
 * or what is to be; should the kernel not take even that, what does not count then counts after the next change that works.
 */
int probes_attach_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			 const struct probe_file *files, size_t n, struct probes_refused *ret_refused);
/*
 * Likewise; 20 to 110 ms, most of it waiting for RCU: the process runs free again much sooner. For mem-inuse this
 * forgets what lives.
 */
struct attached *probes_detach(struct probes *p, struct attached *a);
/* The same of many at once: hardly longer than of one. The array stays the caller's. */
void probes_detach_all(struct probes *p, struct attached **items, size_t n);
/*
 * Likewise, of a span: waits until it is attached for max_ns, or was hit max_hits times (looked at each
 * millisecond or sooner); then the caller detaches: what comes meanwhile does not count. Since probes_attach
 * returned: how long, how many hits.
 */
void probes_attached_wait(const struct attached *a, uint64_t max_ns, uint64_t max_hits,
			  uint64_t *ret_ns, uint64_t *ret_hits);
/*
 * Whether the thread has ended by which the process is probed. Then the kernel does not probe
 * what the process maps from now on, and with some forms of probes nothing any more:
 * probes_attach_change() probes it by another thread. Any thread may call this while a is not
 * being changed or detached.
 */
bool probes_attached_lost(const struct attached *a);
/* The same: its probes are hit without that thread, too, as long as none of another process are taken away. */
bool probes_attached_outlives(const struct attached *a);
/* Any thread, while it is not being detached: all hits so far. */
uint64_t probes_attached_hits(const struct attached *a);
/*
 * Bytes that the probes saw allocated, estimated from the samples of mem-alloc, else of
 * mem-inuse: a sample stands for its event's sampleBytes. Callers as above.
 */
uint64_t probes_attached_bytes(const struct attached *a);
/* The same: it is about to be detached, and that is urgent. Until that begins others' spans end, and none is attached (-EAGAIN). */
void probes_leave(struct attached *a);
/* Any thread: goes up with each link that is made or closed: who attaches or detaches long gets on. */
uint64_t probes_moves(struct probes *p);
/* Any thread: spans end at once, and from now on nothing is attached (-EAGAIN). */
void probes_attach_no_more(struct probes *p);
/* The next full drain has a snapshot of what lives, even if the last one was just now. */
void probes_live_ask(struct probes *p);

/* ---- what events cost: bpf/abi.h, struct pf_usage; (os) ---- */
struct probe_usage {
	uint64_t cgroup_id;
	enum event event;
	uint64_t hits, taken, value, square; /* since the cgroup was first seen */
};
int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n); /* caller frees */
/* What one hit of a uprobe costs its process these days, measured by probing ourselves; ns. */
uint64_t probes_trap_ns(struct probes *p);
/* How this kernel attaches uprobes, for people. */
const char *probes_uprobe_form(const struct probes *p);

/* ---- drain: node/sample/sample.h ---- */
/*
 * (os) Quick: only what the ring holds now (processes and cgroups, for prompt
 * reading of mappings); samples stay. Full: swaps the generations, takes the
 * samples of the old one with their stacks and names. Losses go to counters
 * "podflame_samples_dropped_total" (and the report's losses) and, where only a record is
 * concerned, "podflame_records_dropped_total", each by reason.
 */
int probes_drain(struct probes *p, bool full, struct drain **ret);
/* Becomes readable when the kernel asks for a quick drain (new process, new cgroup). */
int probes_wake_fd(const struct probes *p);

/* ---- unwind tables: the kernel's side of node/unwind's ops; all (os) ---- */
struct pf_file; /* bpf/tables.h */
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
 * (os) Every selected process that no drain has told of yet is told of by the next quick drain
 * (RAW_PROC_SEEN), sampled or not: its tables are there before its first sample then.
 */
int probes_announce(struct probes *p);

/* ---- what works here ---- */
struct support {
	const char *feature; /* "on-cpu", "cgroup-events", "process-events", "kernel-stacks", ... */
	bool ok;
	const char *reason; /* when not ok, or what was missing */
};
const struct support *probes_support(const struct probes *p, size_t *ret_n);
struct probes_stats {
	uint64_t ticks, filtered, thinned, delivered;
	uint64_t crossed;	    /* records about processes that left the kernel */
	uint64_t run_ns, run_count; /* of all our programs; 0 when statistics are off */
	uint64_t ticks_ns;	    /* of run_ns, what on-cpu's programs took */
	unsigned n_programs, n_links;
	unsigned node_hz;
};
int probes_stats(struct probes *p, struct probes_stats *ret); /* (os) */
