/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A struct losses: a short list with one row for each pair of events and reason. No thread of its
 * own.
 */
#include "lib/profile/profile.h"

#include <stdlib.h>

#define REASON_REST "other"

static struct lost *find(const struct losses *l, unsigned event_mask, const char *reason)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].event_mask == event_mask && streq(l->items[i].reason, reason))
			return &l->items[i];
	return NULL;
}

/*
 * Returns the row of a kind of loss. The last of LOSSES_MAX rows counts all losses that have no row
 * of their own.
 */
static struct lost *row_of(struct losses *l, unsigned event_mask, const char *reason)
{
	struct lost *row = find(l, event_mask, reason);

	if (row)
		return row;
	if (l->n + 1 >= LOSSES_MAX && !streq(reason, REASON_REST))
		return row_of(l, 0, REASON_REST);
	GROW(l->items, l->n, l->cap);
	row = &l->items[l->n++];
	*row = (struct lost){reason, event_mask, 0};
	return row;
}

void profile_losses_add(struct losses *l, unsigned event_mask, const char *reason, uint64_t n)
{
	if (n)
		row_of(l, event_mask, reason)->n += n;
}

void profile_samples_lost(struct losses *l, unsigned event_mask, const char *reason, uint64_t n)
{
	counter_add(counter("podflame_samples_dropped_total", "reason", reason), n);
	profile_losses_add(l, event_mask, reason, n);
}

void profile_losses_move(struct losses *into, struct losses *from)
{
	for (size_t i = 0; i < from->n; i++)
		profile_losses_add(into, from->items[i].event_mask, from->items[i].reason,
				   from->items[i].n);
	profile_losses_done(from);
}

uint64_t profile_losses_sum(const struct losses *l)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < l->n; i++)
		sum += l->items[i].n;
	return sum;
}

void profile_losses_done(struct losses *l)
{
	free(l->items);
	*l = (struct losses){0};
}
