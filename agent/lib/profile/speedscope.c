/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> a file for speedscope (https://www.speedscope.app): one "sampled" profile with a stack
 * and a weight for each sample of the batch. The table of the frames is the file's last member,
 * because the samples, which are written before it, fill it.
 */
#include "lib/profile/writer.h"

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
	struct profile_writer base;
	const struct batch *batch;
	struct profile_file file;
	enum { HEAD, SAMPLES, WEIGHTS, FRAMES } part; /* that comes next */
	struct sample_at at;			      /* in SAMPLES and WEIGHTS */
	bool first;				      /* of its list */
	struct entry *entries, *next;		      /* next: in FRAMES */
	struct buf *out;			      /* of the step that is under way */
	struct buf_budget *budget;
	size_t n_entry_bytes, n_counted; /* memory of entries; bytes that the budget has given */
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
		w->n_entry_bytes += sizeof(*e) + json->cap;
		e->key = buf_steal(json);
		HASH_ADD_KEYPTR(hh, w->entries, e->key, n, e);
	}
	buf_done(json);
	return e->index;
}

static void put_index(struct writing *w, size_t index, bool *first)
{
	buf_printf(w->out, *first ? "%zu" : ",%zu", index);
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

/* Adds a frame that is none of the stack: a tag, a process or a thread. */
static void put_comm(struct writing *w, const char *kind, const char *comm, bool *first)
{
	_cleanup_free_ char *name = xasprintf("%s%s", profile_kind_prefix(kind), comm);
	const struct frame f = {.kind = FRAME_APP, .name = name};

	put_frame(w, &f, false, first);
}

/* Adds the levels of tags. */
static void put_tags(struct writing *w, const struct profile *p, const struct profile_sample *s,
		     bool *first)
{
	for (size_t i = 0; i < w->file.n_levels; i++) {
		_cleanup_buf_ struct buf level = {0};

		if (profile_put_level(p, s, w->file.levels[i], &level))
			put_comm(w, "", level.data, first);
	}
}

static void put_sample(struct writing *w, const struct profile *p, const struct profile_sample *s)
{
	const struct batch *b = w->batch;
	bool first = true, user_seen = false;

	buf_puts(w->out, "[");
	put_tags(w, p, s, &first);
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
	buf_puts(w->out, "]");
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

/* The next sample that the file has; NULL: no more. */
static const struct profile_sample *next_sample(struct writing *w, const struct profile **ret)
{
	const struct profile_sample *s;

	do {
		s = profile_samples_next(w->batch, &w->at, ret);
	} while (s && !profile_file_has(&w->file, *ret, s));
	return s;
}

static void put_head(struct writing *w)
{
	const struct event_info *e = profile_event_info(w->file.event);
	const struct profile_sample *s;
	const struct profile *p;
	uint64_t sum = 0;

	while ((s = next_sample(w, &p)))
		sum += (uint64_t)s->value;
	buf_puts(w->out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
			 "\"exporter\":\"podflame\",\"profiles\":[{\"type\":\"sampled\",\"name\":");
	put_title(e->name, &w->file, w->out);
	buf_printf(w->out,
		   ",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
		   e->unit, sum);
}

static void put_comma(struct writing *w)
{
	if (!w->first)
		buf_puts(w->out, ",");
	w->first = false;
}

/* Puts the stack or the weight of one sample. Returns false if there are no more. */
static bool put_next_sample(struct writing *w)
{
	const struct profile *p;
	const struct profile_sample *s = next_sample(w, &p);

	if (!s)
		return false;
	put_comma(w);
	if (w->part == SAMPLES)
		put_sample(w, p, s);
	else
		buf_printf(w->out, "%" PRId64, s->value);
	return true;
}

static bool put_next_entry(struct writing *w)
{
	if (!w->next)
		return false;
	put_comma(w);
	buf_puts(w->out, w->next->key);
	w->next = w->next->hh.next;
	return true;
}

static void begin_part(struct writing *w, int part)
{
	w->part = part;
	w->at = (struct sample_at){0};
	w->next = w->entries;
	w->first = true;
}

static int step(struct profile_writer *base, struct buf *out)
{
	struct writing *w = (struct writing *)base;
	bool ends = false;

	w->out = out;
	switch (w->part) {
	case HEAD:
		put_head(w);
		begin_part(w, SAMPLES);
		break;
	case SAMPLES:
		if (put_next_sample(w))
			break;
		buf_puts(out, "],\"weights\":[");
		begin_part(w, WEIGHTS);
		break;
	case WEIGHTS:
		if (put_next_sample(w))
			break;
		buf_puts(out, "]}],\"shared\":{\"frames\":[");
		begin_part(w, FRAMES);
		break;
	case FRAMES:
		ends = !put_next_entry(w);
		if (ends)
			buf_puts(out, "]}}");
		break;
	}
	if (out->failed || buf_budget_grow(w->budget, w->n_entry_bytes, &w->n_counted) < 0)
		return -E2BIG;
	return ends ? 0 : 1;
}

static void free_writing(struct profile_writer *base)
{
	struct writing *w = (struct writing *)base;
	struct entry *e, *next;

	HASH_ITER (hh, w->entries, e, next) {
		HASH_DEL(w->entries, e);
		free(e->key);
		free(e);
	}
	free(w);
}

struct profile_writer *profile_speedscope_writer(const struct batch *b,
						 const struct profile_file *file,
						 struct buf_budget *budget)
{
	struct writing *w = xcalloc(1, sizeof(*w));

	*w = (struct writing){
		.base = {step, free_writing}, .batch = b, .file = *file, .budget = budget};
	return &w->base;
}
