/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a perf map, in the agent. If other code replaces code at the same address, the
 * program only adds a new line to the file. So each function replaces all others in its range.
 * Functions never overlap, and are kept in a tree that compares ranges.
 */
#include "node/runtime/perfmap/perfmap.h"
#include "lib/base/budget.h"

#include <search.h>
#include <stdlib.h>

#define NODE_BYTES 40 /* bytes of the tree for each function */

struct kept {
	uint64_t start, end;
	uint32_t line;
	uint16_t name_n;
	uint8_t kind; /* enum frame_kind */
	char text[];  /* the name, NUL, the file, NUL */
};
struct perf_map {
	void *tree; /* tsearch(3); the ranges are disjoint */
	size_t n;
	struct budget_member bytes;
	uint64_t replaced;
};

static struct budget all_bytes = BUDGET(PERF_MAP_ALL_BYTES);

static int compare(const void *left, const void *right)
{
	const struct kept *a = left, *b = right;

	return a->end <= b->start ? -1 : a->start >= b->end;
}

void runtime_perf_map_refuse(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_perf_map_lines_refused_total", "reason", reason), n);
}

struct perf_map *runtime_perf_map_new(uint64_t charged_ns)
{
	struct perf_map *m = xcalloc(1, sizeof(*m));

	budget_join(&all_bytes, &m->bytes, charged_ns);
	return m;
}

struct perf_map *runtime_perf_map_free(struct perf_map *m)
{
	if (!m)
		return NULL;
	tdestroy(m->tree, free);
	budget_leave(&all_bytes, &m->bytes);
	free(m);
	return NULL;
}

static const char *file_of(const struct kept *k)
{
	return k->text + k->name_n + 1;
}

static size_t cost(const struct kept *k)
{
	return sizeof(*k) + k->name_n + 1 + strlen(file_of(k)) + 1 + NODE_BYTES;
}

static void forget_range(struct perf_map *m, const struct kept *range)
{
	struct kept **node;

	while ((node = tfind(range, &m->tree, compare))) {
		struct kept *k = *node;

		tdelete(k, &m->tree, compare);
		m->n--;
		budget_give_back(&all_bytes, &m->bytes, cost(k));
		m->replaced++;
		free(k);
	}
}

void runtime_perf_maps_refused(struct shares *to)
{
	budget_refused(&all_bytes, to);
}

static bool take_room(struct perf_map *m, size_t bytes)
{
	return m->bytes.n + bytes <= PERF_MAP_LIVE_BYTES &&
	       budget_take(&all_bytes, &m->bytes, bytes);
}

static struct kept *copy_of(const struct perf_function *f)
{
	struct kept *k = xmalloc(sizeof(*k) + f->name_n + 1 + f->file_n + 1);
	char *file = k->text + f->name_n + 1;

	k->start = f->start;
	k->end = f->end;
	k->line = f->line;
	k->kind = (uint8_t)f->kind;
	k->name_n = (uint16_t)f->name_n;
	memcpy(k->text, f->name, f->name_n);
	k->text[f->name_n] = '\0';
	if (f->file_n)
		memcpy(file, f->file, f->file_n);
	file[f->file_n] = '\0';
	return k;
}

void runtime_perf_map_add(struct perf_map *m, const struct perf_function *f)
{
	struct kept *k = copy_of(f);

	forget_range(m, k);
	if (!take_room(m, cost(k))) {
		runtime_perf_map_refuse("limit", 1);
		free(k);
		return;
	}
	tsearch(k, &m->tree, compare);
	m->n++;
}

bool runtime_perf_map_find(const struct perf_map *m, uint64_t address, struct perf_function *ret)
{
	const struct kept key = {.start = address, .end = address + 1};
	struct kept **node = tfind(&key, (void *const *)&m->tree, compare), *k;

	if (!node)
		return false;
	k = *node;
	*ret = (struct perf_function){
		.start = k->start,
		.end = k->end,
		.kind = (enum frame_kind)k->kind,
		.line = k->line,
		.name = k->text,
		.name_n = k->name_n,
		.file = file_of(k),
		.file_n = strlen(file_of(k)),
	};
	return true;
}

size_t runtime_perf_map_n(const struct perf_map *m)
{
	return m->n;
}

uint64_t runtime_perf_map_replaced(const struct perf_map *m)
{
	return m->replaced;
}
