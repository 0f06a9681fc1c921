/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's answer about a slice of a perf map: its functions, in messages, and up to where the
 * slice has whole lines. Allocates no memory, and keeps nothing between questions.
 */
#include "node/runtime/perfmap/perfmap_format.h"

#include "lib/child/child.h"

#include <unistd.h>

#define STEP_BYTES 65536

static struct {
	uint64_t sequence;
	int error; /* a message could not be sent */
	struct perf_text text;
	/* the last bytes that were read: the tail, and a line that is not whole */
	char recent[PERF_MAP_TAIL_BYTES + PERF_MAP_LINE_MAX];
	size_t recent_n;
	char bytes[STEP_BYTES];
	_Alignas(8) char message[READER_MESSAGE_MAX];
	size_t message_n;
} work;

static void begin_message(void)
{
	const struct reader_head head = {.sequence = work.sequence, .what = PERF_FUNCTIONS};

	memcpy(work.message, &head, sizeof(head));
	work.message_n = sizeof(head);
}

static void send_message(void)
{
	const struct reader_head *head = (const struct reader_head *)work.message;

	if (!work.error && head->n)
		work.error = child_send(CHILD_SOCKET_FD, work.message, work.message_n, NULL, 0);
	begin_message();
}

static void put(const void *bytes, size_t n)
{
	memcpy(work.message + work.message_n, bytes, n);
	work.message_n += n;
}

static void found(void *arg, const struct perf_function *f)
{
	const struct perf_record record = {
		.start = f->start,
		.size = (uint32_t)(f->end - f->start),
		.line = f->line,
		.name_n = (uint16_t)f->name_n,
		.file_n = (uint16_t)f->file_n,
		.kind = f->kind,
	};
	size_t n = sizeof(record) + f->name_n + f->file_n;

	(void)arg;
	if (work.message_n + n > sizeof(work.message))
		send_message();
	put(&record, sizeof(record));
	put(f->name, f->name_n);
	if (f->file_n)
		put(f->file, f->file_n);
	((struct reader_head *)work.message)->n++;
}

static void keep_recent(const char *bytes, size_t n)
{
	size_t new = MIN(n, sizeof(work.recent));
	size_t old = MIN(work.recent_n, sizeof(work.recent) - new);

	memmove(work.recent, work.recent + work.recent_n - old, old);
	memcpy(work.recent + old, bytes + n - new, new);
	work.recent_n = old + new;
}

/* Whether the file still has the bytes that the agent knows before the slice. */
static bool continues(const struct perf_question *q, int fd)
{
	ssize_t n =
		q->tail_n ? pread(fd, work.bytes, q->tail_n, (off_t)(q->offset - q->tail_n)) : 0;

	return n == (ssize_t)q->tail_n && memcmp(work.bytes, q->tail, q->tail_n) == 0;
}

static int read_slice(const struct perf_question *q, int fd, uint64_t *at)
{
	while (*at < q->stop && !work.error) {
		ssize_t n = pread(fd, work.bytes, MIN(STEP_BYTES, q->stop - *at), (off_t)*at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		runtime_perf_text_add(&work.text, work.bytes, (size_t)n);
		keep_recent(work.bytes, (size_t)n);
		*at += (uint64_t)n;
	}
	return 0;
}

/* The next slice begins with the line that is not whole yet. */
static int send_done(int error, uint64_t at)
{
	size_t part = work.text.behind ? 0 : work.text.line_n, before = work.recent_n - part;
	struct perf_done done = {
		.head = {.sequence = work.sequence, .what = PERF_DONE},
		.error = error,
		.behind = work.text.behind,
		.offset = at - part,
		.n_malformed = work.text.n_malformed,
		.tail_n = (uint32_t)MIN(before, sizeof(done.tail)),
	};

	memcpy(done.tail, work.recent + before - done.tail_n, done.tail_n);
	return child_send(CHILD_SOCKET_FD, &done, sizeof(done), NULL, 0);
}

int runtime_perf_answer(const void *message, size_t n, int fd)
{
	const struct perf_question *q = message;
	uint64_t at;
	int r;

	if (n != sizeof(*q) || q->tail_n > MIN(sizeof(q->tail), q->offset))
		return -EBADMSG;
	at = q->offset;
	work.sequence = q->head.sequence;
	work.error = 0;
	work.text.writer = (enum perf_map_writer)q->writer;
	work.text.found = found;
	work.text.n_malformed = 0;
	work.text.line_n = 0;
	work.text.behind = q->behind;
	work.recent_n = q->tail_n;
	memcpy(work.recent, q->tail, q->tail_n);
	begin_message();
	r = continues(q, fd) ? read_slice(q, fd, &at) : -ESTALE;
	send_message();
	return work.error ? work.error : send_done(r, at);
}
