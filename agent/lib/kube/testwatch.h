/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the watch only: a scripted API server. A row of a table has the answers of the
 * server to each request in turn, and the callbacks that the owner of the watch must then have got.
 * Numbers in names of tests are those of docs/watch-cases.md.
 */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/kube/kube_private.h"
#include "lib/loop/testserver.h"

/* a field that a row does not name is 0 */
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
	REPLY,	/* answers 200 with the text */
	FAIL,	/* answers status with the text */
	STREAM, /* a watch: sends the text, then a clean end */
	HOLD,	/* a watch: sends the text, and stays open until the client closes */
	CUT,	/* a watch: sends the text, then closes the connection */
	RESET,	/* a watch: sends the text, then RST once the log ends with the text in `headers` */
	BYTES,	/* as HOLD, with one chunk for each byte */
	RAW,	/* sends the text as the whole answer, head included */
	CLOSE,	/* closes without an answer */
	SILENT, /* sends nothing, and the connection stays open */
	BIG,	/* a watch: a nameless object of 17 MiB, then the text, then stays open */
	LARGE,	/* a watch: object n/large of 1.5 MiB, then the text, then stays open */
	DEEP,	/* a watch: an object of a million brackets, then the text, then stays open */
	SLOW,	/* answers 200 with the text once the flag is set */
};

struct step {
	enum act act;
	const char *text;
	int status;
	const char *headers;
	/* texts that the request's head must contain; "!x": it must not contain x */
	const char *expect[4];
};

struct row {
	const char *name;
	struct step steps[10];
	/*
	 * the callbacks: "+n/a=1" new, "~n/a=2" changed, "-n/a=1" removed, "synced", "ok",
	 * "err(part)"
	 */
	const char *log;
	const char *field_selector, *label_selector;
	bool optional, metadata_only, once;
	void (*trim)(json_t *obj);
	/* the least number of waits of the watch */
	unsigned min_backoffs;
	bool no_backoff;
	const char *counter; /* reason of kube_dropped_total that must have grown */
	bool probes_allowed; /* further requests of the client are answered with the last list */
	bool resets;	     /* HTTP/2: CLOSE and CUT reset the stream, not the connection */
	const char *address; /* address of the API server; NULL: 127.0.0.1 */
	uint64_t probe_ns, watch_head_ns, silence_ns; /* times of the client; 0: an hour or more */
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
	char *wrong; /* first request that was not as expected; guarded by ts->lock */
	int next_step;
	uint64_t asked_ns[10]; /* when the server got the request of each step */
	bool free_in_callback;
	json_t *first; /* the object of the first call of upsert */
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
	.max_kind_bytes = 128 << 20,
	.list_head_ns = 3600 * NSEC_PER_SEC,
	.watch_head_ns = 3600 * NSEC_PER_SEC,
};

static inline void note_wrong(struct fixture *f, const struct ts_request *r, const char *expected)
{
	pthread_mutex_lock(&f->ts->lock);
	if (!f->wrong)
		f->wrong = xasprintf("request %d \"%s\": expected \"%s\"", r->number, r->head,
				     expected);
	pthread_mutex_unlock(&f->ts->lock);
}

static inline void check_request(struct fixture *f, const struct step *s,
				 const struct ts_request *r)
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

/* Sends an event: `begin`, n times ch, `end`. */
static inline void send_big(struct ts_conn *c, const char *begin, char ch, size_t n,
			    const char *end)
{
	_cleanup_free_ char *x = xmalloc(n);

	memset(x, ch, n);
	ts_chunk(c, begin);
	ts_chunk_bytes(c, x, n);
	ts_chunk(c, end);
}

static inline void stream_text(struct ts_conn *c, const struct step *s)
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

static inline void perform(struct ts_conn *c, const struct step *s)
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
		/* waits until the client has read the text: a reset discards unread bytes */
		ts_await_flag(c, 1);
		ts_reset(c);
		break;
	default:
		stream_text(c, s);
		ts_stall(c);
	}
}

static inline void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
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

static inline void write_log(struct fixture *f, const char *what, const char *key,
			     const json_t *obj)
{
	buf_printf(&f->log, "%s%s%s=%s", f->log.len ? " " : "", what, key,
		   json_str_at(obj, "metadata.resourceVersion", "?"));
	if (f->free_in_callback)
		f->watch = kube_watch_free(f->watch);
}

static inline void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	struct fixture *f = arg;

	if (!f->first)
		f->first = json_incref((json_t *)(uintptr_t)obj);
	write_log(f, old ? "~" : "+", key, obj);
}

static inline void removed(const char *key, const json_t *last, void *arg)
{
	write_log(arg, "-", key, last);
}

static inline void synced(void *arg)
{
	struct fixture *f = arg;

	buf_puts(&f->log, f->log.len ? " synced" : "synced");
}

/*
 * Logs "err" or "ok". If the row's expected log has texts of errors, also logs the error's text
 * without the path before it.
 */
static inline void state(const char *error, void *arg)
{
	struct fixture *f = arg;

	buf_printf(&f->log, "%s%s", f->log.len ? " " : "", error ? "err" : "ok");
	if (error && f->row->log && strstr(f->row->log, "err("))
		buf_printf(&f->log, "(%s)", strstr(error, ": ") + 2);
}

static inline void no_room(const char *key, const json_t *obj, void *arg)
{
	write_log(arg, "?", key, obj);
}

static const struct kube_watch_ops ops = {upsert, removed, synced, state, NULL, no_room};

/* ---- running a row ---- */

static inline uint64_t total(const char *name, const char *label, const char *value)
{
	return counter_get(counter(name, label, value));
}

static inline bool finished(struct fixture *f)
{
	bool done;

	pthread_mutex_lock(&f->ts->lock);
	done = f->wrong || f->row->steps[f->next_step].act == END;
	pthread_mutex_unlock(&f->ts->lock);
	return done && (f->wrong || str_equal(f->log.data ?: "", f->row->log));
}

static inline void check(void *arg)
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

static inline void make_kube(struct fixture *f, const char *address, const struct kube_times *times)
{
	struct kube_config c = {.address = (char *)(uintptr_t)(address ?: "127.0.0.1"),
				.port = f->ts->port,
				.tls_name = (char *)"kubernetes.default.svc",
				.ca_pem = ca.pem,
				.token = (char *)"secret"};
	struct field_error e = {0};

	assert_int_equal(kube_new(f->loop, &c, "podflame/test (node)", &f->kube, &e), 0);
	kube_set_times(f->kube, times);
}

static inline struct fixture *start(const struct row *row, const struct kube_times *times)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct ts_config tc = {.cert = &cert};
	struct kube_watch_spec spec = {.path = "/api/v1/pods",
				       .field_selector = row->field_selector,
				       .label_selector = row->label_selector,
				       .optional = row->optional,
				       .metadata_only = row->metadata_only,
				       .once = row->once,
				       .trim = row->trim};

	f->row = row;
	ts_http2.resets = row->resets;
	f->backoffs_before = total("kube_watch_total", "event", "backoff");
	if (row->counter)
		f->dropped_before = total("kube_dropped_total", "reason", row->counter);
	assert_int_equal(loop_new(&f->loop), 0);
	f->ts = ts_start(&tc, serve, f);
	make_kube(f, row->address, times);
	assert_int_equal(kube_watch_new(f->kube, &spec, &ops, f, &f->watch), 0);
	f->deadline_ns = now_mono_ns() + 20 * NSEC_PER_SEC;
	timer_set(f->loop, &f->check, NSEC_PER_MSEC, check, f);
	return f;
}

static inline void finish(struct fixture *f)
{
	timer_cancel(&f->check);
	timer_cancel(&f->guard);
	kube_watch_free(f->watch);
	kube_free(f->kube);
	ts_stop(f->ts);
	loop_free(f->loop);
	buf_done(&f->log);
	json_decref(f->first);
	free(f->wrong);
	free(f);
}

/*
 * Runs a row. It ends when every step was used and the log is as expected. It fails at a request
 * that was not expected, or after 20 s.
 */
static inline void run_row(void **initial)
{
	const struct row *row = *initial;
	struct kube_times t = fast;
	struct fixture *f;
	uint64_t backoffs;
	int r;

	t.probe_ns = row->probe_ns ?: t.probe_ns;
	t.watch_head_ns = row->watch_head_ns ?: t.watch_head_ns;
	if (row->silence_ns) {
		t.watch_timeout_s = 0;
		t.silence_slack_ns = row->silence_ns;
	}
	f = start(row, &t);
	r = loop_run(f->loop);
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

static inline int make_certs(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	test_ca_init(&ca, "ca");
	test_cert_init(&cert, &ca, "DNS:kubernetes.default.svc");
	return 0;
}

static inline int free_certs(void **state)
{
	(void)state;
	test_ca_done(&ca);
	test_cert_done(&cert);
	return 0;
}

/* Runs the rows, and the tests in `more`, which cannot be written as rows. */
static inline int run_rows(const char *group, const struct row *rows, size_t n_rows,
			   const struct CMUnitTest *more, size_t n_more)
{
	struct CMUnitTest *tests = xcalloc(n_rows + n_more, sizeof(*tests));
	int r;

	for (size_t i = 0; i < n_rows; i++)
		tests[i] = (struct CMUnitTest){.name = rows[i].name,
					       .test_func = run_row,
					       .initial_state = (void *)(uintptr_t)&rows[i]};
	if (n_more)
		memcpy(tests + n_rows, more, n_more * sizeof(*more));
	r = _cmocka_run_group_tests(group, tests, n_rows + n_more, make_certs, free_certs);
	free(tests);
	return r;
}
