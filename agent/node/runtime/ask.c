/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has a child learn the runtimes of a process and name their frames, and checks its answers. The
 * process may have taken over the child, so each number and text is checked: a lie costs names of
 * the child's own namespace, and nothing else. What a runtime's data says to the kernel's part is
 * hostile in any case, because it comes from the process's memory. Runs on the reader's thread.
 */
#include "node/runtime/ask_format.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOST_MAX (1u << 24) /* of one answer; a child that says more lies */

/* sizes of struct pf_<name> */
static const size_t data_bytes[_PF_RUNTIME_MAX] = {
#define X(NAME, name) [PF_RUNTIME_##NAME] = sizeof(struct pf_##name),
	PF_RUNTIMES(X) PF_CONTEXTS(X)
#undef X
};
#define X(NAME, name)                                                                              \
	_Static_assert(sizeof(struct pf_##name) <= RUNTIME_DATA_MAX, "an answer is one message");
PF_RUNTIMES(X)
PF_CONTEXTS(X)
#undef X

struct counter *runtime_loss_counter(enum reader_loss l)
{
	switch (l) {
	case LOST_LINES:
		return counter("podflame_runtime_lines_dropped_total", NULL, NULL);
	case LOST_INLINED:
		return counter("podflame_inlined_frames_dropped_total", NULL, NULL);
	default:
		return counter(LEARN_FAILURES, "reason", runtime_error_word(-E2BIG));
	}
}

/* what: what was read, for the counter of bytes */
static int take_end(const void *message, size_t n, const char *what)
{
	struct end_message e;

	if (n != sizeof(e))
		return -EBADMSG;
	memcpy(&e, message, n);
	if (e.read_bytes > (_PF_RUNTIME_MAX + 1) * (uint64_t)MEMORY_BUDGET + RUNTIME_RESOLVE_BUDGET)
		return -EBADMSG;
	for (unsigned i = 0; i < _GENERATED_LACKS; i++)
		if (e.generated.lacks[i] > LOST_MAX)
			return -EBADMSG;
	for (unsigned i = 0; i < _READER_LOSSES; i++)
		if (e.lost[i] > LOST_MAX)
			return -EBADMSG;
	for (unsigned i = 0; i < _READER_LOSSES; i++)
		counter_add(runtime_loss_counter((enum reader_loss)i), e.lost[i]);
	runtime_generated_count(&e.generated);
	counter_add(counter("podflame_runtime_read_bytes_total", "for", what), e.read_bytes);
	return 1;
}

static bool is_error(int32_t e)
{
	return e < 0 && e > -4096;
}

/* ---- a question with a file in memory ---- */

static int write_file(const void *bytes, size_t n)
{
	_cleanup_close_ int fd = memfd_create("podflame-question", MFD_CLOEXEC);

	for (size_t done = 0; fd >= 0 && done < n;) {
		ssize_t r = write(fd, (const char *)bytes + done, n - done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -EIO;
		done += (size_t)r;
	}
	return fd < 0 ? -errno : TAKE_FD(fd);
}

int runtime_ask(const struct runtime_asked *of, const void *file, size_t n,
		struct reader_question *q)
{
	_cleanup_close_ int fd = file ? write_file(file, n) : -1;

	if (file && fd < 0)
		return -EBUSY;
	q->charged_ns = of->charged_ns;
	q->fds[0] = runtime_process_memory_fd(of->memory);
	q->fds[1] = fd;
	q->n_fds = file ? 2 : 1;
	return runtime_reader_ask(q);
}

/* ---- learn ---- */

struct learning {
	struct runtime_answers *answers;
	enum pf_runtime_kind last; /* kind of the last message */
};

void runtime_answers_done(struct runtime_answers *a)
{
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++)
		runtime_learnt_done(&a->learnt[k]);
	buf_done(&a->generated);
}

static struct runtime_learnt learnt_of(const struct learnt_message *m, const char *behind)
{
	struct runtime_learnt l = {.n_ranges = m->n_ranges, .data_bytes = m->data_bytes};

	memcpy(l.version, m->version, sizeof(l.version));
	memcpy(l.problem, m->problem, sizeof(l.problem));
	if (l.n_ranges)
		l.ranges = xcalloc(l.n_ranges, sizeof(*l.ranges));
	for (size_t i = 0; i < l.n_ranges; i++, behind += sizeof(struct wire_range)) {
		struct wire_range r;

		memcpy(&r, behind, sizeof(r));
		l.ranges[i] = (struct runtime_range){r.start, r.end, r.managed != 0};
	}
	if (l.data_bytes)
		l.data = xmemdup(behind, l.data_bytes);
	return l;
}

static int take_learnt(struct learning *l, const void *message, size_t n)
{
	const struct runtime_ops *ops;
	struct learnt_message m;
	enum pf_runtime_kind k;

	if (n < sizeof(m))
		return -EBADMSG;
	memcpy(&m, message, sizeof(m));
	k = (enum pf_runtime_kind)m.head.n;
	ops = m.head.n < _PF_RUNTIME_MAX ? runtime_ops(k) : NULL;
	if (!ops || ops->in_agent || k <= l->last || (m.error && !is_error(m.error)) ||
	    m.named > 1 || m.n_ranges > RUNTIME_RANGES_MAX ||
	    (m.data_bytes && m.data_bytes != data_bytes[k]) ||
	    (m.error && (m.n_ranges || m.data_bytes)) ||
	    n != sizeof(m) + m.n_ranges * sizeof(struct wire_range) + m.data_bytes)
		return -EBADMSG;
	l->last = k;
	l->answers->errors[k] = m.error;
	l->answers->named[k] = m.named;
	if (!m.error)
		l->answers->learnt[k] = learnt_of(&m, (const char *)message + sizeof(m));
	return 0;
}

static int take_generated(struct learning *l, const void *message, size_t n)
{
	const struct generated_message *m = message;

	if (!m->head.n || n != sizeof(*m) + (size_t)m->head.n)
		return -EBADMSG;
	return buf_add(&l->answers->generated, m + 1, m->head.n) < 0 ? -EBADMSG : 0;
}

static int take_learnt_all(struct learning *l, const void *message, size_t n)
{
	int r = take_end(message, n, "learn");

	if (r > 0)
		l->answers->publishes = ((const struct end_message *)message)->generated.publishes;
	return r;
}

static int take_learning(void *arg, const void *message, size_t n)
{
	const struct reader_head *head = message;

	switch (head->what) {
	case LEARNT:
		return take_learnt(arg, message, n);
	case GENERATED:
		return take_generated(arg, message, n);
	case LEARNT_ALL:
		return take_learnt_all(arg, message, n);
	default:
		return -EBADMSG;
	}
}

int runtime_ask_learn(const struct runtime_asked *of, const struct buf *look, uint64_t old,
		      uint64_t token, struct runtime_answers *answers)
{
	struct learn_question q = {
		.head.what = READ_RUNTIMES, .old = old, .token = token, .look_bytes = look->len};
	struct learning l = {.answers = answers, .last = PF_RUNTIME_NONE};
	struct reader_question rq = {
		.message = &q.head, .n = sizeof(q), .take = take_learning, .arg = &l};

	buf_init(&answers->generated, GENERATED_INDEX_MAX);
	return runtime_ask(of, look->data, look->len, &rq);
}

/* ---- names ---- */

struct naming {
	struct runtime_ask *const *asks;
	size_t n, at; /* at: the frame whose records come now */
	size_t bytes; /* of all names so far */
	bool unknown;
};

static bool is_kind_of(const struct runtime_ask *a, uint8_t kind)
{
	const struct runtime_ops *ops = runtime_ops(a->kind);

	return kind == FRAME_LIBRARY || kind == FRAME_OBJECT || kind == FRAME_MARKER ||
	       (ops && kind == ops->frame_kind);
}

static bool take_last(struct naming *x, const struct wire_name *w)
{
	struct runtime_ask *a = x->asks[x->at];

	if (w->name_n || w->file_n || (w->error && (!is_error(w->error) || a->names.n)) ||
	    (a->names.n && !is_kind_of(a, w->kind)))
		return false;
	a->error = w->error;
	if (a->names.n)
		a->names.kind = (enum frame_kind)w->kind;
	x->at++;
	return true;
}

/* Reads one record of a message. false: the record is wrong. */
static bool take_record(struct naming *x, const char **at, const char *end)
{
	struct runtime_names *names;
	struct wire_name w;
	const char *name;

	if ((size_t)(end - *at) < sizeof(w) || x->at == x->n)
		return false;
	memcpy(&w, *at, sizeof(w));
	name = *at + sizeof(w);
	if (w.last)
		return *at = name, take_last(x, &w);
	names = &x->asks[x->at]->names;
	if (w.name_n > WIRE_TEXT_MAX || w.file_n > WIRE_TEXT_MAX || (w.file_n && !w.has_file) ||
	    (size_t)w.name_n + w.file_n > (size_t)(end - name) ||
	    memchr(name, '\0', (size_t)w.name_n + w.file_n) || names->n == RUNTIME_NAMES_MAX)
		return false;
	x->bytes += sizeof(*names->items) + w.name_n + w.file_n + 2;
	if (x->bytes > RUNTIME_NAMES_BYTES)
		return false;
	runtime_names_add(names, xstrndup(name, w.name_n),
			  w.has_file ? xstrndup(name + w.name_n, w.file_n) : NULL, w.line,
			  w.inlined != 0);
	*at = name + w.name_n + w.file_n;
	return true;
}

static int take_names(struct naming *x, const void *message, size_t n)
{
	const struct reader_head *head = message;
	const char *at = (const char *)(head + 1), *end = (const char *)message + n;

	if (!head->n)
		return -EBADMSG;
	for (uint32_t i = 0; i < head->n; i++)
		if (!take_record(x, &at, end))
			return -EBADMSG;
	return at == end ? 0 : -EBADMSG;
}

static int take_naming(void *arg, const void *message, size_t n)
{
	const struct reader_head *head = message;
	struct naming *x = arg;

	switch (head->what) {
	case NAMES:
		return take_names(x, message, n);
	case NAMES_ALL:
		return x->at == x->n ? take_end(message, n, "names") : -EBADMSG;
	case NAMES_UNKNOWN:
		x->unknown = true;
		return x->at || x->bytes ? -EBADMSG : take_end(message, n, "names");
	default:
		return -EBADMSG;
	}
}

static struct wire_ask wire_of(const struct runtime_ask *a)
{
	return (struct wire_ask){
		.a = a->frame.a,
		.b = a->frame.b,
		.caller_a = a->caller.a,
		.caller_b = a->caller.b,
		.kind = (uint8_t)a->kind,
		.type = a->frame.type,
		.caller_type = a->caller.type,
		.has_caller = a->has_caller,
	};
}

int runtime_ask_names(const struct runtime_asked *of, uint64_t token,
		      struct runtime_ask *const *asks, size_t n)
{
	_cleanup_free_ struct names_question *q = xcalloc(1, sizeof(*q));
	struct naming x = {.asks = asks, .n = n};
	struct reader_question rq = {
		.message = &q->head,
		.n = offsetof(struct names_question, asks) + n * sizeof(q->asks[0]),
		.take = take_naming,
		.arg = &x,
	};
	int r;

	q->head.what = READ_NAMES;
	q->head.n = (uint32_t)n;
	q->token = token;
	for (size_t i = 0; i < n; i++)
		q->asks[i] = wire_of(asks[i]);
	r = runtime_ask(of, NULL, 0, &rq);
	if (r == 0 && x.unknown)
		r = -ENOKEY;
	for (size_t i = 0; r < 0 && i < n; i++)
		runtime_names_done(&asks[i]->names);
	return r;
}
