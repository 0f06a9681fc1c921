/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics, /healthz and /readyz of the hub: the state of the process, of its store and of its
 * queries.
 */
#include "hub/api/api_private.h"

#include "lib/loop/health.h"

static void set(const char *name, uint64_t value)
{
	counter_set(counter(name, NULL, NULL), value);
}

static void set_store(struct store *store)
{
	struct store_stats s;

	store_stats(store, &s);
	set("store_profiles_total", s.n_profiles);
	set("store_duplicate_profiles_total", s.n_duplicates);
	set("store_samples_total", s.n_samples);
	set("store_stacks", s.n_stacks);
	set("store_bytes", s.bytes);
	set("store_oldest_timestamp_ns", s.oldest_ns);
	set("store_healthy", !s.failed);
}

static void add_stats(struct worker *w, struct worker_stats *sum)
{
	struct worker_stats s;

	worker_stats(w, &s);
	sum->n_done += s.n_done;
	sum->busy_ns += s.busy_ns;
}

static void set_queries(const struct api *a)
{
	struct worker_stats sum = {0};

	for (size_t i = 0; i < a->config.n_query; i++)
		add_stats(a->config.query[i], &sum);
	if (a->config.choices)
		add_stats(a->config.choices, &sum);
	set("queries_total", sum.n_done);
	set("queries_waiting", api_queue_waiting(a->queue));
	set("queries_refused_total",
	    counter_get(counter("api_refused_total", "reason", "queries_busy")));
	set("queries_busy_ns_total", sum.busy_ns);
}

void api_handle_metrics(struct call *c)
{
	_cleanup_buf_ struct buf b = {0};

	set_store(c->api->config.store);
	set_queries(c->api);
	health_metrics(c->api->loop, &b);
	api_call_reply(c, 200, METRICS_CONTENT_TYPE, b.data, b.len);
}

/* Returns the details that /healthz shows. They name no path, because anybody may ask for them. */
static json_t *detail(const struct api_config *f)
{
	return f->health ? f->health(f->health_arg) : json_object();
}

/*
 * Answers 503 only if a thread is blocked, because then a restart helps. A restart does not help
 * against a full disk.
 */
void api_handle_alive(struct call *c)
{
	_cleanup_buf_ struct buf why = {0};
	bool alive = health_alive(c->api->loop, &why);
	json_t *said = detail(&c->api->config);

	json_object_set_new(said, "status", json_string(alive ? "ok" : why.data));
	api_call_json(c, alive ? 200 : 503, said);
}

/*
 * Always answers 200: the hub listens only after it has opened the store. If the store has a
 * problem, the answer contains the problem. Old profiles can still be read.
 */
void api_handle_ready(struct call *c)
{
	json_t *said = detail(&c->api->config);

	json_object_set_new(said, "status", json_string("ok"));
	api_call_json(c, 200, said);
}
