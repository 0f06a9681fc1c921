/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks and frames that one query needs, by their ids: from the cache, or from ClickHouse if
 * that has not seen them. Only what has the id that follows from what it says goes into the cache,
 * so a wrong answer is wrong once.
 */
#include "hub/store/clickhouse/names.h"

#include <stdlib.h>

#define FRAMES_A_TIME 100000 /* frames that one statement asks for */

/* What the query has asked for; NULL: ClickHouse has not answered yet, or lacks it. */
struct held_frame {
	uint64_t id;
	struct kept_frame *frame;
	UT_hash_handle hh;
};
struct held_stack {
	uint64_t id;
	bool right; /* of a new one: its id is that of what it says */
	struct kept_stack *stack;
	UT_hash_handle hh;
};
struct ch_names {
	struct ch_store *s;
	const struct ch_limits *limits;
	struct ch_share share;
	struct ch_hash *hash;
	struct held_frame *frames;
	struct held_stack *stacks;
	struct held_stack **new; /* their stacks have ids instead of frames */
	size_t n_new, cap_new;
	struct buf wanted_stacks, wanted_frames; /* ids that are to be asked for */
};

static const struct frame lost = {.kind = FRAME_MARKER, .name = STORE_LOST};
static const struct frame *const lost_frames[] = {&lost};

struct ch_names *store_ch_names_new(struct ch_store *s, const struct ch_limits *l)
{
	struct ch_names *n = xcalloc(1, sizeof(*n));

	n->s = s;
	n->limits = l;
	n->share.cache = s->names;
	n->hash = store_ch_hash_new(s);
	return n;
}

static void drop_new(struct ch_names *n)
{
	for (size_t i = 0; i < n->n_new; i++) {
		store_ch_share_drop_stack(&n->share, n->new[i]->stack);
		n->new[i]->stack = NULL;
	}
	n->n_new = 0;
}

int store_ch_names_count(struct ch_names *n, size_t bytes)
{
	return store_ch_share_take(&n->share, bytes);
}

size_t store_ch_names_room(const struct ch_names *n)
{
	return store_ch_share_room(&n->share);
}

struct ch_names *store_ch_names_free(struct ch_names *n)
{
	struct held_frame *f, *next_f;
	struct held_stack *s, *next_s;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->stacks, s, next_s) {
		HASH_DEL(n->stacks, s);
		if (s->stack)
			store_ch_share_drop_stack(&n->share, s->stack);
		free(s);
	}
	HASH_ITER (hh, n->frames, f, next_f) {
		HASH_DEL(n->frames, f);
		if (f->frame)
			store_ch_share_drop_frame(&n->share, f->frame);
		free(f);
	}
	store_ch_share_end(&n->share);
	store_ch_hash_free(n->hash);
	free(n->new);
	buf_done(&n->wanted_stacks);
	buf_done(&n->wanted_frames);
	free(n);
	return NULL;
}

static void count(const char *result, uint64_t n)
{
	counter_add(counter("store_names_total", "result", result), n);
}

static void count_wrong(bool wrong)
{
	if (wrong)
		count("wrong", 1);
}

/* ---- rows of an answer ---- */

struct text {
	const char *p; /* in the row */
	size_t n;      /* 0: there is none */
};

static struct text get_text(struct ch_rows *rows)
{
	struct text t;

	t.p = store_ch_get_text(rows, &t.n);
	t.n = strnlen(t.p, t.n);
	return t;
}

/* Copies the text to *at, behind what it belongs to, and moves *at on. */
static const char *keep(char **at, struct text t)
{
	char *to = *at;

	memcpy(to, t.p, t.n);
	to[t.n] = '\0';
	*at += t.n + 1;
	return to;
}

static const char *keep_if_any(char **at, struct text t)
{
	return t.n ? keep(at, t) : NULL;
}

/* The length of an array, of which at most `max` items are used. */
static size_t get_length(struct ch_rows *rows, size_t max)
{
	uint64_t n = store_ch_get_varint(rows);

	rows->failed |= n > max;
	return rows->failed ? 0 : (size_t)n;
}

/* ---- stacks ---- */

struct stack_row {
	uint64_t id;
	struct text process, thread, labels[_LABEL_MAX];
	bool has_label[_LABEL_MAX];
	uint8_t main, wait;
	size_t n;
	struct ch_rows ids; /* of its frames */
};

static void get_labels(struct ch_rows *rows, struct stack_row *s)
{
	size_t n = get_length(rows, _LABEL_MAX);
	enum profile_label labels[_LABEL_MAX];

	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *tag = store_ch_get_str(rows);

		labels[i] = profile_label_of_tag(tag);
	}
	n = get_length(rows, n);
	for (size_t i = 0; i < n; i++) {
		struct text value = get_text(rows);

		if (labels[i] == _LABEL_MAX || s->has_label[labels[i]])
			continue;
		s->has_label[labels[i]] = true;
		s->labels[labels[i]] = value;
	}
}

static struct stack_row get_stack(struct ch_rows *rows)
{
	struct stack_row s = {.id = store_ch_get_u64(rows)};

	s.process = get_text(rows);
	s.thread = get_text(rows);
	s.main = store_ch_get_u8(rows);
	s.wait = store_ch_get_u8(rows);
	get_labels(rows, &s);
	s.n = get_length(rows, STACK_MAX_FRAMES);
	s.ids = *rows;
	for (size_t i = 0; i < s.n; i++)
		(void)store_ch_get_u64(rows);
	return s;
}

static size_t bytes_of_stack(const struct stack_row *s)
{
	size_t n = sizeof(struct kept_stack) + s->n * sizeof(uint64_t) + s->process.n +
		   s->thread.n + 2;

	for (int i = 0; i < _LABEL_MAX; i++)
		n += s->has_label[i] ? s->labels[i].n + 1 : 0;
	return n;
}

static struct kept_stack *make_stack(const struct stack_row *row)
{
	size_t bytes = bytes_of_stack(row);
	struct kept_stack *s = xcalloc(1, bytes);
	struct ch_rows ids = row->ids;
	char *at;

	s->id = row->id;
	s->bytes = bytes;
	s->n = row->n;
	s->ids = (uint64_t *)(s + 1);
	for (size_t i = 0; i < s->n; i++)
		s->ids[i] = store_ch_get_u64(&ids);
	at = (char *)(s->ids + s->n);
	s->head = (struct stack_head){
		.process_comm = keep_if_any(&at, row->process),
		.thread_comm = keep_if_any(&at, row->thread),
		.main_thread = row->main,
		.wait = row->wait < _WAIT_MAX ? (enum wait)row->wait : WAIT_NONE,
	};
	for (int i = 0; i < _LABEL_MAX; i++)
		if (row->has_label[i])
			s->labels[i] = keep(&at, row->labels[i]);
	return s;
}

static int take_stack(struct ch_rows *rows, void *arg)
{
	struct ch_names *n = arg;
	struct stack_row row = get_stack(rows);
	struct held_stack *held;
	int e;

	HASH_FIND(hh, n->stacks, &row.id, sizeof(row.id), held);
	if (rows->failed || !held || held->stack) /* or it is not what was asked for */
		return 0;
	e = store_ch_share_take(&n->share, bytes_of_stack(&row));
	if (e)
		return e;
	held->stack = make_stack(&row);
	GROW(n->new, n->n_new, n->cap_new);
	n->new[n->n_new++] = held;
	return 0;
}

static int want_stack(struct ch_names *n, uint64_t id)
{
	struct kept_stack *known;
	struct held_stack *held;
	int e;

	HASH_FIND(hh, n->stacks, &id, sizeof(id), held);
	if (held)
		return 0;
	e = store_ch_share_take(&n->share, sizeof(*held));
	if (!e)
		e = store_ch_share_find_stack(&n->share, id, &known);
	if (e)
		return e;
	held = xcalloc(1, sizeof(*held));
	held->id = id;
	held->stack = known;
	HASH_ADD(hh, n->stacks, id, sizeof(held->id), held);
	if (!known)
		store_ch_put_u64(&n->wanted_stacks, id);
	return 0;
}

/* ---- frames ---- */

static int want_frame(struct ch_names *n, uint64_t id, struct held_frame **ret)
{
	struct kept_frame *known;
	struct held_frame *held;
	int e;

	HASH_FIND(hh, n->frames, &id, sizeof(id), held);
	*ret = held;
	if (held)
		return 0;
	e = store_ch_share_take(&n->share, sizeof(*held));
	if (!e)
		e = store_ch_share_find_frame(&n->share, id, &known);
	if (e)
		return e;
	*ret = held = xcalloc(1, sizeof(*held));
	held->id = id;
	held->frame = known;
	HASH_ADD(hh, n->frames, id, sizeof(held->id), held);
	if (!known)
		store_ch_put_u64(&n->wanted_frames, id);
	return 0;
}

/* Whether the stack's id is that of what it says. */
static bool is_right(struct ch_names *n, const struct kept_stack *s)
{
	uint64_t list = 0;

	if (s->n) {
		store_ch_hash_ids(n->hash, s->ids, s->n);
		list = store_ch_hash_end(n->hash);
	}
	return store_ch_stack_id(n->hash, list, &s->head, s->labels) == s->id;
}

/* From the ids to what the reader holds. */
static int want_frames(struct ch_names *n, struct held_stack *held)
{
	struct kept_stack *s = held->stack;
	int e = 0;

	held->right = is_right(n, s);
	count_wrong(!held->right);
	for (size_t i = 0; !e && i < s->n; i++)
		e = want_frame(n, s->ids[i], &s->held[i]);
	return e;
}

struct frame_row {
	struct frame frame; /* without texts */
	struct text name, module, build_id, file;
	uint32_t line; /* as it is stored: profile_frame_stored_line() */
	bool has_name;
};

static struct frame_row get_frame(struct ch_rows *rows)
{
	struct frame_row r = {0};
	uint8_t kind = store_ch_get_u8(rows);

	r.frame.kind = kind < _FRAME_KIND_MAX ? (enum frame_kind)kind : FRAME_MARKER;
	r.frame.inlined = store_ch_get_u8(rows);
	r.line = store_ch_get_u32(rows);
	r.frame.address = store_ch_get_u64(rows);
	r.name = get_text(rows);
	r.has_name = store_ch_get_u8(rows);
	r.module = get_text(rows);
	r.build_id = get_text(rows);
	r.file = get_text(rows);
	return r;
}

static size_t bytes_of_frame(const struct frame_row *r)
{
	return sizeof(struct kept_frame) + r->name.n + r->module.n + r->build_id.n + r->file.n + 4;
}

static struct kept_frame *make_frame(const struct frame_row *r, uint64_t id)
{
	size_t bytes = bytes_of_frame(r);
	struct kept_frame *f = xcalloc(1, bytes);
	char *at = (char *)(f + 1);

	f->id = id;
	f->bytes = bytes;
	f->frame = r->frame;
	f->frame.name = r->has_name ? keep(&at, r->name) : NULL;
	f->frame.module = keep_if_any(&at, r->module);
	f->frame.build_id = keep_if_any(&at, r->build_id);
	f->frame.file = keep_if_any(&at, r->file);
	profile_frame_set_stored_line(&f->frame, r->line);
	return f;
}

static int take_frame(struct ch_rows *rows, void *arg)
{
	struct ch_names *n = arg;
	uint64_t id = store_ch_get_u64(rows);
	struct frame_row row = get_frame(rows);
	struct held_frame *held;
	bool right;
	int e;

	HASH_FIND(hh, n->frames, &id, sizeof(id), held);
	if (rows->failed || !held || held->frame) /* or it is not what was asked for */
		return 0;
	e = store_ch_share_take(&n->share, bytes_of_frame(&row));
	if (e)
		return e;
	held->frame = make_frame(&row, id);
	right = store_ch_frame_id(n->hash, &held->frame->frame) == id;
	count_wrong(!right);
	if (right)
		held->frame = store_ch_share_put_frame(&n->share, held->frame);
	return 0;
}

/* ---- asking ---- */

/* Takes the ids, and asks for their rows, `most` in a statement. */
static int read_ids(struct ch_names *n, const char *sql, struct buf *ids, size_t most,
		    ch_take_fn *take, struct field_error *reterr)
{
	_cleanup_buf_ struct buf all = *ids;
	int e = 0;

	*ids = (struct buf){0};
	for (size_t at = 0; !e && at < all.len; at += most * sizeof(uint64_t)) {
		struct ch_sql q = {.ids_type = "UInt64"};

		buf_add(&q.ids, all.data + at, MIN(all.len - at, most * sizeof(uint64_t)));
		store_ch_text(&q, sql);
		e = store_ch_each(n->s, &q, n->limits, most, take, n, reterr);
	}
	return e;
}

/* ---- stacks with their frames ---- */

/* From what the reader holds to the frames. Returns whether all of them are in the cache. */
static bool put_frames(struct kept_stack *s)
{
	bool shared = true;

	for (size_t i = 0; i < s->n; i++) {
		const struct kept_frame *f = s->held[i]->frame;

		s->frames[i] = f ? &f->frame : &lost;
		shared &= f && f->shared;
	}
	return shared;
}

static void settle_new(struct ch_names *n)
{
	for (size_t i = 0; i < n->n_new; i++) {
		struct held_stack *held = n->new[i];

		if (put_frames(held->stack) && held->right)
			held->stack = store_ch_share_put_stack(&n->share, held->stack);
	}
	n->n_new = 0;
}

static int read_stacks(struct ch_names *n, size_t most, struct field_error *reterr)
{
	int e = read_ids(n,
			 "SELECT id, process, thread, main, wait, label_names, label_values, "
			 "frames FROM stacks WHERE id IN (SELECT id FROM pf_ids) LIMIT 1 BY id",
			 &n->wanted_stacks, most, take_stack, reterr);

	for (size_t i = 0; !e && i < n->n_new; i++)
		e = want_frames(n, n->new[i]);
	if (!e)
		e = read_ids(n,
			     "SELECT id, kind, inlined, line, address, name, has_name, module, "
			     "build_id, file FROM frames WHERE id IN (SELECT id FROM pf_ids) "
			     "LIMIT 1 BY id",
			     &n->wanted_frames, FRAMES_A_TIME, take_frame, reterr);
	if (!e)
		settle_new(n);
	drop_new(n);
	return e;
}

int store_ch_names_read(struct ch_names *n, const uint64_t *ids, size_t n_ids,
			struct field_error *reterr)
{
	size_t n_missing;
	int e = 0;

	for (size_t i = 0; !e && i < n_ids; i++)
		e = want_stack(n, ids[i]);
	n_missing = n->wanted_stacks.len / sizeof(uint64_t);
	count("hit", n_ids - MIN(n_missing, n_ids));
	count("miss", n_missing);
	return e ? e : read_stacks(n, n_ids, reterr);
}

void store_ch_names_stack(const struct ch_names *n, uint64_t id, struct store_row *row)
{
	struct held_stack *held;

	HASH_FIND(hh, n->stacks, &id, sizeof(id), held);
	if (!held || !held->stack) {
		row->frames = lost_frames;
		row->n_frames = 1;
		return;
	}
	row->head = held->stack->head;
	row->labels = held->stack->labels;
	row->frames = held->stack->frames;
	row->n_frames = held->stack->n;
}

const char *store_ch_names_tag(const struct ch_names *n, uint64_t id, const char *tag)
{
	enum profile_label l = profile_label_of_tag(tag);
	struct held_stack *held;

	HASH_FIND(hh, n->stacks, &id, sizeof(id), held);
	if (!held || !held->stack)
		return NULL;
	if (streq(tag, "thread"))
		return held->stack->head.thread_comm;
	if (streq(tag, "wait"))
		return held->stack->head.wait ? profile_wait_name(held->stack->head.wait) : NULL;
	return l < _LABEL_MAX ? held->stack->labels[l] : NULL;
}
