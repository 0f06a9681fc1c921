/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that answers wrongly: rows that end early or do not end, lengths without the bytes,
 * half a response, an answer that is too large. Each is an error that says what is wrong, or the
 * answer tells it; none takes the hub down. And what the hub asks of it beside SQL.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/store/clickhouse/names.h"
#include "lib/loop/testserver.h"

#define MAX_LIES 4

/* The answer to a statement with this text. */
struct lie {
	const char *when;
	struct buf body;
	int code;  /* of ClickHouse's error; 0: there is none */
	bool half; /* the connection ends in the middle of the answer */
	unsigned n_asked;
};
struct engine {
	struct test_server *server;
	struct ch_store *store;
	struct lie lies[MAX_LIES];
	size_t n;
	char first_line[100]; /* of the last statement's body */
};

/* Sends a copy, because the test may change the body once it has the answer. */
static void answer(struct ts_conn *c, int code, const struct buf *body, size_t n)
{
	struct buf all = {0};

	buf_printf(&all,
		   "HTTP/1.1 %d X\r\nX-ClickHouse-Exception-Code: %d\r\n"
		   "Content-Length: %zu\r\n\r\n",
		   code ? 500 : 200, code, body->len);
	assert_int_equal(buf_add(&all, body->data ?: "", n), 0);
	ts_write(c, all.data, all.len);
	buf_done(&all);
}

static bool has_text(const struct ts_request *r, const char *text)
{
	return memmem(r->body, r->body_bytes, text, strlen(text));
}

static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	static const char seed[] = "\x20"
				   "00112233445566778899aabbccddeeff";
	struct engine *e = arg;
	const struct buf of_seed = {.data = (char *)seed, .len = sizeof(seed) - 1}, none = {0};

	snprintf(e->first_line, sizeof(e->first_line), "%.*s", (int)strcspn(r->body, "\r\n"),
		 r->body);
	for (size_t i = 0; i < e->n; i++) {
		struct lie *l = &e->lies[i];

		if (!has_text(r, l->when))
			continue;
		l->n_asked++;
		c->over = l->half; /* before the answer: the test goes on with it */
		answer(c, l->code, &l->body, l->half ? l->body.len / 2 : l->body.len);
		return;
	}
	if (has_text(r, "SELECT comment"))
		answer(c, 0, &of_seed, of_seed.len);
	else
		answer(c, 0, &none, 0);
}

/* Opens its store, in place of one before. */
static void open_it(struct engine *e, const char *cluster)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u", e->server->port);
	const struct store_config c = {.url = url, .cluster = cluster};
	struct field_error error = {0};
	void *store;

	if (store_clickhouse_sink.open(&c, &store, &error))
		fail_msg("%s", error.reason);
	if (e->store)
		store_clickhouse_sink.close(e->store);
	e->store = store;
}

static int setup(void **state)
{
	struct engine *e = xcalloc(1, sizeof(*e));

	e->server = ts_start(&(struct ts_config){0}, serve, e);
	open_it(e, NULL);
	*state = e;
	return 0;
}

static int teardown(void **state)
{
	struct engine *e = *state;

	store_clickhouse_sink.close(e->store);
	ts_stop(e->server);
	for (size_t i = 0; i < e->n; i++)
		buf_done(&e->lies[i].body);
	free(e);
	return 0;
}

static struct buf *lie(struct engine *e, const char *when)
{
	e->lies[e->n].when = when;
	return &e->lies[e->n++].body;
}

/* ---- what the hub makes of it ---- */

#define OF_SUMS	  "GROUP BY app"
#define OF_STACKS "FROM stacks"
#define OF_FRAMES "FROM frames"
#define OF_TOTAL  "SELECT toUInt64(least(sum(toFloat64(v))"

static void put_sum_of(struct buf *b, const char *app, uint64_t stack, uint64_t value)
{
	store_ch_put_str(b, app);
	store_ch_put_u8(b, 0);
	store_ch_put_str(b, "");
	store_ch_put_str(b, "");
	store_ch_put_u64(b, stack);
	store_ch_put_u64(b, value);
	store_ch_put_u64(b, 1);
	store_ch_put_u32(b, 1000);
	store_ch_put_u32(b, 1000);
}

static void put_sum(struct buf *b, uint64_t stack, uint64_t value)
{
	put_sum_of(b, "app", stack, value);
}

static void put_stack(struct buf *b, uint64_t id, uint64_t n_frames)
{
	store_ch_put_u64(b, id);
	store_ch_put_str(b, "process");
	store_ch_put_str(b, "thread");
	store_ch_put_u8(b, 0);
	store_ch_put_u8(b, 200); /* no such wait */
	buf_put_varint(b, 0);
	buf_put_varint(b, 0);
	buf_put_varint(b, n_frames);
	for (uint64_t i = 0; i < MIN(n_frames, 100u); i++)
		store_ch_put_u64(b, 7);
}

struct seen {
	size_t n;
	int64_t sum;
	char leaf[64];
};

static int see(const struct store_row *row, void *arg)
{
	struct seen *s = arg;

	s->n++;
	s->sum += row->value;
	snprintf(s->leaf, sizeof(s->leaf), "%s", row->frames[row->n_frames - 1]->name ?: "");
	return 0;
}

static int read_all(struct engine *e, struct seen *seen, struct field_error *error, bool *cut)
{
	const struct selection sel = {.scope = &store_scope_all,
				      .event = EVENT_ON_CPU,
				      .time_end_s = 2000,
				      .max_rows = 3,
				      .max_time_ns = 600 * NSEC_PER_SEC};
	struct store_summary summary = {0};
	int r = store_ch_read(e->store, &sel, see, seen, &summary, error);

	if (cut)
		*cut = summary.truncated;
	store_summary_done(&summary);
	return r;
}

static void assert_fails(struct engine *e, int want, const char *text)
{
	struct field_error error = {0};
	struct seen seen = {0};

	assert_int_equal(read_all(e, &seen, &error, NULL), want);
	if (!strstr(error.reason, text))
		fail_msg("\"%s\" is not in \"%s\"", text, error.reason);
}

static void a_text_longer_than_the_answer(void **state)
{
	struct engine *e = *state;
	struct buf *b = lie(e, OF_SUMS);

	buf_put_varint(b, UINT64_MAX);
	buf_puts(b, "app");
	assert_fails(e, -EIO, "ends early");
}

static void a_number_without_an_end(void **state)
{
	struct engine *e = *state;
	struct buf *b = lie(e, OF_SUMS);

	for (int i = 0; i < 100; i++)
		store_ch_put_u8(b, 0xff);
	assert_fails(e, -EIO, "ends early");
}

static void a_row_that_ends_early(void **state)
{
	struct engine *e = *state;
	struct buf *b = lie(e, OF_SUMS);

	put_sum(b, 1, 10);
	put_sum(b, 2, 10);
	b->len--;
	assert_fails(e, -EIO, "ends early");
}

static void more_rows_than_asked_for(void **state)
{
	struct engine *e = *state;
	struct buf *b = lie(e, OF_SUMS);
	struct buf *losses = lie(e, "AS why");

	store_ch_put_u8(lie(e, "AS missing"), 1);
	for (uint64_t i = 1; i < 10; i++)
		put_sum(b, i, 10);
	assert_fails(e, -EIO, "ends early");
	e->lies[0].when = "never";
	for (int i = 0; i < 5000; i++) {
		store_ch_put_str(losses, "reason");
		store_ch_put_u8(losses, 0);
		store_ch_put_u8(losses, 0);
		store_ch_put_u64(losses, 1);
		store_ch_put_u64(losses, 1);
	}
	assert_fails(e, -EIO, "rows asked for");
}

static void half_a_response(void **state)
{
	struct engine *e = *state;

	put_sum(lie(e, OF_SUMS), 1, 10);
	e->lies[0].half = true;
	assert_fails(e, -ENOTCONN, "");
}

static void stacks_of_any_length(void **state)
{
	struct engine *e = *state;

	put_sum(lie(e, OF_SUMS), 1, 10);
	put_stack(lie(e, OF_STACKS), 1, UINT32_MAX);
	assert_fails(e, -EIO, "ends early");
}

/* Frames that nobody asked for, twice, and not those of the stack. */
static void frames_of_others(void **state)
{
	struct engine *e = *state;
	struct seen seen = {0};
	struct field_error error = {0};
	struct buf *frames;

	put_sum(lie(e, OF_SUMS), 1, UINT64_MAX);
	put_stack(lie(e, OF_STACKS), 1, 2);
	frames = lie(e, OF_FRAMES);
	for (int i = 0; i < 2; i++) {
		store_ch_put_u64(frames, 99);
		store_ch_put_u8(frames, 255); /* no such kind */
		store_ch_put_u8(frames, 9);
		store_ch_put_u32(frames, 1);
		store_ch_put_u64(frames, 1);
		store_ch_put_str(frames, "name");
		store_ch_put_u8(frames, 1);
		store_ch_put_str(frames, "");
		store_ch_put_str(frames, "");
		store_ch_put_str(frames, "");
	}
	assert_int_equal(read_all(e, &seen, &error, NULL), 0);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.sum, CH_MAX_VALUE); /* no sum is greater */
	assert_string_equal(seen.leaf, STORE_LOST);
}

/* ---- what a lie leaves behind ---- */

/* The truth: a stack of one frame, with the ids that hubs give them. */
struct truth {
	uint64_t stack, frame;
};

static struct truth truth_of(struct engine *e)
{
	const struct frame frame = {.kind = FRAME_APP, .name = "leaf"};
	const struct stack_head head = {.process_comm = "process", .thread_comm = "thread"};
	struct ch_hash *h = store_ch_hash_new(e->store);
	struct truth t = {.frame = store_ch_frame_id(h, &frame)};

	store_ch_hash_u64(h, t.frame);
	t.stack = store_ch_stack_id(h, store_ch_hash_end(h), &head, NULL);
	store_ch_hash_free(h);
	return t;
}

static void put_true_stack(struct buf *b, uint64_t id, const char *thread, uint64_t frame)
{
	store_ch_put_u64(b, id);
	store_ch_put_str(b, "process");
	store_ch_put_str(b, thread);
	store_ch_put_u8(b, 0);
	store_ch_put_u8(b, 0);
	buf_put_varint(b, 0);
	buf_put_varint(b, 0);
	buf_put_varint(b, 1);
	store_ch_put_u64(b, frame);
}

static void put_true_frame(struct buf *b, uint64_t id, const char *name)
{
	store_ch_put_u64(b, id);
	store_ch_put_u8(b, FRAME_APP);
	store_ch_put_u8(b, 0);
	store_ch_put_u32(b, 0);
	store_ch_put_u64(b, 0);
	store_ch_put_str(b, name);
	store_ch_put_u8(b, 1);
	store_ch_put_str(b, "");
	store_ch_put_str(b, "");
	store_ch_put_str(b, "");
}

static void assert_leaf(struct engine *e, const char *leaf)
{
	struct field_error error = {0};
	struct seen seen = {0};

	assert_int_equal(read_all(e, &seen, &error, NULL), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(seen.leaf, leaf);
}

static uint64_t of_names(const char *result)
{
	return counter_get(counter("store_names_total", "result", result));
}

/* Answers with this stack and this frame. The last one is the truth, which then stays. */
static void assert_forgotten(struct engine *e, struct truth t,
			     void (*put_stacks)(struct buf *, struct truth),
			     void (*put_frames)(struct buf *, struct truth), const char *leaf)
{
	struct buf *stacks = &e->lies[1].body, *frames = &e->lies[2].body;
	uint64_t hits;

	put_stacks(stacks, t);
	put_frames(frames, t);
	assert_leaf(e, leaf);
	stacks->len = frames->len = 0;
	put_true_stack(stacks, t.stack, "thread", t.frame);
	put_true_frame(frames, t.frame, "leaf");
	assert_leaf(e, "leaf");
	stacks->len = frames->len = 0; /* the engine has lost both */
	hits = of_names("hit");
	assert_leaf(e, "leaf");
	assert_int_equal(of_names("hit"), hits + 1);
}

static void true_stack(struct buf *b, struct truth t)
{
	put_true_stack(b, t.stack, "thread", t.frame);
}
static void true_frame(struct buf *b, struct truth t)
{
	put_true_frame(b, t.frame, "leaf");
}
static void stack_of_another_frame(struct buf *b, struct truth t)
{
	put_true_stack(b, t.stack, "thread", 77);
}
static void stack_of_another_thread(struct buf *b, struct truth t)
{
	put_true_stack(b, t.stack, "another", t.frame);
}
static void stack_nobody_asked_for(struct buf *b, struct truth t)
{
	put_true_stack(b, t.stack + 1, "thread", t.frame);
}
static void frame_of_another_name(struct buf *b, struct truth t)
{
	put_true_frame(b, t.frame, "another");
}
static void no_row(struct buf *b, struct truth t)
{
	(void)b;
	(void)t;
}

/* A stack or frame that is not what its id says is in one answer at most. */
static void a_lie_is_not_kept(void **state)
{
	static const struct {
		void (*stacks)(struct buf *b, struct truth t),
			(*frames)(struct buf *b, struct truth t);
		const char *leaf;
		bool is_wrong;
	} all[] = {
		{stack_of_another_frame, true_frame, STORE_LOST, true},
		{stack_of_another_thread, true_frame, "leaf", true},
		{stack_nobody_asked_for, true_frame, STORE_LOST, false},
		{true_stack, frame_of_another_name, "another", true},
		{true_stack, no_row, STORE_LOST, false},
		{no_row, true_frame, STORE_LOST, false},
	};
	struct engine *e = *state;
	struct truth t = truth_of(e);

	put_sum(lie(e, OF_SUMS), t.stack, 10);
	(void)lie(e, OF_STACKS);
	(void)lie(e, OF_FRAMES);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		uint64_t wrong = of_names("wrong");

		e->lies[1].body.len = e->lies[2].body.len = 0;
		assert_forgotten(e, t, all[i].stacks, all[i].frames, all[i].leaf);
		assert_int_equal(of_names("wrong"), wrong + all[i].is_wrong);
		store_ch_cache_free(e->store->names);
		e->store->names = store_ch_cache_new(1 << 20);
	}
}

/* What came before the answer ended is not kept either, and does no harm. */
static void half_of_the_names(void **state)
{
	struct engine *e = *state;
	struct truth t = truth_of(e);
	struct field_error error = {0};
	struct seen seen = {0};

	put_sum(lie(e, OF_SUMS), t.stack, 10);
	true_stack(lie(e, OF_STACKS), t);
	true_frame(lie(e, OF_FRAMES), t);
	for (size_t i = 1; i <= 2; i++) {
		e->lies[i].half = true;
		assert_int_equal(read_all(e, &seen, &error, NULL), -ENOTCONN);
		e->lies[i].half = false;
		e->lies[i].body.len--;
		assert_int_equal(read_all(e, &seen, &error, NULL), -EIO);
		e->lies[i].body.len++;
	}
	assert_int_equal(seen.n, 0);
	assert_leaf(e, "leaf");
}

/* The total is sum in n rows. Those that have no room are in the last of the lines, "[others]". */
static void assert_ends_in_others(struct engine *e, uint64_t sum, uint64_t n, unsigned lines)
{
	struct buf *total = lie(e, OF_TOTAL);
	struct field_error error = {0};
	struct seen seen = {0};
	bool cut;

	store_ch_put_u64(total, sum);
	store_ch_put_u64(total, n);
	store_ch_put_u32(total, 1000);
	store_ch_put_u32(total, 1000);
	assert_int_equal(read_all(e, &seen, &error, &cut), 0);
	assert_true(cut);
	assert_int_equal(seen.n, lines);
	assert_int_equal(seen.sum, sum);
	assert_string_equal(seen.leaf, STORE_OTHERS);
}

/* Names without room: their stacks are added up in one row, and the answer says so. */
static void names_without_room(void **state)
{
	struct engine *e = *state;
	struct buf *sums = lie(e, OF_SUMS);

	store_ch_cache_free(e->store->names);
	e->store->names = store_ch_cache_new(1);
	put_sum(sums, 1, 10);
	put_sum(sums, 2, 5);
	put_stack(lie(e, OF_STACKS), 1, 2);
	assert_ends_in_others(e, 15, 2, 1);
}

/* They are in memory until their rows are handed out, so they count as the names do. */
static void sums_without_room(void **state)
{
	static char app[20000];
	struct engine *e = *state;
	struct buf *sums = lie(e, OF_SUMS);

	memset(app, 'a', sizeof(app) - 1);
	store_ch_cache_free(e->store->names);
	e->store->names = store_ch_cache_new(sizeof(app));
	put_sum_of(sums, app, 1, 15);
	put_stack(lie(e, OF_STACKS), 1, 2);
	assert_ends_in_others(e, 15, 1, 1);
}

/* The greatest come first, and stay. */
static void some_sums_without_room(void **state)
{
	static char app[20000];
	struct engine *e = *state;
	struct buf *sums = lie(e, OF_SUMS);

	memset(app, 'a', sizeof(app) - 1);
	store_ch_cache_free(e->store->names);
	e->store->names = store_ch_cache_new(2 * sizeof(app));
	put_sum(sums, 1, 10);
	put_sum(sums, 2, 5);
	put_sum_of(sums, app, 3, 2);
	assert_ends_in_others(e, 17, 3, 3);
}

/* What ClickHouse refuses is told as what the user can do about it. */
static void refusals_are_told(void **state)
{
	static const struct {
		int code, error;
		const char *text;
	} all[] = {
		{159, -ETIME, "took longer"},	 {241, -ENOBUFS, "too large"},
		{396, -ENOBUFS, "too large"},	 {516, -EACCES, ""},
		{60, -ESTALE, "no such table"},	 {158, -ENOBUFS, "ask for less"},
		{307, -ENOBUFS, "ask for less"},
	};
	struct engine *e = *state;

	buf_puts(lie(e, OF_SUMS), "no such table\n");
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		e->lies[0].code = all[i].code;
		assert_fails(e, all[i].error, all[i].text);
	}
}

/* An old server, or another program, is named before anything else is asked of it. */
static void versions_are_compared(void **state)
{
	static const struct {
		const char *version;
		int error;
		const char *text;
	} all[] = {
		{"25.3.1.2703\n", 0, ""},
		{"26.1\n", 0, ""},
		{"101.0-own.build\n", 0, ""},
		{"25.2.2.39\n", -EPROTONOSUPPORT, "ClickHouse 25.2.2.39 is too old"},
		{"9.99\n", -EPROTONOSUPPORT, "ClickHouse 9.99 is too old"},
		{"<html>\n<body>", -EPROTONOSUPPORT, "no ClickHouse: its version is \"<html>\""},
		{"25", -EPROTONOSUPPORT, "no ClickHouse"},
		{".5", -EPROTONOSUPPORT, "no ClickHouse"},
		{"", -EPROTONOSUPPORT, "no ClickHouse"},
	};
	struct engine *e = *state;

	(void)lie(e, "SELECT version()");
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct field_error error = {0};

		buf_done(&e->lies[0].body);
		e->lies[0].body = (struct buf){0};
		buf_puts(&e->lies[0].body, all[i].version);
		assert_int_equal(store_ch_check_version(e->store, &error), all[i].error);
		if (!strstr(error.reason, all[i].text))
			fail_msg("%s: %s", all[i].version, error.reason);
	}
}

/* ---- a view that the hub's user may not make anew ---- */

static void put_table(struct buf *b, const char *name, const char *comment)
{
	const char *const columns[] = {name, "MergeTree", "", comment, "", ""};

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		store_ch_put_str(b, columns[i]);
}

static void print_nothing(const char *line, void *arg)
{
	(void)line, (void)arg;
}

/* The hub works with the old view; who migrates by hand is told which right is missing. */
static void an_old_view_stays(void **state)
{
	static const char needs[] = "GRANT CREATE VIEW, DROP VIEW ON profile.in_process";
	struct engine *e = *state;
	struct field_error error = {0};
	struct buf *tables;

	buf_puts(lie(e, "SELECT version()"), "25.3.1.2703\n");
	(void)lie(e, "CREATE OR REPLACE VIEW");
	e->lies[1].code = 497;
	(void)lie(e, "SELECT 10, now()");
	tables = lie(e, "FROM tables");
	put_table(tables, "podflame", "00112233445566778899aabbccddeeff");
	assert_int_equal(store_ch_migrate(e->store, &error), -EACCES); /* there is no old one */
	assert_non_null(strstr(error.reason, needs));
	put_table(tables, "in_process", "");
	assert_int_equal(store_ch_migrate(e->store, &error), 0);
	assert_string_equal(error.reason, "");
	assert_int_equal(store_ch_migrate_with(e->store, false, print_nothing, NULL, &error),
			 -EACCES);
	assert_non_null(strstr(error.reason, needs));
	assert_int_equal(e->lies[1].n_asked, 3);
	assert_int_equal(e->lies[2].n_asked, 0); /* so the hub tries again */
}

/* ---- how often it tries, and how long it looks ---- */

/* A try that has just failed stands, also for who was on its way here before. */
static void a_failed_look_is_no_reason_to_try_at_once(void **state)
{
	struct engine *e = *state;
	struct field_error error = {0};

	buf_puts(lie(e, "SELECT version()"), "25.3.1.2703\n");
	put_table(lie(e, "FROM tables"), "windows", ""); /* without the table of the seed */
	atomic_store(&e->store->ready, true);
	atomic_store(&e->store->doubted, true);
	assert_int_equal(store_ch_ready(e->store, &error), -EINVAL);
	assert_non_null(strstr(error.reason, "somebody has dropped it"));
	assert_int_equal(e->lies[0].n_asked, 0);
}

static double seconds_of(struct engine *e, unsigned request)
{
	const char *at = strstr(ts_request_head(e->server, request), "&max_execution_time=");

	assert_non_null(at);
	return strtod(strchr(at, '=') + 1, NULL);
}

/* A reader or a writer waits for the look: its statements have few seconds, all together. */
static void a_look_has_one_deadline(void **state)
{
	struct engine *e = *state;
	unsigned first = ts_n_requests(e->server);
	double left = 5;

	put_table(lie(e, "FROM tables"), "podflame", "00112233445566778899aabbccddeeff");
	atomic_store(&e->store->ready, true);
	atomic_store(&e->store->doubted, true);
	assert_int_equal(store_ch_ready(e->store, NULL), 0);
	assert_int_equal(ts_n_requests(e->server) - first, 4);
	for (unsigned i = first; i < first + 4; i++) {
		assert_true(seconds_of(e, i) <= left);
		left = seconds_of(e, i);
	}
}

/* What ClickHouse refuses of one kind of deletion keeps no other kind from running. */
static void one_deletion_fails(void **state)
{
	struct engine *e = *state;
	struct buf *sizes = lie(e, "SELECT sum(bytes_on_disk)");

	for (size_t i = 0; i < 3; i++)
		store_ch_put_u64(sizes, 1000);
	for (size_t i = 0; i < 2; i++)
		store_ch_put_u32(sizes, 1000);
	(void)lie(e, "SELECT partition_id");
	e->lies[1].code = 62;
	(void)lie(e, "latest_fail_reason");
	(void)lie(e, "SELECT DISTINCT upload FROM symbols WHERE");
	e->store->keeps.longest_ns = 3600 * NSEC_PER_SEC;
	assert_int_equal(store_ch_expire(e->store, 1000000 * NSEC_PER_SEC), -EIO);
	for (size_t i = 1; i < e->n; i++)
		assert_int_equal(e->lies[i].n_asked, 1);
}

/* ---- what the engine of other tests makes up, or does not do ---- */

static void assert_sent(struct engine *e, const char *const *what, size_t n)
{
	const char *head = ts_request_head(e->server, ts_n_requests(e->server) - 1);

	for (size_t i = 0; i < n; i++)
		if (!strstr(head, what[i]))
			fail_msg("%s is not in %s", what[i], head);
}

static void statements_have_their_settings(void **state)
{
	static const char *const of_reads[] = {
		/* else an error in the middle of an answer would have status 200 */
		"&wait_end_of_query=1",
		"&cancel_http_readonly_queries_on_client_close=1",
		"&readonly=2",
		"&max_execution_time=",
		"&max_memory_usage=",
		"&max_result_bytes=",
		"&result_overflow_mode=throw",
		"&enable_http_compression=1",
		/* else an answer may lack rows */
		"&use_query_condition_cache=0",
	};
	static const char *const of_inserts[] = {
		"&async_insert=0", "max_partitions_per_insert_block=0", "Content-Encoding: zstd"};
	static const char *const of_clusters[] = {
		"&distributed_foreground_insert=1", "&insert_quorum=auto",
		"&distributed_product_mode=global", "&allow_nondeterministic_mutations=1"};
	struct engine *e = *state;
	struct seen seen = {0};
	struct buf rows = {0};

	buf_puts(&rows, "row");
	assert_int_equal(read_all(e, &seen, NULL, NULL), 0);
	assert_sent(e, of_reads, ARRAY_SIZE(of_reads));
	assert_int_equal(store_ch_insert(e->store, "frames (id)", &rows, NULL), 0);
	assert_sent(e, of_inserts, ARRAY_SIZE(of_inserts));
	open_it(e, "prod");
	assert_int_equal(store_ch_insert(e->store, "frames (id)", &rows, NULL), 0);
	assert_sent(e, of_clusters, ARRAY_SIZE(of_clusters));
	buf_done(&rows);
}

/* The line between the parts of a request is another one each time, so no text can have it. */
static void a_text_cannot_end_its_part(void **state)
{
	struct engine *e = *state;
	struct field_error error = {0};
	struct seen seen = {0};
	char first[sizeof(e->first_line)];

	assert_int_equal(read_all(e, &seen, &error, NULL), 0);
	strcpy(first, e->first_line);
	assert_true(strlen(first) >= 2 + 32);
	assert_int_equal(strncmp(first, "--", 2), 0);
	assert_int_equal(read_all(e, &seen, &error, NULL), 0);
	assert_string_not_equal(e->first_line, first);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_text_longer_than_the_answer),
		T(a_number_without_an_end),
		T(a_row_that_ends_early),
		T(more_rows_than_asked_for),
		T(half_a_response),
		T(stacks_of_any_length),
		T(frames_of_others),
		T(a_lie_is_not_kept),
		T(half_of_the_names),
		T(names_without_room),
		T(sums_without_room),
		T(some_sums_without_room),
		T(refusals_are_told),
		T(versions_are_compared),
		T(an_old_view_stays),
		T(a_failed_look_is_no_reason_to_try_at_once),
		T(a_look_has_one_deadline),
		T(one_deletion_fails),
		T(statements_have_their_settings),
		T(a_text_cannot_end_its_part),
	};

	return cmocka_run_group_tests_name("lies", tests, NULL, NULL);
}
