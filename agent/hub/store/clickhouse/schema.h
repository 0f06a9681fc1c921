/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to schema*.c: which tables there are (schema_steps.c), the SQL that makes them for a
 * configuration (schema_sql.c), and what runs it (schema.c).
 */
#pragma once

#include "hub/store/clickhouse/clickhouse.h"

struct schema_column {
	const char *name, *type; /* type: as ClickHouse writes it, because it is compared */
	const char *codec;	 /* "": the engine's own */
};

/* What says how long a row stays. */
enum schema_keep {
	KEEP_WINDOW, /* its event, its namespace and its time */
	KEEP_NAME,   /* its column `last` */
	KEEP_ALWAYS,
};

struct schema_table {
	const char *name;
	const struct schema_column *columns;
	size_t n_columns;
	const char *indexes; /* after the columns; "": none */
	const char *newest;  /* of equal rows, the greatest of this column stays; "": any */
	/* as ClickHouse writes them, because they are compared; rows with an equal key are equal */
	const char *partition, *key; /* partition "": there are none */
	unsigned granularity; /* rows that ClickHouse reads at least, wherever it finds one */
	const char *shard;    /* in a cluster: its hash says which shard has a row */
	enum schema_keep keep;
};

/*
 * A step of the migration: a table, or SQL, or neither if a later step does it anew: then it is
 * only recorded, for older hubs. A step may run again, from several hubs at once, and while older
 * hubs write: it only adds, or makes a view anew, and changes nothing if it ran before.
 */
struct schema_step {
	uint32_t version;
	const char *name;		  /* of what it makes */
	const struct schema_table *table; /* NULL: sql */
	const char *sql;		  /* NULL, and no table: a later step does it */
};
extern const struct schema_step store_ch_steps[];
extern const size_t store_ch_n_steps;

/*
 * A hub works with tables of a later version than it knows, because steps only add. A step with
 * which older hubs cannot work begins a new thousand: they refuse its tables.
 */
#define SCHEMA_GENERATION 1000

/* What the configuration says of the tables. */
struct ch_schema {
	char *database, *cluster, *storage_policy; /* checked; cluster, storage_policy "": none */
	/*
	 * An expression for each enum; "": for ever. It is also the comment of the tables, for a
	 * comparison, because ClickHouse would write the expression in another way.
	 */
	char *ttl[KEEP_ALWAYS + 1];
	bool drops_parts; /* all windows are kept equally long, so whole parts are deleted */
};
/* The name under which the rows of a table lie: another one in a cluster. The caller frees it. */
char *store_ch_local(const struct ch_schema *x, const char *table);

/* ---- SQL; the caller frees it ---- */
#define SEED_TABLE "podflame"
char *store_ch_sql_database(const struct ch_schema *x);
char *store_ch_sql_seed(const struct ch_schema *x, const char *seed);
/* Statement i of a step; NULL: it has no more. */
char *store_ch_sql_step(const struct ch_schema *x, const struct schema_step *step, unsigned i);
char *store_ch_sql_record(const struct ch_schema *x, uint32_t version);
char *store_ch_sql_versions(const struct ch_schema *x);
/* "ALTER TABLE ... CHANGE": of a table's rows. text: follows quoted; NULL: nothing does. */
char *store_ch_sql_alter(const struct ch_schema *x, const struct schema_table *t,
			 const char *change, const char *text);

/* ---- schema_found.c ---- */
/* What the database has of the tables of the steps. */
struct schema_found_table {
	char *name, *engine, *policy, *comment, *partition, *key;
};
struct schema_found_column {
	char *table, *name, *type;
};
struct schema_found {
	uint32_t *versions;
	struct schema_found_table *tables;
	struct schema_found_column *columns;
	size_t n_versions, n_tables, n_columns, cap_versions, cap_tables, cap_columns;
};
/* Looks, in place of what was found before. l: of all its statements together. */
int store_ch_look(struct ch_store *s, const struct ch_limits *l, struct schema_found *ret,
		  struct field_error *reterr);
void store_ch_found_done(struct schema_found *f);
bool store_ch_found_version(const struct schema_found *f, uint32_t version);
const struct schema_found_table *store_ch_found_table(const struct schema_found *f,
						      const char *name);
/* NULL: the table has no such column. */
const char *store_ch_found_type(const struct schema_found *f, const char *table,
				const char *column);
