/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sources of rows for generated code, and what all of them need. See generated.h. */
#include "node/runtime/generated/generated.h"

static const struct generated_source *const sources[] = {&runtime_gdb_jit, &runtime_libgcc};

static const char *const words[_GENERATED_LACKS] = {
#define X(name, word) [GENERATED_##name] = word,
	GENERATED_LACKS(X)
#undef X
};

bool runtime_generated_is_mark(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		if (runtime_is_mark(sources[i]->marks, name))
			return true;
	return false;
}

size_t runtime_generated_marks(const char **ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		for (const char *const *m = sources[i]->marks; *m && n < max; m++)
			ret[n++] = *m;
	return n;
}

void runtime_generated_count(const struct generated_facts *f)
{
	for (unsigned i = 0; i < _GENERATED_LACKS; i++)
		if (f->lacks[i])
			counter_add(counter("podflame_generated_frames_left_out_total", "reason",
					    words[i]),
				    f->lacks[i]);
}

void runtime_generated_add(struct generated *g, const struct parse_generated_frames *f)
{
	int r = parse_generated_add(g->rows, f);

	if (r < 0)
		runtime_generated_left_out(g, r == -E2BIG ? -ENOSPC : r);
}

static enum generated_lack lack_of(int error)
{
	switch (error) {
	case -ENOSPC:
		return GENERATED_TOO_MANY;
	case -E2BIG:
		return GENERATED_TOO_LARGE;
	case -EBADMSG:
		return GENERATED_DAMAGED;
	case -ENOEXEC:
		return GENERATED_MOVABLE;
	default:
		return GENERATED_CHANGED;
	}
}

void runtime_generated_left_out(struct generated *g, int error)
{
	g->facts.lacks[lack_of(error)]++;
}

/* Returns whether the process has generated code, and tells g->rows where. */
static bool find_memory(struct generated *g)
{
	const struct mappings *maps = g->look->maps;
	bool found = false;

	for (size_t i = 0; i < maps->n; i++) {
		const struct mapping *m = &maps->items[i];

		if (!runtime_mapping_is_generated(m, g->look->indexes[i]))
			continue;
		parse_generated_memory(g->rows, m->start, m->end);
		found = true;
	}
	return found;
}

void runtime_generated_read(const struct runtime_look *look, struct generated_facts *ret,
			    struct buf *out)
{
	struct generated g = {.look = look, .rows = parse_generated_new()};
	int r;

	buf_init(out, GENERATED_INDEX_MAX);
	if (find_memory(&g))
		for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
			sources[i]->read(&g);
	r = parse_generated_write(g.rows, out);
	if (r < 0)
		runtime_generated_left_out(&g, r);
	if (r == -E2BIG)
		buf_reset(out);
	*ret = g.facts;
	parse_generated_free(g.rows);
}
