/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks and frames that one query needs, by their ids. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>
#include <uthash.h>

struct named_frame {
	uint64_t id;
	struct frame frame; /* its strings are owned */
	UT_hash_handle hh;
};
struct named_stack {
	uint64_t id;
	char *process, *thread, *labels[_LABEL_MAX];
	bool main;
	enum wait wait;
	size_t n;
	uint64_t *ids; /* of frames */
	const struct frame **frames;
	UT_hash_handle hh;
};
struct ch_names {
	struct ch_store *s;
	const struct ch_limits *limits;
	struct named_frame *frames;
	struct named_stack *stacks;
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

static void frame_free(struct named_frame *f)
{
	free((char *)f->frame.name);
	free((char *)f->frame.module);
	free((char *)f->frame.build_id);
	free((char *)f->frame.file);
	free(f);
}

static void stack_free(struct named_stack *s)
{
	free(s->process);
	free(s->thread);
	for (int i = 0; i < _LABEL_MAX; i++)
		free(s->labels[i]);
	free(s->ids);
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
		frame_free(f);
	}
	HASH_ITER (hh, n->stacks, s, next_s) {
		HASH_DEL(n->stacks, s);
		stack_free(s);
	}
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

static struct named_stack *get_stack(struct ch_rows *rows)
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
	s->ids = xcalloc(s->n + 1, sizeof(*s->ids));
	for (size_t i = 0; i < s->n; i++)
		s->ids[i] = store_ch_get_u64(rows);
	return s;
}

static struct named_frame *get_frame(struct ch_rows *rows)
{
	struct named_frame *f = xcalloc(1, sizeof(*f));
	struct frame *x = &f->frame;
	uint8_t kind;
	char *name;

	f->id = store_ch_get_u64(rows);
	kind = store_ch_get_u8(rows);
	x->kind = kind < _FRAME_KIND_MAX ? (enum frame_kind)kind : FRAME_MARKER;
	x->inlined = store_ch_get_u8(rows);
	x->line = store_ch_get_u32(rows);
	x->address = store_ch_get_u64(rows);
	name = store_ch_get_str(rows);
	if (store_ch_get_u8(rows))
		x->name = name;
	else
		free(name);
	x->module = get_text(rows);
	x->build_id = get_text(rows);
	x->file = get_text(rows);
	return f;
}

static int read_ids(struct ch_names *n, const char *sql, struct buf *ids,
		    void (*take)(struct ch_names *n, struct ch_rows *rows),
		    struct field_error *reterr)
{
	struct ch_sql q = {.ids_type = "UInt64", .ids = *ids};
	struct http_answer a = {0};
	struct ch_rows rows;
	int r;

	*ids = (struct buf){0};
	store_ch_text(&q, sql);
	r = q.ids.len ? store_ch_ask(n->s, &q, n->limits, &a, &rows, reterr) : 0;
	while (!r && q.ids.len && store_ch_more(&rows))
		take(n, &rows);
	if (!r && q.ids.len && rows.failed)
		r = field_error_set(reterr, "store", "ClickHouse's answer ends early"), r = -EIO;
	http_answer_done(&a);
	store_ch_sql_done(&q);
	return r;
}

static void take_stack(struct ch_names *n, struct ch_rows *rows)
{
	struct named_stack *s = get_stack(rows), *known;

	HASH_FIND(hh, n->stacks, &s->id, sizeof(s->id), known);
	if (known || rows->failed)
		stack_free(s);
	else
		HASH_ADD(hh, n->stacks, id, sizeof(s->id), s);
}

static void take_frame(struct ch_names *n, struct ch_rows *rows)
{
	struct named_frame *f = get_frame(rows), *known;

	HASH_FIND(hh, n->frames, &f->id, sizeof(f->id), known);
	if (known || rows->failed)
		frame_free(f);
	else
		HASH_ADD(hh, n->frames, id, sizeof(f->id), f);
}

static const struct frame *find_frame(const struct ch_names *n, uint64_t id)
{
	struct named_frame *f;

	HASH_FIND(hh, n->frames, &id, sizeof(id), f);
	return f ? &f->frame : NULL;
}

/* Reads the frames that the stacks need and n has not yet. */
static int read_frames(struct ch_names *n, struct field_error *reterr)
{
	_cleanup_buf_ struct buf ids = {0};
	int r;

	for (struct named_stack *s = n->stacks; s; s = s->hh.next)
		for (size_t i = 0; !s->frames && i < s->n; i++)
			if (!find_frame(n, s->ids[i]))
				store_ch_put_u64(&ids, s->ids[i]);
	r = read_ids(n,
		     "SELECT id, kind, inlined, line, address, name, has_name, module, build_id, "
		     "file FROM frames WHERE id IN (SELECT id FROM pf_ids) LIMIT 1 BY id",
		     &ids, take_frame, reterr);
	for (struct named_stack *s = n->stacks; !r && s; s = s->hh.next) {
		if (s->frames)
			continue;
		s->frames = xcalloc(s->n + 1, sizeof(*s->frames));
		for (size_t i = 0; i < s->n; i++)
			s->frames[i] = find_frame(n, s->ids[i]) ?: &lost;
	}
	return r;
}

int store_ch_names_read(struct ch_names *n, const uint64_t *ids, size_t n_ids,
			struct field_error *reterr)
{
	_cleanup_buf_ struct buf wanted = {0};
	int r;

	for (size_t i = 0; i < n_ids; i++) {
		struct named_stack *s;

		HASH_FIND(hh, n->stacks, &ids[i], sizeof(ids[i]), s);
		if (!s)
			store_ch_put_u64(&wanted, ids[i]);
	}
	r = read_ids(n,
		     "SELECT id, process, thread, main, wait, label_names, label_values, frames "
		     "FROM stacks WHERE id IN (SELECT id FROM pf_ids) LIMIT 1 BY id",
		     &wanted, take_stack, reterr);
	return r ? r : read_frames(n, reterr);
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
