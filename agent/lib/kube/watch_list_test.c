/* SPDX-License-Identifier: Apache-2.0 */
/* The watch and its lists: versions, pages, and the changes that a new list brings. */
#include "lib/kube/testwatch.h"

#include <malloc.h>

static const struct row rows[] = {
	{"watch_01_list_then_watch",
	 {{REPLY, LIST("10", POD("a", "3")),
	   .expect = {"GET /api/v1/pods?", "resourceVersion=0 ", "limit=500",
		      "Authorization: Bearer secret"}},
	  {HOLD, ADD("b", "11") MOD("a", "12") DEL("b", "13"),
	   .expect = {"resourceVersion=10 ", "allowWatchBookmarks=true",
		      "timeoutSeconds=", "User-Agent: podflame/test (node)"}}},
	 "+n/a=3 synced ok +n/b=11 ~n/a=12 -n/b=11",
	 .no_backoff = true},
	{"watch_02_empty_list",
	 {{REPLY, LIST("10", "")}, {HOLD, ADD("a", "11")}},
	 "synced ok +n/a=11"},
	{"watch_03_paginated_list",
	 {{REPLY, LIST_PART("10", CONTINUE("t/1="), POD("a", "1"))},
	  {REPLY, LIST_PART("10", CONTINUE("t2"), POD("b", "2")),
	   .expect = {"continue=t%2F1%3D", "!resourceVersion"}},
	  {REPLY, LIST("10", POD("c", "3")), .expect = {"continue=t2"}},
	  {HOLD, "", .expect = {"resourceVersion=10 "}}},
	 "+n/a=1 +n/b=2 +n/c=3 synced ok"},
	{"watch_04_continue_expired_full_list",
	 {{REPLY, LIST_PART("10", CONTINUE("t1"), POD("a", "1"))},
	  {FAIL, STATUS("410", "token expired"), 410},
	  {REPLY, LIST("20", POD("b", "2")),
	   .expect = {"!continue", "!limit", "resourceVersion= "}},
	  {HOLD, "", .expect = {"resourceVersion=20 "}}},
	 "+n/b=2 synced ok"},
	{"watch_05_http_410_on_watch",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {FAIL, STATUS("410", "too old"), 410},
	  {REPLY, LIST("20", POD("a", "1") "," POD("b", "15")),
	   .expect = {"resourceVersion=10 ", "!limit"}},
	  {HOLD, "", .expect = {"resourceVersion=20 "}}},
	 "+n/a=1 synced ok +n/b=15",
	 .min_backoffs = 1},
	{"watch_06_error_event_410",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {HOLD, ADD("b", "11") EV("ERROR", STATUS("410", "too old"))},
	  {REPLY, LIST("20", POD("b", "11")), .expect = {"resourceVersion=11 "}},
	  {HOLD, ADD("c", "21"), .expect = {"resourceVersion=20 "}}},
	 "+n/a=1 synced ok +n/b=11 -n/a=1 +n/c=21",
	 .min_backoffs = 1},
	{"watch_07_loop_of_410_backs_off",
	 {{REPLY, LIST("10", "")},
	  {FAIL, STATUS("410", "x"), 410},
	  {FAIL, STATUS("410", "x"), 410, .expect = {"resourceVersion=10 "}},
	  {FAIL, STATUS("410", "x"), 410, .expect = {"resourceVersion= "}},
	  {FAIL, STATUS("410", "x"), 410, .expect = {"resourceVersion= "}},
	  {REPLY, LIST("20", POD("a", "1"))},
	  {HOLD, ""}},
	 "synced ok +n/a=1",
	 .min_backoffs = 3},
	{"watch_08_too_large_resource_version",
	 {{REPLY, LIST("10", "")},
	  {FAIL, STATUS("410", "x"), 410},
	  {FAIL, STATUS("504", "Too large resource version: 10, current: 5"), 504,
	   .expect = {"resourceVersion=10 "}},
	  {REPLY, LIST("5", POD("a", "4")), .expect = {"resourceVersion= ", "limit=500"}},
	  {HOLD, "", .expect = {"resourceVersion=5 "}}},
	 "synced ok +n/a=4"},
	{"watch_23_html_instead_of_list",
	 {{REPLY, "<html>Sign in</html>"}, {REPLY, LIST("10", "")}, {HOLD, ""}},
	 "err(the answer is no JSON object) synced ok",
	 .min_backoffs = 1},
	{"watch_27_table_instead_of_list",
	 {{REPLY, "{\"kind\":\"Table\",\"metadata\":{\"resourceVersion\":\"1\"},\"rows\":[]}"},
	  {REPLY, LIST("10", "")},
	  {HOLD, ""}},
	 "err(the answer is no list of objects) synced ok",
	 .min_backoffs = 1},
	{"watch_32_missed_delete_is_made_up",
	 {{REPLY, LIST("10", POD("a", "1") "," POD("b", "2") "," POD("c", "3"))},
	  {FAIL, "", 410},
	  {REPLY, LIST("20", POD("b", "2"))},
	  {HOLD, ADD("d", "21")}},
	 "+n/a=1 +n/b=2 +n/c=3 synced ok -n/a=1 -n/c=3 +n/d=21"},
	{"watch_33_new_uid_across_relist",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {FAIL, "", 410},
	  {REPLY, LIST("20", OBJ("a", "u2", "15", ""))},
	  {HOLD, ""}},
	 "+n/a=1 synced ok -n/a=1 +n/a=15"},
	{"watch_13_truncated_list_is_not_used",
	 {{RAW, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" LIST("10", POD("a", "1"))},
	  {REPLY, LIST("10", POD("b", "1"))},
	  {HOLD, ""}},
	 "err(connection closed before the end of the answer) +n/b=1 synced ok",
	 .min_backoffs = 1},
	{"watch_34_restored_backup_is_noticed",
	 {{REPLY, LIST("100", POD("a", "90"))},
	  {HOLD, ""},
	  {REPLY, LIST("50", ""), .expect = {"limit=1"}},
	  {REPLY, LIST("50", POD("b", "40")), .expect = {"resourceVersion= "}},
	  {HOLD, "", .expect = {"resourceVersion=50 "}}},
	 "+n/a=90 synced ok +n/b=40 -n/a=90",
	 .probes_allowed = true,
	 .probe_ns = NSEC_PER_SEC},
	{"watch_37_equal_relist_calls_nobody",
	 {{REPLY, LIST("10", SAME("a", "1") "," SAME("b", "2"))},
	  {FAIL, "", 410},
	  {REPLY, LIST("20", SAME("b", "19") "," SAME("a", "1"))},
	  {HOLD, ADD("z", "21")}},
	 "+n/a=1 +n/b=2 synced ok +n/z=21"},
	{"watch_39_same_name_in_two_namespaces",
	 {{REPLY, LIST("10", POD("a", "1") ",{\"metadata\":{\"namespace\":\"m\",\"name\":\"a\","
					   "\"uid\":\"m\",\"resourceVersion\":\"2\"}}"
					   ",{\"metadata\":{\"name\":\"a\",\"uid\":\"c\","
					   "\"resourceVersion\":\"3\"}}")},
	  {HOLD, DEL("a", "11")}},
	 "+n/a=1 +m/a=2 +a=3 synced ok -n/a=1"},
	/* the server would refuse the same watch for ever */
	{"watch_refused_is_followed_by_a_list",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {FAIL, STATUS("400", "Invalid value: 10"), 400, .expect = {"watch=true"}},
	  {REPLY, LIST("20", POD("a", "1")), .expect = {"resourceVersion=10 ", "!watch"}},
	  {FAIL, STATUS("422", "not so"), 422, .expect = {"watch=true", "resourceVersion=20 "}},
	  {REPLY, LIST("30", POD("b", "25")), .expect = {"resourceVersion=20 ", "!watch"}},
	  {HOLD, ADD("c", "31"), .expect = {"watch=true", "resourceVersion=30 "}}},
	 "+n/a=1 synced ok err(HTTP 400: Invalid value: 10) ok err(HTTP 422: not so) +n/b=25 "
	 "-n/a=1 ok "
	 "+n/c=31",
	 .min_backoffs = 2},
	{"list_refused_at_a_version_asks_for_the_newest",
	 {{REPLY, LIST("x7", POD("a", "1"))},
	  {FAIL, STATUS("400", "Invalid value: x7"), 400, .expect = {"watch=true"}},
	  {FAIL, STATUS("400", "Invalid value: x7"), 400, .expect = {"resourceVersion=x7 "}},
	  {REPLY, LIST("20", POD("a", "1")), .expect = {"resourceVersion= ", "!watch"}},
	  {HOLD, ADD("b", "21"), .expect = {"watch=true", "resourceVersion=20 "}}},
	 "+n/a=1 synced ok err(HTTP 400: Invalid value: x7) err(HTTP 400: Invalid value: x7) ok "
	 "+n/b=21",
	 .min_backoffs = 2},
	{"watch_selectors_are_encoded",
	 {{REPLY, LIST("10", ""),
	   .expect = {"&fieldSelector=spec.nodeName%3Dn1%2Ca%21%3Db",
		      "&labelSelector=x%20in%20%28a%2Cb%29 "}},
	  {HOLD, "", .expect = {"&fieldSelector=spec.nodeName%3Dn1%2Ca%21%3Db"}}},
	 "synced ok",
	 .field_selector = "spec.nodeName=n1,a!=b",
	 .label_selector = "x in (a,b)"},
	{"watch_metadata_only",
	 {{REPLY, LIST("10", ""), .expect = {"as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
	  {HOLD, "", .expect = {"as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}}},
	 "synced ok",
	 .metadata_only = true},
};

/* Case 36: serves a large first list. Meanwhile the loop must never be blocked for long. */
static void serve_many(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	_cleanup_buf_ struct buf b = {0};

	(void)arg;
	if (strstr(r->line, "watch=true")) {
		ts_stream(c);
		ts_stall(c);
		return;
	}
	buf_puts(&b, "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{"
		     "\"resourceVersion\":\"10\"},\"items\":[");
	for (int i = 0; i < 10000; i++)
		buf_printf(&b,
			   "%s{\"metadata\":{\"name\":\"p%d\",\"uid\":\"u%d\",\"managedFields\":[{"
			   "\"manager\":\"m\"}]}}",
			   i ? "," : "", i, i);
	buf_puts(&b, "]}");
	ts_reply(c, 200, NULL, b.data);
}

static int n_seen;

static void count_upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)arg;
	assert_null(old);
	assert_null(json_at(obj, "metadata.managedFields"));
	assert_string_equal(json_str_at(obj, "kind", ""), "Pod"); /* complete_type() has added it */
	n_seen++;
}

static void stop_when_synced(void *arg)
{
	loop_stop(((struct fixture *)arg)->loop, 0);
}

static void count_each(const char *key, const json_t *obj, void *arg)
{
	(void)key;
	(void)obj;
	(*(int *)arg)++;
}

static void watch_36_ten_thousand_objects(void **state)
{
	static const struct kube_watch_ops count = {.upsert = count_upsert,
						    .synced = stop_when_synced};
	struct kube_watch_spec spec = {.path = "/api/v1/pods"};
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = &cert};
	/* bytes that this thread has allocated; 0 with ASan */
	size_t before = mallinfo2().uordblks, bytes;
	int n = 0;

	(void)state;
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve_many, NULL);
	make_kube(f, NULL, &fast);
	assert_int_equal(kube_watch_new(f->kube, &spec, &count, f, &f->watch), 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(n_seen, 10000);
	assert_true(kube_watch_synced(f->watch));
	kube_watch_each(f->watch, count_each, &n);
	assert_int_equal(n, 10000);
	assert_non_null(kube_watch_get(f->watch, "p9999"));
	assert_null(kube_watch_get(f->watch, "p10000"));
	bytes = (mallinfo2().uordblks - before) / 10000;
	print_message("longest stall %.1f ms, %zu bytes an object\n",
		      (double)loop_longest_ever_ns(f->loop) / 1e6, bytes);
	assert_in_range(bytes, 0, 4096);
	finish(f);
}

/*
 * Objects that exceed the memory limit of a kind are not kept, whether a list or a stream brings
 * them, and the owner is told of each of them. The watch goes on. When there is room again, another
 * list brings the oldest ones.
 */
static void watch_36_bytes_of_a_kind_are_bounded(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", POD("a", "1") "," POD("b", "2") "," POD("c", "3"))},
		 {HOLD, ADD("d", "11") DEL("a", "12") DEL("b", "13") ADD("e", "14")},
		 {REPLY, LIST("20", POD("c", "3") "," POD("d", "11") "," POD("e", "14")),
		  .expect = {"!watch", "resourceVersion=14 "}},
		 {HOLD, "", .expect = {"resourceVersion=20 "}}},
		"?n/c=3 +n/a=1 +n/b=2 synced ok ?n/d=11 -n/a=1 -n/b=2 ?n/e=14 ?n/e=14 "
		"+n/c=3 +n/d=11"};
	uint64_t before = total("kube_dropped_total", "reason", "no_room");
	_cleanup_json_ json_t *pod = json_loads(POD("a", "1"), 0, NULL);
	struct kube_times t = fast;
	struct fixture *f;

	(void)state;
	t.max_kind_bytes = 2 * json_memory_bytes(pod) + 1;
	f = start(&row, &t);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	assert_int_equal(total("kube_dropped_total", "reason", "no_room") - before, 4);
	assert_int_equal(kube_watch_left_out(f->watch), 1);
	finish(f);
}

/* An object of a namespace: all have the same size. */
#define OF(ns, name, second)                                                                       \
	"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"namespace\":\"" ns                \
	"\",\"name\":\"" name "\",\"uid\":\"" name "\",\"resourceVersion\":\"" second              \
	"\",\"creationTimestamp\":\"2026-01-01T00:00:" second "Z\"}}"
#define FIVE                                                                                       \
	OF("big", "a", "11")                                                                       \
	"," OF("big", "b", "12") "," OF("big", "c", "13") "," OF("big", "d",                       \
								 "14") "," OF("big", "e", "15")

static size_t n_of_big;

static void note_big(const char *ns, size_t n, void *arg)
{
	(void)arg;
	assert_string_equal(ns, "big");
	n_of_big = n;
}

/*
 * A namespace with many objects takes no room of another one, whether its objects come before or
 * after, in a list or later. It keeps its oldest objects. What was left out comes back.
 */
static void watch_36_a_namespace_takes_no_room_of_another(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("20", FIVE "," OF("small", "x", "16"))},
		 {HOLD, EV("ADDED", OF("small", "y", "21")) EV("ADDED", OF("big", "f", "22"))
				EV("DELETED", OF("small", "x", "23"))},
		 {REPLY, LIST("30", FIVE "," OF("big", "f", "22") "," OF("small", "y", "21")),
		  .expect = {"!watch", "resourceVersion=23 "}},
		 {HOLD, "", .expect = {"resourceVersion=30 "}}},
		"?big/e=15 ?big/d=14 +big/a=11 +big/b=12 +big/c=13 +small/x=16 synced ok "
		"?big/c=13 -big/c=13 +small/y=21 ?big/f=22 -small/x=16 "
		"?big/e=15 ?big/f=22 ?big/d=14 +big/c=13"};
	_cleanup_json_ json_t *pod = json_loads(OF("big", "a", "11"), 0, NULL);
	struct kube_times t = fast;
	struct fixture *f;

	(void)state;
	t.max_kind_bytes = 4 * json_memory_bytes(pod) + 1;
	f = start(&row, &t);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	kube_watch_each_left_out(f->watch, note_big, NULL);
	assert_int_equal(n_of_big, 3);
	assert_int_equal(kube_watch_left_out(f->watch), 3);
	finish(f);
}

/*
 * Lists all pages, tries again after a refusal, and sends no request after the list. The owner
 * learns how many objects were left out.
 */
static void watch_list_once(void **state)
{
	static const struct row row = {
		"",
		{{FAIL, STATUS("403", "no"), 403},
		 {REPLY, LIST_PART("10", CONTINUE("t1"), POD("a", "1")), .expect = {"limit=500"}},
		 {REPLY, LIST("10", POD("b", "2") "," POD("c", "3") ",3"),
		  .expect = {"continue=t1"}}},
		"err(HTTP 403: no) ?n/c=3 +n/a=1 +n/b=2 synced ok",
		.once = true};
	uint64_t before = total("kube_watch_total", "event", "watch");
	_cleanup_json_ json_t *pod = json_loads(POD("a", "1"), 0, NULL);
	struct kube_times t = fast;
	struct fixture *f;

	(void)state;
	t.max_kind_bytes = 2 * json_memory_bytes(pod) + 1;
	f = start(&row, &t);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	assert_true(kube_watch_synced(f->watch));
	assert_int_equal(kube_watch_left_out(f->watch), 1);
	assert_int_equal(total("kube_watch_total", "event", "watch"), before);
	finish(f);
}

/* Objects that are too long, each on its page, count as left out of the list as well. */
static void watch_list_once_leaves_out_long_objects(void **state)
{
#define LONG OBJ("b", "u", "2", ",\"x\":\"a text that makes this object the longest one\"")
	static const struct row row = {
		"",
		{{REPLY, LIST_PART("10", CONTINUE("t1"), POD("a", "1") "," LONG)},
		 {REPLY, LIST("10", LONG "," POD("c", "3"))}},
		"+n/a=1 +n/c=3 synced ok",
		.once = true};
	struct kube_times t = fast;
	struct fixture *f;

	(void)state;
	t.max_object_bytes = strlen(LONG) - 1;
	f = start(&row, &t);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	assert_int_equal(kube_watch_left_out(f->watch), 2);
	finish(f);
}

static void free_and_stop(struct fixture *f)
{
	f->watch = kube_watch_free(f->watch);
	loop_stop(f->loop, 0);
}

static void free_when_synced(void *arg)
{
	free_and_stop(arg);
}

static void free_when_refused(const char *error, void *arg)
{
	assert_non_null(error);
	free_and_stop(arg);
}

/* The owner frees the watch inside synced or state, as an owner of a single list does. */
static void watch_list_once_is_freed_in_callbacks(void **state)
{
	static const struct kube_watch_ops freeing = {upsert, removed, free_when_synced,
						      free_when_refused};
	static const struct row row = {
		"",
		{{FAIL, STATUS("403", "no"), 403}, {REPLY, LIST("10", POD("a", "1"))}},
		"+n/a=1"};
	const struct kube_watch_spec spec = {.path = "/api/v1/pods", .once = true};
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = &cert};

	(void)state;
	f->row = &row;
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	make_kube(f, NULL, &fast);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kube_watch_new(f->kube, &spec, &freeing, f, &f->watch), 0);
		assert_int_equal(loop_run(f->loop), 0);
		assert_null(f->watch);
	}
	assert_string_equal(f->log.data, row.log);
	assert_null(f->wrong);
	finish(f);
}

#define NOTED(name, rv, v, note)                                                                   \
	OBJ(name, "u-" name, rv, ",\"v\":\"" v "\",\"note\":{\"a\":[0],\"b\":\"" note "\"}")

static void drop_note(json_t *obj)
{
	json_object_del(obj, "note");
}

/* A member that trim removes is neither kept nor counted, and a change of it counts as none. */
static void watch_36_what_is_trimmed_counts_for_nothing(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", NOTED("a", "1", "1", "x") "," NOTED("b", "2", "2", "x"))},
		 {HOLD, EV("MODIFIED", NOTED("a", "11", "1", "y"))
				EV("MODIFIED", NOTED("a", "12", "3", "y"))}},
		"+n/a=1 +n/b=2 synced ok ~n/a=12",
		.trim = drop_note};
	_cleanup_json_ json_t *pod = json_loads(POD("a", "1"), 0, NULL);
	struct kube_times t = fast;
	struct fixture *f;

	(void)state;
	t.max_kind_bytes = 2 * json_memory_bytes(pod) + 1;
	f = start(&row, &t);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	finish(f);
}

int main(void)
{
	const struct CMUnitTest more[] = {
		cmocka_unit_test(watch_36_what_is_trimmed_counts_for_nothing),
		cmocka_unit_test(watch_36_bytes_of_a_kind_are_bounded),
		cmocka_unit_test(watch_36_a_namespace_takes_no_room_of_another),
		cmocka_unit_test(watch_36_ten_thousand_objects),
		cmocka_unit_test(watch_list_once),
		cmocka_unit_test(watch_list_once_leaves_out_long_objects),
		cmocka_unit_test(watch_list_once_is_freed_in_callbacks),
	};

	return run_rows("watch_list", rows, ARRAY_SIZE(rows), more, ARRAY_SIZE(more));
}
