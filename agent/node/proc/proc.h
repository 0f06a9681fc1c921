/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc: containers and processes of this node as the kernel shows them: cgroup paths and ids, which
 * of them the plan selects, and what /proc shows of a process. The comment of a function names the
 * thread that may call it. Functions return 0 or a negative errno.
 */
#pragma once

#include "node/plan/plan.h"

/* ---- cgroup paths: pure ---- */
#define CONTAINER_ID_BYTES 65
struct cgroup_ref {
	/* uid as in metadata.uid (with dashes), or the 32 hex digits of a static pod */
	char pod_uid[64];
	char container_id[CONTAINER_ID_BYTES];	/* "": the path is of the pod's own cgroup */
	bool runtime_helper;		/* crio-conmon-..., which is not a container */
	bool nested;			/* the path is below the container's own cgroup */
	/* how many pods the path names: 2 and more in a cluster inside a container */
	unsigned pods_depth;
};
/*
 * Parses any path of cgroup v1 or v2, of the cgroupfs or systemd driver, of containerd, CRI-O or
 * Docker. If kubepods are nested, the deepest pod counts. -ENOENT: the path names no pod.
 */
int proc_cgroup_parse_path(const char *path, struct cgroup_ref *ret);

/* ---- hierarchy ---- */
struct cgroup_hierarchy {
	bool v2;
	char controller[32];		/* v1: "memory", "cpu" or "pids"; v2: "" */
	/*
	 * mount of the hierarchy: "/sys/fs/cgroup", "/sys/fs/cgroup/memory",
	 * "/sys/fs/cgroup/unified"
	 */
	char mount[256];
	uint32_t hierarchy_id;		/* v1: number in /proc/cgroups; v2: 0 */
	/*
	 * v1: index in task->cgroups->subsys. proc_cgroup_choose() always sets UINT32_MAX. Only the
	 * module probe may read BTF: it looks up "<controller>_cgrp_id" of enum cgroup_subsys_id
	 * when it loads programs.
	 */
	uint32_t subsys_index;
	/* v1: mounts from which CPU time is read; v2: "" */
	char cpu_mount[256], cpuacct_mount[256];
};
/*
 * Chooses the cgroup hierarchy. force: "" (any), "v2", "v1:memory", ... If there is no such
 * hierarchy, returns -ENOENT and sets reterr.
 */
int proc_cgroup_choose(const char *force, struct cgroup_hierarchy *ret, struct field_error *reterr);
/*
 * Finds the id of a cgroup directory, which BPF programs also see. path is relative to the
 * hierarchy's mount.
 */
int proc_cgroup_id_of(const struct cgroup_hierarchy *h, const char *path, uint64_t *ret_id);

/*
 * CPU time that a cgroup has used since it was made, and for how long and how often its cpu.max
 * (v1: cpu.cfs_quota_us) kept it from running.
 */
struct cgroup_cpu {
	uint64_t usage_ns, throttled_ns, n_throttled;
};
/*
 * Reads the CPU time of a cgroup. os or files worker. -ESTALE, -ENOENT: the cgroup is removed;
 * -EPERM: CAP_DAC_READ_SEARCH is missing; -ENODATA: the cgroup does not show its CPU time.
 */
int proc_cgroup_cpu_read(const struct cgroup_hierarchy *h, uint64_t cgroup_id,
			 struct cgroup_cpu *ret);

/* ---- a process ---- */
/*
 * Identifies one process among all that the machine runs until its next boot. The number alone
 * (that of the thread group, in the first PID namespace) is not enough, because the kernel uses it
 * again. The structure has no padding, because hash tables compare keys by their bytes.
 */
struct process_id {
	/*
	 * start time of its first thread: from proc_start_boottime(), or as BPF programs report it
	 */
	uint64_t start_boottime_ns;
	uint64_t tgid;
};
/* The process_id of a record (a sample, a report of a process) that has both members. */
#define process_id_of(x) ((struct process_id){(x)->start_boottime_ns, (x)->tgid})
static inline bool process_id_equal(struct process_id a, struct process_id b)
{
	return a.tgid == b.tgid && a.start_boottime_ns == b.start_boottime_ns;
}
/*
 * Whether exec_id is of an earlier exec than the exec id `than`. The kernel counts the execs of a
 * process in task->self_exec_id, of which 32 bits are kept.
 */
static inline bool exec_is_older(uint32_t exec_id, uint32_t than)
{
	return (int32_t)(exec_id - than) < 0;
}

struct mapping {			/* an executable mapping of a process */
	uint64_t start, end, file_offset;
	uint64_t inode, file_bytes;
	/* change time of the inode; unlike mtime, the file's owner cannot set it */
	uint64_t ctime_ns;
	/*
	 * st_dev of fd. dev_major and dev_minor, from maps, may be those of another layer
	 * (overlayfs)
	 */
	uint64_t file_dev;
	uint32_t dev_major, dev_minor;
	/* the path as the process sees it, without " (deleted)"; "[vdso]"; "": anonymous memory */
	char *path;
	bool deleted;
	bool writable;
	/* MAP_SHARED: writes go to the file. Loaders map files privately */
	bool shared;
	/*
	 * At these addresses the process does not have the file, but other memory with a copy of
	 * the file's code. Programs make such copies to use huge pages. The members above and fd
	 * are those of the file. backing_fd and backing_offset are those of the memory, and set
	 * only for a copy.
	 */
	bool copy;
	int backing_fd;			/* the file in memory; -1: anonymous */
	uint64_t backing_offset;	/* offset of the memory that is mapped at `start` */
	/*
	 * The file is in memory and has no name (memfd), or it has a name and is mapped shared.
	 * Another mapping may change its bytes without changing its ctime.
	 */
	bool memory_file;
	bool written; /* a memory file of which this process also has a writable mapping */
	/* the file's number in frames (probes_file_tag, bpf/unwind_tables.h); 0: not known yet */
	uint64_t tag;
	int fd; /* the opened file; mappings of one file share it. -1: open_error has the reason */
	int open_error;			/* -errno if fd is -1 */
};
/*
 * The executable mappings of a process. Not changed after they are made. Threads share them by
 * reference.
 */
struct mappings {
	struct process_id id;
	uint32_t exec_id;
	uint64_t read_at_ns;
	uint64_t cost_ns;		/* CPU time for reading the mappings and their tags */
	struct mapping *items;		/* sorted by start */
	size_t n;
	/* the process had more than MAPPINGS_MAX mappings, or too many lines, which is counted */
	bool truncated;
	bool unsure;			/* mapping_is_unsure() is true for at least one of them */
	/*
	 * number of pages that the kernel counts in mm->exec_vm (executable, not writable, not a
	 * stack). If the kernel's number is another one, the mappings have changed since
	 */
	uint64_t exec_pages;
	int root_fd;			/* the process's root directory (O_PATH); -1: none */
	uint64_t charged_ns;		/* of struct charged, for node/runtime; 0: nobody set it */
	uint64_t cgroup_id;		/* of the process, for node/stack; 0: nobody set it */
	unsigned refs;			/* changed atomically */
};
#define MAPPINGS_MAX 16384
/*
 * Whether the bytes at this mapping may differ from those that the file's names and unwind rows
 * were made from. They may also change at any time, and the agent gets no report of it. Callers
 * compare the bytes before they use the names or rows (stack/code_compare.c).
 */
static inline bool mapping_is_unsure(const struct mapping *m)
{
	return m->copy || m->memory_file;
}
/*
 * Returns what to subtract from a process address (modulo 2^64) to get the offset in the file or
 * memory that the kernel has mapped there.
 */
static inline uint64_t mapping_load(const struct mapping *m)
{
	return m->start - (m->copy ? m->backing_offset : m->file_offset);
}
/*
 * Whether the file of m->fd still has m->ctime_ns. If so, the data that was read of it before this
 * call is the data that was mapped.
 */
bool proc_mapping_file_is_unchanged(const struct mapping *m);
/*
 * proc_mapping_files_look() finds out which files were written after the agent opened them. The
 * names and unwind rows of such a file do not belong to the code that runs. It takes about 1 us per
 * file that mappings hold. The caller calls it after samples were taken and before they get names.
 * It does not wait for a server or a daemon of a file system. Any thread.
 */
void proc_mapping_files_look(void);
bool proc_mapping_files_were_written(void); /* whether any file was written */
bool proc_mapping_file_was_written(const struct mapping *m);
/*
 * After reading a process's mappings, the agent pauses for MAPPINGS_REST times the CPU time that it
 * took. So a program with 60,000 changing mappings does not cost more than one with few. A reading
 * may come up to MAPPINGS_ADVANCE_NS before the pauses end, so that a few can follow each other: a
 * single one may miss a library that is loaded and unloaded again and again.
 */
#define MAPPINGS_REST	    30
#define MAPPINGS_ADVANCE_NS (8 * NSEC_PER_SEC)
/*
 * rest_ns: CLOCK_MONOTONIC, when the pauses for all readings so far end; 0 at first. Returns its
 * new value.
 */
static inline uint64_t mappings_rest(uint64_t rest_ns, const struct mappings *m, uint64_t now_ns)
{
	return MAX(rest_ns, now_ns) + MAPPINGS_REST * m->cost_ns;
}
static inline bool mappings_may_be_read(uint64_t rest_ns, uint64_t now_ns)
{
	return now_ns + MAPPINGS_ADVANCE_NS >= rest_ns;
}
/*
 * Counts a request to read mappings that came during the pause. The kernel repeats the request as
 * long as its samples need the mappings.
 */
static inline void mappings_count_resting(void)
{
	counter_add(counter("podflame_mappings_dropped_total", "reason", "resting"), 1);
}
/*
 * Reads /proc/PID/maps and opens the files. It may block as long as a pod's file system does not
 * answer: files or attach worker. -ESRCH: the process has ended or is ending, the PID now belongs
 * to another process, or it is a kernel thread. id.start_boottime_ns may differ by one clock tick.
 */
int proc_mappings_read(struct process_id id, uint32_t exec_id, struct mappings **ret);
/*
 * As proc_mappings_read(), for the program that BPF reported. stack: the low half of its
 * mm->start_stack; 0: not known. -ESTALE: the process executes another program now, whose mappings
 * do not belong to that exec.
 */
int proc_mappings_read_of(struct process_id id, uint32_t exec_id, uint32_t stack,
		     struct mappings **ret);
/* Returns why frames of other processes get no names on this machine; "": no reason is known. */
const char *proc_mappings_problem(void);
struct mappings *proc_mappings_ref(struct mappings *m);
struct mappings *proc_mappings_unref(struct mappings *m);
const struct mapping *proc_mappings_find(const struct mappings *m, uint64_t address);
/*
 * Reads the start time of a process, as BPF's task->start_boottime. /proc/PID/stat rounds it to 10
 * ms, so the caller must not compare it exactly.
 */
int proc_start_boottime(uint32_t tgid, uint64_t *ret_ns);
/*
 * Returns 0 if the process exists and its start time is that of id, except for the rounding.
 * -ESRCH: it has ended, or the PID now belongs to another process.
 */
int proc_check(struct process_id id);
/* As proc_check(). -ESRCH, too: its threads have ended, but its parent has not waited for it. */
int proc_check_living(struct process_id id);

/*
 * ---- living_thread.c: a process whose first thread has ended ----
 *
 * The first thread of a process may end before the others. Then /proc/PID shows neither maps,
 * memory, root, command line, environment nor (v1) cgroup, but the directory of another thread
 * shows them. The caller must check afterwards that it is still the same process.
 */
/* Opens /proc/TID of a thread of the process that lives. -ESRCH: no thread of the process lives. */
int proc_open_living(uint32_t tgid, int *ret_fd);
/*
 * Finds the number of a thread that lives: the first one if it lives, otherwise the oldest. -ESRCH:
 * no thread of the process lives.
 */
int proc_living_thread(uint32_t tgid, uint32_t *ret_tid);
/*
 * Whether this thread of the process has not ended; also true if this cannot be found out. Never
 * waits for the process.
 */
bool proc_thread_lives(uint32_t tgid, uint32_t tid);
/*
 * As proc_thread_lives(), for a caller that asks often. With an opened thread it takes half the
 * time, and the answer is not about another thread that got the same number. proc_thread_open()
 * returns a descriptor or a negative errno.
 */
int proc_thread_open(uint32_t tgid, uint32_t tid);
bool proc_opened_thread_lives(int fd);
/*
 * Whether all threads of a process have ended, if it is known that one has. Returns false if this
 * cannot be found out. Never waits for the process.
 */
bool proc_has_ended(uint32_t tgid);

/* How much memory of each kind a process has. Reading this takes about 30 us. */
struct proc_memory {
	/* used memory without a file, including swapped-out memory */
	uint64_t anon_bytes;
	/* reserved addresses for such memory, without the first thread's stack */
	uint64_t data_bytes;
	unsigned n_threads;
	/*
	 * size of the mapped code outside of the program's own file: libraries, and what a JIT
	 * makes
	 */
	uint64_t library_bytes;
};
/*
 * Reads how much memory the process has. -ESRCH: the process has ended, or the PID now belongs to
 * another one. -ENODATA: it has no memory, because it is ending or is a kernel thread.
 */
int proc_memory(struct process_id id, struct proc_memory *ret);

/* ---- the owner of a sample ---- */
/*
 * The data of a container that fold needs. It is not changed after it is made, and is shared by
 * reference.
 */
struct owner {
	unsigned refs;
	/*
	 * tags of the container; until the API server reports the container's id, tags of the pod
	 * and container_id
	 */
	struct tags tags;
	char *container_id, *pod_uid;
	size_t n_targets;
	char **target_uids;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	uint32_t off_keep;		/* see proc_containers_keep_off() */
	double overhead_percent;	/* 0: no limit */
	/* the agent may ask the container's JVMs for their perf maps */
	bool java_attach;
	/* the API server has not reported this container's id (yet): it may be the sandbox */
	bool unnamed;
	uint64_t ns_hash;		/* of the namespace's name; never 0 */
};
struct owner *proc_owner_ref(struct owner *o);	/* any thread */
struct owner *proc_owner_unref(struct owner *o);

/* ---- the table of containers: loop thread; now_ns is CLOCK_BOOTTIME ---- */
struct containers;
#define CONTAINERS_FILTER_MAX 16384		/* as PF_FILTER_MAX of bpf/abi.h */
struct container_filter {			/* one entry of the BPF filter */
	uint64_t cgroup_id;
	uint64_t ns;				/* of struct charged */
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	/* off-cpu: see proc_containers_keep_off(); off_note 0: each switch is noted */
	uint32_t off_note, off_keep;
	bool listed;
	/* samples get the trace ids of the request on which their thread works */
	bool context;
};
int proc_containers_new(struct containers **ret);
struct containers *proc_containers_free(struct containers *p);
/*
 * Uses a new plan from now on. For containers whose cgroup is not known yet
 * (proc_containers_wants_scan), the caller calls proc_cgroup_scan() on the os worker.
 */
void proc_containers_apply(struct containers *p, struct plan *plan, uint64_t now_ns);
const struct plan *proc_containers_plan(const struct containers *p);
bool proc_containers_wants_scan(const struct containers *p);
/*
 * Searches the hierarchy once for all cgroups that name a pod. os worker. The caller passes the
 * result to proc_containers_scanned().
 */
struct cgroup_scan;
int proc_cgroup_scan(const struct cgroup_hierarchy *h, struct cgroup_scan **ret);
struct cgroup_scan *proc_cgroup_scan_free(struct cgroup_scan *s);
void proc_containers_scanned(struct containers *p, const struct cgroup_scan *s, uint64_t now_ns);
/* To be called when BPF has reported that a cgroup was made or removed. */
void proc_containers_cgroup(struct containers *p, uint64_t id, uint64_t parent_id,
			    const char *path, bool removed, uint64_t now_ns);
/*
 * Limits the rate of this container to hz, even if the plan has a higher one; 0 removes the limit.
 * Returns false if more containers of the namespace have a limit than its share, which is counted.
 * Then the plan's rate holds. ns: proc_ns_hash().
 */
bool proc_containers_cap_hz(struct containers *p, uint64_t ns, const char *container_id,
			    unsigned hz);
/*
 * Sets the shares of context switches that off-cpu notes and keeps in this container: a switch is
 * noted with probability (note + 1) / 2^32, and kept with (keep + 1) / 2^32, which must not be
 * greater. UINT32_MAX: always. The container gets a new owner, whose off_keep holds for samples
 * from now on. Earlier samples have the earlier owner. Returns false as proc_containers_cap_hz().
 * Then each switch of this container is recorded.
 */
bool proc_containers_keep_off(struct containers *p, uint64_t ns, const char *container_id,
			      uint32_t note, uint32_t keep);
/*
 * Returns the entries that the BPF filter should have now, at most CONTAINERS_FILTER_MAX; borrowed
 * until the next call. If there are more cgroups, each container gets an equal share.
 * *ret_changed: they differ from those of the last call.
 */
const struct container_filter *proc_containers_filter(struct containers *p, uint64_t now_ns,
						      size_t *ret_n, bool *ret_changed);
/*
 * Calls fn for each container that is selected now, with its own cgroup (not for cgroups below it).
 * The owner is borrowed.
 */
typedef void procs_container_fn(uint64_t cgroup_id, struct owner *o, void *arg);
void proc_containers_each_container(const struct containers *p, procs_container_fn *fn, void *arg);
/*
 * The same for the containers of which the last result of proc_containers_filter() lacks cgroups,
 * because there is no room for all.
 */
void proc_containers_each_cut(const struct containers *p, procs_container_fn *fn, void *arg);
/*
 * Whom the agent charges for what a process costs it. Where something is limited, each namespace
 * has the same share of it.
 */
struct charged {
	uint64_t ns; /* hash of the namespace's name; of "", if a process belongs to none */
	uint64_t cgroup_id;
};
uint64_t proc_ns_hash(const char *ns);	/* member ns; never 0 */
struct charged proc_containers_charged(const struct containers *p, uint64_t cgroup_id);
/*
 * Returns a new reference to the owner of this cgroup's samples, for samples taken up to
 * *ret_until_ns. This is UINT64_MAX while the cgroup is selected, and otherwise the time when it
 * was deselected or removed. NULL: the cgroup has no owner (a sandbox, an excluded container, or
 * one that ended more than 60 s ago).
 */
struct owner *proc_containers_owner(struct containers *p, uint64_t cgroup_id,
				    uint64_t *ret_until_ns);

/* ---- memory of the agent itself ---- */
/*
 * Returns how much memory tables, or the cache of symbols, may use: wanted_bytes, but at most a
 * quarter of the memory limit of this process's cgroup, to which they are charged. Each parser
 * child may use as much again.
 */
size_t proc_memory_share(uint64_t wanted_bytes);
/*
 * Finds the memory limit in the text of /proc/self/cgroup and in files below a mount of cgroups.
 * Only proc_memory_share() and tests call it.
 */
uint64_t proc_memory_limit(const char *self_cgroup, const char *mount);
