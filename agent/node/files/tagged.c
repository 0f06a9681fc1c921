/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file remembers which file a tag stands for, also when no process maps the file any more,
 * because a frame has only the tag.
 */
#include "node/files/internal.h"

#include <stdlib.h>

#define TAGGED_BYTES (8u << 20)

struct tagged {
	uint64_t tag;
	struct mapping m;
	size_t bytes;
	UT_hash_handle hh; /* in the order of use; the head was seen least recently */
};

static void forget(struct files *f, struct tagged *t)
{
	HASH_DEL(f->tagged, t);
	f->tagged_bytes -= t->bytes;
	free(t->m.path);
	free(t);
}

void files_forget_tags(struct files *f)
{
	while (f->tagged)
		forget(f, f->tagged);
}

static struct tagged *find(struct files *f, uint64_t tag)
{
	struct tagged *t;

	HASH_FIND(hh, f->tagged, &tag, sizeof(tag), t);
	return t;
}

static void make_room(struct files *f, size_t bytes)
{
	while (f->tagged && f->tagged_bytes + bytes > TAGGED_BYTES) {
		forget(f, f->tagged);
		counter_add(counter("podflame_file_tags_evicted_total", NULL, NULL), 1);
	}
}

void files_tagged(struct files *f, const struct mapping *m)
{
	size_t bytes = sizeof(struct tagged) + strlen(m->path) + 1;
	struct tagged *t;

	pthread_mutex_lock(&f->lock);
	t = find(f, m->tag);
	if (t)
		forget(f, t);
	make_room(f, bytes);
	t = xcalloc(1, sizeof(*t));
	t->tag = m->tag;
	t->bytes = bytes;
	t->m = *m;
	t->m.path = xstrdup(m->path);
	t->m.fd = -1;
	t->m.open_error = m->open_error ? m->open_error : -ESTALE;
	HASH_ADD(hh, f->tagged, tag, sizeof(t->tag), t);
	f->tagged_bytes += bytes;
	pthread_mutex_unlock(&f->lock);
}

bool files_of_tag(struct files *f, uint64_t tag, struct mapping *ret)
{
	struct tagged *t;

	pthread_mutex_lock(&f->lock);
	t = find(f, tag);
	if (t) {
		*ret = t->m;
		ret->path = xstrdup(t->m.path);
	}
	pthread_mutex_unlock(&f->lock);
	return t != NULL;
}

bool files_knows_tag(struct files *f, uint64_t tag)
{
	bool known;

	pthread_mutex_lock(&f->lock);
	known = find(f, tag) != NULL;
	pthread_mutex_unlock(&f->lock);
	return known;
}
