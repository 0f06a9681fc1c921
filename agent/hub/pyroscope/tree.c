/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a tree as Pyroscope's bytes of a tree: see stacks.h. */
#include "hub/pyroscope/stacks.h"

void pyroscope_put_tree(struct buf *b, const struct query_nodes *n)
{
	for (size_t i = 0; i < n->n && n->n > 1; i++) {
		const struct query_node *node = &n->items[i];
		const char *name = node->name ?: "";

		buf_put_varint(b, strlen(name));
		buf_puts(b, name);
		buf_put_varint(b, (uint64_t)node->self);
		buf_put_varint(b, node->n_children);
	}
}
