/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens what the configuration asks for: a store and the uploaded symbols, or the way to the
 * central hub. A key that names a place or a user, and would have no effect, is refused.
 */
#include "hub/stores.h"

#include "hub/data_dir.h"
#include "hub/store/uploads.h"

/* ---- keys without effect ---- */

struct unset_key {
	const char *key, *value;
};

static int check_unset(const struct unset_key *keys, size_t n, const char *kind,
		       struct field_error *reterr)
{
	for (size_t i = 0; i < n; i++)
		if (*keys[i].value)
			return field_error_set(reterr, keys[i].key, "it is only for store.kind %s",
					       kind);
	return 0;
}

static int check_keys(const struct config *c, struct field_error *reterr)
{
	bool otlp = streq(c->store_kind, "otlp"), clickhouse = streq(c->store_kind, "clickhouse");
	const struct unset_key both[] = {{"store.url", c->store_url},
					 {"store.ca_file", c->store_ca_file}},
			       of_otlp[] = {{"store.token_file", c->store_token_file}},
			       of_clickhouse[] = {
				       {"store.clickhouse.user", c->clickhouse_user},
				       {"store.clickhouse.password_file",
					c->clickhouse_password_file},
				       {"store.clickhouse.cluster", c->clickhouse_cluster},
				       {"store.clickhouse.storage_policy",
					c->clickhouse_storage_policy},
			       };
	int r = 0;

	if (!otlp && !clickhouse)
		r = check_unset(both, ARRAY_SIZE(both), "clickhouse and otlp", reterr);
	if (!r && !otlp)
		r = check_unset(of_otlp, ARRAY_SIZE(of_otlp), "otlp", reterr);
	if (!r && !clickhouse)
		r = check_unset(of_clickhouse, ARRAY_SIZE(of_clickhouse), "clickhouse", reterr);
	return r;
}

/* ---- this hub stores ---- */

struct store_config hub_store_config(const struct config *conf)
{
	return (struct store_config){
		.kind = conf->store_kind,
		.path = conf->data_dir,
		.retention_ns = conf->store_retention_ns,
		.event_retention = conf->event_retention.items,
		.n_event_retention = conf->event_retention.n,
		.ns_retention = conf->namespace_retention.items,
		.n_ns_retention = conf->namespace_retention.n,
		.max_bytes = streq(conf->store_kind, "clickhouse") ? conf->clickhouse_max_bytes
								   : conf->store_max_bytes,
		.url = conf->store_url,
		.plain_http = conf->clickhouse_plain_http,
		.ca_file = conf->store_ca_file,
		.user = conf->clickhouse_user,
		.password_file = conf->clickhouse_password_file,
		.database = conf->clickhouse_database,
		.cluster = conf->clickhouse_cluster,
		.storage_policy = conf->clickhouse_storage_policy,
	};
}

int hub_stores_open_symbols(const struct config *conf, struct store *store, struct symbols **ret,
			    struct field_error *reterr)
{
	bool shared = store_shares_uploads(store);
	_cleanup_free_ char *dir =
		xasprintf("%s/%s", conf->data_dir, shared ? "symbols-cache" : "symbols");
	const struct symbols_config c = {
		.dir = dir, .max_bytes = conf->symbols_max_bytes, .store = shared ? store : NULL};

	return symbols_open(&c, ret, reterr);
}

static int open_store(const struct hub_stores_config *c, struct hub_stores *s,
		      struct field_error *reterr)
{
	const struct config *conf = c->conf;
	struct store_config sc = hub_store_config(conf);
	int r = mkdir_parents(conf->data_dir, 0700);

	if (r)
		return field_error_set(reterr, "data_dir", "%s: %s", conf->data_dir, strerror(-r));
	sc.own_cluster = c->own_cluster;
	sc.clusters = c->clusters;
	sc.n_clusters = c->n_clusters;
	r = hub_data_dir_lock(conf->data_dir, &s->lock_fd, reterr);
	if (!r)
		r = store_open(&sc, &s->store, reterr);
	return r ? r : hub_stores_open_symbols(conf, s->store, &s->symbols, reterr);
}

/* ---- the central hub stores ---- */

static int open_forward(struct loop *l, const struct hub_stores_config *c, struct hub_stores *s,
			struct field_error *reterr)
{
	const struct forward_config fc = {.url = c->conf->store_url,
					  .ca_file = c->conf->store_ca_file,
					  .token_file = c->conf->store_token_file};
	const struct store_config nowhere = {.kind = "null"};
	int r;

	if (*c->conf->clusters_file)
		return field_error_set(reterr, "clusters.file",
				       "a hub of store.kind otlp sends profiles of its own cluster "
				       "only: register the clusters at the central hub");
	if (c->local)
		return field_error_set(reterr, "store.kind", "otlp is for `podflame hub` only");
	r = forward_new(l, &fc, &s->forward, reterr);
	return r ? r : store_open(&nowhere, &s->store, reterr);
}

int hub_stores_open(struct loop *l, const struct hub_stores_config *c, struct hub_stores *ret,
		    struct field_error *reterr)
{
	int r = check_keys(c->conf, reterr);

	*ret = (struct hub_stores){.lock_fd = -1};
	if (r)
		return r;
	return streq(c->conf->store_kind, "otlp") ? open_forward(l, c, ret, reterr)
						  : open_store(c, ret, reterr);
}

void hub_stores_close(struct hub_stores *s)
{
	forward_free(s->forward);
	symbols_close(s->symbols);
	store_close(s->store);
	closep(&s->lock_fd);
	*s = (struct hub_stores){.lock_fd = -1};
}
