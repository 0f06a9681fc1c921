/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> folded stacks, a line for each: "web;[t] worker;main;[l] write 17". Tools such as
 * flamegraph.pl read it.
 */
#include "lib/profile/profile.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_LINE_BYTES (1u << 20)

struct line {
	char *text;
	uint64_t n;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

/* Replaces ';' and control characters in a name, because they separate frames and lines. */
static void put_name(struct buf *b, const char *name)
{
	for (; *name; name++)
		buf_putc(b, *name == ';' ? ':' : (unsigned char)*name < ' ' ? ' ' : *name);
}

/* *ret_bytes: the memory of the text. */
static char *render(const struct batch *batch, const struct profile *p,
		    const struct profile_sample *s, size_t *ret_bytes)
{
	const struct stack_head head = {.process_comm = s->process_comm,
					.thread_comm = s->thread_comm,
					.main_thread = s->main_thread,
					.wait = s->wait};
	const struct stack_ref none = {0};
	const struct stack_ref *stack = s->stack == STACK_NONE ? &none : &batch->stacks[s->stack];
	_cleanup_free_ struct frame *frames = xcalloc(stack->n + 1, sizeof(*frames));
	struct buf b;

	buf_init(&b, MAX_LINE_BYTES);
	put_name(&b, p->app_service);
	buf_putc(&b, ';');
	for (size_t i = 0; i < stack->n; i++)
		frames[i] = *stack->frames[i];
	profile_stack_render(&head, frames, stack->n, &b);
	for (size_t i = 0; i < b.len; i++)
		if ((unsigned char)b.data[i] < ' ')
			b.data[i] = ' ';
	*ret_bytes = b.cap;
	return buf_steal(&b);
}

bool profile_adds_up(const struct profile *p, const struct profile_sample *s)
{
	return p->event != EVENT_RDMA || !s->labels || profile_is_send_queue(s->labels);
}

struct lines {
	struct line *items;
	size_t n, cap;
	size_t n_text;			/* characters of all lines */
	size_t n_text_bytes, n_counted; /* their memory; bytes that the budget has given */
	bool failed;
};

static void render_sample(struct lines *l, const struct batch *b, const struct profile *p,
			  const struct profile_sample *s, bool ticks, const struct buf *out)
{
	uint64_t n = ticks && p->event == EVENT_ON_CPU ? s->n_samples : (uint64_t)s->value;
	size_t n_bytes = 0;

	if (!profile_adds_up(p, s))
		return;
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct line){render(b, p, s, &n_bytes), n};
	l->n_text += strlen(l->items[l->n - 1].text);
	l->n_text_bytes += n_bytes;
	l->failed = (out->max_bytes && l->n_text > out->max_bytes) ||
		    buf_budget_grow(out->budget, l->n_text_bytes + l->cap * sizeof(*l->items),
				    &l->n_counted);
}

int profile_write_folded(const struct batch *b, bool ticks, struct buf *out)
{
	struct lines l = {0};
	struct line *lines;

	for (size_t i = 0; i < b->n_profiles; i++)
		for (size_t k = 0; k < b->profiles[i]->n_samples && !l.failed; k++)
			render_sample(&l, b, b->profiles[i], &b->profiles[i]->samples[k], ticks,
				      out);
	lines = l.items;
	if (l.n)
		qsort(lines, l.n, sizeof(*lines), by_text);
	for (size_t i = 0; i < l.n; i++) {
		/* two processes with the same name have the same lines: adds their values up */
		if (i + 1 < l.n && streq(lines[i].text, lines[i + 1].text))
			lines[i + 1].n += lines[i].n;
		else if (!l.failed)
			buf_printf(out, "%s %" PRIu64 "\n", lines[i].text, lines[i].n);
		free(lines[i].text);
	}
	free(lines);
	return out->failed || l.failed ? -E2BIG : 0;
}
