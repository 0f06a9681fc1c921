/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child: a process without rights that reads hostile input. It is this program once more, started
 * with a verb of its own, and one socket is all it has. The owner asks, and waits for the answer
 * until a timeout. It ends a child that hangs, dies or answers nonsense; its next question starts
 * another.
 */
#pragma once

#include "lib/base/base.h"

/* ---- owner; one thread at a time ---- */
/* How the owner starts a process, ends it and waits for it. */
struct child_ops {
	uint64_t (*now_ns)(void);	/* CLOCK_MONOTONIC */
	void (*sleep)(uint64_t ns);
	/* The process gets sock as CHILD_SOCKET_FD. 0 or -errno. */
	int (*start)(const char *path, char *const *argv, int sock, pid_t *ret);
	void (*end)(pid_t pid);		/* SIGKILL */
	/* Waits at most ns for a process to end. true: it has ended and is reaped. */
	bool (*reap)(pid_t pid, uint64_t ns);
	/* Waits at most ns. true: a message or the end of the other side can be read. */
	bool (*readable)(int sock, uint64_t ns);
};
extern const struct child_ops child_kernel;

struct child_config {
	const char *self_exe;		/* the program to execute; NULL: /proc/self/exe */
	const char *const *argv;	/* the verb and its arguments, NULL at the end; copied */
	const char *restarts;		/* counter: children that were lost */
	const char *stuck;		/* counter: those of them that the kernel does not end */
	/*
	 * The owner cannot wait: child_start waits at most 200 ms for a child to get ready, and
	 * child_lose at most 100 ms for one to end; else 10 s and 1 s.
	 */
	bool impatient;
	const struct child_ops *ops;	/* NULL: child_kernel */
};
struct child;
struct child *child_new(const struct child_config *c);	/* no process yet */
struct child *child_free(struct child *c);
/*
 * Starts the process unless it runs, and waits until it is ready. After two losses in a row the
 * next start is put off: by 40 ms, twice as long each time, at most 500 ms. child_start waits for
 * that. To an impatient owner it returns -EAGAIN instead, and also while a child is not ready yet
 * (for 10 s) or the one before has not ended (for 1 s): the owner calls again at child_next_ns.
 * -EPERM: it could not give up its rights; -ETIMEDOUT, -EPIPE, -errno.
 */
int child_start(struct child *c);
/*
 * Sends a question, to a new child where the old one has died meanwhile. -errno: there is none, as
 * child_start says.
 */
int child_ask(struct child *c, const void *message, size_t n, const int *fds, size_t n_fds);
/*
 * Waits for an answer of at most max bytes; *ret_fd: the descriptor that came along, -1: none;
 * NULL: none may come.
 * -ETIMEDOUT, -EPIPE (it died), -EBADMSG (not such an answer): call child_lose.
 */
int child_answer(struct child *c, uint64_t timeout_ns, void *message, size_t max, size_t *ret_n,
		 int *ret_fd);
void child_lose(struct child *c);		/* ends the process, and counts */
void child_forget_losses(struct child *c);	/* the next loss is the first in a row */
/* CLOCK_MONOTONIC: when an impatient owner calls again after -EAGAIN. */
uint64_t child_next_ns(const struct child *c);
uint64_t child_restarts(const struct child *c);
uint64_t child_age_ns(const struct child *c);	/* since it was ready; 0: there is none */

/* ---- the process ---- */
#define CHILD_SOCKET_FD 3
struct child_rights {
	uint64_t data_bytes, address_bytes;	/* limit of memory; 0: none */
	uint64_t file_bytes;			/* of the largest file, a memfd */
	uint64_t n_fds;				/* number of descriptors */
	const int *calls;			/* system calls: allowed with any arguments */
	size_t n_calls;
	int (*allow)(void *filter);		/* adds rules to the seccomp filter; NULL: none */
};
/*
 * Gives up all rights but these, and reports to the owner that the child is ready. If that fails,
 * it ends the process. Returns 2 if the process was started by hand and has no owner.
 */
int child_begin(const char *verb, const char *process_name, const struct child_rights *rights);

/* ---- messages: one datagram with at most CHILD_FDS_MAX descriptors ---- */
#define CHILD_FDS_MAX 64
/* -EPIPE: the other end has closed. -EBADMSG: the message has more than fits. */
int child_send(int sock, const void *message, size_t n, const int *fds, size_t n_fds);
int child_receive(int sock, void *message, size_t max, size_t *ret_n, int *ret_fds, size_t max_fds,
		  size_t *ret_n_fds);
