/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: what somebody who has taken over a process of podflame tries from inside, as a
 * table of system calls. Without a filter, each of them gets an answer of the kernel that says that
 * the call exists and was looked at (success, or an error of its arguments). None does harm.
 */
#pragma once

#include "lib/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The processes that must refuse an attempt. */
enum { IN_PARSER = 1, IN_ATTACH = 2, IN_AGENT = 4, IN_CHILDREN = 3, IN_ALL = 7 };

/* A process outside, which the test has started, and a word of its memory. */
struct escape_outside {
	pid_t pid;
	uint64_t *word;
	char file[64]; /* a file that the process may read and write, but for what it gave up */
};
struct escape {
	const char *name;
	unsigned where;
	long number;
	uint64_t args[6];
};

#define ESCAPES_MAX	  128
#define ESCAPE_ADDRESS(p) ((uint64_t)(uintptr_t)(p))
#define ESCAPE_GONE	  ESCAPE_ADDRESS("/nonexistent")
#define ESCAPE_BAD	  ((uint64_t)-1)
#define ESCAPE_CWD	  ((uint64_t)AT_FDCWD)

struct escape_list {
	struct escape items[ESCAPES_MAX];
	size_t n;
	uint64_t buffer[64];
	struct iovec here, there;
	_Alignas(4096) char page[4096];
};

#define TRY(where, name, number, ...)                                                              \
	(l->items[l->n++] = (struct escape){name, where, SYS_##number, {__VA_ARGS__}})

/* programs, namespaces, mounts, and what concerns the whole machine */
static inline void escape_to_kernel(struct escape_list *l)
{
	TRY(IN_CHILDREN, "a program", execve, ESCAPE_GONE, 0, 0);
	TRY(IN_CHILDREN, "a program by descriptor", execveat, ESCAPE_BAD, ESCAPE_ADDRESS(""), 0, 0,
	    AT_EMPTY_PATH);
	TRY(IN_CHILDREN, "a process", clone, SIGCHLD);
	TRY(IN_CHILDREN, "another process", fork, 0);
	TRY(IN_ALL, "a process in a namespace of its own", clone, CLONE_NEWUSER | SIGCHLD);
	TRY(IN_ALL, "a namespace", unshare, CLONE_NEWUSER);
	TRY(IN_ALL, "a mount namespace", unshare, CLONE_NEWNS);
	TRY(IN_ALL, "the namespace of another", setns, ESCAPE_BAD, 0);
	TRY(IN_ALL, "a mount", mount, ESCAPE_ADDRESS("tmpfs"), ESCAPE_GONE, ESCAPE_ADDRESS("tmpfs"),
	    0, 0);
	TRY(IN_ALL, "a mount that becomes writable", mount_setattr, ESCAPE_BAD, ESCAPE_GONE, 0,
	    ESCAPE_ADDRESS(l->buffer), 32);
	TRY(IN_ALL, "an unmount", umount2, ESCAPE_GONE, 0);
	TRY(IN_ALL, "a mount that moves", move_mount, ESCAPE_BAD, ESCAPE_GONE, ESCAPE_BAD,
	    ESCAPE_GONE, 0);
	TRY(IN_ALL, "a copy of a mount", open_tree, ESCAPE_BAD, ESCAPE_GONE, 0);
	TRY(IN_ALL, "a file system", fsopen, ESCAPE_GONE, 0);
	TRY(IN_ALL, "another root", pivot_root, ESCAPE_GONE, ESCAPE_GONE);
	TRY(IN_ALL, "a module", init_module, 0, 0, ESCAPE_ADDRESS(""));
	TRY(IN_ALL, "a module by descriptor", finit_module, ESCAPE_BAD, ESCAPE_ADDRESS(""), 0);
	TRY(IN_ALL, "no module", delete_module, ESCAPE_GONE, 0);
	TRY(IN_ALL, "another kernel", kexec_load, 0, 0, 0, ESCAPE_BAD);
	TRY(IN_ALL, "another kernel by descriptor", kexec_file_load, ESCAPE_BAD, ESCAPE_BAD, 0, 0,
	    ESCAPE_BAD);
	TRY(IN_ALL, "a new start of the machine", reboot, 0, 0, 0, 0);
	TRY(IN_ALL, "a swap file", swapon, ESCAPE_GONE, 0);
	TRY(IN_ALL, "accounting", acct, ESCAPE_GONE);
	TRY(IN_ALL, "a key", add_key, 0, 0, 0, 0, 0);
	TRY(IN_ALL, "the keys", keyctl, ESCAPE_BAD, 0, 0, 0, 0);
	TRY(IN_ALL, "io_uring", io_uring_setup, 0, 0);
	TRY(IN_ALL, "page faults", userfaultfd, ESCAPE_BAD);
	TRY(IN_ALL, "ports", iopl, 0);
	TRY(IN_ALL, "the kernel's log", syslog, 10, 0, 0);
	TRY(IN_ALL, "watches of files", fanotify_init, ESCAPE_BAD, 0);
}

/* BPF, events, the network, users */
static inline void escape_to_events(struct escape_list *l)
{
	TRY(IN_CHILDREN, "a BPF call", bpf, ESCAPE_BAD, ESCAPE_ADDRESS(l->buffer), 8);
	TRY(IN_AGENT, "a pin in a file system", bpf, BPF_OBJ_PIN, ESCAPE_ADDRESS(l->buffer), 16);
	TRY(IN_AGENT, "the maps of others", bpf, BPF_MAP_GET_FD_BY_ID, ESCAPE_ADDRESS(l->buffer),
	    16);
	TRY(IN_AGENT, "the programs of others", bpf, BPF_PROG_GET_FD_BY_ID,
	    ESCAPE_ADDRESS(l->buffer), 16);
	TRY(IN_AGENT, "the links of others", bpf, BPF_LINK_GET_FD_BY_ID, ESCAPE_ADDRESS(l->buffer),
	    16);
	TRY(IN_CHILDREN, "an event", perf_event_open, 0, 0, 0, ESCAPE_BAD, 0);
	TRY(IN_CHILDREN, "a connection", socket, AF_INET, SOCK_STREAM, 0);
	TRY(IN_PARSER, "a local connection", socket, AF_UNIX, SOCK_STREAM, 0);
	TRY(IN_CHILDREN, "a port", bind, ESCAPE_BAD, ESCAPE_ADDRESS(l->buffer), 16);
	TRY(IN_ALL, "packets", socket, AF_PACKET, SOCK_RAW, 0);
	TRY(IN_ALL, "raw packets", socket, AF_INET, SOCK_RAW, 1);
	TRY(IN_ALL, "the kernel's audit", socket, AF_NETLINK, SOCK_RAW, 9);
	TRY(IN_ALL, "the kernel's ciphers", socket, AF_ALG, SOCK_SEQPACKET, 0);
	TRY(IN_CHILDREN, "rights", prctl, 8 /* PR_SET_KEEPCAPS */, 1, 0, 0, 0);
	TRY(IN_PARSER, "a user", setresuid, ESCAPE_BAD, ESCAPE_BAD, ESCAPE_BAD);
	TRY(IN_ALL, "another personality", personality, 0xffffffff);
}

static inline void escape_signals(struct escape_list *l, pid_t pid)
{
	TRY(IN_ALL, "a signal", kill, (uint64_t)pid, SIGCONT);
	TRY(IN_ALL, "a signal to a thread", tgkill, (uint64_t)pid, (uint64_t)pid, SIGCONT);
	TRY(IN_ALL, "a signal with a word", rt_sigqueueinfo, (uint64_t)pid, SIGCONT,
	    ESCAPE_ADDRESS(l->buffer));
	TRY(IN_ATTACH | IN_AGENT, "another signal to a process's descriptor", pidfd_send_signal,
	    ESCAPE_BAD, SIGKILL, 0, 0);
	TRY(IN_PARSER, "a signal to a process's descriptor", pidfd_send_signal, ESCAPE_BAD, SIGQUIT,
	    0, 0);
}

static inline void escape_memory(struct escape_list *l, pid_t pid)
{
	TRY(IN_ALL, "a debugger", ptrace, PTRACE_SEIZE, (uint64_t)pid, 0, 0);
	TRY(IN_CHILDREN, "the memory of another", process_vm_readv, (uint64_t)pid,
	    ESCAPE_ADDRESS(&l->here), 1, ESCAPE_ADDRESS(&l->there), 1, 0);
	TRY(IN_ALL, "the memory of another, for writing", process_vm_writev, (uint64_t)pid,
	    ESCAPE_ADDRESS(&l->here), 1, ESCAPE_ADDRESS(&l->there), 1, 0);
	TRY(IN_ALL, "the memory of another, as advice", process_madvise, ESCAPE_BAD,
	    ESCAPE_ADDRESS(&l->there), 1, MADV_PAGEOUT, 0);
	TRY(IN_CHILDREN, "new code", mmap, 0, 4096, PROT_READ | PROT_EXEC,
	    MAP_PRIVATE | MAP_ANONYMOUS, ESCAPE_BAD, 0);
	TRY(IN_CHILDREN, "data as code", mprotect, ESCAPE_ADDRESS(l->page), 4096,
	    PROT_READ | PROT_EXEC);
	TRY(IN_ALL, "data as code, with a key", pkey_mprotect, ESCAPE_ADDRESS(l->page), 4096,
	    PROT_READ | PROT_EXEC, ESCAPE_BAD);
	TRY(IN_ALL, "shared memory", shmget, 1, 4096, 0);
}

static inline void escape_descriptors(struct escape_list *l, pid_t pid)
{
	TRY(IN_ALL, "a descriptor of another", pidfd_getfd, ESCAPE_BAD, 0, 0);
	TRY(IN_CHILDREN, "a process as a descriptor", pidfd_open, (uint64_t)pid, 0);
	TRY(IN_CHILDREN, "a copy of a descriptor", dup2, 0, 5);
	TRY(IN_CHILDREN, "a signal by a descriptor", fcntl, 0, F_SETOWN, (uint64_t)pid);
	TRY(IN_CHILDREN, "a device", ioctl, 0, 0x5401 /* TCGETS */, ESCAPE_ADDRESS(l->buffer));
	TRY(IN_AGENT, "a key that a terminal is to type", ioctl, 0, 0x5412 /* TIOCSTI */,
	    ESCAPE_ADDRESS(l->buffer));
	TRY(IN_ALL, "a file by its number", name_to_handle_at, ESCAPE_BAD, ESCAPE_GONE,
	    ESCAPE_ADDRESS(l->buffer), ESCAPE_ADDRESS(l->buffer), 0);
}

static inline void escape_paths(struct escape_list *l, const char *path)
{
	TRY(IN_PARSER, "a file", openat, ESCAPE_CWD, ESCAPE_ADDRESS(path), O_RDONLY, 0);
	TRY(IN_PARSER, "an old open", open, ESCAPE_ADDRESS(path), O_RDONLY, 0);
	TRY(IN_CHILDREN, "a file within a root", openat2, ESCAPE_CWD, ESCAPE_ADDRESS(path),
	    ESCAPE_ADDRESS(l->buffer), 24);
	TRY(IN_CHILDREN, "whether a file exists", faccessat, ESCAPE_CWD, ESCAPE_ADDRESS(path), 0,
	    0);
	TRY(IN_CHILDREN, "an old stat", stat, ESCAPE_ADDRESS(path), ESCAPE_ADDRESS(l->buffer));
	TRY(IN_CHILDREN, "a new stat", statx, ESCAPE_CWD, ESCAPE_ADDRESS(path), 0, 0x7ff,
	    ESCAPE_ADDRESS(l->buffer));
	TRY(IN_CHILDREN, "a link's text", readlink, ESCAPE_ADDRESS(path), ESCAPE_ADDRESS(l->buffer),
	    64);
	TRY(IN_CHILDREN, "another directory", chdir, ESCAPE_ADDRESS("/"));
	TRY(IN_CHILDREN, "a new name", rename, ESCAPE_GONE, ESCAPE_GONE);
	TRY(IN_CHILDREN, "a directory", mkdir, ESCAPE_ADDRESS(path), 0700);
	TRY(IN_PARSER, "an end of a file", unlinkat, ESCAPE_CWD, ESCAPE_GONE, 0);
	TRY(IN_ALL, "a link", link, ESCAPE_GONE, ESCAPE_GONE);
	TRY(IN_ALL, "a symbolic link", symlinkat, ESCAPE_GONE, ESCAPE_CWD, ESCAPE_ADDRESS(path));
	TRY(IN_ALL, "a device file", mknodat, ESCAPE_CWD, ESCAPE_ADDRESS(path), S_IFIFO, 0);
	TRY(IN_ALL, "other rights of a file", fchmodat, ESCAPE_CWD, ESCAPE_GONE, 04755);
	TRY(IN_ALL, "another owner of a file", fchownat, ESCAPE_CWD, ESCAPE_GONE, 0, 0, 0);
	TRY(IN_ALL, "an attribute of a file", setxattr, ESCAPE_GONE, ESCAPE_GONE,
	    ESCAPE_ADDRESS(l->buffer), 0, 0);
	TRY(IN_ALL, "a shorter file", truncate, ESCAPE_GONE, 0);
}

static inline void escape_time(struct escape_list *l)
{
	TRY(IN_ALL, "the clock", clock_settime, CLOCK_REALTIME, ESCAPE_BAD);
	TRY(IN_ALL, "the clock's speed", adjtimex, ESCAPE_BAD);
	TRY(IN_PARSER, "a long sleep", nanosleep, ESCAPE_ADDRESS(l->buffer), 0);
	TRY(IN_CHILDREN, "an alarm", alarm, 0);
	TRY(IN_CHILDREN, "a timer", timer_create, CLOCK_MONOTONIC, 0, ESCAPE_ADDRESS(l->buffer));
	TRY(IN_CHILDREN, "another priority", setpriority, 0, 0, 0);
	TRY(IN_ALL, "a real-time thread", sched_setscheduler, 0, 1, ESCAPE_ADDRESS(l->buffer));
}

#undef TRY

/*
 * Makes the table, without a system call. Its attempts use its buffers, so they must run in the
 * process that made it.
 */
static inline void escapes(const struct escape_outside *o, struct escape_list *ret)
{
	ret->n = 0;
	ret->here = (struct iovec){ret->buffer, sizeof(*o->word)};
	ret->there = (struct iovec){o->word, sizeof(*o->word)};
	memset(ret->buffer, 0, sizeof(ret->buffer));
	escape_to_kernel(ret);
	escape_to_events(ret);
	escape_signals(ret, o->pid);
	escape_memory(ret, o->pid);
	escape_descriptors(ret, o->pid);
	escape_paths(ret, o->file);
	escape_time(ret);
	assert_se(ret->n < ESCAPES_MAX);
}

/* Makes the call. 0: it worked. Else -errno. */
static inline int escape_try(const struct escape *e)
{
	long r = syscall(e->number, e->args[0], e->args[1], e->args[2], e->args[3], e->args[4],
			 e->args[5]);

	/* a process that an attempt has made ends at once; so does its parent's wait for it */
	if (r == 0 && (e->number == SYS_clone || e->number == SYS_fork))
		syscall(SYS_exit_group, 0);
	return r < 0 ? -errno : 0;
}

/* Starts the process outside. */
static inline void escape_outside_start(struct escape_outside *o)
{
	static uint64_t word = 0x1234;
	int fd;

	*o = (struct escape_outside){.word = &word};
	snprintf(o->file, sizeof(o->file), "/tmp/podflame-escape-%d", getpid());
	fd = open(o->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	assert_se(fd >= 0);
	close(fd);
	o->pid = fork();
	assert_se(o->pid >= 0);
	if (o->pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (o->pid == 0)
		pause();
}

static inline void escape_outside_stop(struct escape_outside *o)
{
	kill(o->pid, SIGKILL);
	waitpid(o->pid, NULL, 0);
	unlink(o->file);
}
