/* SPDX-License-Identifier: Apache-2.0 */
/* The sink for benchmarks: it counts the profiles that it gets, and stores nothing. */
#include "hub/store/sink.h"

#include <stdatomic.h>
#include <stdlib.h>

struct null_store {
	_Atomic uint64_t n_profiles, n_samples;
};

static int null_open(const struct store_config *c, void **ret, struct field_error *reterr)
{
	(void)c;
	(void)reterr;
	*ret = xcalloc(1, sizeof(struct null_store));
	return 0;
}

static int null_write(void *sink, const struct batch *b, size_t *ret_n_new)
{
	struct null_store *n = sink;

	for (size_t i = 0; i < b->n_profiles; i++)
		atomic_fetch_add(&n->n_samples, b->profiles[i]->n_samples);
	atomic_fetch_add(&n->n_profiles, b->n_profiles);
	*ret_n_new = b->n_profiles;
	return 0;
}

static int null_read(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		     struct store_summary *ret, struct field_error *reterr)
{
	(void)sink;
	(void)sel;
	(void)fn;
	(void)arg;
	(void)reterr;
	*ret = (struct store_summary){0};
	return 0;
}

static int null_series(void *sink, const struct series_request *r, struct store_series *ret,
		       struct field_error *reterr)
{
	(void)sink;
	(void)r;
	(void)reterr;
	*ret = (struct store_series){0};
	return 0;
}

static int null_choices(void *sink, const struct store_choice *choices, size_t n,
			store_choice_fn *fn, void *arg, struct field_error *reterr)
{
	(void)sink;
	(void)choices;
	(void)n;
	(void)fn;
	(void)arg;
	(void)reterr;
	return 0;
}

static int null_namespaces(void *sink, const atomic_bool *given_up, store_namespace_fn *fn,
			   void *arg, struct field_error *reterr)
{
	(void)sink;
	(void)given_up;
	(void)fn;
	(void)arg;
	(void)reterr;
	return 0;
}

static int null_oldest(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
		       struct field_error *reterr)
{
	(void)sink;
	(void)sel;
	(void)fn;
	(void)arg;
	(void)reterr;
	return 0;
}

static char *const *null_clusters(void *sink, size_t *ret_n)
{
	(void)sink;
	*ret_n = 0;
	return NULL;
}

static int null_pods(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		     struct field_error *reterr)
{
	(void)sink;
	(void)since_s;
	(void)fn;
	(void)arg;
	(void)reterr;
	return 0;
}

static int null_expire(void *sink, uint64_t now_wall_ns)
{
	(void)sink;
	(void)now_wall_ns;
	return 0;
}

static void null_stats(void *sink, struct store_stats *ret)
{
	struct null_store *n = sink;

	*ret = (struct store_stats){
		.n_profiles = atomic_load(&n->n_profiles),
		.n_samples = atomic_load(&n->n_samples),
	};
}

const struct sink_ops store_null_sink = {
	.kind = "null",
	.open = null_open,
	.close = free,
	.clusters = null_clusters,
	.write = null_write,
	.read = null_read,
	.series = null_series,
	.choices = null_choices,
	.namespaces = null_namespaces,
	.oldest = null_oldest,
	.pods = null_pods,
	.expire = null_expire,
	.stats = null_stats,
};
