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
	/*
	 * other descriptors: socket, socketpair, accept4, pipe2, memfd_create, eventfd,
	 * epoll_create1, dup
	 */
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
	FAULT_LINK, /* those of them that attach a program, or make an iterator's reader */
	FAULT_PERF, /* perf_event_open() */
	FAULT_IOCTL,
	FAULT_CONNECT,
	FAULT_SEND,   /* send, sendmsg */
	FAULT_RECV,   /* recv, recvmsg */
	FAULT_POLL,   /* poll, epoll_wait: EINTR */
	FAULT_EPOLL,  /* epoll_ctl that adds */
	FAULT_START,  /* posix_spawn, fork, pthread_create */
	FAULT_MALLOC, /* memory that jansson, libyaml, SQLite, libbpf, zstd, OpenSSL ask for */
	_FAULT_MAX,
};
#define FAULT(call) (1u << FAULT_##call)
#define FAULT_FILES                                                                                \
	(FAULT(OPEN) | FAULT(READ) | FAULT(READDIR) | FAULT(WRITE) | FAULT(SYNC) | FAULT(RENAME) | \
	 FAULT(UNLINK) | FAULT(STAT) | FAULT(MKDIR) | FAULT(TRUNCATE))

struct fault_row {
	const char *name;
	unsigned calls; /* FAULT(OPEN) | ...: those that fail */
	/* Before each run: restores the state. No call fails in it. May be NULL. */
	void (*before)(void *arg);
	/*
	 * Runs the code under test from its beginning to its end: 0 or -errno, as the product's
	 * function returns. It frees what it was given, and asserts itself that a failure left
	 * outputs alone.
	 */
	int (*run)(void *arg);
	/* After a run, failed or not: the state is one of those that may be. May be NULL. */
	void (*check)(void *arg);
	unsigned
		step; /* 0 and 1: each call; n: every n-th, where one run takes long (LONG: each) */
	/*
	 * The run has other threads or processes: which call is the n-th differs from run to run,
	 * and so does the memory that libraries keep. Only LeakSanitizer checks its memory.
	 */
	bool threads;
	bool grows; /* a cache of the library's grows with each run: allocations are not compared */
};
/*
 * For every kind of call of the row, and every error of that kind (short reads and writes among
 * them): the 1st, 2nd, ... n-th call fails once, and again with all calls from the n-th on, until a
 * run meets no failing call. Each time: the run ends, check() holds, the same run without a fault
 * gives 0, and no descriptor, mapping or allocation is left. Otherwise the cmocka test fails.
 * Prints how many calls failed.
 */
void fault_each(const struct fault_row *row, void *arg);
/*
 * The same, without failing the test. Returns NULL if everything holds, else a text (borrowed) that
 * says what does not. Adds to *n_failed.
 */
const char *fault_find(const struct fault_row *row, void *arg, unsigned *n_failed);

/*
 * By hand: the n-th call of a kind (1: the next) fails with error. With more, all calls after it
 * fail, too.
 */
void fault_arm(enum fault_call call, int error, unsigned n, bool more);
unsigned fault_disarm(void);	      /* how many calls failed */
unsigned fault_failed(void);	      /* so far; 0: none is armed */
void fault_outage_ends(void *unused); /* fault_disarm(), for a timer */
/* Calls of children that are forked from now on count and fail as well, until they exec. */
void fault_in_children(void);
