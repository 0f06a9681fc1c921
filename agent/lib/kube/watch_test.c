// SPDX-License-Identifier: Apache-2.0
/*
 * The reflector against a scripted API server: a table of what the server says to
 * each request in turn, and of what the owner of the watch must then have seen.
 * Numbers in names are those of docs/watch-cases.md.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <malloc.h>

#include <cmocka.h>

#include "lib/kube/kube_private.h"
#include "lib/loop/conn.h"
#include "lib/loop/testserver.h"

/* what a row does not name is zero */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* ---- objects ---- */

#define OBJ(name, uid, rv, rest)                                                                   \
	"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"namespace\":\"n\",\"name\":"      \
	"\"" name "\",\"uid\":\"" uid "\",\"resourceVersion\":\"" rv "\"}" rest "}"
#define POD(name, rv)	OBJ(name, "u-" name, rv, ",\"v\":\"" rv "\"")
#define SAME(name, rv)	OBJ(name, "u-" name, rv, ",\"v\":\"same\"")
#define LIST(rv, items) LIST_PART(rv, "", items)
#define LIST_PART(rv, more, items)                                                                 \
	"{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"" rv      \
	"\"" more "},\"items\":[" items "]}"
#define CONTINUE(token) ",\"continue\":\"" token "\""
#define EV(type, obj)	"{\"type\":\"" type "\",\"object\":" obj "}\n"
#define ADD(name, rv)	EV("ADDED", POD(name, rv))
#define MOD(name, rv)	EV("MODIFIED", POD(name, rv))
#define DEL(name, rv)	EV("DELETED", POD(name, rv))
#define BOOKMARK(rv)                                                                               \
	EV("BOOKMARK", "{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"" rv "\"}}")
#define STATUS(code, message)                                                                      \
	"{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"" message "\",\"code\":" code "}"

/* ---- the script ---- */

enum act {
	END,
	REPLY,	/* 200 with the text */
	FAIL,	/* status with the text */
	STREAM, /* watch: the text, then a clean end */
	HOLD,	/* watch: the text, then open until the client leaves */
	CUT,	/* watch: the text, then the connection ends */
	RESET,	/* watch: the text, then RST */
	BYTES,	/* as HOLD, a chunk a byte */
	RAW,	/* the text is the whole answer */
	CLOSE,	/* no answer */
	SILENT, /* no answer, the connection stays */
	BIG,	/* watch: a nameless object of 17 MiB, then the text, then open */
	LARGE,	/* watch: object n/large of 1.5 MiB, then the text, then open */
	DEEP,	/* watch: an object of a million brackets, then the text, then open */
	SLOW,	/* 200 with the text when the flag is set */
};

struct step {
	enum act act;
	const char *text;
	int status;
	const char *headers;
	const char *expect[4]; /* parts of the request's head; "!x": x must not be there */
};

struct row {
	const char *name;
	struct step steps[10];
	/* "+n/a=1" new, "~n/a=2" changed, "-n/a=1" removed, "synced", "ok", "err(part)" */
	const char *log;
	const char *field_selector, *label_selector;
	bool optional, metadata_only;
	unsigned min_backoffs; /* at least */
	bool no_backoff;
	const char *counter; /* reason of kube_dropped_total that must have grown */
	bool probes_allowed; /* requests beyond the script are answered by the last list */
};

struct fixture {
	const struct row *row;
	struct loop *loop;
	struct kube *kube;
	struct kube_watch *watch;
	struct test_server *ts;
	struct timer check, guard;
	struct buf log;
	uint64_t deadline_ns, backoffs_before, dropped_before;
	char *wrong; /* first request that was not as expected; under ts->lock */
	int next_step;
	uint64_t asked_ns[10]; /* when each step was asked for */
	bool free_in_callback;
};

static struct test_ca ca;
static struct test_cert cert;

static const struct kube_times fast = {
	.backoff_first_ns = 2 * NSEC_PER_MSEC,
	.backoff_max_ns = 20 * NSEC_PER_MSEC,
	.backoff_reset_ns = 120 * NSEC_PER_SEC,
	.slow_ns = 10 * NSEC_PER_MSEC,
	.short_watch_ns = 60 * NSEC_PER_SEC,
	.watchdog_ns = 5 * NSEC_PER_MSEC,
	.probe_ns = 3600 * NSEC_PER_SEC,
	.silence_slack_ns = 3600 * NSEC_PER_SEC,
	.token_max_age_ns = 60 * NSEC_PER_SEC,
	.ca_poll_ns = 60 * NSEC_PER_SEC,
	.watch_timeout_s = 300,
	.page_limit = 500,
	.max_object_bytes = 16 << 20,
	.list_head_ns = 3600 * NSEC_PER_SEC,
	.watch_head_ns = 3600 * NSEC_PER_SEC,
};

static void note_wrong(struct fixture *f, const struct ts_request *r, const char *expected)
{
	pthread_mutex_lock(&f->ts->lock);
	if (!f->wrong)
		f->wrong = xasprintf("request %d \"%s\": expected \"%s\"", r->number, r->head,
				     expected);
	pthread_mutex_unlock(&f->ts->lock);
}

static void check_request(struct fixture *f, const struct step *s, const struct ts_request *r)
{
	bool watch = s->act >= STREAM && s->act <= BYTES;

	if (watch && !strstr(r->line, "watch=true"))
		note_wrong(f, r, "watch=true");
	for (size_t i = 0; i < ARRAY_SIZE(s->expect) && s->expect[i]; i++) {
		const char *e = s->expect[i];

		if (*e == '!' ? strstr(r->head, e + 1) != NULL : strstr(r->head, e) == NULL)
			note_wrong(f, r, e);
	}
}

/* An event with n times ch between two texts. */
static void send_big(struct ts_conn *c, const char *begin, char ch, size_t n, const char *end)
{
	_cleanup_free_ char *x = xmalloc(n);

	memset(x, ch, n);
	ts_chunk(c, begin);
	ts_chunk_bytes(c, x, n);
	ts_chunk(c, end);
}

static void stream_text(struct ts_conn *c, const struct step *s)
{
	ts_stream(c);
	if (s->act == BIG)
		send_big(c, "{\"type\":\"ADDED\",\"object\":{\"a\":\"", 'x', 17 << 20, "\"}}\n");
	if (s->act == LARGE)
		send_big(c,
			 "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"namespace\":\"n\","
			 "\"name\":\"large\",\"resourceVersion\":\"11\"},\"a\":\"",
			 'x', 3 << 19, "\"}}\n");
	if (s->act == DEEP)
		send_big(c, "{\"type\":\"ADDED\",\"object\":{\"a\":", '[', 1000000, "}}\n");
	if (s->act == BYTES)
		for (const char *p = s->text; *p; p++)
			ts_chunk_bytes(c, p, 1);
	else if (s->text && *s->text)
		ts_chunk(c, s->text);
}

static void perform(struct ts_conn *c, const struct step *s)
{
	switch (s->act) {
	case REPLY:
		ts_reply(c, 200, s->headers, s->text);
		break;
	case SLOW:
		ts_await_flag(c, 1);
		ts_reply(c, 200, NULL, s->text);
		break;
	case FAIL:
		ts_reply(c, s->status, s->headers, s->text ?: "");
		break;
	case RAW:
		ts_puts(c, s->text);
		c->over = true;
		break;
	case CLOSE:
		c->over = true;
		break;
	case SILENT:
		ts_stall(c);
		break;
	case STREAM:
		stream_text(c, s);
		ts_last_chunk(c);
		break;
	case CUT:
		stream_text(c, s);
		c->over = true;
		break;
	case RESET:
		stream_text(c, s);
		ts_await_flag(c, 1); /* until the client has seen the text: RST drops it */
		ts_reset(c);
		break;
	default:
		stream_text(c, s);
		ts_stall(c);
	}
}

static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct fixture *f = arg;
	const struct step *s, *last = NULL;

	pthread_mutex_lock(&f->ts->lock);
	s = &f->row->steps[f->next_step];
	if (s->act != END)
		f->asked_ns[f->next_step++] = now_mono_ns();
	for (int i = 0; i < f->next_step; i++)
		if (f->row->steps[i].act == REPLY)
			last = &f->row->steps[i];
	pthread_mutex_unlock(&f->ts->lock);
	if (s->act != END) {
		check_request(f, s, r);
		perform(c, s);
	} else if (f->row->probes_allowed && last && strstr(r->line, "limit=1&")) {
		perform(c, last);
	} else if (!c->server->stopping) {
		note_wrong(f, r, "no further request");
		ts_stall(c);
	}
}

/* ---- the owner ---- */

static void write_log(struct fixture *f, const char *what, const char *key, const json_t *obj)
{
	buf_printf(&f->log, "%s%s%s=%s", f->log.len ? " " : "", what, key,
		   json_str_at(obj, "metadata.resourceVersion", "?"));
	if (f->free_in_callback)
		f->watch = kube_watch_free(f->watch);
}

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	write_log(arg, old ? "~" : "+", key, obj);
}

static void removed(const char *key, const json_t *last, void *arg)
{
	write_log(arg, "-", key, last);
}

static void synced(void *arg)
{
	struct fixture *f = arg;

	buf_puts(&f->log, f->log.len ? " synced" : "synced");
}

/* Of an error the text after the path is kept. */
static void state(const char *error, void *arg)
{
	struct fixture *f = arg;

	buf_printf(&f->log, "%s%s", f->log.len ? " " : "", error ? "err" : "ok");
	if (error && f->row->log && strstr(f->row->log, "err("))
		buf_printf(&f->log, "(%s)", strstr(error, ": ") + 2);
}

static const struct kube_watch_ops ops = {upsert, removed, synced, state};

/* ---- running a row ---- */

static uint64_t total(const char *name, const char *label, const char *value)
{
	return counter_get(counter(name, label, value));
}

static bool finished(struct fixture *f)
{
	bool done;

	pthread_mutex_lock(&f->ts->lock);
	done = f->wrong || f->row->steps[f->next_step].act == END;
	pthread_mutex_unlock(&f->ts->lock);
	return done && (f->wrong || str_equal(f->log.data ?: "", f->row->log));
}

static void check(void *arg)
{
	struct fixture *f = arg;
	const struct step *s;

	pthread_mutex_lock(&f->ts->lock);
	s = f->next_step ? &f->row->steps[f->next_step - 1] : NULL;
	pthread_mutex_unlock(&f->ts->lock);
	if (s && s->act == RESET && str_has_suffix(f->log.data ?: "", s->headers))
		ts_set_flag(f->ts, 1);
	if (finished(f))
		loop_stop(f->loop, 0);
	else if (now_mono_ns() > f->deadline_ns)
		loop_stop(f->loop, -ETIMEDOUT);
	else
		timer_set(f->loop, &f->check, NSEC_PER_MSEC, check, f);
}

static const char *api_address; /* NULL: 127.0.0.1 */

static void make_kube(struct fixture *f, const struct kube_times *times)
{
	struct kube_config c = {.address = (char *)(uintptr_t)(api_address ?: "127.0.0.1"),
				.port = f->ts->port,
				.host = (char *)"kubernetes.default.svc",
				.ca_pem = ca.pem,
				.token = (char *)"secret"};
	struct field_error e = {0};

	assert_int_equal(kube_new(f->loop, &c, "podflame/test (node)", &f->kube, &e), 0);
	kube_set_times(f->kube, times);
}

static struct fixture *start(const struct row *row, const struct kube_times *times)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = &cert};
	struct kube_watch_spec spec = {.path = "/api/v1/pods",
				       .field_selector = row->field_selector,
				       .label_selector = row->label_selector,
				       .optional = row->optional,
				       .metadata_only = row->metadata_only};

	f->row = row;
	f->backoffs_before = total("kube_watch_total", "event", "backoff");
	if (row->counter)
		f->dropped_before = total("kube_dropped_total", "reason", row->counter);
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	make_kube(f, times);
	assert_int_equal(kube_watch_new(f->kube, &spec, &ops, f, &f->watch), 0);
	f->deadline_ns = now_mono_ns() + 20 * NSEC_PER_SEC;
	timer_set(f->loop, &f->check, NSEC_PER_MSEC, check, f);
	return f;
}

static void finish(struct fixture *f)
{
	timer_cancel(&f->check);
	timer_cancel(&f->guard);
	kube_watch_free(f->watch);
	kube_free(f->kube);
	ts_stop(f->ts);
	loop_free(f->loop);
	buf_done(&f->log);
	free(f->wrong);
	free(f);
}

static void run_row_with(const struct row *row, const struct kube_times *times)
{
	struct fixture *f = start(row, times);
	uint64_t backoffs;
	int r = loop_run(f->loop);

	backoffs = total("kube_watch_total", "event", "backoff") - f->backoffs_before;
	if (f->wrong)
		fail_msg("%s", f->wrong);
	if (r != 0)
		fail_msg("after step %d, saw \"%s\", expected \"%s\"", f->next_step,
			 f->log.data ?: "", row->log);
	assert_true(backoffs >= row->min_backoffs);
	if (row->no_backoff)
		assert_int_equal(backoffs, 0);
	if (row->counter)
		assert_true(total("kube_dropped_total", "reason", row->counter) >
			    f->dropped_before);
	finish(f);
}

static void run_row(void **initial)
{
	run_row_with(*initial, &fast);
}

/* A row whose script ends with HOLD ends when the log is as expected and every step was used. */
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
	{"watch_20_reset",
	 {{REPLY, LIST("10", "")},
	  {RESET, ADD("a", "11"), .headers = "+n/a=11"},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=11 +n/b=12"},
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
	{"watch_22_error_event_500",
	 {{REPLY, LIST("10", "")},
	  {HOLD, EV("ERROR", STATUS("500", "internal"))},
	  {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
	 "synced ok err ok +n/a=11",
	 .min_backoffs = 1},
	{"watch_23_html_instead_of_list",
	 {{REPLY, "<html>Sign in</html>"}, {REPLY, LIST("10", "")}, {HOLD, ""}},
	 "err(the answer is no JSON object) synced ok",
	 .min_backoffs = 1},
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
	  /* an event may be lost: what is there is looked at again */
	  {REPLY, LIST("13", POD("a", "11") "," POD("b", "12") "," POD("c", "13")),
	   .expect = {"!watch=true"}},
	  {HOLD, ""}},
	 "synced ok +n/a=11 +n/b=12 +n/c=13",
	 .counter = "garbage"},
	{"watch_25_nul_and_bad_utf8",
	 {{REPLY, LIST("10", "")},
	  {HOLD, "{\"type\":\"ADDED\",\"object\":{\"a\":\"\\u0000\"}}\n"
		 "{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\xfe\"}}\n" ADD("a", "11")}},
	 "synced ok +n/a=11",
	 .counter = "garbage"},
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
	{"watch_27_table_instead_of_list",
	 {{REPLY, "{\"kind\":\"Table\",\"metadata\":{\"resourceVersion\":\"1\"},\"rows\":[]}"},
	  {REPLY, LIST("10", "")},
	  {HOLD, ""}},
	 "err(the answer is no list of objects) synced ok",
	 .min_backoffs = 1},
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
	{"watch_32_missed_delete_is_made_up",
	 {{REPLY, LIST("10", POD("a", "1") "," POD("b", "2") "," POD("c", "3"))},
	  {FAIL, "", 410},
	  {REPLY, LIST("20", POD("b", "2"))},
	  {HOLD, ADD("d", "21")}},
	 "+n/a=1 +n/b=2 +n/c=3 synced ok -n/a=1 -n/c=3 +n/d=21"},
	{"watch_33_new_uid_as_delete_and_add",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {HOLD, EV("DELETED", OBJ("a", "u1", "11", "")) EV("ADDED", OBJ("a", "u2", "12", ""))}},
	 "+n/a=1 synced ok -n/a=1 +n/a=12"},
	{"watch_33_new_uid_as_one_modified",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {HOLD, EV("MODIFIED", OBJ("a", "u2", "12", ""))}},
	 "+n/a=1 synced ok -n/a=1 +n/a=12"},
	{"watch_33_new_uid_across_relist",
	 {{REPLY, LIST("10", OBJ("a", "u1", "1", ""))},
	  {FAIL, "", 410},
	  {REPLY, LIST("20", OBJ("a", "u2", "15", ""))},
	  {HOLD, ""}},
	 "+n/a=1 synced ok -n/a=1 +n/a=15"},
	{"watch_35_out_of_order_added",
	 {{REPLY, LIST("10", "")},
	  {STREAM, ADD("a", "5") ADD("b", "3") BOOKMARK("11")},
	  {HOLD, "", .expect = {"resourceVersion=11 "}}},
	 "synced ok +n/a=5 +n/b=3"},
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
	/* its storage is rewritten: other versions of objects that are the same, the stream ends */
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
	{"watch_45_connection_closed_without_answer",
	 {{CLOSE},
	  {REPLY, LIST("10", "")},
	  {CLOSE},
	  {HOLD, ADD("a", "11"), .expect = {"resourceVersion=10 "}}},
	 /* the second time it was a kept connection: that is tried again without a word */
	 "err(connection closed without an answer) synced ok +n/a=11",
	 .min_backoffs = 1},
	/* of two servers behind one address the other answers nothing, and says nothing */
	{"watch_48_every_other_connection_is_closed",
	 {{CLOSE},
	  {REPLY, LIST("10", ""), .headers = "Connection: close\r\n"},
	  {CLOSE, .expect = {"watch=true"}},
	  {CUT, ADD("a", "11")},
	  {CLOSE, .expect = {"resourceVersion=11 "}},
	  {HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
	 "err(connection closed without an answer) synced ok "
	 "err(connection closed without an answer) ok +n/a=11 "
	 "err(connection closed without an answer) ok +n/b=12"},
	/* asked again where it was it would be refused for ever */
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
	{"watch_13_truncated_list_is_not_used",
	 {{RAW, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" LIST("10", POD("a", "1"))},
	  {REPLY, LIST("10", POD("b", "1"))},
	  {HOLD, ""}},
	 "err(connection closed before the end of the answer) +n/b=1 synced ok",
	 .min_backoffs = 1},
	{"watch_63_chunk_extensions_and_trailers",
	 {{RAW, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		"4d;x=\"y\"\r\n{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{"
		"\"resourceVersion\":\"10\"},\"item"
		"\r\n5 ;a\r\ns\":[]\r\n1\r\n}\r\n0\r\nTrailer: 1\r\n\r\n"},
	  {HOLD, ""}},
	 "synced ok"},
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

/* ---- what a row cannot say ---- */

static void watch_18_silent_stream_is_given_up(void **state)
{
	static const struct row row = {"",
				       {{REPLY, LIST("10", "")},
					{HOLD, ADD("a", "11")},
					{HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
				       "synced ok +n/a=11 +n/b=12"};
	struct kube_times t = fast;

	(void)state;
	t.watch_timeout_s = 0;
	t.silence_slack_ns = NSEC_PER_SEC;
	run_row_with(&row, &t);
}

static void watch_18_silent_server_is_probed(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", "")},
		 {HOLD, ADD("a", "11")},
		 {CLOSE, .expect = {"limit=1"}},
		 {HOLD, ADD("b", "12"), .expect = {"watch=true", "resourceVersion=11 "}}},
		"synced ok +n/a=11 err ok +n/b=12"};
	struct kube_times t = fast;

	(void)state;
	t.probe_ns = NSEC_PER_SEC;
	run_row_with(&row, &t);
}

static void watch_34_restored_backup_is_noticed(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("100", POD("a", "90"))},
		 {HOLD, ""},
		 {REPLY, LIST("50", ""), .expect = {"limit=1"}},
		 {REPLY, LIST("50", POD("b", "40")), .expect = {"resourceVersion= "}},
		 {HOLD, "", .expect = {"resourceVersion=50 "}}},
		"+n/a=90 synced ok +n/b=40 -n/a=90",
		.probes_allowed = true};
	struct kube_times t = fast;

	(void)state;
	t.probe_ns = NSEC_PER_SEC;
	run_row_with(&row, &t);
}

/* What Retry-After says counts when it is longer than the backoff. */
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

/* One server behind the address takes the request and never answers it. */
static void watch_48_silent_backend_is_left(void **state)
{
	static const struct row row = {
		"",
		{{REPLY, LIST("10", "")},
		 {SILENT, .expect = {"watch=true"}},
		 {HOLD, ADD("a", "11"), .expect = {"watch=true", "resourceVersion=10 "}}},
		"synced ok err ok +n/a=11"};
	struct kube_times t = fast;

	(void)state;
	t.watch_head_ns = 3 * NSEC_PER_SEC;
	run_row_with(&row, &t);
}

static void set_flag(void *arg)
{
	ts_set_flag(((struct fixture *)arg)->ts, 1);
}

static void run_slow(const struct kube_times *times, uint64_t slow_ns)
{
	static const struct row row = {"",
				       {{SLOW, LIST("10", POD("a", "1"))},
					{HOLD, ADD("b", "11"), .expect = {"resourceVersion=10 "}}},
				       "+n/a=1 synced ok +n/b=11",
				       .no_backoff = true};
	struct fixture *f = start(&row, times);

	f->deadline_ns += slow_ns;
	timer_set(f->loop, &f->guard, slow_ns, set_flag, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	finish(f);
}

static void watch_46_slow_list_is_waited_for(void **state)
{
	(void)state;
	run_slow(&fast, 200 * NSEC_PER_MSEC);
}

static void watch_46_sixty_seconds_to_headers_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: a list whose head takes 60 s: LONG=1\n");
		skip();
	}
	run_slow(&kube_times_default, 60 * NSEC_PER_SEC);
}

static void watch_46_list_that_stops_coming(void **state)
{
	static const struct row row = {"",
				       {{SILENT}, {REPLY, LIST("10", "")}, {HOLD, ""}},
				       "err synced ok",
				       .min_backoffs = 1};
	struct kube_times t = fast;

	(void)state;
	t.probe_ns = NSEC_PER_SEC;
	run_row_with(&row, &t);
}

/* ---- 19: packets are lost, and nobody says so ---- */

struct half_open {
	struct fixture *f;
	struct timer timer;
	uint64_t watches, lost_ns, noticed_ns;
};

/* From the first event on all packets are lost; after the client has noticed they come again. */
static void lose_and_restore(void *arg)
{
	struct half_open *h = arg;

	if (!h->lost_ns && str_has_suffix(h->f->log.data ?: "", "+n/a=11")) {
		ts_lose_packets(h->f->ts, true);
		h->lost_ns = now_mono_ns();
		h->watches = total("kube_watch_total", "event", "watch");
	}
	if (h->lost_ns && total("kube_watch_total", "event", "watch") > h->watches) {
		h->noticed_ns = now_mono_ns();
		ts_lose_packets(h->f->ts, false);
		return;
	}
	timer_set(h->f->loop, &h->timer, 5 * NSEC_PER_MSEC, lose_and_restore, h);
}

static uint64_t run_half_open(void)
{
	static const struct row row = {"",
				       {{REPLY, LIST("10", "")},
					{HOLD, ADD("a", "11")},
					{HOLD, ADD("b", "12"), .expect = {"resourceVersion=11 "}}},
				       "synced ok +n/a=11 +n/b=12"};
	struct half_open h = {.f = start(&row, &fast)};

	h.f->deadline_ns += 100 * NSEC_PER_SEC;
	lose_and_restore(&h);
	assert_int_equal(loop_run(h.f->loop), 0);
	assert_null(h.f->wrong);
	timer_cancel(&h.timer);
	finish(h.f);
	print_message("noticed after %.1f s\n", (double)(h.noticed_ns - h.lost_ns) / 1e9);
	return h.noticed_ns - h.lost_ns;
}

static void watch_19_half_open_connection(void **state)
{
	struct conn_liveness usual = conn_liveness;

	(void)state;
	conn_liveness = (struct conn_liveness){
		.idle_s = 1, .interval_s = 1, .count = 2, .user_timeout_ms = 2000};
	run_half_open();
	conn_liveness = usual;
}

static void watch_19_half_open_connection_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: a connection that is dead for 30 to 50 s: LONG=1\n");
		skip();
	}
	assert_true(run_half_open() < 60 * NSEC_PER_SEC);
}

/* ---- 51: the service's name, and where it leads to ---- */

static atomic_int name_leads_to; /* 127.0.0.X; 0: the resolver fails */

static int search(const char *name, const char *service, const struct addrinfo *hints,
		  struct addrinfo **ret)
{
	struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	char address[16];

	(void)name;
	(void)service;
	(void)hints;
	if (name_leads_to == 0)
		return EAI_AGAIN;
	snprintf(address, sizeof(address), "127.0.0.%d", name_leads_to);
	return getaddrinfo(address, NULL, &numeric, ret);
}

static const struct row moving_row = {
	"",
	{{REPLY, LIST("10", "")},
	 {HOLD, ADD("a", "11")},
	 {HOLD, ADD("b", "12"), .expect = {"watch=true", "resourceVersion=11 "}}},
	"synced ok +n/a=11 +n/b=12"};

static const char *const api_name = "api.podflame.example";

/* Ends once the first event has come. */
static void until_first_event(void *arg)
{
	struct fixture *f = arg;

	if (str_has_suffix(f->log.data ?: "", "+n/a=11"))
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->guard, NSEC_PER_MSEC, until_first_event, f);
}

static void run_by_name(int then_leads_to, bool server_moves)
{
	struct fixture *f;
	struct ts_config two = {.cert = &cert, .address = "127.0.0.2"};
	struct test_server *old = NULL;

	resolve_config.search = search;
	name_leads_to = 1;
	api_address = api_name;
	f = start(&moving_row, &fast);
	until_first_event(f);
	assert_int_equal(loop_run(f->loop), 0);
	name_leads_to = then_leads_to;
	if (server_moves) {
		two.port = f->ts->port;
		old = f->ts;
		f->ts = ts_start(&two, serve, f);
		ts_stop(old);
	} else {
		ts_end_all(f->ts);
	}
	assert_int_equal(loop_run(f->loop), 0);
	assert_null(f->wrong);
	finish(f);
	api_address = NULL;
	resolve_config.search = getaddrinfo;
}

static void watch_51_service_moves_to_another_address(void **state)
{
	(void)state;
	run_by_name(2, true);
}

static void watch_51_goes_on_without_dns(void **state)
{
	(void)state;
	run_by_name(0, false);
}

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

/* 36: the store and the callbacks of a large first list; the loop is never kept for long. */
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
	assert_string_equal(json_str_at(obj, "kind", ""), "Pod"); /* as watch events have it */
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
	size_t before = mallinfo2().uordblks, bytes; /* of this thread; none with ASan */
	int n = 0;

	(void)state;
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve_many, NULL);
	make_kube(f, &fast);
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

/* After an outage: whoever finds the server back tells the rest. Their own time is an hour away. */
static const char *const away_paths[] = {"/closed", "/unready", "/forbidden", "/busy"};
enum { BUSY = 3, N_AWAY };

struct outage {
	struct fixture *f;
	struct kube_watch *watches[N_AWAY];
	atomic_bool away;
	atomic_int n_tries;
	int n_failed, n_synced, n_pings;
	bool pinging;
};

static void serve_outage(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	struct outage *o = arg;
	bool away = atomic_load(&o->away) && !strstr(r->line, "/ping");

	o->n_tries += !strstr(r->line, "/ping");
	if (away && strstr(r->line, "/closed"))
		c->over = true;
	else if (away && strstr(r->line, "/unready"))
		ts_reply(c, 503, NULL, "");
	else if (away && strstr(r->line, "/forbidden"))
		ts_reply(c, 403, NULL, STATUS("403", "no roles yet"));
	else if (away)
		ts_reply(c, 429, "Retry-After: 0\r\n", "");
	else if (strstr(r->line, "watch=true"))
		perform(c, &(struct step){HOLD, ""});
	else
		ts_reply(c, 200, NULL, LIST("10", ""));
}

static void pinged(int status, const json_t *body, const char *error, void *arg)
{
	struct outage *o = arg;

	(void)body;
	(void)error;
	assert_int_equal(status, 200);
	o->n_pings++;
	o->pinging = false;
}

static void ping(struct outage *o)
{
	if (o->pinging)
		return;
	o->pinging = true;
	assert_int_equal(kube_request(o->f->kube, "GET", "/ping", NULL, NULL, pinged, o), 0);
}

static void outage_state(const char *error, void *arg)
{
	struct outage *o = arg;

	if (!error || ++o->n_failed < N_AWAY)
		return;
	atomic_store(&o->away, false);
	ping(o);
}

static void outage_synced(void *arg)
{
	struct outage *o = arg;

	if (++o->n_synced == N_AWAY - 1)
		loop_stop(o->f->loop, 0);
}

static void too_late(void *arg)
{
	loop_stop(((struct outage *)arg)->f->loop, -ETIMEDOUT);
}

static void nobody(const char *key, const json_t *obj, void *arg)
{
	(void)key;
	(void)obj;
	(void)arg;
}

static struct outage *start_outage(void)
{
	struct outage *o = xcalloc(1, sizeof(*o));
	struct ts_config tc = {.cert = &cert};
	struct kube_times t = fast;

	t.backoff_first_ns = t.backoff_max_ns = t.slow_ns = 3600 * NSEC_PER_SEC;
	o->away = true;
	o->f = xcalloc(1, sizeof(*o->f));
	assert_int_equal(loop_new(&o->f->loop), 0);
	o->f->ts = ts_start(&tc, serve_outage, o);
	make_kube(o->f, &t);
	timer_set(o->f->loop, &o->f->guard, 20 * NSEC_PER_SEC, too_late, o);
	return o;
}

static void end_outage(struct outage *o)
{
	for (size_t i = 0; i < N_AWAY; i++)
		kube_watch_free(o->watches[i]);
	finish(o->f);
	free(o);
}

static void watch_45_all_come_back_with_the_first(void **state)
{
	static const struct kube_watch_ops outage_ops = {
		.remove = nobody, .synced = outage_synced, .state = outage_state};
	uint64_t before = total("kube_watch_total", "event", "hurry");
	struct outage *o = start_outage();

	(void)state;
	for (size_t i = 0; i < N_AWAY; i++) {
		struct kube_watch_spec spec = {.path = away_paths[i]};

		assert_int_equal(kube_watch_new(o->f->kube, &spec, &outage_ops, o, &o->watches[i]),
				 0);
	}
	assert_int_equal(loop_run(o->f->loop), 0);
	assert_int_equal(total("kube_watch_total", "event", "hurry") - before, N_AWAY - 1);
	/* who was told to slow down was not meant */
	assert_false(kube_watch_synced(o->watches[BUSY]));
	end_outage(o);
}

/* Until the watch has had its quick tries, and 20 times more. */
static void ping_on(void *arg)
{
	struct outage *o = arg;

	if (atomic_load(&o->n_tries) < 4)
		o->n_pings = 0;
	if (o->n_pings >= 20) {
		loop_stop(o->f->loop, 0);
		return;
	}
	ping(o);
	timer_set(o->f->loop, &o->f->check, NSEC_PER_MSEC, ping_on, o);
}

static void watch_45_a_failure_of_its_own_is_not_hurried_for_good(void **state)
{
	static const struct kube_watch_ops quiet = {.remove = nobody};
	static const struct kube_watch_spec spec = {.path = "/unready"};
	struct outage *o = start_outage();

	(void)state;
	assert_int_equal(kube_watch_new(o->f->kube, &spec, &quiet, o, &o->watches[0]), 0);
	ping_on(o);
	assert_int_equal(loop_run(o->f->loop), 0);
	assert_int_equal(o->n_tries, 4);
	end_outage(o);
}

static int make_certs(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "DNS:kubernetes.default.svc");
	return 0;
}

static int free_certs(void **state)
{
	(void)state;
	test_ca_done(&ca);
	test_cert_done(&cert);
	return 0;
}

int main(void)
{
	const struct CMUnitTest special[] = {
		cmocka_unit_test(watch_18_silent_stream_is_given_up),
		cmocka_unit_test(watch_18_silent_server_is_probed),
		cmocka_unit_test(watch_34_restored_backup_is_noticed),
		cmocka_unit_test(watch_36_ten_thousand_objects),
		cmocka_unit_test(watch_45_all_come_back_with_the_first),
		cmocka_unit_test(watch_45_a_failure_of_its_own_is_not_hurried_for_good),
		cmocka_unit_test(watch_19_half_open_connection),
		cmocka_unit_test(watch_19_half_open_connection_long),
		cmocka_unit_test(watch_21_retry_after_is_waited_for),
		cmocka_unit_test(watch_46_list_that_stops_coming),
		cmocka_unit_test(watch_46_slow_list_is_waited_for),
		cmocka_unit_test(watch_46_sixty_seconds_to_headers_long),
		cmocka_unit_test(watch_48_silent_backend_is_left),
		cmocka_unit_test(watch_51_service_moves_to_another_address),
		cmocka_unit_test(watch_51_goes_on_without_dns),
		cmocka_unit_test(freed_inside_its_own_callback),
		cmocka_unit_test(freed_inside_a_stream),
	};
	struct CMUnitTest tests[ARRAY_SIZE(rows) + ARRAY_SIZE(special)] = {0};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		tests[i] = (struct CMUnitTest){.name = rows[i].name,
					       .test_func = run_row,
					       .initial_state = (void *)(uintptr_t)&rows[i]};
	memcpy(tests + ARRAY_SIZE(rows), special, sizeof(special));
	return cmocka_run_group_tests_name("watch", tests, make_certs, free_certs);
}
