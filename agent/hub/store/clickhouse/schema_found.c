/* SPDX-License-Identifier: Apache-2.0 */
/* What the database has of the tables of the steps. */
#include "hub/store/clickhouse/schema.h"

#include <stdlib.h>

struct looking {
	struct ch_store *s;
	const struct ch_limits *limits;
	struct schema_found *found;
	struct field_error *err;
};

static void forget_tables(struct schema_found *f)
{
	for (size_t i = 0; i < f->n_tables; i++) {
		free(f->tables[i].name);
		free(f->tables[i].engine);
		free(f->tables[i].policy);
		free(f->tables[i].comment);
		free(f->tables[i].partition);
		free(f->tables[i].key);
	}
	f->n_tables = 0;
}

void store_ch_found_done(struct schema_found *f)
{
	forget_tables(f);
	for (size_t i = 0; i < f->n_columns; i++) {
		free(f->columns[i].table);
		free(f->columns[i].name);
		free(f->columns[i].type);
	}
	free(f->versions);
	free(f->tables);
	free(f->columns);
	*f = (struct schema_found){0};
}

const struct schema_found_table *store_ch_found_table(const struct schema_found *f,
						      const char *name)
{
	for (size_t i = 0; i < f->n_tables; i++)
		if (streq(f->tables[i].name, name))
			return &f->tables[i];
	return NULL;
}

const char *store_ch_found_type(const struct schema_found *f, const char *table, const char *column)
{
	for (size_t i = 0; i < f->n_columns; i++)
		if (streq(f->columns[i].table, table) && streq(f->columns[i].name, column))
			return f->columns[i].type;
	return NULL;
}

bool store_ch_found_version(const struct schema_found *f, uint32_t version)
{
	for (size_t i = 0; i < f->n_versions; i++)
		if (f->versions[i] == version)
			return true;
	return false;
}

static void take_version(struct schema_found *f, struct ch_rows *rows)
{
	GROW(f->versions, f->n_versions, f->cap_versions);
	f->versions[f->n_versions++] = store_ch_get_u32(rows);
}

static void take_table(struct schema_found *f, struct ch_rows *rows)
{
	struct schema_found_table *t;

	GROW(f->tables, f->n_tables, f->cap_tables);
	t = &f->tables[f->n_tables++];
	t->name = store_ch_get_str(rows);
	t->engine = store_ch_get_str(rows);
	t->policy = store_ch_get_str(rows);
	t->comment = store_ch_get_str(rows);
	t->partition = store_ch_get_str(rows);
	t->key = store_ch_get_str(rows);
}

static void take_column(struct schema_found *f, struct ch_rows *rows)
{
	struct schema_found_column *c;

	GROW(f->columns, f->n_columns, f->cap_columns);
	c = &f->columns[f->n_columns++];
	c->table = store_ch_get_str(rows);
	c->name = store_ch_get_str(rows);
	c->type = store_ch_get_str(rows);
}

/* Asks the database `system`, because the store's own may not be there yet. Frees q. */
static int ask(struct looking *m, struct ch_sql *q,
	       void (*take)(struct schema_found *f, struct ch_rows *rows))
{
	struct http_answer a = {0};
	struct ch_rows rows;
	int r;

	q->database = "system";
	r = store_ch_ask(m->s, q, m->limits, &a, &rows, m->err);
	while (!r && store_ch_more(&rows))
		take(m->found, &rows);
	if (!r && rows.failed) {
		field_error_set(m->err, "store", "ClickHouse's answer ends early");
		r = -EIO;
	}
	http_answer_done(&a);
	store_ch_sql_done(q);
	return r;
}

/* " WHERE database=... AND COLUMN IN (...)": the tables of the steps */
static void put_tables(const struct looking *m, struct ch_sql *q, const char *column)
{
	const struct ch_schema *x = m->s->schema;

	store_ch_text(q, " WHERE database=");
	store_ch_str(q, x->database);
	store_ch_text(q, " AND ");
	store_ch_text(q, column);
	store_ch_text(q, " IN (");
	store_ch_str(q, SEED_TABLE);
	for (size_t i = 0; i < store_ch_n_steps; i++) {
		_cleanup_free_ char *local = store_ch_local(x, store_ch_steps[i].name);

		store_ch_text(q, ",");
		store_ch_str(q, store_ch_steps[i].name);
		store_ch_text(q, ",");
		store_ch_str(q, local);
	}
	store_ch_text(q, ")");
}

static int look_at_tables(struct looking *m)
{
	struct ch_sql q = {0};

	store_ch_text(&q,
		      "SELECT name, engine, storage_policy, comment, partition_key, sorting_key "
		      "FROM tables");
	put_tables(m, &q, "name");
	return ask(m, &q, take_table);
}

static int look_at_columns(struct looking *m)
{
	struct ch_sql q = {0};

	store_ch_text(&q, "SELECT table, name, type FROM columns");
	put_tables(m, &q, "table");
	return ask(m, &q, take_column);
}

static int look_at_versions(struct looking *m)
{
	_cleanup_free_ char *sql = store_ch_sql_versions(m->s->schema);
	struct ch_sql q = {0};

	store_ch_text(&q, sql);
	return ask(m, &q, take_version);
}

/*
 * Versions before tables: a step is recorded after its table is made, so a table that is not there
 * then was dropped, however many hubs migrate now.
 */
int store_ch_look(struct ch_store *s, const struct ch_limits *l, struct schema_found *ret,
		  struct field_error *reterr)
{
	struct looking looking = {s, l, ret, reterr}, *m = &looking;
	int r;

	store_ch_found_done(ret);
	r = look_at_tables(m);
	if (!r && store_ch_found_table(m->found, SEED_TABLE))
		r = look_at_versions(m);
	forget_tables(m->found);
	if (!r)
		r = look_at_tables(m);
	return r ? r : look_at_columns(m);
}
