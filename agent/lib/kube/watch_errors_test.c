/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors that a server reports: statuses and error events, kinds that appear and disappear, rights,
 * tokens; and how long the watch waits after each.
 */
#include "lib/kube/testwatch.h"

static const struct row rows[] = {
	{"watch_21_429_on_watch_without_relist",
	 {{REPLY, LIST("10", "")},
	  {FAIL, STATUS("429", "slow down"), 429, "Retry-After: 0\r\n"},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "synced ok err ok +n/a=11",
	 .min_backoffs = 1},
	{"watch_21_429_on_list",
	 {{FAIL, STATUS("429", "slow down"), 429, "Retry-After: 0\r\n"},
	  {REPLY, LIST("10", ""), .expect = {"!watch=true", "resourceVersion=0 "}},
	  {HOLD, ""}},
	 "err synced ok",
	 .min_backoffs = 1},
	{"watch_22_5xx",
	 {{FAIL, "", 500},
	  {FAIL, "oops", 503},
	  {FAIL, STATUS("504", "no time left"), 504, .expect = {"resourceVersion=0 "}},
	  {REPLY, LIST("10", "")},
	  {FAIL, STATUS("500", "etcd is away"), 500},
	  {FAIL, STATUS("504", "no time left"), 504, .expect = {"watch=true"}},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "err(HTTP 500) err(HTTP 503) err(HTTP 504: no time left) synced ok "
	 "err(HTTP 500: etcd is away) err(HTTP 504: no time left) ok +n/a=11",
	 .min_backoffs = 5},
	/* the status of a head counts, even if the rest of the answer is lost */
	{"watch_22_refusals_that_are_cut",
	 {{RAW, "HTTP/1.1 410 X\r\nContent-Length: 9\r\n\r\n{", .expect = {"resourceVersion=0 "}},
	  {REPLY, LIST("10", ""), .expect = {"!watch=true", "resourceVersion= "}},
	  {RAW, "HTTP/1.1 410 X\r\nContent-Length: 9\r\n\r\n{", .expect = {"watch=true"}},
	  {REPLY, LIST("20", ""), .expect = {"!watch=true", "resourceVersion=10 "}},
	  {HOLD, ADD("a", "21")}},
	 "synced ok +n/a=21"},
	{"watch_22_error_event_500",
	 {{REPLY, LIST("10", "")},
	  {HOLD, EV("ERROR", STATUS("500", "internal"))},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "synced ok err ok +n/a=11",
	 .min_backoffs = 1},
	{"watch_40_kind_not_installed_yet",
	 {{FAIL, "404 page not found", 404},
	  {FAIL, "404 page not found", 404},
	  {REPLY, LIST("10", POD("a", "1")), .expect = {"resourceVersion=0 "}},
	  {HOLD, ""}},
	 "synced ok +n/a=1",
	 .optional = true,
	 .min_backoffs = 2},
	{"watch_40_missing_kind_is_an_error_when_needed",
	 {{FAIL, "404 page not found", 404}, {REPLY, LIST("10", "")}, {HOLD, ""}},
	 "err(HTTP 404) synced ok"},
	{"watch_41_kind_deleted_while_running",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {STREAM, BOOKMARK("11")},
	  {FAIL, "404 page not found", 404},
	  {FAIL, "404 page not found", 404},
	  {REPLY, LIST("20", POD("b", "19")), .expect = {"resourceVersion=0 "}},
	  {HOLD, ""}},
	 "+n/a=1 synced ok -n/a=1 +n/b=19",
	 .optional = true},
	{"watch_41_one_404_of_a_starting_server_drops_nothing",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {STREAM, BOOKMARK("11")},
	  {FAIL, "404 page not found", 404},
	  {REPLY, LIST("20", POD("a", "1"))},
	  {HOLD, ADD("b", "21")}},
	 "+n/a=1 synced ok +n/b=21",
	 .optional = true},
	/* the server rewrites its storage: equal objects get other versions, and the stream ends */
	{"watch_42_kind_is_stored_in_another_version",
	 {{REPLY, LIST("10", SAME("a", "1"))},
	  {STREAM, BOOKMARK("11")},
	  {FAIL, STATUS("503", "conversion webhook is away"), 503},
	  {HOLD, EV("MODIFIED", SAME("a", "12")) MOD("a", "13"),
	   .expect = {"watch=true", "resourceVersion=11 "}}},
	 "+n/a=1 synced ok err(HTTP 503: conversion webhook is away) ok ~n/a=13",
	 .optional = true},
	{"watch_42_our_version_is_no_longer_served",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {STREAM, BOOKMARK("11")},
	  {FAIL, "404 page not found", 404},
	  {FAIL, "404 page not found", 404},
	  {FAIL, "404 page not found", 404},
	  {REPLY, LIST("20", POD("a", "19"))},
	  {HOLD, ""}},
	 "+n/a=1 synced ok -n/a=1 +n/a=19",
	 .optional = true},
	{"watch_43_forbidden_keeps_the_cache",
	 {{REPLY, LIST("10", POD("a", "1"))},
	  {STREAM, BOOKMARK("11")},
	  {FAIL, STATUS("403", "pods is forbidden"), 403},
	  {FAIL, STATUS("403", "pods is forbidden"), 403},
	  {HOLD, MOD("a", "12"), .expect = {"resourceVersion=11 "}}},
	 "+n/a=1 synced ok err(HTTP 403: pods is forbidden) ok ~n/a=12",
	 .min_backoffs = 2},
	{"watch_44_redirect_is_an_error",
	 {{FAIL, "", 302, "Location: https://evil.example/\r\n"},
	  {REPLY, LIST("10", "")},
	  {HOLD, ""}},
	 "err(HTTP 302) synced ok",
	 .min_backoffs = 1},
	{"watch_54_expired_token_is_read_again",
	 {{FAIL, STATUS("401", "Unauthorized"), 401},
	  {REPLY, LIST("10", "")},
	  {FAIL, STATUS("401", "Unauthorized"), 401},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true"}}},
	 "synced ok +n/a=11",
	 .no_backoff = true},
	{"watch_55_persistent_401_backs_off",
	 {{FAIL, "", 401}, {FAIL, "", 401}, {FAIL, "", 401}, {REPLY, LIST("10", "")}, {HOLD, ""}},
	 "err(HTTP 401) synced ok",
	 .min_backoffs = 2},
	{"watch_61_compressed_list_is_refused",
	 {{RAW, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
		"\x1f\x8b\x08\x01"},
	  {REPLY, LIST("10", POD("b", "1")), .headers = "Content-Encoding: identity\r\n"},
	  {RAW, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
		"\x1f\x8b\x08\x01"},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "err(the answer is compressed with gzip, which was not asked for) +n/b=1 synced ok "
	 "err(the answer is compressed with gzip, which was not asked for) ok +n/a=11",
	 .min_backoffs = 2},
};

/* The watch waits for Retry-After if it is longer than the backoff. */
static void watch_21_retry_after_is_waited_for(void **state)
{
	static const struct row row = {
		"",
		{{FAIL, STATUS("429", "slow down"), 429, "Retry-After: 1\r\n"},
		 {REPLY, LIST("10", "")},
		 {FAIL, STATUS("429", "slow down"), 429, "Retry-After: 1\r\n"},
		 {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
		"err synced ok err ok +n/a=11"};
	struct fixture *f = start(&row, &fast);

	(void)state;
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	assert_true(f->asked_ns[1] - f->asked_ns[0] >= NSEC_PER_SEC);
	assert_true(f->asked_ns[3] - f->asked_ns[2] >= NSEC_PER_SEC);
	finish(f);
}

int main(void)
{
	const struct CMUnitTest more[] = {
		cmocka_unit_test(watch_21_retry_after_is_waited_for),
	};

	return run_rows("watch_errors", rows, ARRAY_SIZE(rows), more, ARRAY_SIZE(more));
}
