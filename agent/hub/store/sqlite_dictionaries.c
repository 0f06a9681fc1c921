/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer's use of the file's dictionaries (strings, frames, stacks, series; tag sets are in
 * sqlite_tagsets.c): finds or adds an entry and returns its row id. Each entry is looked up once
 * per batch.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

#define TOUCH_EVERY_S 3600

/* ---- interned pointers of the batch -> row ids: a hash table with open addressing ---- */

static struct known_word *known_slot(const struct known *k, const void *pointer)
{
	size_t i = ((uintptr_t)pointer >> 4) * 0x9e3779b97f4a7c15ULL >> 20 & (k->cap - 1);

	while (k->words[i].pointer && k->words[i].pointer != pointer)
		i = (i + 1) & (k->cap - 1);
	return &k->words[i];
}

static void known_grow(struct known *k)
{
	struct known old = *k;

	k->cap = old.cap ? old.cap * 2 : 1024;
	k->words = xcalloc(k->cap, sizeof(*k->words));
	for (size_t i = 0; i < old.cap; i++)
		if (old.words[i].pointer)
			*known_slot(k, old.words[i].pointer) = old.words[i];
	free(old.words);
}

/* Finds or adds the entry of a pointer. A new one has id 0. Valid until the next call. */
static struct known_word *known_word(struct known *k, const void *pointer)
{
	struct known_word *w;

	if (k->n * 2 >= k->cap)
		known_grow(k);
	w = known_slot(k, pointer);
	k->n += !w->pointer;
	w->pointer = pointer;
	return w;
}

int store_words_get_or_put(struct writing *w, enum writer_statement get, enum writer_statement put,
			   bind_fn *bind, const void *arg, int64_t *ret_id)
{
	sqlite3_stmt *st = w->s->st[get];
	int rc, r;

	bind(st, arg);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret_id = sqlite3_column_int64(st, 0);
	sqlite3_reset(st);
	if (rc == SQLITE_ROW || store_sq_errno(rc))
		return store_sq_errno(rc);
	bind(w->s->st[put], arg);
	r = store_sq_run(w->s->st[put]);
	if (r)
		return r;
	*ret_id = sqlite3_last_insert_rowid(w->s->writer);
	return 0;
}

static void bind_string(sqlite3_stmt *st, const void *arg)
{
	sqlite3_bind_text(st, 1, arg, -1, SQLITE_STATIC);
}

int store_words_text(struct writing *w, enum writer_statement get, enum writer_statement put,
		     const char *text, int64_t *ret_id)
{
	return store_words_get_or_put(w, get, put, bind_string, text, ret_id);
}

int store_words_string(struct writing *w, const char *text, int64_t *ret_id)
{
	struct known_word *word = text ? known_word(&w->strings, text) : NULL;
	int r;

	if (word && !word->id) {
		r = store_words_text(w, ST_STRING_GET, ST_STRING_PUT, text, &word->id);
		if (r)
			return r;
	}
	*ret_id = word ? word->id : 0;
	return 0;
}

struct frame_row {
	const struct frame *frame;
	int64_t name, module, build_id, file;
};

static void bind_frame(sqlite3_stmt *st, const void *arg)
{
	const struct frame_row *f = arg;

	sqlite3_bind_int64(st, 1, f->name);
	sqlite3_bind_int64(st, 2, f->module);
	sqlite3_bind_int64(st, 3, f->build_id);
	sqlite3_bind_int64(st, 4, (int64_t)f->frame->address);
	sqlite3_bind_int64(st, 5, f->file);
	sqlite3_bind_int64(st, 6, profile_frame_stored_line(f->frame));
	sqlite3_bind_int64(st, 7, f->frame->kind);
	sqlite3_bind_int64(st, 8, f->frame->inlined);
}

static int put_frame(struct writing *w, const struct frame *f, int64_t *ret_id)
{
	struct frame_row row = {.frame = f};
	int r = store_words_string(w, f->name, &row.name);

	if (!r)
		r = store_words_string(w, f->module, &row.module);
	if (!r)
		r = store_words_string(w, f->build_id, &row.build_id);
	if (!r)
		r = store_words_string(w, f->file, &row.file);
	if (!r)
		r = store_words_get_or_put(w, ST_FRAME_GET, ST_FRAME_PUT, bind_frame, &row, ret_id);
	return r;
}

/* Adds text to a key. The last byte differs for "" and NULL. */
static void key_text(struct buf *b, const char *text)
{
	if (text)
		buf_add(b, text, strlen(text) + 1);
	buf_putc(b, (char)(text != NULL));
}

static struct known_word *frame_word(struct writing *w, const struct frame *f)
{
	struct known_word *word = known_word(&w->frames, f);
	const uint64_t numbers[] = {f->address, profile_frame_stored_line(f), f->kind, f->inlined};
	struct buf *b = &w->scratch;

	if (word->key.a || word->key.b)
		return word;
	buf_reset(b);
	buf_add(b, numbers, sizeof(numbers));
	key_text(b, f->name);
	key_text(b, f->module);
	key_text(b, f->build_id);
	key_text(b, f->file);
	word->key = store_seen_key(w->s, b->data, b->len);
	return word;
}

static int frame_id(struct writing *w, const struct frame *f, int64_t *ret_id)
{
	struct known_word *word = frame_word(w, f);
	struct seen *seen = &w->s->seen[SEEN_FRAMES];
	const struct seen_entry *e = word->id ? NULL : store_seen_get(seen, word->key);
	int r = 0;

	if (e) {
		word->id = e->id;
	} else if (!word->id) {
		r = put_frame(w, f, &word->id);
		if (!r)
			store_seen_put(seen,
				       &(struct seen_entry){.key = word->key, .id = word->id});
	}
	if (!r)
		*ret_id = word->id;
	return r;
}

static int encode_frames(struct writing *w, uint32_t index, const struct buf **ret)
{
	static const struct buf none;
	_cleanup_buf_ struct buf ids = {0};
	const struct stack_ref *ref;
	int64_t id;
	int r;

	if (index >= w->batch->n_stacks) { /* STACK_NONE, too, is not the index of a stack */
		*ret = &none;
		return 0;
	}
	ref = &w->batch->stacks[index];
	*ret = &w->stacks[index].frames;
	if ((*ret)->data)
		return 0;
	for (size_t i = 0; i < ref->n && i < STACK_MAX_FRAMES; i++) {
		r = frame_id(w, ref->frames[i], &id);
		if (r)
			return r;
		buf_put_varint(&ids, (uint64_t)id);
	}
	w->stacks[index].frames = ids;
	ids = (struct buf){0};
	return 0;
}

static struct seen_key frames_key(struct writing *w, uint32_t index)
{
	struct seen_key keys[STACK_MAX_FRAMES];
	struct known_stack *stack;
	const struct stack_ref *ref;
	size_t n;

	if (index >= w->batch->n_stacks)
		return (struct seen_key){0};
	stack = &w->stacks[index];
	ref = &w->batch->stacks[index];
	n = MIN(ref->n, (size_t)STACK_MAX_FRAMES);
	if (stack->has_key)
		return stack->key;
	for (size_t i = 0; i < n; i++)
		keys[i] = frame_word(w, ref->frames[i])->key;
	stack->key = store_seen_key(w->s, keys, n * sizeof(*keys));
	stack->has_key = true;
	return stack->key;
}

static struct seen_key stack_key(struct writing *w, const struct profile_sample *sample)
{
	const struct seen_key frames = frames_key(w, sample->stack);
	const uint64_t numbers[] = {frames.a, frames.b, sample->main_thread, sample->wait};
	struct buf *b = &w->scratch;

	buf_reset(b);
	buf_add(b, numbers, sizeof(numbers));
	key_text(b, sample->process_comm);
	key_text(b, sample->thread_comm);
	for (enum profile_label l = 0; sample->labels && l < _LABEL_MAX; l++)
		key_text(b, sample->labels->values[l]);
	return store_seen_key(w->s, b->data, b->len);
}

struct stack_row {
	int64_t hash, process, thread, labels, time_s, place;
	bool main;
	enum wait wait;
	const struct buf *frames;
};

static void bind_stack(sqlite3_stmt *st, const void *arg)
{
	const struct stack_row *row = arg;

	sqlite3_bind_int64(st, 1, row->hash);
	sqlite3_bind_int64(st, 2, row->process);
	sqlite3_bind_int64(st, 3, row->thread);
	sqlite3_bind_int64(st, 4, row->main);
	sqlite3_bind_blob(st, 5, row->frames->data ? row->frames->data : "", (int)row->frames->len,
			  SQLITE_STATIC);
	sqlite3_bind_int64(st, 6, row->wait);
	sqlite3_bind_int64(st, 7, row->labels);
	/* ST_STACK_GET has only seven parameters. SQLite refuses the others, which does no harm. */
	sqlite3_bind_int64(st, 8, row->time_s);
	sqlite3_bind_int64(st, 9, row->place);
}

static int stack_touch(struct writing *w, int64_t id, int64_t time_s)
{
	sqlite3_stmt *st = w->s->st[ST_STACK_TOUCH];

	sqlite3_bind_int64(st, 1, id);
	sqlite3_bind_int64(st, 2, time_s);
	return store_sq_run(st);
}

/* Notes that another place than that of the stack uses it, too. */
static int stack_share(struct writing *w, struct seen_entry *e)
{
	sqlite3_stmt *st = w->s->st[ST_STACK_SHARE];

	if (e->place <= 0 || e->place == w->place)
		return 0;
	e->place = -e->place;
	sqlite3_bind_int64(st, 1, e->id);
	sqlite3_bind_int64(st, 2, e->place);
	return store_sq_run(st);
}

/* Finds or adds the row of a stack. Sets id, last_s and place in e. */
static int find_stack(struct writing *w, const struct stack_row *row, struct seen_entry *e)
{
	sqlite3_stmt *st = w->s->st[ST_STACK_GET];
	int rc, r;

	bind_stack(st, row);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		e->id = sqlite3_column_int64(st, 0);
		e->time_s = sqlite3_column_int64(st, 1);
		e->place = sqlite3_column_int64(st, 2);
	}
	sqlite3_reset(st);
	if (store_sq_errno(rc) || e->id)
		return store_sq_errno(rc);
	bind_stack(w->s->st[ST_STACK_PUT], row);
	r = store_sq_run(w->s->st[ST_STACK_PUT]);
	if (r)
		return r;
	e->id = sqlite3_last_insert_rowid(w->s->writer);
	e->time_s = row->time_s;
	e->place = row->place;
	w->n_stacks++;
	return 0;
}

static int look_up_stack(struct writing *w, const struct profile_sample *sample, int64_t time_s,
			 struct seen_entry *e)
{
	struct stack_row row = {.main = sample->main_thread,
				.wait = sample->wait,
				.time_s = time_s,
				.place = w->place};
	int r = store_words_string(w, sample->process_comm, &row.process);

	if (!r)
		r = store_words_string(w, sample->thread_comm, &row.thread);
	if (!r)
		r = store_words_labels(w, sample->labels, &row.labels);
	if (!r)
		r = encode_frames(w, sample->stack, &row.frames);
	if (r)
		return r;
	row.hash = (int64_t)hash_bytes(row.frames->data, row.frames->len,
				       w->s->seed ^ (uint64_t)row.process * 31 ^
					       (uint64_t)row.thread * 1000003 ^
					       (uint64_t)row.labels * 0x9e3779b97f4a7c15ULL);
	return find_stack(w, &row, e);
}

int store_words_stack(struct writing *w, const struct profile_sample *sample, int64_t time_s,
		      int64_t *ret_id)
{
	struct seen *seen = &w->s->seen[SEEN_STACKS];
	struct seen_entry new = {.key = stack_key(w, sample)}, *e = store_seen_get(seen, new.key);
	int r = e ? 0 : look_up_stack(w, sample, time_s, &new);

	if (r)
		return r;
	if (!e)
		e = store_seen_put(seen, &new);
	*ret_id = e->id;
	r = stack_share(w, e);
	if (r || time_s <= e->time_s + TOUCH_EVERY_S)
		return r;
	e->time_s = time_s;
	return stack_touch(w, e->id, time_s);
}

struct series_row {
	int64_t tagset, app, pid, start_ms, first_s, last_s, place;
};

static void bind_series(sqlite3_stmt *st, const void *arg)
{
	const struct series_row *row = arg;

	sqlite3_bind_int64(st, 1, row->tagset);
	sqlite3_bind_int64(st, 2, row->app);
	sqlite3_bind_int64(st, 3, row->pid);
	sqlite3_bind_int64(st, 4, row->start_ms);
	sqlite3_bind_int64(st, 5, row->first_s);
	sqlite3_bind_int64(st, 6, row->last_s);
	sqlite3_bind_int64(st, 7, row->place);
}

static int look_up_series(struct writing *w, const struct profile *p, const struct buf *tags,
			  struct series_row *row, struct seen_entry *e)
{
	int r = store_words_tagset(w, &p->tags, tags, &row->tagset);

	if (!r)
		r = store_words_string(w, p->app_service ? p->app_service : "", &row->app);
	if (!r)
		r = store_places_put(w, p, &row->place);
	e->place = row->place;
	return r ? r
		 : store_words_get_or_put(w, ST_SERIES_GET, ST_SERIES_PUT, bind_series, row,
					  &e->id);
}

static struct seen_key series_key(struct writing *w, const struct profile *p,
				  const struct series_row *row, struct buf *tags)
{
	const int64_t numbers[] = {row->pid, row->start_ms};
	struct buf *b = &w->scratch;

	store_tags_text(&p->tags, tags);
	buf_reset(b);
	buf_add(b, numbers, sizeof(numbers));
	key_text(b, p->app_service ? p->app_service : "");
	buf_add(b, tags->data, tags->len);
	return store_seen_key(w->s, b->data, b->len);
}

int store_words_series(struct writing *w, const struct profile *p, int64_t time_s, int64_t *ret_id)
{
	sqlite3_stmt *st = w->s->st[ST_SERIES_TOUCH];
	struct seen *seen = &w->s->seen[SEEN_SERIES];
	_cleanup_buf_ struct buf tags = {0};
	struct series_row row = {
		.pid = p->process_id,
		.start_ms = (int64_t)(p->process_start_ns / NSEC_PER_MSEC),
		.first_s = MIN((int64_t)(p->start_ns / NSEC_PER_SEC), time_s),
		.last_s = time_s,
	};
	struct seen_entry new = {.key = series_key(w, p, &row, &tags)};
	const struct seen_entry *e = store_seen_get(seen, new.key);
	int r = e ? 0 : look_up_series(w, p, &tags, &row, &new);

	if (r)
		return r;
	if (!e)
		e = store_seen_put(seen, &new);
	*ret_id = e->id;
	w->place = e->place;
	sqlite3_bind_int64(st, 1, e->id);
	sqlite3_bind_int64(st, 2, row.first_s);
	sqlite3_bind_int64(st, 3, row.last_s);
	return store_sq_run(st);
}

void store_words_done(struct writing *w)
{
	for (size_t i = 0; i < w->batch->n_stacks; i++)
		buf_done(&w->stacks[i].frames);
	free(w->stacks);
	free(w->strings.words);
	free(w->frames.words);
	buf_done(&w->scratch);
	buf_done(&w->samples);
}
