/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one request, and tables of indexes in it. */
#include "lib/otlp/internal.h"

#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

struct pool_chunk {
	struct pool_chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

void *otlp_pool_alloc(struct pool *p, size_t n)
{
	struct pool_chunk *c = p->chunks;
	size_t need = (n + 15) & ~(size_t)15;
	void *mem;

	if (!c || c->size - c->used < need) {
		size_t size = MAX((size_t)CHUNK_BYTES, need);

		if (need < n || (p->max_bytes && size > p->max_bytes - p->bytes)) {
			p->failed = true;
			return NULL;
		}
		c = xcalloc(1, sizeof(*c) + size);
		c->next = p->chunks;
		c->size = size;
		p->chunks = c;
		p->bytes += size;
	}
	mem = c->bytes + c->used;
	c->used += need;
	return mem;
}

char *otlp_pool_str(struct pool *p, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = otlp_pool_alloc(p, n);

	return copy ? memcpy(copy, s, n) : NULL;
}

static void *allocator_alloc(void *pool, size_t n)
{
	return otlp_pool_alloc(pool, n);
}

static void allocator_free(void *pool, void *p)
{
	(void)pool;
	(void)p;
}

ProtobufCAllocator otlp_pool_allocator(struct pool *p)
{
	return (ProtobufCAllocator){allocator_alloc, allocator_free, p};
}

void otlp_pool_done(struct pool *p)
{
	for (struct pool_chunk *c = p->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	*p = (struct pool){0};
}

void otlp_pool_reset(struct pool *p)
{
	struct pool_chunk *last = p->chunks;

	if (!last)
		return;
	p->chunks = last->next;
	otlp_pool_done(p);
	memset(last->bytes, 0, last->used);
	last->used = 0;
	last->next = NULL;
	p->chunks = last;
	p->bytes = last->size;
}

struct id *otlp_ids_get(struct ids *t, struct pool *pool, const void *key, size_t n)
{
	struct id *found;
	char *copy;

	HASH_FIND(hh, t->head, key, n, found);
	if (found)
		return found;
	found = otlp_pool_alloc(pool, sizeof(*found));
	copy = otlp_pool_alloc(pool, n);
	if (!found || !copy)
		return NULL;
	memcpy(copy, key, n);
	found->index = (int32_t)HASH_COUNT(t->head) + 1;
	HASH_ADD_KEYPTR(hh, t->head, copy, n, found);
	return found;
}

void otlp_ids_done(struct ids *t)
{
	HASH_CLEAR(hh, t->head);
}
