/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has a child read a Go program's heap profile, and checks its answer. The program may have taken
 * over the child, so each number is checked. What it says of stacks and counts is as hostile as the
 * program's memory.
 */
#include "node/runtime/go/go_heap_format.h"

#include <stdlib.h>

#define ADDRESSES_MAX (GO_READ_BUDGET / sizeof(uint64_t)) /* of the stacks in one answer */

struct heap_asking {
	struct go_heap_read *read;
	size_t n_addresses; /* of the stacks so far */
	size_t n_counts;    /* buckets whose counts have come */
	int error;
};

/* Reads one record of a message. false: the record is wrong. */
static bool take_record(struct heap_asking *a, const char **at, const char *end)
{
	struct go_heap_read *r = a->read;
	uint64_t stack[GO_STACK_MAX];
	struct heap_record x;

	if ((size_t)(end - *at) < sizeof(x))
		return false;
	memcpy(&x, *at, sizeof(x));
	*at += sizeof(x);
	if (!x.bucket.size || x.bucket.size > GO_OBJECT_MAX || x.n > GO_STACK_MAX ||
	    x.n * sizeof(*stack) > (size_t)(end - *at) || x.n > ADDRESSES_MAX - a->n_addresses ||
	    r->n_known + r->n_new == GO_BUCKETS_MAX)
		return false;
	memcpy(stack, *at, x.n * sizeof(*stack));
	*at += x.n * sizeof(*stack);
	a->n_addresses += x.n;
	r->n_new++;
	r->bucket(r->arg, &x.bucket, stack, x.n);
	return true;
}

static int take_buckets(struct heap_asking *a, const void *message, size_t n)
{
	const struct reader_head *head = message;
	const char *at = (const char *)(head + 1), *end = (const char *)message + n;

	if (!head->n || a->read->counts)
		return -EBADMSG;
	for (uint32_t i = 0; i < head->n; i++)
		if (!take_record(a, &at, end))
			return -EBADMSG;
	return at == end ? 0 : -EBADMSG;
}

static int take_counts(struct heap_asking *a, const void *message, size_t n)
{
	struct go_heap_read *r = a->read;
	const struct heap_counts *m = message;
	size_t all = r->n_known + r->n_new;

	if (!m->head.n || m->head.n > all - a->n_counts ||
	    n != offsetof(struct heap_counts, items) + m->head.n * sizeof(m->items[0]))
		return -EBADMSG;
	if (!r->counts)
		r->counts = xcalloc(all, sizeof(*r->counts));
	memcpy(r->counts + a->n_counts, m->items, m->head.n * sizeof(m->items[0]));
	a->n_counts += m->head.n;
	return 0;
}

static int take_end(struct heap_asking *a, const void *message, size_t n)
{
	struct go_heap_read *r = a->read;
	struct heap_all all;

	if (n != sizeof(all))
		return -EBADMSG;
	memcpy(&all, message, n);
	if (all.error > 0 || all.error <= -4096 || all.collected > 1 || all.full > 1 ||
	    (!all.error &&
	     (!all.rate || all.rate > GO_RATE_MAX || a->n_counts != r->n_known + r->n_new)))
		return -EBADMSG;
	a->error = all.error;
	r->rate = all.rate;
	r->head = all.list_head;
	r->collected = all.collected;
	r->full = all.full;
	return 1;
}

static int take_message(void *arg, const void *message, size_t n)
{
	const struct reader_head *head = message;

	switch (head->what) {
	case HEAP_BUCKETS:
		return take_buckets(arg, message, n);
	case HEAP_COUNTS:
		return take_counts(arg, message, n);
	case HEAP_ALL:
		return take_end(arg, message, n);
	default:
		return -EBADMSG;
	}
}

int runtime_go_heap_ask(struct go_heap_read *r, void *from)
{
	struct go_heap_question q = {.head = {.what = READ_GO_HEAP, .n = (uint32_t)r->n_known},
				     .at = r->at,
				     .list_head = r->head};
	struct heap_asking a = {.read = r};
	struct reader_question rq = {
		.message = &q.head, .n = sizeof(q), .take = take_message, .arg = &a};
	int e = runtime_ask(from, r->n_known ? r->known : NULL, r->n_known * sizeof(*r->known),
			    &rq);

	if (e == 0)
		e = a.error;
	if (e < 0) {
		free(r->counts);
		r->counts = NULL;
	}
	return e;
}
