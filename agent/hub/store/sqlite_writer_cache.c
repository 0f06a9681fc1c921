/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows that the writer stored or used lately, so that it need not search the file for them:
 * hash of the contents (128 bits) -> row id. The seeds are random in each process and never shown,
 * so nobody can choose contents whose hashes are equal. The cache has two generations. If the young
 * one is full, it becomes the old one, and an empty one begins. An entry that is used again moves
 * to the young one.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

#define SEEN_MIN_SLOTS 1024
#define SEEN_MAX_SLOTS (1u << 18) /* 10 MiB per generation, half of the slots in use */

struct seen_key store_seen_key(const struct sqlite_store *s, const void *p, size_t n)
{
	return (struct seen_key){hash_bytes(p, n, s->seen_seeds[0]),
				 hash_bytes(p, n, s->seen_seeds[1])};
}

static struct seen_entry *slot(const struct seen_generation *g, struct seen_key key)
{
	size_t i = key.a & (g->cap - 1);

	while (g->entries[i].id && (g->entries[i].key.a != key.a || g->entries[i].key.b != key.b))
		i = (i + 1) & (g->cap - 1);
	return &g->entries[i];
}

static void grow(struct seen_generation *g)
{
	struct seen_generation to = {.n = g->n, .cap = g->cap ? g->cap * 2 : SEEN_MIN_SLOTS};

	to.entries = xcalloc(to.cap, sizeof(*to.entries));
	for (size_t i = 0; i < g->cap; i++)
		if (g->entries[i].id)
			*slot(&to, g->entries[i].key) = g->entries[i];
	free(g->entries);
	*g = to;
}

struct seen_entry *store_seen_put(struct seen *seen, const struct seen_entry *e)
{
	struct seen_generation *g = &seen->young;
	struct seen_entry *to;

	if (g->n * 2 >= g->cap && g->cap >= SEEN_MAX_SLOTS) {
		free(seen->old.entries);
		seen->old = *g;
		*g = (struct seen_generation){0};
	}
	if (g->n * 2 >= g->cap)
		grow(g);
	to = slot(g, e->key);
	g->n += !to->id;
	*to = *e;
	return to;
}

struct seen_entry *store_seen_get(struct seen *seen, struct seen_key key)
{
	struct seen_entry *e = seen->young.cap ? slot(&seen->young, key) : NULL, copy;

	if (e && e->id)
		return e;
	e = seen->old.cap ? slot(&seen->old, key) : NULL;
	if (!e || !e->id)
		return NULL;
	copy = *e; /* store_seen_put may free it */
	return store_seen_put(seen, &copy);
}

void store_seen_forget(struct sqlite_store *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->seen); i++) {
		free(s->seen[i].young.entries);
		free(s->seen[i].old.entries);
		s->seen[i] = (struct seen){0};
	}
	random_bytes(s->seen_seeds, sizeof(s->seen_seeds));
}
