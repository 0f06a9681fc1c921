/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: every counter of the process and the state of store and query worker. */
#include "hub/api/api_private.h"

#include <inttypes.h>
#include <stdlib.h>

struct line {
	char *name, *label, *label_value;
	uint64_t value;
};
struct lines {
	struct line *items;
	size_t n, cap;
};

static void lines_done(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->items[i].name);
		free(l->items[i].label);
		free(l->items[i].label_value);
	}
	free(l->items);
}

static void add(const char *name, const char *label, const char *label_value, uint64_t value,
		void *arg)
{
	struct lines *l = arg;

	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct line){
		.name = xasprintf("%s%s", str_has_prefix(name, "podflame_") ? "" : "podflame_",
				  name),
		.label = xstrdup(label),
		.label_value = xstrdup(label_value),
		.value = value,
	};
}

static int by_name(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (order || !x->label_value || !y->label_value)
		return order;
	return strcmp(x->label_value, y->label_value);
}

static void add_store(struct lines *l, struct store *store)
{
	struct store_stats s;

	store_stats(store, &s);
	add("store_profiles_total", NULL, NULL, s.n_profiles, l);
	add("store_duplicate_profiles_total", NULL, NULL, s.n_duplicates, l);
	add("store_samples_total", NULL, NULL, s.n_samples, l);
	add("store_expired_profiles_total", NULL, NULL, s.n_expired, l);
	add("store_stacks", NULL, NULL, s.n_stacks, l);
	add("store_bytes", NULL, NULL, s.bytes, l);
	add("store_oldest_seconds", NULL, NULL, s.oldest_ns / NSEC_PER_SEC, l);
	add("store_healthy", NULL, NULL, s.error[0] == '\0', l);
}

static void add_worker(struct lines *l, struct worker *query)
{
	struct worker_stats s;

	worker_stats(query, &s);
	add("queries_total", NULL, NULL, s.n_done, l);
	add("queries_waiting", NULL, NULL, s.n_queued, l);
	add("queries_refused_total", NULL, NULL, s.n_refused, l);
	add("queries_busy_milliseconds_total", NULL, NULL, s.busy_ns / NSEC_PER_MSEC, l);
}

/* The quotes, backslash and newline of a label value are escaped as in JSON. */
static void put_line(struct buf *b, const struct line *l)
{
	buf_puts(b, l->name);
	if (l->label && *l->label) {
		buf_printf(b, "{%s=", l->label);
		buf_json_string(b, l->label_value ? l->label_value : "");
		buf_putc(b, '}');
	}
	buf_printf(b, " %" PRIu64 "\n", l->value);
}

void handle_metrics(struct call *c)
{
	_cleanup_(lines_done) struct lines l = {0};
	_cleanup_buf_ struct buf b = {0};

	counter_each(add, &l);
	add_store(&l, c->api->config.store);
	add_worker(&l, c->api->config.query);
	qsort(l.items, l.n, sizeof(*l.items), by_name);
	for (size_t i = 0; i < l.n; i++) {
		if (i == 0 || !streq(l.items[i].name, l.items[i - 1].name))
			buf_printf(&b, "# TYPE %s %s\n", l.items[i].name,
				   str_has_suffix(l.items[i].name, "_total") ? "counter" : "gauge");
		put_line(&b, &l.items[i]);
	}
	call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
}
