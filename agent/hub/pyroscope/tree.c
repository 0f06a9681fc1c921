/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a tree as Pyroscope's bytes of a tree: see stacks.h. */
#include "hub/pyroscope/stacks.h"

static void put_varint(struct buf *b, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_putc(b, (char)(v | 0x80));
	buf_putc(b, (char)v);
}

void pyroscope_put_tree(struct buf *b, const struct query_nodes *n)
{
	for (size_t i = 0; i < n->n && n->n > 1; i++) {
		const struct query_node *node = &n->items[i];
		const char *name = node->name ?: "";

		put_varint(b, strlen(name));
		buf_puts(b, name);
		put_varint(b, (uint64_t)node->self);
		put_varint(b, node->n_children);
	}
}
