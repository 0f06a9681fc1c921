/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyroscope/stacks: the nodes of a tree in the forms of Pyroscope's answers: the levels of a flame
 * graph, the bytes of a tree, a call graph in DOT. No I/O.
 */
#pragma once

#include "hub/query/query.h"

struct pyroscope_writer;

/* Multiplies the values of all nodes: microseconds become nanoseconds. They stop at INT64_MAX. */
void pyroscope_scale_nodes(struct query_nodes *n, unsigned factor);

/* ---- levels.c ---- */

#define PYROSCOPE_BAR	   4 /* numbers: offset, total, self, name */
#define PYROSCOPE_DIFF_BAR 7 /* numbers: offset, total, self of the left; of the right; name */
/*
 * A flame graph: a row of bars for each depth, the root first. The offset of a bar is the distance
 * from the end of the one before it in its row (of the first: from 0). A bar stands over its
 * parent, behind the parent's own value.
 */
struct pyroscope_row {
	int64_t *values;
	size_t n, cap;
};
struct pyroscope_flame {
	const char **names; /* "total" first; those behind it are borrowed from the tree */
	size_t n_names;
	struct pyroscope_row *rows;
	size_t n_rows;
	bool diff; /* the selection before is the left one */
	int64_t total, max_self, left_ticks, right_ticks; /* total: of both */
	size_t n_counted; /* bytes that the budget has given */
};
/* -E2BIG: the budget has no room; the caller frees *ret all the same. */
int pyroscope_flame_of(const struct query_nodes *n, bool diff, struct buf_budget *b,
		       struct pyroscope_flame *ret);
void pyroscope_flame_done(struct pyroscope_flame *f);
/* As the field flamegraph of an answer. */
void pyroscope_put_flame(struct pyroscope_writer *w, const struct pyroscope_flame *f);
/*
 * As the JSON of /pyroscope/render, without the brace that closes it: {"version":1,
 * "flamebearer":{...},"metadata":{...}, of two selections also "leftTicks" and "rightTicks".
 */
struct pyroscope_render {
	const char *name, *units; /* of the values */
	uint32_t sample_rate;	  /* values of a second */
};
void pyroscope_put_flamebearer(struct buf *b, const struct pyroscope_flame *f,
			       const struct pyroscope_render *r);

/* ---- other forms ---- */

/*
 * Pyroscope's bytes of a tree (tree.c): of each node the length of its name, the name, its own
 * value, and how many children follow, depth first. Numbers are varints; the root has no name. An
 * empty tree is no bytes.
 */
void pyroscope_put_tree(struct buf *b, const struct query_nodes *n);
/*
 * A call graph in DOT (dot.c): the max_nodes functions with the greatest totals, and which of them
 * calls which. unit: of the values. An empty one is no text.
 */
int pyroscope_put_dot(struct buf *b, const struct query_nodes *n, size_t max_nodes,
		      const char *unit);
