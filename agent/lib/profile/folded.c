/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> folded stacks, a line for each: "web;[t] worker;main;[l] write 17". Tools such as
 * flamegraph.pl read it. Lines are sorted by their levels, so that equal ones can be added up. Only
 * the texts of levels are in memory, each once, so that two levels are equal if their addresses
 * are; a line is made when it is written.
 */
#include "lib/profile/writer.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_HEAD 4 /* levels above the frames: tags, the service, a process, a thread */

/*
 * A line: the levels of the head, those of its stack, and its wait. The levels of tags are one text
 * with ';' between them.
 */
struct line {
	const char *head[MAX_HEAD];
	size_t n_head;
	const char *const *frames;
	size_t n_frames;
	const char *wait; /* NULL: none */
	uint64_t value;
};

struct writing {
	struct profile_writer base;
	const struct batch *batch;
	struct profile_file file;
	struct buf_budget *budget;
	size_t n_counted;	/* bytes that the budget has given */
	struct batch *words;	/* the texts of levels */
	struct addresses texts; /* of frames, by the address of frame_key() */
	const char **frames;	/* the texts of all stacks of the batch; NULL: not made yet */
	size_t n_frames, *first_frame; /* first_frame: of each stack */
	struct line *lines;
	size_t n, cap, next;
	bool sorted;
};

/* ---- the texts of levels ---- */

/* Replaces ';' and control characters in a name, because they separate frames and lines. */
static void clean(struct buf *name)
{
	for (size_t i = 0; i < name->len; i++) {
		char *c = &name->data[i];

		*c = *c == ';' ? ':' : (unsigned char)*c < ' ' ? ' ' : *c;
	}
}

static const char *level_text(struct writing *w, struct buf *name)
{
	clean(name);
	return profile_batch_str(w->words, name->data ?: "");
}

static const char *comm_text(struct writing *w, const char *kind, const char *comm)
{
	_cleanup_buf_ struct buf name = {0};

	buf_printf(&name, "%s%s", profile_kind_prefix(kind), comm);
	return level_text(w, &name);
}

/* The levels of tags; NULL: the sample has none of them. */
static const char *tags_text(struct writing *w, const struct profile *p,
			     const struct profile_sample *s)
{
	_cleanup_buf_ struct buf levels = {0};

	for (size_t i = 0; i < w->file.n_levels; i++) {
		_cleanup_buf_ struct buf level = {0};

		if (!profile_put_level(p, s, w->file.levels[i], &level))
			continue;
		clean(&level);
		buf_puts(&levels, levels.len ? ";" : "");
		buf_puts(&levels, level.data);
	}
	return levels.len ? profile_batch_str(w->words, levels.data) : NULL;
}

/* The outermost user frame may have another text than the same frame elsewhere has. */
static const void *frame_key(const struct frame *f, bool outermost_user)
{
	return (const char *)f + outermost_user;
}

static const char *frame_text(struct writing *w, const struct frame *f, bool outermost_user)
{
	uint64_t *text = profile_address_value(&w->texts, frame_key(f, outermost_user));
	_cleanup_buf_ struct buf name = {0};

	if (!*text) {
		profile_frame_render(f, outermost_user, &name);
		*text = (uintptr_t)level_text(w, &name);
	}
	return (const char *)(uintptr_t)*text;
}

static const char *const *stack_texts(struct writing *w, uint32_t stack)
{
	const struct stack_ref *s = &w->batch->stacks[stack];
	const char **texts = w->frames + w->first_frame[stack];
	bool user_seen = false;

	for (size_t i = 0; i < s->n && !texts[i]; i++) {
		const struct frame *f = s->frames[i];
		bool user = f->kind != FRAME_KERNEL && f->kind != FRAME_MARKER;

		texts[i] = frame_text(w, f, user && !user_seen);
		user_seen |= user;
	}
	return texts;
}

/* ---- lines ---- */

bool profile_adds_up(const struct profile *p, const struct profile_sample *s)
{
	return p->event != EVENT_RDMA || !s->labels || profile_is_send_queue(s->labels);
}

/* The same levels as those of profile_stack_render(), below those of tags and the service. */
static void add_line(struct writing *w, const struct profile *p, const struct profile_sample *s)
{
	const char *tags = tags_text(w, p, s);
	struct line l = {.value = w->file.ticks && p->event == EVENT_ON_CPU ? s->n_samples
									    : (uint64_t)s->value};

	if (tags)
		l.head[l.n_head++] = tags;
	l.head[l.n_head++] = comm_text(w, "", p->app_service);
	if (s->process_comm)
		l.head[l.n_head++] = comm_text(w, "process", s->process_comm);
	if (s->thread_comm && !(s->process_comm && s->main_thread))
		l.head[l.n_head++] =
			comm_text(w, !s->process_comm && s->main_thread ? "process" : "thread",
				  s->thread_comm);
	if (s->stack != STACK_NONE) {
		l.frames = stack_texts(w, s->stack);
		l.n_frames = w->batch->stacks[s->stack].n;
	}
	if (profile_wait_frame(s->wait))
		l.wait = frame_text(w, profile_wait_frame(s->wait), false);
	GROW(w->lines, w->n, w->cap);
	w->lines[w->n++] = l;
}

/* Level i of a line; NULL: it has fewer. */
static const char *level(const struct line *l, size_t i)
{
	if (i < l->n_head)
		return l->head[i];
	i -= l->n_head;
	if (i < l->n_frames)
		return l->frames[i];
	return i == l->n_frames ? l->wait : NULL;
}

static int by_levels(const void *x, const void *y)
{
	const char *a, *b;

	for (size_t i = 0;; i++) {
		a = level(x, i);
		b = level(y, i);
		if (a != b)
			return !a ? -1 : !b ? 1 : strcmp(a, b);
		if (!a)
			return 0;
	}
}

static int count_memory(struct writing *w)
{
	return buf_budget_grow(w->budget,
			       profile_batch_bytes(w->words) + profile_addresses_bytes(&w->texts) +
				       w->batch->n_stacks * sizeof(*w->first_frame) +
				       w->n_frames * sizeof(*w->frames) +
				       w->cap * sizeof(*w->lines),
			       &w->n_counted);
}

/* Makes room for the texts of all frames. */
static int make_room(struct writing *w)
{
	size_t n_stacks = w->batch->n_stacks;

	for (size_t i = 0; i < n_stacks; i++)
		w->n_frames += w->batch->stacks[i].n;
	if (count_memory(w) < 0)
		return -E2BIG;
	w->frames = xcalloc(w->n_frames + 1, sizeof(*w->frames));
	w->first_frame = xcalloc(n_stacks + 1, sizeof(*w->first_frame));
	for (size_t i = 0; i < n_stacks; i++)
		w->first_frame[i + 1] = w->first_frame[i] + w->batch->stacks[i].n;
	return 0;
}

static int sort_lines(struct writing *w)
{
	struct sample_at at = {0};
	const struct profile_sample *s;
	const struct profile *p;

	w->sorted = true;
	if (make_room(w))
		return -E2BIG;
	while ((s = profile_samples_next(w->batch, &at, &p))) {
		if (profile_file_has(&w->file, p, s))
			add_line(w, p, s);
		if (count_memory(w) < 0)
			return -E2BIG;
	}
	if (w->n)
		qsort(w->lines, w->n, sizeof(*w->lines), by_levels);
	return 0;
}

/* Two processes with the same name have the same lines: their values are added up. */
static void put_line(struct writing *w, struct buf *out)
{
	const struct line *l = &w->lines[w->next++];
	uint64_t value = l->value;
	const char *text;

	for (; w->next < w->n && by_levels(l, &w->lines[w->next]) == 0; w->next++)
		value += w->lines[w->next].value;
	for (size_t i = 0; (text = level(l, i)); i++) {
		buf_puts(out, i ? ";" : "");
		buf_puts(out, text);
	}
	buf_printf(out, " %" PRIu64 "\n", value);
}

/* ---- the writer ---- */

static int step(struct profile_writer *base, struct buf *out)
{
	struct writing *w = (struct writing *)base;

	if (!w->sorted && sort_lines(w))
		return -E2BIG;
	if (w->next == w->n)
		return 0;
	put_line(w, out);
	return out->failed ? -E2BIG : 1;
}

static void free_writing(struct profile_writer *base)
{
	struct writing *w = (struct writing *)base;

	free(w->frames);
	free(w->first_frame);
	free(w->lines);
	profile_addresses_done(&w->texts);
	profile_batch_free(w->words);
	free(w);
}

struct profile_writer *profile_folded_writer(const struct batch *b, const struct profile_file *file,
					     struct buf_budget *budget)
{
	struct writing *w = xcalloc(1, sizeof(*w));

	*w = (struct writing){.base = {step, free_writing},
			      .batch = b,
			      .file = *file,
			      .budget = budget,
			      .words = profile_batch_new()};
	return &w->base;
}
