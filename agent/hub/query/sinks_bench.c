/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One part of e2e/clickhouse/bench.py, which starts the engine and says where it is:
 * CLICKHOUSE_URL, CLICKHOUSE_PID, and the database in CLICKHOUSE_DATABASE.
 *
 * sinks_bench write ROWS: writes the same load to SQLite and to ClickHouse, and asks SQLite.
 * sinks_bench ask NAMESPACE FROM TO REPEATS: asks ClickHouse for what is there, in this time.
 */
#include "hub/query/benchload.h"
#include "lib/base/testdir.h"

#include <time.h>
#include <unistd.h>

#define T0    1700000000
#define STEPS 100 /* of a series */
#define HOUR  3600
#define MANY  1000 /* choices */

struct asking {
	const char *kind; /* of the store: the first part of a name */
	struct store *s;
	const char *ns;
	int64_t from_s, to_s;
	unsigned repeats; /* after the first time */
};

static uint64_t engine_cpu_ns(void)
{
	static clockid_t clock;
	struct timespec t;

	if (!clock &&
	    clock_getcpuclockid((pid_t)strtol(getenv("CLICKHOUSE_PID") ?: "0", NULL, 10), &clock))
		bench_die("CLICKHOUSE_PID", EINVAL);
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void report(const char *kind, const char *what, double value)
{
	_cleanup_free_ char *name = xasprintf("%s.%s", kind, what);

	bench_report(name, value, "", "");
}

/* ---- writing ---- */

static struct store *open_store(const char *kind, const char *dir)
{
	const struct store_config c = {.kind = kind,
				       .path = dir,
				       .url = getenv("CLICKHOUSE_URL"),
				       .database = getenv("CLICKHOUSE_DATABASE")};
	struct field_error e = {0};
	struct store *s;

	if (store_open(&c, &s, &e))
		bench_die(e.reason, EIO);
	return s;
}

struct written {
	uint64_t hub_ns, engine_ns, wall_ns; /* CPU, CPU, time */
};

static struct written write_load(struct load *l, struct store *s, uint64_t n_windows)
{
	struct written w = {own_cpu_ns(), engine_cpu_ns(), now_mono_ns()};

	write_windows(l, s, EVENT_ON_CPU, n_windows, ROWS_A_PROFILE);
	return (struct written){own_cpu_ns() - w.hub_ns, engine_cpu_ns() - w.engine_ns,
				now_mono_ns() - w.wall_ns};
}

/* What making the load costs, without a store. */
static struct written write_nowhere(uint64_t n_windows)
{
	static struct load l = LOAD_LIFE(T0);
	struct store *s = open_store("null", NULL);
	struct written w;

	w = write_load(&l, s, n_windows);
	store_close(s);
	return w;
}

static void report_written(const char *kind, const struct load *l, struct written w,
			   struct written nothing, struct store *s)
{
	struct store_stats stats;
	double n = (double)l->n_rows;

	if (store_expire(s, (uint64_t)T0 * NSEC_PER_SEC)) /* it brings the stats up to date */
		bench_die("expire", EIO);
	store_stats(s, &stats);
	report(kind, "rows", n);
	report(kind, "in_hub", (double)(w.hub_ns - MIN(w.hub_ns, nothing.hub_ns)) / n);
	report(kind, "in_engine", (double)w.engine_ns / n);
	report(kind, "in_rows_per_s",
	       n / ((double)(w.wall_ns - MIN(w.wall_ns, nothing.wall_ns)) / 1e9));
	report(kind, "bytes", (double)stats.bytes / n);
}

/* ---- asking ---- */

static int add_row(const struct store_row *row, void *arg)
{
	*(uint64_t *)arg += (uint64_t)row->value;
	return 0;
}

static int add_choice(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	(void)c;
	(void)value;
	*(uint64_t *)arg += n;
	return 0;
}

static struct selection selection_of(const struct asking *a, int64_t from_s,
				     struct predicate *where)
{
	return (struct selection){.event = EVENT_ON_CPU,
				  .time_start_s = from_s,
				  .time_end_s = a->to_s - 1,
				  .where = where,
				  .max_time_ns = 600 * NSEC_PER_SEC};
}

static uint64_t ask_rows(const struct asking *a, const struct selection *sel)
{
	struct store_summary summary = {0};
	struct field_error e = {0};
	uint64_t sum = 0;

	if (store_read(a->s, &store_scope_all, sel, add_row, &sum, &summary, &e))
		bench_die(e.reason, EIO);
	store_summary_done(&summary);
	return sum;
}

static uint64_t series_by(const struct asking *a, const struct selection *sel, const char *tag)
{
	const struct series_request r = {
		sel, (uint32_t)MAX((sel->time_end_s - sel->time_start_s) / STEPS + 1, 1), tag, 20};
	struct store_series series = {0};
	struct field_error e = {0};
	uint64_t n;

	if (store_series(a->s, &store_scope_all, &r, &series, &e))
		bench_die(e.reason, EIO);
	n = series.n_groups;
	store_series_done(&series);
	return n;
}

static uint64_t ask_series(const struct asking *a, const struct selection *sel)
{
	return series_by(a, sel, "pod");
}

static uint64_t ask_threads(const struct asking *a, const struct selection *sel)
{
	return series_by(a, sel, "thread");
}

static uint64_t choices_of(const struct asking *a, const struct store_choice *c, size_t n_choices)
{
	struct field_error e = {0};
	uint64_t n = 0;

	if (store_choices(a->s, &store_scope_all, c, n_choices, add_choice, &n, &e))
		bench_die(e.reason, EIO);
	return n;
}

static uint64_t ask_choices(const struct asking *a, const struct selection *sel)
{
	const struct store_choice c[] = {{"pod", sel, MANY}, {"app_service", sel, MANY}};

	return choices_of(a, c, ARRAY_SIZE(c));
}

static uint64_t ask_thread_choices(const struct asking *a, const struct selection *sel)
{
	const struct store_choice c = {"thread", sel, MANY};

	return choices_of(a, &c, 1);
}

struct asked { /* for each time */
	double *hub, *engine, *wall;
};

static void ask_once(const struct asking *a, const struct selection *sel, struct asked *ret,
		     unsigned i,
		     uint64_t (*ask)(const struct asking *a, const struct selection *sel))
{
	uint64_t h = own_cpu_ns(), e = engine_cpu_ns(), w = now_mono_ns();

	if (!ask(a, sel))
		bench_die("nothing found", ENOENT);
	ret->hub[i] = (double)(own_cpu_ns() - h) / 1e9;
	ret->engine[i] = (double)(engine_cpu_ns() - e) / 1e9;
	ret->wall[i] = (double)(now_mono_ns() - w) / 1e6;
}

static void report_part(const char *kind, const char *what, const char *part, double value)
{
	_cleanup_free_ char *name = xasprintf("%s_%s", what, part);

	report(kind, name, value);
}

/* Reports CPU of both sides and the latencies: of the first time ("cold"), and of the others. */
static void report_asked(const struct asking *a, const char *what, struct asked *x)
{
	unsigned n = a->repeats;

	report_part(a->kind, what, "cold_hub", x->hub[0]);
	report_part(a->kind, what, "cold_engine", x->engine[0]);
	report_part(a->kind, what, "hub", bench_median(x->hub + 1, n));
	report_part(a->kind, what, "engine", bench_median(x->engine + 1, n));
	report_part(a->kind, what, "p50", bench_median(x->wall + 1, n));
	report_part(a->kind, what, "p99", x->wall[1 + n * 99 / 100]);
}

static void ask_often(const struct asking *a, const char *what, int64_t from_s,
		      uint64_t (*ask)(const struct asking *a, const struct selection *sel))
{
	char value[64];
	char *values[] = {value};
	struct predicate where = {
		.op = PRED_EQ, .tag = (char *)"pod_ns", .values = values, .n_values = 1};
	const struct selection sel = selection_of(a, MAX(from_s, a->from_s), &where);
	_cleanup_free_ double *all = xcalloc(3ul * (a->repeats + 1), sizeof(*all));
	struct asked x = {all, all + a->repeats + 1, all + 2ul * (a->repeats + 1)};

	snprintf(value, sizeof(value), "%s", a->ns);
	for (unsigned i = 0; i <= a->repeats; i++)
		ask_once(a, &sel, &x, i, ask);
	report_asked(a, what, &x);
}

static void ask_all(const struct asking *a)
{
	ask_often(a, "all", a->from_s, ask_rows);
	ask_often(a, "hour", a->to_s - HOUR, ask_rows);
	ask_often(a, "series", a->from_s, ask_series);
	ask_often(a, "choices", a->from_s, ask_choices);
	ask_often(a, "threads", a->from_s, ask_threads);
	ask_often(a, "thread_choices", a->from_s, ask_thread_choices);
}

/* Asks only SQLite: ClickHouse is asked when its parts are merged. */
static void write_and_ask(const char *kind, const char *dir, uint64_t n_windows,
			  struct written nothing)
{
	struct load *l = xcalloc(1, sizeof(*l));
	struct asking a = {.kind = kind,
			   .s = open_store(kind, dir),
			   .ns = "app",
			   .from_s = T0,
			   .to_s = T0 + (int64_t)n_windows * WINDOW_S + 1,
			   .repeats = 20};
	struct written w;

	*l = (struct load)LOAD_LIFE(T0);
	w = write_load(l, a.s, n_windows);
	report_written(kind, l, w, nothing, a.s);
	if (streq(kind, "sqlite"))
		ask_all(&a);
	store_close(a.s);
	free(l);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/podflame-bench-XXXXXX";

	if (argc == 3 && streq(argv[1], "write")) {
		uint64_t n = (uint64_t)strtod(argv[2], NULL) / PODS / ROWS_A_PROFILE;
		struct written nothing = write_nowhere(n);

		if (!mkdtemp(dir))
			bench_die(dir, errno);
		write_and_ask("sqlite", dir, n, nothing);
		write_and_ask("clickhouse", dir, n, nothing);
		return testdir_remove(dir) ? 1 : 0;
	}
	if (argc == 6 && streq(argv[1], "ask")) {
		struct asking a = {.kind = "clickhouse",
				   .s = open_store("clickhouse", NULL),
				   .ns = argv[2],
				   .from_s = strtoll(argv[3], NULL, 10),
				   .to_s = strtoll(argv[4], NULL, 10),
				   .repeats = (unsigned)strtoul(argv[5], NULL, 10)};

		ask_all(&a);
		store_close(a.s);
		return 0;
	}
	fprintf(stderr, "sinks_bench: e2e/clickhouse/bench.py runs it\n");
	return 2;
}
