/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inlined ranges nest, overlap and come in any order. This file makes them disjoint and sorted by
 * address, each with its innermost node. So a look-up is one binary search. It sweeps over the
 * starts with a heap of the open ranges, which takes n log n whatever the file contains.
 */
#include "node/parse/build.h"

#include <stdlib.h>

/* An inlining takes about 48 bytes of the index and a file's index has 64 MiB. */
#define NODES_MAX  (1u << 20) /* inlinings of one file; if there are more, the index is cut */
#define RANGES_MAX (2u << 20) /* ranges of inlinings of a file; made disjoint, n become < 2n */
#define NONE	   UINT32_MAX

struct inline_node {
	uint32_t name, file, line;
	uint32_t parent; /* NONE: the symbol itself */
	uint32_t depth;	 /* how many nodes are around this one */
	uint32_t number; /* number in the index; NONE: no range needs it */
};

struct inlined {
	uint64_t start, end;
	uint32_t node, depth;
};

struct inlines {
	struct inline_node *nodes;
	struct inlined *ranges;
	size_t n_nodes, cap_nodes, n_ranges, cap_ranges;
	bool cut;
};

struct inlines *parse_inlines_new(void)
{
	return xcalloc(1, sizeof(struct inlines));
}

struct inlines *parse_inlines_free(struct inlines *x)
{
	if (x) {
		free(x->nodes);
		free(x->ranges);
	}
	free(x);
	return NULL;
}

uint32_t parse_inlines_node(struct inlines *x, uint32_t name, uint32_t file, uint32_t line,
			    uint32_t parent)
{
	if (x->n_nodes == NODES_MAX) {
		x->cut = true;
		return NONE;
	}
	GROW(x->nodes, x->n_nodes, x->cap_nodes);
	x->nodes[x->n_nodes] = (struct inline_node){
		.name = name,
		.file = file,
		.line = line,
		.parent = parent < x->n_nodes ? parent : NONE,
	};
	return x->n_nodes++;
}

void parse_inlines_name(struct inlines *x, uint32_t node, uint32_t name, uint32_t file,
			uint32_t line)
{
	if (node >= x->n_nodes)
		return;
	x->nodes[node].name = name;
	x->nodes[node].file = file;
	x->nodes[node].line = line;
}

void parse_inlines_range(struct inlines *x, uint64_t start, uint64_t end, uint32_t node)
{
	if (node >= x->n_nodes || start >= end)
		return;
	if (x->n_ranges == RANGES_MAX) {
		x->cut = true;
		return;
	}
	GROW(x->ranges, x->n_ranges, x->cap_ranges);
	x->ranges[x->n_ranges++] = (struct inlined){.start = start, .end = end, .node = node};
}

bool parse_inlines_cut(const struct inlines *x)
{
	return x->cut;
}

/* ---- finish ---- */

/* Returns the node, or the node around it if it has no name. */
static uint32_t named(const struct inlines *x, uint32_t node)
{
	/* A nameless parent was replaced before, because parents come first. */
	return node == NONE || x->nodes[node].name ? node : x->nodes[node].parent;
}

static void leave_nameless_out(struct inlines *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->n_nodes; i++) {
		struct inline_node *node = &x->nodes[i];

		node->parent = named(x, node->parent);
		node->depth = node->parent == NONE ? 0 : x->nodes[node->parent].depth + 1;
	}
	for (size_t i = 0; i < x->n_ranges; i++) {
		struct inlined r = x->ranges[i];

		r.node = named(x, r.node);
		if (r.node == NONE)
			continue;
		r.depth = x->nodes[r.node].depth;
		x->cut = x->cut || r.depth >= ELF_INLINES_MAX; /* deeper than a look-up's result */
		x->ranges[n++] = r;
	}
	x->n_ranges = n;
}

static int compare_starts(const void *left, const void *right)
{
	const struct inlined *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	return a->end < b->end ? -1 : a->end > b->end;
}

/*
 * Returns whether a counts as inside b: whether a's node is deeper. If both are equally deep
 * (ranges that overlap but do not nest), the range that starts later is inside. If they also start
 * at the same address, the range with the lower node number is inside.
 */
static bool is_inside(const struct inlined *a, const struct inlined *b)
{
	if (a->depth != b->depth)
		return a->depth > b->depth;
	if (a->start != b->start)
		return a->start > b->start;
	return a->node < b->node;
}

/*
 * The open ranges, the innermost first. A range that has ended is removed when it comes to the top.
 */
struct heap {
	const struct inlined **items;
	size_t n;
};

static void heap_push(struct heap *h, const struct inlined *r)
{
	size_t i = h->n++;

	while (i && is_inside(r, h->items[(i - 1) / 2])) {
		h->items[i] = h->items[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->items[i] = r;
}

static void heap_pop(struct heap *h)
{
	const struct inlined *last = h->items[--h->n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->n) {
		if (child + 1 < h->n && is_inside(h->items[child + 1], h->items[child]))
			child++;
		if (!is_inside(h->items[child], last))
			break;
		h->items[i] = h->items[child];
		i = child;
	}
	h->items[i] = last;
}

static void emit(struct flat_inlines *flat, size_t *cap, uint64_t start, uint64_t end,
		 uint32_t node)
{
	struct index_inline_range *last = flat->n_ranges ? &flat->ranges[flat->n_ranges - 1] : NULL;

	if (last && last->node == node && last->address + last->size == start &&
	    end - last->address <= UINT32_MAX) {
		last->size = end - last->address;
		return;
	}
	GROW(flat->ranges, flat->n_ranges, *cap);
	flat->ranges[flat->n_ranges++] = (struct index_inline_range){
		.address = start,
		.size = MIN(end - start, (uint64_t)UINT32_MAX),
		.node = node,
	};
}

static void sweep(struct inlines *x, struct flat_inlines *flat)
{
	struct heap h = {.items = xmalloc(x->n_ranges * sizeof(*h.items))};
	size_t next = 0, cap = 0;
	uint64_t place = 0;

	for (;;) {
		uint64_t end;

		while (h.n && h.items[0]->end <= place)
			heap_pop(&h);
		if (!h.n) {
			if (next == x->n_ranges)
				break;
			place = x->ranges[next].start;
		}
		while (next < x->n_ranges && x->ranges[next].start == place)
			heap_push(&h, &x->ranges[next++]);
		end = h.items[0]->end;
		if (next < x->n_ranges)
			end = MIN(end, x->ranges[next].start);
		emit(flat, &cap, place, end, h.items[0]->node);
		place = end;
	}
	free(h.items);
}

/*
 * Numbers the nodes that a range or an inner node needs. The nodes keep their order, so parents
 * stay first.
 */
static void number_nodes(struct inlines *x, struct flat_inlines *flat)
{
	for (size_t i = 0; i < x->n_nodes; i++)
		x->nodes[i].number = NONE;
	for (size_t i = 0; i < flat->n_ranges; i++)
		x->nodes[flat->ranges[i].node].number = 0;
	for (size_t i = x->n_nodes; i-- > 0;)
		if (x->nodes[i].number != NONE && x->nodes[i].parent != NONE)
			x->nodes[x->nodes[i].parent].number = 0;
	flat->nodes = xmalloc(x->n_nodes * sizeof(*flat->nodes));
	for (size_t i = 0; i < x->n_nodes; i++) {
		struct inline_node *node = &x->nodes[i];

		if (node->number == NONE)
			continue;
		node->number = flat->n_nodes;
		flat->nodes[flat->n_nodes++] = (struct index_inline_node){
			.name = node->name,
			.file = node->file,
			.line = node->line,
			.parent = node->parent == NONE ? 0 : x->nodes[node->parent].number + 1,
		};
	}
	for (size_t i = 0; i < flat->n_ranges; i++)
		flat->ranges[i].node = x->nodes[flat->ranges[i].node].number;
}

enum parse_reason parse_inlines_finish(struct inlines *x, struct flat_inlines *ret)
{
	struct flat_inlines flat = {0};

	leave_nameless_out(x);
	if (x->n_ranges) {
		qsort(x->ranges, x->n_ranges, sizeof(*x->ranges), compare_starts);
		sweep(x, &flat);
		number_nodes(x, &flat);
	}
	*ret = flat;
	return PARSE_OK;
}
