/* SPDX-License-Identifier: Apache-2.0 */
/* The reply as columns: one list for each property of the nodes, and of their functions. */
#include "hub/query/tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

/* ---- strings: each text once ---- */

struct text {
	const char *text; /* points into the tree */
	size_t index;
	UT_hash_handle hh;
};

/* Returns the text's place in the list, to which it is added if it is new. -1: text is NULL. */
static int64_t text_index(struct text **texts, const char *text, struct buf *list)
{
	struct text *t;

	if (!text)
		return -1;
	HASH_FIND_STR(*texts, text, t);
	if (!t) {
		t = xcalloc(1, sizeof(*t));
		t->text = text;
		t->index = HASH_COUNT(*texts);
		HASH_ADD_KEYPTR(hh, *texts, t->text, strlen(t->text), t);
		buf_puts(list, t->index ? "," : "");
		buf_json_string(list, text);
	}
	return (int64_t)t->index;
}

static void texts_free(struct text **texts)
{
	struct text *t, *next;

	HASH_ITER (hh, *texts, t, next) {
		HASH_DEL(*texts, t);
		free(t);
	}
}

/* ---- functions ---- */

const char *query_level_name(uint8_t level)
{
	static const char *const names[_LEVEL_KIND_MAX] = {[LEVEL_ROOT] = "root",
							   [LEVEL_GROUP] = "group",
							   [LEVEL_PROCESS] = "process",
							   [LEVEL_THREAD] = "thread",
							   [LEVEL_UNNAMED] = "unnamed"};

	return level < _FRAME_KIND_MAX ? profile_frame_kind_name((enum frame_kind)level)
				       : names[level];
}

static void put_levels(struct buf *b)
{
	buf_puts(b, ",\"kinds\":[");
	for (uint8_t l = 0; l < _LEVEL_KIND_MAX; l++)
		buf_printf(b, "%s\"%s\"", l ? "," : "", query_level_name(l));
	buf_puts(b, "]");
}

static void put_item(struct buf *b, int64_t v)
{
	if (b->len)
		buf_putc(b, ',');
	query_put_int(b, v);
}

/* Adds a list with what is before it. It may be long, and buf_printf() would read it twice. */
static void put_list(struct buf *b, const char *before, const struct buf *items)
{
	buf_puts(b, before);
	buf_add(b, items->data, items->len);
	buf_putc(b, ']');
}

/* The functions of the nodes of a reply, in the order of the nodes that have them first. */
struct used_functions {
	uint32_t *numbers; /* of each function of the tree: its number in the reply, + 1; 0: none */
	uint32_t *functions;
	size_t n;
};

static void used_done(struct used_functions *u)
{
	free(u->numbers);
	free(u->functions);
}

static uint32_t number_of(struct used_functions *u, uint32_t function)
{
	if (!u->numbers[function]) {
		u->functions[u->n++] = function;
		u->numbers[function] = (uint32_t)u->n;
	}
	return u->numbers[function] - 1;
}

/* query_walk_left_out() has this function, which has the number behind those of the tree. */
static const struct function smaller_stacks = {.name = (char *)(uintptr_t)TREE_LEFT_OUT,
					       .level = FRAME_MARKER};

static void put_functions(struct buf *b, const struct tree *t, const struct used_functions *u,
			  const char *root)
{
	_cleanup_(texts_free) struct text *texts = NULL;
	_cleanup_buf_ struct buf list = {0}, names = {0}, kinds = {0}, modules = {0}, files = {0},
				 lines = {0};

	for (size_t i = 0; i < u->n; i++) {
		const struct function *f = u->functions[i] < t->n_functions
						   ? &t->functions[u->functions[i]]
						   : &smaller_stacks;

		put_item(&names,
			 text_index(&texts, u->functions[i] == ROOT ? root : f->name, &list));
		put_item(&kinds, f->level);
		put_item(&modules, text_index(&texts, f->module, &list));
		put_item(&files, text_index(&texts, f->file, &list));
		put_item(&lines, f->file ? f->line : 0);
	}
	put_list(b, "{\"strings\":[", &list);
	put_levels(b);
	put_list(b, ",\"functions\":{\"name\":[", &names);
	put_list(b, ",\"kind\":[", &kinds);
	put_list(b, ",\"module\":[", &modules);
	put_list(b, ",\"file\":[", &files);
	put_list(b, ",\"line\":[", &lines);
	buf_putc(b, '}');
}

/* ---- nodes ---- */

struct node_columns {
	struct buf function, depth, self, samples, before, before_samples, inlined;
	size_t n;
};

static void columns_done(struct node_columns *c)
{
	buf_done(&c->function);
	buf_done(&c->depth);
	buf_done(&c->self);
	buf_done(&c->samples);
	buf_done(&c->before);
	buf_done(&c->before_samples);
	buf_done(&c->inlined);
}

static void put_node(struct node_columns *c, const struct tree *t, const struct tree_node *n,
		     uint32_t function, size_t depth)
{
	put_item(&c->function, function);
	put_item(&c->depth, (int64_t)depth);
	put_item(&c->self, n->self);
	put_item(&c->samples, (int64_t)MIN(n->n_samples, (uint64_t)INT64_MAX));
	if (t->before) {
		put_item(&c->before, n->before_self);
		put_item(&c->before_samples,
			 (int64_t)MIN(n->n_before_samples, (uint64_t)INT64_MAX));
	}
	if (n->inlined)
		put_item(&c->inlined, (int64_t)c->n);
	c->n++;
}

/* Adds the nodes whose totals are at least `least`. */
static void put_nodes(struct node_columns *c, struct tree *t, struct used_functions *u,
		      int64_t least)
{
	bool is_cut = least || t->counts[0].n_cut_rows || t->counts[1].n_cut_rows;
	struct tree_walk w = {.least = least};

	for (uint32_t i = query_walk_first(&w, t); i != NO_NODE; i = query_walk_next(&w)) {
		const struct tree_node *n = &t->nodes[i];
		struct tree_node missing =
			is_cut ? query_walk_left_out(&w, i) : (struct tree_node){0};

		put_node(c, t, n, number_of(u, n->function), w.depth);
		if (missing.self > 0 || missing.before_self > 0)
			put_node(c, t, &missing, number_of(u, missing.function), w.depth + 1);
	}
}

static void put_columns(struct buf *b, const struct tree *t, const struct node_columns *c)
{
	put_list(b, ",\"nodes\":{\"function\":[", &c->function);
	put_list(b, ",\"depth\":[", &c->depth);
	put_list(b, ",\"self\":[", &c->self);
	put_list(b, ",\"samples\":[", &c->samples);
	if (t->before) {
		put_list(b, ",\"before\":[", &c->before);
		put_list(b, ",\"before_samples\":[", &c->before_samples);
	}
	put_list(b, "},\"inlined\":[", &c->inlined);
	buf_putc(b, '}');
}

static void put_result(struct buf *b, struct tree *t, const char *root, int64_t least)
{
	_cleanup_(used_done) struct used_functions u = {
		.numbers = xcalloc(t->n_functions + 1, sizeof(*u.numbers)),
		.functions = xmalloc((t->n_functions + 1) * sizeof(*u.functions)),
	};
	_cleanup_(columns_done) struct node_columns c = {0};

	put_nodes(&c, t, &u, least);
	put_functions(b, t, &u, root);
	put_columns(b, t, &c);
}

/* A node of a preview has at least this part of the whole: as wide as a pixel in most windows. */
#define PREVIEW_PART  1000
#define PREVIEW_STEPS 100000 /* frames of all stacks; of fewer, the whole is there as soon */

bool query_columns_has_preview(const struct tree *t)
{
	return t->kept.n_steps > PREVIEW_STEPS && t->kept.total > PREVIEW_PART;
}

/* Makes the nodes of a reply. Returns the least total that they have. */
static int64_t make_nodes(struct tree *t, bool preview)
{
	int64_t least = preview ? t->kept.total / PREVIEW_PART : 0;

	if (preview)
		query_rows_preview(t, least);
	else
		query_rows_finish(t);
	return least;
}

char *query_columns_reply(struct tree *t, const struct tree_query *q, const struct store_summary *s,
			  const struct store_summary *before, bool preview, int *ret_http,
			  size_t *ret_n)
{
	int64_t least = make_nodes(t, preview);
	bool has_room = query_tree_count(t) == 0;
	_cleanup_free_ char *root = query_tree_root_name(t, q->tracing.app_service);
	_cleanup_buf_ struct buf b;

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	b.budget = q->tracing.budget;
	buf_puts(&b, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":");
	if (has_room && (t->n_nodes > 1 || s->n_rows || (before && before->n_rows))) {
		put_result(&b, t, root ?: "", least);
	} else {
		buf_puts(&b, "null");
	}
	buf_printf(&b, ",\"debug\":null,\"unit\":\"%s\"",
		   profile_event_info(q->tracing.selection->event)->unit);
	query_put_summary(&b, "summary", t, &q->tracing, s, false);
	if (before)
		query_put_summary(&b, "before_summary", t, &q->before, before, true);
	buf_puts(&b, preview ? ",\"preview\":true}\n" : "}");
	if (b.failed || !has_room)
		return query_tracing_error("FAIL", "the answer is too large: ask for less",
					   &q->tracing, ret_http, ret_n);
	*ret_http = 200;
	*ret_n = b.len;
	return buf_steal(&b);
}
