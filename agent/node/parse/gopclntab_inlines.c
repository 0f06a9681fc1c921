/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads inlined functions of Go. Each function has a table "inlined call by pc" and the calls
 * themselves. A call names the function and a place in the calling code: the call that is inlined
 * at that place is the parent. This is the same in Go 1.16 to 1.27. Older fields (parent, file,
 * line of the call) are not needed.
 */
#include "node/parse/gopclntab.h"

#include <stdlib.h>

#define CALLS_MAX (1u << 16) /* inlined calls of one function; the runtime's limit is 1 << 20 */
#define NO_NODE	  UINT32_MAX

struct pc_value {
	uint64_t end;
	int32_t value;
};
struct pc_values {
	struct pc_value *items;
	size_t n, cap;
};

struct go_inlines {
	struct go_table *t;
	const struct go_function *f;
	struct span calls;
	struct pc_values indexes, files; /* tables of f, decoded for look-ups */
	uint32_t *nodes;		 /* nodes of f's calls; NO_NODE: not made yet */
	size_t n_nodes, cap_nodes;
};

struct inline_call {
	const char *name;
	uint32_t parent_pc, start_line;
};

struct go_inlines *parse_go_inlines_new(struct go_table *t)
{
	struct go_inlines *x = xcalloc(1, sizeof(*x));

	x->t = t;
	return x;
}

struct go_inlines *parse_go_inlines_free(struct go_inlines *x)
{
	free(x->indexes.items);
	free(x->files.items);
	free(x->nodes);
	free(x);
	return NULL;
}

/* ---- one call ---- */

static bool read_call(const struct go_table *t, const struct go_function *f, struct span calls,
		      uint32_t index, struct inline_call *ret)
{
	bool lines = t->layout == GO_1_20;
	uint64_t bytes = lines ? 16 : 20, at = bytes * index;
	uint64_t name = at + (lines ? 4 : 12);
	struct inline_call c;

	if (at + bytes > calls.n)
		return false;
	c.name = parse_go_string(t->names, parse_go_u32(calls, name));
	c.parent_pc = parse_go_u32(calls, name + 4);
	c.start_line = lines ? parse_go_u32(calls, name + 8) : 0;
	if (!c.name || c.parent_pc >= f->end - f->entry)
		return false;
	*ret = c;
	return true;
}

static struct span calls_from(struct span s, uint64_t offset)
{
	return offset < s.n ? (struct span){s.data + offset, s.n - offset} : (struct span){0};
}

bool parse_go_inlines_valid(const struct go_table *t, const struct go_function *f, struct span s)
{
	struct span calls = calls_from(s, f->inline_calls);
	struct go_values v = parse_go_values(t, f->inline_index);

	while (parse_go_values_next(&v) && v.start < f->end - f->entry) {
		struct inline_call c;

		if (v.value < 0)
			continue;
		if (v.value >= (int32_t)CALLS_MAX || !read_call(t, f, calls, v.value, &c))
			return false;
		/* The offset must be that of a whole name, not one inside a name. */
		if (c.name != (const char *)t->names.data && c.name[-1] != '\0')
			return false;
	}
	return true;
}

static struct span find_calls(const struct go_table *t, const struct go_function *f)
{
	struct span s = {0};

	if (t->layout != GO_1_16)
		return calls_from(t->inline_calls, f->inline_calls);
	s.data = parse_build_bytes(t->b, f->inline_calls, &s.n);
	return s.data ? s : (struct span){0};
}

/* ---- the tables of one function ---- */

static void decode(const struct go_table *t, uint32_t offset, uint64_t size, struct pc_values *ret)
{
	struct go_values v = parse_go_values(t, offset);

	ret->n = 0;
	while (parse_go_values_next(&v) && v.start < size) {
		GROW(ret->items, ret->n, ret->cap);
		ret->items[ret->n++] = (struct pc_value){v.end, v.value};
	}
}

static int32_t value_at(const struct pc_values *s, uint64_t pc)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->items[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->n ? s->items[low].value : -1;
}

static bool make_room(struct go_inlines *x, uint32_t index)
{
	if (index >= CALLS_MAX)
		return false;
	if (index >= x->cap_nodes) {
		x->cap_nodes = MAX((size_t)index + 1, 2 * x->cap_nodes);
		x->nodes = xrealloc(x->nodes, x->cap_nodes * sizeof(*x->nodes));
	}
	while (x->n_nodes <= index)
		x->nodes[x->n_nodes++] = NO_NODE;
	return true;
}

struct chain {
	struct inline_call calls[ELF_INLINES_MAX];
	uint32_t index[ELF_INLINES_MAX];
	uint64_t pc[ELF_INLINES_MAX]; /* an address in the body of the inlined call */
	size_t n;
};

static bool in_chain(const struct chain *c, uint32_t index)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->index[i] == index)
			return true;
	return false;
}

/*
 * Collects the calls around the code at pc, innermost first. It stops at a call that already has a
 * node, and sets *ret_parent to that node. If the compiler has left no instruction of the caller,
 * the call's parent_pc is 0. The code at 0 may belong to a call that was collected already (package
 * init functions). Then the parent is the function itself.
 */
static bool collect(struct go_inlines *x, uint64_t pc, struct chain *c, uint32_t *ret_parent)
{
	int32_t index;

	c->n = 0;
	while ((index = value_at(&x->indexes, pc)) >= 0 && !in_chain(c, index)) {
		if (!make_room(x, index) || c->n == ELF_INLINES_MAX)
			return false;
		if (x->nodes[index] != NO_NODE) {
			*ret_parent = x->nodes[index];
			return true;
		}
		if (!read_call(x->t, x->f, x->calls, index, &c->calls[c->n]))
			return false;
		c->index[c->n] = index;
		c->pc[c->n] = pc;
		pc = c->calls[c->n++].parent_pc;
	}
	*ret_parent = UINT32_MAX;
	return true;
}

/*
 * Returns the node of the function that is inlined at pc. NO_NODE: the table is damaged, or there
 * are too many nodes.
 */
static uint32_t node_at(struct go_inlines *x, uint64_t pc)
{
	struct elf_build *b = x->t->b;
	struct chain c;
	uint32_t node;

	if (!collect(x, pc, &c, &node)) {
		b->header.flags |= ELF_INDEX_DWARF_CUT;
		return NO_NODE;
	}
	while (c.n-- > 0) {
		const char *file = parse_go_file(x->t, x->f, value_at(&x->files, c.pc[c.n]));

		node = parse_inlines_node(b->inlines, parse_go_intern(x->t, c.calls[c.n].name),
					  parse_go_intern(x->t, file), c.calls[c.n].start_line,
					  node);
		if (node == UINT32_MAX)
			return NO_NODE;
		x->nodes[c.index[c.n]] = node;
	}
	return node;
}

void parse_go_inlines_add(struct go_inlines *x, const struct go_function *f)
{
	const struct go_table *t = x->t;
	uint64_t size = f->end - f->entry, start = 0;

	if (!f->has_inline_calls || !f->inline_index)
		return;
	x->f = f;
	x->calls = find_calls(t, f);
	x->n_nodes = 0;
	if (!x->calls.data) {
		t->b->header.flags |= ELF_INDEX_DWARF_CUT;
		return;
	}
	decode(t, f->inline_index, size, &x->indexes);
	decode(t, f->file, size, &x->files);
	for (size_t i = 0; i < x->indexes.n; i++) {
		uint64_t end = MIN(x->indexes.items[i].end, size);
		uint32_t node;

		if (x->indexes.items[i].value >= 0) {
			node = node_at(x, start);
			if (node != NO_NODE)
				parse_inlines_range(t->b->inlines, f->entry + start, f->entry + end,
						    node);
		}
		start = end;
	}
}
