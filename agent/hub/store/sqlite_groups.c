/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of samples by a tag. A tag of series is looked up once for each series of the selection; a
 * tag of stacks (thread, wait, labels) once for each stack. Samples of calls come with the tag of
 * their call (trace_id, profile_id).
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>
#include <uthash.h>

/* memory of a group, and of an item of the maps, besides the group's text */
#define ITEM_BYTES 128

struct group_name {
	char *text;   /* NULL: samples without the tag */
	size_t group; /* its number */
	UT_hash_handle hh;
};

/* An item of the maps: the group of a series or a stack. */
struct member {
	size_t group;
};

size_t store_groups_named(struct groups *g, const char *text)
{
	struct group_name *name;

	HASH_FIND(hh, g->names, text ? text : "", text ? strlen(text) : 0, name);
	if (!name) {
		name = xcalloc(1, sizeof(*name));
		name->text = text ? xstrdup(text) : NULL;
		name->group = g->n++;
		g->names_bytes += ITEM_BYTES + (text ? strlen(text) : 0);
		g->bytes += ITEM_BYTES + (text ? strlen(text) : 0);
		HASH_ADD_KEYPTR(hh, g->names, text ? name->text : "", text ? strlen(text) : 0,
				name);
	}
	return name->group;
}

static void put(struct groups *g, struct id_map *map, int64_t id, const char *text)
{
	struct member *m = xcalloc(1, sizeof(*m));

	m->group = store_groups_named(g, text);
	g->bytes += ITEM_BYTES;
	store_id_map_put(map, id, m);
}

/* Looks up the series of the selection, each with its group if the tag belongs to series. */
static int read_series(struct groups *g, const struct selection *sel)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event, .series_only = true};
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, e;

	store_where_text(&w, "SELECT se.id");
	if (g->tag && !g->of_stacks) {
		store_where_text(&w, ", ");
		store_where_tag(&w, g->tag);
	} else {
		store_where_text(&w, ", NULL");
	}
	store_where_text(&w, " FROM series se WHERE se.last_s>=");
	store_where_int(&w, sel->time_start_s);
	store_where_text(&w, " AND se.first_s<=");
	store_where_int(&w, sel->time_end_s);
	store_where_selection(&w, sel);
	e = store_where_prepare(&w, g->db, &st);
	while (!e && (rc = sqlite3_step(st)) == SQLITE_ROW)
		put(g, &g->series, sqlite3_column_int64(st, 0),
		    (const char *)sqlite3_column_text(st, 1));
	return e ? e : store_sq_errno(rc);
}

/* Prepares the statement that reads the tag of one stack. */
static int prepare_stack(struct groups *g)
{
	_cleanup_(store_where_done) struct where w = {0};

	store_where_text(&w, "SELECT ");
	store_where_tag(&w, g->tag);
	store_where_text(&w, " FROM (SELECT ? AS stack) sa");
	return store_where_prepare(&w, g->db, &g->get_stack);
}

int store_groups_begin(struct groups *g, const struct query *q, const struct selection *sel,
		       const char *tag)
{
	_cleanup_(store_where_done) struct where w = {.event = sel->event};
	int e;

	*g = (struct groups){
		.db = q->db, .tag = tag, .of_calls = tag && store_is_tag_of_calls(tag)};
	if (g->of_calls)
		return 0;
	if (tag) {
		store_where_tag(&w, tag);
		g->of_stacks = w.needs_samples;
	}
	e = read_series(g, sel);
	return !e && g->of_stacks ? prepare_stack(g) : e;
}

bool store_groups_has(const struct groups *g, int64_t series)
{
	return store_id_map_get(&g->series, series) != NULL;
}

/* Reads the tag of a stack. */
static int look_up(struct groups *g, int64_t stack)
{
	/* the values that belong to the tag are bound; the stack is the last one */
	int rc =
		sqlite3_bind_int64(g->get_stack, sqlite3_bind_parameter_count(g->get_stack), stack);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(g->get_stack);
	if (rc == SQLITE_ROW)
		put(g, &g->stacks, stack, (const char *)sqlite3_column_text(g->get_stack, 0));
	sqlite3_reset(g->get_stack);
	return store_sq_errno(rc);
}

int store_groups_of(struct groups *g, int64_t series, int64_t stack, size_t *ret)
{
	struct id_map *map = g->of_stacks ? &g->stacks : &g->series;
	/* a stack that is no row id has no tag, like one that the file lacks */
	int64_t id = !g->of_stacks ? series : stack > 0 ? stack : INT64_MAX;
	const struct member *m = store_id_map_get(map, id);
	int e = 0;

	if (!m && g->of_stacks) {
		e = look_up(g, id);
		m = store_id_map_get(map, id);
	}
	if (m)
		*ret = m->group;
	return m ? 0 : e ? e : -ENOENT;
}

char **store_groups_names(const struct groups *g)
{
	char **names = xcalloc(MAX(g->n, (size_t)1), sizeof(*names));
	struct group_name *name, *next;

	HASH_ITER (hh, g->names, name, next)
		names[name->group] = name->text ? xstrdup(name->text) : NULL;
	return names;
}

void store_groups_done(struct groups *g)
{
	struct group_name *name, *next;

	HASH_ITER (hh, g->names, name, next) {
		HASH_DEL(g->names, name);
		free(name->text);
		free(name);
	}
	store_id_map_free(&g->series);
	store_id_map_free(&g->stacks);
	sqlite3_finalize(g->get_stack);
}
