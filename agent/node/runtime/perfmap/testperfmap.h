/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and fuzzers only: makes a map of text in this process, without a child. */
#pragma once

#include "node/runtime/perfmap/perfmap.h"

#include <stdlib.h>

static inline void testmap_found(void *arg, const struct perf_function *f)
{
	runtime_perf_map_add(arg, f);
}

/* Prepares to add lines to m. */
static inline struct perf_text *testmap_text(struct perf_map *m, enum perf_map_writer writer)
{
	struct perf_text *t = xcalloc(1, sizeof(*t));

	t->writer = writer;
	t->found = testmap_found;
	t->arg = m;
	return t;
}

/* Adds whole lines to m. Returns how many were malformed. */
static inline uint64_t testmap_add(struct perf_map *m, const char *text)
{
	_cleanup_free_ struct perf_text *t = testmap_text(m, PERF_MAP_ANY);

	runtime_perf_text_add(t, text, strlen(text));
	return t->n_malformed;
}

/* Returns the name of the function at an address; valid until the next add. NULL: there is none. */
static inline const char *testmap_find(const struct perf_map *m, uint64_t address)
{
	struct perf_function f;

	return runtime_perf_map_find(m, address, &f) ? f.name : NULL;
}
