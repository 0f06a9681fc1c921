/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the verbs that print profiles: an answer of /v1/profile/tree, and the sums of its
 * functions.
 */
#pragma once

#include "lib/base/base.h"

#define COLUMNS_MAX_NODES 200000 /* nodes that a verb asks the hub for */
#define COLUMNS_MAX_DEPTH 4096	 /* levels of a tree in an answer; a deeper one is refused */

struct columns_function {
	const char *name, *kind; /* the kind is a word of the API: "app", "kernel", "process" */
	char *text;		 /* the name with the prefix of its kind: "[k] do_syscall_64" */
};
/* Values are in the unit of the event; those of `before` are 0 in an answer without it. */
struct columns_node {
	uint32_t function, depth;
	int64_t self, before_self;
	int64_t n_samples, n_before_samples; /* those of self */
	int64_t total, before_total;	     /* of the subtree */
};
/* Nodes are in preorder. Node 0 is the root. Names point into the answer. */
struct columns {
	struct columns_function *functions;
	struct columns_node *nodes;
	size_t n_functions, n_nodes;
};
/*
 * Reads an answer and checks all of its indexes. Nothing found: there are no nodes. -EBADMSG: it is
 * no answer of tree.
 */
int cli_columns_read(const json_t *reply, struct columns *ret);
void cli_columns_done(struct columns *c);

/* What a function has in all of its stacks. A recursive function counts once in a stack. */
struct columns_sum {
	const char *text;
	int64_t self, total, before_self, before_total;
	int64_t n_samples, n_before_samples; /* those of self */
};
/*
 * Adds up the functions that have the same text. The root, groups, processes and threads are no
 * functions; but in the profile of a whole host (Total) processes and threads are the rows. The
 * caller frees *ret.
 */
size_t cli_columns_sums(const struct columns *c, struct columns_sum **ret);
