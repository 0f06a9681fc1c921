/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view in_process answers DeepFlow's own SQL (server/querier/profile/service/profile.go there)
 * as podflame's API does. e2e/clickhouse/run.sh starts the engine; without it the test is skipped.
 */
#include "hub/store/clickhouse/names.h"
#include "hub/store/clickhouse/testsql.h"

#include <inttypes.h>

/* ---- sums by the text of a stack ---- */

struct totals {
	struct total {
		char *text;
		int64_t value;
	} * items;
	size_t n, cap;
};

/* Takes the text. */
static void add_total(struct totals *s, char *text, int64_t value)
{
	for (size_t i = 0; i < s->n; i++) {
		if (!streq(s->items[i].text, text))
			continue;
		s->items[i].value += value;
		free(text);
		return;
	}
	GROW(s->items, s->n, s->cap);
	s->items[s->n++] = (struct total){text, value};
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct total *)a)->text, ((const struct total *)b)->text);
}

/* A line for each stack, sorted; empties s. */
static char *totals_text(struct totals *s)
{
	struct buf b = {0};

	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), by_text);
	for (size_t i = 0; i < s->n; i++) {
		buf_printf(&b, "%s %" PRId64 "\n", s->items[i].text, s->items[i].value);
		free(s->items[i].text);
	}
	free(s->items);
	*s = (struct totals){0};
	return buf_steal(&b);
}

static int add_row(const struct store_row *row, void *arg)
{
	struct frame flat[64];
	struct buf b = {0};

	for (size_t i = 0; i < row->n_frames; i++)
		flat[i] = *row->frames[i];
	profile_stack_render(&row->head, flat, row->n_frames, &b);
	add_total(arg, buf_steal(&b), row->value);
	return 0;
}

static char *by_api(struct ch_store *s, const struct selection *sel)
{
	struct selection of = *sel;
	struct store_summary summary = {0};
	struct field_error e = {0};
	struct totals totals = {0};

	of.scope = &store_scope_all;
	if (store_clickhouse_sink.read(s, &of, add_row, &totals, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&summary);
	return totals_text(&totals);
}

static char *by_sql(struct ch_store *s, const char *sql)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + 600 * NSEC_PER_SEC};
	struct ch_sql q = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	struct field_error e = {0};
	struct totals totals = {0};

	store_ch_text(&q, sql);
	if (store_ch_ask(s, &q, &l, &a, &rows, &e))
		fail_msg("%s: %s", sql, e.reason);
	while (store_ch_more(&rows)) {
		char *text = store_ch_get_str(&rows);

		add_total(&totals, text, (int64_t)store_ch_get_u64(&rows));
	}
	assert_false(rows.failed);
	http_answer_done(&a);
	store_ch_sql_done(&q);
	return totals_text(&totals);
}

/* DeepFlow's query of a service, as its querier writes it for ClickHouse. */
static char *deepflow_sql(enum event event, const char *app, const char *filter)
{
	const struct event_info *i = profile_event_info(event);

	return xasprintf("SELECT profile_location_str, %s FROM in_process WHERE app_service = '%s' "
			 "AND profile_language_type = 'eBPF' AND profile_event_type = '%s' AND "
			 "time >= %d AND time <= %d%s%s LIMIT 1000000",
			 i->snapshot ? "last_value(profile_value) AS profile_value"
				     : "profile_value",
			 app, i->name, T0 - 10, T0 + 100, filter,
			 i->snapshot ? " GROUP BY profile_location_str, agent_id, process_id" : "");
}

static void assert_same(struct ch_store *s, enum event event, const char *app,
			struct predicate *where, const char *filter)
{
	char *apps[] = {(char *)app};
	const struct selection sel = {.event = event,
				      .time_start_s = T0 - 10,
				      .time_end_s = T0 + 100,
				      .app_services = apps,
				      .n_app_services = 1,
				      .where = where,
				      .max_time_ns = 600 * NSEC_PER_SEC};
	_cleanup_free_ char *sql = deepflow_sql(event, app, filter), *api = by_api(s, &sel),
			    *view = by_sql(s, sql);

	store_predicate_free(where);
	assert_string_not_equal(api, "");
	if (!streq(api, view))
		fail_msg("%s\n--- API\n%s\n--- in_process\n%s", sql, api, view);
}

/* ---- what is written ---- */

/* A stack of frames of all kinds, with a name and without, and of nothing but a head. */
static void add_stacks(struct batch *b, struct profile *p)
{
	struct frame frames[2 * _FRAME_KIND_MAX + 2];
	size_t n = 0;
	struct profile_sample *x;

	frames[n++] = (struct frame){.kind = FRAME_MARKER, .name = "[truncated]"};
	frames[n++] = (struct frame){.kind = FRAME_APP, .address = 0xabc};
	for (int kind = 0; kind < _FRAME_KIND_MAX; kind++) {
		frames[n++] = (struct frame){
			.kind = (enum frame_kind)kind, .name = "a;b", .module = "/x;y"};
		frames[n++] = (struct frame){.kind = (enum frame_kind)kind,
					     .module = kind % 2 ? "/lib/l.so" : NULL,
					     .address = 0xffffffff81000000};
	}
	for (size_t skip = 0; skip <= n; skip++) {
		x = profile_add(b, p);
		x->thread_comm = skip % 3 ? profile_batch_str(b, "a;thread") : NULL;
		x->process_comm = skip % 4 ? NULL : profile_batch_str(b, "comm");
		x->main_thread = skip % 2;
		x->cpu = skip % 5 ? -1 : 2;
		x->value = (int64_t)skip + 1;
		x->n_samples = 1;
		if (p->event == EVENT_OFF_CPU)
			x->wait = (enum wait)(skip % _WAIT_MAX);
		assert_int_equal(profile_batch_stack(b, frames + skip, n - skip, &x->stack), 0);
	}
}

static void write_all(struct ch_store *s)
{
	struct batch *b = two_services();
	size_t n_new;

	for (int i = 0; i < 2 * _EVENT_MAX; i++) {
		_cleanup_free_ char *id = xasprintf("all%d", i);
		struct profile *p;

		/* the answers differ for two snapshots of a process: docs/clickhouse.md */
		p = add_profile(b, id, "every", 20 + (uint32_t)i, i < _EVENT_MAX ? "app" : "data",
				T0 + i);
		p->event = (enum event)(i % _EVENT_MAX);
		add_stacks(b, p);
	}
	assert_int_equal(store_ch_write(s, (const struct batch *const *)&b, 1, &n_new), 0);
	profile_batch_free(b);
}

/* Two profiles of each event: of a program whose language is not known, and of one of Go. */
static void write_each_event(struct ch_store *s)
{
	struct batch *b = profile_batch_new();
	size_t n_new;

	PROFILE_EACH_EVENT (event) {
		for (int go = 0; go < 2; go++) {
			_cleanup_free_ char *id = xasprintf("each%d-%d", (int)event, go);
			struct profile *p =
				add_profile(b, id, go ? "go" : "any", 20 + go, "app", T0);
			struct profile_sample *x;

			p->event = event;
			if (go)
				profile_tag(b, p, "profile_language_type", "Golang");
			x = profile_add(b, p);
			x->value = x->n_samples = 1;
			assert_int_equal(profile_batch_stack(b, NULL, 0, &x->stack), 0);
		}
	}
	assert_int_equal(store_ch_write(s, (const struct batch *const *)&b, 1, &n_new), 0);
	profile_batch_free(b);
}

/* ---- tests ---- */

static void it_answers_as_the_api_does(void **state)
{
	struct ch_store *s = engine(state);

	write_all(s);
	for (int i = 0; i < _EVENT_MAX; i++) {
		assert_same(s, (enum event)i, "every", NULL, "");
		assert_same(s, (enum event)i, "every", leaf(PRED_EQ, "pod_ns", "app"),
			    " AND (pod_ns = 'app')");
	}
	assert_same(s, EVENT_ON_CPU, "api", NULL, "");
	assert_same(s, EVENT_ON_CPU, "Total", NULL, "");
}

static void a_window_that_is_stored_twice_counts_once(void **state)
{
	struct ch_store *s = engine(state);

	write_all(s);
	write_windows_again(s);
	assert_lines(s, "SELECT toString(count() > uniqExact(profile_id)) FROM windows", "1\n");
	assert_same(s, EVENT_ON_CPU, "every", NULL, "");
}

static void stacks_that_are_lost_say_so(void **state)
{
	struct ch_store *s = engine(state);
	_cleanup_free_ char *frames = xasprintf("TRUNCATE TABLE %s.frames", s->database),
			    *stacks = xasprintf("TRUNCATE TABLE %s.stacks", s->database);

	write_all(s);
	run_sql(s, frames);
	assert_same(s, EVENT_OFF_CPU, "every", NULL, "");
	run_sql(s, stacks);
	/* a hub that has read none of them */
	store_ch_cache_free(s->names);
	s->names = store_ch_cache_new(1 << 20);
	assert_same(s, EVENT_OFF_CPU, "every", NULL, "");
}

/* Columns in DeepFlow's order, of its types (deepflow.md, "ClickHouse profile.in_process"). */
static void it_has_deepflows_columns(void **state)
{
	struct ch_store *s = engine(state);

	assert_lines(s,
		     "SELECT concat(name, ' ', type) FROM system.columns WHERE table='in_process' "
		     "AND database=currentDatabase() ORDER BY position",
		     "time DateTime\n_id UInt64\nip4 IPv4\nip6 IPv6\nis_ipv4 UInt8\n"
		     "app_service LowCardinality(String)\nprofile_location_str String\n"
		     "profile_value Int64\nprofile_value_unit LowCardinality(String)\n"
		     "profile_event_type LowCardinality(String)\n"
		     "profile_create_timestamp DateTime64(6)\n"
		     "profile_in_timestamp DateTime64(6)\n"
		     "profile_language_type LowCardinality(String)\n"
		     "profile_id String\ntrace_id String\nspan_name String\n"
		     "app_instance LowCardinality(String)\n"
		     "tag_names Array(LowCardinality(String))\ntag_values Array(String)\n"
		     "compression_algo LowCardinality(String)\nprocess_id UInt32\n"
		     "process_start_time DateTime64(3)\ngprocess_id UInt32\nagent_id UInt16\n"
		     "region_id UInt16\naz_id UInt16\nsubnet_id UInt16\nhost_id UInt16\n"
		     "l3_epc_id Int32\npod_id UInt32\npod_node_id UInt32\npod_group_id UInt32\n"
		     "pod_ns_id UInt16\npod_cluster_id UInt16\nauto_instance_id UInt32\n"
		     "auto_service_id UInt32\nl3_device_id UInt32\nservice_id UInt32\n"
		     "auto_instance_type UInt8\nauto_service_type UInt8\nl3_device_type UInt8\n"
		     "team_id UInt16\n"
		     "pod_cluster LowCardinality(String)\npod_ns LowCardinality(String)\n"
		     "pod_node LowCardinality(String)\npod_group LowCardinality(String)\n"
		     "pod_group_type LowCardinality(String)\npod LowCardinality(String)\n"
		     "pod_uid LowCardinality(String)\ncontainer LowCardinality(String)\n"
		     "container_id LowCardinality(String)\nimage LowCardinality(String)\n"
		     "unverified LowCardinality(String)\n");
}

static void its_columns_say_what_deepflows_say(void **state)
{
	struct ch_store *s = engine(state);

	write_all(s);
	assert_lines(s,
		     "SELECT DISTINCT concat(profile_value_unit, ' ', toString(process_id), ' ', "
		     "toString(pod_ns_id), ' ', tag_values[indexOf(tag_names, 'k8s.label.tier')]) "
		     "FROM in_process WHERE app_service='api'",
		     "microseconds 10 0 it's \"web\"; --\n");
	assert_lines(s, "SELECT toString(uniqExact(_id) = count()) FROM in_process", "1\n");
	assert_lines(s,
		     "SELECT DISTINCT toString(intDiv(_id, 4294967296) = toUnixTimestamp(time)) "
		     "FROM in_process",
		     "1\n");
	assert_lines(s,
		     "SELECT DISTINCT toString(abs(toUnixTimestamp(profile_in_timestamp) - "
		     "toUnixTimestamp(now())) < 86400) FROM in_process",
		     "1\n");
}

/* Of what programs push the language is that of the program; where it is not known it is ''. */
static void events_have_their_units_and_languages(void **state)
{
	struct ch_store *s = engine(state);

	write_each_event(s);
	PROFILE_EACH_EVENT (event) {
		const struct event_info *e = profile_event_info(event);
		_cleanup_free_ char *sql = xasprintf("SELECT concat(profile_value_unit, ' ', "
						     "profile_language_type) FROM in_process "
						     "WHERE profile_event_type='%s' "
						     "ORDER BY app_service",
						     e->name),
				    *want = xasprintf("%s %s\n%s Golang\n", e->unit,
						      e->spec_field ? "eBPF" : "", e->unit);

		assert_lines(s, sql, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OVER_ENGINE(it_answers_as_the_api_does),
		OVER_ENGINE(a_window_that_is_stored_twice_counts_once),
		OVER_ENGINE(stacks_that_are_lost_say_so),
		OVER_ENGINE(it_has_deepflows_columns),
		OVER_ENGINE(its_columns_say_what_deepflows_say),
		OVER_ENGINE(events_have_their_units_and_languages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
