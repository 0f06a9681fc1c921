/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks and frames that one query needs, by their ids. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>
#include <uthash.h>

#define FRAMES_A_TIME 100000 /* frames that one statement asks for */

struct named_frame {
	uint64_t id;
	bool known;	    /* the database has it */
	struct frame frame; /* its strings are owned; until it is known, STORE_LOST */
	UT_hash_handle hh;
};
struct named_stack {
	uint64_t id;
	char *process, *thread, *labels[_LABEL_MAX];
	bool main;
	enum wait wait;
	size_t n;
	const struct frame **frames;
	UT_hash_handle hh;
};
struct ch_names {
	struct ch_store *s;
	const struct ch_limits *limits;
	struct named_frame *frames;
	struct named_stack *stacks;
	struct buf wanted; /* ids of frames that are to be asked for */
	size_t bytes;
};

static const struct frame lost = {.kind = FRAME_MARKER, .name = STORE_LOST};
static const struct frame *const lost_frames[] = {&lost};

struct ch_names *store_ch_names_new(struct ch_store *s, const struct ch_limits *l)
{
	struct ch_names *n = xcalloc(1, sizeof(*n));

	n->s = s;
	n->limits = l;
	return n;
}

static void texts_free(struct frame *f)
{
	free((char *)f->name);
	free((char *)f->module);
	free((char *)f->build_id);
	free((char *)f->file);
}

static void stack_free(struct named_stack *s)
{
	free(s->process);
	free(s->thread);
	for (int i = 0; i < _LABEL_MAX; i++)
		free(s->labels[i]);
	free(s->frames);
	free(s);
}

struct ch_names *store_ch_names_free(struct ch_names *n)
{
	struct named_frame *f, *next_f;
	struct named_stack *s, *next_s;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->frames, f, next_f) {
		HASH_DEL(n->frames, f);
		if (f->known)
			texts_free(&f->frame);
		free(f);
	}
	HASH_ITER (hh, n->stacks, s, next_s) {
		HASH_DEL(n->stacks, s);
		stack_free(s);
	}
	buf_done(&n->wanted);
	free(n);
	return NULL;
}

/* The length of an array, of which at most `max` items are used. */
static size_t get_length(struct ch_rows *rows, size_t max)
{
	uint64_t n = store_ch_get_varint(rows);

	rows->failed |= n > max;
	return rows->failed ? 0 : (size_t)n;
}

/* A text that the rows have as "" if there is none. */
static char *get_text(struct ch_rows *rows)
{
	char *s = store_ch_get_str(rows);

	if (*s)
		return s;
	free(s);
	return NULL;
}

static void get_labels(struct ch_rows *rows, struct named_stack *s)
{
	size_t n = get_length(rows, _LABEL_MAX);
	enum profile_label labels[_LABEL_MAX];

	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *tag = store_ch_get_str(rows);

		labels[i] = profile_label_of_tag(tag);
	}
	n = get_length(rows, n);
	for (size_t i = 0; i < n; i++) {
		char *value = store_ch_get_str(rows);

		if (labels[i] == _LABEL_MAX || s->labels[labels[i]])
			free(value);
		else
			s->labels[labels[i]] = value;
	}
}

/* The frame with this id; if it is not there yet, it is to be asked for. */
static const struct frame *want_frame(struct ch_names *n, uint64_t id)
{
	struct named_frame *f;

	HASH_FIND(hh, n->frames, &id, sizeof(id), f);
	if (f)
		return &f->frame;
	f = xcalloc(1, sizeof(*f));
	f->id = id;
	f->frame = lost;
	HASH_ADD(hh, n->frames, id, sizeof(f->id), f);
	store_ch_put_u64(&n->wanted, id);
	n->bytes += sizeof(*f);
	return &f->frame;
}

static struct named_stack *get_stack(struct ch_names *n, struct ch_rows *rows)
{
	struct named_stack *s = xcalloc(1, sizeof(*s));
	uint8_t wait;

	s->id = store_ch_get_u64(rows);
	s->process = get_text(rows);
	s->thread = get_text(rows);
	s->main = store_ch_get_u8(rows);
	wait = store_ch_get_u8(rows);
	s->wait = wait < _WAIT_MAX ? (enum wait)wait : WAIT_NONE;
	get_labels(rows, s);
	s->n = get_length(rows, STACK_MAX_FRAMES);
	s->frames = xcalloc(s->n + 1, sizeof(*s->frames));
	for (size_t i = 0; i < s->n; i++) {
		uint64_t id = store_ch_get_u64(rows);

		s->frames[i] = rows->failed ? &lost : want_frame(n, id);
	}
	return s;
}

static int take_stack(struct ch_rows *rows, void *arg)
{
	struct ch_names *n = arg;
	const char *from = rows->p;
	struct named_stack *s = get_stack(n, rows), *known;

	HASH_FIND(hh, n->stacks, &s->id, sizeof(s->id), known);
	if (known || rows->failed) {
		stack_free(s);
		return 0;
	}
	HASH_ADD(hh, n->stacks, id, sizeof(s->id), s);
	n->bytes += sizeof(*s) + (size_t)(rows->p - from);
	return 0;
}

static struct frame get_frame(struct ch_rows *rows)
{
	struct frame f = {0};
	uint8_t kind = store_ch_get_u8(rows);
	char *name;

	f.kind = kind < _FRAME_KIND_MAX ? (enum frame_kind)kind : FRAME_MARKER;
	f.inlined = store_ch_get_u8(rows);
	f.line = store_ch_get_u32(rows);
	f.address = store_ch_get_u64(rows);
	name = store_ch_get_str(rows);
	if (store_ch_get_u8(rows))
		f.name = name;
	else
		free(name);
	f.module = get_text(rows);
	f.build_id = get_text(rows);
	f.file = get_text(rows);
	return f;
}

static int take_frame(struct ch_rows *rows, void *arg)
{
	struct ch_names *n = arg;
	const char *from = rows->p;
	uint64_t id = store_ch_get_u64(rows);
	struct frame frame = get_frame(rows);
	struct named_frame *f;

	HASH_FIND(hh, n->frames, &id, sizeof(id), f);
	if (!f || f->known || rows->failed) {
		texts_free(&frame);
		return 0;
	}
	f->frame = frame;
	f->known = true;
	n->bytes += (size_t)(rows->p - from);
	return 0;
}

/* Asks for the rows with the ids, of which there are at most `most`, and takes the ids. */
static int read_ids(struct ch_names *n, const char *sql, struct buf *ids, size_t most,
		    ch_take_fn *take, struct field_error *reterr)
{
	struct ch_sql q = {.ids_type = "UInt64", .ids = *ids};

	*ids = (struct buf){0};
	if (!q.ids.len) {
		store_ch_sql_done(&q);
		return 0;
	}
	store_ch_text(&q, sql);
	return store_ch_each(n->s, &q, n->limits, most, take, n, reterr);
}

/* Reads the frames that are to be asked for. */
static int read_frames(struct ch_names *n, struct field_error *reterr)
{
	_cleanup_buf_ struct buf all = n->wanted;
	int e = 0;

	n->wanted = (struct buf){0};
	for (size_t at = 0; !e && at < all.len; at += FRAMES_A_TIME * sizeof(uint64_t)) {
		struct buf ids = {0};

		if (n->bytes > n->s->names_bytes)
			return -EFBIG;
		buf_add(&ids, all.data + at, MIN(all.len - at, FRAMES_A_TIME * sizeof(uint64_t)));
		e = read_ids(n,
			     "SELECT id, kind, inlined, line, address, name, has_name, module, "
			     "build_id, file FROM frames WHERE id IN (SELECT id FROM pf_ids) "
			     "LIMIT 1 BY id",
			     &ids, FRAMES_A_TIME, take_frame, reterr);
	}
	return e;
}

int store_ch_names_read(struct ch_names *n, const uint64_t *ids, size_t n_ids,
			struct field_error *reterr)
{
	struct buf wanted = {0};
	int e;

	for (size_t i = 0; i < n_ids; i++) {
		struct named_stack *s;

		HASH_FIND(hh, n->stacks, &ids[i], sizeof(ids[i]), s);
		if (!s)
			store_ch_put_u64(&wanted, ids[i]);
	}
	if (n->bytes > n->s->names_bytes)
		return buf_done(&wanted), -EFBIG;
	e = read_ids(n,
		     "SELECT id, process, thread, main, wait, label_names, label_values, frames "
		     "FROM stacks WHERE id IN (SELECT id FROM pf_ids) LIMIT 1 BY id",
		     &wanted, n_ids, take_stack, reterr);
	return e ? e : read_frames(n, reterr);
}

void store_ch_names_stack(const struct ch_names *n, uint64_t id, struct store_row *row)
{
	struct named_stack *s;

	HASH_FIND(hh, n->stacks, &id, sizeof(id), s);
	if (!s) {
		row->frames = lost_frames;
		row->n_frames = 1;
		return;
	}
	row->head = (struct stack_head){.process_comm = s->process,
					.thread_comm = s->thread,
					.main_thread = s->main,
					.wait = s->wait};
	row->frames = s->frames;
	row->n_frames = s->n;
}

const char *store_ch_names_tag(const struct ch_names *n, uint64_t id, const char *tag)
{
	enum profile_label l = profile_label_of_tag(tag);
	struct named_stack *s;

	HASH_FIND(hh, n->stacks, &id, sizeof(id), s);
	if (!s)
		return NULL;
	if (streq(tag, "thread"))
		return s->thread;
	if (streq(tag, "wait"))
		return s->wait ? profile_wait_name(s->wait) : NULL;
	return l < _LABEL_MAX ? s->labels[l] : NULL;
}
