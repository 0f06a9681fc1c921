/* SPDX-License-Identifier: Apache-2.0 */
/* The ClickHouse sink: its connection, its health, and its row in store.c. */
#include "hub/store/clickhouse/names.h"

#include <stdlib.h>

#define NAMES_BYTES (256u << 20) /* memory for the names of stacks, of all answers together */
/* ClickHouse likes few and large inserts. Each one makes a part, which it must merge later. */
#define PACE_BYTES (16u << 20)
#define PACE_NS	   NSEC_PER_SEC
#define MEASURE_NS (60 * NSEC_PER_SEC)
#define RETRY_NS   (2 * NSEC_PER_SEC)  /* how long a failure to make the tables stands */
#define CHECK_NS   (30 * NSEC_PER_SEC) /* how often it looks whether somebody has altered them */
#define LOOK_NS	   (5 * NSEC_PER_SEC)  /* how long a reader or a writer may wait for such a look */

/* ---- start and end ---- */

static void close_all(void *sink)
{
	struct ch_store *s = sink;

	store_ch_size_end(s);
	store_ch_disconnect(s);
	store_ch_seen_free(s->seen);
	store_ch_cache_free(s->names);
	store_ch_schema_free(s->schema);
	store_ch_clusters_end(s);
	pthread_mutex_destroy(&s->ready_lock);
	pthread_mutex_destroy(&s->stats_lock);
	store_keeps_done(&s->keeps);
	free(s->database);
	free(s);
}

static int connect_all(const struct store_config *c, struct ch_store **ret,
		       struct field_error *reterr)
{
	struct ch_store *s = xcalloc(1, sizeof(*s));
	int r;

	pthread_mutex_init(&s->ready_lock, NULL);
	pthread_mutex_init(&s->stats_lock, NULL);
	s->database = xstrdup(c->database ?: "profile");
	store_keeps_begin(&s->keeps, c);
	s->max_bytes = c->max_bytes;
	s->names = store_ch_cache_new(NAMES_BYTES);
	s->seen = store_ch_seen_new();
	store_ch_clusters_begin(s, c);
	r = store_ch_schema_new(c, &s->schema, reterr);
	if (!r)
		r = store_ch_connect(s, c, reterr);
	if (r)
		close_all(s);
	else
		*ret = s;
	return r;
}

static int open_all(const struct store_config *c, void **ret, struct field_error *reterr)
{
	struct ch_store *s;
	int r = connect_all(c, &s, reterr);

	if (r)
		return r;
	(void)store_ch_ready(s, NULL); /* the stats tell of a failure */
	*ret = s;
	return 0;
}

static int migrate(const struct store_config *c, bool dry_run, store_print_fn *print, void *arg,
		   struct field_error *reterr)
{
	struct ch_store *s;
	int r = connect_all(c, &s, reterr);

	if (r)
		return r;
	r = store_ch_migrate_with(s, dry_run, print, arg, reterr);
	close_all(s);
	return r;
}

/* Under ready_lock, with trouble_text. */
static void set_trouble(struct ch_store *s, int r)
{
	s->trouble = r;
	atomic_store(&s->ready, !r);
	store_ch_tell(s, r, &s->trouble_text);
}

/*
 * One thread looks at the tables again; the others go on. If it cannot, nothing is known: what it
 * is about to do has the same error.
 */
static void check_again(struct ch_store *s)
{
	uint64_t tried_ns = atomic_load(&s->tried_ns); /* before the clock: it is not later */
	struct field_error e = {0};
	struct ch_limits l = {0};
	int r;

	if (!atomic_load(&s->doubted) && now_mono_ns() - tried_ns < CHECK_NS)
		return;
	if (pthread_mutex_trylock(&s->ready_lock))
		return;
	l.deadline_ns = now_mono_ns() + LOOK_NS;
	atomic_store(&s->doubted, false);
	r = store_ch_check_tables(s, &l, &e);
	atomic_store(&s->tried_ns, now_mono_ns());
	if (r == -EINVAL) {
		s->trouble_text = e;
		set_trouble(s, r);
	}
	pthread_mutex_unlock(&s->ready_lock);
}

int store_ch_ready(struct ch_store *s, struct field_error *reterr)
{
	int r;

	if (atomic_load(&s->ready))
		check_again(s);
	if (atomic_load(&s->ready))
		return 0;
	pthread_mutex_lock(&s->ready_lock);
	/* the clock is read under the lock, because another thread may just have tried */
	if (!atomic_load(&s->ready) && (!s->tried_ns || now_mono_ns() - s->tried_ns >= RETRY_NS)) {
		s->trouble_text = (struct field_error){0};
		r = store_ch_migrate(s, &s->trouble_text);
		if (!r)
			r = store_ch_clusters_open(s, &s->trouble_text);
		s->tried_ns = now_mono_ns();
		set_trouble(s, r);
	}
	r = atomic_load(&s->ready) ? 0 : s->trouble;
	if (r && reterr)
		*reterr = s->trouble_text;
	pthread_mutex_unlock(&s->ready_lock);
	return r;
}

/* ---- health ---- */

void store_ch_tell(struct ch_store *s, int r, const struct field_error *e)
{
	pthread_mutex_lock(&s->stats_lock);
	s->stats.failed = r != 0;
	snprintf(s->stats.error, sizeof(s->stats.error), "%.*s", STORE_ERROR_BYTES - 1,
		 !r	      ? ""
		 : *e->reason ? e->reason
			      : strerror(-r));
	pthread_mutex_unlock(&s->stats_lock);
}

/* ---- the functions of the sink ---- */

static int write_batch(void *sink, const struct batch *b, size_t *ret_n_new)
{
	return store_ch_write(sink, &b, 1, ret_n_new);
}

static int write_batches(void *sink, const struct batch *const *batches, size_t n)
{
	struct ch_store *s = sink;
	size_t n_new;
	int r = store_ch_write(s, batches, n, &n_new);

	/* hubs that do not delete know the size of the database, too */
	if (!r && now_mono_ns() - s->expiring.measured_ns >= MEASURE_NS)
		store_ch_measure(s);
	return r;
}

static int ready(void *sink, struct field_error *reterr)
{
	return store_ch_ready(sink, reterr);
}

const struct sink_ops store_clickhouse_sink = {
	.kind = "clickhouse",
	.open = open_all,
	.migrate = migrate,
	.close = close_all,
	.ready = ready,
	.clusters = store_ch_clusters,
	.write = write_batch,
	.write_all = write_batches,
	.pace = {PACE_BYTES, PACE_NS},
	.read = store_ch_read,
	.series = store_ch_series,
	.choices = store_ch_choices,
	.namespaces = store_ch_namespaces,
	.oldest = store_ch_oldest,
	.pods = store_ch_pods,
	.cut = store_ch_put_cut,
	.expire = store_ch_expire,
	.set_lead = store_ch_set_lead,
	.stats = store_ch_stats,
	.uploads = &store_ch_uploads,
};
