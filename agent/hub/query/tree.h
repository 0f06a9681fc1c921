/* SPDX-License-Identifier: Apache-2.0 */
/* Private to query/: the tree that tree.c builds and reply.c prints. */
#pragma once

#include "hub/query/query.h"

/*
 * Nodes and functions have numbers in the order in which they are found. The root is 0. The new
 * nodes of a row are numbered from the leaf up.
 */
struct tree_node {
	/* inlined: the compiler inlined it into the parent's function */
	uint32_t function : 31, inlined : 1;
	uint32_t parent;		     /* NO_NODE for the root */
	int64_t self, total;
};
#define NO_NODE UINT32_MAX
/* The function of the root. It gets its name when all rows are added. */
#define ROOT 0

struct function {
	char *name; /* the name in the reply; NULL for the root */
	char *file; /* the file of the first frame that has one; NULL: not known */
	/*
	 * The line of that frame. For a native function it is where the function is declared. For a
	 * runtime's function it is the line that ran, in the stack with the greatest value.
	 */
	uint32_t line;
	enum frame_kind kind; /* kind of the first frame that is not FRAME_APP; else FRAME_APP */
};

/* The function of a frame. It depends on whether the frame is the outermost one of its stack. */
struct frame_slot {
	const struct frame *frame; /* the frame, identified by its address; NULL: a free slot */
	uint32_t function;
	bool outermost;
};

struct tree {
	struct tree_node *nodes;
	size_t n_nodes, cap_nodes;
	struct function *functions;
	size_t n_functions, cap_functions;
	/*
	 * hash tables with open addressing: (parent, function) -> node, name -> function; entries
	 * are index + 1
	 */
	uint32_t *child_slots, *name_slots;
	size_t n_child_slots, n_name_slots;
	struct frame_slot *frame_slots;
	size_t n_frames, n_frame_slots;
	char **apps; /* distinct app_services, at most TREE_MAX_APPS */
	size_t n_apps;
	/* the app_services are more than TREE_MAX_APPS, so `apps` does not have all */
	bool more_apps;
	uint64_t n_cut_rows;	      /* rows of which only a part is in the tree */
	/*
	 * n_marked: samples with a marker frame; n_unnamed: samples with a frame that has no name
	 */
	uint64_t n_marked, n_unnamed;
	uint64_t seed;
	tree_names_fn *names; /* returns the names of frames that have none; NULL: not used */
	void *names_arg;
};
#define TREE_MAX_NAMES 10 /* names of processes in the root's name */
#define TREE_MAX_APPS  100000

/*
 * The root's name: app_service, or the processes joined by ", ", or "N processes". The caller frees
 * it.
 */
char *query_tree_root_name(const struct tree *t, const char *app_service);
/*
 * Adds ,"sources":{...}: files and lines, languages, and which nodes are inlined. Adds nothing if
 * nothing is known.
 */
void query_put_sources(struct buf *b, const struct tree *t);
/* note.c: a note for the reader of this answer; "" if there is none. */
#define REPLY_NOTE_BYTES 256
void query_reply_note(const struct tracing_request *r, const struct store_summary *s,
		char ret[static REPLY_NOTE_BYTES]);
/*
 * Returns for each node the list of its children, the one with the greatest total first:
 * first[node] begins the list, and next[child] continues it. NO_NODE ends the list.
 */
void query_tree_order(const struct tree *t, uint32_t **ret_first, uint32_t **ret_next);
