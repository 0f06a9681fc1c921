/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, frames, stacks and series of a file, as parts of a batch. */
#include "hub/store/sqlite_export.h"

#include <stdlib.h>

#define FRAME_WORDS                                                                                \
	"SELECT name, module, build_id, address, file, line, kind, inlined FROM frames WHERE id=?"
static const char *const statements[_EX_MAX] = {
	[EX_STRING] = "SELECT s FROM strings WHERE id=?",
	[EX_FRAME] = FRAME_WORDS,
	[EX_STACK] = "SELECT process, thread, main, frames, wait, labels FROM stacks WHERE id=?",
	[EX_TAGSET] = "SELECT text FROM tagsets WHERE id=?",
	[EX_SERIES] = "SELECT app, pid, start_ms, tagset, first_s FROM series WHERE id=?",
};

int store_export_words_open(struct export_words *w, sqlite3 *db)
{
	int r = 0;

	for (int i = 0; !r && i < _EX_MAX; i++)
		r = store_sq_errno(sqlite3_prepare_v3(db, statements[i], -1,
						      SQLITE_PREPARE_PERSISTENT, &w->st[i], NULL));
	return r;
}

static void forget(struct export_words *w)
{
	/* the strings and frames are the batch's */
	free(w->strings.slots);
	free(w->frames.slots);
	w->strings = w->frames = (struct id_map){0};
	store_id_map_free(&w->stacks);
	for (size_t i = 0; i < w->series.cap; i++)
		if (w->series.slots[i].id)
			free(((struct export_series *)w->series.slots[i].item)->tags);
	store_id_map_free(&w->series);
}

void store_export_words_begin(struct export_words *w, struct batch *b)
{
	forget(w);
	w->batch = b;
	w->error = 0;
}

void store_export_words_done(struct export_words *w)
{
	forget(w);
	for (int i = 0; i < _EX_MAX; i++)
		sqlite3_finalize(w->st[i]);
	*w = (struct export_words){0};
}

static void fail(struct export_words *w, int r)
{
	w->error = w->error ?: r;
}

/* Runs a statement for a row. NULL: there is none. The caller resets the statement. */
static sqlite3_stmt *row_of(struct export_words *w, enum export_statement which, int64_t id)
{
	sqlite3_stmt *st = w->st[which];
	int rc;

	if (id <= 0)
		return NULL;
	sqlite3_bind_int64(st, 1, id);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		return st;
	sqlite3_reset(st);
	fail(w, store_sq_errno(rc));
	return NULL;
}

const char *store_export_string(struct export_words *w, int64_t id)
{
	const char *s = store_id_map_get(&w->strings, id);
	sqlite3_stmt *st = s ? NULL : row_of(w, EX_STRING, id);

	if (!st)
		return s;
	s = profile_batch_str(w->batch, (const char *)sqlite3_column_text(st, 0) ?: "");
	sqlite3_reset(st);
	store_id_map_put(&w->strings, id, (void *)s);
	return s;
}

static const struct frame *lost(struct export_words *w)
{
	const struct frame f = {.kind = FRAME_MARKER,
				.name = profile_batch_str(w->batch, STORE_LOST)};

	return profile_batch_frame(w->batch, &f);
}

static const struct frame *frame_of(struct export_words *w, int64_t id)
{
	const struct frame *found = store_id_map_get(&w->frames, id);
	sqlite3_stmt *st = found ? NULL : row_of(w, EX_FRAME, id);
	struct frame f;
	int kind;

	if (!st)
		return found ?: lost(w);
	kind = sqlite3_column_int(st, 6);
	f = (struct frame){
		.name = store_export_string(w, sqlite3_column_int64(st, 0)),
		.module = store_export_string(w, sqlite3_column_int64(st, 1)),
		.build_id = store_export_string(w, sqlite3_column_int64(st, 2)),
		.address = (uint64_t)sqlite3_column_int64(st, 3),
		.file = store_export_string(w, sqlite3_column_int64(st, 4)),
		.kind = kind >= 0 && kind < _FRAME_KIND_MAX ? (enum frame_kind)kind : FRAME_APP,
		.inlined = sqlite3_column_int(st, 7),
	};
	profile_frame_set_stored_line(&f, (uint32_t)sqlite3_column_int64(st, 5));
	sqlite3_reset(st);
	found = profile_batch_frame(w->batch, &f);
	store_id_map_put(&w->frames, id, (void *)found);
	return found;
}

/* ---- sets of tags ---- */

/* The next tag of a set's text; the value follows the key. false: there is none. */
static bool next_tag(const char **at, const char *end, struct tag *ret)
{
	const char *key = *at, *value;

	if (key >= end)
		return false;
	value = key + strnlen(key, (size_t)(end - key)) + 1;
	if (value >= end)
		return false;
	*at = value + strnlen(value, (size_t)(end - value)) + 1;
	*ret = (struct tag){key, value};
	return *at <= end; /* the text of each set ends with '\0' */
}

static const struct profile_labels *labels_of(struct export_words *w, int64_t tagset)
{
	sqlite3_stmt *st = row_of(w, EX_TAGSET, tagset);
	struct profile_labels labels = {{NULL}};
	const char *at, *end;
	struct tag t;

	if (!st)
		return NULL;
	at = sqlite3_column_blob(st, 0);
	end = at + sqlite3_column_bytes(st, 0);
	while (next_tag(&at, end, &t)) {
		enum profile_label l = profile_label_of_tag(t.key);

		if (l != _LABEL_MAX)
			labels.values[l] = profile_batch_str(w->batch, t.value);
	}
	sqlite3_reset(st);
	return profile_batch_labels(w->batch, &labels);
}

static void read_tags(struct export_words *w, int64_t tagset, struct export_series *x)
{
	sqlite3_stmt *st = row_of(w, EX_TAGSET, tagset);
	const char *at, *end;
	size_t cap = 0;
	struct tag t;

	if (!st)
		return;
	at = sqlite3_column_blob(st, 0);
	end = at + sqlite3_column_bytes(st, 0);
	while (next_tag(&at, end, &t)) {
		GROW(x->tags, x->n_tags, cap);
		x->tags[x->n_tags++] = (struct tag){profile_batch_str(w->batch, t.key),
						    profile_batch_str(w->batch, t.value)};
	}
	sqlite3_reset(st);
}

/* ---- stacks and series ---- */

/* The frames of a stack, root first; ids: as the file has them. */
static uint32_t index_of(struct export_words *w, const uint8_t *ids, int n_bytes)
{
	const struct frame *frames[STACK_MAX_FRAMES];
	const uint8_t *end = ids + n_bytes;
	uint32_t index = STACK_NONE;
	size_t n = 0;
	uint64_t id;

	while (n < STACK_MAX_FRAMES && store_varint_get(&ids, end, &id))
		frames[n++] = frame_of(w, (int64_t)id);
	if (n)
		fail(w, profile_batch_stack_of(w->batch, frames, n, &index));
	return index;
}

static void read_stack(struct export_words *w, sqlite3_stmt *st, struct export_stack *x)
{
	int wait = sqlite3_column_int(st, 4);

	*x = (struct export_stack){
		.index = index_of(w, sqlite3_column_blob(st, 3), sqlite3_column_bytes(st, 3)),
		.process = store_export_string(w, sqlite3_column_int64(st, 0)),
		.thread = store_export_string(w, sqlite3_column_int64(st, 1)),
		.main_thread = sqlite3_column_int(st, 2),
		.wait = wait >= 0 && wait < _WAIT_MAX ? (enum wait)wait : WAIT_OTHER,
		.labels = labels_of(w, sqlite3_column_int64(st, 5)),
	};
}

const struct export_stack *store_export_stack(struct export_words *w, int64_t id)
{
	const int64_t key = id > 0 ? id : INT64_MAX; /* no row has either of them */
	struct export_stack *x = store_id_map_get(&w->stacks, key);
	const struct frame *f;
	sqlite3_stmt *st;

	if (x || w->error)
		return x;
	x = xcalloc(1, sizeof(*x));
	st = row_of(w, EX_STACK, key);
	if (st) {
		read_stack(w, st, x);
		sqlite3_reset(st);
	} else {
		f = lost(w);
		fail(w, profile_batch_stack_of(w->batch, &f, 1, &x->index));
	}
	if (w->error) {
		free(x);
		return NULL;
	}
	store_id_map_put(&w->stacks, key, x);
	return x;
}

const struct export_series *store_export_series(struct export_words *w, int64_t id)
{
	struct export_series *x = store_id_map_get(&w->series, id);
	sqlite3_stmt *st = x ? NULL : row_of(w, EX_SERIES, id);
	int64_t tagset;

	if (!st)
		return x;
	x = xcalloc(1, sizeof(*x));
	*x = (struct export_series){
		.app = store_export_string(w, sqlite3_column_int64(st, 0)),
		.pid = (uint32_t)sqlite3_column_int64(st, 1),
		.start_ms = sqlite3_column_int64(st, 2),
		.first_s = sqlite3_column_int64(st, 4),
	};
	tagset = sqlite3_column_int64(st, 3);
	sqlite3_reset(st);
	read_tags(w, tagset, x);
	store_id_map_put(&w->series, id, x);
	return x;
}
