/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows -> tree. Two nodes are the same if the names on their paths are equal. So each frame is
 * turned into its name here, and names are compared. Functions and nodes are numbered in DeepFlow's
 * order: row by row, and the new ones of a row from the leaf up.
 */
#include "hub/query/tree.h"

#include <stdlib.h>

/* levels for the frames of a stack, and for its group, process and thread */
#define FRAME_LEVELS (STACK_MAX_FRAMES + 3)
#define MAX_LEVELS   (FRAME_LEVELS + 1) /* levels for the frames, and one for the cause of a wait */

const struct tree_form query_deepflow_form = {.max_nodes = QUERY_MAX_NODES};

struct tree *query_tree_new(const struct tree_form *form)
{
	struct tree *t = xcalloc(1, sizeof(*t));

	t->form = *form;
	random_bytes(&t->seed, sizeof(t->seed));
	t->n_child_slots = t->n_name_slots = 1024;
	t->child_slots = xcalloc(t->n_child_slots, sizeof(*t->child_slots));
	t->name_slots = xcalloc(t->n_name_slots, sizeof(*t->name_slots));
	GROW(t->functions, t->n_functions, t->cap_functions);
	t->functions[t->n_functions++] = (struct function){.level = LEVEL_ROOT};
	GROW(t->nodes, t->n_nodes, t->cap_nodes);
	t->nodes[t->n_nodes++] =
		(struct tree_node){.function = ROOT, .parent = NO_NODE, .first_child = NO_NODE};
	return t;
}

struct tree *query_tree_free(struct tree *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->n_functions; i++) {
		free(t->functions[i].name);
		free(t->functions[i].file);
		free(t->functions[i].module);
	}
	for (size_t i = 0; i < t->n_apps; i++)
		free(t->apps[i]);
	free(t->apps);
	free(t->functions);
	free(t->nodes);
	free(t->child_slots);
	free(t->name_slots);
	free(t->level_slots);
	free(t->order.first);
	free(t->order.next);
	query_rows_done(&t->kept);
	free(t);
	return NULL;
}

/* ---- nodes: (parent, function) -> number ---- */

/* A slot has its key, because the node itself is seldom in a cache of the CPU. */
static struct child_slot *child_slot(const struct tree *t, uint32_t parent, uint32_t function)
{
	const uint32_t key[2] = {parent, function};
	size_t at = hash_bytes(key, sizeof(key), t->seed) & (t->n_child_slots - 1);

	while (t->child_slots[at].number &&
	       (t->child_slots[at].parent != parent || t->child_slots[at].function != function))
		at = (at + 1) & (t->n_child_slots - 1);
	return &t->child_slots[at];
}

static void grow_children(struct tree *t)
{
	_cleanup_free_ struct child_slot *old = t->child_slots;
	size_t n = t->n_child_slots;

	t->n_child_slots *= 2;
	t->child_slots = xcalloc(t->n_child_slots, sizeof(*t->child_slots));
	for (size_t i = 0; i < n; i++)
		if (old[i].number)
			*child_slot(t, old[i].parent, old[i].function) = old[i];
}

/* Most nodes have one child, so most children are found without the table. */
static void enter_child(struct tree *t, uint32_t node)
{
	uint32_t parent = t->nodes[node].parent, function = t->nodes[node].function;

	if (t->nodes[parent].first_child == NO_NODE) {
		t->nodes[parent].first_child = node;
		return;
	}
	if (++t->n_later_children * 2 > t->n_child_slots)
		grow_children(t);
	*child_slot(t, parent, function) = (struct child_slot){parent, function, node + 1};
}

uint32_t query_tree_child(const struct tree *t, uint32_t parent, uint32_t function)
{
	uint32_t first = t->nodes[parent].first_child, number;

	if (first == NO_NODE || t->nodes[first].function == function)
		return first;
	number = child_slot(t, parent, function)->number;
	return number ? number - 1 : NO_NODE;
}

static void add_node(struct tree *t, struct tree_step step)
{
	GROW(t->nodes, t->n_nodes, t->cap_nodes);
	t->nodes[t->n_nodes++] = (struct tree_node){
		.function = step.function, .inlined = step.inlined, .first_child = NO_NODE};
}

uint32_t query_tree_add_child(struct tree *t, uint32_t parent, struct tree_step step)
{
	uint32_t node = (uint32_t)t->n_nodes;

	add_node(t, step);
	t->nodes[node].parent = parent;
	enter_child(t, node);
	return node;
}

static void forget_order(struct tree *t)
{
	free(TAKE_PTR(t->order.first));
	free(TAKE_PTR(t->order.next));
}

void query_tree_clear(struct tree *t)
{
	forget_order(t);
	t->n_nodes = 1;
	t->nodes[ROOT] =
		(struct tree_node){.function = ROOT, .parent = NO_NODE, .first_child = NO_NODE};
	memset(t->child_slots, 0, t->n_child_slots * sizeof(*t->child_slots));
	t->n_later_children = 0;
}

/* ---- rows ---- */

/* The levels of a row's stack. The root is first. */
struct levels {
	struct tree_level items[MAX_LEVELS];
	size_t n;
};

static void put_level(const struct tree *t, struct levels *l, const void *what, enum level_form as)
{
	l->items[l->n] = (struct tree_level){what, as};
	query_tree_prefetch(t, &l->items[l->n++]);
}

/* Adds the level of a process or a thread, if it has a name. */
static void put_comm(const struct tree *t, struct levels *l, const char *comm, enum level_form as)
{
	if (comm)
		put_level(t, l, comm, as);
}

/*
 * A main thread is the level of its process, so it has none of its own, unless the process is known
 * by another name.
 */
static void put_head(const struct tree *t, struct levels *l, const struct store_row *row)
{
	const struct stack_head *h = &row->head;
	const char *process = h->process_comm;

	if (!process && t->form.by_process && row->app_service && *row->app_service)
		process = row->app_service;
	put_comm(t, l, process, AS_PROCESS);
	if (!h->main_thread)
		put_comm(t, l, h->thread_comm, AS_THREAD);
	else if (!process)
		put_comm(t, l, h->thread_comm, AS_PROCESS);
	else if (!h->process_comm && !str_equal(process, h->thread_comm))
		put_comm(t, l, h->thread_comm, AS_THREAD);
}

/*
 * Adds the function of the frame and those inlined in it. Keeps a level free for each of the
 * n_after frames that follow. Returns false if no name is known for the frame. Sets *unnamed if the
 * name is only where the function begins.
 */
static bool put_named(struct tree *t, struct levels *l, const struct frame *f, const char *ns,
		      size_t n_after, bool *unnamed)
{
	const struct frame *named;
	size_t n = t->names(f, ns, t->names_arg, &named), left = FRAME_LEVELS - l->n;
	size_t room = left > n_after ? left - n_after : 1;

	if (n > room) {
		counter_add(counter("inlined_frames_dropped_total", NULL, NULL), n - room);
		n = room;
	}
	for (size_t i = 0; i < n; i++)
		put_level(t, l, &named[i], AS_FRAME);
	*unnamed |= n && named[0].start;
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
		if (!f->name && t->names &&
		    put_named(t, l, f, row->ns, row->n_frames - i - 1, &unnamed))
			continue;
		unnamed |= !f->name;
		if (f->kind == FRAME_KERNEL && max_kernel >= 0 && n_kernel++ >= max_kernel)
			continue;
		put_level(t, l, f, outermost ? AS_OUTERMOST_FRAME : AS_FRAME);
	}
	t->counts[t->before].n_marked += marked ? row->n_samples : 0;
	t->counts[t->before].n_unnamed += unnamed ? row->n_samples : 0;
}

/* Adds the cause of a wait as the leaf, so that the graph shows it with its own colour. */
static void put_wait(const struct tree *t, struct levels *l, enum wait wait)
{
	const struct frame *f = profile_wait_frame(wait);

	if (f)
		put_level(t, l, f, AS_FRAME);
}

static bool is_inlined(const struct tree_level *l)
{
	return query_level_is_frame(l) && ((const struct frame *)l->what)->inlined;
}

/*
 * Adds the functions of the levels from..n-1 from the leaf up, because they are numbered in that
 * order. Those of the other levels exist.
 */
static void make_steps(struct tree *t, const struct levels *l, size_t from, struct tree_step *steps)
{
	_cleanup_buf_ struct buf scratch = {0};

	for (size_t i = l->n; i-- > from;)
		steps[i] = (struct tree_step){
			.function = query_tree_function(t, &l->items[i], true, &scratch),
			.inlined = is_inlined(&l->items[i]),
		};
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
	t->n_text_bytes += strlen(app);
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
		uint32_t function = query_tree_function(t, &l->items[i], false, &scratch);

		if (function == NO_FUNCTION)
			return i;
		parent = path[i] = query_tree_child(t, parent, function);
		if (parent == NO_NODE)
			return i;
	}
	return l->n;
}

/* Adds nodes for the steps from..n-1, numbered from the leaf up. */
static void make_path(struct tree *t, const struct tree_step *steps, size_t from, size_t n,
		      uint32_t *path)
{
	size_t first = t->n_nodes;

	for (size_t i = n; i-- > from;) {
		path[i] = (uint32_t)(first + (n - 1 - i));
		add_node(t, steps[i]);
	}
	for (size_t i = from; i < n; i++) {
		t->nodes[path[i]].parent = i ? path[i - 1] : ROOT;
		enter_child(t, path[i]);
	}
}

void query_tree_set_names(struct tree *t, tree_names_fn *fn, void *arg)
{
	t->names = fn;
	t->names_arg = arg;
}

void query_tree_before(struct tree *t)
{
	t->before = true;
	/* what the first selection had is gone, and something else may have its address */
	if (t->n_level_slots)
		memset(t->level_slots, 0, t->n_level_slots * sizeof(*t->level_slots));
	t->n_levels = 0;
}

static void add_total(const struct tree *t, struct tree_node *n, int64_t value)
{
	int64_t *total = t->before ? &n->before_total : &n->total;

	*total = query_saturated(*total, value);
}

static void add_self(const struct tree *t, struct tree_node *n, const struct kept_row *row)
{
	int64_t *self = t->before ? &n->before_self : &n->self;

	*self = query_saturated(*self, row->value);
	*(t->before ? &n->n_before_samples : &n->n_samples) += row->n_samples;
}

/* How many of the levels of a row get nodes, if so many have nodes already. */
static size_t n_to_keep(const struct tree *t, size_t found, size_t n)
{
	return t->n_nodes + (n - found) <= t->form.max_nodes ? n : found;
}

/* Adds the values of a row of n levels, of which the first have nodes. */
static void add_values(struct tree *t, const uint32_t *path, size_t keep, size_t n,
		       const struct kept_row *row)
{
	for (size_t i = 0; i < keep; i++)
		add_total(t, &t->nodes[path[i]], row->value);
	add_total(t, &t->nodes[ROOT], row->value);
	if (keep < n)
		t->counts[t->before].n_cut_rows++;
	else
		add_self(t, &t->nodes[keep ? path[keep - 1] : ROOT], row);
}

void query_tree_add_steps(struct tree *t, const struct tree_step *steps, size_t n,
			  const struct kept_row *row)
{
	uint32_t path[MAX_LEVELS], node = ROOT;
	size_t found = 0, keep;

	while (found < n && (node = query_tree_child(t, node, steps[found].function)) != NO_NODE)
		path[found++] = node;
	keep = n_to_keep(t, found, n);
	make_path(t, steps, found, keep, path);
	add_values(t, path, keep, n, row);
}

/* Adds a row. If there is no room for its nodes, its functions are not added. */
static void add_levels(struct tree *t, const struct levels *l, const struct kept_row *row)
{
	struct tree_step steps[MAX_LEVELS];
	uint32_t path[MAX_LEVELS];
	size_t found = find_path(t, l, path), keep = n_to_keep(t, found, l->n);

	if (keep > found) {
		make_steps(t, l, found, steps);
		make_path(t, steps, found, keep, path);
	}
	add_values(t, path, keep, l->n, row);
}

/* The row of the smallest stacks, which belong to no group. */
static bool is_others(const struct store_row *row)
{
	return row->n_frames == 1 && row->frames[0]->kind == FRAME_MARKER &&
	       str_equal(row->frames[0]->name, STORE_OTHERS);
}

int query_tree_add(struct tree *t, const struct store_row *row, int max_kernel_stack_depth)
{
	const struct kept_row values = {.value = row->value, .n_samples = row->n_samples};
	struct tree_step steps[MAX_LEVELS];
	struct levels l;

	forget_order(t);
	l.n = 0;
	if (t->form.grouped && !is_others(row))
		put_level(t, &l, row->group ?: "", AS_GROUP); /* "": samples without the tag */
	if (!t->form.only_frames || !row->n_frames)
		put_head(t, &l, row);
	put_frames(t, &l, row, max_kernel_stack_depth);
	put_wait(t, &l, row->head.wait);
	add_app(t, row->app_service);
	if (!t->form.preview) {
		add_levels(t, &l, &values);
		return query_tree_count(t);
	}
	make_steps(t, &l, 0, steps);
	if (!query_rows_keep(t, steps, l.n, &values))
		query_tree_add_steps(t, steps, l.n, &values);
	return query_tree_count(t);
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

int64_t query_tree_total(const struct tree *t, uint32_t node)
{
	return query_saturated(t->nodes[node].total, t->nodes[node].before_total);
}

static int by_total(const void *a, const void *b, void *arg)
{
	const struct tree *t = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int64_t left = query_tree_total(t, x), right = query_tree_total(t, y);

	if (left != right)
		return left > right ? -1 : 1;
	return strcmp(t->functions[t->nodes[x].function].name,
		      t->functions[t->nodes[y].function].name);
}

/*
 * The children of each node, together: those of node i are children[ends[i - 1]] to
 * children[ends[i] - 1] (from 0 on for the root).
 */
static void gather_children(const struct tree *t, uint32_t *children, uint32_t *ends)
{
	uint32_t sum = 0;

	memset(ends, 0, t->n_nodes * sizeof(*ends));
	for (size_t i = 1; i < t->n_nodes; i++)
		ends[t->nodes[i].parent]++;
	for (size_t i = 0; i < t->n_nodes; i++) {
		uint32_t n = ends[i];

		ends[i] = sum; /* where the next child of this node goes */
		sum += n;
	}
	for (size_t i = 1; i < t->n_nodes; i++)
		children[ends[t->nodes[i].parent]++] = (uint32_t)i;
}

/* Siblings are sorted among themselves: most nodes have one child, and many have equal totals. */
void query_tree_order(struct tree *t)
{
	_cleanup_free_ uint32_t *children = NULL, *ends = NULL;

	if (t->order.first)
		return;
	children = xmalloc(t->n_nodes * sizeof(*children));
	ends = xmalloc(t->n_nodes * sizeof(*ends));
	t->order.first = xmalloc(t->n_nodes * sizeof(*t->order.first));
	t->order.next = xmalloc(t->n_nodes * sizeof(*t->order.next));
	gather_children(t, children, ends);
	t->order.next[ROOT] = NO_NODE;
	for (size_t i = 0; i < t->n_nodes; i++) {
		uint32_t from = i ? ends[i - 1] : 0, n = ends[i] - from;

		if (n > 1)
			qsort_r(children + from, n, sizeof(*children), by_total, t);
		t->order.first[i] = n ? children[from] : NO_NODE;
		for (uint32_t k = from; k < ends[i]; k++)
			t->order.next[children[k]] = k + 1 < ends[i] ? children[k + 1] : NO_NODE;
	}
}
