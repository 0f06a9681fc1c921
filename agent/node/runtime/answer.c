/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that learns the runtimes of the processes of one namespace, and names their frames. It
 * keeps what it has learnt of a process for the next question. If it has forgotten that, or if it
 * is new, the agent has it learn the process again.
 */
#include "node/runtime/ask_format.h"

#include "lib/child/child.h"

#include <stdlib.h>
#include <unistd.h>

/* processes of which a child keeps data; the one that was asked longest ago goes first */
#define KEPT_MAX 256
/*
 * If the caches are full, a process that was not in the last questions is forgotten: it may have
 * ended.
 */
#define KEPT_QUESTIONS 100

struct kept {
	uint64_t token, used; /* used: number of the last question about it */
	struct runtime_states states;
	bool is_known[_PF_RUNTIME_MAX];
	struct runtime_learnt known[_PF_RUNTIME_MAX];
};
static struct {
	struct kept *items[KEPT_MAX];
	size_t n;
	uint64_t n_questions;
	/* the answer */
	uint64_t sequence, read_bytes, lost[_READER_LOSSES];
	struct generated_facts generated;
	_Alignas(8) char message[READER_MESSAGE_MAX];
	size_t message_n;
	int error; /* a message could not be sent */
} work;

/* ---- what is kept ---- */

static void forget_known(struct kept *k, enum pf_runtime_kind kind)
{
	runtime_learnt_done(&k->known[kind]);
	k->is_known[kind] = false;
}

static void kept_free(struct kept *k)
{
	runtime_states_done(&k->states);
	for (unsigned i = 0; i < _PF_RUNTIME_MAX; i++)
		forget_known(k, (enum pf_runtime_kind)i);
	free(k);
}

static void drop(size_t i)
{
	kept_free(work.items[i]);
	work.items[i] = work.items[--work.n];
}

static struct kept *find(uint64_t token)
{
	for (size_t i = 0; token && i < work.n; i++)
		if (work.items[i]->token == token)
			return work.items[i];
	return NULL;
}

static size_t least_recent(void)
{
	size_t least = 0;

	for (size_t i = 1; i < work.n; i++)
		if (work.items[i]->used < work.items[least]->used)
			least = i;
	return least;
}

/* Makes room for one more process. */
static void trim(void)
{
	size_t i;

	while (work.n) {
		i = least_recent();
		if (work.n < KEPT_MAX && (!runtime_caches_are_full() ||
					  work.items[i]->used + KEPT_QUESTIONS > work.n_questions))
			return;
		drop(i);
	}
}

static struct kept *add(void)
{
	trim();
	return work.items[work.n++] = xcalloc(1, sizeof(struct kept));
}

/* Only a process with frames to be named is kept. */
static void keep(struct kept *k, uint64_t token)
{
	bool walked = false;

	for (unsigned i = 0; i < _PF_RUNTIME_MAX; i++)
		walked |= k->states.walked[i];
	k->token = token;
	k->used = work.n_questions;
	for (size_t i = 0; !walked && i < work.n; i++)
		if (work.items[i] == k) {
			drop(i);
			return;
		}
}

/* ---- messages ---- */

static void put(const void *bytes, size_t n)
{
	if (n)
		memcpy(work.message + work.message_n, bytes, n);
	work.message_n += n;
}

static void send_message(void)
{
	if (!work.error)
		work.error = child_send(CHILD_SOCKET_FD, work.message, work.message_n, NULL, 0);
	work.message_n = 0;
}

static void begin(const struct reader_head *question)
{
	work.n_questions++;
	work.sequence = question->sequence;
	work.error = 0;
	work.message_n = 0;
	work.read_bytes = 0;
	work.generated = (struct generated_facts){0};
	for (unsigned i = 0; i < _READER_LOSSES; i++)
		work.lost[i] = counter_get(runtime_loss_counter((enum reader_loss)i));
}

static int end(enum runtimes_message what)
{
	struct end_message e = {
		.head = {.sequence = work.sequence, .what = what},
		.read_bytes = work.read_bytes,
		.generated = work.generated,
	};

	for (unsigned i = 0; i < _READER_LOSSES; i++)
		e.lost[i] = counter_get(runtime_loss_counter((enum reader_loss)i)) - work.lost[i];
	put(&e, sizeof(e));
	send_message();
	return work.error;
}

/* ---- learn ---- */

int runtime_answer_read(int file, void *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(file, (char *)to + done, n - done, (off_t)done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -EBADMSG;
		done += (size_t)r;
	}
	return 0;
}

static int read_look(int fd, uint64_t bytes, struct read_look *ret)
{
	_cleanup_free_ char *look = NULL;
	int r;

	if (!bytes || bytes > LOOK_BYTES_MAX)
		return -EBADMSG;
	look = xmalloc(bytes);
	r = runtime_answer_read(fd, look, bytes);
	return r < 0 ? r : runtime_look_read(TAKE_PTR(look), bytes, ret);
}

static void tell(enum pf_runtime_kind k, int error, const struct runtime_learnt *l, bool named)
{
	struct learnt_message m = {
		.head = {.sequence = work.sequence, .what = LEARNT, .n = k},
		.error = error,
		.named = named,
	};

	if (!error) {
		m.n_ranges = (uint32_t)MIN(l->n_ranges, (size_t)RUNTIME_RANGES_MAX);
		m.data_bytes = (uint32_t)MIN(l->data_bytes, (size_t)RUNTIME_DATA_MAX);
		memcpy(m.version, l->version, sizeof(m.version));
		memcpy(m.problem, l->problem, sizeof(m.problem));
	}
	put(&m, sizeof(m));
	for (uint32_t i = 0; i < m.n_ranges; i++) {
		const struct runtime_range *r = &l->ranges[i];

		put(&(struct wire_range){r->start, r->end, r->managed}, sizeof(struct wire_range));
	}
	put(m.data_bytes ? l->data : NULL, m.data_bytes);
	send_message();
}

static void learn_one(struct kept *k, const struct runtime_look *look, enum pf_runtime_kind kind)
{
	struct runtime_learnt l = {0};
	int r;

	look->memory->budget_bytes = MEMORY_BUDGET;
	r = runtime_state_learn(&k->states, look, kind, k->is_known[kind] ? &k->known[kind] : NULL,
				&l);
	work.read_bytes += MEMORY_BUDGET - look->memory->budget_bytes;
	if (r != -ENOENT)
		tell(kind, MIN(r, 0), &l, k->states.walked[kind]);
	if (r < 0 && r != -ENOENT)
		return;
	forget_known(k, kind);
	k->is_known[kind] = r >= 0;
	if (r >= 0)
		k->known[kind] = l;
}

static void tell_generated(const struct buf *index)
{
	for (size_t at = 0, n; at < index->len; at += n) {
		struct generated_message m = {
			.head = {.sequence = work.sequence, .what = GENERATED}};

		n = MIN(index->len - at, sizeof(work.message) - sizeof(m));
		m.head.n = (uint32_t)n;
		put(&m, sizeof(m));
		put(index->data + at, n);
		send_message();
	}
}

static void learn_generated(const struct runtime_look *look)
{
	_cleanup_buf_ struct buf index = {0};

	look->memory->budget_bytes = MEMORY_BUDGET;
	runtime_generated_read(look, &work.generated, &index);
	work.read_bytes += MEMORY_BUDGET - look->memory->budget_bytes;
	tell_generated(&index);
}

static void learn_runtimes(const struct learn_question *q, const struct runtime_look *look)
{
	struct kept *k = find(q->old);

	if (!k)
		k = add();
	for (unsigned i = 0; i < _PF_RUNTIME_MAX; i++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)i);

		if (ops && !ops->in_agent)
			learn_one(k, look, (enum pf_runtime_kind)i);
	}
	keep(k, q->token);
}

int runtime_answer_learn(const void *message, size_t n, int memory, int look)
{
	const struct learn_question *q = message;
	struct memory m = runtime_memory_of(&memory);
	struct runtime_look l = {.memory = &m};
	struct read_look bytes;
	int r;

	if (n != sizeof(*q))
		return -EBADMSG;
	begin(&q->head);
	r = read_look(look, q->look_bytes, &bytes);
	if (r < 0)
		return r;
	l.maps = &bytes.maps;
	l.indexes = bytes.indexes;
	if (q->token)
		learn_runtimes(q, &l);
	learn_generated(&l);
	runtime_look_done(&bytes);
	return end(LEARNT_ALL);
}

/* ---- names ---- */

static void begin_names(void)
{
	const struct reader_head head = {.sequence = work.sequence, .what = NAMES};

	put(&head, sizeof(head));
}

/* Adds a record. The texts may be NULL. */
static void tell_record(struct wire_name *w, const char *name, const char *file)
{
	size_t name_n = name ? MIN(strlen(name), (size_t)WIRE_TEXT_MAX) : 0;
	size_t file_n = file ? MIN(strlen(file), (size_t)WIRE_TEXT_MAX) : 0;

	w->name_n = (uint16_t)name_n;
	w->file_n = (uint16_t)file_n;
	w->has_file = file != NULL;
	if (work.message_n + sizeof(*w) + name_n + file_n > sizeof(work.message)) {
		send_message();
		begin_names();
	}
	put(w, sizeof(*w));
	put(name, name_n);
	put(file, file_n);
	((struct reader_head *)work.message)->n++;
}

static void tell_names(const struct runtime_ask *a)
{
	struct wire_name last = {.error = a->error, .last = 1, .kind = (uint8_t)a->names.kind};

	for (size_t i = 0; i < a->names.n; i++) {
		const struct runtime_name *x = &a->names.items[i];
		struct wire_name w = {.line = x->line, .inlined = x->inlined};

		tell_record(&w, x->name, x->file);
	}
	tell_record(&last, NULL, NULL);
}

static struct runtime_ask ask_of(const struct wire_ask *w)
{
	return (struct runtime_ask){
		.kind = (enum pf_runtime_kind)w->kind,
		.frame = {w->type, w->a, w->b},
		.caller = {w->caller_type, w->caller_a, w->caller_b},
		.has_caller = w->has_caller,
	};
}

/* If the process has ended, the other frames get that error, too. */
static void name_all(struct kept *k, const struct names_question *q, int memory)
{
	struct memory m = runtime_memory_of(&memory);
	struct runtime_room room = RUNTIME_ROOM;
	int gone = 0;

	begin_names();
	for (uint32_t i = 0; i < q->head.n; i++) {
		struct runtime_ask a = ask_of(&q->asks[i]);

		a.error = gone;
		if (!gone && a.kind < _PF_RUNTIME_MAX)
			runtime_state_resolve(&k->states, &m, &a, &room);
		if (a.error == -ESRCH)
			gone = -ESRCH;
		tell_names(&a);
		runtime_names_done(&a.names);
	}
	send_message();
	work.read_bytes += RUNTIME_RESOLVE_BUDGET - room.read_bytes;
}

int runtime_answer_names(const void *message, size_t n, int memory)
{
	const struct names_question *q = message;
	const size_t head_n = offsetof(struct names_question, asks);
	struct kept *k;

	if (n < head_n || q->head.n > NAMES_ASKS_MAX || !q->token ||
	    n != head_n + q->head.n * sizeof(q->asks[0]))
		return -EBADMSG;
	begin(&q->head);
	k = find(q->token);
	if (!k)
		return end(NAMES_UNKNOWN);
	k->used = work.n_questions;
	name_all(k, q, memory);
	return end(NAMES_ALL);
}
