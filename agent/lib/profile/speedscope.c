/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> a file for speedscope (https://www.speedscope.app): one "sampled" profile with a stack
 * and a weight for each sample of the batch.
 */
#include "lib/profile/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

/* A frame of the file. */
struct entry {
	char *key; /* its JSON */
	size_t index;
	UT_hash_handle hh;
};
struct writing {
	struct entry *entries;
	struct buf frames, samples, weights;
	struct buf_budget *budget;
	size_t n_entry_bytes, n_counted; /* memory of entries; bytes that the budget has given */
	uint64_t sum;
};

/* Returns the index of the frame with this JSON, which becomes the table's. */
static size_t index_of(struct writing *w, struct buf *json)
{
	struct entry *e;

	HASH_FIND(hh, w->entries, json->data, json->len, e);
	if (!e) {
		size_t n = json->len;

		e = xcalloc(1, sizeof(*e));
		e->index = HASH_COUNT(w->entries);
		buf_puts(&w->frames, e->index ? "," : "");
		buf_add(&w->frames, json->data, n);
		w->n_entry_bytes += sizeof(*e) + json->cap;
		if (buf_budget_grow(w->budget, w->n_entry_bytes, &w->n_counted) < 0)
			w->samples.failed = true;
		e->key = buf_steal(json);
		HASH_ADD_KEYPTR(hh, w->entries, e->key, n, e);
	}
	buf_done(json);
	return e->index;
}

static void put_index(struct writing *w, size_t index, bool *first)
{
	buf_printf(&w->samples, *first ? "%zu" : ",%zu", index);
	*first = false;
}

static void put_frame(struct writing *w, const struct frame *f, bool outermost, bool *first)
{
	_cleanup_buf_ struct buf name = {0};
	struct buf json = {0};

	profile_frame_name(f, outermost, &name);
	buf_puts(&json, "{\"name\":");
	buf_json_string(&json, name.data ?: "");
	if (f->file) {
		buf_puts(&json, ",\"file\":");
		buf_json_string(&json, f->file);
	}
	if (f->file && f->line)
		buf_printf(&json, ",\"line\":%" PRIu32, f->line);
	buf_puts(&json, "}");
	put_index(w, index_of(w, &json), first);
}

/* Adds a process or a thread. */
static void put_comm(struct writing *w, const char *kind, const char *comm, bool *first)
{
	_cleanup_free_ char *name = xasprintf("%s%s", profile_kind_prefix(kind), comm);
	const struct frame f = {.kind = FRAME_APP, .name = name};

	put_frame(w, &f, false, first);
}

static void put_sample(struct writing *w, const struct batch *b, const struct profile *p,
		       const struct profile_sample *s)
{
	bool first = true, user_seen = false;

	buf_puts(&w->samples, w->weights.len ? ",[" : "[");
	put_comm(w, "", p->app_service, &first);
	if (s->process_comm)
		put_comm(w, "process", s->process_comm, &first);
	if (s->thread_comm)
		put_comm(w, s->main_thread ? "process" : "thread", s->thread_comm, &first);
	for (size_t i = 0; s->stack != STACK_NONE && i < b->stacks[s->stack].n; i++) {
		const struct frame *f = b->stacks[s->stack].frames[i];
		bool user = f->kind != FRAME_KERNEL && f->kind != FRAME_MARKER;

		put_frame(w, f, user && !user_seen, &first);
		user_seen |= user;
	}
	if (profile_wait_frame(s->wait))
		put_frame(w, profile_wait_frame(s->wait), false, &first);
	buf_puts(&w->samples, "]");
	buf_printf(&w->weights, w->weights.len ? ",%" PRId64 : "%" PRId64, s->value);
	w->sum += (uint64_t)s->value;
}

static void writing_done(struct writing *w)
{
	struct entry *e, *next;

	HASH_ITER (hh, w->entries, e, next) {
		HASH_DEL(w->entries, e);
		free(e->key);
		free(e);
	}
	buf_done(&w->frames);
	buf_done(&w->samples);
	buf_done(&w->weights);
}

/* The name of the profile, with the notes behind it: the file has no other place for them. */
static void put_title(const char *name, const struct profile_file *file, struct buf *out)
{
	_cleanup_buf_ struct buf title = {0};

	buf_puts(&title, name);
	for (size_t i = 0; i < file->n_notes; i++)
		buf_printf(&title, "%s%s", i ? "; " : ": ", file->notes[i]);
	buf_json_string(out, title.data);
}

int profile_write_speedscope(const struct batch *b, const struct profile_file *file,
			     struct buf *out)
{
	_cleanup_(writing_done) struct writing w = {0};
	const struct event_info *e = profile_event_info(file->event);

	buf_init(&w.frames, out->max_bytes);
	buf_init(&w.samples, out->max_bytes);
	buf_init(&w.weights, out->max_bytes);
	w.budget = w.frames.budget = w.samples.budget = w.weights.budget = out->budget;
	for (size_t i = 0; i < b->n_profiles; i++)
		for (size_t j = 0; j < b->profiles[i]->n_samples && !w.samples.failed; j++)
			if (profile_adds_up(b->profiles[i], &b->profiles[i]->samples[j]))
				put_sample(&w, b, b->profiles[i], &b->profiles[i]->samples[j]);
	buf_puts(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
		      "\"exporter\":\"podflame\",\"shared\":{\"frames\":[");
	buf_puts(out, w.frames.data ?: "");
	buf_puts(out, "]},\"profiles\":[{\"type\":\"sampled\",\"name\":");
	put_title(e->name, file, out);
	buf_printf(out, ",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
		   e->unit, w.sum);
	buf_puts(out, w.samples.data ?: "");
	buf_puts(out, "],\"weights\":[");
	buf_puts(out, w.weights.data ?: "");
	buf_puts(out, "]}]}");
	return out->failed || w.samples.failed || w.frames.failed || w.weights.failed ? -E2BIG : 0;
}
