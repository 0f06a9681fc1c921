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
	uint32_t first_child;		     /* the one found first; NO_NODE: there is none */
	int64_t self, total;
	uint64_t n_samples;		     /* of self */
	/* the same of the selection before */
	int64_t before_self, before_total;
	uint64_t n_before_samples;
};
#define NO_NODE UINT32_MAX
/* The function of the root. It gets its name when all rows are added. */
#define ROOT 0

/* The kinds of functions in a reply as columns: those of frames, and these. */
enum level_kind {
	LEVEL_ROOT = _FRAME_KIND_MAX,
	LEVEL_GROUP,   /* a value of the tag by which the samples are grouped */
	LEVEL_PROCESS,
	LEVEL_THREAD,
	LEVEL_UNNAMED, /* a frame without a name */
	_LEVEL_KIND_MAX,
};

struct function {
	/*
	 * The name in the reply, with a NUL; NULL for the root. In a reply as columns, the key of
	 * the function goes on behind the NUL.
	 */
	char *name;
	size_t n_key;  /* bytes of the key; without columns, the name is the key */
	char *module;  /* columns only; NULL: not known */
	uint8_t level; /* columns only: an enum frame_kind or an enum level_kind */
	char *file; /* the file of the first frame that has one; NULL: not known */
	/*
	 * The line of that frame. For a native function it is where the function is declared. For a
	 * runtime's function it is the line that ran, in the stack with the greatest value.
	 */
	uint32_t line;
	enum frame_kind kind; /* kind of the first frame that is not FRAME_APP; else FRAME_APP */
};

/* A level of a row's stack as its function. */
struct tree_step {
	/* inlined: the compiler inlined it into the function of the level above */
	uint32_t function : 31, inlined : 1;
};
/* A row without its stack: tree_rows.c keeps it, and its nodes are made later. */
struct kept_row {
	int64_t value;
	uint64_t n_samples;
	uint32_t first, n; /* its steps, if it is kept */
};
struct kept_rows {
	struct kept_row *items;
	size_t n, cap;
	struct tree_step *steps;
	size_t n_steps, cap_steps;
	int64_t total;
};

/* What a level of a row's stack is. */
enum level_form {
	AS_FRAME,
	AS_OUTERMOST_FRAME, /* the outermost one of user code */
	AS_GROUP,
	AS_PROCESS,
	AS_THREAD,
};
struct tree_level {
	const void *what; /* a struct frame, or the name of the group, process or thread */
	enum level_form as;
};
static inline bool query_level_is_frame(const struct tree_level *l)
{
	return l->as == AS_FRAME || l->as == AS_OUTERMOST_FRAME;
}
/* The function of a level, which is known by the address of what it is. */
struct level_slot {
	struct tree_level level; /* what is NULL: a free slot */
	uint32_t function;
};

/* A slot of the table of the nodes that are not the first child of their parent. */
struct child_slot {
	uint32_t parent, function;
	uint32_t number; /* of the node, + 1; 0: the slot is free */
};

struct tree {
	struct tree_node *nodes;
	size_t n_nodes, cap_nodes;
	struct function *functions;
	size_t n_functions, cap_functions;
	/*
	 * hash tables with open addressing: (parent, function) -> node, name -> function + 1
	 */
	struct child_slot *child_slots;
	uint32_t *name_slots;
	size_t n_child_slots, n_later_children, n_name_slots;
	struct level_slot *level_slots;
	size_t n_levels, n_level_slots;
	struct tree_form form;
	char **apps; /* distinct app_services, at most TREE_MAX_APPS */
	size_t n_apps;
	/* the app_services are more than TREE_MAX_APPS, so `apps` does not have all */
	bool more_apps;
	/* of the selection [0], and of the one before it [1] */
	struct tree_counts {
		uint64_t n_cut_rows; /* rows of which only a part is in the tree */
		uint64_t n_marked;   /* samples with a marker frame */
		uint64_t n_unnamed;  /* samples with a frame that has no name */
	} counts[2];
	bool before; /* the rows that are added belong to the selection before */
	/*
	 * for each node the list of its children, the one with the greatest total first:
	 * order.first[node] begins the list, and order.next[child] continues it. NO_NODE ends it.
	 */
	struct {
		uint32_t *first, *next; /* NULL: there was no walk since the last row */
	} order;
	uint64_t seed;
	struct kept_rows kept;
	struct buf_budget *budget; /* of the tree's memory; NULL: none */
	size_t n_text_bytes;	   /* of functions and of apps */
	size_t n_counted;	   /* bytes that the budget has given */
	tree_names_fn *names; /* returns the names of frames that have none; NULL: not used */
	void *names_arg;
};
#define TREE_MAX_NAMES 10 /* names of processes in the root's name */
#define TREE_MAX_APPS  100000
/* the marker in a reply as columns for the smallest stacks, if there are too many nodes */
#define TREE_LEFT_OUT  "[smaller stacks]"

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
#define REPLY_NOTE_BYTES 512
void query_reply_note(const struct tracing_request *r, const struct store_summary *s,
		char ret[static REPLY_NOTE_BYTES]);
/*
 * Of which namespaces of the selection profiles of its time were deleted because the store was
 * full: as a note (NULL: of none), and as the member "deleted" of the summary. The caller frees the
 * note.
 */
char *query_deleted_note(const struct tracing_request *r, const struct store_summary *s);
void query_put_deleted(struct buf *b, const struct tracing_request *r,
		       const struct store_summary *s);
/* ---- tree_memory.c ---- */

/* Takes what the tree has grown by from its budget. -E2BIG: there is not so much. */
int query_tree_count(struct tree *t);

/* ---- nodes: tree.c ---- */

/* The sum, at most the greatest number: hostile values may add up to more. */
static inline int64_t query_saturated(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Forgets all nodes but the root, whose values become 0. */
void query_tree_clear(struct tree *t);
/* Returns NO_NODE if the parent has no child of this function. */
uint32_t query_tree_child(const struct tree *t, uint32_t parent, uint32_t function);
/* Adds a child, which the parent does not have. */
uint32_t query_tree_add_child(struct tree *t, uint32_t parent, struct tree_step step);
/* Adds a row of n levels. */
void query_tree_add_steps(struct tree *t, const struct tree_step *steps, size_t n,
			  const struct kept_row *row);

/* ---- rows whose nodes are made later: tree_rows.c ---- */

/* Keeps a row. false: there is no room for it, so all kept ones have become nodes. */
bool query_rows_keep(struct tree *t, const struct tree_step *steps, size_t n,
		     const struct kept_row *row);
/*
 * Makes only the nodes of the kept rows that have at least `least`, and their children. Children
 * that are too small have their totals, but neither values of their own nor children.
 */
void query_rows_preview(struct tree *t, int64_t least);
/* Makes all nodes of the rows, and does not keep them any more. */
void query_rows_finish(struct tree *t);
void query_rows_done(struct kept_rows *k);

/* ---- tree_functions.c ---- */

#define NO_FUNCTION UINT32_MAX
/*
 * Finds the number of the function of a level. If the tree does not have it: adds it if make is
 * set, else returns NO_FUNCTION. The result is stored, so each frame is turned into its key only
 * once, even if many stacks have it.
 */
uint32_t query_tree_function(struct tree *t, const struct tree_level *l, bool make,
			     struct buf *scratch);
/* Lets the CPU fetch what query_tree_function() will read first of the level. */
void query_tree_prefetch(const struct tree *t, const struct tree_level *l);

/* ---- replies ---- */

/* Adds ,"NAME":{...}: the summary of the selection, or of the one before it. */
void query_put_summary(struct buf *b, const char *name, const struct tree *t,
		       const struct tracing_request *r, const struct store_summary *s, bool before);
void query_put_int(struct buf *b, int64_t v);

#define TREE_MAX_DEPTH (STACK_MAX_FRAMES + 5) /* levels of a tree with its root */
/* A walk over the tree: parents before children, the greatest total first. */
struct tree_walk {
	const struct tree *t;
	int64_t least; /* nodes with less, in both selections together, are left out */
	uint32_t path[TREE_MAX_DEPTH]; /* nodes from the root to the current one */
	size_t depth;		       /* depth of the current node; the root has 0 */
	/* called after all nodes below the node; may be NULL */
	void (*leave)(uint32_t node, void *arg);
	void *arg;
};
/* Return the next node; NO_NODE: there is none. */
uint32_t query_walk_first(struct tree_walk *w, struct tree *t);
uint32_t query_walk_next(struct tree_walk *w);
/* The children of a node in the walk: the first one, and the one after a child. NO_NODE: none. */
uint32_t query_walk_child(const struct tree_walk *w, uint32_t node);
uint32_t query_walk_sibling(const struct tree_walk *w, uint32_t child);
/*
 * What is below a node but not in the walk, or not in the tree, which had no room for it: self is
 * in the first selection, before_self in the one before. Its function has the number behind the
 * last.
 */
struct tree_node query_walk_left_out(const struct tree_walk *w, uint32_t node);
/* Sets t->order, if a walk has not set it. */
void query_tree_order(struct tree *t);
/* The total of a node in both selections together. */
int64_t query_tree_total(const struct tree *t, uint32_t node);
