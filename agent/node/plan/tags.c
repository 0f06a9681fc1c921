/* SPDX-License-Identifier: Apache-2.0 */
/* Sorted key/value pairs that own their strings. Pure. */
#include "node/plan/internal.h"

#include <stdlib.h>

static size_t tag_slot(const struct tags *t, const char *key)
{
	size_t i = 0;

	while (i < t->n && strcmp(t->items[i].key, key) < 0)
		i++;
	return i;
}

void plan_tags_set(struct tags *t, const char *key, const char *value)
{
	size_t i = tag_slot(t, key);

	if (!value || !*value)
		return;
	if (i < t->n && streq(t->items[i].key, key)) {
		free((char *)t->items[i].value);
		t->items[i].value = xstrdup(value);
		return;
	}
	GROW(t->items, t->n, t->cap);
	memmove(&t->items[i + 1], &t->items[i], (t->n - i) * sizeof(*t->items));
	t->items[i] = (struct tag){.key = xstrdup(key), .value = xstrdup(value)};
	t->n++;
}

void plan_tags_copy(const struct tags *from, struct tags *to)
{
	for (size_t i = 0; i < from->n; i++)
		plan_tags_set(to, from->items[i].key, from->items[i].value);
}

void plan_tags_done(struct tags *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free((char *)t->items[i].key);
		free((char *)t->items[i].value);
	}
	free(t->items);
	*t = (struct tags){0};
}
