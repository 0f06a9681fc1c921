/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DWARF: maps whose keys are numbers that the file contains, and a table of strings, so that each
 * string is written to the index only once.
 */
#include "node/parse/dwarf_internal.h"

#include <stdlib.h>

static uint64_t spread(const void *key, size_t n, const void *table)
{
	/* The table's address is the seed, as a file cannot know it. */
	return hash_bytes(key, n, (uintptr_t)table);
}

/* ---- map ---- */

static struct dw_map_slot *find(const struct dw_map *m, uint64_t key)
{
	size_t slot = spread(&key, sizeof(key), m->slots) & (m->cap - 1);

	while (m->slots[slot].value && m->slots[slot].key != key)
		slot = (slot + 1) & (m->cap - 1);
	return &m->slots[slot];
}

static void grow(struct dw_map *m)
{
	struct dw_map_slot *old = m->slots;
	size_t cap = m->cap;

	m->cap = cap ? 2 * cap : 1024;
	m->slots = xcalloc(m->cap, sizeof(*m->slots));
	for (size_t i = 0; i < cap; i++)
		if (old[i].value)
			*find(m, old[i].key) = old[i];
	free(old);
}

uint32_t parse_dw_map_put(struct dw_map *m, uint64_t key, uint32_t value)
{
	struct dw_map_slot *slot;

	if (2 * (m->n + 1) > m->cap)
		grow(m);
	slot = find(m, key);
	if (!slot->value) {
		*slot = (struct dw_map_slot){key, value + 1};
		m->n++;
	}
	return slot->value - 1;
}

void parse_dw_map_done(struct dw_map *m)
{
	free(m->slots);
	*m = (struct dw_map){0};
}

/* ---- strings ---- */

static uint32_t *find_string(const struct dw *d, const char *s, size_t n)
{
	size_t slot = spread(s, n, d->strings) & (d->cap_strings - 1);

	for (;; slot = (slot + 1) & (d->cap_strings - 1)) {
		const char *have = d->b->strings.data + d->strings[slot];

		if (!d->strings[slot] || (strncmp(have, s, n) == 0 && !have[n]))
			return &d->strings[slot];
	}
}

static void grow_strings(struct dw *d)
{
	uint32_t *old = d->strings;
	size_t cap = d->cap_strings;

	d->cap_strings = cap ? 2 * cap : 1024;
	d->strings = xcalloc(d->cap_strings, sizeof(*d->strings));
	for (size_t i = 0; i < cap; i++) {
		const char *s = d->b->strings.data + old[i];

		if (old[i])
			*find_string(d, s, strlen(s)) = old[i];
	}
	free(old);
}

uint32_t parse_dw_string(struct dw *d, const char *s, size_t n)
{
	char cut[INDEX_NAME_MAX];
	uint32_t *slot;

	if (n > sizeof(cut)) { /* cut here, so that the cut form can be looked up */
		memcpy(cut, s, sizeof(cut) - 3);
		memcpy(cut + sizeof(cut) - 3, "...", 3);
		s = cut;
		n = sizeof(cut);
	}
	if (!n || dw_spent(d, n / 64))
		return 0;
	if (2 * (d->n_strings + 1) > d->cap_strings)
		grow_strings(d);
	slot = find_string(d, s, n);
	if (*slot)
		return *slot;
	if (d->b->strings.len + n + 1 > d->string_bytes_max) {
		d->cut = true;
		return 0;
	}
	*slot = parse_strings_put(&d->b->strings, s, n);
	d->n_strings++;
	return *slot;
}
