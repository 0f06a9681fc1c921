/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clusters other than the hubs' own. The table remembers them: if a cluster is not registered
 * any more, its profiles must not become those of the hubs' own cluster. A name is in the table
 * before the hub takes the first profile of its cluster.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define MAX_CLUSTERS 10000 /* of one database */

void store_ch_clusters_begin(struct ch_store *s, const struct store_config *c)
{
	struct ch_clusters *own = xcalloc(1, sizeof(*own));

	own->names = xcalloc(c->n_clusters + 1, sizeof(*own->names));
	for (size_t i = 0; i < c->n_clusters; i++)
		own->names[own->n++] = xstrdup(c->clusters[i]);
	s->registered = own;
	atomic_store(&s->clusters, own);
	s->own_cluster = xstrdup(c->own_cluster ?: "");
}

static void clusters_free(struct ch_clusters *c)
{
	for (size_t i = 0; c && i < c->n; i++)
		free(c->names[i]);
	if (c)
		free(c->names);
	free(c);
}

void store_ch_clusters_end(struct ch_store *s)
{
	struct ch_clusters *now = atomic_load(&s->clusters);

	if (now != s->registered)
		clusters_free(now);
	clusters_free(s->registered);
	free(s->own_cluster);
}

static bool has(const struct ch_clusters *c, const char *name)
{
	for (size_t i = 0; i < c->n; i++)
		if (streq(c->names[i], name))
			return true;
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int take_name(struct ch_rows *rows, void *arg)
{
	struct ch_clusters *c = arg;
	_cleanup_free_ char *name = store_ch_get_str(rows);

	if (rows->failed || has(c, name))
		return 0;
	c->names = xrealloc(c->names, (c->n + 2) * sizeof(*c->names));
	c->names[c->n++] = TAKE_PTR(name);
	return 0;
}

static int read_table(struct ch_store *s, const struct ch_limits *l, struct ch_clusters *ret,
		      struct field_error *reterr)
{
	struct ch_sql q = {0};

	store_ch_text(&q, "SELECT DISTINCT name FROM clusters");
	return store_ch_each(s, &q, l, MAX_CLUSTERS, take_name, ret, reterr);
}

static int take_any(struct ch_rows *rows, void *arg)
{
	(void)store_ch_get_u8(rows);
	*(bool *)arg = true;
	return 0;
}

/* Whether the hubs' own cluster has, or had, this name: there are profiles of it. */
static int is_own(struct ch_store *s, const char *name, const struct ch_limits *l, bool *ret,
		  struct field_error *reterr)
{
	struct ch_sql q = {0};

	store_ch_text(&q, "SELECT toUInt8(1) FROM windows WHERE pod_cluster=");
	store_ch_str(&q, name);
	store_ch_text(&q, " LIMIT 1");
	return store_ch_each(s, &q, l, 1, take_any, ret, reterr);
}

static int put(struct ch_store *s, const char *name, const struct ch_limits *l,
	       struct field_error *reterr)
{
	_cleanup_buf_ struct buf row = {0};
	bool own = false;
	int r = is_own(s, name, l, &own, reterr);

	if (r)
		return r;
	if (own)
		return field_error_set(reterr, "clusters",
				       "the store has profiles of the hub's own cluster under the "
				       "name %.100s: register the other cluster under another name",
				       name);
	store_ch_put_str(&row, name);
	return store_ch_insert(s, "clusters (name)", &row, reterr);
}

int store_ch_clusters_open(struct ch_store *s, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + 30 * NSEC_PER_SEC};
	struct ch_clusters *all = xcalloc(1, sizeof(*all));
	int r = read_table(s, &l, all, reterr);

	for (size_t i = 0; !r && i < s->registered->n; i++) {
		if (!has(all, s->registered->names[i]))
			r = put(s, s->registered->names[i], &l, reterr);
	}
	if (!r)
		r = read_table(s, &l, all, reterr);
	if (!r && has(all, s->own_cluster))
		r = field_error_set(reterr, "cluster_name",
				    "%.100s was registered as another cluster: the store has its "
				    "profiles",
				    s->own_cluster);
	if (r) {
		clusters_free(all);
		return r;
	}
	if (all->n)
		qsort(all->names, all->n, sizeof(*all->names), by_name);
	/* readers may use the list that is replaced, so it stays until the end */
	if (atomic_load(&s->clusters) == s->registered)
		atomic_store(&s->clusters, all);
	else
		clusters_free(all);
	return 0;
}

char *const *store_ch_clusters(void *sink, size_t *ret_n)
{
	struct ch_store *s = sink;
	const struct ch_clusters *c = atomic_load(&s->clusters);

	*ret_n = c->n;
	return c->names;
}
