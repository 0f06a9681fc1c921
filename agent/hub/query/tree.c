/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows -> tree. Two nodes are the same if the names on their paths are equal. So each frame is
 * turned into its name here, and names are compared. Functions and nodes are numbered in DeepFlow's
 * order: row by row, and the new ones of a row from the leaf up.
 */
#include "hub/query/tree.h"

#include <stdlib.h>

/* levels for the frames of a stack, for the process and for the thread */
#define FRAME_LEVELS (STACK_MAX_FRAMES + 2)
#define MAX_LEVELS   (FRAME_LEVELS + 1) /* levels for the frames, and one for the cause of a wait */
#define NO_FUNCTION  UINT32_MAX

static int64_t add_saturated(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

struct tree *query_tree_new(void)
{
	struct tree *t = xcalloc(1, sizeof(*t));

	random_bytes(&t->seed, sizeof(t->seed));
	t->n_child_slots = t->n_name_slots = 1024;
	t->child_slots = xcalloc(t->n_child_slots, sizeof(*t->child_slots));
	t->name_slots = xcalloc(t->n_name_slots, sizeof(*t->name_slots));
	GROW(t->functions, t->n_functions, t->cap_functions);
	t->functions[t->n_functions++] = (struct function){0};
	GROW(t->nodes, t->n_nodes, t->cap_nodes);
	t->nodes[t->n_nodes++] = (struct tree_node){.function = ROOT, .parent = NO_NODE};
	return t;
}

struct tree *query_tree_free(struct tree *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->n_functions; i++) {
		free(t->functions[i].name);
		free(t->functions[i].file);
	}
	for (size_t i = 0; i < t->n_apps; i++)
		free(t->apps[i]);
	free(t->apps);
	free(t->functions);
	free(t->nodes);
	free(t->child_slots);
	free(t->name_slots);
	free(t->frame_slots);
	free(t);
	return NULL;
}

/* ---- functions: name -> number ---- */

static uint64_t name_hash(const struct tree *t, const char *name, size_t n)
{
	return hash_bytes(name, n, t->seed);
}

static void grow_names(struct tree *t)
{
	size_t n = t->n_name_slots * 2;
	uint32_t *slots = xcalloc(n, sizeof(*slots));

	for (size_t i = 1; i < t->n_functions; i++) {
		const char *name = t->functions[i].name;
		size_t at = name_hash(t, name, strlen(name)) & (n - 1);

		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = (uint32_t)i + 1;
	}
	free(t->name_slots);
	t->name_slots = slots;
	t->n_name_slots = n;
}

/*
 * Finds the number of a function. If the tree does not have it: adds it if make is set, else
 * returns NO_FUNCTION.
 */
static uint32_t function_of(struct tree *t, const char *name, size_t n, bool make)
{
	size_t at;

	if (t->n_functions * 2 > t->n_name_slots)
		grow_names(t);
	at = name_hash(t, name, n) & (t->n_name_slots - 1);
	for (; t->name_slots[at]; at = (at + 1) & (t->n_name_slots - 1)) {
		uint32_t i = t->name_slots[at] - 1;

		if (strncmp(t->functions[i].name, name, n) == 0 && !t->functions[i].name[n])
			return i;
	}
	if (!make)
		return NO_FUNCTION;
	GROW(t->functions, t->n_functions, t->cap_functions);
	t->functions[t->n_functions] = (struct function){.name = xstrndup(name, n)};
	t->name_slots[at] = (uint32_t)t->n_functions + 1;
	return (uint32_t)t->n_functions++;
}

static void learn_source(struct function *function, const struct frame *f)
{
	if (function->kind == FRAME_APP)
		function->kind = f->kind;
	if (function->file || !f->file)
		return;
	function->file = xstrdup(f->file);
	function->line = f->line;
}

/* ---- frames: address of the frame -> function ---- */

static struct frame_slot *frame_slot(const struct tree *t, const struct frame *f, bool outermost)
{
	const uint64_t key = ((uintptr_t)f >> 3) + outermost;
	size_t at = key * 0x9e3779b97f4a7c15ULL >> 20 & (t->n_frame_slots - 1);

	while (t->frame_slots[at].frame &&
	       (t->frame_slots[at].frame != f || t->frame_slots[at].outermost != outermost))
		at = (at + 1) & (t->n_frame_slots - 1);
	return &t->frame_slots[at];
}

static void grow_frames(struct tree *t)
{
	struct frame_slot *old = t->frame_slots;
	size_t n = t->n_frame_slots;

	t->n_frame_slots = n ? n * 2 : 1024;
	t->frame_slots = xcalloc(t->n_frame_slots, sizeof(*old));
	for (size_t i = 0; i < n; i++)
		if (old[i].frame)
			*frame_slot(t, old[i].frame, old[i].outermost) = old[i];
	free(old);
}

/* ---- nodes: (parent, function) -> number ---- */

static size_t child_slot(const struct tree *t, uint32_t parent, uint32_t function)
{
	const uint32_t key[2] = {parent, function};
	size_t at = hash_bytes(key, sizeof(key), t->seed) & (t->n_child_slots - 1);

	for (; t->child_slots[at]; at = (at + 1) & (t->n_child_slots - 1)) {
		const struct tree_node *n = &t->nodes[t->child_slots[at] - 1];

		if (n->parent == parent && n->function == function)
			break;
	}
	return at;
}

static void grow_children(struct tree *t)
{
	free(t->child_slots);
	t->n_child_slots *= 2;
	t->child_slots = xcalloc(t->n_child_slots, sizeof(*t->child_slots));
	for (size_t i = 1; i < t->n_nodes; i++)
		t->child_slots[child_slot(t, t->nodes[i].parent, t->nodes[i].function)] =
			(uint32_t)i + 1;
}

/* ---- rows ---- */

/* A level of a row's stack, and the source of its name. The root is first. */
struct tree_level {
	const struct frame *frame; /* NULL: a process or thread, whose name is text[start..end] */
	bool outermost;
	size_t start, end;
};
struct levels {
	struct buf text;
	struct tree_level items[MAX_LEVELS];
	size_t n;
};

static void levels_done(struct levels *l)
{
	buf_done(&l->text);
}

static void put_level(struct levels *l, const struct frame *f, bool outermost)
{
	l->items[l->n++] = (struct tree_level){.frame = f, .outermost = outermost};
}

static void put_head_level(struct levels *l, const struct stack_head *h)
{
	size_t start = l->text.len;

	profile_stack_render(h, NULL, 0, &l->text);
	l->items[l->n++] = (struct tree_level){.start = start, .end = l->text.len};
}

static void put_head(struct levels *l, const struct stack_head *h)
{
	/*
	 * A head with both names would be one level. Two heads, one for each name, make two levels.
	 */
	struct stack_head process = {.process_comm = h->process_comm};
	struct stack_head thread = {.thread_comm = h->thread_comm};

	if (h->process_comm)
		put_head_level(l, &process);
	if (h->thread_comm && !(h->process_comm && h->main_thread)) {
		thread.main_thread = !h->process_comm && h->main_thread;
		put_head_level(l, &thread);
	}
}

/*
 * Adds the function of the frame and those inlined in it. Keeps a level free for each of the
 * n_after frames that follow. Returns false if no name is known for the frame.
 */
static bool put_named(struct tree *t, struct levels *l, const struct frame *f, size_t n_after)
{
	const struct frame *named;
	size_t n = t->names(f, t->names_arg, &named), left = FRAME_LEVELS - l->n;
	size_t room = left > n_after ? left - n_after : 1;

	if (n > room) {
		counter_add(counter("inlined_frames_dropped_total", NULL, NULL), n - room);
		n = room;
	}
	for (size_t i = 0; i < n; i++)
		put_level(l, &named[i], false);
	return n > 0;
}

static void put_frames(struct tree *t, struct levels *l, const struct store_row *row,
		       int max_kernel)
{
	bool user_seen = false, marked = false, unnamed = false;
	int n_kernel = 0;

	for (size_t i = 0; i < row->n_frames && l->n < FRAME_LEVELS; i++) {
		const struct frame *f = row->frames[i];
		bool user = f->kind != FRAME_KERNEL && f->kind != FRAME_MARKER;
		bool outermost = user && !user_seen;

		/*
		 * the row [others] does not count as marked: most of the stacks in it are complete
		 */
		marked |= f->kind == FRAME_MARKER && !str_equal(f->name, STORE_OTHERS);
		user_seen |= user;
		if (!f->name && t->names && put_named(t, l, f, row->n_frames - i - 1))
			continue;
		unnamed |= !f->name;
		if (f->kind == FRAME_KERNEL && max_kernel >= 0 && n_kernel++ >= max_kernel)
			continue;
		put_level(l, f, outermost);
	}
	t->n_marked += marked ? row->n_samples : 0;
	t->n_unnamed += unnamed ? row->n_samples : 0;
}

/* Adds the cause of a wait as the leaf, so that the graph shows it with its own colour. */
static void put_wait(struct levels *l, enum wait wait)
{
	const struct frame *f = profile_wait_frame(wait);

	if (f)
		put_level(l, f, false);
}

/*
 * Returns the function of a frame; if the tree does not have it and make is not set, NO_FUNCTION.
 * The result is stored by the frame's address, so each frame is turned into its name only once,
 * even if many stacks have it.
 */
static uint32_t function_of_frame(struct tree *t, const struct frame *f, bool outermost, bool make,
				  struct buf *scratch)
{
	struct frame_slot *slot;
	uint32_t function;

	if (t->n_frames * 2 >= t->n_frame_slots)
		grow_frames(t);
	slot = frame_slot(t, f, outermost);
	if (slot->frame)
		return slot->function;
	buf_reset(scratch);
	profile_frame_render(f, outermost, scratch);
	function = function_of(t, scratch->data, scratch->len, make);
	if (function == NO_FUNCTION)
		return function;
	learn_source(&t->functions[function], f);
	*slot = (struct frame_slot){f, function, outermost};
	t->n_frames++;
	return function;
}

static uint32_t function_of_level(struct tree *t, const struct levels *l, size_t i, bool make,
				  struct buf *scratch)
{
	const struct tree_level *v = &l->items[i];

	if (v->frame)
		return function_of_frame(t, v->frame, v->outermost, make, scratch);
	return function_of(t, l->text.data + v->start, v->end - v->start, make);
}

/* Adds the functions of a row from the leaf up, because they are numbered in that order. */
static void make_functions(struct tree *t, const struct levels *l, uint32_t *functions)
{
	_cleanup_buf_ struct buf scratch = {0};

	for (size_t i = l->n; i-- > 0;)
		functions[i] = function_of_level(t, l, i, true, &scratch);
}

/* Adds the name to a sorted array without duplicates. */
static void add_app(struct tree *t, const char *app)
{
	size_t low = 0, high = t->n_apps;

	if (!app)
		return;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(app, t->apps[middle]);

		if (order == 0)
			return;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	if (t->n_apps == TREE_MAX_APPS) {
		t->more_apps = true;
		return;
	}
	t->apps = xrealloc(t->apps, (t->n_apps + 1) * sizeof(*t->apps));
	memmove(&t->apps[low + 1], &t->apps[low], (t->n_apps - low) * sizeof(*t->apps));
	t->apps[low] = xstrdup(app);
	t->n_apps++;
}

/*
 * Finds the nodes that a row shares with the tree, from the root. Returns how many they are. Adds
 * no node.
 */
static size_t find_path(struct tree *t, const struct levels *l, uint32_t *path)
{
	_cleanup_buf_ struct buf scratch = {0};
	uint32_t parent = ROOT;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t function = function_of_level(t, l, i, false, &scratch), found;

		if (function == NO_FUNCTION)
			return i;
		found = t->child_slots[child_slot(t, parent, function)];
		if (!found)
			return i;
		parent = path[i] = found - 1;
	}
	return l->n;
}

/* Adds nodes for the levels from..n-1, numbered from the leaf up. */
static void make_path(struct tree *t, const struct levels *l, const uint32_t *functions,
		      size_t from, size_t n, uint32_t *path)
{
	size_t first = t->n_nodes;

	for (size_t i = n; i-- > from;) {
		path[i] = (uint32_t)(first + (n - 1 - i));
		GROW(t->nodes, t->n_nodes, t->cap_nodes);
		t->nodes[t->n_nodes++] = (struct tree_node){.function = functions[i],
							    .inlined = l->items[i].frame &&
								       l->items[i].frame->inlined};
	}
	for (size_t i = from; i < n; i++)
		t->nodes[path[i]].parent = i ? path[i - 1] : ROOT;
	for (size_t i = from; i < n; i++) {
		if (t->n_nodes * 2 > t->n_child_slots) {
			/* grow_children() enters all nodes in the table, also the new ones */
			grow_children(t);
			continue;
		}
		t->child_slots[child_slot(t, t->nodes[path[i]].parent, functions[i])] = path[i] + 1;
	}
}

void query_tree_set_names(struct tree *t, tree_names_fn *fn, void *arg)
{
	t->names = fn;
	t->names_arg = arg;
}

int query_tree_add(struct tree *t, const struct store_row *row, int max_kernel_stack_depth)
{
	uint32_t functions[MAX_LEVELS], path[MAX_LEVELS];
	_cleanup_(levels_done) struct levels l;
	size_t found, keep;

	buf_init(&l.text, 0);
	l.n = 0;
	put_head(&l, &row->head);
	put_frames(t, &l, row, max_kernel_stack_depth);
	put_wait(&l, row->head.wait);
	add_app(t, row->app_service);
	found = find_path(t, &l, path);
	keep = t->n_nodes + (l.n - found) <= QUERY_MAX_NODES ? l.n : found;
	if (keep > found) {
		make_functions(t, &l, functions);
		make_path(t, &l, functions, found, keep, path);
	}
	for (size_t i = 0; i < keep; i++)
		t->nodes[path[i]].total = add_saturated(t->nodes[path[i]].total, row->value);
	t->nodes[ROOT].total = add_saturated(t->nodes[ROOT].total, row->value);
	if (keep < l.n) {
		t->n_cut_rows++;
	} else {
		struct tree_node *leaf = &t->nodes[keep ? path[keep - 1] : ROOT];

		leaf->self = add_saturated(leaf->self, row->value);
	}
	return 0;
}

char *query_tree_root_name(const struct tree *t, const char *app_service)
{
	_cleanup_buf_ struct buf b = {0};

	if (*app_service)
		return xstrdup(app_service);
	if (t->n_apps > TREE_MAX_NAMES)
		return xasprintf("%s%zu processes", t->more_apps ? "more than " : "", t->n_apps);
	for (size_t i = 0; i < t->n_apps; i++)
		buf_printf(&b, "%s%s", i ? ", " : "", t->apps[i]);
	return buf_steal(&b);
}

static int by_total(const void *a, const void *b, void *arg)
{
	const struct tree *t = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	const struct tree_node *m = &t->nodes[x], *n = &t->nodes[y];

	/* the smallest first, because the caller puts each one at the front of its parent's list */
	if (m->total != n->total)
		return m->total < n->total ? -1 : 1;
	return strcmp(t->functions[n->function].name, t->functions[m->function].name);
}

void query_tree_order(const struct tree *t, uint32_t **ret_first, uint32_t **ret_next)
{
	uint32_t *first = xmalloc(t->n_nodes * sizeof(*first));
	uint32_t *next = xmalloc(t->n_nodes * sizeof(*next));
	uint32_t *order = xmalloc(t->n_nodes * sizeof(*order));

	memset(first, 0xff, t->n_nodes * sizeof(*first));
	next[ROOT] = NO_NODE;
	for (size_t i = 1; i < t->n_nodes; i++)
		order[i - 1] = (uint32_t)i;
	qsort_r(order, t->n_nodes - 1, sizeof(*order), by_total, (void *)t);
	for (size_t i = 0; i + 1 < t->n_nodes; i++) {
		uint32_t parent = t->nodes[order[i]].parent;

		next[order[i]] = first[parent];
		first[parent] = order[i];
	}
	free(order);
	*ret_first = first;
	*ret_next = next;
}
