/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc: containers and processes of this node as the kernel shows them: cgroup paths and ids, which
 * of them the plan selects, and what /proc says of a process. A function says which thread may call
 * it. Functions return 0 or a negative errno.
 */
#pragma once

#include "node/plan/plan.h"

/* ---- cgroup paths: pure ---- */
#define CONTAINER_ID_BYTES 65
struct cgroup_ref {
	/* as in metadata.uid (with dashes), or the 32 hex digits of a static pod; "": none */
	char pod_uid[64];
	char container_id[CONTAINER_ID_BYTES];	/* "": a pod-level cgroup */
	bool runtime_helper;		/* crio-conmon-..., not a container */
	bool nested;			/* below the container's own cgroup */
	/* how many pods the path goes through: 2 and more in a cluster inside a container */
	unsigned pods_depth;
};
/*
 * Parses any path of cgroup v1 or v2, of the cgroupfs or systemd driver, of containerd, CRI-O or
 * Docker, and with nested kubepods (the deepest match counts). -ENOENT: it names no pod.
 */
int proc_cgroup_parse_path(const char *path, struct cgroup_ref *ret);

/* ---- hierarchy ---- */
struct cgroup_hierarchy {
	bool v2;
	char controller[32];		/* v1: "memory", "cpu", "pids"; v2: "" */
	char mount[256]; /* "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified" */
	uint32_t hierarchy_id;		/* 0: v2 */
	/*
	 * v1: index into task->cgroups->subsys. proc_cgroup_choose() always sets UINT32_MAX. Only
	 * probe may read BTF: it looks up "<controller>_cgrp_id" of enum cgroup_subsys_id when it
	 * loads programs.
	 */
	uint32_t subsys_index;
	char cpu_mount[256], cpuacct_mount[256];	/* v1: where CPU time is read; v2: "" */
};
/* force: "" | "v2" | "v1:memory" ... Returns -ENOENT and sets reterr if there is none. */
int proc_cgroup_choose(const char *force, struct cgroup_hierarchy *ret, struct field_error *reterr);
/* The id of a cgroup directory, as BPF sees it. path is relative to the hierarchy's mount. */
int proc_cgroup_id_of(const struct cgroup_hierarchy *h, const char *path, uint64_t *ret_id);

/*
 * What a cgroup has used since it was made, and how long its cpu.max (v1: cpu.cfs_quota_us) held it
 * back.
 */
struct cgroup_cpu {
	uint64_t usage_ns, throttled_ns, n_throttled;
};
/*
 * os or files worker. -ESTALE, -ENOENT: the cgroup is gone; -EPERM: no CAP_DAC_READ_SEARCH;
 * -ENODATA: it does not show its CPU time.
 */
int proc_cgroup_cpu_read(const struct cgroup_hierarchy *h, uint64_t cgroup_id,
			 struct cgroup_cpu *ret);

/* ---- a process ---- */
/*
 * Names one process among all that a machine ever runs. The kernel gives the same number (that of
 * the thread group, in the first PID namespace) to another process later. The structure has no
 * padding, because hash tables compare keys by their bytes.
 */
struct process_id {
	/* of its first thread: from proc_start_boottime(), or as BPF programs report it */
	uint64_t start_boottime_ns;
	uint64_t tgid;
};
/* For a record (a sample, a report of a process) that has both members. */
#define process_id_of(x) ((struct process_id){(x)->start_boottime_ns, (x)->tgid})
static inline bool process_id_equal(struct process_id a, struct process_id b)
{
	return a.tgid == b.tgid && a.start_boottime_ns == b.start_boottime_ns;
}
/* The kernel counts the execs of a process: task->self_exec_id, of which 32 bits are kept. */
static inline bool exec_is_older(uint32_t exec_id, uint32_t than)
{
	return (int32_t)(exec_id - than) < 0;
}

struct mapping {			/* executable mappings only */
	uint64_t start, end, file_offset;
	uint64_t inode, file_bytes;
	uint64_t ctime_ns;		/* of the inode; unlike mtime, its owner cannot set it */
	/* st_dev of fd; dev_major and dev_minor may be those of another layer (overlayfs) */
	uint64_t file_dev;
	uint32_t dev_major, dev_minor;
	/* as the process sees it, without " (deleted)"; "[vdso]"; "": anonymous (JIT) */
	char *path;
	bool deleted, library;		/* library: path contains ".so" */
	bool writable;
	bool shared;			/* writes go to the file; loaders map files privately */
	/*
	 * This is memory without a file that replaces this part of the file: a copy of its code,
	 * which programs make to use huge pages. The members above and fd are those of the file.
	 * backing_fd, set only for a copy, is what the kernel has mapped there.
	 */
	bool copy;
	int backing_fd;			/* a file in memory; -1: anonymous */
	uint64_t backing_offset;	/* offset of `start` in it */
	/*
	 * A file in memory without a name (memfd), or one with a name that is mapped shared.
	 * Another mapping may change its bytes without changing its ctime.
	 */
	bool memory_file;
	bool written; /* a memory file that this process has also mapped writable */
	/* the file's number in frames (probes_file_tag, bpf/unwind_tables.h); 0: not looked up */
	uint64_t tag;
	int fd; /* the mapped file, shared by mappings of one file; -1: open_error says why */
	int open_error;			/* -errno if fd is -1 */
};
/* Not changed once made. Shared by reference between threads. */
struct mappings {
	struct process_id id;
	uint32_t exec_id;
	uint64_t read_at_ns;
	uint64_t cost_ns;		/* CPU time for reading them and their tags */
	struct mapping *items;		/* sorted by start */
	size_t n;
	bool truncated;			/* there were more than MAPPINGS_MAX, which is counted */
	bool unsure;			/* mapping_is_unsure() for at least one */
	/*
	 * As the kernel counts them in mm->exec_vm (not writable, not a stack). If the kernel's
	 * count differs, mappings have changed since.
	 */
	uint64_t exec_pages;
	int root_fd;			/* O_PATH of the process's root directory; -1: none */
	unsigned refs;			/* atomic */
};
#define MAPPINGS_MAX 16384
/*
 * The bytes there may differ, at any time and without notice, from those that the file's names and
 * unwind rows were made from. Callers compare them before they use either (stack/code_compare.c).
 */
static inline bool mapping_is_unsure(const struct mapping *m)
{
	return m->copy || m->memory_file;
}
/* A process address minus the offset in what the kernel has mapped there, modulo 2^64. */
static inline uint64_t mapping_load(const struct mapping *m)
{
	return m->start - (m->copy ? m->backing_offset : m->file_offset);
}
/*
 * Whether the file of m->fd still has m->ctime_ns. If so, what was read of it before this call is
 * what was mapped.
 */
bool proc_mapping_file_is_unchanged(const struct mapping *m);
/*
 * Whether a file was written after the agent opened it. Then its names and unwind rows are not
 * those of the code that runs. proc_mapping_files_look() finds that out and takes about 1 us per
 * file that mappings hold. The caller calls it after samples were taken and before they get names.
 * It asks no server and no daemon of a file system. Any thread.
 */
void proc_mapping_files_look(void);
bool proc_mapping_files_were_written(void); /* any of them */
bool proc_mapping_file_was_written(const struct mapping *m);
/*
 * After reading a process's mappings, the agent pauses for MAPPINGS_REST times what that cost, so
 * that a program with 60,000 changing mappings costs no more than one with few. The pauses may be
 * late by MAPPINGS_ADVANCE_NS, because a library that is loaded and unloaded again is not there at
 * each reading.
 */
#define MAPPINGS_REST	    30
#define MAPPINGS_ADVANCE_NS (8 * NSEC_PER_SEC)
/* rest_ns: CLOCK_MONOTONIC, the end of the pauses for all readings so far; 0 at first. */
static inline uint64_t mappings_rest(uint64_t rest_ns, const struct mappings *m, uint64_t now_ns)
{
	return MAX(rest_ns, now_ns) + MAPPINGS_REST * m->cost_ns;
}
static inline bool mappings_may_be_read(uint64_t rest_ns, uint64_t now_ns)
{
	return now_ns + MAPPINGS_ADVANCE_NS >= rest_ns;
}
/*
 * Counts mappings that may not be read yet. The kernel asks again, as long as its samples need
 * them.
 */
static inline void mappings_count_resting(void)
{
	counter_add(counter("podflame_mappings_dropped_total", "reason", "resting"), 1);
}
/*
 * Reads /proc/PID/maps and opens the files. It may block as long as a pod's file system does: files
 * or attach worker. -ESRCH: the process is gone or ending, is another process by now, or is a
 * kernel thread. id.start_boottime_ns may differ by one clock tick.
 */
int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret);
/*
 * The same for the program that BPF reported, with the low half of mm->start_stack; 0: not known.
 * -ESTALE: it is another program by now, whose mappings do not belong to that exec.
 */
int proc_mappings_read_of(struct process_id id, uint32_t exec_id, uint32_t stack,
		     struct mappings **ret);
/* Why frames of other processes have no names on this machine; "": no reason is known. */
const char *proc_mappings_problem(void);
struct mappings *proc_mappings_ref(struct mappings *m);
struct mappings *proc_mappings_unref(struct mappings *m);
const struct mapping *proc_mappings_find(const struct mappings *m, uint64_t address);
/*
 * Start time of a process as in BPF's task->start_boottime. /proc/PID/stat has a precision of 10
 * ms, so compare with tolerance.
 */
int proc_start_boottime(uint32_t tgid, uint64_t *ret_ns);
/*
 * Returns 0 if the process exists and started then, with that tolerance; -ESRCH: it is gone, or
 * another one.
 */
int proc_check(struct process_id id);

/*
 * ---- living_thread.c: a process whose first thread has ended ----
 *
 * The first thread of a process may end before the others. Then /proc/PID shows neither maps,
 * memory, root, command line, environment nor (v1) cgroup, but another thread shows them. The
 * caller must check afterwards that it is still the same process.
 */
/* Opens the directory of a thread that lives, /proc/TID. -ESRCH: none lives. */
int proc_open_living(uint32_t tgid, int *ret_fd);
/*
 * The number of a thread that lives: the first one if it lives, otherwise the oldest. -ESRCH: none
 * lives.
 */
int proc_living_thread(uint32_t tgid, uint32_t *ret_tid);
/*
 * Whether this thread of the process has not ended; also true if that cannot be found out. Never
 * waits for the process.
 */
bool proc_thread_lives(uint32_t tgid, uint32_t tid);
/*
 * The same for a caller that asks often. Asking about an opened thread takes half the time, and the
 * answer is about that very thread. proc_thread_open() returns a descriptor or a negative errno.
 */
int proc_thread_open(uint32_t tgid, uint32_t tid);
bool proc_opened_thread_lives(int fd);
/*
 * For a process of which one thread has ended: whether all have. Returns false if that cannot be
 * found out. Never waits for the process.
 */
bool proc_has_ended(uint32_t tgid);

/* How much private memory a process has, and of which kind. Reading it takes some 30 us. */
struct proc_memory {
	uint64_t anon_bytes;		/* memory without a file that it uses, swapped out or not */
	uint64_t data_bytes; /* address space for such memory, without the first thread's stack */
	unsigned n_threads;
};
/*
 * -ESRCH: it is gone, or another process. -ENODATA: it has no memory, because it is ending or is a
 * kernel thread.
 */
int proc_memory(struct process_id id, struct proc_memory *ret);

/* ---- the owner of a sample ---- */
/* What fold needs to know of a container. Not changed once made; shared by reference. */
struct owner {
	unsigned refs;
	/*
	 * those of the container; until the API server names it, those of the pod and container_id
	 */
	struct tags tags;
	char *container_id, *pod_uid;
	size_t n_targets;
	char **target_uids;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_keep;		/* see proc_containers_keep_off() */
	double overhead_percent;	/* 0: no limit */
	bool java_attach;		/* the agent may ask its JVMs for their perf maps */
	bool unnamed; /* the API server has not named this container (yet): it may be the sandbox */
};
struct owner *proc_owner_ref(struct owner *o);	/* any thread */
struct owner *proc_owner_unref(struct owner *o);

/* ---- the table of containers: loop thread; now_ns is CLOCK_BOOTTIME ---- */
struct containers;
struct container_filter {			/* what the BPF filter should hold */
	uint64_t cgroup_id;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_note, off_keep; /* off-cpu: see proc_containers_keep_off(); off_note 0: all */
	bool listed;
	bool context;			/* samples name the call in which they were taken */
};
int proc_containers_new(struct containers **ret);
struct containers *proc_containers_free(struct containers *p);
/*
 * Takes a new plan over. Containers whose cgroup is not known yet (proc_containers_wants_scan) are
 * searched for with proc_cgroup_scan() on the os worker.
 */
void proc_containers_apply(struct containers *p, struct plan *plan, uint64_t now_ns);
const struct plan *proc_containers_plan(const struct containers *p);
bool proc_containers_wants_scan(const struct containers *p);
/*
 * Searches the hierarchy once for all cgroups that name a pod. os worker. The result goes to
 * proc_containers_scanned().
 */
struct cgroup_scan;
int proc_cgroup_scan(const struct cgroup_hierarchy *h, struct cgroup_scan **ret);
struct cgroup_scan *proc_cgroup_scan_free(struct cgroup_scan *s);
void proc_containers_scanned(struct containers *p, const struct cgroup_scan *s, uint64_t now_ns);
/* BPF has reported that a cgroup was made or removed. */
void proc_containers_cgroup(struct containers *p, uint64_t id, uint64_t parent_id,
			    const char *path, bool removed, uint64_t now_ns);
/*
 * Samples this container at most at hz, whatever the plan says; 0 lifts the cap. Returns false if
 * too many containers have a limit (counted). Then the plan's rate holds.
 */
bool proc_containers_cap_hz(struct containers *p, const char *container_id, unsigned hz);
/*
 * Off-cpu notes a switch of this container with probability (note + 1) / 2^32 and keeps it with
 * (keep + 1) / 2^32, which is not more; UINT32_MAX: always. A new owner of the container holds the
 * share for samples from now on. Earlier samples have the earlier owner. Returns false if too many
 * containers have a limit (counted). Then each switch of this one is recorded.
 */
bool proc_containers_keep_off(struct containers *p, const char *container_id,
			      uint32_t note, uint32_t keep);
/*
 * What the BPF filter should hold now; borrowed until the next call. *ret_changed: it is not the
 * same as in the last call.
 */
const struct container_filter *proc_containers_filter(struct containers *p, uint64_t now_ns,
						      size_t *ret_n, bool *ret_changed);
/*
 * Calls fn for each container that is selected now, with its own cgroup (not those below it). The
 * owner is borrowed.
 */
typedef void procs_container_fn(uint64_t cgroup_id, struct owner *o, void *arg);
void proc_containers_each_container(const struct containers *p, procs_container_fn *fn, void *arg);
/*
 * Returns a new reference to the owner of this cgroup's samples that were taken up to
 * *ret_until_ns. That is UINT64_MAX while the cgroup is selected, and otherwise the time when that
 * ended. NULL: none (sandbox, excluded, gone for more than 60 s).
 */
struct owner *proc_containers_owner(struct containers *p, uint64_t cgroup_id,
				    uint64_t *ret_until_ns);

/* ---- memory of the agent itself ---- */
/*
 * How much memory tables, or the cache of symbols, may take: wanted_bytes, but at most a quarter of
 * the memory limit of this process's cgroup, to which they are charged. Each parser child takes as
 * much again.
 */
size_t proc_memory_share(uint64_t wanted_bytes);
/*
 * The memory limit from given texts: /proc/self/cgroup, and files below a mount of cgroups. Exposed
 * for tests.
 */
uint64_t proc_memory_limit(const char *self_cgroup, const char *mount);
