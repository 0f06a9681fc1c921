/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQL of the tables. A statement is a text with words in braces, as {db}, which become names of
 * the configuration. Braces around other words stay: ClickHouse has macros such as {shard}.
 */
#include "hub/store/clickhouse/schema.h"

#include <stdlib.h>

/* ---- words and names ---- */

struct word {
	const char *name, *text;
};

/* Returns the word that begins at the brace s; NULL: none of these. */
static const struct word *word_at(const char *s, const struct word *words, size_t n)
{
	size_t bytes = strcspn(s + 1, "}");

	for (size_t i = 0; s[bytes + 1] && i < n; i++)
		if (strlen(words[i].name) == bytes && !strncmp(words[i].name, s + 1, bytes))
			return &words[i];
	return NULL;
}

static char *fill_in(const char *template, const struct word *words, size_t n)
{
	struct buf b = {0};

	for (const char *s = template; *s;) {
		const struct word *w = *s == '{' ? word_at(s, words, n) : NULL;

		if (w) {
			buf_puts(&b, w->text);
			s += strlen(w->name) + 2;
		} else {
			buf_putc(&b, *s++);
		}
	}
	return buf_steal(&b);
}

static char *in_quotes(char quote, const char *text)
{
	struct buf b = {0};

	buf_putc(&b, quote);
	for (; *text; text++) {
		if (*text == quote || *text == '\\')
			buf_putc(&b, '\\');
		buf_putc(&b, *text);
	}
	buf_putc(&b, quote);
	return buf_steal(&b);
}

static char *identifier(const char *name)
{
	return in_quotes('`', name);
}

static char *literal(const char *text)
{
	return in_quotes('\'', text);
}

/* Names of the configuration become a part of SQL, and of a path in ZooKeeper. */
static int check_name(const char *key, const char *name, const char *more,
		      struct field_error *reterr)
{
	_cleanup_free_ char *allowed =
		xasprintf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			  "0123456789_%s",
			  more);

	if (strlen(name) <= 64 && !name[strspn(name, allowed)])
		return 0;
	return field_error_set(reterr, key,
			       "'%.80s' is no name: up to 64 letters, digits and _%s%s", name,
			       *more ? " or " : "", more);
}

static bool in_cluster(const struct ch_schema *x)
{
	return *x->cluster;
}

char *store_ch_local(const struct ch_schema *x, const char *table)
{
	return xasprintf("%s%s", table, in_cluster(x) ? "_local" : "");
}

static char *on_cluster(const struct ch_schema *x)
{
	_cleanup_free_ char *name = identifier(x->cluster);

	return in_cluster(x) ? xasprintf(" ON CLUSTER %s", name) : xstrdup("");
}

/* The text with {db} and {on}, and with up to two words more. */
static char *statement(const struct ch_schema *x, const char *template, struct word a,
		       struct word b)
{
	_cleanup_free_ char *db = identifier(x->database), *on = on_cluster(x);
	const struct word words[] = {{"db", db}, {"on", on}, a, b};

	return fill_in(template, words, ARRAY_SIZE(words));
}

#define NO_WORD ((struct word){"", ""})

/* ---- how long rows are kept ---- */

#define FOR_EVER UINT64_MAX

/*
 * The hub deletes at the retention, which counts at most from a day after the newest window. The
 * engine deletes by its own clock, so it does so later: for the time when no hub runs.
 */
#define BACKSTOP_DAYS 2

static uint64_t seconds_of(uint64_t retention_ns)
{
	return retention_ns ? MAX(retention_ns / NSEC_PER_SEC, 1ul) : FOR_EVER;
}

static void put_end(struct buf *b, uint64_t keep_s)
{
	if (keep_s == FOR_EVER)
		buf_puts(b, "toDateTime(4294967295)");
	else
		buf_printf(b, "time + toIntervalSecond(%lu)", keep_s + BACKSTOP_DAYS * 86400UL);
}

/* is: "COLUMN = " */
static void put_ends(struct buf *b, const char *is, const struct named_duration *keep, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *value = literal(keep[i].name);

		buf_printf(b, "%s%s, ", is, value);
		put_end(b, seconds_of(keep[i].ns));
		buf_puts(b, ", ");
	}
}

static char *ttl_of_windows(const struct store_config *c)
{
	struct buf b = {0};

	if (c->n_event_retention + c->n_ns_retention) {
		buf_puts(&b, "multiIf(");
		put_ends(&b, "unverified = '' AND pod_ns = ", c->ns_retention, c->n_ns_retention);
		put_ends(&b, "profile_event_type = ", c->event_retention, c->n_event_retention);
		put_end(&b, seconds_of(c->retention_ns));
		buf_puts(&b, ")");
	} else if (c->retention_ns) {
		put_end(&b, seconds_of(c->retention_ns));
	}
	return buf_steal(&b);
}

/* A name stays until after the last window that has it. */
static char *ttl_of_names(const struct store_config *c)
{
	uint64_t longest_s = seconds_of(c->retention_ns);

	for (size_t i = 0; i < c->n_event_retention; i++)
		longest_s = MAX(longest_s, seconds_of(c->event_retention[i].ns));
	for (size_t i = 0; i < c->n_ns_retention; i++)
		longest_s = MAX(longest_s, seconds_of(c->ns_retention[i].ns));
	return longest_s == FOR_EVER ? xstrdup("")
				     : xasprintf("last + toIntervalDay(%lu)",
						 longest_s / 86400 + BACKSTOP_DAYS + 2);
}

struct ch_schema *store_ch_schema_free(struct ch_schema *x)
{
	if (!x)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(x->ttl); i++)
		free(x->ttl[i]);
	free(x->database);
	free(x->cluster);
	free(x->storage_policy);
	free(x);
	return NULL;
}

int store_ch_schema_new(const struct store_config *c, struct ch_schema **ret,
			struct field_error *reterr)
{
	const char *database = c->database ?: "profile", *cluster = c->cluster ?: "",
		   *policy = c->storage_policy ?: "";
	struct ch_schema *x;
	int r = check_name("store.clickhouse.database", database, "", reterr);

	if (!r && (!*database || (*database >= '0' && *database <= '9')))
		r = field_error_set(reterr, "store.clickhouse.database",
				    "'%s' does not begin with a letter or _", database);
	if (!r)
		r = check_name("store.clickhouse.cluster", cluster, "-", reterr);
	if (!r)
		r = check_name("store.clickhouse.storage_policy", policy, "-", reterr);
	if (r)
		return r;
	*ret = x = xcalloc(1, sizeof(*x));
	x->database = xstrdup(database);
	x->cluster = xstrdup(cluster);
	x->storage_policy = xstrdup(policy);
	x->ttl[KEEP_WINDOW] = ttl_of_windows(c);
	x->ttl[KEEP_NAME] = ttl_of_names(c);
	x->ttl[KEEP_ALWAYS] = xstrdup("");
	x->drops_parts = !c->n_event_retention && !c->n_ns_retention;
	return 0;
}

/* ---- tables ---- */

static char *columns_of(const struct schema_table *t)
{
	struct buf b = {0};

	for (size_t i = 0; i < t->n_columns; i++) {
		const struct schema_column *c = &t->columns[i];

		buf_printf(&b, "%s`%s` %s", i ? ", " : "", c->name, c->type);
		if (*c->codec)
			buf_printf(&b, " CODEC(%s)", c->codec);
	}
	buf_puts(&b, t->indexes);
	return buf_steal(&b);
}

static char *engine_of(const struct ch_schema *x, const struct schema_table *t)
{
	if (!in_cluster(x))
		return xasprintf("ReplacingMergeTree(%s)", t->newest);
	return xasprintf("ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/%s/%s', "
			 "'{replica}'%s%s)",
			 x->database, t->name, *t->newest ? ", " : "", t->newest);
}

static char *order_of(const struct schema_table *t)
{
	bool many = strchr(t->key, ',');

	return xasprintf("%s%s%sORDER BY %s%s%s", *t->partition ? "PARTITION BY " : "",
			 t->partition, *t->partition ? " " : "", many ? "(" : "", t->key,
			 many ? ")" : "");
}

/* " TTL ... SETTINGS ... COMMENT ..." */
static char *tail_of(const struct ch_schema *x, const struct schema_table *t)
{
	const char *ttl = x->ttl[t->keep];
	_cleanup_free_ char *policy = literal(x->storage_policy), *comment = literal(ttl);
	bool drops = t->keep == KEEP_WINDOW && *ttl, has_policy = *x->storage_policy;
	struct buf b = {0};

	if (*ttl)
		buf_printf(&b, " TTL %s", ttl);
	buf_printf(&b, " SETTINGS index_granularity = %u", t->granularity);
	if (drops)
		buf_printf(&b, ", ttl_only_drop_parts = %d", x->drops_parts);
	if (has_policy)
		buf_printf(&b, ", storage_policy = %s", policy);
	buf_printf(&b, " COMMENT %s", comment);
	return buf_steal(&b);
}

static char *sql_table(const struct ch_schema *x, const struct schema_table *t)
{
	_cleanup_free_ char *local = store_ch_local(x, t->name), *columns = columns_of(t),
			    *engine = engine_of(x, t), *tail = tail_of(x, t), *order = order_of(t),
			    *db = identifier(x->database), *on = on_cluster(x);
	const struct word words[] = {
		{"db", db},	    {"on", on},	      {"local", local}, {"columns", columns},
		{"engine", engine}, {"order", order}, {"tail", tail},
	};

	return fill_in("CREATE TABLE IF NOT EXISTS {db}.{local}{on} ({columns}) ENGINE = {engine} "
		       "{order}{tail}",
		       words, ARRAY_SIZE(words));
}

/* The table that hands statements on to the shards. */
static char *sql_distributed(const struct ch_schema *x, const struct schema_table *t)
{
	_cleanup_free_ char *cluster = literal(x->cluster), *db = literal(x->database),
			    *args = xasprintf("%s, %s, '%s_local', %s", cluster, db, t->name,
					      t->shard);

	return statement(x,
			 "CREATE TABLE IF NOT EXISTS {db}.{name}{on} AS {db}.{name}_local "
			 "ENGINE = Distributed({args})",
			 (struct word){"name", t->name}, (struct word){"args", args});
}

char *store_ch_sql_step(const struct ch_schema *x, const struct schema_step *step, unsigned i)
{
	if (i == 0 && step->table)
		return sql_table(x, step->table);
	if (i == 0 && step->sql)
		return statement(x, step->sql, NO_WORD, NO_WORD);
	return i == 1 && step->table && in_cluster(x) ? sql_distributed(x, step->table) : NULL;
}

char *store_ch_sql_database(const struct ch_schema *x)
{
	return statement(x, "CREATE DATABASE IF NOT EXISTS {db}{on}", NO_WORD, NO_WORD);
}

char *store_ch_sql_seed(const struct ch_schema *x, const char *seed)
{
	_cleanup_free_ char *engine =
		in_cluster(x) ? xasprintf("ReplicatedMergeTree('/clickhouse/tables/%s/" SEED_TABLE
					  "', '{shard}-{replica}')",
					  x->database)
			      : xstrdup("MergeTree");

	return statement(x,
			 "CREATE TABLE IF NOT EXISTS {db}." SEED_TABLE "{on} (version UInt32, "
			 "made DateTime) ENGINE = {engine} ORDER BY version COMMENT '{seed}'",
			 (struct word){"engine", engine}, (struct word){"seed", seed});
}

char *store_ch_sql_record(const struct ch_schema *x, uint32_t version)
{
	_cleanup_free_ char *number = xasprintf("%u", version);

	return statement(x,
			 "INSERT INTO {db}." SEED_TABLE " (version, made) "
			 "SELECT {version}, now()",
			 (struct word){"version", number}, NO_WORD);
}

char *store_ch_sql_versions(const struct ch_schema *x)
{
	return statement(x, "SELECT DISTINCT version FROM {db}." SEED_TABLE, NO_WORD, NO_WORD);
}

char *store_ch_sql_alter(const struct ch_schema *x, const struct schema_table *t,
			 const char *change, const char *text)
{
	_cleanup_free_ char *local = store_ch_local(x, t->name), *quoted = literal(text ?: ""),
			    *all = xasprintf("%s%s", change, text ? quoted : "");

	return statement(x, "ALTER TABLE {db}.{local}{on} {change}", (struct word){"local", local},
			 (struct word){"change", all});
}
