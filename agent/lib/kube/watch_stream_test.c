/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a stream: cut, in pieces, in another form, too large. */
#include "lib/kube/testwatch.h"

static const struct row rows[] = {
	{"watch_09_bookmark_advances",
	 {{REPLY, LIST("10", "")},
	  {STREAM, BOOKMARK("50")},
	  {HOLD, ADD("a", "51"), .expect = {"resourceVersion=50 "}}},
	 "synced ok +n/a=51",
	 .no_backoff = true},
	{"watch_10_initial_events_end_bookmark",
	 {{REPLY, LIST("10", "")},
	  {HOLD, EV("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"12\",\"annotations\":"
				"{\"k8s.io/initial-events-end\":\"true\"}}}") ADD("a", "13")}},
	 "synced ok +n/a=13"},
	{"watch_13_cut_mid_object",
	 {{REPLY, LIST("10", "")},
	  {CUT, ADD("a", "11") "{\"type\":\"ADDED\",\"object\":{\"metad"},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=11 +n/b=12"},
	{"watch_14_one_byte_chunks",
	 {{REPLY, LIST("10", "")},
	  {BYTES, ADD("a", "11") MOD("a", "12") BOOKMARK("13") ADD("b", "14")}},
	 "synced ok +n/a=11 ~n/a=12 +n/b=14"},
	{"watch_15_two_in_one_chunk_crlf_blank_lines",
	 {{REPLY, LIST("10", "")},
	  {HOLD,
	   "\n\r\n{\"type\":\"ADDED\",\"object\":" POD("a", "11") "}\r\n\n\n" ADD("b", "12")}},
	 "synced ok +n/a=11 +n/b=12"},
	{"watch_16_clean_close_goes_on_at_once",
	 {{REPLY, LIST("10", "")},
	  {STREAM, ADD("a", "11")},
	  {STREAM, ADD("b", "12"), .expect = {"resourceVersion=11 "}},
	  {HOLD, ADD("c", "13"), .expect = {"resourceVersion=12 "}}},
	 "synced ok +n/a=11 +n/b=12 +n/c=13",
	 .no_backoff = true},
	{"watch_17_very_short_watch_backs_off",
	 {{REPLY, LIST("10", "")},
	  {STREAM, ""},
	  {STREAM, "", .expect = {"resourceVersion=10 "}},
	  {HOLD, ADD("a", "11")}},
	 "synced ok +n/a=11",
	 .min_backoffs = 2},
	{"watch_23_html_instead_of_watch",
	 {{REPLY, LIST("10", "")},
	  {STREAM, "<html>\nSign in\n</html>\n"},
	  {REPLY, LIST("11", POD("a", "11")), .expect = {"!watch=true"}},
	  {HOLD, ""}},
	 "synced ok +n/a=11",
	 .counter = "garbage",
	 .min_backoffs = 1},
	{"watch_24_garbage_line_stream_goes_on",
	 {{REPLY, LIST("10", "")},
	  {STREAM, ADD("a", "11") "{\"type\":\"ADDED\",\"obj\n" ADD("b", "12")},
	  /* an event may be lost, so the watch lists again */
	  {REPLY, LIST("13", POD("a", "11") "," POD("b", "12") "," POD("c", "13")),
	   .expect = {"!watch=true"}},
	  {HOLD, ""}},
	 "synced ok +n/a=11 +n/b=12 +n/c=13",
	 .counter = "garbage"},
	{"watch_25_bad_utf8",
	 {{REPLY, LIST("10", "")},
	  {HOLD, "{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\xfe\"}}\n" ADD("a", "11")}},
	 "synced ok +n/a=11",
	 .counter = "garbage"},
	/* anybody who may annotate a pod may write such a text: the watch reads it */
	{"watch_25_nul",
	 {{REPLY, LIST("10", OBJ("a", "u", "9", ",\"x\":\"\\u0000\""))},
	  {HOLD, EV("MODIFIED", OBJ("a", "u", "11", ",\"x\":\"y\\u0000z\""))}},
	 "+n/a=9 synced ok ~n/a=11"},
	{"watch_25_nul_in_a_last_line_without_end",
	 {{REPLY, LIST("10", "")},
	  {STREAM, "{\"type\":\"ADDED\",\"object\":" OBJ("a", "u", "11", ",\"x\":\"\\u0000\"") "}"},
	  {HOLD, "", .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=11"},
	{"watch_25_duplicate_keys",
	 {{REPLY, LIST("10", "")}, {HOLD, EV("ADDED", OBJ("a", "u", "11", ",\"x\":1,\"x\":2"))}},
	 "synced ok +n/a=11"},
	{"watch_25_object_above_the_limit",
	 {{REPLY, LIST("10", "")}, {BIG, ADD("a", "11")}},
	 "synced ok +n/a=11",
	 .counter = "oversized_object"},
	{"watch_25_object_of_1_5_mib",
	 {{REPLY, LIST("10", "")}, {LARGE, ADD("a", "12")}},
	 "synced ok +n/large=11 +n/a=12"},
	{"watch_25_depth_bomb",
	 {{REPLY, LIST("10", "")}, {DEEP, ADD("a", "11")}},
	 "synced ok +n/a=11",
	 .counter = "garbage"},
	{"watch_26_unknown_event_type",
	 {{REPLY, LIST("10", "")}, {HOLD, EV("SURPRISE", POD("x", "11")) ADD("a", "12")}},
	 "synced ok +n/a=12",
	 .counter = "unknown_event_type"},
	{"watch_27_table_instead_of_object",
	 {{REPLY, LIST("10", "")},
	  {HOLD, EV("ADDED", "{\"kind\":\"Table\",\"metadata\":{\"resourceVersion\":\"11\"}}")
			 EV("ADDED", STATUS("0", "what")) ADD("a", "12")}},
	 "synced ok +n/a=12",
	 .counter = "table_instead_of_object"},
	{"watch_28_null_for_arrays_and_maps",
	 {{REPLY,
	   "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"10\"},\"items\":null}"},
	  {HOLD, EV("ADDED", "null") "null\n[]\n" EV(
			 "ADDED",
			 OBJ("a", "u", "11", ",\"spec\":null,\"status\":{\"containers\":null}"))}},
	 "synced ok +n/a=11",
	 .counter = "event_without_object"},
	{"watch_29_unknown_fields",
	 {{REPLY, "{\"future\":[{\"items\":[1]}],\"kind\":\"PodList\",\"metadata\":{"
		  "\"resourceVersion\":\"10\","
		  "\"remainingItemCount\":0},\"items\":[" OBJ(
			  "a", "u", "1", ",\"new\":{\"items\":[{}]}") "],\"more\":\"]}\"}"},
	  {HOLD, "{\"type\":\"MODIFIED\",\"extra\":1,\"object\":" POD("a", "11") "}\n"}},
	 "+n/a=1 synced ok -n/a=1 +n/a=11"},
	{"watch_30_modified_for_unknown_key",
	 {{REPLY, LIST("10", "")}, {HOLD, MOD("a", "11")}},
	 "synced ok +n/a=11"},
	{"watch_31_deleted_for_unknown_key",
	 {{REPLY, LIST("10", "")}, {HOLD, DEL("x", "11") ADD("a", "12")}},
	 "synced ok +n/a=12"},
	{"watch_33_new_uid_as_delete_and_add",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {HOLD, EV("DELETED", OBJ("a", "u1", "11", "")) EV("ADDED", OBJ("a", "u2", "12", ""))}},
	 "+n/a=1 synced ok -n/a=1 +n/a=12"},
	{"watch_33_new_uid_as_one_modified",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {HOLD, EV("MODIFIED", OBJ("a", "u2", "12", ""))}},
	 "+n/a=1 synced ok -n/a=1 +n/a=12"},
	{"watch_35_out_of_order_added",
	 {{REPLY, LIST("10", "")},
	  {STREAM, ADD("a", "5") ADD("b", "3") BOOKMARK("11")},
	  {HOLD, "", .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=5 +n/b=3"},
	{"watch_63_chunk_extensions_and_trailers",
	 {{RAW, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		"4d;x=\"y\"\r\n{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{"
		"\"resourceVersion\":\"10\"},\"item"
		"\r\n5 ;a\r\ns\":[]\r\n1\r\n}\r\n0\r\nTrailer: 1\r\n\r\n"},
	  {HOLD, ""}},
	 "synced ok"},
};

static void freed_inside_its_own_callback(void **state)
{
	static const struct row row = {
		"", {{REPLY, LIST("10", POD("a", "1") "," POD("b", "2"))}}, "+n/a=1"};
	struct fixture *f = start(&row, &fast);

	(void)state;
	f->free_in_callback = true;
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->watch);
	finish(f);
}

static void freed_inside_a_stream(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", "")}, {HOLD, ADD("a", "1") ADD("b", "2")}},
		"synced ok +n/a=1"};
	struct fixture *f = start(&row, &fast);

	(void)state;
	f->free_in_callback = true;
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->watch);
	finish(f);
}

/*
 * If only the version changes, nothing is reported. But the object that the owner holds gets the
 * new version, so the owner can write with it.
 */
static void new_version_alone_reaches_who_holds_the_object(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", "")},
		 {HOLD, ADD("a", "11") EV("MODIFIED",
					  "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{"
					  "\"namespace\":\"n\",\"name\":\"a\",\"uid\":\"u-a\","
					  "\"resourceVersion\":\"12\",\"managedFields\":[{}]},"
					  "\"v\":\"11\"}") ADD("b", "13")}},
		"synced ok +n/a=11 +n/b=13"};
	struct fixture *f = start(&row, &fast);

	(void)state;
	assert_int_equal(loop_run(f->loop), 0);
	assert_ptr_equal(kube_watch_get(f->watch, "n/a"), f->first);
	assert_string_equal(json_str_at(f->first, "metadata.resourceVersion", ""), "12");
	finish(f);
}

int main(void)
{
	const struct CMUnitTest more[] = {
		cmocka_unit_test(freed_inside_its_own_callback),
		cmocka_unit_test(freed_inside_a_stream),
		cmocka_unit_test(new_version_alone_reaches_who_holds_the_object),
	};

	return run_rows("watch_stream", rows, ARRAY_SIZE(rows), more, ARRAY_SIZE(more));
}
