/* SPDX-License-Identifier: Apache-2.0 */
/* The ClickHouse sink: its connection, its health, and its row in store.c. */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

static void close_all(void *sink)
{
	struct ch_store *s = sink;

	http_asker_free(s->asker);
	store_ch_seen_free(s->seen);
	pthread_mutex_destroy(&s->stats_lock);
	free(s->database);
	free(s->user);
	free(s->password);
	free(s);
}

static int connect_to(struct ch_store *s, const struct store_config *c, struct field_error *reterr)
{
	struct url u = {0};
	struct http_client_config client = {0};
	int r = url_parse(c->url, &u, reterr);

	if (r)
		return r;
	client.address = client.host = u.host;
	client.port = u.port;
	r = http_asker_new(&client, &s->asker);
	if (r)
		field_error_set(reterr, "store.url", "%s", strerror(-r));
	url_done(&u);
	return r;
}

static int open_all(const struct store_config *c, void **ret, struct field_error *reterr)
{
	struct ch_store *s = xcalloc(1, sizeof(*s));
	int r;

	pthread_mutex_init(&s->stats_lock, NULL);
	s->database = xstrdup(c->database ?: "profile");
	s->user = xstrdup("");
	s->password = xstrdup("");
	s->retention_ns = c->retention_ns;
	s->seen = store_ch_seen_new();
	r = connect_to(s, c, reterr);
	if (!r)
		r = store_ch_migrate(s, reterr);
	if (r) {
		close_all(s);
		return r;
	}
	*ret = s;
	return 0;
}

static char *const *clusters(void *sink, size_t *ret_n)
{
	struct ch_store *s = sink;

	*ret_n = s->n_clusters;
	return s->clusters;
}

static int expire(void *sink, uint64_t now_wall_ns)
{
	(void)sink;
	(void)now_wall_ns;
	return 0;
}

static void stats(void *sink, struct store_stats *ret)
{
	struct ch_store *s = sink;

	pthread_mutex_lock(&s->stats_lock);
	*ret = s->stats;
	pthread_mutex_unlock(&s->stats_lock);
}

const struct sink_ops store_clickhouse_sink = {
	.kind = "clickhouse",
	.open = open_all,
	.close = close_all,
	.clusters = clusters,
	.write = store_ch_write,
	.read = store_ch_read,
	.series = store_ch_series,
	.choices = store_ch_choices,
	.namespaces = store_ch_namespaces,
	.oldest = store_ch_oldest,
	.pods = store_ch_pods,
	.expire = expire,
	.stats = stats,
};
