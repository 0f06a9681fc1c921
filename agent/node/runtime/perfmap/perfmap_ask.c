/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has a child read a slice of a perf map, and checks its answer. A file may have taken over the
 * child, so each number and text of the answer is checked. The answer may have no more functions
 * than the slice has room for.
 */
#include "node/runtime/perfmap/perfmap_format.h"

struct asking {
	struct perf_map *map;
	const struct perf_question *question;
	struct perf_done done;
	uint64_t n_left, bytes_left; /* functions, and bytes of texts, that may still come */
};

/* Reads one record of a message. false: the record is wrong. */
static bool take_record(struct asking *a, const char **at, const char *end)
{
	struct perf_record r;
	struct perf_function f;

	if ((size_t)(end - *at) < sizeof(r))
		return false;
	memcpy(&r, *at, sizeof(r));
	*at += sizeof(r);
	f = (struct perf_function){
		.start = r.start,
		.end = r.start + r.size,
		.kind = (enum frame_kind)r.kind,
		.line = r.line,
		.name = *at,
		.name_n = r.name_n,
		.file = *at + r.name_n,
		.file_n = r.file_n,
	};
	if (r.start >= PERF_MAP_ADDRESS_MAX || !r.size || r.size > PERF_MAP_FUNCTION_MAX ||
	    (f.kind != FRAME_APP && f.kind != FRAME_JVM && f.kind != FRAME_LIBRARY) || !f.name_n ||
	    f.name_n + f.file_n > PERF_NAME_MAX || f.name_n + f.file_n > (size_t)(end - *at) ||
	    memchr(*at, '\0', f.name_n + f.file_n) || !a->n_left ||
	    f.name_n + f.file_n > a->bytes_left)
		return false;
	a->n_left--;
	a->bytes_left -= f.name_n + f.file_n;
	*at += f.name_n + f.file_n;
	runtime_perf_map_add(a->map, &f);
	return true;
}

static int take_functions(struct asking *a, const void *message, size_t n)
{
	const struct perf_functions *f = message;
	const char *at = (const char *)(f + 1), *end = (const char *)message + n;

	if (!f->head.n)
		return -EBADMSG;
	for (uint32_t i = 0; i < f->head.n; i++)
		if (!take_record(a, &at, end))
			return -EBADMSG;
	return at == end ? 0 : -EBADMSG;
}

static int take_done(struct asking *a, const void *message, size_t n)
{
	const struct perf_question *q = a->question;
	struct perf_done *d = &a->done;

	if (n != sizeof(*d))
		return -EBADMSG;
	memcpy(d, message, n);
	if (d->error > 0 || d->offset < q->offset || d->offset > q->stop || d->behind > 1 ||
	    d->tail_n > MIN(sizeof(d->tail), d->offset) || d->n_malformed > q->stop - q->offset)
		return -EBADMSG;
	return 1;
}

static int take_message(void *arg, const void *message, size_t n)
{
	const struct reader_head *head = message;

	switch (head->what) {
	case PERF_FUNCTIONS:
		return take_functions(arg, message, n);
	case PERF_DONE:
		return take_done(arg, message, n);
	default:
		return -EBADMSG;
	}
}

static struct asking asking_of(const struct perf_question *q, struct perf_map *m)
{
	/* each text may be as much longer than its line as PERF_NAME_MAX says */
	uint64_t bytes = q->stop - q->offset, n = bytes / PERF_LINE_MIN + 1;

	return (struct asking){
		.map = m,
		.question = q,
		.n_left = n,
		.bytes_left = bytes + n * (PERF_NAME_MAX - PERF_MAP_LINE_MAX),
	};
}

int runtime_perf_ask(struct perf_map *m, uint64_t charged_ns, enum perf_map_writer writer, int fd,
		     uint64_t end, struct perf_place *place, bool *more)
{
	struct perf_question q = {
		.head.what = READ_PERF_MAP,
		.offset = place->offset,
		.stop = MIN(end, place->offset + PERF_MAP_SLICE_BYTES),
		.writer = writer,
		.behind = place->behind,
		.tail_n = (uint32_t)place->tail_n,
	};
	struct asking a = asking_of(&q, m);
	const struct reader_question rq = {
		.charged_ns = charged_ns,
		.message = &q.head,
		.n = sizeof(q),
		.fds = {fd},
		.n_fds = 1,
		.take = take_message,
		.arg = &a,
	};
	int r;

	memcpy(q.tail, place->tail, place->tail_n);
	r = runtime_reader_ask(&rq);
	if (r < 0)
		return r;
	if (a.done.n_malformed)
		runtime_perf_map_refuse("malformed", a.done.n_malformed);
	if (a.done.error) /* the child chooses the number, so it has no other meaning */
		return a.done.error == -ESTALE ? -ESTALE : -EIO;
	place->offset = a.done.offset;
	place->behind = a.done.behind;
	place->tail_n = a.done.tail_n;
	memcpy(place->tail, a.done.tail, a.done.tail_n);
	*more = q.stop < end;
	return 0;
}
