/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child: a process without rights that reads hostile input. It executes the same program as its
 * owner, with a verb of its own. All it has is one socket. The owner asks, and waits for the answer
 * until a timeout. A child that hangs, dies or sends a wrong answer is lost: the owner ends it, and
 * starts another one for the next question.
 */
#pragma once

#include "lib/base/base.h"

/* ---- owner; one thread at a time ---- */
/* How the owner starts a process, ends it and waits for it. */
struct child_ops {
	uint64_t (*now_ns)(void); /* CLOCK_MONOTONIC */
	void (*sleep)(uint64_t ns);
	/* The process gets sock as CHILD_SOCKET_FD. 0 or -errno. */
	int (*start)(const char *path, char *const *argv, int sock, pid_t *ret);
	void (*end)(pid_t pid); /* kills the process with SIGKILL */
	/* Waits at most ns for a process to end. true: it has ended and is reaped. */
	bool (*reap)(pid_t pid, uint64_t ns);
	/* Waits at most ns. true: a message or the end of the other side can be read. */
	bool (*readable)(int sock, uint64_t ns);
};
extern const struct child_ops child_kernel;

struct child_config {
	const char *self_exe;	 /* the program to execute; NULL: /proc/self/exe */
	const char *const *argv; /* the verb and its arguments, NULL at the end; copied */
	const char *restarts;	 /* name of the counter of children that were lost */
	/* name of the counter of killed children that have not ended within 1 s */
	const char *stuck;
	/*
	 * The owner cannot wait long: child_start waits at most 200 ms until a child is ready, and
	 * child_lose at most 100 ms until one has ended. For other owners these limits are 10 s and
	 * 1 s.
	 */
	bool impatient;
	const struct child_ops *ops; /* NULL: child_kernel */
	/* For a pool; 0: CHILD_POOL_WAITING_MAX and CHILD_POOL_QUESTIONS. */
	size_t waiting_max;
	unsigned questions_max;
};
struct child;
struct child *child_new(const struct child_config *c); /* starts no process yet */
struct child *child_free(struct child *c);
/*
 * Starts the process unless it runs, and waits until it is ready. After two losses in a row, the
 * next start must wait: 40 ms, then twice as long each time, at most 500 ms. child_start sleeps for
 * this time. For an impatient owner, it returns -EAGAIN instead of sleeping. An impatient owner
 * also gets -EAGAIN while the new child is not ready (for at most 10 s) or the old one has not
 * ended (for at most 1 s). The owner calls again at child_next_ns. -EPERM: the child could not give
 * up its rights. Other errors: -ETIMEDOUT, -EPIPE, -errno.
 */
int child_start(struct child *c);
/*
 * Starts the process unless it runs, and does not wait until it is ready: the next child_start() or
 * child_ask() does. So a question that comes later need not wait for the start.
 */
void child_prepare(struct child *c);
/*
 * Sends a question. If the child has died since its last answer, starts a new one and asks it. If
 * there is no child, returns an error of child_start.
 */
int child_ask(struct child *c, const void *message, size_t n, const int *fds, size_t n_fds);
/*
 * Waits for an answer of at most max bytes. *ret_fd: the descriptor that the answer carries, or -1.
 * ret_fd NULL: the answer must carry none.
 * -ETIMEDOUT, -EPIPE (the child died), -EBADMSG (the answer is larger or has more descriptors): the
 * caller calls child_lose.
 */
int child_answer(struct child *c, uint64_t timeout_ns, void *message, size_t max, size_t *ret_n,
		 int *ret_fd);
void child_lose(struct child *c); /* ends the process, and counts the loss */
/* Ends the process, which is no loss. The next question starts another one. */
void child_end(struct child *c);
/*
 * Returns whether the process that was ended last is gone. It may stay as long as a pod's file
 * system does not answer.
 */
bool child_ended(struct child *c);
bool child_is_starting(const struct child *c); /* it has a process, which is not ready yet */
void child_forget_losses(struct child *c);     /* the next loss is the first in a row */
/* CLOCK_MONOTONIC: when an impatient owner may call again after -EAGAIN. */
uint64_t child_next_ns(const struct child *c);
uint64_t child_restarts(const struct child *c);

/*
 * ---- a pool of children, each of which serves one owner only; any thread ----
 * A child that an owner's bytes have taken over never gets a question of another owner. Owners are
 * numbers, such as struct charged.ns of node/proc.
 */
/* so many children wait for their owner's next question, unless child_config says otherwise */
#define CHILD_POOL_WAITING_MAX 4
#define CHILD_POOL_OWNERS_MAX  256 /* owners that a pool remembers */
/* after so many questions a child is replaced by a new one, unless child_config says otherwise */
#define CHILD_POOL_QUESTIONS 100
/* for so long after a question a child that is still starting is not ended to make room */
#define CHILD_POOL_STARTING_NS (10 * NSEC_PER_SEC)
/* a child that has waited for so long is ended */
#define CHILD_POOL_IDLE_NS (30 * NSEC_PER_SEC)
/* for so long an owner gets no child after a loss; twice as long each time, up to the maximum */
#define CHILD_POOL_PAUSE_NS	(20 * NSEC_PER_SEC)
#define CHILD_POOL_PAUSE_MAX_NS (640 * NSEC_PER_SEC)
struct child_pool;
/* *c must stay valid, with its argv. */
struct child_pool *child_pool_new(const struct child_config *c);
/* No child may be taken. pool may be NULL. Returns NULL. */
struct child_pool *child_pool_free(struct child_pool *pool);
/*
 * Takes a child that has served no other owner; the caller asks it alone. Two callers of one owner
 * get two children. -ECANCELED: the owner must wait. Either because of a loss: for the pause, and
 * until the lost process has ended. Or because so many children as may wait are all starting: each
 * answers a question before it makes room for another owner's.
 */
int child_pool_take(struct child_pool *pool, uint64_t owner, struct child **ret);
/* lost: the child hung, died or lied. The pool ends it, and its owner must wait. */
void child_pool_give(struct child_pool *pool, struct child *c, bool lost);
/* Ends children that have waited too long, as child_pool_give() does. To be called now and then. */
void child_pool_rest(struct child_pool *pool);
/*
 * CLOCK_MONOTONIC: when the owner may try to take a child again after -ECANCELED or a loss. 0: it
 * need not wait.
 */
uint64_t child_pool_next_ns(struct child_pool *pool, uint64_t owner);

/* ---- the process ---- */
#define CHILD_SOCKET_FD 3
struct child_rights {
	uint64_t data_bytes, address_bytes; /* limits of its memory; 0: no limit */
	uint64_t file_bytes;		    /* limit of the size of a file (a memfd) */
	uint64_t n_fds;			    /* limit of the number of descriptors */
	uint64_t cpu_s;			    /* limit of its CPU time, in seconds; 0: no limit */
	/* system calls that the child may make, with any arguments */
	const int *calls;
	size_t n_calls;
	int (*allow)(void *filter); /* adds rules to the seccomp filter; may be NULL */
};
/*
 * The child gives up all rights except `rights`, and reports to the owner that it is ready. If this
 * fails, the function ends the process. Returns 2 if a user started the process, so that it has no
 * owner.
 */
int child_begin(const char *verb, const char *process_name, const struct child_rights *rights);

/* ---- messages: one datagram with at most CHILD_FDS_MAX descriptors ---- */
#define CHILD_FDS_MAX 64 /* descriptors of one message */
/*
 * -EPIPE: the other end has closed the socket. -EBADMSG: the message has more bytes or descriptors
 * than max.
 */
int child_send(int sock, const void *message, size_t n, const int *fds, size_t n_fds);
int child_receive(int sock, void *message, size_t max, size_t *ret_n, int *ret_fds, size_t max_fds,
		  size_t *ret_n_fds);
