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

static char *render(const struct batch *batch, const struct profile *p,
		    const struct profile_sample *s)
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
	return buf_steal(&b);
}

bool profile_adds_up(const struct profile *p, const struct profile_sample *s)
{
	return p->event != EVENT_RDMA || !s->labels || profile_is_send_queue(s->labels);
}

/* Renders lines until they have more than max_bytes. *ret_bytes: the bytes of all lines. */
static size_t render_all(const struct batch *b, bool ticks, size_t max_bytes, struct line **ret,
			 size_t *ret_bytes)
{
	struct line *lines = NULL;
	size_t n = 0, cap = 0, n_bytes = 0;

	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		for (size_t j = 0; j < p->n_samples && n_bytes <= max_bytes; j++) {
			const struct profile_sample *s = &p->samples[j];

			if (!profile_adds_up(p, s))
				continue;
			GROW(lines, n, cap);
			lines[n++] =
				(struct line){render(b, p, s), ticks && p->event == EVENT_ON_CPU
								       ? s->n_samples
								       : (uint64_t)s->value};
			n_bytes += strlen(lines[n - 1].text);
		}
	}
	*ret = lines;
	*ret_bytes = n_bytes;
	return n;
}

int profile_write_folded(const struct batch *b, bool ticks, struct buf *out)
{
	_cleanup_free_ struct line *lines = NULL;
	size_t max_bytes = out->max_bytes ? out->max_bytes : SIZE_MAX, n_bytes;
	size_t n = render_all(b, ticks, max_bytes, &lines, &n_bytes);

	if (n)
		qsort(lines, n, sizeof(*lines), by_text);
	for (size_t i = 0; i < n; i++) {
		/* two processes with the same name have the same lines: adds their values up */
		if (i + 1 < n && streq(lines[i].text, lines[i + 1].text))
			lines[i + 1].n += lines[i].n;
		else
			buf_printf(out, "%s %" PRIu64 "\n", lines[i].text, lines[i].n);
		free(lines[i].text);
	}
	return out->failed || n_bytes > max_bytes ? -E2BIG : 0;
}
