/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wait_cause: finds the cause of a wait, by the thread's state, by its system call and, if that
 * call reads or writes, by the kind of its descriptor. For x86-64
 * (arch/x86/entry/syscalls/syscall_64.tbl).
 */
#pragma once

#include "walk_start.h"

#define TASK_INTERRUPTIBLE   1 /* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 2

#define PF_BY_FD  0x80 /* in the rows below: the kind of the descriptor (argument 1) decides */
#define PF_NOT_IO 0x40 /* an uninterruptible wait in this call is not for a disk */

#define PF_S_IFMT   0170000
#define PF_S_IFIFO  0010000
#define PF_S_IFSOCK 0140000

/* The cause by the number of the system call. A call that is not listed is PF_WAIT_OTHER. */
#define PF_SYSCALLS 456
static const uint8_t pf_syscalls[PF_SYSCALLS] = {
	[0] = PF_BY_FD,			       /* read */
	[1] = PF_BY_FD,			       /* write */
	[7] = PF_WAIT_POLL,		       /* poll */
	[17] = PF_BY_FD,		       /* pread64 */
	[18] = PF_BY_FD,		       /* pwrite64 */
	[19] = PF_BY_FD,		       /* readv */
	[20] = PF_BY_FD,		       /* writev */
	[23] = PF_WAIT_POLL,		       /* select */
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
	[215] = PF_WAIT_POLL,		       /* epoll_wait_old */
	[220] = PF_WAIT_LOCK,		       /* semtimedop */
	[230] = PF_WAIT_SLEEP,		       /* clock_nanosleep */
	[232] = PF_WAIT_POLL,		       /* epoll_wait */
	[270] = PF_WAIT_POLL,		       /* pselect6 */
	[271] = PF_WAIT_POLL,		       /* ppoll */
	[275] = PF_BY_FD,		       /* splice */
	[276] = PF_BY_FD,		       /* tee */
	[278] = PF_BY_FD,		       /* vmsplice */
	[281] = PF_WAIT_POLL,		       /* epoll_pwait */
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
	[441] = PF_WAIT_POLL,		       /* epoll_pwait2 */
	[449] = PF_WAIT_LOCK,		       /* futex_waitv */
	[455] = PF_WAIT_LOCK,		       /* futex_wait */
};

static __noinline uint32_t pf_cause_of_fd(struct task_struct *task, uint64_t fd)
{
	struct files_struct *open = PF_POINTER(task, files);
	struct fdtable *table = NULL;
	struct inode *inode = NULL;
	struct file **files = NULL, *file = NULL;
	uint32_t max = 0;
	uint16_t mode = 0;

	if (bpf_core_read(&table, sizeof(table), &open->fdt) ||
	    bpf_core_read(&max, sizeof(max), &table->max_fds) || fd >= max ||
	    bpf_core_read(&files, sizeof(files), &table->fd) ||
	    bpf_probe_read_kernel(&file, sizeof(file), &files[fd]) ||
	    bpf_core_read(&inode, sizeof(inode), &file->f_inode) ||
	    bpf_core_read(&mode, sizeof(mode), &inode->i_mode))
		return PF_WAIT_OTHER;
	mode &= PF_S_IFMT;
	return mode == PF_S_IFSOCK ? PF_WAIT_SOCKET
	       : mode == PF_S_IFIFO ? PF_WAIT_PIPE
				    : PF_WAIT_OTHER;
}

/*
 * The cause of a task's wait. state: the state in which the task left its CPU. The task must have a
 * user side.
 */
static __always_inline uint32_t pf_cause_of(struct task_struct *task, uint32_t state)
{
	struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
	uint64_t number = regs->orig_ax;
	uint32_t cause = PF_WAIT_OTHER;

	/* 32-bit code has other numbers of system calls. In a page fault, the number is -1. */
	if (number < PF_SYSCALLS && regs->cs == PF_USER_CS_64)
		cause = pf_syscalls[number];
	if (state & TASK_UNINTERRUPTIBLE && !(cause & PF_NOT_IO))
		return PF_WAIT_DISK;
	if (cause & PF_BY_FD)
		return pf_cause_of_fd(task, regs->di);
	cause &= ~PF_NOT_IO;
	return cause ? cause : PF_WAIT_OTHER;
}
