/* SPDX-License-Identifier: Apache-2.0 */
/* Files, piece by piece: what is the same for all formats. */
#include "lib/profile/writer.h"

#include <stdlib.h>

struct profile_writer *profile_writer_free(struct profile_writer *w)
{
	if (w)
		w->free(w);
	return NULL;
}

int profile_writer_fill(struct profile_writer *w, size_t n, struct buf *out)
{
	int r = 1;

	while (r > 0 && out->len < n)
		r = out->failed ? -E2BIG : w->step(w, out);
	return r;
}

int profile_write(profile_writer_fn *format, const struct batch *b, const struct profile_file *file,
		  struct buf *out)
{
	struct profile_writer *w = format(b, file, out->budget);
	int r = profile_writer_fill(w, SIZE_MAX, out);

	profile_writer_free(w);
	return r;
}

const struct profile_sample *profile_samples_next(const struct batch *b, struct sample_at *at,
						  const struct profile **ret_profile)
{
	while (at->profile < b->n_profiles) {
		const struct profile *p = b->profiles[at->profile];

		if (at->sample < p->n_samples) {
			*ret_profile = p;
			return &p->samples[at->sample++];
		}
		*at = (struct sample_at){.profile = at->profile + 1};
	}
	return NULL;
}

bool profile_file_has(const struct profile_file *f, const struct profile *p,
		      const struct profile_sample *s)
{
	return f->n_levels || profile_adds_up(p, s);
}

static const char *value_of(const struct profile *p, const struct profile_sample *s,
			    const char *tag)
{
	enum profile_label label = profile_label_of_tag(tag);

	if (label != _LABEL_MAX)
		return s->labels ? s->labels->values[label] : NULL;
	if (streq(tag, "thread"))
		return s->thread_comm;
	if (streq(tag, "wait"))
		return s->wait == WAIT_NONE ? NULL : profile_wait_name(s->wait);
	return profile_tag_get(p, tag);
}

bool profile_put_level(const struct profile *p, const struct profile_sample *s, const char *tag,
		       struct buf *out)
{
	const char *value = value_of(p, s, tag);

	if (value)
		buf_printf(out, "%s=%s", tag, value);
	return value != NULL;
}

/* ---- addresses ---- */

static void grow(struct addresses *t)
{
	struct addresses old = *t;

	*t = (struct addresses){.cap = old.cap ? old.cap * 2 : 1024};
	t->keys = xcalloc(t->cap, sizeof(*t->keys));
	t->values = xcalloc(t->cap, sizeof(*t->values));
	for (size_t k = 0; k < old.cap; k++)
		if (old.keys[k])
			*profile_address_value(t, old.keys[k]) = old.values[k];
	profile_addresses_done(&old);
}

uint64_t *profile_address_value(struct addresses *t, const void *key)
{
	size_t i;

	if (t->n * 2 >= t->cap)
		grow(t);
	for (i = hash_bytes(&key, sizeof(key), 0) & (t->cap - 1); t->keys[i] && t->keys[i] != key;)
		i = (i + 1) & (t->cap - 1);
	if (!t->keys[i]) {
		t->keys[i] = key;
		t->n++;
	}
	return &t->values[i];
}

size_t profile_addresses_bytes(const struct addresses *t)
{
	return t->cap * (sizeof(*t->keys) + sizeof(*t->values));
}

void profile_addresses_done(struct addresses *t)
{
	free(t->keys);
	free(t->values);
	*t = (struct addresses){0};
}
