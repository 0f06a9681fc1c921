/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clusters other than the hub's own. The file remembers them: if a cluster is not registered
 * any more, its profiles must not become those of the hub's own cluster.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

bool store_clusters_has(const struct sqlite_store *s, const char *name)
{
	for (size_t i = 0; i < s->n_clusters; i++)
		if (streq(s->clusters[i], name))
			return true;
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void store_clusters_begin(struct sqlite_store *s, const char *const *names, size_t n)
{
	s->clusters = xcalloc(n + 1, sizeof(*s->clusters));
	for (size_t i = 0; i < n; i++)
		if (!store_clusters_has(s, names[i]))
			s->clusters[s->n_clusters++] = xstrdup(names[i]);
}

void store_clusters_end(struct sqlite_store *s)
{
	for (size_t i = 0; i < s->n_clusters; i++)
		free(s->clusters[i]);
	free(s->clusters);
	free(s->own_cluster);
}

/* Runs a query of one name. 1: it returns a row; 0: none; else a negative errno. */
static int ask(sqlite3 *db, const char *sql, const char *name)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	int rc, r = store_sq_errno(sqlite3_prepare_v2(db, sql, -1, &st, NULL));

	if (r)
		return r;
	sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
	rc = sqlite3_step(st);
	return rc == SQLITE_ROW ? 1 : store_sq_errno(rc);
}

/*
 * Adds the name to the file. If the file does not have it and has profiles with it, these are of
 * the hub's own cluster.
 */
static int put(sqlite3 *db, const char *name, struct field_error *reterr)
{
	int r = ask(db, "SELECT 1 FROM clusters WHERE name=?", name);

	if (r)
		return MIN(r, 0);
	r = ask(db,
		"SELECT 1 FROM tags WHERE key=(SELECT id FROM strings WHERE s='pod_cluster') AND "
		"value=(SELECT id FROM strings WHERE s=?) LIMIT 1",
		name);
	if (r == 1)
		return field_error_set(reterr, "clusters",
				       "the store has profiles of the hub's own cluster under the "
				       "name %.100s: register the other cluster under another name",
				       name);
	return r ?: ask(db, "INSERT INTO clusters VALUES(?)", name);
}

/* Takes the clusters of the file. */
static int take(struct sqlite_store *s, struct field_error *reterr)
{
	_cleanup_(store_sq_finalize) sqlite3_stmt *st = NULL;
	size_t cap = s->n_clusters;
	int rc = SQLITE_OK, r = store_sq_errno(sqlite3_prepare_v2(
				    s->writer, "SELECT name FROM clusters", -1, &st, NULL));

	while (!r && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(st, 0);

		if (str_equal(name, s->own_cluster))
			return field_error_set(reterr, "cluster_name",
					       "%.100s was registered as another cluster: the "
					       "store has its profiles",
					       name);
		if (store_clusters_has(s, name))
			continue;
		/* readers use the list, so it is not changed any more */
		if (s->clusters_known)
			return field_error_set(reterr, "clusters",
					       "the store has profiles of the cluster %.100s: "
					       "restart the hub",
					       name);
		GROW(s->clusters, s->n_clusters, cap);
		s->clusters[s->n_clusters++] = xstrdup(name);
	}
	return r ?: store_sq_errno(rc);
}

int store_clusters_open(struct sqlite_store *s, struct field_error *reterr)
{
	int r = 0;

	for (size_t i = 0; !r && i < s->n_clusters; i++)
		r = put(s->writer, s->clusters[i], reterr);
	return r ?: take(s, reterr);
}

void store_clusters_fix(struct sqlite_store *s)
{
	s->clusters_known = true;
	if (s->n_clusters)
		qsort(s->clusters, s->n_clusters, sizeof(*s->clusters), by_name);
}

char *const *store_sqlite_clusters(void *sink, size_t *ret_n)
{
	const struct sqlite_store *s = sink;

	*ret_n = s->n_clusters;
	return s->clusters;
}
