/* SPDX-License-Identifier: Apache-2.0 */
/* What the store promises: known answers, nothing twice, nothing lost on bad days, no injection. */
#include "hub/store/sqlite.h"
#include "lib/base/testdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define T0 1700000000 /* end of every test's first window */

struct got {
	struct {
		char text[512];
		int64_t value;
		uint64_t n;
	} rows[64];
	size_t n;
	int64_t sum;
	struct store_summary summary;
};

static int take(const struct store_row *row, void *arg)
{
	_cleanup_buf_ struct buf b = {0};
	struct frame flat[64];
	struct got *g = arg;

	for (size_t i = 0; i < row->n_frames; i++)
		flat[i] = *row->frames[i];
	buf_printf(&b, "%s: ", row->app_service ? row->app_service : "(none)");
	stack_render(&row->head, flat, row->n_frames, &b);
	if (g->n < ARRAY_SIZE(g->rows)) {
		snprintf(g->rows[g->n].text, sizeof(g->rows[0].text), "%s", b.data);
		g->rows[g->n].value = row->value;
		g->rows[g->n].n = row->n_samples;
	}
	g->n++;
	g->sum += row->value;
	return 0;
}

static struct store *open_at(const char *path, uint64_t retention_ns, uint64_t max_bytes)
{
	struct store_config c = {.kind = "sqlite",
				 .path = path,
				 .retention_ns = retention_ns,
				 .max_bytes = max_bytes};
	struct field_error e = {0};
	struct store *s = NULL;

	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

static char *temp_dir(void)
{
	static char dir[TESTDIR_BYTES];

	assert_int_equal(testdir_make(dir), 0);
	return dir;
}

static void sql(const char *dir, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(samples_functions(db), 0);
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static struct profile *add_profile(struct batch *b, const char *id, const char *app, uint32_t pid,
				   const char *ns, int64_t end_s)
{
	struct profile *p = batch_profile(b);

	profile_id_make(&id, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->end_ns = (uint64_t)end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = batch_str(b, app);
	p->process_id = pid;
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_node", "n1");
	if (ns)
		profile_tag(b, p, "pod_ns", ns);
	return p;
}

static void add_sample(struct batch *b, struct profile *p, const char *thread, bool main,
		       const char *leaf, int64_t value)
{
	struct frame f[] = {
		{.kind = FRAME_APP, .name = "main", .module = "/bin/x"},
		{.kind = FRAME_LIBRARY,
		 .name = leaf,
		 .module = "/lib/libc.so",
		 .file = "a.c",
		 .line = 7},
		{.kind = FRAME_APP, .module = "/bin/x", .build_id = "ab", .address = 0x1234},
	};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = batch_str(b, thread);
	s->main_thread = main;
	s->cpu = -1;
	s->value = value;
	s->n_samples = (uint64_t)value / 10;
	assert_int_equal(batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
}

static struct batch *two_services(void)
{
	struct batch *b = batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);

	profile_tag(b, p, "k8s.label.tier", "it's \"web\"; --");
	add_sample(b, p, "worker", false, "write", 100);
	add_sample(b, p, "worker", false, "write", 50);
	add_sample(b, p, "api", true, "read", 20);
	profile_lose(b, p, "ring_full", 3, 0);
	p = add_profile(b, "2", "db", 11, "data", T0 + 10);
	add_sample(b, p, "db", true, "fsync", 70);
	p = add_profile(b, "3", "Total", 0, NULL, T0);
	add_sample(b, p, "x", false, "y", 1000);
	return b;
}

static void write_batch(struct store *s, struct batch *b, size_t want_new)
{
	size_t n_new = 0;

	assert_int_equal(store_write(s, b, &n_new), 0);
	assert_int_equal(n_new, want_new);
	batch_free(b);
}

static struct predicate *leaf(enum predicate_op op, const char *tag, const char *value)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	p->tag = xstrdup(tag);
	if (value) {
		p->values = xcalloc(1, sizeof(char *));
		p->values[p->n_values++] = xstrdup(value);
	}
	return p;
}

static struct predicate *join(enum predicate_op op, struct predicate *a, struct predicate *b)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	p->children = xcalloc(2, sizeof(*p->children));
	p->children[p->n_children++] = a;
	if (b)
		p->children[p->n_children++] = b;
	return p;
}

/* Takes where. */
static void read_where(struct store *s, struct predicate *where, struct got *g)
{
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 1000,
				.where = where,
				.max_time_ns = 600 * NSEC_PER_SEC /* a busy machine */};
	struct field_error e = {0};

	memset(g, 0, sizeof(*g));
	if (store_read(s, &sel, take, g, &g->summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	predicate_free(where);
}

static int64_t value_where(struct store *s, struct predicate *where)
{
	struct got g;

	read_where(s, where, &g);
	store_summary_done(&g.summary);
	return g.sum;
}

static void known_answer(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct got g;

	(void)state;
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
	assert_int_equal(g.summary.first_s, T0 - 1); /* the last second of the window */
	assert_int_equal(g.summary.last_s, T0 + 9);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "ring_full");
	assert_int_equal(g.summary.losses[0].n_samples, 3);
	assert_false(g.summary.truncated);
	store_summary_done(&g.summary);
	store_close(s);
}

static void bounds_and_services(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	char *total[] = {"Total"}, *app[] = {"app"};
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 1, .time_end_s = T0 - 1};
	struct got g = {0};

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 2); /* api only, both bounds inclusive */
	store_summary_done(&g.summary);
	sel.time_start_s = sel.time_end_s = T0;
	g.n = 0;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 0);
	store_summary_done(&g.summary);

	sel.time_start_s = T0 - 100;
	sel.app_services = total;
	sel.n_app_services = 1;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 1);
	store_summary_done(&g.summary);
	/* who may see one namespace sees neither Total nor others, whatever the predicate */
	sel.allowed_namespaces = app;
	sel.n_allowed_namespaces = 1;
	g.n = 0;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 0);
	store_summary_done(&g.summary);
	sel.n_app_services = 0;
	sel.where =
		join(PRED_OR, leaf(PRED_EQ, "pod_ns", "data"), leaf(PRED_NOT_NULL, "pod_ns", NULL));
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 2);
	assert_string_equal(g.rows[1].text, "api: [p] api;main;[l] read;[/bin/x]");
	predicate_free(sel.where);
	store_summary_done(&g.summary);
	store_close(s);
}

static uint32_t a_link(struct batch *b, uint8_t trace, uint8_t span)
{
	struct profile_link l = {.trace_id = {[15] = trace}, .span_id = {[7] = span}};
	uint32_t link;

	assert_int_equal(batch_link(b, &l, &link), 0);
	return link;
}

#define TRACE_1 "00000000000000000000000000000001"

/* One stack in two calls and outside of any: one row, and each call finds its part. */
static struct batch *two_calls(void)
{
	struct batch *b = batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);

	add_sample(b, p, "worker", false, "write", 100);
	add_sample(b, p, "worker", false, "write", 50);
	p->samples[1].link = a_link(b, 1, 7);
	add_sample(b, p, "worker", false, "write", 30);
	p->samples[2].link = a_link(b, 2, 8);
	add_sample(b, p, "worker", false, "read", 20);
	p->samples[3].link = a_link(b, 1, 9);
	return b;
}

static int64_t value_and_rows(struct store *s, struct predicate *where, size_t want_rows)
{
	struct got g;

	read_where(s, where, &g);
	assert_int_equal(g.n, want_rows);
	store_summary_done(&g.summary);
	return g.sum;
}

static int count_value(const char *value, uint64_t n_samples, void *arg)
{
	(void)n_samples;
	assert_int_equal(strlen(value), 32);
	++*(size_t *)arg;
	return 0;
}

static void traces(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	size_t n_traces = 0;

	(void)state;
	write_batch(s, two_calls(), 1);
	assert_int_equal(value_and_rows(s, NULL, 2), 200);
	assert_int_equal(value_and_rows(s, leaf(PRED_EQ, "trace_id", TRACE_1), 2), 70);
	assert_int_equal(value_and_rows(s,
					join(PRED_AND, leaf(PRED_EQ, "pod_ns", "app"),
					     leaf(PRED_EQ, "trace_id", TRACE_1)),
					2),
			 70);
	assert_int_equal(value_where(s, join(PRED_AND, leaf(PRED_EQ, "pod_ns", "other"),
					     leaf(PRED_EQ, "trace_id", TRACE_1))),
			 0);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "profile_id", "0000000000000008")), 30);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "trace_id", "0")), 0);
	assert_int_equal(store_values(s, &sel, "trace_id", 10, count_value, &n_traces), 0);
	assert_int_equal(n_traces, 2);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 10) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "trace_id", TRACE_1)), 70);
	store_close(s);
}

/* What tracers make has a budget of its own: oldest go, the profiles stay. */
static void links_have_a_budget(void **state)
{
	struct store *s = open_at(":memory:", 0, 8 << 20); /* 1 MiB of links */

	(void)state;
	for (int window = 0; window < 2; window++) {
		struct batch *b = batch_new();
		struct profile *p =
			add_profile(b, window ? "2" : "1", "api", 10, "app", T0 + 10 * window);

		for (int i = 0; i < 5000; i++) {
			struct profile_link l = {.trace_id = {i, i >> 8, window, 1},
						 .span_id = {1}};

			add_sample(b, p, "worker", false, "write", 10);
			assert_int_equal(batch_link(b, &l, &p->samples[i].link), 0);
		}
		write_batch(s, b, 1);
	}
	assert_int_equal(value_where(s, leaf(PRED_NOT_NULL, "trace_id", NULL)), 100000);
	assert_int_equal(store_expire(s, (uint64_t)(T0 + 20) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, leaf(PRED_NOT_NULL, "trace_id", NULL)), 50000);
	assert_int_equal(value_where(s, NULL), 100000);
	store_close(s);
}

static int keep_value(const char *value, uint64_t n_samples, void *arg)
{
	(void)n_samples;
	snprintf(arg, 33, "%s", value);
	return 0;
}

static void samples_have_an_identity(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	char last[33] = "";

	(void)state;
	write_batch(s, two_calls(), 1);
	assert_int_equal(store_values(s, &sel, "sample_id", 1, keep_value, last), 0);
	assert_int_equal(strlen(last), 16);
	assert_int_equal(value_and_rows(s, leaf(PRED_EQ, "sample_id", last), 1), 180);
	store_close(s);
}

/* A process may call itself Total; the host's Total stays what it is, and the process is not lost. */
static void process_named_total(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	char *total[] = {"Total"};
	struct batch *b = two_services();
	struct got g = {0};

	(void)state;
	add_sample(b, add_profile(b, "4", "Total", 12, NULL, T0), "Total", true, "mine", 5);
	write_batch(s, b, 4);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 4);
	store_summary_done(&g.summary);
	g.n = 0;
	sel.app_services = total;
	sel.n_app_services = 1;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 1);
	store_summary_done(&g.summary);
	store_close(s);
}

static void truncation(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL, .max_rows = 2};
	struct got g = {0};

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.n, 3);
	assert_true(g.summary.truncated);
	assert_int_equal(g.summary.n_rows, 2);
	assert_int_equal(g.summary.n_samples, 24);
	assert_int_equal(g.summary.short_by, 0);
	assert_int_equal(g.rows[0].value, 150); /* the greatest stay, */
	assert_int_equal(g.rows[1].value, 70);
	assert_string_equal(g.rows[2].text, "(none): [others]"); /* the rest is told */
	assert_int_equal(g.rows[2].value, 20);
	assert_int_equal(g.rows[2].n, 2);
	store_summary_done(&g.summary);
	store_close(s);
}

/* A file that lacks a stack of a profile: what is there is told, and what is not by its value. */
static void lost_stacks(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 0);
	struct got g;

	(void)state;
	write_batch(s, two_services(), 3);
	sql(dir, "DELETE FROM stacks WHERE id=(SELECT MIN(id) FROM stacks)"); /* of 150 */
	/* of 70: stack 0, any cpu, value 5, 2 samples; and one that is cut off */
	sql(dir, "UPDATE profiles SET samples=x'0000050201' WHERE value=70");
	read_where(s, NULL, &g);
	assert_int_equal(g.n, 3);
	assert_int_equal(g.sum, 175);
	assert_string_equal(g.rows[0].text, "api: [stack trace lost]");
	assert_int_equal(g.rows[0].value, 150);
	assert_int_equal(g.rows[0].n, 15);
	assert_string_equal(g.rows[2].text, "db: [stack trace lost]");
	assert_int_equal(g.rows[2].value, 5);
	assert_int_equal(g.rows[2].n, 2);
	store_summary_done(&g.summary);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void duplicates(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct store_stats stats;

	(void)state;
	write_batch(s, two_services(), 3);
	write_batch(s, two_services(), 0);
	assert_int_equal(value_where(s, NULL), 240);
	store_stats(s, &stats);
	assert_int_equal(stats.n_profiles, 3);
	assert_int_equal(stats.n_duplicates, 3);
	store_close(s);
}

/* All: api has 170 (worker 150, main 20), db 70; only api has the label. */
static void predicates(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct predicate *p;

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "pod_ns", "app")), 170);
	assert_int_equal(value_where(s, leaf(PRED_NE, "pod_ns", "app")), 70);
	assert_int_equal(value_where(s, leaf(PRED_GT, "pod_ns", "app")), 70);
	assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", "AP*")), 170);
	assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", "_at%")), 70);
	assert_int_equal(value_where(s, leaf(PRED_NOT_LIKE, "pod_ns", "%a%")), 0);
	assert_int_equal(value_where(s, leaf(PRED_REGEXP, "pod_ns", "^(app|x)$")), 170);
	assert_int_equal(value_where(s, leaf(PRED_NOT_REGEXP, "pod_ns", "^a")), 70);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "thread", "worker")), 150);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "app_service", "db")), 70);
	assert_int_equal(value_where(s, leaf(PRED_EQ, "profile_event_type", "on-cpu")), 240);
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "cpu", NULL)), 240);
	/* a row without the tag matches every negation */
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "k8s.label.tier", NULL)), 70);
	assert_int_equal(value_where(s, leaf(PRED_NE, "k8s.label.tier", "x")), 240);
	assert_int_equal(value_where(s, leaf(PRED_NOT_IN, "k8s.label.tier", "x")), 240);
	assert_int_equal(value_where(s, leaf(PRED_NOT_LIKE, "k8s.label.tier", "it*")), 70);
	assert_int_equal(value_where(s, leaf(PRED_NOT_REGEXP, "k8s.label.tier", ".")), 70);
	p = join(PRED_NOT, leaf(PRED_EQ, "k8s.label.tier", "x"), NULL);
	assert_int_equal(value_where(s, p), 240);
	p = leaf(PRED_EQ, "process_id", "11");
	p->numeric = true;
	assert_int_equal(value_where(s, p), 70);
	p = leaf(PRED_GE, "time", "1700000000");
	p->numeric = true;
	assert_int_equal(value_where(s, p), 70);
	p = join(PRED_AND, leaf(PRED_EQ, "pod_ns", "app"),
		 join(PRED_NOT, leaf(PRED_EQ, "thread", "worker"), NULL));
	assert_int_equal(value_where(s, p), 20);
	store_close(s);
}

/* As deep as tag_filter allows, NOT and lists in turn, of conditions of the same answer. */
static struct predicate *nested(const char *tag, const char *value)
{
	struct predicate *p = leaf(PRED_EQ, tag, value);

	for (int i = 0; i < 10; i++) {
		p = join(i % 2 ? PRED_AND : PRED_OR, leaf(PRED_NE, tag, value),
			 join(PRED_NOT, p, NULL));
		p = join(PRED_NOT, p, NULL);
	}
	return p;
}

static void deep_predicates(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct predicate *p = leaf(PRED_EQ, "pod_ns", "app");

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, nested("thread", "worker")), 150);
	assert_int_equal(value_where(s, nested("pod_ns", "app")), 170);
	for (int i = 0; i < 31; i++)
		p = join(i % 2 ? PRED_AND : PRED_OR, leaf(PRED_EQ, "pod_ns", "app"), p);
	assert_int_equal(value_where(s, p), 170);
	p = leaf(PRED_EQ, "pod_ns", "app");
	for (int i = 0; i < 32; i++)
		p = join(PRED_NOT, p, NULL);
	assert_int_equal(value_where(s, p), 170);
	store_close(s);
}

static void hostile_values(void **state)
{
	static const char *const hostile[] = {
		"' OR 1=1 --", "app' OR 'a'='a",
		"\"",	       "');DROP TABLE samples;--",
		"?1",	       "\\",
		"%00",	       "app\xff\xfe",
		"*/ OR /*",    ":memory:",
	};
	struct store *s = open_at(":memory:", 0, 0);
	struct predicate *p;

	(void)state;
	write_batch(s, two_services(), 3);
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		assert_int_equal(value_where(s, leaf(PRED_EQ, "pod_ns", hostile[i])), 0);
		assert_int_equal(value_where(s, leaf(PRED_EQ, hostile[i], "app")), 0);
		assert_int_equal(value_where(s, leaf(PRED_NE, hostile[i], "app")), 240);
		assert_int_equal(value_where(s, leaf(PRED_LIKE, "pod_ns", hostile[i])), 0);
	}
	assert_int_equal(value_where(s, leaf(PRED_EQ, "k8s.label.tier", "it's \"web\"; --")), 170);
	p = xcalloc(1, sizeof(*p));
	p->op = PRED_OR;
	p->children = xcalloc(2000, sizeof(*p->children));
	while (p->n_children < 2000)
		p->children[p->n_children++] = leaf(PRED_EQ, "pod_ns", "app");
	assert_int_equal(value_where(s, p), 170);
	store_close(s);
}

static void like_and_regexp(void **state)
{
	struct field_error e;
	char many[400];

	(void)state;
	assert_true(match_like("a%c", "abbbc"));
	assert_false(match_like("a%c", "abbb"));
	assert_true(match_like("\\*x", "*x"));
	assert_false(match_like("\\*x", "axx"));
	assert_true(match_like("a_c", "a\xc3\xa9"
				      "c"));
	assert_true(match_like("%", ""));
	memset(many, 'a', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	assert_false(match_like("%a%a%a%a%a%a%a%a%a%a%b", many)); /* and soon */
	assert_int_equal(predicate_regexp_check("^[]a{9999}]\\d+$", &e), 0);
	assert_int_equal(predicate_regexp_check("(a", &e), -EINVAL);
	assert_int_equal(predicate_regexp_check("(a)\\1", &e), -EINVAL);
	assert_int_equal(predicate_regexp_check("((a{99}){99}){99}", &e), -EINVAL);
	assert_int_equal(predicate_regexp_check("a+++++++++++++++++++++++++", &e), -EINVAL);
	assert_int_equal(predicate_regexp_check("((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+", &e),
			 -EINVAL);
	assert_int_equal(predicate_regexp_check("^([a-z]+-)+[0-9a-f]{8,10}-.+$|^(a|b)*x?$", &e), 0);
	memset(many, '(', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	assert_int_equal(predicate_regexp_check(many, &e), -EINVAL);
}

struct values {
	char text[512];
};

static int take_value(const char *value, uint64_t n, void *arg)
{
	struct values *v = arg;
	size_t at = strlen(v->text);

	snprintf(v->text + at, sizeof(v->text) - at, "%s=%lu ", value, n);
	return 0;
}

static void values(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	struct values v = {""};
	struct batch *more = batch_new();

	(void)state;
	write_batch(s, two_services(), 3);
	store_values(s, &sel, "pod_ns", 10, take_value, &v);
	store_values(s, &sel, "profile_event_type", 10, take_value, &v);
	store_values(s, &sel, "thread", 10, take_value, &v);
	store_values(s, &sel, "app_service", 1, take_value, &v);
	assert_string_equal(v.text, "app=17 data=7 on-cpu=24 worker=15 db=7 api=2 api=17 ");
	v.text[0] = '\0';
	sel.with_total = true;
	store_values(s, &sel, "app_service", 10, take_value, &v);
	assert_non_null(strstr(v.text, "Total="));
	/* one line a thread, whatever its samples' values are */
	add_sample(more, add_profile(more, "more", "api", 10, "app", T0 + 30), "worker", false, "z",
		   30);
	write_batch(s, more, 1);
	v.text[0] = '\0';
	store_values(s, &sel, "thread", 1, take_value, &v);
	store_values(s, &sel, "cpu", 10, take_value, &v);
	assert_string_equal(v.text, "x=100 ");
	v.text[0] = '\0';
	sel.with_total = false;
	store_values(s, &sel, "thread", 10, take_value, &v);
	assert_string_equal(v.text, "worker=18 db=7 api=2 ");
	store_close(s);
}

/* What a node lost without a name counts for the services on it, not for other nodes'. */
static void node_losses(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = two_services();
	struct profile *p = add_profile(b, "gap", "", 0, NULL, T0 + 5);
	struct got g;

	(void)state;
	profile_lose(b, p, "agent_down", 0, 5 * NSEC_PER_SEC);
	p = add_profile(b, "gap2", "", 0, NULL, T0 + 5);
	profile_tag(b, p, "pod_node", "elsewhere");
	profile_lose(b, p, "other_node", 1, 0);
	write_batch(s, b, 5);
	read_where(s, leaf(PRED_EQ, "pod_ns", "data"), &g);
	assert_int_equal(g.summary.n_losses, 1);
	assert_string_equal(g.summary.losses[0].reason, "agent_down");
	assert_int_equal(g.summary.losses[0].time_ns, 5 * NSEC_PER_SEC);
	store_summary_done(&g.summary);
	store_close(s);
}

static void retention_by_age(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 100 * NSEC_PER_SEC, 0);
	struct store_stats stats;
	struct batch *b;

	(void)state;
	write_batch(s, two_services(), 3);
	assert_int_equal(store_expire(s, (T0 + 50) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 240);
	b = batch_new();
	add_sample(b, add_profile(b, "late", "db", 11, "data", T0 + 90), "db", true, "late", 5);
	write_batch(s, b, 1);
	assert_int_equal(store_expire(s, (T0 + 120) * NSEC_PER_SEC), 0);
	assert_int_equal(value_where(s, NULL), 5);
	/* stacks are kept an hour longer than their rows */
	assert_int_equal(store_expire(s, (T0 + 5000) * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_int_equal(stats.n_stacks, 0);
	assert_int_equal(stats.n_expired, 4);
	write_batch(s, two_services(), 3);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void many_rows(struct store *s, int from_s, int n_profiles, int n_stacks)
{
	for (int i = 0; i < n_profiles; i++) {
		struct batch *b = batch_new();
		char id[32], name[32];
		struct profile *p;

		snprintf(id, sizeof(id), "m%d", from_s + i);
		p = add_profile(b, id, "api", 10, "app", T0 + from_s + i);
		for (int j = 0; j < n_stacks; j++) {
			snprintf(name, sizeof(name), "function_%d", (i * 7 + j) % 20000);
			add_sample(b, p, "worker", false, name, 10);
		}
		write_batch(s, b, 1);
	}
}

static void retention_by_size(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 1 << 20);
	struct store_stats stats;

	(void)state;
	many_rows(s, 0, 60, 2000);
	assert_int_equal(store_expire(s, T0 * NSEC_PER_SEC), 0);
	store_stats(s, &stats);
	assert_true(stats.bytes <= 1 << 20);
	assert_true(stats.n_expired > 0 && stats.n_expired < 60);
	assert_true(stats.oldest_ns > T0 * NSEC_PER_SEC); /* the oldest went, the newest stayed */
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void hundred_thousand_rows(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 0);
	struct selection sel = {.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 * 2LL};
	const atomic_bool given_up = true;
	struct got g = {0};

	(void)state;
	many_rows(s, 0, 50, 2000);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.summary.n_samples, 100000);
	assert_int_equal(g.n, 2000 + 49 * 7);
	store_summary_done(&g.summary);
	sel.max_time_ns = 1;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), -ETIME);
	sel.max_time_ns = 0;
	sel.given_up = &given_up;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), -ETIME);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void survives_reopening(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 0), *second;

	(void)state;
	write_batch(s, two_services(), 3);
	second = open_at(dir, 0, 0); /* another process, while the first one runs */
	assert_int_equal(value_where(second, NULL), 240);
	write_batch(second, two_services(), 0);
	store_close(second);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
	s = open_at(dir, 0, 0);
	assert_int_equal(value_where(s, NULL), 240);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void overwrite(const char *dir, off_t at, size_t n)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	char junk[4096];

	memset(junk, 0xa5, sizeof(junk));
	assert_true(fd >= 0);
	for (size_t i = 0; i < n; i += sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at + (off_t)i), sizeof(junk));
}

static bool has_damaged_file(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while ((e = readdir(d)))
		found |= str_has_prefix(e->d_name, "profiles.sqlite.damaged-");
	closedir(d);
	return found;
}

static void damaged_file(void **state)
{
	static const struct {
		off_t at;
		size_t n;
	} where[] = {{0, 4096}, {4096, 65536}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		char *dir = temp_dir();
		struct store *s = open_at(dir, 0, 0);
		struct store_stats stats;

		write_batch(s, two_services(), 3);
		store_close(s);
		overwrite(dir, where[i].at, where[i].n);
		s = open_at(dir, 0, 0);
		store_stats(s, &stats);
		assert_non_null(strstr(stats.error, "damaged"));
		assert_true(has_damaged_file(dir));
		assert_int_equal(value_where(s, NULL), 0);
		write_batch(s, two_services(), 3);
		assert_int_equal(value_where(s, NULL), 240);
		store_close(s);
		assert_int_equal(testdir_remove(dir), 0);
	}
}

/* A file that goes bad under a running hub: the write that notices is kept. */
static void damaged_while_open(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 0), *second;
	struct store_stats stats;
	size_t n_new;
	struct batch *b;

	(void)state;
	many_rows(s, 0, 20, 2000);
	store_close(s);
	s = open_at(dir, 0, 0);
	/* another writer, so that the pages s has cached are void */
	second = open_at(dir, 0, 0);
	many_rows(second, 20, 1, 1);
	overwrite(dir, 4096, 2 << 20);
	b = two_services();
	assert_int_equal(store_write(s, b, &n_new), 0);
	batch_free(b);
	store_stats(s, &stats);
	assert_non_null(strstr(stats.error, "damaged"));
	assert_int_equal(value_where(s, NULL), 240);
	store_close(second);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* A disk that takes no more: the write says so, nothing is half there, the next one works. */
static void full_disk(void **state)
{
	char *dir = temp_dir();
	struct store *s = open_at(dir, 0, 0);
	struct rlimit before, small;
	struct store_stats stats;
	struct batch *b = batch_new();
	size_t n_new = 0;
	char name[32];

	(void)state;
	write_batch(s, two_services(), 3);
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "function_%d", i);
		add_sample(b, i ? b->profiles[0] : add_profile(b, "big", "api", 10, "app", T0), "w",
			   false, name, 10);
	}
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){200 << 10, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_true(store_write(s, b, &n_new) < 0);
	store_stats(s, &stats);
	assert_non_null(strstr(stats.error, "write failed"));
	assert_int_equal(value_where(s, NULL), 240);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	write_batch(s, b, 1);
	assert_int_equal(value_where(s, NULL), 240 + 50000);
	store_stats(s, &stats);
	assert_string_equal(stats.error, "");
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

/* kill -9 in the middle of writing: what was answered is there, and once. */
static void killed_while_writing(void **state)
{
	char *dir = temp_dir();
	int pipe_fds[2], status;
	uint8_t count = 0, got;
	struct got g;
	struct store *s;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	if (child == 0) {
		s = open_at(dir, 0, 0);
		for (int i = 0; i < 200; i++) {
			many_rows(s, i, 1, 300);
			if (write(pipe_fds[1], "x", 1) != 1)
				_exit(1);
		}
		pause();
	}
	close(pipe_fds[1]);
	while (count < 20 && read(pipe_fds[0], &got, 1) == 1)
		count++;
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	while (read(pipe_fds[0], &got, 1) == 1)
		count++;
	close(pipe_fds[0]);
	s = open_at(dir, 0, 0);
	read_where(s, NULL, &g);
	/* every acknowledged write, and at most the one whose answer was cut off */
	assert_true(g.summary.n_profiles == count || g.summary.n_profiles == count + 1u);
	assert_int_equal(g.summary.n_samples, g.summary.n_profiles * 300);
	store_summary_done(&g.summary);
	store_close(s);
	assert_int_equal(testdir_remove(dir), 0);
}

static void out_of_range_values(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = batch_new();
	struct profile *p = add_profile(b, "big", "api", 10, "app", T0);

	(void)state;
	add_sample(b, p, "w", false, "ok", 10);
	add_sample(b, p, "w", false, "huge", INT64_MAX);
	add_sample(b, p, "w", false, "negative", -5);
	write_batch(s, b, 1);
	assert_int_equal(value_where(s, NULL), 10);
	assert_int_equal(
		counter_get(counter("store_dropped_rows_total", "reason", "value_out_of_range")),
		2);
	store_close(s);
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

/* ---- events besides on-CPU ---- */

static void read_event(struct store *s, const struct selection *sel, struct got *g)
{
	struct field_error e = {0};

	memset(g, 0, sizeof(*g));
	if (store_read(s, sel, take, g, &g->summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&g->summary);
}

static void waits_are_kept_apart(void **state)
{
	static const enum wait waits[] = {WAIT_LOCK, WAIT_RUNQUEUE, WAIT_LOCK};
	struct store *s = open_at(":memory:", 0, 0);
	struct selection sel = {
		.event = EVENT_OFF_CPU, .time_start_s = T0 - 10, .time_end_s = T0 + 10};
	struct batch *b = batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);
	struct values v = {""};
	struct got g;

	(void)state;
	p->event = EVENT_OFF_CPU;
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		add_sample(b, p, "worker", false, "futex", 100 + 10 * (int64_t)i);
		p->samples[i].wait = waits[i];
	}
	write_batch(s, b, 1);
	read_event(s, &sel, &g);
	assert_int_equal(g.n, 2);
	assert_string_equal(g.rows[0].text, "api: [t] worker;main;[l] futex;[/bin/x];[wait: lock]");
	assert_int_equal(g.rows[0].value, 220);
	assert_string_equal(g.rows[1].text,
			    "api: [t] worker;main;[l] futex;[/bin/x];[wait: runqueue]");
	assert_int_equal(g.rows[1].value, 110);
	sel.where = leaf(PRED_EQ, "wait", "lock");
	read_event(s, &sel, &g);
	assert_int_equal(g.sum, 220);
	predicate_free(sel.where);
	sel.where = leaf(PRED_NOT_IN, "wait", "lock");
	read_event(s, &sel, &g);
	assert_int_equal(g.sum, 110);
	predicate_free(sel.where);
	sel.where = NULL;
	store_values(s, &sel, "wait", 10, take_value, &v);
	assert_string_equal(v.text, "lock=22 runqueue=11 ");
	/* what does not wait has no such tag */
	write_batch(s, two_services(), 2);
	assert_int_equal(value_where(s, leaf(PRED_IS_NULL, "wait", NULL)), 70);
	store_close(s);
}

/* A snapshot of what lives in a process: pairs of stack and bytes, NULL ends. */
struct live {
	const char *leaf;
	int64_t bytes;
};

static struct profile *add_snapshot(struct batch *b, const char *app, uint32_t pid, int64_t end_s,
				    const struct live *live)
{
	_cleanup_free_ char *id = xasprintf("%s/%u/%lld", app, pid, (long long)end_s);
	struct profile *p = add_profile(b, id, app, pid, "app", end_s);

	p->event = EVENT_MEM_INUSE;
	p->process_start_ns = pid * NSEC_PER_SEC;
	for (; live->leaf; live++)
		add_sample(b, p, "worker", false, live->leaf, live->bytes);
	return p;
}

static void write_snapshot(struct store *s, const char *app, uint32_t pid, int64_t end_s,
			   const struct live *live)
{
	struct batch *b = batch_new();

	add_snapshot(b, app, pid, end_s, live);
	write_batch(s, b, 1);
}

static int64_t live_until(struct store *s, int64_t end_s, size_t want_rows)
{
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = end_s};
	struct got g;

	read_event(s, &sel, &g);
	assert_int_equal(g.n, want_rows);
	return g.sum;
}

static const struct live nothing[] = {{0}};

static void snapshots_replace(void **state)
{
	static const struct live first[] = {{"cache", 100}, {"buffer", 50}, {0}},
				 second[] = {{"cache", 120}, {0}}, other[] = {{"table", 70}, {0}};
	struct store *s = open_at(":memory:", 0, 0);
	struct selection late = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 + 15, .time_end_s = T0 + 15};
	struct got g;

	(void)state;
	write_snapshot(s, "api", 10, T0, first);
	write_snapshot(s, "db", 11, T0, other);
	write_snapshot(s, "api", 10, T0 + 10, second);
	assert_int_equal(live_until(s, T0 - 1, 3), 220);
	/* "buffer" was freed: it is gone. db said nothing newer. */
	assert_int_equal(live_until(s, T0 + 9, 2), 190);
	write_snapshot(s, "api", 10, T0 + 20, nothing);
	assert_int_equal(live_until(s, T0 + 18, 2), 190);
	assert_int_equal(live_until(s, T0 + 19, 1), 70);
	read_event(s, &late, &g);
	assert_int_equal(g.n, 0);
	/* nothing lives, in all of the two */
	write_snapshot(s, "db", 11, T0 + 20, nothing);
	assert_int_equal(live_until(s, T0 + 19, 0), 0);
	store_close(s);
}

static void snapshots_by_process(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}}, more[] = {{"cache", 7}, {0}};
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = batch_new();
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	char *old[] = {"sh"};
	struct got g;

	(void)state;
	/* it is "api" since its exec: what "sh" had is no more */
	write_snapshot(s, "sh", 10, T0, some);
	write_snapshot(s, "api", 10, T0 + 10, more);
	assert_int_equal(live_until(s, T0 + 9, 1), 7);
	sel.app_services = old;
	sel.n_app_services = 1;
	read_event(s, &sel, &g);
	assert_int_equal(g.n, 0);
	sel.n_app_services = 0;
	/* the same process id, started at another time, and on another node */
	add_snapshot(b, "api", 10, T0 + 11, some)->process_start_ns = 5 * NSEC_PER_SEC;
	profile_tag(b, add_snapshot(b, "api", 10, T0 + 12, some), "pod_node", "n2");
	/* who has no process id is nobody's successor */
	add_snapshot(b, "x", 0, T0 + 13, more);
	add_snapshot(b, "y", 0, T0 + 14, more);
	write_batch(s, b, 4);
	assert_int_equal(live_until(s, T0 + 90, 3), 100 + 100 + 7 + 7 + 7);
	store_close(s);
}

static void losses_are_no_snapshot(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = batch_new();
	struct got g = {0};

	(void)state;
	write_snapshot(s, "api", 10, T0, some);
	profile_lose(b, add_snapshot(b, "api", 10, T0 + 10, nothing), "live_evicted", 3, 0);
	write_batch(s, b, 1);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.sum, 100);
	assert_int_equal(g.summary.n_profiles, 1);
	assert_int_equal(g.summary.first_s, T0 - 1);
	assert_int_equal(g.summary.n_losses, 1);
	assert_int_equal(g.summary.losses[0].n_samples, 3);
	store_summary_done(&g.summary);
	store_close(s);
}

static void snapshots_expire(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	struct store *s = open_at(":memory:", 100 * NSEC_PER_SEC, 0);

	(void)state;
	write_snapshot(s, "api", 10, T0, some);
	write_snapshot(s, "db", 11, T0 + 90, some);
	assert_int_equal(live_until(s, T0 + 90, 2), 200);
	assert_int_equal(store_expire(s, (T0 + 120) * NSEC_PER_SEC), 0);
	assert_int_equal(live_until(s, T0 + 90, 1), 100);
	store_close(s);
}

static void estimates_are_told(void **state)
{
	struct selection sel = {
		.event = EVENT_MEM_ALLOC, .time_start_s = T0 - 10, .time_end_s = T0 + 100};
	static const uint32_t ppm[] = {500000, 120000, 0};
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = batch_new();
	struct got g = {0};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(ppm); i++) {
		_cleanup_free_ char *id = xasprintf("e%u", i);
		struct profile *p = add_profile(b, id, i ? "api" : "db", 10, "app", T0);

		p->event = EVENT_MEM_ALLOC;
		p->estimate_ppm = ppm[i];
		p->estimate_error = 3 + i;
		add_sample(b, p, "w", false, "malloc", 100);
	}
	write_batch(s, b, 3);
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.summary.estimate_ppm, 120000);
	assert_int_equal(g.summary.estimate_error, 5);
	store_summary_done(&g.summary);
	sel.where = leaf(PRED_EQ, "app_service", "db");
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.summary.estimate_ppm, 500000);
	assert_int_equal(g.summary.estimate_error, 3);
	store_summary_done(&g.summary);
	predicate_free(sel.where);
	sel.where = NULL;
	sel.time_start_s = T0;
	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	assert_int_equal(g.summary.estimate_ppm, 0);
	store_summary_done(&g.summary);
	store_close(s);
}

static void add_off_cpu(struct batch *b, const char *app, uint32_t pid, const char *ns,
			const char *container, int64_t value)
{
	_cleanup_free_ char *id = xasprintf("%s %s %s", app, ns, container);
	struct profile *p = add_profile(b, id, app, pid, ns, T0);
	struct profile_sample *sample;

	p->event = EVENT_OFF_CPU;
	profile_tag(b, p, "container_id", container);
	if (pid) {
		add_sample(b, p, "w", false, "futex", value);
		return;
	}
	sample = profile_add(b, p);
	sample->stack = STACK_NONE;
	sample->cpu = -1;
	sample->value = value;
}

static uint64_t throttled(struct store *s, const char *app, const char *ns, struct predicate *where)
{
	char *apps[] = {(char *)app}, *namespaces[] = {(char *)ns};
	struct selection sel = {.event = EVENT_OFF_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 10,
				.app_services = apps,
				.n_app_services = app ? 1 : 0,
				.allowed_namespaces = namespaces,
				.n_allowed_namespaces = ns ? 1 : 0,
				.where = where};
	struct got g = {0};
	uint64_t us;

	assert_int_equal(store_read(s, &sel, take, &g, &g.summary, NULL), 0);
	for (size_t i = 0; i < g.n; i++)
		assert_true(app || !str_has_prefix(g.rows[i].text, "Throttled"));
	us = g.summary.throttled_us;
	store_summary_done(&g.summary);
	predicate_free(where);
	return us;
}

/* Time that containers were not let run: beside the waits of the processes in them. */
static void throttled_time_is_beside(void **state)
{
	struct store *s = open_at(":memory:", 0, 0);
	struct batch *b = batch_new();

	(void)state;
	add_off_cpu(b, "api", 10, "app", "c1", 100);
	add_off_cpu(b, "Throttled", 0, "app", "c1", 4000);
	add_off_cpu(b, "db", 11, "data", "c2", 100);
	add_off_cpu(b, "Throttled", 0, "data", "c2", 500);
	write_batch(s, b, 4);
	assert_int_equal(throttled(s, NULL, NULL, NULL), 4500);
	assert_int_equal(throttled(s, "api", NULL, NULL), 4000);
	assert_int_equal(throttled(s, "nobody", NULL, NULL), 0);
	assert_int_equal(throttled(s, NULL, "data", NULL), 500);
	assert_int_equal(throttled(s, "api", "data", NULL), 0);
	assert_int_equal(throttled(s, NULL, NULL, leaf(PRED_EQ, "pod_ns", "app")), 4000);
	assert_int_equal(throttled(s, NULL, NULL, leaf(PRED_EQ, "app_service", "db")), 500);
	assert_int_equal(throttled(s, "Throttled", NULL, NULL), 4500);
	assert_int_equal(throttled(s, NULL, NULL, nested("pod_ns", "app")), 4000);
	/* what one may not see is not told, whatever it says it is of */
	b = batch_new();
	add_off_cpu(b, "Throttled", 0, "other", "c1", 7);
	write_batch(s, b, 1);
	assert_int_equal(throttled(s, "api", NULL, NULL), 4007);
	assert_int_equal(throttled(s, "api", "app", NULL), 4000);
	store_close(s);
}

/* Files of the versions before go on as they are, and take what is new. */
static void older_files(void **state)
{
	static const struct live some[] = {{"cache", 100}, {0}};
	/* what made a file of the version after; two profiles of the same process and second were added up */
	static const char *const undo[] = {
		[3] = "CREATE TABLE samples(event INT, series INT, time INT, stack INT, cpu INT,"
		      " value INT NOT NULL, n INT NOT NULL,"
		      " PRIMARY KEY(event, series, time, stack, cpu)) WITHOUT ROWID;"
		      "INSERT INTO samples SELECT p.event, p.series, p.time, sa.stack, sa.cpu, "
		      "SUM(sa.value), SUM(sa.n) FROM profiles p "
		      "CROSS JOIN pf_samples(p.samples, p.time) sa GROUP BY 1, 2, 3, 4, 5;"
		      "CREATE TABLE old(id BLOB PRIMARY KEY, time INT NOT NULL, event INT NOT "
		      "NULL, series INT NOT NULL, n INT NOT NULL) WITHOUT ROWID;"
		      "INSERT INTO old SELECT id, time, event, series, n FROM profiles;"
		      "DROP TABLE profiles; ALTER TABLE old RENAME TO profiles;"
		      "CREATE INDEX profiles_time ON profiles(time, event, series, n);"
		      "PRAGMA user_version=3",
		[2] = "ALTER TABLE stacks DROP COLUMN wait; DROP TABLE snapshots;"
		      "DROP TABLE estimates; PRAGMA user_version=2;",
		[1] = "DROP TABLE links; PRAGMA user_version=1;",
	};

	(void)state;
	for (int version = 1; version <= 3; version++) {
		char *dir = temp_dir();
		struct store *s = open_at(dir, 0, 0);
		struct batch *b = batch_new();

		write_batch(s, two_services(), 3);
		for (int i = 0; i < 2; i++)
			add_sample(b, add_profile(b, i ? "x" : "y", "twice", 11, "app", T0 + 5),
				   "worker", false, "function", i ? 1000 : 3000);
		write_batch(s, b, 2);
		store_close(s);
		for (int to = 3; to >= version; to--)
			sql(dir, undo[to]);
		s = open_at(dir, 0, 0);
		assert_int_equal(value_where(s, NULL), 4240);
		assert_int_equal(value_where(s, leaf(PRED_EQ, "app_service", "twice")), 4000);
		assert_int_equal(value_where(s, leaf(PRED_EQ, "thread", "worker")), 4150);
		write_batch(s, two_services(), 0);
		write_snapshot(s, "api", 10, T0, some);
		write_snapshot(s, "api", 10, T0 + 10, some);
		assert_int_equal(live_until(s, T0 + 90, 1), 100);
		store_close(s);
		assert_int_equal(testdir_remove(dir), 0);
	}
}

static void newer_files_are_refused(void **state)
{
	char *dir = temp_dir();
	struct store_config c = {.kind = "sqlite", .path = dir};
	struct field_error e = {0};
	struct store *s = open_at(dir, 0, 0);

	(void)state;
	store_close(s);
	sql(dir, "PRAGMA user_version=99;");
	assert_int_equal(store_open(&c, &s, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "another version (99,"));
	assert_int_equal(testdir_remove(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answer),
		cmocka_unit_test(bounds_and_services),
		cmocka_unit_test(process_named_total),
		cmocka_unit_test(truncation),
		cmocka_unit_test(lost_stacks),
		cmocka_unit_test(duplicates),
		cmocka_unit_test(predicates),
		cmocka_unit_test(deep_predicates),
		cmocka_unit_test(hostile_values),
		cmocka_unit_test(like_and_regexp),
		cmocka_unit_test(values),
		cmocka_unit_test(node_losses),
		cmocka_unit_test(retention_by_age),
		cmocka_unit_test(retention_by_size),
		cmocka_unit_test(hundred_thousand_rows),
		cmocka_unit_test(survives_reopening),
		cmocka_unit_test(damaged_file),
		cmocka_unit_test(damaged_while_open),
		cmocka_unit_test(out_of_range_values),
		cmocka_unit_test(full_disk),
		cmocka_unit_test(killed_while_writing),
		cmocka_unit_test(bad_config),
		cmocka_unit_test(traces),
		cmocka_unit_test(links_have_a_budget),
		cmocka_unit_test(samples_have_an_identity),
		cmocka_unit_test(waits_are_kept_apart),
		cmocka_unit_test(snapshots_replace),
		cmocka_unit_test(snapshots_by_process),
		cmocka_unit_test(losses_are_no_snapshot),
		cmocka_unit_test(snapshots_expire),
		cmocka_unit_test(estimates_are_told),
		cmocka_unit_test(throttled_time_is_beside),
		cmocka_unit_test(older_files),
		cmocka_unit_test(newer_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
