/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wait_cause: finds the cause of a wait, by the thread's state, by its system call and by the files
 * of that call: what kind of file it reads or writes, and whether it waits for a GPU. For x86-64
 * (arch/x86/entry/syscalls/syscall_64.tbl).
 */
#pragma once

#include "walk_start.h"

#define TASK_INTERRUPTIBLE   1 /* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 2

/* flags of the rows of the table of system calls */
#define PF_BY_FD      0x80 /* the kind of the descriptor (argument 1) decides */
#define PF_NOT_IO     0x40 /* an uninterruptible wait in this call is not for a disk */
#define PF_MAY_BE_GPU 0x20 /* pf_waits_for_gpu() knows which files the call waits for */
#define PF_POLLS      (PF_WAIT_POLL | PF_MAY_BE_GPU)

#define PF_S_IFMT   0170000
#define PF_S_IFIFO  0010000
#define PF_S_IFCHR  0020000
#define PF_S_IFSOCK 0140000

/* The cause by the number of the system call. A call that is not listed is PF_WAIT_OTHER. */
#define PF_SYSCALLS 456
static const uint8_t pf_syscalls[PF_SYSCALLS] = {
	[0] = PF_BY_FD,			       /* read */
	[1] = PF_BY_FD,			       /* write */
	[7] = PF_POLLS,			       /* poll */
	[16] = PF_WAIT_OTHER | PF_MAY_BE_GPU,  /* ioctl */
	[17] = PF_BY_FD,		       /* pread64 */
	[18] = PF_BY_FD,		       /* pwrite64 */
	[19] = PF_BY_FD,		       /* readv */
	[20] = PF_BY_FD,		       /* writev */
	[23] = PF_POLLS,		       /* select */
	[35] = PF_WAIT_SLEEP,		       /* nanosleep */
	[40] = PF_BY_FD,		       /* sendfile: its target */
	[42] = PF_WAIT_SOCKET,		       /* connect */
	[43] = PF_WAIT_SOCKET,		       /* accept */
	[44] = PF_WAIT_SOCKET,		       /* sendto */
	[45] = PF_WAIT_SOCKET,		       /* recvfrom */
	[46] = PF_WAIT_SOCKET,		       /* sendmsg */
	[47] = PF_WAIT_SOCKET,		       /* recvmsg */
	[48] = PF_WAIT_SOCKET,		       /* shutdown */
	[56] = PF_WAIT_OTHER | PF_NOT_IO, /* clone, CLONE_VFORK: waits for the child's exec */
	[58] = PF_WAIT_OTHER | PF_NOT_IO,      /* vfork */
	[65] = PF_WAIT_LOCK,		       /* semop */
	[73] = PF_WAIT_LOCK,		       /* flock */
	[202] = PF_WAIT_LOCK | PF_NOT_IO,      /* futex */
	[208] = PF_WAIT_POLL,		       /* io_getevents */
	[215] = PF_POLLS,		       /* epoll_wait_old */
	[220] = PF_WAIT_LOCK,		       /* semtimedop */
	[230] = PF_WAIT_SLEEP,		       /* clock_nanosleep */
	[232] = PF_POLLS,		       /* epoll_wait */
	[270] = PF_POLLS,		       /* pselect6 */
	[271] = PF_POLLS,		       /* ppoll */
	[275] = PF_BY_FD,		       /* splice */
	[276] = PF_BY_FD,		       /* tee */
	[278] = PF_BY_FD,		       /* vmsplice */
	[281] = PF_POLLS,		       /* epoll_pwait */
	[288] = PF_WAIT_SOCKET,		       /* accept4 */
	[295] = PF_BY_FD,		       /* preadv */
	[296] = PF_BY_FD,		       /* pwritev */
	[299] = PF_WAIT_SOCKET,		       /* recvmmsg */
	[307] = PF_WAIT_SOCKET,		       /* sendmmsg */
	[327] = PF_BY_FD,		       /* preadv2 */
	[328] = PF_BY_FD,		       /* pwritev2 */
	[333] = PF_WAIT_POLL,		       /* io_pgetevents */
	[426] = PF_WAIT_POLL,		       /* io_uring_enter */
	[435] = PF_WAIT_OTHER | PF_NOT_IO,     /* clone3 */
	[441] = PF_POLLS,		       /* epoll_pwait2 */
	[449] = PF_WAIT_LOCK,		       /* futex_waitv */
	[455] = PF_WAIT_LOCK,		       /* futex_wait */
};

/* Returns the task's open file of this number; NULL: it has none, or it cannot be read. */
static __noinline struct file *pf_file_of(struct task_struct *task, uint32_t fd)
{
	struct files_struct *open = PF_POINTER(task, files);
	struct fdtable *table = NULL;
	struct file **files = NULL, *file = NULL;
	uint32_t max = 0;

	if (bpf_core_read(&table, sizeof(table), &open->fdt) ||
	    bpf_core_read(&max, sizeof(max), &table->max_fds) || fd >= max ||
	    bpf_core_read(&files, sizeof(files), &table->fd) ||
	    bpf_probe_read_kernel(&file, sizeof(file), &files[fd]))
		return NULL;
	return file;
}

/* ---- waits for a GPU: the files are devices of NVIDIA's driver ---- */

static __noinline bool pf_is_gpu(struct file *file)
{
	const struct pf_settings *set = pf_settings_now();
	struct inode *inode = PF_POINTER(file, f_inode);
	uint32_t device = 0, major;
	uint16_t mode = 0;

	if (!set || bpf_core_read(&mode, sizeof(mode), &inode->i_mode) ||
	    (mode & PF_S_IFMT) != PF_S_IFCHR ||
	    bpf_core_read(&device, sizeof(device), &inode->i_rdev))
		return false;
	major = device >> 20;
	return major < PF_CHAR_MAJORS && set->gpu_majors[major / 64] >> (major & 63) & 1;
}

#define PF_POLLED_MAX 4 /* limit for the descriptors of one poll() that are looked at */

/* Whether poll() waits for GPUs only. */
static __noinline bool pf_polls_gpu(struct task_struct *task, uint64_t fds, uint32_t n)
{
	bool polls = false;

	for (uint32_t i = 0; i < PF_POLLED_MAX && i < n; i++) {
		int32_t fd;

		if (!pf_read(&fd, sizeof(fd), fds + i * 8ull)) /* struct pollfd */
			return false;
		if (fd < 0) /* poll() leaves it out */
			continue;
		if (!pf_is_gpu(pf_file_of(task, fd)))
			return false;
		polls = true;
	}
	return polls;
}

static __always_inline bool pf_item_is_gpu(struct rb_node *node)
{
	struct epitem *item = (void *)node - bpf_core_field_offset(struct epitem, rbn);

	return pf_is_gpu(PF_POINTER(item, ffd.file));
}

/*
 * Whether an epoll descriptor waits for GPUs only. The descriptor keeps its files in a tree. Only
 * the root of the tree and its children are looked at.
 */
static __noinline bool pf_epolls_gpu(struct file *file)
{
	struct eventpoll *ep = PF_POINTER(file, private_data);
	struct rb_node *root = PF_POINTER(ep, rbr.rb_root.rb_node), *left, *right;

	if (!root || !pf_item_is_gpu(root))
		return false;
	left = PF_POINTER(root, rb_left);
	right = PF_POINTER(root, rb_right);
	return (!left || pf_item_is_gpu(left)) && (!right || pf_item_is_gpu(right));
}

/*
 * Whether a call with PF_MAY_BE_GPU waits for GPUs only. number: the call; first, second: its
 * arguments. Of the descriptors of select(), only the highest is looked at, which the first
 * argument names.
 */
static __noinline bool pf_waits_for_gpu(struct task_struct *task, uint64_t number, uint64_t first,
					uint32_t second)
{
	const struct pf_settings *set = pf_settings_now();

	if (!set || !set->has_gpu)
		return false;
	switch (number) {
	case 16: /* ioctl */
		return pf_is_gpu(pf_file_of(task, first));
	case 7:	  /* poll */
	case 271: /* ppoll */
		return pf_polls_gpu(task, first, second);
	case 23:  /* select */
	case 270: /* pselect6 */
		return pf_is_gpu(pf_file_of(task, first - 1));
	default: /* epoll_wait and its kin */
		return pf_epolls_gpu(pf_file_of(task, first));
	}
}

/* ---- all waits ---- */

static __noinline uint32_t pf_cause_of_fd(struct task_struct *task, uint32_t fd)
{
	struct file *file = pf_file_of(task, fd);
	struct inode *inode = PF_POINTER(file, f_inode);
	uint16_t mode = 0;

	if (bpf_core_read(&mode, sizeof(mode), &inode->i_mode))
		return PF_WAIT_OTHER;
	switch (mode & PF_S_IFMT) {
	case PF_S_IFSOCK:
		return PF_WAIT_SOCKET;
	case PF_S_IFIFO:
		return PF_WAIT_PIPE;
	case PF_S_IFCHR:
		return pf_is_gpu(file) ? PF_WAIT_GPU : PF_WAIT_OTHER;
	default:
		return PF_WAIT_OTHER;
	}
}

/*
 * Returns the cause of a task's wait. state: the state in which the task left its CPU. The task
 * must have a user side.
 */
static __always_inline uint32_t pf_cause_of(struct task_struct *task, uint32_t state)
{
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	uint64_t number = regs->orig_ax;
	uint32_t cause = PF_WAIT_OTHER;

	/* 32-bit code has other numbers of system calls. In a page fault, the number is -1. */
	if (number < PF_SYSCALLS && regs->cs == PF_USER_CS_64)
		cause = pf_syscalls[number];
	if (cause & PF_MAY_BE_GPU && pf_waits_for_gpu(task, number, regs->di, regs->si))
		return PF_WAIT_GPU;
	if (state & TASK_UNINTERRUPTIBLE && !(cause & PF_NOT_IO))
		return PF_WAIT_DISK;
	if (cause & PF_BY_FD)
		return pf_cause_of_fd(task, regs->di);
	cause &= ~(PF_NOT_IO | PF_MAY_BE_GPU);
	return cause ? cause : PF_WAIT_OTHER;
}
