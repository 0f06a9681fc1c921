/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration: looks which steps the database has, runs the others, and compares the tables with
 * what this hub needs.
 */
#include "hub/store/clickhouse/schema.h"

#include <stdlib.h>

#define LOOK_NS (30 * NSEC_PER_SEC) /* how long a look at the tables may take */

struct migration {
	struct ch_store *s;
	const struct ch_schema *x;
	bool dry_run;
	store_print_fn *print; /* may be NULL */
	void *arg;
	size_t n_ran;
	struct schema_found found;
	struct field_error *err;
};

/* ---- what is wrong with it ---- */

#define SEE " (docs/clickhouse.md, \"When the tables are not as they should be\")"

static int check_versions(const struct migration *m)
{
	uint32_t newest = store_ch_steps[store_ch_n_steps - 1].version, found = 0;

	for (size_t i = 0; i < m->found.n_versions; i++)
		found = MAX(found, m->found.versions[i]);
	if (found / SCHEMA_GENERATION <= newest / SCHEMA_GENERATION)
		return 0;
	return field_error_set(m->err, "store",
			       "the tables of the database %s have version %u, and this hub knows "
			       "%u: it needs a newer podflame",
			       m->x->database, found, newest);
}

/* Without its seed, the ids of new stacks and frames would be others. */
static int check_seed(const struct migration *m)
{
	if (store_ch_found_table(&m->found, SEED_TABLE) || !m->found.n_tables)
		return 0;
	return field_error_set(m->err, "store",
			       "the table %s." SEED_TABLE " is not there, but %s.%s is: somebody "
			       "has dropped it" SEE,
			       m->x->database, m->x->database, m->found.tables[0].name);
}

static int check_is_there(const struct migration *m, const char *name)
{
	if (store_ch_found_table(&m->found, name))
		return 0;
	return field_error_set(m->err, "store",
			       "the table %s.%s is not there, but the database says that it was "
			       "made: somebody has dropped it" SEE,
			       m->x->database, name);
}

static int check_columns(const struct migration *m, const struct schema_table *t, const char *name)
{
	for (size_t i = 0; i < t->n_columns; i++) {
		const struct schema_column *c = &t->columns[i];
		const char *type = store_ch_found_type(&m->found, name, c->name);

		if (!type)
			return field_error_set(m->err, "store",
					       "the table %s.%s has no column %s (%s): somebody "
					       "has altered it" SEE,
					       m->x->database, name, c->name, c->type);
		if (!streq(type, c->type))
			return field_error_set(m->err, "store",
					       "the column %s of the table %s.%s is %.80s, not %s: "
					       "somebody has altered it" SEE,
					       c->name, m->x->database, name, type, c->type);
	}
	return 0;
}

static int check_engine(const struct migration *m, const char *name, const char *want)
{
	const struct schema_found_table *t = store_ch_found_table(&m->found, name);

	if (!t || strstr(t->engine, want))
		return 0;
	return field_error_set(m->err, "store",
			       "the table %s.%s has the engine %.60s, not %s: it was made with "
			       "another store.clickhouse.cluster, or somebody has altered it" SEE,
			       m->x->database, name, t->engine, want);
}

/* Rows are equal by their key, and days are dropped by their partition. */
static int check_key(const struct migration *m, const char *name, const char *what,
		     const char *found, const char *want)
{
	if (streq(found, want))
		return 0;
	return field_error_set(m->err, "store",
			       "the %s of the table %s.%s is '%.120s', not '%s': somebody has "
			       "altered it" SEE,
			       what, m->x->database, name, found, want);
}

static int check_keys(const struct migration *m, const struct schema_table *t, const char *name)
{
	const struct schema_found_table *found = store_ch_found_table(&m->found, name);
	int r = check_key(m, name, "partition key", found->partition, t->partition);

	return r ? r : check_key(m, name, "sorting key", found->key, t->key);
}

static int check_table(const struct migration *m, const struct schema_table *t)
{
	_cleanup_free_ char *local = store_ch_local(m->x, t->name);
	int r = check_is_there(m, t->name);

	if (!r)
		r = check_is_there(m, local);
	if (!r)
		r = check_columns(m, t, t->name);
	if (!r)
		r = check_columns(m, t, local);
	return r ? r : check_keys(m, t, local);
}

/* What the steps that are recorded have made. */
static int check_tables(const struct migration *m)
{
	int r = 0;

	for (size_t i = 0; !r && i < store_ch_n_steps; i++) {
		const struct schema_step *step = &store_ch_steps[i];

		if (step->table && store_ch_found_version(&m->found, step->version))
			r = check_table(m, step->table);
	}
	return r;
}

/* Before a step: CREATE ... IF NOT EXISTS does nothing if there is another table of its name. */
static int check_engines(const struct migration *m)
{
	bool distributed = *m->x->cluster;
	int r = 0;

	for (size_t i = 0; !r && i < store_ch_n_steps; i++)
		if (store_ch_steps[i].table)
			r = check_engine(m, store_ch_steps[i].name,
					 distributed ? "Distributed" : "ReplacingMergeTree");
	return r;
}

static int check(const struct migration *m)
{
	int r = check_versions(m);

	if (!r)
		r = check_seed(m);
	if (!r)
		r = check_engines(m);
	return r ? r : check_tables(m);
}

/* ---- statements ---- */

/* Frees both texts. shown: what is printed; NULL: sql. */
static int run(struct migration *m, char *sql, char *shown)
{
	_cleanup_free_ char *line = xasprintf("%s;", shown ?: sql);
	int r = m->dry_run ? 0 : store_ch_run(m->s, sql, m->err);

	free(sql);
	free(shown);
	m->n_ran++;
	if (!r && m->print)
		m->print(line, m->arg);
	if (r == -EACCES && m->err) {
		_cleanup_free_ char *why = utf8_shorten(m->err->reason, 300);

		field_error_set(m->err, "store",
				"%s; run `podflame hub --migrate` as a user that may "
				"(docs/clickhouse.md)",
				why);
	}
	return r;
}

/* Only who is asked for the SQL gets the seed: other output may be in a log. */
static int make_seed(struct migration *m)
{
	uint8_t seed[sizeof(m->s->seed)];
	char text[2 * sizeof(seed) + 1];

	random_bytes(seed, sizeof(seed));
	hex_encode(seed, sizeof(seed), text);
	return run(m, store_ch_sql_seed(m->x, text),
		   m->dry_run ? NULL : store_ch_sql_seed(m->x, "SECRET"));
}

/*
 * The hub itself reads no view: it works with one that an older version has made. It tries again at
 * its next start. Who migrates by hand is told at once.
 */
static int view_refused(struct migration *m, const struct schema_step *step)
{
	_cleanup_free_ char *why = utf8_shorten(m->err ? m->err->reason : "", 300);

	if (m->print || !store_ch_found_table(&m->found, step->name)) {
		field_error_set(m->err, "store",
				"%s; this needs GRANT CREATE VIEW, DROP VIEW ON %s.%s", why,
				m->x->database, step->name);
		return -EACCES;
	}
	log_warn("the view %s.%s stays as an older podflame has made it: %s; this needs GRANT "
		 "CREATE VIEW, DROP VIEW ON %s.%s",
		 m->x->database, step->name, why, m->x->database, step->name);
	if (m->err)
		*m->err = (struct field_error){0};
	return 0;
}

static int run_step(struct migration *m, const struct schema_step *step)
{
	char *sql;
	int r = 0;

	for (unsigned i = 0; !r && (sql = store_ch_sql_step(m->x, step, i)); i++)
		r = run(m, sql, NULL);
	if (r == -EACCES && !step->table)
		return view_refused(m, step);
	return r ? r : run(m, store_ch_sql_record(m->x, step->version), NULL);
}

/* A view has no rows: one that somebody has dropped is made again. */
static bool is_done(const struct migration *m, const struct schema_step *step)
{
	return store_ch_found_version(&m->found, step->version) &&
	       (step->table || store_ch_found_table(&m->found, step->name));
}

static int run_steps(struct migration *m)
{
	int r = 0;

	if (!store_ch_found_table(&m->found, SEED_TABLE)) {
		r = run(m, store_ch_sql_database(m->x), NULL);
		if (!r)
			r = make_seed(m);
	}
	for (size_t i = 0; !r && i < store_ch_n_steps; i++)
		if (!is_done(m, &store_ch_steps[i]))
			r = run_step(m, &store_ch_steps[i]);
	return r;
}

/* ---- the configuration ---- */

static int alter(struct migration *m, const struct schema_table *t, const char *change,
		 const char *text)
{
	return run(m, store_ch_sql_alter(m->x, t, change, text), NULL);
}

/* The comment comes last: if a statement before it fails, all of them run again. */
static int alter_ttl(struct migration *m, const struct schema_table *t)
{
	const char *ttl = m->x->ttl[t->keep];
	_cleanup_free_ char *modify = xasprintf("MODIFY TTL %s", ttl);
	int r = 0;

	if (*ttl && t->keep == KEEP_WINDOW)
		r = alter(m, t,
			  m->x->drops_parts ? "MODIFY SETTING ttl_only_drop_parts = 1"
					    : "MODIFY SETTING ttl_only_drop_parts = 0",
			  NULL);
	if (!r)
		r = alter(m, t, *ttl ? modify : "REMOVE TTL", NULL);
	return r ? r : alter(m, t, "MODIFY COMMENT ", ttl);
}

/* Gives a table that was there before the TTL and the policy of the configuration. */
static int alter_table(struct migration *m, const struct schema_table *t,
		       const struct schema_found_table *found)
{
	const char *policy = m->x->storage_policy;
	int r = 0;

	if (!streq(found->comment, m->x->ttl[t->keep]))
		r = alter_ttl(m, t);
	if (!r && *policy && !streq(found->policy, policy))
		r = alter(m, t, "MODIFY SETTING storage_policy = ", policy);
	return r;
}

static int alter_tables(struct migration *m)
{
	int r = 0;

	for (size_t i = 0; !r && i < store_ch_n_steps; i++) {
		const struct schema_table *t = store_ch_steps[i].table;
		_cleanup_free_ char *local = store_ch_local(m->x, store_ch_steps[i].name);
		const struct schema_found_table *found = store_ch_found_table(&m->found, local);

		if (t && found)
			r = alter_table(m, t, found);
	}
	return r;
}

/* ---- all of it ---- */

static int read_seed(const struct migration *m)
{
	const struct schema_found_table *t = store_ch_found_table(&m->found, SEED_TABLE);
	uint8_t seed[sizeof(m->s->seed)];
	size_t n = 0;

	if (t && !hex_decode(t->comment, sizeof(seed), seed, &n) && n == sizeof(seed)) {
		/*
		 * The writer may read it now. It only changes if somebody has changed the table:
		 * then the same stack has another id from now on, which costs its room.
		 */
		if (memcmp(m->s->seed, seed, n) != 0)
			memcpy(m->s->seed, seed, n);
		return 0;
	}
	return field_error_set(m->err, "store",
			       "the comment of the table %s." SEED_TABLE " is not the one that "
			       "podflame wrote: somebody has altered it" SEE,
			       m->x->database);
}

/* What a dry run prints if it cannot ask: all that a database without tables needs. */
static int show_fresh(struct migration *m)
{
	_cleanup_free_ char *why = xasprintf("-- %s: this is for a database without tables",
					     m->err ? m->err->reason : "no answer");

	if (m->print)
		m->print(why, m->arg);
	return run_steps(m);
}

static int look(struct migration *m)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + LOOK_NS};

	return store_ch_look(m->s, &l, &m->found, m->err);
}

static int migrate(struct migration *m)
{
	int r = store_ch_check_version(m->s, m->err);

	if (r == -ENOTCONN && m->dry_run)
		return show_fresh(m);
	if (!r)
		r = look(m);
	if (!r)
		r = check(m);
	if (!r)
		r = run_steps(m);
	if (!r)
		r = alter_tables(m);
	if (r || m->dry_run)
		return r;
	if (m->n_ran)
		r = look(m);
	if (!r)
		r = check(m);
	return r ? r : read_seed(m);
}

int store_ch_check_tables(struct ch_store *s, const struct ch_limits *l, struct field_error *reterr)
{
	struct migration m = {.s = s, .x = s->schema, .err = reterr};
	int r = store_ch_look(s, l, &m.found, reterr);

	if (!r)
		r = check(&m);
	store_ch_found_done(&m.found);
	return r;
}

int store_ch_migrate_with(struct ch_store *s, bool dry_run, store_print_fn *print, void *arg,
			  struct field_error *reterr)
{
	struct migration m = {.s = s,
			      .x = s->schema,
			      .dry_run = dry_run,
			      .print = print,
			      .arg = arg,
			      .err = reterr};
	int r = migrate(&m);

	store_ch_found_done(&m.found);
	return r;
}

int store_ch_migrate(struct ch_store *s, struct field_error *reterr)
{
	return store_ch_migrate_with(s, false, NULL, NULL, reterr);
}
