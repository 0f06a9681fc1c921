/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parent side: keeps one parse child alive, hands it one file at a time and waits no
 * longer than the timeout. A child that hangs or dies costs the file it had.
 */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_NS  (10 * NSEC_PER_SEC)
#define DEFAULT_INDEX_BYTES (64u << 20)
#define BACKOFF_MIN_NS	    (10 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS	    (500 * NSEC_PER_MSEC)
#define END_NS		    NSEC_PER_SEC

struct parser {
	uint64_t timeout_ns;
	size_t max_index_bytes;
	char **argv; /* of a child: its verb and the marks */
	char *self_exe;
	pid_t pid; /* 0: no child */
	int sock;
	uint64_t sequence, restarts;
	unsigned lost_in_a_row;
	enum parse_reason reason;
};

static const struct {
	const char *word;
	int error;
} reasons[] = {
#define X(name, word, error) [PARSE_##name] = {word, error},
	PARSE_REASONS(X)
#undef X
};

static int fail(struct parser *p, enum parse_reason reason)
{
	p->reason = reason;
	counter_add(counter("podflame_parse_failures_total", "reason", reasons[reason].word), 1);
	return reasons[reason].error;
}

/*
 * A killed child ends at once, unless it reads a page of a file system whose server (a pod's FUSE)
 * does not answer: then it stays until that one does, and is not waited for.
 */
static void reap(pid_t pid)
{
	uint64_t deadline = now_mono_ns() + END_NS, now;
	struct pollfd ended = {.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	while ((now = now_mono_ns()) < deadline)
		if (poll(&ended, 1, (deadline - now) / NSEC_PER_MSEC + 1) >= 0 || errno != EINTR)
			break;
	closep(&ended.fd);
	if (waitpid(pid, NULL, WNOHANG) != pid)
		counter_add(counter("podflame_parse_children_stuck_total", NULL, NULL), 1);
}

/* The child is ours and not reaped yet, so its pid cannot be another process's. */
static void end_child(struct parser *p)
{
	if (p->pid > 0) {
		kill(p->pid, SIGKILL);
		reap(p->pid);
	}
	closep(&p->sock);
	p->sock = -1;
	p->pid = 0;
}

static void lose_child(struct parser *p)
{
	end_child(p);
	p->restarts++;
	p->lost_in_a_row++;
	counter_add(counter("podflame_parse_child_restarts_total", NULL, NULL), 1);
}

static void wait_backoff(const struct parser *p)
{
	uint64_t wait_ns;
	struct timespec ts;

	if (p->lost_in_a_row < 2)
		return;
	wait_ns = MIN(BACKOFF_MIN_NS << MIN(p->lost_in_a_row, 10u), BACKOFF_MAX_NS);
	ts = (struct timespec){.tv_sec = wait_ns / NSEC_PER_SEC, .tv_nsec = wait_ns % NSEC_PER_SEC};
	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

/* posix_spawn and not fork: other threads may hold locks. Own process group: a terminal's
 * Ctrl-C is for the recorder, not for its child. */
static int spawn(const struct parser *p, int child_sock, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, child_sock, PARSE_SOCKET_FD);
	r = posix_spawn(ret_pid, p->self_exe, &actions, &attr, p->argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -r;
}

static enum parse_reason wait_reply(struct parser *p, uint64_t sequence, int *ret_memfd)
{
	uint64_t deadline = now_mono_ns() + p->timeout_ns;
	_cleanup_close_ int fd = -1;
	struct parse_reply reply;
	size_t n_fds = 0;
	int r;

	for (;;) {
		struct pollfd pfd = {.fd = p->sock, .events = POLLIN};
		uint64_t now = now_mono_ns();
		struct timespec left;

		if (now >= deadline)
			return PARSE_TIMEOUT;
		left = (struct timespec){.tv_sec = (deadline - now) / NSEC_PER_SEC,
					 .tv_nsec = (deadline - now) % NSEC_PER_SEC};
		r = ppoll(&pfd, 1, &left, NULL);
		if (r > 0)
			break;
	}
	r = parse_receive(p->sock, &reply, sizeof(reply), &fd, 1, &n_fds);
	if (r < 0)
		return r == -EBADMSG ? PARSE_ANSWER : PARSE_DIED;
	if (reply.sequence != sequence || reply.reason >= _PARSE_REASON_MAX)
		return PARSE_ANSWER;
	if (reply.reason == PARSE_OK && sequence) {
		if (fd < 0)
			return PARSE_ANSWER;
		*ret_memfd = TAKE_FD(fd);
	}
	return reply.reason;
}

static int start_child(struct parser *p)
{
	_cleanup_close_ int child_sock = -1;
	enum parse_reason reason;
	int pair[2], no_fd = -1, r;

	wait_backoff(p);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	p->sock = pair[0];
	child_sock = pair[1];
	r = spawn(p, child_sock, &p->pid);
	if (r < 0) {
		p->pid = 0;
		end_child(p);
		return r;
	}
	closep(&child_sock);
	child_sock = -1;
	reason = wait_reply(p, 0, &no_fd);
	if (reason) {
		lose_child(p);
		return reasons[reason].error;
	}
	return 0;
}

static int make_argv(struct parser *p, const char *const *marks)
{
	size_t n = 0;

	while (marks && marks[n])
		if (!marks[n][0] || n++ == PARSE_MARKS_MAX)
			return -EINVAL;
	p->argv = xcalloc(n + 3, sizeof(*p->argv));
	p->argv[0] = xstrdup("podflame");
	p->argv[1] = xstrdup(PARSE_CHILD_VERB);
	for (size_t i = 0; i < n; i++)
		p->argv[i + 2] = xstrdup(marks[i]);
	return 0;
}

int parser_new(const struct parser_config *c, struct parser **ret)
{
	struct parser *p = xcalloc(1, sizeof(*p));
	int r;

	p->timeout_ns = c->timeout_ns ? c->timeout_ns : DEFAULT_TIMEOUT_NS;
	p->max_index_bytes = c->max_index_bytes ? c->max_index_bytes : DEFAULT_INDEX_BYTES;
	p->self_exe = xstrdup(c->self_exe ? c->self_exe : "/proc/self/exe");
	p->sock = -1;
	r = make_argv(p, c->marks);
	if (r == 0)
		r = start_child(p);
	if (r < 0) {
		parser_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct parser *parser_free(struct parser *p)
{
	if (p) {
		end_child(p);
		for (char **a = p->argv; a && *a; a++)
			free(*a);
		free(p->argv);
		free(p->self_exe);
		free(p);
	}
	return NULL;
}

static enum parse_reason ask(struct parser *p, struct parse_request *request, const int *fds,
			     size_t n_fds, int *ret_memfd)
{
	request->max_index_bytes = p->max_index_bytes;
	/* A child that died while it had nothing to do is not this file's fault: once more. */
	for (int attempt = 0; attempt < 2; attempt++) {
		if (!p->pid && start_child(p) < 0)
			return PARSE_DIED;
		request->sequence = ++p->sequence;
		if (parse_send(p->sock, request, sizeof(*request), fds, n_fds) == 0)
			return wait_reply(p, request->sequence, ret_memfd);
		lose_child(p);
	}
	return PARSE_DIED;
}

/* The child keeps to the limit, unless a file has taken it over. */
static int open_answer(const struct parser *p, int memfd, struct elf_index **ret)
{
	struct stat st;

	if (fstat(memfd, &st) < 0 || (uint64_t)st.st_size > p->max_index_bytes) {
		close(memfd);
		return -EBADMSG;
	}
	return elf_index_open(memfd, ret);
}

static int parse(struct parser *p, struct parse_request *request, const int *fds, size_t n_fds,
		 struct elf_index **ret)
{
	enum parse_reason reason;
	int memfd = -1;

	p->reason = PARSE_OK;
	reason = ask(p, request, fds, n_fds, &memfd);
	if (!reason && open_answer(p, memfd, ret) < 0)
		reason = PARSE_ANSWER;
	if (reason == PARSE_TIMEOUT || reason == PARSE_DIED || reason == PARSE_ANSWER) {
		if (p->pid)
			lose_child(p);
	} else {
		p->lost_in_a_row = 0;
	}
	return reason ? fail(p, reason) : 0;
}

int parser_elf(struct parser *p, int main_fd, struct elf_index **ret)
{
	struct parse_request request = {.what = PARSE_MAIN};

	if (main_fd < 0)
		return -EBADF;
	return parse(p, &request, &main_fd, 1, ret);
}

int parser_debug(struct parser *p, const struct parse_debug_files *f, struct elf_index **ret)
{
	struct parse_request request = {.what = PARSE_DEBUG};
	int fds[PARSE_FDS_MAX];
	uint64_t has = 0;
	size_t n = 0;

	if (f->main_fd < 0)
		return -EBADF;
	for (size_t i = 0; i < MIN(f->n_dwo_fds + 2, (size_t)PARSE_FDS_MAX); i++) {
		int fd = i == 0 ? f->main_fd : i == 1 ? f->debug_fd : f->dwo_fds[i - 2];

		if (fd < 0)
			continue;
		has |= 1ull << i;
		fds[n++] = fd;
	}
	request.has = has;
	request.has_high = has >> 32;
	return parse(p, &request, fds, n, ret);
}

const char *parser_reason(const struct parser *p)
{
	return reasons[p->reason].word;
}

uint64_t parser_restarts(const struct parser *p)
{
	return p->restarts;
}
