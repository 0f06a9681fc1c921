/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: makes system calls fail when a test asks for it. For tests only: each x_faults_test links
 * it. Its definitions of open(), read(), syscall(), malloc()... replace the C library's, also for
 * the shared libraries (SQLite, libbpf, jansson, OpenSSL). Product code does not know of it.
 * docs/testing.md says how to add a row.
 */
#pragma once

#include "lib/base/base.h"

enum fault_call {
	FAULT_OPEN, /* open*, fopen, opendir, fdopendir, pidfd_open */
	/* socket, socketpair, accept4, pipe2, memfd_create, eventfd, epoll_create1, dup */
	FAULT_FD,
	FAULT_READ, /* read, pread, getline */
	FAULT_READDIR,
	FAULT_WRITE,  /* write, pwrite */
	FAULT_SYNC,   /* fsync, fdatasync */
	FAULT_RENAME, /* rename, renameat */
	FAULT_UNLINK, /* unlink, unlinkat */
	FAULT_STAT,   /* stat, lstat, fstat, fstatat, statx */
	FAULT_MKDIR,
	FAULT_TRUNCATE, /* ftruncate */
	FAULT_MMAP,
	FAULT_BPF,  /* bpf() */
	FAULT_LINK, /* bpf() that attaches a program, or makes a reader of an iterator */
	FAULT_PERF, /* perf_event_open() */
	FAULT_IOCTL,
	FAULT_CONNECT,
	FAULT_SEND,   /* send, sendmsg */
	FAULT_RECV,   /* recv, recvmsg */
	FAULT_POLL,   /* poll, epoll_wait; the only error is EINTR */
	FAULT_EPOLL,  /* epoll_ctl that adds a descriptor */
	FAULT_START,  /* posix_spawn, fork, pthread_create */
	FAULT_MALLOC, /* allocations of jansson, libyaml, SQLite, libbpf, zstd, OpenSSL */
	_FAULT_MAX,
};
#define FAULT(call) (1u << FAULT_##call)
#define FAULT_FILES                                                                                \
	(FAULT(OPEN) | FAULT(READ) | FAULT(READDIR) | FAULT(WRITE) | FAULT(SYNC) | FAULT(RENAME) | \
	 FAULT(UNLINK) | FAULT(STAT) | FAULT(MKDIR) | FAULT(TRUNCATE))

struct fault_row {
	const char *name;
	unsigned calls; /* FAULT(OPEN) | ...: the kinds of calls that fail */
	/* Restores the state before each run. No call fails in it. May be NULL. */
	void (*before)(void *arg);
	/*
	 * Runs the code under test from its beginning to its end. Returns 0 or -errno, as the
	 * product's function does. It frees what that function returned. After a failure it asserts
	 * itself that the outputs were not changed.
	 */
	int (*run)(void *arg);
	/*
	 * Called after each run, also a failed one: asserts that the state is one of the allowed
	 * ones. May be NULL.
	 */
	void (*check)(void *arg);
	/*
	 * 0 and 1: each call fails in turn. n: only every n-th call fails, because one run takes
	 * long (with LONG=1 each call fails)
	 */
	unsigned step;
	/*
	 * The run has other threads or processes. So the n-th call is another call in each run, and
	 * the libraries do not keep the same amount of memory. Only LeakSanitizer checks the memory
	 * of such a row.
	 */
	bool threads;
	bool grows; /* a cache of a library grows with each run, so allocations are not compared */
};
/*
 * For every kind of call of the row, and every error of that kind (short reads and writes are such
 * errors): makes the n-th call fail, for n = 1, 2, ... until a run has fewer than n calls. In a
 * second series all calls from the n-th on fail. After each run: check() holds, the same run
 * without a fault gives 0, and no descriptor, mapping or allocation is left. Otherwise the cmocka
 * test fails. Prints how many calls failed.
 */
void fault_each(const struct fault_row *row, void *arg);
/*
 * As fault_each(), but does not fail the test. Returns NULL if everything holds, else a text
 * (borrowed) that names what does not hold. Adds the number of failed calls to *n_failed.
 */
const char *fault_find(const struct fault_row *row, void *arg, unsigned *n_failed);

/*
 * For a test that arms a fault itself: the n-th call of a kind (1: the next) fails with error.
 * more: all later calls fail, too.
 */
void fault_arm(enum fault_call call, int error, unsigned n, bool more);
unsigned fault_disarm(void);	      /* returns how many calls failed */
/* how many calls have failed so far; 0 if no fault is armed */
unsigned fault_failed(void);
void fault_outage_ends(void *unused); /* calls fault_disarm(); for a timer */
/*
 * Calls of children that are forked from now on fail as well, until the children exec. They also
 * count as calls.
 */
void fault_in_children(void);
