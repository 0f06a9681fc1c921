// SPDX-License-Identifier: Apache-2.0
/*
 * Splits what the API server sends into texts of single objects: the lines of a watch, and the
 * items of a list. Both parsers hold one object at a time, up to a limit. They skip and count a
 * larger one, and go on.
 */
#include "lib/kube/kube_private.h"

#define MAX_SKELETON_BYTES (1 << 20) /* bytes of a list without its items: kind and metadata */
#define MAX_KEY_BYTES	   256	     /* bytes of a key at the list's top level */

static struct counter *oversized_counter(void)
{
	return counter("kube_dropped_total", "reason", "oversized_object");
}

void kube_lines_init(struct lines *l, size_t max_bytes)
{
	*l = (struct lines){.oversized = oversized_counter()};
	buf_init(&l->line, max_bytes);
}

void kube_lines_done(struct lines *l)
{
	buf_done(&l->line);
}

static void add_part(struct lines *l, const char *p, size_t n)
{
	if (l->skipping || buf_add(&l->line, p, n) == 0)
		return;
	l->skipping = true;
	l->n_lost++;
	counter_add(l->oversized, 1);
}

static bool end_line(struct lines *l, line_fn *fn, void *arg)
{
	size_t n = l->line.len;
	bool go_on = true;

	if (n && l->line.data[n - 1] == '\r')
		n--;
	if (n && !l->skipping)
		go_on = fn(l->line.data, n, arg);
	if (go_on) { /* if fn returned false, l may be freed */
		l->skipping = false;
		buf_reset(&l->line);
	}
	return go_on;
}

bool kube_lines_feed(struct lines *l, const char *p, size_t n, line_fn *fn, void *arg)
{
	while (n) {
		const char *end = memchr(p, '\n', n);
		size_t part = end ? (size_t)(end - p) : n;

		add_part(l, p, part);
		if (!end)
			return true;
		p = end + 1;
		n -= part + 1;
		if (!end_line(l, fn, arg))
			return false;
	}
	return true;
}

/* ---- lists ---- */

void kube_list_split_init(struct list_split *s, size_t max_item_bytes)
{
	*s = (struct list_split){.oversized = oversized_counter()};
	buf_init(&s->item, max_item_bytes);
	buf_init(&s->skeleton, MAX_SKELETON_BYTES);
	buf_init(&s->key, MAX_KEY_BYTES);
}

void kube_list_split_done(struct list_split *s)
{
	buf_done(&s->item);
	buf_done(&s->skeleton);
	buf_done(&s->key);
}

static void keep(struct list_split *s, char ch)
{
	bool of_item = s->in_items && s->depth >= 3;

	if (!s->in_items || (s->depth == 2 && ch == ']')) {
		buf_putc(&s->skeleton, ch);
	} else if (of_item && !s->skipping && buf_putc(&s->item, ch) < 0) {
		s->skipping = true;
		s->n_lost++;
		counter_add(s->oversized, 1);
	}
}

/* Handles a byte inside a string. A string at depth 1 may be a key, so its text is kept. */
static void in_string(struct list_split *s, char ch)
{
	keep(s, ch);
	if (s->escaped)
		s->escaped = false;
	else if (ch == '\\')
		s->escaped = true;
	else if (ch == '"')
		s->in_string = false;
	if (s->depth == 1 && s->in_string)
		buf_putc(&s->key, ch);
}

static void open_bracket(struct list_split *s, char ch)
{
	bool items = s->depth == 1 && ch == '[' && !s->in_items && s->key.data &&
		     streq(s->key.data, "items");

	if (items)
		keep(s, ch);
	s->depth++;
	s->in_items |= items;
	if (!items)
		keep(s, ch);
}

/* Returns false if fn wants no further items. */
static bool close_bracket(struct list_split *s, char ch, line_fn *fn, void *arg)
{
	bool go_on = true;

	keep(s, ch);
	if (s->depth == 0) /* the list is wrong; jansson will refuse it */
		return true;
	s->depth--;
	if (s->in_items && s->depth == 2) {
		if (!s->skipping)
			go_on = fn(s->item.data, s->item.len, arg);
		if (!go_on)
			return false;
		s->skipping = false;
		buf_reset(&s->item);
	} else if (s->in_items && s->depth == 1) {
		s->in_items = false;
	}
	return true;
}

bool kube_list_split_feed(struct list_split *s, const char *p, size_t n, line_fn *fn, void *arg)
{
	for (; n; p++, n--) {
		char ch = *p;

		if (s->in_string) {
			in_string(s, ch);
			continue;
		}
		switch (ch) {
		case '"':
			s->in_string = true;
			keep(s, ch);
			if (s->depth == 1)
				buf_reset(&s->key);
			break;
		case '{':
		case '[':
			open_bracket(s, ch);
			break;
		case '}':
		case ']':
			if (!close_bracket(s, ch, fn, arg))
				return false;
			break;
		default:
			keep(s, ch);
		}
	}
	return true;
}

char *kube_status_text(int status, const json_t *body)
{
	const char *message = json_str_at(body, "message", "");

	return *message ? xasprintf("HTTP %d: %.1000s", status, message)
			: xasprintf("HTTP %d", status);
}

uint64_t kube_backoff_next(struct backoff *b, const struct kube_times *t)
{
	uint64_t now_ns = now_mono_ns(), base;

	if (b->next_ns == 0 || now_ns - b->last_used_ns > t->backoff_reset_ns)
		b->next_ns = t->backoff_first_ns;
	base = b->next_ns;
	b->next_ns = MIN(base * 2, t->backoff_max_ns);
	b->last_used_ns = now_ns;
	return base + random_below(base + 1);
}
