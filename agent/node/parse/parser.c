/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's side of parse: gives a child one file, and waits for it until the timeout. If the
 * child hangs or dies, only the file that it was reading is lost. Each file gets a child that has
 * read no other one. So what is known of a file depends on this file only, and a file that takes
 * over its child cannot change the names of others.
 */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_NS  (10 * NSEC_PER_SEC)
#define DEFAULT_INDEX_BYTES (128u << 20) /* PyTorch's libtorch_cpu.so has one of 77 MB */

struct parser {
	uint64_t timeout_ns;
	size_t max_index_bytes;
	struct child *child;
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

static enum parse_reason reason_of(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return PARSE_TIMEOUT;
	case -EBADMSG:
		return PARSE_ANSWER;
	default:
		return PARSE_DIED;
	}
}

static enum parse_reason wait_reply(struct parser *p, int *ret_memfd)
{
	_cleanup_close_ int fd = -1;
	struct parse_reply reply;
	size_t n;
	int r = child_answer(p->child, p->timeout_ns, &reply, sizeof(reply), &n, &fd);

	if (r < 0)
		return reason_of(r);
	if (n != sizeof(reply) || reply.reason >= _PARSE_REASON_MAX)
		return PARSE_ANSWER;
	if (reply.reason == PARSE_OK) {
		if (fd < 0)
			return PARSE_ANSWER;
		*ret_memfd = TAKE_FD(fd);
	}
	return reply.reason;
}

static int check_marks(const char *const *marks, size_t *ret_n)
{
	size_t n = 0;

	while (marks && marks[n])
		if (!marks[n][0] || n++ == PARSE_MARKS_MAX)
			return -EINVAL;
	*ret_n = n;
	return 0;
}

static struct child *new_child(const struct parser_config *c, size_t n_marks)
{
	_cleanup_free_ const char **argv = xcalloc(n_marks + 2, sizeof(*argv));
	struct child_config config = {
		.self_exe = c->self_exe,
		.argv = argv,
		.restarts = "podflame_parse_child_restarts_total",
		.stuck = "podflame_parse_children_stuck_total",
		.ops = c->child_ops,
	};

	argv[0] = PARSE_CHILD_VERB;
	for (size_t i = 0; i < n_marks; i++)
		argv[i + 1] = c->marks[i];
	return child_new(&config);
}

int parse_new(const struct parser_config *c, struct parser **ret)
{
	struct parser *p;
	size_t n_marks;
	int r = check_marks(c->marks, &n_marks);

	if (r < 0)
		return r;
	p = xcalloc(1, sizeof(*p));
	p->timeout_ns = c->timeout_ns ? c->timeout_ns : DEFAULT_TIMEOUT_NS;
	p->max_index_bytes = c->max_index_bytes ? c->max_index_bytes : DEFAULT_INDEX_BYTES;
	p->child = new_child(c, n_marks);
	r = child_start(p->child);
	if (r < 0) {
		parse_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct parser *parse_free(struct parser *p)
{
	if (p) {
		child_free(p->child);
		free(p);
	}
	return NULL;
}

static enum parse_reason ask(struct parser *p, struct parse_request *request, const int *fds,
			     size_t n_fds, int *ret_memfd)
{
	request->max_index_bytes = p->max_index_bytes;
	if (child_ask(p->child, request, sizeof(*request), fds, n_fds) < 0)
		return PARSE_DIED;
	return wait_reply(p, ret_memfd);
}

/*
 * Opens the child's answer. It checks the size again: a child of which a hostile file has taken
 * control does not keep to the limit.
 */
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
		child_lose(p->child);
	} else {
		child_forget_losses(p->child);
		child_end(p->child);
		child_prepare(p->child);
	}
	return reason ? fail(p, reason) : 0;
}

int parse_elf(struct parser *p, int main_fd, struct elf_index **ret)
{
	struct parse_request request = {.what = PARSE_MAIN};

	if (main_fd < 0)
		return -EBADF;
	return parse(p, &request, &main_fd, 1, ret);
}

int parse_debug(struct parser *p, const struct parse_debug_files *f, struct elf_index **ret)
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

const char *parse_reason(const struct parser *p)
{
	return reasons[p->reason].word;
}

uint64_t parse_restarts(const struct parser *p)
{
	return child_restarts(p->child);
}
