/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store returns what was written: the expected rows, nothing twice, nothing of other
 * selections.
 */
#include "hub/store/teststore.h"

static void known_answer(void **state)
{
	struct store *s = *state;
	_cleanup_(got_done) struct got g = {0};

	write_batch(s, two_services(), 3);
	read_where(s, NULL, &g);
	assert_int_equal(g.n, 3);
	assert_string_equal(g.rows[0].text, "api: [t] worker;main;[l] write;[/bin/x]");
	assert_int_equal(g.rows[0].value, 150);
	assert_int_equal(g.rows[0].n, 15);
	assert_string_equal(g.rows[1].text, "db: [p] db;main;[l] fsync;[/bin/x]");
	assert_string_equal(g.rows[2].text, "api: [p] api;main;[l] read;[/bin/x]");
	assert_int_equal(g.summary.n_samples, 24);
	assert_int_equal(g.summary.n_profiles, 2);
	assert_int_equal(g.summary.n_processes, 2);
	assert_int_equal(g.summary.first_s, T0 - 1); /* the last second of the window */
	assert_int_equal(g.summary.last_s, T0 + 9);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "ring_full");
	assert_int_equal(g.summary.losses[0].n_samples, 3);
	assert_false(g.summary.truncated);
}

static int take_starts(const struct store_row *row, void *arg)
{
	const struct frame *last = row->frames[row->n_frames - 1], *named = row->frames[1];

	assert_null(last->name);
	assert_int_equal(last->address, 0x1234);
	assert_int_equal(last->start, 0x1200);
	assert_int_equal(last->line, 0);
	assert_int_equal(named->line, 7);
	assert_int_equal(named->start, 0);
	++*(unsigned *)arg;
	return 0;
}

static void where_functions_without_names_begin_is_kept(void **state)
{
	const struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 1000};
	struct store_summary summary = {0};
	struct store *s = *state;
	struct field_error e;
	unsigned n = 0;

	write_batch(s, two_services(), 3);
	assert_int_equal(store_read(s, &store_scope_all, &sel, take_starts, &n, &summary, &e), 0);
	assert_int_equal(n, 3);
	store_summary_done(&summary);
}

/* Process 10 runs a shell and then another program, in two windows. Process 11 runs beside it. */
static void a_process_counts_once_whatever_its_names(void **state)
{
	static const struct {
		const char *id, *app;
		uint32_t pid;
		uint64_t end_s;
	} all[] = {{"1", "sh", 10, T0}, {"2", "api", 10, T0 + 10}, {"3", "api", 11, T0 + 10}};
	_cleanup_(got_done) struct got g = {0}, threads = {0};
	struct batch *b = profile_batch_new();
	struct store *s = *state;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct profile *p =
			add_profile(b, all[i].id, all[i].app, all[i].pid, "app", all[i].end_s);

		p->process_start_ns = 5 * NSEC_PER_SEC;
		add_sample(b, p, "worker", false, "write", 10);
	}
	write_batch(s, b, ARRAY_SIZE(all));
	read_where(s, NULL, &g);
	assert_int_equal(g.summary.n_profiles, 3);
	assert_int_equal(g.summary.n_processes, 2);
	/* a condition on single samples makes the store read them in another way */
	read_where(s, leaf(PRED_EQ, "thread", "worker"), &threads);
	assert_int_equal(threads.summary.n_processes, 2);
}

static void bounds_and_services(void **state)
{
	struct store *s = *state;
	char *total[] = {"Total"}, *app[] = {"app"};
	const struct scope scope = {.places = app, .n_places = 1};
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 1, .time_end_s = T0 - 1};
	_cleanup_(got_done) struct got g = {0};

	write_batch(s, two_services(), 3);
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 2); /* only api; the time includes both bounds */
	sel.time_start_s = sel.time_end_s = T0;
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 0);

	sel.time_start_s = T0 - 100;
	sel.app_services = total;
	sel.n_app_services = 1;
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 1);
	/*
	 * with one allowed namespace, neither Total nor other namespaces are read, with any filter
	 */
	sel.scope = &scope;
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 0);
	sel.n_app_services = 0;
	sel.where =
		join(PRED_OR, leaf(PRED_EQ, "pod_ns", "data"), leaf(PRED_NOT_NULL, "pod_ns", NULL));
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 2);
	assert_string_equal(g.rows[1].text, "api: [p] api;main;[l] read;[/bin/x]");
	store_predicate_free(sel.where);
}

/* A process may be named Total. The host's Total stays right, and the process is shown, too. */
static void process_named_total(void **state)
{
	struct store *s = *state;
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	char *total[] = {"Total"};
	struct batch *b = two_services();
	_cleanup_(got_done) struct got g = {0};

	add_sample(b, add_profile(b, "4", "Total", 12, NULL, T0), "Total", true, "mine", 5);
	write_batch(s, b, 4);
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 4);
	sel.app_services = total;
	sel.n_app_services = 1;
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 1);
}

static void truncation(void **state)
{
	struct store *s = *state;
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL, .max_rows = 2};
	_cleanup_(got_done) struct got g = {0};

	write_batch(s, two_services(), 3);
	read_rows(s, &sel, &g);
	assert_int_equal(g.n, 3);
	assert_true(g.summary.truncated);
	assert_int_equal(g.summary.n_rows, 2);
	assert_int_equal(g.summary.n_samples, 24);
	assert_int_equal(g.summary.short_by, 0);
	assert_int_equal(g.rows[0].value, 150); /* the greatest two stay, */
	assert_int_equal(g.rows[1].value, 70);
	assert_string_equal(g.rows[2].text, "(none): [others]"); /* the sum of the rest is a row */
	assert_int_equal(g.rows[2].value, 20);
	assert_int_equal(g.rows[2].n, 2);
}

static void duplicates(void **state)
{
	struct store *s = *state;
	struct store_stats stats;

	write_batch(s, two_services(), 3);
	write_batch(s, two_services(), 0);
	assert_int_equal(value_where(s, NULL), 240);
	store_stats(s, &stats);
	assert_int_equal(stats.n_profiles, 3);
	assert_int_equal(stats.n_duplicates, 3);
}

/* A profile that an older hub has stored under the id that was sent is known. */
static void ids_as_they_were_sent(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();

	write_batch(s, two_services(), 3);
	for (size_t i = 0; i < b->n_profiles; i++) {
		memcpy(b->profiles[i]->sent_id, b->profiles[i]->id, sizeof(b->profiles[i]->id));
		b->profiles[i]->id[0] ^= 0xff;
	}
	write_batch(s, b, 0);
	assert_int_equal(value_where(s, NULL), 240);
}

static void values(void **state)
{
	struct store *s = *state;
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	struct values v = {""};
	struct batch *more = profile_batch_new();

	write_batch(s, two_services(), 3);
	read_values(s, &sel, "pod_ns", 10, take_value, &v, NULL);
	read_values(s, &sel, "profile_event_type", 10, take_value, &v, NULL);
	read_values(s, &sel, "thread", 10, take_value, &v, NULL);
	read_values(s, &sel, "app_service", 1, take_value, &v, NULL);
	assert_string_equal(v.text, "app=17 data=7 on-cpu=24 worker=15 db=7 api=2 api=17 ");
	v.text[0] = '\0';
	sel.with_total = true;
	read_values(s, &sel, "app_service", 10, take_value, &v, NULL);
	assert_non_null(strstr(v.text, "Total="));
	/* each thread is listed once, whatever the values of its samples are */
	add_sample(more, add_profile(more, "more", "api", 10, "app", T0 + 30), "worker", false, "z",
		   30);
	write_batch(s, more, 1);
	v.text[0] = '\0';
	read_values(s, &sel, "thread", 1, take_value, &v, NULL);
	read_values(s, &sel, "cpu", 10, take_value, &v, NULL);
	assert_string_equal(v.text, "x=100 ");
	v.text[0] = '\0';
	sel.with_total = false;
	read_values(s, &sel, "thread", 10, take_value, &v, NULL);
	assert_string_equal(v.text, "worker=18 db=7 api=2 ");
}

/*
 * A loss of a node without a container counts for all services on that node, but not for those of
 * other nodes.
 */
static void node_losses(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	struct profile *p = add_profile(b, "gap", "", 0, NULL, T0 + 5);
	_cleanup_(got_done) struct got g = {0};

	profile_lose(b, p, "agent_down", 0, 5 * NSEC_PER_SEC);
	p = add_profile(b, "gap2", "", 0, NULL, T0 + 5);
	profile_tag(b, p, "pod_node", "elsewhere");
	profile_lose(b, p, "other_node", 1, 0);
	write_batch(s, b, 5);
	read_where(s, leaf(PRED_EQ, "pod_ns", "data"), &g);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "agent_down");
	assert_int_equal(g.summary.losses[0].time_ns, 5 * NSEC_PER_SEC);
	assert_true(g.summary.losses[0].of_node);
}

/* A node of another cluster may have the same name, and a process there the same id and start. */
static void nodes_of_two_clusters(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	struct profile *p = add_profile(b, "gap", "", 0, NULL, T0 + 5);
	struct selection live = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 1000};
	_cleanup_(got_done) struct got g = {0};

	profile_tag(b, p, "pod_cluster", "c2");
	profile_lose(b, p, "other_cluster", 1, 0);
	for (unsigned i = 0; i < 2; i++) {
		p = add_profile(b, i ? "live 2" : "live 1", "api", 7, "app", T0 + i);
		p->event = EVENT_MEM_INUSE;
		p->process_start_ns = T0 * NSEC_PER_SEC;
		profile_tag(b, p, "pod_cluster", i ? "c2" : "c1");
		add_sample(b, p, "api", true, i ? "read" : "write", 10);
	}
	write_batch(s, b, 6);
	read_where(s, leaf(PRED_EQ, "pod_ns", "data"), &g);
	assert_int_equal(g.summary.n_losses, 0);
	read_rows(s, &live, &g);
	assert_int_equal(g.sum, 20);
}

/* Profiles that could not be verified: a reader of all is told how many, others do not see them. */
static void unverified_profiles(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	struct profile *p = add_profile(b, "forged", "api", 12, "data", T0 + 5);
	char *data[] = {"data"};
	const struct scope scope = {.places = data, .n_places = 1};
	struct selection own = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 1000,
				.scope = &scope};
	_cleanup_(got_done) struct got g = {0};

	read_where(s, NULL, &g);
	assert_int_equal(g.summary.n_unverified, 0);
	profile_tag(b, p, TAG_UNVERIFIED, "true");
	add_sample(b, p, "api", true, "write", 1000);
	write_batch(s, b, 4);
	read_where(s, leaf(PRED_EQ, "pod_ns", "data"), &g);
	assert_int_equal(g.sum, 1070);
	assert_int_equal(g.summary.n_unverified, 1);
	read_where(s, leaf(PRED_EQ, "pod_ns", "app"), &g);
	assert_int_equal(g.summary.n_unverified, 0);
	read_where(s, leaf(PRED_NOT_NULL, TAG_UNVERIFIED, NULL), &g);
	assert_int_equal(g.sum, 1000);
	read_rows(s, &own, &g);
	assert_int_equal(g.sum, 70);
	assert_int_equal(g.summary.n_unverified, 0);
}

static void add_pod(const struct store_pod *p, void *arg)
{
	buf_printf(arg, "%s %s/%s %s on %s\n", p->cluster, p->ns, p->name, p->uid, p->node);
}

/* The pods that a hub knows after a restart. */
static void pods_with_profiles(void **state)
{
	static const struct {
		const char *id, *pod, *uid, *unverified;
		int64_t end_s;
	} stored[] = {
		{"p1", "web-1", "u1", NULL, T0 + 5},
		{"p2", "old", "u2", NULL, T0 - 100},
		{"p3", "forged", "u3", "true", T0 + 5},
		{"p4", "no uid", NULL, NULL, T0 + 5},
	};
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	_cleanup_buf_ struct buf got = {0};

	for (size_t i = 0; i < ARRAY_SIZE(stored); i++) {
		struct profile *p = add_profile(b, stored[i].id, "api", 12, "app", stored[i].end_s);

		profile_tag(b, p, "pod", stored[i].pod);
		if (stored[i].uid)
			profile_tag(b, p, "pod_uid", stored[i].uid);
		if (stored[i].unverified)
			profile_tag(b, p, TAG_UNVERIFIED, stored[i].unverified);
		add_sample(b, p, "api", true, "write", 10);
	}
	write_batch(s, b, 4);
	assert_int_equal(store_pods(s, T0, add_pod, &got, NULL), 0);
	assert_string_equal(got.data, "c1 app/web-1 u1 on n1\n");
}

/*
 * A loss is told if its window overlaps the selection, unless the window ends long after: else each
 * query would read the losses of all later days.
 */
static void losses_of_long_windows(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0};
	static const int64_t ends[] = {STORE_WINDOW_MAX_S, STORE_WINDOW_MAX_S + 1};
	_cleanup_(got_done) struct got g = {0};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		_cleanup_free_ char *id = xasprintf("%zu", i);
		struct profile *p = add_profile(b, id, "api", 10, "app", T0 + 1 + ends[i]);

		p->start_ns = T0 * NSEC_PER_SEC;
		profile_lose(b, p, i ? "later" : "ring_full", 3, 0);
	}
	write_batch(s, b, 2);
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "ring_full");
	sel.time_end_s++;
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_losses, 2);
}

/* For one reason, what the selection lost is apart from what any process of its nodes lost. */
static void losses_of_the_node_are_told_apart(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	_cleanup_(got_done) struct got g = {0};

	profile_lose(b, add_profile(b, "node", "", 0, NULL, T0 + 5), "counts_full", 70, 0);
	profile_lose(b, add_profile(b, "pod", "", 0, "data", T0 + 5), "counts_full", 3, 0);
	write_batch(s, b, 5);
	read_where(s, leaf(PRED_EQ, "pod_ns", "data"), &g);
	assert_int_equal(g.summary.n_losses, 2);
	assert_int_equal(g.summary.losses[0].n_samples, 70);
	assert_true(g.summary.losses[0].of_node);
	assert_int_equal(g.summary.losses[1].n_samples, 3);
	assert_false(g.summary.losses[1].of_node);
}

/*
 * A loss of a whole node (no agent ran) does not count as a profile. A loss of a container's
 * samples does.
 */
static void node_losses_are_no_profiles(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "gap", "", 0, NULL, T0);
	_cleanup_(got_done) struct got g = {0};

	profile_lose(b, p, "agent_down", 0, 5 * NSEC_PER_SEC);
	write_batch(s, b, 1);
	read_where(s, NULL, &g);
	assert_int_equal(g.summary.n_losses, 1);
	assert_int_equal(g.summary.n_profiles, 0);
	b = profile_batch_new();
	profile_lose(b, add_profile(b, "lost", "", 0, "app", T0), "window_full", 3, 0);
	write_batch(s, b, 1);
	read_where(s, NULL, &g);
	assert_int_equal(g.summary.n_losses, 2);
	assert_int_equal(g.summary.n_profiles, 1);
}

/*
 * If the process of a container's loss is unknown, the loss is shown for each process of that
 * container, but for no other container.
 */
static void container_losses(void **state)
{
	struct store *s = *state;
	struct batch *b = two_services();
	struct profile *p = add_profile(b, "mine", "mine", 99, "app", T0);
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	static char mine[] = "mine", none[] = "none";
	char *services[] = {mine};
	struct got g = {0};

	profile_tag(b, p, "container_id", "c1");
	add_sample(b, p, "t", true, "f", 5);
	for (unsigned i = 1; i <= 2; i++) {
		_cleanup_free_ char *container = xasprintf("c%u", i);

		p = add_profile(b, container, "", 0, "app", T0);
		profile_tag(b, p, "container_id", container);
		profile_lose(b, p, i == 1 ? "window_full" : "spool_full", i, 0);
	}
	write_batch(s, b, 6);
	sel.app_services = services;
	sel.n_app_services = 1;
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "window_full");
	got_done(&g);
	services[0] = none;
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_losses, 0);
	got_done(&g);
}

static void hundred_thousand_rows(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 0);
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	const atomic_bool given_up = true;
	_cleanup_(got_done) struct got g = {0};
	struct values v = {""};
	struct field_error e = {0};

	many_rows(s, 0, 50, 2000);
	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_samples, 100000);
	assert_int_equal(g.n, 2000 + 49 * 7);
	sel.max_time_ns = 1;
	assert_int_equal(store_read(s, &store_scope_all, &sel, take, &g, &g.summary, NULL), -ETIME);
	assert_int_equal(read_values(s, &sel, "thread", 10, take_value, &v, &e), -ETIME);
	assert_true(str_has_prefix(e.reason, "the query took longer than 0.0 s; "));
	sel.max_time_ns = 0;
	sel.given_up = &given_up;
	assert_int_equal(store_read(s, &store_scope_all, &sel, take, &g, &g.summary, NULL), -ETIME);
	store_close(s);
}

static void survives_reopening(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 0), *second;

	write_batch(s, two_services(), 3);
	/* like another process that opens the store while the first one has it open */
	second = open_at(dir, 0, 0);
	assert_int_equal(value_where(second, NULL), 240);
	write_batch(second, two_services(), 0);
	store_close(second);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
	s = open_at(dir, 0, 0);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
}

static void out_of_range_values(void **state)
{
	struct store *s = *state;
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "big", "api", 10, "app", T0);

	add_sample(b, p, "w", false, "ok", 10);
	add_sample(b, p, "w", false, "huge", INT64_MAX);
	add_sample(b, p, "w", false, "negative", -5);
	write_batch(s, b, 1);
	assert_int_equal(value_where(s, NULL), 10);
	assert_int_equal(
		counter_get(counter("store_dropped_rows_total", "reason", "value_out_of_range")),
		2);
}

static void bad_config(void **state)
{
	struct store_config c = {.kind = "oracle", .path = "/tmp"};
	struct field_error e = {0};
	struct store *s = NULL;

	(void)state;
	assert_int_equal(store_open(&c, &s, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "sqlite"));
	c = (struct store_config){.kind = "sqlite", .path = "/proc/nowhere"};
	assert_true(store_open(&c, &s, &e) < 0);
	assert_string_equal(e.path, "/proc/nowhere");
	c.kind = "null";
	assert_int_equal(store_open(&c, &s, &e), 0);
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, NULL), 0);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_MEMORY(known_answer),
		IN_MEMORY(where_functions_without_names_begin_is_kept),
		IN_MEMORY(a_process_counts_once_whatever_its_names),
		IN_MEMORY(bounds_and_services),
		IN_MEMORY(process_named_total),
		IN_MEMORY(truncation),
		IN_MEMORY(duplicates),
		IN_MEMORY(values),
		IN_MEMORY(pods_with_profiles),
		IN_MEMORY(ids_as_they_were_sent),
		IN_MEMORY(nodes_of_two_clusters),
		IN_MEMORY(unverified_profiles),
		IN_MEMORY(node_losses),
		IN_MEMORY(losses_of_long_windows),
		IN_MEMORY(losses_of_the_node_are_told_apart),
		IN_MEMORY(container_losses),
		IN_MEMORY(node_losses_are_no_profiles),
		ON_DISK(hundred_thousand_rows),
		ON_DISK(survives_reopening),
		IN_MEMORY(out_of_range_values),
		cmocka_unit_test(bad_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
