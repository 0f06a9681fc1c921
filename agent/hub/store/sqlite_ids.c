/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from row ids to items, and a set of row ids. SQLite gives each new row an id above the
 * greatest one, so after years the ids are large, even if few rows are left. The memory of a set
 * depends on the number of ids, not on how large they are.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>
#include <uthash.h>

#define PAGE_IDS 32768

/* ---- map: id -> item ---- */

static struct id_slot *slot(const struct id_map *m, int64_t id)
{
	size_t i = (uint64_t)id * 0x9e3779b97f4a7c15ULL >> 20 & (m->cap - 1);

	while (m->slots[i].id && m->slots[i].id != id)
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

void *store_id_map_get(const struct id_map *m, int64_t id)
{
	return m->cap ? slot(m, id)->item : NULL;
}

static void grow(struct id_map *m)
{
	struct id_map to = {.n = m->n, .cap = m->cap ? m->cap * 2 : 1024};

	to.slots = xcalloc(to.cap, sizeof(*to.slots));
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].id)
			*slot(&to, m->slots[i].id) = m->slots[i];
	free(m->slots);
	*m = to;
}

void store_id_map_put(struct id_map *m, int64_t id, void *item)
{
	struct id_slot *s;

	if (m->n * 2 >= m->cap)
		grow(m);
	s = slot(m, id);
	m->n += !s->id;
	*s = (struct id_slot){id, item};
}

void store_id_map_free(struct id_map *m)
{
	for (size_t i = 0; i < m->cap; i++)
		free(m->slots[i].item);
	free(m->slots);
	*m = (struct id_map){0};
}

/* ---- set: one bit per id, in pages ---- */

struct id_page {
	int64_t nr;
	UT_hash_handle hh;
	uint8_t bits[PAGE_IDS / 8];
};

static struct id_page *page(struct id_set *s, int64_t nr)
{
	struct id_page *p = s->last;

	if (p && p->nr == nr)
		return p;
	HASH_FIND(hh, s->pages, &nr, sizeof(nr), p);
	if (p)
		s->last = p;
	return p;
}

void store_id_set_add(struct id_set *s, int64_t id)
{
	struct id_page *p = id > 0 ? page(s, id / PAGE_IDS) : NULL;

	if (id <= 0)
		return;
	if (!p) {
		p = s->last = xcalloc(1, sizeof(*p));
		p->nr = id / PAGE_IDS;
		HASH_ADD(hh, s->pages, nr, sizeof(p->nr), p);
	}
	p->bits[id % PAGE_IDS / 8] |= (uint8_t)(1u << (id % 8));
}

bool store_id_set_has(struct id_set *s, int64_t id)
{
	const struct id_page *p = id > 0 ? page(s, id / PAGE_IDS) : NULL;

	return p && p->bits[id % PAGE_IDS / 8] & (1u << (id % 8));
}

void store_id_set_done(struct id_set *s)
{
	struct id_page *p, *next;

	HASH_ITER (hh, s->pages, p, next) {
		HASH_DEL(s->pages, p);
		free(p);
	}
	s->last = NULL;
}
