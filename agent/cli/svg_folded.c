/* SPDX-License-Identifier: Apache-2.0 */
/* Draws folded stacks. */
#include "cli/svg.h"

#include "cli/columns.h"
#include "cli/text.h"
#include "lib/profile/profile.h"

#include <stdlib.h>

struct line {
	char *stack; /* "web;[t] worker;main" */
	int64_t value;
};

/*
 * Orders stacks so that all stacks that begin with the same frames lie together: ';' comes before
 * every other character, because "a;x" belongs to "a", and "a b" does not.
 */
static int by_stack(const void *a, const void *b)
{
	const char *x = ((const struct line *)a)->stack, *y = ((const struct line *)b)->stack;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	if (!*x || !*y)
		return (*x != 0) - (*y != 0);
	return *x == ';' ? -1 : *y == ';' ? 1 : (unsigned char)*x - (unsigned char)*y;
}

/* Splits the text into lines, in place. The caller frees *ret. */
static size_t read_lines(char *folded, struct line **ret)
{
	struct line *lines = NULL;
	size_t n = 0, cap = 0;

	for (char *end; (end = strchr(folded, '\n')); folded = end + 1) {
		char *space;
		uint64_t value;

		*end = '\0';
		space = strrchr(folded, ' ');
		if (!space || str_to_u64(space + 1, INT64_MAX, &value))
			continue;
		*space = '\0';
		GROW(lines, n, cap);
		lines[n++] = (struct line){folded, (int64_t)value};
	}
	if (n)
		qsort(lines, n, sizeof(*lines), by_stack);
	*ret = lines;
	return n;
}

/* The kind of a frame, as far as its text says it. Java, Python and Lua have no prefix. */
static const char *kind_of(const char *frame)
{
	const char *name, *kind = profile_kind_of_text(frame, &name);

	return kind				  ? kind
	       : str_has_prefix(frame, "[wait: ") ? "wait"
	       : *frame == '['			  ? "unnamed"
						  : "app";
}

/* The frames of a tree that is made of one stack after another. */
struct making {
	struct svg_frame *frames;
	size_t n, cap;
	size_t path[COLUMNS_MAX_DEPTH]; /* the frames of the last stack, by their depth */
	uint32_t depth;			/* of its leaf */
};

static size_t add_frame(struct making *m, uint32_t depth, const char *name, const char *kind)
{
	GROW(m->frames, m->n, m->cap);
	m->frames[m->n] = (struct svg_frame){.name = name, .kind = kind, .depth = depth};
	m->path[depth] = m->n;
	return m->n++;
}

/* Adds a stack; its frames are those of the last stack as long as they have the same names. */
static void add_stack(struct making *m, struct line *line)
{
	uint32_t depth = 0;
	char *rest = line->stack, *name;
	bool same = true;

	m->frames[0].value = cli_add(m->frames[0].value, line->value);
	while (depth + 1 < COLUMNS_MAX_DEPTH && (name = strsep(&rest, ";"))) {
		depth++;
		same = same && depth <= m->depth && streq(m->frames[m->path[depth]].name, name);
		if (!same)
			add_frame(m, depth, name, depth == 1 ? "process" : kind_of(name));
		m->frames[m->path[depth]].value =
			cli_add(m->frames[m->path[depth]].value, line->value);
	}
	m->depth = depth;
}

void cli_svg_write_folded(char *folded, const char *title, const char *unit, struct buf *out)
{
	struct making *m = xcalloc(1, sizeof(*m));
	_cleanup_free_ struct line *lines = NULL;
	size_t n = read_lines(folded, &lines);
	struct svg_picture p = {.title = title, .unit = unit};

	add_frame(m, 0, "all", "root");
	for (size_t i = 0; i < n; i++)
		add_stack(m, &lines[i]);
	p.frames = m->frames;
	p.n = n ? m->n : 0;
	cli_svg_write(&p, out);
	free(m->frames);
	free(m);
}
