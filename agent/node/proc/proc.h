/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc: containers and processes of this node as the kernel shows them: cgroup
 * paths and ids, which of them the plan wants, and the processes seen in them.
 */
#pragma once

#include "node/plan/plan.h"

/* ---- cgroup paths: pure ---- */
#define CONTAINER_ID_BYTES 65
struct cgroup_ref {
	char pod_uid[64];		/* as metadata.uid writes it (dashes), or 32 hex of a static pod; "" if none */
	char container_id[CONTAINER_ID_BYTES];	/* "" for a pod-level cgroup */
	bool runtime_helper;		/* crio-conmon-..., not a container */
	bool nested;			/* below the container's own cgroup */
	unsigned pods_depth;		/* pods that the path goes through: 2 and more in a cluster inside a container */
};
/* Any path of cgroup v1 or v2, cgroupfs or systemd driver, containerd, CRI-O, Docker, nested
 * kubepods (the deepest match wins); -ENOENT: no pod in it. */
int proc_cgroup_parse_path(const char *path, struct cgroup_ref *ret);

/* ---- hierarchy ---- */
struct cgroup_hierarchy {
	bool v2;
	char controller[32];		/* v1: "memory", "cpu", "pids"; v2: "" */
	char mount[256];		/* "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified" */
	uint32_t hierarchy_id;		/* 0: v2 */
	/* v1: index into task->cgroups->subsys. Always UINT32_MAX from proc_cgroup_choose: only probe may read
	 * BTF, it looks up "<controller>_cgrp_id" of enum cgroup_subsys_id at load. */
	uint32_t subsys_index;
	char cpu_mount[256], cpuacct_mount[256];	/* v1: where CPU time is told; "": in v2 */
};
/* force: "" | "v2" | "v1:memory" ... ; -ENOENT with reterr when there is none. */
int proc_cgroup_choose(const char *force, struct cgroup_hierarchy *ret, struct field_error *reterr);
/* id of a cgroup directory, as BPF sees it; path relative to the hierarchy's mount. */
int proc_cgroup_id_of(const struct cgroup_hierarchy *h, const char *path, uint64_t *ret_id);

/* What a cgroup used since it was made, and was kept from using by its cpu.max (v1: cpu.cfs_quota_us). */
struct cgroup_cpu {
	uint64_t usage_ns, throttled_ns, n_throttled;
};
/* os or files worker. -ESTALE, -ENOENT: the cgroup is gone; -EPERM: no CAP_DAC_READ_SEARCH; -ENODATA: its CPU time is not told. */
int proc_cgroup_cpu_read(const struct cgroup_hierarchy *h, uint64_t cgroup_id, struct cgroup_cpu *ret);

/* ---- a process ---- */
/*
 * One process among all that a machine runs: the kernel gives its number (the thread group's, in the
 * first PID namespace) to another process later. Without padding: keys of hash tables are compared
 * by their bytes.
 */
struct process_id {
	uint64_t start_boottime_ns;	/* of its first thread: proc_start_boottime, or as BPF programs report it */
	uint64_t tgid;
};
/* Of a structure (a sample, mappings, ...) that has both members. */
#define process_id_of(x) ((struct process_id){(x)->start_boottime_ns, (x)->tgid})
static inline bool process_id_equal(struct process_id a, struct process_id b)
{
	return a.tgid == b.tgid && a.start_boottime_ns == b.start_boottime_ns;
}

struct mapping {			/* executable mappings only */
	uint64_t start, end, file_offset;
	uint64_t inode, file_bytes;
	uint64_t ctime_ns;		/* of the inode: unlike mtime, its owner cannot set it */
	uint64_t file_dev;		/* st_dev of fd: dev_major and dev_minor may be another layer's (overlayfs) */
	uint32_t dev_major, dev_minor;
	char *path;			/* as the process sees it, " (deleted)" taken off; "[vdso]"; "" anonymous (JIT) */
	bool deleted, library;		/* library: path contains ".so" */
	bool writable;
	bool shared;			/* writes go to the file; loaders map files privately */
	/*
	 * Memory without a file, in the place of this part of the file: a copy of its code, as programs make it that want
	 * huge pages. The members above and fd are the file's; what the kernel has mapped there is backing_fd's, of a copy only.
	 */
	bool copy;
	int backing_fd;			/* a file in memory; -1: anonymous */
	uint64_t backing_offset;	/* of start in it */
	/*
	 * A file in memory without a name (memfd), or one with a name that is mapped shared: another mapping may rewrite it, and
	 * its ctime stays.
	 */
	bool memory_file;
	bool written;			/* a memory file that this process has mapped to be written, too */
	uint64_t tag;			/* the file, as frames name it (probes_file_tag, bpf/tables.h); 0: not looked for */
	int fd;				/* the mapped file, shared by mappings of one file; -1: open_error says why */
	int open_error;			/* -errno with fd == -1 */
};
/* Immutable once made, shared by reference between threads. */
struct mappings {
	uint32_t tgid, exec_id;
	uint64_t start_boottime_ns, read_at_ns;
	uint64_t cost_ns;		/* CPU time that reading them took, with their tags */
	struct mapping *items;		/* sorted by start */
	size_t n;
	bool truncated;			/* more than MAPPINGS_MAX: counted */
	bool unsure;			/* mapping_is_unsure() of some */
	/* As the kernel counts them in mm->exec_vm (not writable, not a stack): when it differs,
	 * mappings have changed since. */
	uint64_t exec_pages;
	int root_fd;			/* O_PATH of the process's root directory; -1: none */
	unsigned refs;			/* atomic */
};
#define MAPPINGS_MAX 16384
/*
 * The bytes there may differ, at any time and without notice, from those that the file's names and
 * unwind rows were made of: callers compare them before they use either (stack/compared.c).
 */
static inline bool mapping_is_unsure(const struct mapping *m)
{
	return m->copy || m->memory_file;
}
/* Process address - offset in what the kernel has mapped there, modulo 2^64. */
static inline uint64_t mapping_load(const struct mapping *m)
{
	return m->start - (m->copy ? m->backing_offset : m->file_offset);
}
/* Whether the file that m->fd is of still has m->ctime_ns: what is read of it before this call is what was mapped. */
bool proc_mapping_file_is_unchanged(const struct mapping *m);
/*
 * Whether a file was written after it was opened here: its names and unwind rows are not of what
 * runs there. proc_mapping_files_look() finds that out, about 1 us a file that mappings hold; the caller
 * does it after samples were taken and before they get names. It asks no server and no daemon of a
 * file system. Any thread.
 */
void proc_mapping_files_look(void);
bool proc_mapping_files_were_written(void); /* any of them */
bool proc_mapping_file_was_written(const struct mapping *m);
/*
 * After a reading of a process's mappings the agent owes a pause of MAPPINGS_REST times its cost,
 * so that a program with 60,000 changing mappings costs no more than one with few. It may be
 * MAPPINGS_ADVANCE_NS of pauses behind: a library that comes and goes is not there at each
 * reading.
 */
#define MAPPINGS_REST	    30
#define MAPPINGS_ADVANCE_NS (8 * NSEC_PER_SEC)
/* rest_ns: CLOCK_MONOTONIC, the end of the pauses of all readings so far; 0 at first. */
static inline uint64_t mappings_rest(uint64_t rest_ns, const struct mappings *m, uint64_t now_ns)
{
	return MAX(rest_ns, now_ns) + MAPPINGS_REST * m->cost_ns;
}
static inline bool mappings_may_be_read(uint64_t rest_ns, uint64_t now_ns)
{
	return now_ns + MAPPINGS_ADVANCE_NS >= rest_ns;
}
/* They may not: the kernel asks again, as long as its samples need them. */
static inline void mappings_count_resting(void)
{
	counter_add(counter("podflame_mappings_dropped_total", "reason", "resting"), 1);
}
/* Reads /proc/PID/maps and opens the files; os worker. -ESRCH: gone or ending, another process by now, a kernel thread.
 * One clock tick of difference in id.start_boottime_ns is none. */
int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret);
/*
 * The same of the program that BPF told of, with the low half of mm->start_stack; 0: not known. -ESTALE: it is another one
 * by now, whose mappings are not of that exec.
 */
int proc_mappings_read_of(struct process_id id, uint32_t exec_id, uint32_t stack,
		     struct mappings **ret);
/* Why frames of other processes have no names here; "": nothing known. */
const char *proc_mappings_problem(void);
struct mappings *proc_mappings_ref(struct mappings *m);
struct mappings *proc_mappings_unref(struct mappings *m);
const struct mapping *proc_mappings_find(const struct mappings *m, uint64_t address);
/* Start time of a process as BPF's task->start_boottime (10 ms grain of /proc/PID/stat: compare with tolerance). */
int proc_start_boottime(uint32_t tgid, uint64_t *ret_ns);
/* 0: it is the process that started then, by that tolerance; -ESRCH: gone, or another one. */
int proc_check(struct process_id id);

/*
 * ---- living.c: the first thread of a process may end before the others ----
 * Then /proc/PID shows neither maps, memory, root, command line, environment nor (v1) cgroup; another thread shows them.
 * The caller makes sure afterwards that it is still the process that it means.
 */
/* The directory of a thread that lives, /proc/TID. -ESRCH: none does. */
int proc_open_living(uint32_t tgid, int *ret_fd);
/* The number of a thread that lives: the first one's while that lives, else that of the oldest. -ESRCH: none does. */
int proc_living_thread(uint32_t tgid, uint32_t *ret_tid);
/* Whether this thread of the process has not ended; true, too, where that cannot be told. Never waits for the process. */
bool proc_thread_lives(uint32_t tgid, uint32_t tid);
/*
 * The same for a caller that asks often: to ask an opened thread takes half the time, and the
 * answer is of that thread alone. -errno: it is not opened.
 */
int proc_thread_open(uint32_t tgid, uint32_t tid);
bool proc_opened_thread_lives(int fd);
/*
 * Of a process of which a thread has ended: whether all have. false where that cannot be told.
 * Never waits for it.
 */
bool proc_has_ended(uint32_t tgid);

/* How much private memory a process has, and of what; costs some 30 us. */
struct proc_memory {
	uint64_t anon_bytes;		/* memory without a file that it uses, swapped out or not */
	uint64_t data_bytes;		/* address space for such memory, but the first thread's stack */
	unsigned n_threads;
};
/* -ESRCH: gone, or another process. -ENODATA: it has no memory: it is ending, or the kernel's. */
int proc_memory(struct process_id id, struct proc_memory *ret);

/* ---- who a sample belongs to ---- */
/* Immutable, shared by reference: what fold needs to know of a container. */
struct owner {
	unsigned refs;
	struct tags tags;		/* container's tags; until the API names it, the pod's and container_id */
	char *container_id, *pod_uid;
	size_t n_targets;
	char **target_uids;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_keep;		/* as proc_containers_filter has it */
	double overhead_percent;	/* 0: no limit */
	bool java_attach;		/* JVMs may be asked for their perf maps */
	bool unnamed;			/* the API server does not name this container (yet): may be the sandbox */
};
struct owner *proc_owner_ref(struct owner *o);	/* any thread */
struct owner *proc_owner_unref(struct owner *o);

/* ---- the table: loop thread; now_ns is CLOCK_BOOTTIME ---- */
struct containers;
struct container_filter {			/* wanted content of the BPF filter */
	uint64_t cgroup_id;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep;	/* off-cpu: proc_containers_keep_off; off_note 0: all */
	bool listed;
	bool context;			/* samples carry the call they were taken in */
};
int proc_containers_new(struct containers **ret);
struct containers *proc_containers_free(struct containers *p);
/*
 * Takes over a new plan (freed by procs). Containers whose cgroup is not known
 * yet (proc_containers_wants_scan) are looked up by proc_cgroup_scan on the os worker.
 */
void proc_containers_apply(struct containers *p, struct plan *plan, uint64_t now_ns);
const struct plan *proc_containers_plan(const struct containers *p);
bool proc_containers_wants_scan(const struct containers *p);
/* Walks the hierarchy once for all cgroups that name a pod; os worker; the result goes to proc_containers_scanned. */
struct cgroup_scan;
int proc_cgroup_scan(const struct cgroup_hierarchy *h, struct cgroup_scan **ret);
struct cgroup_scan *proc_cgroup_scan_free(struct cgroup_scan *s);
void proc_containers_scanned(struct containers *p, const struct cgroup_scan *s, uint64_t now_ns);
/* From BPF: a cgroup was made or removed. */
void proc_containers_cgroup(struct containers *p, uint64_t id, uint64_t parent_id, const char *path, bool removed,
		  uint64_t now_ns);
/*
 * Never more than hz for this container, whatever the plan says; 0 lifts the cap. False: too many containers have a limit
 * (counted), the plan's rate holds.
 */
bool proc_containers_cap_hz(struct containers *p, const char *container_id, unsigned hz);
/*
 * Off-cpu of this container notes a switch with probability (note + 1) / 2^32, and keeps it with (keep + 1) / 2^32,
 * which is not more; UINT32_MAX: each. Its owner, taken anew, says what is kept from now on: what was kept before has
 * the owner of before. False: too many containers have a limit (counted), each switch of this one is looked at.
 */
bool proc_containers_keep_off(struct containers *p, const char *container_id, uint32_t note, uint32_t keep);
/* What the BPF filter should hold now; borrowed until the next call. Changes when *ret_changed. */
const struct container_filter *proc_containers_filter(struct containers *p, uint64_t now_ns, size_t *ret_n, bool *ret_changed);
/* Each container that is selected now, by its own cgroup (not those below it). The owner is borrowed. */
typedef void procs_container_fn(uint64_t cgroup_id, struct owner *o, void *arg);
void proc_containers_each_container(const struct containers *p, procs_container_fn *fn, void *arg);
/*
 * Who owns samples of this cgroup that were taken up to *ret_until_ns (UINT64_MAX: it is selected
 * now; else when that ended); NULL: nobody (sandbox, excluded, gone for more than 60 s). New reference.
 */
struct owner *proc_containers_owner(struct containers *p, uint64_t cgroup_id, uint64_t *ret_until_ns);

/* ---- memory of the agent itself ---- */
/*
 * What tables may take, or the cache of symbols: wanted_bytes, but at most a quarter of the memory
 * limit of this process's cgroup, which they are charged to. Each parse child takes as much.
 */
size_t proc_memory_share(uint64_t wanted_bytes);
/* The same of given texts: /proc/self/cgroup, and files below a mount of cgroups; exposed for tests. */
uint64_t proc_memory_limit(const char *self_cgroup, const char *mount);
