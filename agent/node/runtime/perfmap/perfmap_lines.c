/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a perf map. If other code replaces code at the same address, the program only adds a
 * new line to the file. So each line replaces all functions in its range. Functions never overlap,
 * and are kept in a tree that compares ranges.
 */
#include "node/runtime/perfmap/perfmap.h"

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#define NODE_BYTES   40		  /* bytes of the tree for each function */
#define ADDRESS_MAX  (1ull << 56) /* a line with a higher address is refused */
#define FUNCTION_MAX (1ull << 30) /* bytes; a larger range is not a function */

struct line_function {
	uint64_t start, end;
	char name[];
};
struct perf_map {
	void *tree; /* tsearch(3); the ranges are disjoint */
	size_t n, bytes;
	uint64_t replaced;
	/* the beginning of a line whose end has not been read yet */
	char line[PERF_MAP_LINE_MAX + 1];
	size_t line_n;
};

static _Atomic size_t all_bytes, n_maps;

static int compare(const void *left, const void *right)
{
	const struct line_function *a = left, *b = right;

	return a->end <= b->start ? -1 : a->start >= b->end;
}

static void refused(const char *reason)
{
	counter_add(counter("podflame_perf_map_lines_refused_total", "reason", reason), 1);
}

struct perf_map *runtime_perf_map_new(void)
{
	atomic_fetch_add(&n_maps, 1);
	return xcalloc(1, sizeof(struct perf_map));
}

struct perf_map *runtime_perf_map_free(struct perf_map *m)
{
	if (!m)
		return NULL;
	tdestroy(m->tree, free);
	atomic_fetch_sub(&all_bytes, m->bytes);
	atomic_fetch_sub(&n_maps, 1);
	free(m);
	return NULL;
}

static size_t cost(const struct line_function *f)
{
	return sizeof(*f) + strlen(f->name) + 1 + NODE_BYTES;
}

static void forget_range(struct perf_map *m, const struct line_function *range)
{
	struct line_function **node;

	while ((node = tfind(range, &m->tree, compare))) {
		struct line_function *f = *node;

		tdelete(f, &m->tree, compare);
		m->n--;
		m->bytes -= cost(f);
		atomic_fetch_sub(&all_bytes, cost(f));
		m->replaced++;
		free(f);
	}
}

/*
 * Returns whether the map may grow by that many bytes. Each map has its share of half of the limit,
 * however large the other maps are.
 */
static bool has_room(const struct perf_map *m, size_t bytes)
{
	size_t share = PERF_MAP_ALL_BYTES / 2 / atomic_load(&n_maps);

	if (m->bytes + bytes > PERF_MAP_LIVE_BYTES)
		return false;
	return atomic_load(&all_bytes) + bytes <= PERF_MAP_ALL_BYTES || m->bytes + bytes <= share;
}

static void remember(struct perf_map *m, uint64_t start, uint64_t end, const char *name)
{
	size_t n = strlen(name) + 1;
	struct line_function *f = xmalloc(sizeof(*f) + n);

	f->start = start;
	f->end = end;
	memcpy(f->name, name, n);
	forget_range(m, f);
	if (!has_room(m, cost(f))) {
		refused("limit");
		free(f);
		return;
	}
	tsearch(f, &m->tree, compare);
	m->n++;
	m->bytes += cost(f);
	atomic_fetch_add(&all_bytes, cost(f));
}

/* Reads a hexadecimal number, with or without 0x (HotSpot, V8), and a space. */
static bool take_number(const char **p, uint64_t *ret)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *s = *p;
	uint64_t value = 0;
	size_t n;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
		s += 2;
	n = strspn(s, digits);
	if (n == 0 || n > 16 || s[n] != ' ')
		return false;
	for (size_t i = 0; i < n; i++) {
		size_t digit = strchr(digits, s[i]) - digits;

		value = value << 4 | (digit < 16 ? digit : digit - 6);
	}
	*ret = value;
	*p = s + n + strspn(s + n, " ");
	return true;
}

static void take_line(struct perf_map *m)
{
	const char *p = m->line;
	uint64_t start, size;

	m->line[m->line_n] = '\0';
	if (m->line_n && m->line[m->line_n - 1] == '\r')
		m->line[m->line_n - 1] = '\0';
	m->line_n = 0;
	if (!take_number(&p, &start) || !take_number(&p, &size) || !*p || !size ||
	    start >= ADDRESS_MAX || size > FUNCTION_MAX)
		refused("malformed");
	else
		remember(m, start, start + size, p);
}

void runtime_perf_map_add(struct perf_map *m, const char *bytes, size_t n)
{
	const char *end = bytes + n;

	while (bytes < end) {
		const char *newline = memchr(bytes, '\n', end - bytes);
		const char *stop = newline ? newline : end;
		size_t room = PERF_MAP_LINE_MAX - m->line_n;

		memcpy(m->line + m->line_n, bytes, MIN(room, (size_t)(stop - bytes)));
		m->line_n += MIN(room, (size_t)(stop - bytes));
		if (newline)
			take_line(m);
		bytes = stop + (newline != NULL);
	}
}

const char *runtime_perf_map_find(const struct perf_map *m, uint64_t address)
{
	const struct line_function key = {.start = address, .end = address + 1};
	struct line_function **node = tfind(&key, (void *const *)&m->tree, compare);

	return node ? (*node)->name : NULL;
}

size_t runtime_perf_map_n(const struct perf_map *m)
{
	return m->n;
}

uint64_t runtime_perf_map_replaced(const struct perf_map *m)
{
	return m->replaced;
}
