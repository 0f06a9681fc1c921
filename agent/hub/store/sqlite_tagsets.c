/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer's use of the file's sets of tags. Each set is stored once. A series has the tags of
 * its profiles, a stack the labels of its samples.
 */
#include "hub/store/sqlite.h"

void store_tags_text(const struct tags *tags, struct buf *out)
{
	for (size_t i = 0; i < tags->n; i++) {
		buf_add(out, tags->items[i].key, strlen(tags->items[i].key) + 1);
		buf_add(out, tags->items[i].value, strlen(tags->items[i].value) + 1);
	}
}

static void bind_blob(sqlite3_stmt *st, const void *arg)
{
	const struct buf *b = arg;

	sqlite3_bind_blob(st, 1, b->data ? b->data : "", (int)b->len, SQLITE_STATIC);
}

static int put_tags(struct writing *w, int64_t tagset, const struct tags *tags)
{
	sqlite3_stmt *st = w->s->st[ST_TAG_PUT];
	int64_t key, value;
	int r = 0;

	for (size_t i = 0; !r && i < tags->n; i++) {
		r = store_words_string(w, tags->items[i].key, &key);
		if (!r)
			r = store_words_string(w, tags->items[i].value, &value);
		if (r)
			return r;
		sqlite3_bind_int64(st, 1, tagset);
		sqlite3_bind_int64(st, 2, key);
		sqlite3_bind_int64(st, 3, value);
		r = store_sq_run(st);
	}
	return r;
}

int store_words_tagset(struct writing *w, const struct tags *tags, const struct buf *text,
		       int64_t *ret_id)
{
	sqlite3_int64 before = sqlite3_total_changes64(w->s->writer);
	int64_t id = 0;
	int r = store_words_get_or_put(w, ST_TAGSET_GET, ST_TAGSET_PUT, bind_blob, text, &id);

	if (!r && sqlite3_total_changes64(w->s->writer) != before)
		r = put_tags(w, id, tags);
	if (r)
		return r;
	*ret_id = id;
	return 0;
}

int store_words_labels(struct writing *w, const struct profile_labels *labels, int64_t *ret_id)
{
	struct tag items[_LABEL_MAX];
	struct tags tags = {.items = items};
	_cleanup_buf_ struct buf text = {0};

	if (!labels) {
		*ret_id = 0;
		return 0;
	}
	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		if (labels->values[l])
			items[tags.n++] =
				(struct tag){profile_label_info(l)->tag, labels->values[l]};
	store_tags_text(&tags, &text);
	return store_words_tagset(w, &tags, &text, ret_id);
}
