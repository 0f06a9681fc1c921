/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store as a whole: its backup, and a copy of what it has into another store, of any sink. What
 * the other store has already is skipped by its id, so a copy that was ended can be begun again.
 */
#include "hub/store/sink.h"

#include <stdlib.h>

int store_backup(const struct store_config *c, const char *to, store_progress_fn *fn, void *arg,
		 struct field_error *reterr)
{
	const struct sink_ops *ops = store_sink_find(c->kind, reterr);

	if (!ops)
		return -EINVAL;
	*reterr = (struct field_error){0};
	if (!ops->backup)
		return field_error_set(reterr, "store.kind",
				       "a store of kind %s has no backup here", c->kind);
	return ops->backup(c, to, fn, arg, reterr);
}

struct store_copying {
	const struct store_config *to;
	struct store *store; /* the other store */
	struct store_copied done;
	store_copied_fn *fn;
	void *arg;
	struct field_error *reterr;
};

/* The clusters of the configuration, and then those of the copied store. */
static int open_other(const char *const *clusters, size_t n, uint64_t n_profiles, void *arg)
{
	struct store_copying *x = arg;
	struct store_config c = *x->to;
	_cleanup_free_ const char **all = xcalloc(c.n_clusters + n + 1, sizeof(*all));

	for (size_t i = 0; i < c.n_clusters; i++)
		all[i] = c.clusters[i];
	for (size_t i = 0; i < n; i++)
		all[c.n_clusters + i] = clusters[i];
	c.clusters = all;
	c.n_clusters += n;
	x->done.n_profiles = n_profiles;
	return store_open(&c, &x->store, x->reterr);
}

static int write_batch(const struct batch *b, void *arg)
{
	struct store_copying *x = arg;
	struct store_stats stats;
	size_t n_new;
	int r = store_write(x->store, b, &n_new);

	if (r) {
		store_stats(x->store, &stats);
		field_error_set(x->reterr, "store", "%s",
				*stats.error ? stats.error : strerror(-r));
		return r;
	}
	x->done.n_done += b->n_profiles;
	x->done.n_new += n_new;
	x->done.until_s = (int64_t)(b->profiles[b->n_profiles - 1]->end_ns / NSEC_PER_SEC);
	x->fn(&x->done, x->arg);
	return 0;
}

static int put_cut(const struct store_cut *cut, void *arg)
{
	struct store_copying *x = arg;
	int r = store_put_cut(x->store, cut);

	if (r == -EOPNOTSUPP) {
		x->done.n_left_out++;
		return 0;
	}
	return r ? field_error_set(x->reterr, "store", "%s", strerror(-r)) : 0;
}

int store_copy(const struct store_config *from, const struct store_config *to, store_copied_fn *fn,
	       void *arg, struct field_error *reterr)
{
	const struct sink_ops *ops = store_sink_find(from->kind, reterr);
	struct store_copying x = {.to = to, .fn = fn, .arg = arg, .reterr = reterr};
	const struct store_receiver receiver = {open_other, write_batch, put_cut, &x};
	uint64_t n_left_out = 0;
	int r;

	if (!ops)
		return -EINVAL;
	*reterr = (struct field_error){0};
	if (!ops->export)
		return field_error_set(reterr, "store.kind", "a store of kind %s cannot be copied",
				       from->kind);
	r = ops->export(from, &receiver, &n_left_out, reterr);
	store_close(x.store);
	if (r)
		return r;
	x.done.n_left_out += n_left_out;
	x.done.whole = true;
	fn(&x.done, arg);
	return 0;
}
