/* SPDX-License-Identifier: Apache-2.0 */
/* Which windows of some batches are stored already, and need not be written again. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>
#include <uthash.h>

#define KNOWN_NS (20 * NSEC_PER_SEC) /* time to ask which windows are stored */

struct ch_known {
	uint8_t id[16];
	UT_hash_handle hh;
};

void store_ch_known_free(struct ch_known **known)
{
	struct ch_known *x, *next;

	HASH_ITER (hh, *known, x, next) {
		HASH_DEL(*known, x);
		free(x);
	}
}

void store_ch_known_add(struct ch_known **known, const void *id)
{
	struct ch_known *x;

	HASH_FIND(hh, *known, id, sizeof(x->id), x);
	if (x)
		return;
	x = xcalloc(1, sizeof(*x));
	memcpy(x->id, id, sizeof(x->id));
	HASH_ADD(hh, *known, id, sizeof(x->id), x);
}

bool store_ch_known_has(struct ch_known *const *known, const uint8_t id[static 16])
{
	struct ch_known *x;

	HASH_FIND(hh, *known, id, sizeof(x->id), x);
	return x;
}

/* The time of some windows that end on one day. */
struct span_s {
	int64_t day, first, last;
	UT_hash_handle hh;
};

static void spans_free(struct span_s **spans)
{
	struct span_s *x, *next;

	HASH_ITER (hh, *spans, x, next) {
		HASH_DEL(*spans, x);
		free(x);
	}
}

static void widen(struct span_s **spans, int64_t second)
{
	int64_t day = second / 86400;
	struct span_s *x;

	HASH_FIND(hh, *spans, &day, sizeof(day), x);
	if (!x) {
		x = xcalloc(1, sizeof(*x));
		*x = (struct span_s){.day = day, .first = second, .last = second};
		HASH_ADD(hh, *spans, day, sizeof(day), x);
	}
	x->first = MIN(x->first, second);
	x->last = MAX(x->last, second);
}

static void put_known(struct ch_store *s, const struct batch *b, struct buf *ids,
		      struct span_s **spans)
{
	static const uint8_t none[16];

	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		if (store_ch_is_too_old(s, p))
			continue;
		widen(spans, store_ch_last_second(p));
		buf_add(ids, p->id, sizeof(p->id));
		if (memcmp(p->sent_id, none, sizeof(none)) != 0)
			buf_add(ids, p->sent_id, sizeof(p->sent_id));
	}
}

int store_ch_known_read(struct ch_store *s, const struct batch *const *batches, size_t n,
			struct ch_known **known, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + KNOWN_NS};
	_cleanup_(spans_free) struct span_s *spans = NULL;
	struct ch_sql q = {.ids_type = "FixedString(16)"};
	struct http_answer a = {0};
	struct span_s *x, *next;
	struct ch_rows rows;
	int r;

	for (size_t i = 0; i < n; i++)
		put_known(s, batches[i], &q.ids, &spans);
	/* by day: one old window must not have all days in between read */
	store_ch_text(&q, "SELECT profile_id FROM windows WHERE (0");
	HASH_ITER (hh, spans, x, next) {
		store_ch_text(&q, " OR (time>=toDateTime(");
		store_ch_int(&q, x->first);
		store_ch_text(&q, ") AND time<=toDateTime(");
		store_ch_int(&q, x->last);
		store_ch_text(&q, "))");
	}
	store_ch_text(&q, ") AND profile_id IN (SELECT id FROM pf_ids)");
	r = store_ch_ask(s, &q, &l, &a, &rows, reterr);
	while (!r && rows.end - rows.p >= 16) {
		store_ch_known_add(known, rows.p);
		rows.p += 16;
	}
	http_answer_done(&a);
	store_ch_sql_done(&q);
	return r == -ETIME ? 0 : r;
}
