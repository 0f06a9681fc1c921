/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the rows of a table lie: in a cluster of ClickHouse, in another table on each server. What
 * only reads and inserts asks the table itself, and need not know.
 */
#include "hub/store/clickhouse/schema.h"

const char *store_ch_suffix(const struct ch_store *s)
{
	return *s->schema->cluster ? "_local" : "";
}

/* The configuration's check allows only letters, digits, '_' and '-' in the name. */
void store_ch_put_change(struct ch_where *w, const struct ch_store *s, const char *statement,
			 const char *table)
{
	store_ch_text(&w->sql, statement);
	store_ch_text(&w->sql, table);
	store_ch_text(&w->sql, store_ch_suffix(s));
	if (!*s->schema->cluster)
		return;
	store_ch_text(&w->sql, " ON CLUSTER `");
	store_ch_text(&w->sql, s->schema->cluster);
	store_ch_text(&w->sql, "`");
}

void store_ch_put_system(struct ch_where *w, const struct ch_store *s, const char *table)
{
	if (*s->schema->cluster) {
		store_ch_text(&w->sql, "cluster('");
		store_ch_text(&w->sql, s->schema->cluster);
		store_ch_text(&w->sql, "', system.");
		store_ch_text(&w->sql, table);
		store_ch_text(&w->sql, ")");
	} else {
		store_ch_text(&w->sql, "system.");
		store_ch_text(&w->sql, table);
	}
}
