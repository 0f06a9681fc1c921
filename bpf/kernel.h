/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * kernel: the few members of kernel structures that the programs read, declared by hand. libbpf
 * relocates each access to the layout of the running kernel (CO-RE), so neither order nor size
 * matters here. A kernel without a member refuses the programs that need it. Written from the BTF
 * of 6.1 and 6.18.
 */
#pragma once

#include <linux/types.h>

typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s16 int16_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* task_struct.flags, include/linux/sched.h */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
/*
 * Errors of bpf_map_update_elem(). Before Linux 6.4, the kernel's side of this call returns an int.
 * The BPF program gets 64 bits whose upper half is 0, so there an error is not negative ("bpf:
 * return long from bpf_map_ops funcs"). So a program must put the result into an int before it
 * compares it.
 */
#define EEXIST 17
#define E2BIG  7

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct kernfs_node {
	__u64 id; /* since 5.5 the same as st_ino of the directory */
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup_root {
	int hierarchy_id; /* 0: cgroup v2 */
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

typedef struct {
	int counter;
} atomic_t;
struct rlimit {
	unsigned long rlim_cur;
};
struct signal_struct {
	atomic_t live; /* threads that have not begun to exit */
	struct rlimit rlim[16];
};
/*
 * Members of include/linux/uprobes.h: the return addresses that uprobes have replaced, innermost
 * first.
 */
struct return_instance {
	unsigned long stack; /* where on the stack the address was */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};
struct uprobe_task {
	struct return_instance *return_instances;
};
struct bpf_prog_aux {
	void *priv_stack_ptr; /* 6.13: a program's private stack on each CPU */
};
struct maple_tree {
	void *ma_root;
};
typedef struct {
	__s64 counter;
} atomic_long_t;
struct rw_semaphore {
	atomic_long_t count;
};
typedef struct {
	void *vdso; /* x86-64: where the vdso is mapped */
} mm_context_t;
struct mm_struct {
	unsigned long exec_vm;	   /* number of pages of code: executable, not writable */
	unsigned long start_code;  /* 0: its program is not loaded yet (fs/binfmt_elf.c) */
	unsigned long start_stack; /* where argc lies */
	struct maple_tree mm_mt;   /* since Linux 6.1 */
	struct rw_semaphore mmap_lock;
	mm_context_t context;
};
/*
 * The kernel counts the changes of a process's mappings in mm_lock_seq: a seqcount in 6.14 and
 * 6.12.y, a number since 6.4.
 */
struct seqcount {
	unsigned int sequence;
};
typedef struct seqcount seqcount_t;
struct mm_struct___counted {
	seqcount_t mm_lock_seq;
};
struct mm_struct___numbered {
	int mm_lock_seq;
};
struct vm_area_struct {
	unsigned long vm_start, vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};
struct super_block {
	unsigned int s_dev;
	unsigned long s_flags;
};
struct inode {
	unsigned short i_mode;
	unsigned int i_rdev; /* number of a device: its major number << 20 | its minor number */
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_generation;
	__s64 i_ctime_sec; /* since Linux 6.11 */
	unsigned int i_ctime_nsec;
};
struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};
struct inode___timespec {
	struct timespec64 __i_ctime; /* since Linux 6.6 */
};
struct inode___old {
	struct timespec64 i_ctime;
};
struct file {
	struct inode *f_inode;
	void *private_data; /* for an epoll descriptor: its struct eventpoll */
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
/* What an epoll descriptor waits for: fs/eventpoll.c. */
struct rb_node {
	struct rb_node *rb_left, *rb_right;
};
struct rb_root {
	struct rb_node *rb_node;
};
struct rb_root_cached {
	struct rb_root rb_root;
};
struct eventpoll {
	struct rb_root_cached rbr;
};
struct epoll_filefd {
	struct file *file;
};
struct epitem {
	struct rb_node rbn;
	struct epoll_filefd ffd;
};
struct thread_struct {
	unsigned long fsbase; /* x86-64: base of thread-local variables */
};
struct task_struct {
	struct thread_struct thread;
	unsigned int flags;
	struct mm_struct *mm;
	int pid, tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	__u64 start_boottime;
	__u64 self_exec_id;
	char comm[16];
	struct css_set *cgroups;
	struct files_struct *files;
	struct signal_struct *signal;
	struct uprobe_task *utask; /* CONFIG_UPROBES */
};

/* struct pt_regs with the kernel's own names; the uapi structure has other names (x86-64). */
struct pt_regs___kernel {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		sp;
	unsigned short cs;
};

#pragma clang attribute pop

/*
 * Reads a pointer member as a plain number, which bpf_core_read() then follows. With a typed
 * pointer the program would load slowly: for each access, the verifier searches all types of the
 * kernel up to four times, which takes a millisecond of CPU (btf_nested_type_is_trusted; 6.4 to
 * 6.18). Only the filter reads directly, because it runs for every task. Returns NULL if the member
 * cannot be read; reads through NULL then return zeros.
 */
#define PF_POINTER(p, member)                                                                      \
	({                                                                                         \
		typeof((p)->member) at_ = NULL;                                                    \
		bpf_core_read(&at_, sizeof(at_), &(p)->member);                                    \
		at_;                                                                               \
	})

static __always_inline struct task_struct *pf_leader(struct task_struct *task)
{
	return PF_POINTER(task, group_leader);
}

/*
 * Whether the task is the first thread of its process, which is the leader: then the members of the
 * leader are the task's own.
 */
static __always_inline bool pf_is_leader(struct task_struct *task)
{
	return task->pid == task->tgid;
}

/* Returns when the task's process was made. */
static __always_inline uint64_t pf_start_of(struct task_struct *task)
{
	struct task_struct *leader;
	uint64_t start = 0;

	/*
	 * Without volatile, clang would merge this read and that of `start` into one instruction,
	 * which the verifier refuses.
	 */
	if (pf_is_leader(task))
		return *(volatile __u64 *)&task->start_boottime;
	leader = pf_leader(task);
	bpf_core_read(&start, sizeof(start), &leader->start_boottime);
	return start;
}

/*
 * Returns the number of a process in its own PID namespace. *ret_level: the depth of that
 * namespace. The pointer is read as a plain number, because the verifier of 6.1 lets a program add
 * only constants to a typed pointer.
 */
static __always_inline struct upid *pf_own_upid(struct task_struct *task, unsigned int *ret_level)
{
	struct pid *pid = PF_POINTER(task, thread_pid);

	*ret_level = 0;
	if (bpf_core_read(ret_level, sizeof(*ret_level), &pid->level))
		return NULL;
	return (void *)pid + bpf_core_field_offset(pid->numbers) +
	       (unsigned long)*ret_level * bpf_core_type_size(struct upid);
}

/* Context of an iter/task program, include/linux/bpf.h: both members padded to 8 bytes. */
struct pf_iter_task {
	void *meta;
	struct task_struct *task;
};
