/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same profiles in SQLite and in ClickHouse give the same answers (rows, series, choices), for
 * filters that are drawn by chance. e2e/clickhouse/run.sh starts the engine, and sets
 * CLICKHOUSE_URL; without it the test is skipped. LONG=1: thousands of filters, with a seed that is
 * drawn by chance and printed. SEED repeats a run of the same binary, and FILTER asks only those of
 * its questions that have this number.
 */
#include "hub/store/clickhouse/testsql.h"
#include "hub/store/testdraw.h"

#include <inttypes.h>

#define MANY 150

/* as store_join() makes it */
#define JOINT                                                                                      \
	"\x1fpod_ns\x1fk8s.label.tier\x1e"                                                         \
	"app_service\x1fprocess_id\x1fprofile_event_type"

static const char *const tags[] = {
	"pod_cluster",
	"pod_ns",
	"pod",
	"pod_group",
	"container_pid",
	"app_service",
	"process_id",
	"thread",
	"wait",
	"time",
	"k8s.label.tier",
	"k8s.label.x",
	"trace_id",
	"image",
	"rdma_qp",
	"gpu_stream",
	"profile_id",
	"cpu",
	"no_such_tag",
	TAG_UNVERIFIED,
	"profile_event_type",
	"process_start_time",
};
static const enum event events[] = {EVENT_ON_CPU, EVENT_OFF_CPU, EVENT_MEM_INUSE, EVENT_HBM_INUSE};
static const char *const values[] = {
	"app",	      "data",
	"api-1",      "7",
	"10",	      "9",
	"1700000005", "worker",
	"it's",	      "a\tb\\",
	"lock",	      "",
	"Total",      "\xc3\xa9t\xc3\xa9",
	"web",	      "0000000000000001",
	"2",
};
static const char *const patterns[] = {
	"a%", "%a%", "*", "_pp", "%1", "\\%", "w?b", "", "%\xc3\xa9%",
};
static const char *const expressions[] = {"^a", "a(?=p)", ".", "^$", "[0-9]+", "(?i)WEB", "b$|t"};

static struct predicate *a_leaf(void)
{
	static const enum predicate_op ops[] = {
		PRED_EQ,     PRED_NE,	      PRED_LT,	    PRED_GT,	   PRED_LE,
		PRED_GE,     PRED_IN,	      PRED_NOT_IN,  PRED_LIKE,	   PRED_NOT_LIKE,
		PRED_REGEXP, PRED_NOT_REGEXP, PRED_IS_NULL, PRED_NOT_NULL,
	};
	enum predicate_op op = ONE_OF(ops);
	const char *tag = ONE_OF(tags);
	struct predicate *p;

	if (op == PRED_LIKE || op == PRED_NOT_LIKE)
		return leaf(op, tag, ONE_OF(patterns));
	if (op == PRED_REGEXP || op == PRED_NOT_REGEXP)
		return leaf(op, tag, ONE_OF(expressions));
	p = leaf(op, tag, op == PRED_IS_NULL || op == PRED_NOT_NULL ? NULL : ONE_OF(values));
	p->numeric = (streq(tag, "process_id") || streq(tag, "time") || streq(tag, "cpu") ||
		      streq(tag, "container_pid") || streq(tag, "process_start_time")) &&
		     p->n_values;
	if (p->numeric) {
		static const char *const numbers[] = {"0", "7", "9", "10", "11", "1700000005"};

		free(p->values[0]);
		p->values[0] = xstrdup(ONE_OF(numbers));
	}
	return p;
}

static struct predicate *a_tree(unsigned depth)
{
	if (!depth || !below(3))
		return a_leaf();
	switch (below(3)) {
	case 0:
		return join(PRED_NOT, a_tree(depth - 1), NULL);
	case 1:
		return join(PRED_AND, a_tree(depth - 1), a_tree(depth - 1));
	default:
		return join(PRED_OR, a_tree(depth - 1), a_tree(depth - 1));
	}
}

/* The filter as a user would write it, for a failure's message. */
static void print_tree(const struct predicate *p, struct buf *b)
{
	static const char *const ops[] = {
		[PRED_EQ] = "=",
		[PRED_NE] = "!=",
		[PRED_LT] = "<",
		[PRED_GT] = ">",
		[PRED_LE] = "<=",
		[PRED_GE] = ">=",
		[PRED_IN] = "IN",
		[PRED_NOT_IN] = "NOT IN",
		[PRED_LIKE] = "LIKE",
		[PRED_NOT_LIKE] = "NOT LIKE",
		[PRED_REGEXP] = "REGEXP",
		[PRED_NOT_REGEXP] = "NOT REGEXP",
		[PRED_IS_NULL] = "IS NULL",
		[PRED_NOT_NULL] = "IS NOT NULL",
	};

	if (p->n_children) {
		buf_puts(b, p->op == PRED_NOT ? "NOT (" : "(");
		for (size_t i = 0; i < p->n_children; i++) {
			buf_puts(b, !i ? "" : p->op == PRED_AND ? " AND " : " OR ");
			print_tree(p->children[i], b);
		}
		buf_puts(b, ")");
		return;
	}
	buf_printf(b, "%s %s %s%s", p->tag, ops[p->op], p->n_values ? p->values[0] : "",
		   p->numeric ? " (a number)" : "");
}

/* ---- profiles ---- */

static void maybe_tag(struct batch *b, struct profile *p, const char *tag, unsigned one_in)
{
	const char *value = ONE_OF(values);

	if (*value && !below(one_in))
		profile_tag(b, p, tag, value);
}

static void a_profile(struct batch *b, unsigned i)
{
	static const char *const apps[] = {"api", "db", "Total", "Throttled", ""},
				 *const spaces[] = {"app", "data", NULL};
	char id[32];
	struct profile *p;

	snprintf(id, sizeof(id), "p%u", i);
	p = add_profile(b, id, ONE_OF(apps), below(4) ? 7 + below(5) : 0, ONE_OF(spaces),
			T0 + (int64_t)below(20));
	p->event = ONE_OF(events);
	if (profile_event_info(p->event)->snapshot) {
		/* not in the order of time, and a process has several in one second */
		p->process_id = 7 + i % 2;
		p->end_ns = (T0 + i % 4 * 5) * NSEC_PER_SEC;
		p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	}
	p->process_start_ns = below(2) * 10 * NSEC_PER_SEC;
	for (size_t t = 0; t < ARRAY_SIZE(tags); t++)
		if (strchr("pkic", tags[t][0]) && !streq(tags[t], "pod_ns") &&
		    !streq(tags[t], "process_id") && !streq(tags[t], "profile_id") &&
		    !streq(tags[t], "profile_event_type") && !streq(tags[t], "cpu") &&
		    !streq(tags[t], "process_start_time"))
			maybe_tag(b, p, tags[t], 3);
	maybe_tag(b, p, "container_id", 2);
	if (!below(8))
		profile_tag(b, p, TAG_UNVERIFIED, "true");
	for (unsigned n = below(4); n; n--)
		draw_sample(b, p, 10 + (int64_t)below(100), values, ARRAY_SIZE(values));
	if (!below(5))
		profile_lose(b, p, below(2) ? "ring_full" : "agent_down", below(9), below(3));
	if (!below(6))
		p->estimate_ppm = 1000 + below(9), p->estimate_error = below(50);
}

static struct batch *profiles(uint64_t seed)
{
	struct batch *b = profile_batch_new();

	seed_now = seed;
	for (unsigned i = 0; i < 60; i++)
		a_profile(b, i);
	return b;
}

/* ---- answers ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct answer {
	char **lines;
	size_t n, cap;
};

static int add_row(const struct store_row *row, void *arg)
{
	_cleanup_buf_ struct buf b = {0};
	struct frame flat[64];
	struct answer *a = arg;

	for (size_t i = 0; i < row->n_frames; i++)
		flat[i] = *row->frames[i];
	buf_printf(&b, "%s%s%s: ", row->ns ?: "", row->ns ? "/" : "", row->app_service ?: "(none)");
	profile_stack_render(&row->head, flat, row->n_frames, &b);
	buf_printf(&b, " group %s value %" PRId64 " n %" PRIu64, row->group ?: "(none)", row->value,
		   row->n_samples);
	GROW(a->lines, a->n, a->cap);
	a->lines[a->n++] = buf_steal(&b);
	return 0;
}

static char *summary_text(const struct store_summary *s)
{
	struct buf b = {0};

	buf_printf(&b,
		   "rows %" PRIu64 " samples %" PRIu64 " profiles %" PRIu64 " unverified %" PRIu64
		   " first %" PRId64 " last %" PRId64 " ppm %u error %" PRIu64
		   " throttled %" PRIu64,
		   s->n_rows, s->n_samples, s->n_profiles, s->n_unverified, s->first_s, s->last_s,
		   s->estimate_ppm, s->estimate_error, s->throttled_us);
	for (size_t i = 0; i < s->n_losses; i++)
		buf_printf(&b, "\n  lost %s %" PRIu64 " %" PRIu64 "%s%s", s->losses[i].reason,
			   s->losses[i].n_samples, s->losses[i].time_ns,
			   s->losses[i].of_node ? " of the node" : "",
			   s->losses[i].hidden ? " hidden" : "");
	return buf_steal(&b);
}

/* Puts the lines into b in the order of their texts, and frees them. */
static void put_sorted(struct answer *a, struct buf *b)
{
	if (a->n)
		qsort(a->lines, a->n, sizeof(*a->lines), by_text);
	for (size_t i = 0; i < a->n; i++) {
		buf_printf(b, "%s\n", a->lines[i]);
		free(a->lines[i]);
	}
	free(a->lines);
	*a = (struct answer){0};
}

/* One question to a store. */
struct question {
	const struct scope *scope;
	struct selection sel;
	const char *tag; /* of the choices, or the group of the series; NULL: the rows */
	uint32_t step_s; /* of the series; 0: choices */
};

static int rows_of(struct store *s, const struct question *q, struct buf *b, struct field_error *e)
{
	_cleanup_free_ char *tail = NULL;
	struct answer a = {0};
	struct store_summary summary = {0};
	int r = store_read(s, q->scope, &q->sel, add_row, &a, &summary, e);

	put_sorted(&a, b);
	if (r)
		return r;
	tail = summary_text(&summary);
	store_summary_done(&summary);
	return buf_puts(b, tail);
}

static int add_choice(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	struct answer *a = arg;

	(void)c;
	GROW(a->lines, a->n, a->cap);
	a->lines[a->n++] = xasprintf("%s: %" PRIu64, value, n);
	return 0;
}

static int choices_of(struct store *s, const struct question *q, struct buf *b,
		      struct field_error *e)
{
	const struct store_choice c = {q->tag, &q->sel, 1000};
	struct answer a = {0};
	int r = store_choices(s, q->scope, &c, 1, add_choice, &a, e);

	put_sorted(&a, b);
	return r;
}

/* A name, and the steps that are not 0. */
static char *steps_text(const char *name, const int64_t *steps, size_t n)
{
	struct buf b = {0};

	buf_puts(&b, name);
	for (size_t i = 0; i < n; i++)
		if (steps[i])
			buf_printf(&b, " %zu=%" PRId64, i, steps[i]);
	return buf_steal(&b);
}

static int series_of(struct store *s, const struct question *q, struct buf *b,
		     struct field_error *e)
{
	const struct series_request request = {&q->sel, q->step_s, q->tag, 1000};
	/* stores call processes what they like */
	const bool hide_name = str_equal(q->tag, STORE_TAG_PROCESS);
	struct store_series x = {0};
	struct answer a = {0};
	int r = store_series(s, q->scope, &request, &x, e);

	if (r)
		return r;
	buf_printf(b, "steps %zu others %d more %d\n", x.n_steps, x.others != NULL, x.more_starts);
	for (size_t i = 0; i < x.n_groups; i++) {
		GROW(a.lines, a.n, a.cap);
		a.lines[a.n++] = steps_text(hide_name ? "process" : x.groups[i].value ?: "(none)",
					    x.groups[i].values, x.n_steps);
	}
	for (size_t i = 0; i < x.n_losses; i++) {
		_cleanup_free_ char *name = xasprintf("lost %s", x.losses[i].reason);

		GROW(a.lines, a.n, a.cap);
		a.lines[a.n++] =
			steps_text(name, (const int64_t *)x.losses[i].n_samples, x.n_steps);
	}
	put_sorted(&a, b);
	for (size_t i = 0; i < x.n_starts; i++)
		buf_printf(b, "start %" PRId64 "\n", x.starts[i]);
	store_series_done(&x);
	return 0;
}

/* All of an answer as text. */
static char *answer_of(struct store *s, const struct question *q)
{
	struct buf b = {0};
	struct field_error e = {0};
	int r = !q->tag	    ? rows_of(s, q, &b, &e)
		: q->step_s ? series_of(s, q, &b, &e)
			    : choices_of(s, q, &b, &e);

	if (r) {
		buf_done(&b);
		return xasprintf("%s: %s", e.path, e.reason);
	}
	buf_puts(&b, "");
	return buf_steal(&b);
}

struct both {
	struct store *sqlite, *clickhouse;
	uint64_t seed;
};

static struct store *open_kind(const char *kind, const char *database)
{
	const struct store_config c = {.kind = kind,
				       .path = ":memory:",
				       .url = getenv("CLICKHOUSE_URL"),
				       .cluster = getenv("CLICKHOUSE_CLUSTER"),
				       .database = database};
	struct field_error e = {0};
	struct store *s = NULL;

	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/* A window counts once, also if it was stored twice. */
static void double_windows(const char *database)
{
	const struct store_config c = {
		.path = "", .url = getenv("CLICKHOUSE_URL"), .database = database};
	struct field_error e = {0};
	void *s = NULL;

	if (store_clickhouse_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	write_windows_again(s);
	store_clickhouse_sink.close(s);
}

static int both_setup(void **state)
{
	struct both *b = xcalloc(1, sizeof(*b));
	const char *given = getenv("SEED");
	char database[32];

	*state = b;
	if (!getenv("CLICKHOUSE_URL"))
		return 0;
	b->seed = given ? strtoull(given, NULL, 10) : 1;
	if (!given && getenv("LONG"))
		random_bytes(&b->seed, sizeof(b->seed));
	print_message("SEED=%" PRIu64 "\n", b->seed);
	snprintf(database, sizeof(database), "same%" PRIx64, random_below(UINT64_MAX));
	b->sqlite = open_kind("sqlite", NULL);
	b->clickhouse = open_kind("clickhouse", database);
	write_batch(b->sqlite, profiles(b->seed), 60);
	write_batch(b->clickhouse, profiles(b->seed), 60);
	if (!getenv("CLICKHOUSE_CLUSTER"))
		double_windows(database);
	return 0;
}

static int both_teardown(void **state)
{
	struct both *b = *state;

	store_close(b->sqlite);
	store_close(b->clickhouse);
	free(b);
	return 0;
}

static void same(const struct both *b, const struct question *q, unsigned number)
{
	const char *only = getenv("FILTER");
	_cleanup_free_ char *want = NULL, *got = NULL;
	_cleanup_buf_ struct buf tree = {0};

	if (only && strtoul(only, NULL, 10) != number)
		return;
	want = answer_of(b->sqlite, q);
	got = answer_of(b->clickhouse, q);

	print_tree(q->sel.where, &tree);
	if (!str_equal(want, got))
		fail_msg("SEED=%" PRIu64 ", filter %u of %s from %" PRId64 " to %" PRId64
			 ", %s%s, %s %s:\n%s\n--- SQLite\n%s\n--- ClickHouse\n%s",
			 b->seed, number, profile_event_info(q->sel.event)->name,
			 q->sel.time_start_s - T0, q->sel.time_end_s - T0,
			 q->scope->all ? "all" : "one namespace",
			 q->sel.with_total ? ", Total" : "",
			 !q->tag	? "rows by"
			 : q->step_s ? "series of"
				     : "choices of",
			 q->tag ?: q->sel.group_by ?: "none", tree.data, want, got);
}

static unsigned n_questions(void)
{
	return getenv("LONG") ? 5000 : MANY;
}

/* A selection of chance; the caller frees its conditions. */
static struct question a_question(void)
{
	static char *const app[] = {(char *)"app"};
	static const struct scope one = {.places = (char **)app, .n_places = 1};

	return (struct question){
		.scope = below(3) ? &store_scope_all : &one,
		.sel = {.event = ONE_OF(events),
			.time_start_s = T0 - 10 + (int64_t)below(20),
			.time_end_s = T0 + (int64_t)below(30),
			.with_total = below(2),
			.apart = app,
			.n_apart = below(4) ? 0 : 1,
			.where = a_tree(4),
			.max_time_ns = 600 * NSEC_PER_SEC},
	};
}

static void filters_select_the_same(void **state)
{
	static const char *const groups[] = {
		NULL, NULL, "pod_ns", "thread", "k8s.label.tier", "profile_id", JOINT};
	const struct both *b = *state;

	need_engine();
	for (unsigned i = 0; i < n_questions(); i++) {
		struct question q = a_question();

		q.sel.group_by = ONE_OF(groups);
		same(b, &q, i);
		store_predicate_free(q.sel.where);
	}
}

static void series_are_the_same(void **state)
{
	static const char *const groups[] = {
		"pod_ns",     "pod",	       "app_service",	 "process_id",	    "thread",
		"wait",	      "container_pid", "k8s.label.tier", "image",	    "rdma_qp",
		"gpu_stream", "no_such_tag",   TAG_UNVERIFIED,	 STORE_TAG_PROCESS, JOINT,
	};
	const struct both *b = *state;

	need_engine();
	for (unsigned i = 0; i < n_questions(); i++) {
		struct question q = a_question();

		q.tag = ONE_OF(groups);
		q.step_s = 1 + below(7);
		q.sel.time_end_s = MAX(q.sel.time_end_s, q.sel.time_start_s);
		same(b, &q, i);
		store_predicate_free(q.sel.where);
	}
}

static void choices_are_the_same(void **state)
{
	const struct both *b = *state;

	need_engine();
	for (unsigned i = 0; i < n_questions(); i++) {
		struct question q = a_question();

		q.tag = below(10) == 0 ? POD_LABEL : below(20) == 0 ? JOINT : ONE_OF(tags);
		same(b, &q, i);
		store_predicate_free(q.sel.where);
	}
}

/* ---- what the stores have ---- */

static void add_namespace(const char *ns, void *arg)
{
	buf_printf(arg, "%s\n", ns);
}

static void add_oldest(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	buf_printf(arg, "%s:%s%s from %" PRId64 " to %" PRId64 "\n", of->cluster ?: "",
		   of->ns ?: "", of->unverified ? " unverified" : "", oldest_s, newest_s);
}

static void add_pod(const struct store_pod *p, void *arg)
{
	struct answer *a = arg;

	GROW(a->lines, a->n, a->cap);
	a->lines[a->n++] =
		xasprintf("%s %s %s %s %s", p->cluster ?: "", p->ns, p->name, p->uid, p->node);
}

static char *has(struct store *s, const struct scope *scope)
{
	struct buf b = {0};
	struct answer pods = {0};
	struct field_error e = {0};

	assert_int_equal(store_namespaces(s, NULL, add_namespace, &b, &e), 0);
	assert_int_equal(store_oldest(s, scope, NULL, add_oldest, &b, &e), 0);
	assert_int_equal(store_pods(s, T0 + 5, add_pod, &pods, &e), 0);
	put_sorted(&pods, &b);
	return buf_steal(&b);
}

static void both_have_the_same(void **state)
{
	static char *const app[] = {(char *)"app"};
	const struct scope one = {.places = (char **)app, .n_places = 1},
			   own = {.own = true}, *const scopes[] = {&store_scope_all, &one, &own};
	const struct both *b = *state;

	need_engine();
	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
		_cleanup_free_ char *want = has(b->sqlite, scopes[i]),
				    *got = has(b->clickhouse, scopes[i]);

		assert_string_equal(got, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_select_the_same),
		cmocka_unit_test(series_are_the_same),
		cmocka_unit_test(choices_are_the_same),
		cmocka_unit_test(both_have_the_same),
	};

	return cmocka_run_group_tests_name("same", tests, both_setup, both_teardown);
}
