/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side: starts the process, asks it, waits for the answer until a timeout, ends the
 * process and starts another.
 */
#include "lib/child/child.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define BACKOFF_MIN_NS (10 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS (500 * NSEC_PER_MSEC) /* longest pause before a new child is started */
#define START_NS       (10 * NSEC_PER_SEC)   /* the time a child has to give up its rights */
#define END_NS	       NSEC_PER_SEC
/*
 * Limits of a single wait of an impatient owner: for the start and for the end of a child. If the
 * wait was too short, the owner calls again after IMPATIENT_AGAIN_NS.
 */
#define IMPATIENT_START_NS (200 * NSEC_PER_MSEC)
#define IMPATIENT_END_NS   (100 * NSEC_PER_MSEC)
#define IMPATIENT_AGAIN_NS (100 * NSEC_PER_MSEC)

struct child {
	const struct child_ops *ops;
	char **argv;
	char *self_exe;
	struct counter *n_restarts, *n_stuck;
	pid_t pid; /* 0: no process */
	int sock;
	bool ready;	     /* the child has given up its rights */
	uint64_t started_ns; /* when the child became ready; before that, when it was started */
	uint64_t restarts;
	pid_t killed; /* the process before this one, if it has not ended yet; 0: none */
	uint64_t killed_ns;
	uint64_t next_ns; /* CLOCK_MONOTONIC: no process is started before this time */
	unsigned lost_in_a_row;
	bool impatient;
};

/*
 * Reaps a killed child. A killed child ends at once, unless it reads a page of a file system whose
 * server (a pod's FUSE) does not answer; then it stays until the server answers. After END_NS the
 * owner stops waiting for it. Returns -EAGAIN if END_NS is not over: an impatient owner must call
 * again.
 */
static int reap(struct child *c, uint64_t wait_ns)
{
	if (!c->ops->reap(c->killed, wait_ns)) {
		if (c->impatient && c->ops->now_ns() < c->killed_ns + END_NS)
			return -EAGAIN;
		counter_add(c->n_stuck, 1);
	}
	c->killed = 0;
	return 0;
}

/*
 * Kills and reaps the child. Until a child is reaped, no other process gets its pid, so the owner
 * cannot kill another process.
 */
static void end_process(struct child *c, uint64_t wait_ns)
{
	if (c->pid > 0) {
		c->ops->end(c->pid);
		c->killed = c->pid;
		c->killed_ns = c->ops->now_ns();
	}
	if (c->killed)
		(void)reap(c, wait_ns);
	closep(&c->sock);
	c->sock = -1;
	c->pid = 0;
	c->ready = false;
}

static uint64_t backoff_ns(const struct child *c)
{
	return MIN(BACKOFF_MIN_NS << MIN(c->lost_in_a_row, 10u), BACKOFF_MAX_NS);
}

void child_end(struct child *c)
{
	end_process(c, c->impatient ? IMPATIENT_END_NS : END_NS);
}

bool child_ended(struct child *c)
{
	if (c->killed && c->ops->reap(c->killed, 0))
		c->killed = 0;
	return !c->killed;
}

bool child_is_starting(const struct child *c)
{
	return c->pid && !c->ready;
}

void child_lose(struct child *c)
{
	if (!c->pid)
		return;
	child_end(c);
	c->restarts++;
	if (++c->lost_in_a_row >= 2)
		c->next_ns = c->ops->now_ns() + backoff_ns(c);
	counter_add(c->n_restarts, 1);
}

void child_forget_losses(struct child *c)
{
	c->lost_in_a_row = 0;
}

static int come_again(struct child *c)
{
	c->next_ns = c->ops->now_ns() + IMPATIENT_AGAIN_NS;
	return -EAGAIN;
}

static int wait_backoff(const struct child *c)
{
	uint64_t now = c->ops->now_ns(), wait_ns = c->next_ns > now ? c->next_ns - now : 0;

	if (wait_ns && c->impatient)
		return -EAGAIN;
	if (wait_ns)
		c->ops->sleep(wait_ns);
	return 0;
}

static int start_with_socket(struct child *c)
{
	_cleanup_close_ int child_sock = -1;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	c->sock = pair[0];
	child_sock = pair[1];
	r = c->ops->start(c->self_exe, c->argv, child_sock, &c->pid);
	if (r < 0) {
		c->pid = 0;
		end_process(c, 0);
	}
	return r;
}

static int start_process(struct child *c)
{
	int r = wait_backoff(c);

	if (!r && c->killed && reap(c, 0) < 0)
		return come_again(c);
	if (!r)
		r = start_with_socket(c);
	c->started_ns = c->ops->now_ns();
	return r;
}

static int wait_ready(struct child *c, uint64_t wait_ns)
{
	int32_t error;
	size_t n;
	int r = child_answer(c, wait_ns, &error, sizeof(error), &n, NULL);

	if (!r && n != sizeof(error))
		r = -EBADMSG;
	if (!r && error)
		r = -EPERM;
	return r;
}

int child_start(struct child *c)
{
	uint64_t wait_ns = c->impatient ? IMPATIENT_START_NS : START_NS;
	int r;

	if (c->ready)
		return 0;
	if (c->pid) {
		/*
		 * An earlier call has started the child. If that call has waited, the owner has set
		 * `impatient` (child.h) and calls again, so this call does not wait.
		 */
		wait_ns = c->impatient ? 0 : wait_ns;
	} else {
		r = start_process(c);
		if (r < 0)
			return r;
	}
	r = wait_ready(c, wait_ns);
	if (r == -ETIMEDOUT && c->ops->now_ns() < c->started_ns + START_NS)
		return come_again(c);
	if (r < 0) {
		child_lose(c);
		return r;
	}
	c->ready = true;
	c->started_ns = c->ops->now_ns();
	return 0;
}

void child_prepare(struct child *c)
{
	if (!c->pid)
		(void)start_process(c);
}

int child_ask(struct child *c, const void *message, size_t n, const int *fds, size_t n_fds)
{
	int r = -EPIPE;

	/*
	 * the child may have died before this question, while it had nothing to do: in this case a
	 * new child gets the question
	 */
	for (int attempt = 0; r < 0 && attempt < 2; attempt++) {
		bool earlier = c->pid && attempt == 0;

		r = child_start(c);
		if (r == -EPIPE && earlier)
			continue;
		if (r < 0)
			return r;
		r = child_send(c->sock, message, n, fds, n_fds);
		if (r < 0)
			child_lose(c);
	}
	return r;
}

int child_answer(struct child *c, uint64_t timeout_ns, void *message, size_t max, size_t *ret_n,
		 int *ret_fd)
{
	size_t n_fds = 0;
	int fd = -1, r;

	if (!c->ops->readable(c->sock, timeout_ns))
		return -ETIMEDOUT;
	r = child_receive(c->sock, message, max, ret_n, &fd, ret_fd ? 1 : 0, &n_fds);
	if (r < 0)
		return r == -EBADMSG ? r : -EPIPE;
	if (ret_fd)
		*ret_fd = fd;
	return 0;
}

uint64_t child_next_ns(const struct child *c)
{
	return c->next_ns;
}

uint64_t child_restarts(const struct child *c)
{
	return c->restarts;
}

struct child *child_new(const struct child_config *config)
{
	struct child *c = xcalloc(1, sizeof(*c));
	size_t n = 0;

	while (config->argv[n])
		n++;
	c->ops = config->ops ? config->ops : &child_kernel;
	c->argv = xcalloc(n + 2, sizeof(*c->argv));
	c->argv[0] = xstrdup("podflame");
	for (size_t i = 0; i < n; i++)
		c->argv[i + 1] = xstrdup(config->argv[i]);
	c->self_exe = xstrdup(config->self_exe ? config->self_exe : "/proc/self/exe");
	c->n_restarts = counter(config->restarts, NULL, NULL);
	c->n_stuck = counter(config->stuck, NULL, NULL);
	c->impatient = config->impatient;
	c->sock = -1;
	return c;
}

struct child *child_free(struct child *c)
{
	if (!c)
		return NULL;
	end_process(c, END_NS);
	for (char **a = c->argv; *a; a++)
		free(*a);
	free(c->argv);
	free(c->self_exe);
	free(c);
	return NULL;
}
