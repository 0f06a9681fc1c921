/* SPDX-License-Identifier: Apache-2.0 */
/* Private to query/: the tree between tree.c, which builds it, and reply.c, which prints it. */
#pragma once

#include "hub/query/query.h"

/* Nodes and functions are numbered in the order they are found: the root is 0, then leaf first. */
struct tree_node {
	uint32_t function : 31, inlined : 1; /* inlined: into the function of its parent */
	uint32_t parent;		     /* NO_NODE for the root */
	int64_t self, total;
};
#define NO_NODE UINT32_MAX
/* The root's function: its name is not known before all rows are in. */
#define ROOT 0

struct function {
	char *name; /* as text; NULL for the root's */
	char *file; /* of the first frame that knew; NULL: not known */
	/* where it is declared; in a runtime's program, where it stood: in the greatest stack */
	uint32_t line;
	enum frame_kind kind; /* of its first frame */
};

/* Which function a frame is, as the outermost of its stack or not. */
struct frame_slot {
	const struct frame *frame; /* NULL: free; identified by its address */
	uint32_t function;
	bool outermost;
};

struct tree {
	struct tree_node *nodes;
	size_t n_nodes, cap_nodes;
	struct function *functions;
	size_t n_functions, cap_functions;
	/* open addressing over (parent, function) and over names; entries are index + 1 */
	uint32_t *child_slots, *name_slots;
	size_t n_child_slots, n_name_slots;
	struct frame_slot *frame_slots;
	size_t n_frames, n_frame_slots;
	char **apps; /* distinct app_services, at most TREE_MAX_APPS */
	size_t n_apps;
	bool more_apps; /* there are others */
	uint64_t n_cut_rows;	      /* rows whose stack is cut */
	uint64_t n_marked, n_unnamed; /* samples with a marker frame; with an unresolved one */
	uint64_t seed;
	tree_names_fn *names; /* of frames without one; NULL: none */
	void *names_arg;
};
#define TREE_MAX_NAMES 10 /* in the root's name */
#define TREE_MAX_APPS  100000

/* The root's name: as asked, the names joined, or "N processes"; caller frees. */
char *query_tree_root_name(const struct tree *t, const char *app_service);
/*
 * ,"sources":{...}: files and lines, languages, which nodes are inlined; nothing when nothing is
 * known.
 */
void query_put_sources(struct buf *b, const struct tree *t);
/* note.c: a note for the reader of this answer; "": none. */
#define REPLY_NOTE_BYTES 256
void query_reply_note(const struct tracing_request *r, const struct store_summary *s,
		char ret[static REPLY_NOTE_BYTES]);
/* Children of each node: first[node], then next[child]; NO_NODE ends. Greatest total first. */
void query_tree_order(const struct tree *t, uint32_t **ret_first, uint32_t **ret_next);
