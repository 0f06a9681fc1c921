/* SPDX-License-Identifier: Apache-2.0 */
/* The child's answer about a Go program's heap profile. Keeps nothing between questions. */
#include "node/runtime/go/go_heap_format.h"

#include "lib/child/child.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
	uint64_t sequence;
	int error; /* a message could not be sent */
	_Alignas(8) char message[READER_MESSAGE_MAX];
	size_t message_n;
} work;

static void send_message(const void *message, size_t n)
{
	if (!work.error)
		work.error = child_send(CHILD_SOCKET_FD, message, n, NULL, 0);
}

static void begin_buckets(void)
{
	const struct reader_head head = {.sequence = work.sequence, .what = HEAP_BUCKETS};

	memcpy(work.message, &head, sizeof(head));
	work.message_n = sizeof(head);
}

static void send_buckets(void)
{
	if (((const struct reader_head *)work.message)->n)
		send_message(work.message, work.message_n);
	begin_buckets();
}

static void put(const void *bytes, size_t n)
{
	memcpy(work.message + work.message_n, bytes, n);
	work.message_n += n;
}

static void found(void *arg, const struct go_bucket *b, uint64_t *stack, size_t n)
{
	const struct heap_record record = {.bucket = *b, .n = n};

	(void)arg;
	if (work.message_n + sizeof(record) + n * sizeof(*stack) > sizeof(work.message))
		send_buckets();
	put(&record, sizeof(record));
	put(stack, n * sizeof(*stack));
	((struct reader_head *)work.message)->n++;
}

static void send_counts(const struct go_counts *counts, size_t n)
{
	struct heap_counts *m = (struct heap_counts *)work.message;

	for (size_t at = 0; at < n; at += m->head.n) {
		m->head = (struct reader_head){.sequence = work.sequence,
					       .what = HEAP_COUNTS,
					       .n = (uint32_t)MIN(n - at, HEAP_COUNTS_MAX)};
		memcpy(m->items, counts + at, m->head.n * sizeof(*counts));
		send_message(m, offsetof(struct heap_counts, items) + m->head.n * sizeof(*counts));
	}
}

static int send_all(int error, const struct go_heap_read *r)
{
	struct heap_all all = {.head = {.sequence = work.sequence, .what = HEAP_ALL},
			       .error = error};

	if (!error) {
		all.collected = r->collected;
		all.full = r->full;
		all.rate = r->rate;
		all.list_head = r->head;
	}
	send_message(&all, sizeof(all));
	return work.error;
}

int runtime_go_heap_answer(const void *message, size_t n, int memory, int known)
{
	const struct go_heap_question *q = message;
	_cleanup_free_ struct go_bucket *buckets = NULL;
	struct memory m = runtime_memory_of(&memory);
	struct go_heap_read r = {.bucket = found};
	int e = 0;

	if (n != sizeof(*q) || q->head.n > GO_BUCKETS_MAX)
		return -EBADMSG;
	buckets = xcalloc(q->head.n + 1, sizeof(*buckets));
	if (q->head.n)
		e = runtime_answer_read(known, buckets, q->head.n * sizeof(*buckets));
	if (e < 0)
		return e;
	r.at = q->at;
	r.known = buckets;
	r.n_known = q->head.n;
	r.head = q->list_head;
	m.budget_bytes = GO_READ_BUDGET;
	work.sequence = q->head.sequence;
	work.error = 0;
	begin_buckets();
	e = runtime_go_heap_walk(&r, &m);
	send_buckets();
	if (e == 0)
		send_counts(r.counts, r.n_known + r.n_new);
	free(r.counts);
	return send_all(e, &r);
}
