/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of a file must know, as texts: a file has no summary, as answers in JSON have. */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <stdlib.h>

struct notes {
	char **items;
	size_t n, cap;
};

/* Takes ownership of the text. NULL and "": nothing is added. */
static void add(struct notes *l, char *text)
{
	if (!text || !*text) {
		free(text);
		return;
	}
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = text;
}

static void add_loss(struct notes *l, const struct store_loss *loss)
{
	struct buf b = {0};

	buf_printf(&b, "lost: %s", loss->reason);
	if (loss->n_samples)
		buf_printf(&b, ", %" PRIu64 " samples", loss->n_samples);
	if (loss->time_ns)
		buf_printf(&b, ", %.1f s", (double)loss->time_ns / (double)NSEC_PER_SEC);
	if (loss->of_node)
		buf_puts(&b, ", of some process on the nodes of the selection");
	add(l, buf_steal(&b));
}

/* Adds what the values are not: exact, or complete. */
static void add_limits(struct notes *l, const struct tracing_request *r,
		       const struct store_summary *s)
{
	const char *unit = profile_event_info(r->selection->event)->unit;

	if (s->estimate_ppm)
		add(l, xasprintf("estimated from %.3g %% of what happened; one standard error of "
				 "the sum is %" PRIu64 " %s",
				 s->estimate_ppm / 1e4, s->estimate_error, unit));
	if (s->truncated)
		add(l, xasprintf("too many stacks: " STORE_OTHERS " is the sum of the smallest, "
				 "and each other one may lack up to %" PRIu64 " %s",
				 s->short_by, unit));
	if (s->throttled_us)
		add(l, xasprintf("throttled: CPU limits held the containers back for %.3f s, which "
				 "no stack shows",
				 (double)s->throttled_us / USEC_PER_SEC));
}

size_t query_file_notes(const struct tracing_request *r, const struct store_summary *s, char ***ret)
{
	char own[REPLY_NOTE_BYTES];
	struct notes l = {0};

	for (size_t i = 0; i < s->n_losses; i++)
		add_loss(&l, &s->losses[i]);
	add_limits(&l, r, s);
	for (size_t i = 0; i < r->n_notes; i++)
		add(&l, xstrdup(r->notes[i]));
	query_reply_note(r, s, own);
	add(&l, xstrdup(own));
	add(&l, query_deleted_note(r, s));
	add(&l, r->scope_note ? xstrdup(r->scope_note) : NULL);
	*ret = l.items;
	return l.n;
}
