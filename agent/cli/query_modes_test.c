/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame query --group-by, --series and --diff with a stand-in hub: what is asked, and the tables
 * and files that are made of known answers.
 */
#include "cli/cli.h"
#include "cli/query.h"
#include "cli/testhub.h"

static const char groups_answer[] =
	"{\"OPT_STATUS\":\"SUCCESS\",\"result\":{\"groups\":["
	"{\"value\":\"web-1\",\"total\":12000,\"function_total\":800},"
	"{\"value\":\"\",\"total\":7000,\"function_total\":90}],"
	"\"total\":20000,\"function_total\":900,"
	"\"others\":{\"groups\":3,\"total\":1000,\"function_total\":10}},"
	"\"unit\":\"microseconds\",\"summary\":{\"samples\":20,\"losses\":[],\"notes\":[]}}";

static void groups_of_a_tag(void **state)
{
	struct asked a;

	(void)state;
	a = ask(groups_answer, ARGS("--group-by", "pod"));
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/groups");
	assert_string_equal(json_str_at(a.body, "group_by", ""), "pod");
	assert_int_equal(json_int_at(a.body, "limit", 0), 50);
	assert_null(json_object_get(a.body, "function"));
	assert_null(json_object_get(a.body, "unnamed"));
	assert_string_equal(a.text, "all processes: 20.00 ms in 20 samples\n"
				    "       TOTAL      %  POD\n"
				    "   12.00 ms   60.00  web-1\n"
				    "    7.00 ms   35.00  (none)\n"
				    "    1.00 ms    5.00  (3 others)\n");
	asked_done(&a);
}

/* Files come as the hub makes them. What one lacks, it says in a header. */
static void files_of_the_hub(void **state)
{
	struct asked a = ask("a file", ARGS("-F", "otlp", "--unnamed", "start"));

	(void)state;
	assert_string_equal(a.path, "/v1/profile/otlp");
	assert_string_equal(json_str_at(a.body, "unnamed", ""), "start");
	assert_string_equal(a.text, "a file");
	asked_done(&a);
	hub_header = "Podflame-Left-Out: namespaces, samples\r\n";
	a = ask("a file", ARGS("-F", "pprof", "-g", "pod"));
	hub_header = "";
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/pprof");
	assert_string_equal(json_str_at(a.body, "group_by", ""), "pod");
	assert_string_equal(a.text,
			    "a filepodflame query: the file lacks some namespaces, samples\n");
	asked_done(&a);
}

/* What has come of a file is printed, but the user is told that it is not whole. */
static void files_that_are_cut(void **state)
{
	struct asked a;

	(void)state;
	hub_cuts = true;
	a = ask("half of a file", ARGS("-F", "pprof"));
	hub_cuts = false;
	assert_int_equal(a.status, 1);
	assert_true(str_has_prefix(a.text, "half of a filepodflame query: http://"));
	asked_done(&a);
}

static void groups_of_a_function(void **state)
{
	struct asked a;

	(void)state;
	a = ask(groups_answer, ARGS("-g", "pod", "--function", "[l] memcpy", "-n", "2"));
	assert_int_equal(a.status, 0);
	assert_string_equal(json_str_at(a.body, "function.name", ""), "memcpy");
	assert_string_equal(json_str_at(a.body, "function.kind", ""), "library");
	assert_int_equal(json_int_at(a.body, "limit", 0), 2);
	assert_string_equal(a.text, "[l] memcpy: 900.00 us of 20.00 ms (4.50 %) in 20 samples\n"
				    "    FUNCTION      %         TOTAL  % OF IT  POD\n"
				    "  800.00 us   88.89     12.00 ms     6.67  web-1\n"
				    "   90.00 us   10.00      7.00 ms     1.29  (none)\n"
				    "   10.00 us    1.11      1.00 ms     1.00  (3 others)\n");
	asked_done(&a);
	a = ask(groups_answer, ARGS("-g", "pod", "--function", "main", "-F", "json"));
	assert_null(json_at(a.body, "function.kind"));
	assert_true(str_has_prefix(a.text, groups_answer));
	asked_done(&a);
}

/* ---- series ---- */

#define SERIES(unit, groups, others)                                                               \
	"{\"OPT_STATUS\":\"SUCCESS\",\"result\":{\"unit\":\"" unit "\",\"start\":1700000000,"      \
	"\"step\":10,\"steps\":4,\"groups\":[" groups "],\"others\":" others                       \
	",\"cut_groups\":false,\"losses\":[{\"reason\":\"ring_full\",\"samples\":[0,2,0,1],"       \
	"\"time_ns\":[0,0,0,0]}],\"starts\":[],\"more_starts\":false,\"notes\":[\"a note\"]}}"

static const char one_series[] =
	SERIES("microseconds", "{\"value\":\"\",\"values\":[8000,0,4000,100]}", "null");
static const char pods_series[] =
	SERIES("microseconds",
	       "{\"value\":\"web \\\"1\\\"\",\"values\":[8000,0,4000,4000]},"
	       "{\"value\":null,\"values\":[0,0,0,100]}",
	       "[1,1,1,1]");

#define SERIES_NOTES "lost: ring_full, 3 samples\nnote: a note\n"

static void a_series_has_bars(void **state)
{
	struct asked a;

	(void)state;
	a = ask(one_series, ARGS("--series", "--from", "1700000000", "--to", "1700000039"));
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/series");
	assert_int_equal(json_int_at(a.body, "step", 0), 10);
	assert_string_equal(
		a.text,
		"all processes: 12.10 ms, 4 steps of 10 s from 2023-11-14T22:13:20Z\n"
		"TIME                         VALUE\n"
		"2023-11-14T22:13:20Z      8.00 ms   ########################################\n"
		"2023-11-14T22:13:30Z      0.00 us\n"
		"2023-11-14T22:13:40Z      4.00 ms   ####################\n"
		"2023-11-14T22:13:50Z    100.00 us   #\n" SERIES_NOTES);
	asked_done(&a);
	locale = "C.UTF-8";
	a = ask(one_series, ARGS("--series"));
	locale = "C";
	assert_non_null(strstr(a.text, "4.00 ms   ████████████████████\n"));
	assert_non_null(strstr(a.text, "100.00 us   ▌\n"));
	asked_done(&a);
}

static void groups_have_a_row_each(void **state)
{
	struct asked a;

	(void)state;
	a = ask(pods_series, ARGS("--series", "-g", "pod", "--step", "2m", "-n", "1"));
	assert_int_equal(a.status, 0);
	assert_string_equal(json_str_at(a.body, "group_by", ""), "pod");
	assert_int_equal(json_int_at(a.body, "step", 0), 120);
	assert_int_equal(json_int_at(a.body, "limit", 0), 1);
	assert_string_equal(a.text,
			    "all processes: 16.10 ms, 4 steps of 10 s from 2023-11-14T22:13:20Z\n"
			    "       TOTAL      %       HIGHEST  OVER TIME  POD\n"
			    "   16.00 ms   99.35      8.00 ms  |@ ++|  web \"1\"\n"
			    "  100.00 us    0.62    100.00 us  |   .|  (none)\n"
			    "    4.00 us    0.02      1.00 us  |....|  (others)\n"
			    "The highest column of characters is 8.00 ms in 10 s.\n" SERIES_NOTES);
	asked_done(&a);
}

static void a_step_is_a_number_of_seconds_or_a_duration(void **state)
{
	static const char *const same[] = {"90", "90s", "1m30s"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		struct asked a = ask(pods_series, ARGS("--series", "--step", same[i]));

		assert_int_equal(json_int_at(a.body, "step", 0), 90);
		asked_done(&a);
	}
}

/* What is in use is not added up over time: the last value counts. */
static void snapshots_are_not_added_up(void **state)
{
	struct asked a =
		ask(SERIES("bytes", "{\"value\":\"\",\"values\":[2048,2048,1024,1024]}", "null"),
		    ARGS("--series", "-e", "mem-inuse"));

	(void)state;
	assert_true(str_has_prefix(a.text, "all processes: 1.00 KiB at the end, 4 steps"));
	asked_done(&a);
}

/* Objects and goroutines are counted: they are no time. */
static void counts_have_no_unit(void **state)
{
	struct asked a =
		ask(SERIES("goroutines", "{\"value\":\"\",\"values\":[7,2500,7,1500]}", "null"),
		    ARGS("--series", "-e", "goroutines"));

	(void)state;
	assert_true(str_has_prefix(a.text, "all processes: 1.50 k at the end, 4 steps"));
	asked_done(&a);
}

static void csv_has_a_row_for_each_value(void **state)
{
	struct asked a;

	(void)state;
	a = ask(one_series, ARGS("--series", "-F", "csv"));
	assert_int_equal(json_int_at(a.body, "step", -1), 0);
	assert_string_equal(a.text, "time,microseconds\n"
				    "2023-11-14T22:13:20Z,8000\n"
				    "2023-11-14T22:13:30Z,0\n"
				    "2023-11-14T22:13:40Z,4000\n"
				    "2023-11-14T22:13:50Z,100\n" SERIES_NOTES);
	asked_done(&a);
	a = ask(pods_series, ARGS("--series", "-g", "pod", "-F", "csv"));
	assert_true(str_has_prefix(a.text, "time,\"pod\",microseconds\n"
					   "2023-11-14T22:13:20Z,\"web \"\"1\"\"\",8000\n"));
	assert_non_null(strstr(a.text, "\n2023-11-14T22:13:50Z,\"\",100\n"));
	assert_non_null(strstr(a.text, "\n2023-11-14T22:13:50Z,\"(others)\",1\n"));
	asked_done(&a);
}

/* A process chooses names. A spreadsheet must not compute them. */
static void csv_has_no_formulas(void **state)
{
	static const struct {
		const char *value, *cell;
	} t[] = {
		{"=1+2", "\"'=1+2\""},	 {"+1", "\"'+1\""},   {"-1", "\"'-1\""},  {"@a", "\"'@a\""},
		{"\\t =a", "\"'  =a\""}, {"＝a", "\"'＝a\""}, {"a=1", "\"a=1\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_free_ char *answer = xasprintf(SERIES("microseconds",
							       "{\"value\":\"%s\",\"values\":"
							       "[1,2,3,4]}",
							       "null"),
							t[i].value),
				    *row = xasprintf("\n2023-11-14T22:13:20Z,%s,1\n", t[i].cell);
		struct asked a = ask(answer, ARGS("--series", "-g", "thread", "-F", "csv"));

		if (!strstr(a.text, row))
			fail_msg("%s is not in %s", row, a.text);
		asked_done(&a);
	}
}

/* ---- differences ---- */

static const char tree_answer[] =
	"{\"OPT_STATUS\":\"SUCCESS\",\"result\":{\"strings\":[\"web\",\"worker\",\"main\","
	"\"malloc\",\"write;x\",\"gone\"],\"kinds\":[\"app\",\"library\",\"kernel\",\"root\","
	"\"thread\"],\"functions\":{\"name\":[0,1,2,3,4,3,5],\"kind\":[3,4,0,1,2,1,0],"
	"\"module\":[-1,-1,-1,-1,-1,-1,-1],\"file\":[-1,-1,-1,-1,-1,-1,-1],"
	"\"line\":[0,0,0,0,0,0,0]},\"nodes\":{"
	/* web; worker; main; malloc; malloc (of another file, below it); write; gone */
	"\"function\":[0,1,2,3,5,4,6],\"depth\":[0,1,2,3,4,3,3],"
	"\"self\":[0,0,1000,2000,1000,6000,0],\"samples\":[0,0,10,20,10,60,0],"
	"\"before\":[0,0,550,1500,500,450,2000],\"before_samples\":[0,0,11,30,10,9,40]},"
	"\"inlined\":[]},\"unit\":\"microseconds\","
	"\"summary\":{\"samples\":100,\"losses\":[{\"reason\":\"ring_full\",\"samples\":3}],"
	"\"notes\":[]},\"before_summary\":{\"samples\":100,\"losses\":[],"
	"\"notes\":[\"a note\"]}}";

#define NOW_AND_BEFORE                                                                             \
	"--from", "1700007200", "--to", "1700010799", "--diff", "1700000000..2023-11-14T22:43:19Z"

static void a_difference_is_a_table(void **state)
{
	struct asked a;

	(void)state;
	a = ask(tree_answer, ARGS(NOW_AND_BEFORE, "-q", "pod='a'", "-a", "web"));
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/tree");
	assert_int_equal(json_int_at(a.body, "time_start", 0), 1700007200);
	assert_int_equal(json_int_at(a.body, "before.time_start", 0), 1700000000);
	assert_int_equal(json_int_at(a.body, "before.time_end", 0), 1700001799);
	assert_string_equal(json_str_at(a.body, "before.tag_filter", ""), "pod='a'");
	assert_string_equal(json_str_at(a.body, "before.app_service", ""), "web");
	assert_string_equal(
		a.text,
		"before, from 2023-11-14T22:13:20Z to 2023-11-14T22:43:19Z: 5.00 ms in 100 "
		"samples\n"
		"now, from 2023-11-15T00:13:20Z to 2023-11-15T01:13:19Z: 10.00 ms in 100 samples\n"
		"Now is 2.00 times before, in 2.00 times as much time.\n"
		"        SELF %                   TOTAL %\n"
		"BEFORE     NOW   CHANGE   BEFORE     NOW   CHANGE  FUNCTION\n"
		"  9.00   60.00   +51.00     9.00   60.00   +51.00  [k] write;x\n"
		" 40.00    0.00   -40.00    40.00    0.00   -40.00  gone\n"
		" 40.00   30.00   -10.00~   40.00   30.00   -10.00  [l] malloc\n"
		" 11.00   10.00    -1.00~  100.00  100.00    +0.00  main\n"
		"~ This change is at most three standard errors, so it is not "
		"distinguishable from noise.\n"
		"now: lost: ring_full, 3 samples\n"
		"before: note: a note\n");
	asked_done(&a);
}

/* 20 % now and 8 % before of 100 samples each is more than two standard errors, and less than 3. */
static const char close_answer[] =
	"{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{"
	"\"strings\":[\"web\",\"f\",\"g\"],\"kinds\":[\"root\",\"app\"],"
	"\"functions\":{\"name\":[0,1,2],\"kind\":[0,1,1],\"module\":[-1,-1,-1],"
	"\"file\":[-1,-1,-1],\"line\":[0,0,0]},\"nodes\":{\"function\":[0,2,1],"
	"\"depth\":[0,1,1],\"self\":[0,8000,2000],\"samples\":[0,80,20],"
	"\"before\":[0,9200,800],\"before_samples\":[0,92,8]},\"inlined\":[]},"
	"\"unit\":\"microseconds\",\"summary\":{\"samples\":100,\"losses\":[],"
	"\"notes\":[]},\"before_summary\":{\"samples\":100,\"losses\":[],\"notes\":[]}}";

static void noise_is_at_most_three_standard_errors(void **state)
{
	struct asked a = ask(close_answer, ARGS(NOW_AND_BEFORE));

	(void)state;
	assert_non_null(strstr(a.text, "  8.00   20.00   +12.00~ "));
	asked_done(&a);
	a = ask(close_answer, ARGS(NOW_AND_BEFORE, "-e", "mem-inuse"));
	assert_non_null(strstr(a.text, "  8.00   20.00   +12.00  "));
	assert_null(strchr(a.text, '~'));
	asked_done(&a);
}

/*
 * One side has no samples, so there is nothing to compare the other side's shares with: none is
 * marked as noise.
 */
#define ONE_SIDED_ANSWER(self, samples, before, before_samples, n, n_before)                       \
	"{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{"                            \
	"\"strings\":[\"web\",\"f\",\"g\"],\"kinds\":[\"root\",\"app\"],"                          \
	"\"functions\":{\"name\":[0,1,2],\"kind\":[0,1,1],\"module\":[-1,-1,-1],"                  \
	"\"file\":[-1,-1,-1],\"line\":[0,0,0]},\"nodes\":{\"function\":[0,2,1],"                   \
	"\"depth\":[0,1,1],\"self\":" self ",\"samples\":" samples ",\"before\":" before           \
	",\"before_samples\":" before_samples "},\"inlined\":[]},\"unit\":\"microseconds\","       \
	"\"summary\":{\"samples\":" n ",\"losses\":[],\"notes\":[]},\"before_summary\":{"          \
	"\"samples\":" n_before ",\"losses\":[],\"notes\":[]}}"

#define NOTHING "[0,0,0]"
#define VALUES	"[0,8000,20]"
#define COUNTS	"[0,80,1]"

static void an_empty_side_has_no_noise(void **state)
{
	static const struct {
		const char *answer, *row, *says;
	} t[] = {
		{ONE_SIDED_ANSWER(VALUES, COUNTS, NOTHING, NOTHING, "81", "0"),
		 "  0.00    0.25    +0.25     0.00    0.25    +0.25  f\n",
		 "There is no profile of the time before.\n"},
		{ONE_SIDED_ANSWER(NOTHING, NOTHING, VALUES, COUNTS, "0", "81"),
		 "  0.25    0.00    -0.25     0.25    0.00    -0.25  f\n",
		 "There is no profile of the time now.\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct asked a = ask(t[i].answer, ARGS(NOW_AND_BEFORE));

		assert_int_equal(a.status, 0);
		assert_non_null(strstr(a.text, t[i].says));
		assert_non_null(strstr(a.text, t[i].row));
		assert_null(strchr(a.text, '~'));
		asked_done(&a);
	}
}

/* Two columns, before and now, as the script difffolded.pl of FlameGraph writes them. */
static void a_difference_is_folded(void **state)
{
	struct asked a = ask(tree_answer, ARGS("--diff", "-2h..-1h", "-F", "folded"));

	(void)state;
	assert_int_equal(json_int_at(a.body, "before.time_end", 0) -
				 json_int_at(a.body, "before.time_start", 0),
			 3600);
	assert_true(str_has_prefix(a.text, "web;[t] worker;main 550 1000\n"
					   "web;[t] worker;main;[l] malloc 1500 2000\n"
					   "web;[t] worker;main;[l] malloc;[l] malloc 500 1000\n"
					   "web;[t] worker;main;[k] write:x 450 6000\n"
					   "web;[t] worker;main;gone 2000 0\n"
					   "now: lost"));
	asked_done(&a);
	a = ask(tree_answer, ARGS("-g", "pod", "-F", "folded"));
	assert_string_equal(a.path, "/v1/profile/tree");
	assert_string_equal(json_str_at(a.body, "group_by", ""), "pod");
	assert_true(str_has_prefix(a.text, "web;[t] worker;main 1000\n"));
	asked_done(&a);
}

static void trees_are_pictures(void **state)
{
	struct asked a = ask(tree_answer, ARGS("-F", "svg"));

	(void)state;
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/tree");
	assert_int_equal(json_int_at(a.body, "max_nodes", 0), 200000);
	assert_non_null(strstr(a.text, "<title>on-cpu of web: 10.00 ms in 100 samples, from 20"));
	assert_non_null(strstr(a.text, "<title>[l] malloc: 3.00 ms (30.00 %)</title>"));
	asked_done(&a);
	a = ask(tree_answer, ARGS("-F", "svg", NOW_AND_BEFORE));
	assert_non_null(strstr(a.text, "<title>on-cpu of web: now 10.00 ms in 100 samples, from "
				       "2023-11-15T00:13:20Z to 2023-11-15T01:13:19Z; before "));
	assert_non_null(strstr(a.text, "<title>gone: 0.00 us (0.00 %) now, 2.00 ms (40.00 %) "
				       "before</title>"));
	asked_done(&a);
}

static void nothing_before_or_now(void **state)
{
	struct asked a = ask("{\"result\":null,\"unit\":\"bytes\",\"summary\":{\"notes\":[\"no "
			     "profile\"]},\"before_summary\":{}}",
			     ARGS(NOW_AND_BEFORE));

	(void)state;
	assert_int_equal(a.status, 0);
	assert_non_null(strstr(a.text, "\nThere is no profile of the time before.\n"));
	assert_non_null(strstr(a.text, "now: note: no profile\n"));
	asked_done(&a);
}

/* ---- bad input ---- */

static void wrong_options_are_named(void **state)
{
	static const struct {
		const char *args[5], *why;
	} t[] = {
		{{"--diff", "-2h"}, "--diff: '-2h' is not FROM..TO"},
		{{"--diff", "-2h..soon"}, "--diff: 'soon' is not a time"},
		{{"--diff", "-1h..-2h"}, "--diff: '-1h..-2h' ends before it begins"},
		{{"--from", "-1h", "--to", "-2h"}, "--to: '-2h' is before --from, '-1h'"},
		{{"--from", "late"}, "--from: 'late' is not a time"},
		{{"--series", "--step", "5ms"}, "--step: '5ms' is not a number of seconds"},
		{{"--series", "--step", "2147483648"}, "--step: '2147483648' is not a number"},
		{{"--series", "--step", "0"}, "--step: must be longer than 0"},
		{{"--step", "5"}, "--step needs --series"},
		{{"--series", "--diff", "-2h..-1h"}, "--series and --diff do not go together"},
		{{"--series", "-F", "svg"},
		 "--format: --series has no svg; it has table, json, csv"},
		{{"-g", "pod", "-F", "csv"},
		 "--format: --group-by has no csv; it has table, json, svg, folded, pprof, "
		 "speedscope, otlp"},
		{{"-F", "xml"}, "--format: 'xml' is not one of table, json, csv, svg"},
		{{"--function", "main"}, "--function needs --group-by"},
		{{"--diff", "-2h..-1h", "-g", "pod"}, "--group-by: the table of a difference"},
		{{"-g", "\xff"}, "--group-by: is not UTF-8"},
		{{"-g", "pod", "--function", "\xff"}, "--function: is not UTF-8"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct asked a = ask("{}", t[i].args);

		assert_int_equal(a.status, 2);
		assert_null(a.path); /* the hub is not asked */
		if (!strstr(a.text, t[i].why))
			fail_msg("'%s' is not in '%s'", t[i].why, a.text);
		asked_done(&a);
	}
}

/* What is wrong with a tag, the hub says. */
static void the_hub_says_what_is_wrong(void **state)
{
	struct asked a;

	(void)state;
	hub_status = 400;
	a = ask("{\"OPT_STATUS\":\"INVALID_POST_DATA\",\"DESCRIPTION\":\"group_by: unknown tag "
		"'pud'\"}",
		ARGS("-g", "pud"));
	hub_status = 200;
	assert_int_equal(a.status, 1);
	assert_string_equal(a.text, "podflame query: group_by: unknown tag 'pud' (HTTP 400)\n");
	asked_done(&a);
}

static void other_answers_are_refused(void **state)
{
	static const char *const answers[] = {
		"",
		"<html>",
		"{\"result\":{\"groups\":[",
		"{\"result\":{}}",
		"{\"result\":[]}",
		/* a node without a function, without a parent, with a negative value */
		"{\"result\":{\"strings\":[\"a\"],\"kinds\":[\"root\"],\"functions\":{\"name\":[0],"
		"\"kind\":[0]},\"nodes\":{\"function\":[1],\"depth\":[0],\"self\":[1]}}}",
		"{\"result\":{\"strings\":[\"a\"],\"kinds\":[\"root\"],\"functions\":{\"name\":[0],"
		"\"kind\":[0]},\"nodes\":{\"function\":[0,0],\"depth\":[0,2],\"self\":[1,1]}}}",
		"{\"result\":{\"strings\":[\"a\"],\"kinds\":[\"root\"],\"functions\":{\"name\":[0],"
		"\"kind\":[0]},\"nodes\":{\"function\":[0],\"depth\":[0],\"self\":[-1]}}}",
		"{\"result\":{\"strings\":[],\"kinds\":[\"root\"],\"functions\":{\"name\":[0],"
		"\"kind\":[0]},\"nodes\":{\"function\":[0],\"depth\":[0],\"self\":[1]}}}",
		/* a group that lacks a step */
		"{\"result\":{\"start\":1,\"step\":1,\"steps\":2,\"groups\":[{\"values\":[1]}]}}",
	};
	static const char *const modes[][5] = {{"-g", "pod"},
					       {"--series"},
					       {"--diff", "-2h..-1h"},
					       {"--diff", "-2h..-1h", "-F", "folded"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
		for (size_t m = i < 5 ? 0 : i < 9 ? 2 : 1; m < (i == 9 ? 2 : 4); m++) {
			struct asked a = ask(answers[i], modes[m]);

			assert_int_equal(a.status, 1);
			if (!strstr(a.text, ": the answer does not come from podflame's API\n"))
				fail_msg("answer %zu, %s: %s", i, modes[m][0], a.text);
			asked_done(&a);
		}
}

static void an_answer_that_is_cut_off_is_an_error(void **state)
{
	struct asked a;

	(void)state;
	hub_cuts = true;
	a = ask(groups_answer, ARGS("-g", "pod", "-F", "json"));
	hub_cuts = false;
	assert_int_equal(a.status, 1);
	assert_true(str_has_prefix(a.text, "podflame query: http://127.0.0.1:"));
	asked_done(&a);
}

/* Not only a hub answers at a --url, and a message may quote what a pod has chosen. */
static void a_refusal_is_plain_text(void **state)
{
	static const char *const answers[] = {
		"{\"DESCRIPTION\":\"\\u001b]0;x\\u0007\\u009b1m\"}",
		"{\"error\":\"\\u001b]0;x\\u0007\\u009b1m\"}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		struct asked a;

		hub_status = 400;
		a = ask(answers[i], ARGS("-g", "pod"));
		hub_status = 200;
		assert_int_equal(a.status, 1);
		assert_string_equal(a.text, "podflame query:  ]0;x \xef\xbf\xbd"
					    "1m (HTTP 400)\n");
		asked_done(&a);
	}
}

/* A process chooses names. They must not control the terminal. */
static void names_are_plain_text(void **state)
{
	struct asked a = ask("{\"result\":{\"groups\":[{\"value\":\"a\\u001b[2J\\u009b1m\\u202e\\n"
			     "b\",\"total\":1}],\"total\":1,\"others\":{}},\"summary\":{}}",
			     ARGS("-g", "thread"));

	(void)state;
	assert_non_null(strstr(a.text, "  a [2J\xef\xbf\xbd"
				       "1m\xef\xbf\xbd b\n"));
	asked_done(&a);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_of_a_tag),
		cmocka_unit_test(files_of_the_hub),
		cmocka_unit_test(files_that_are_cut),
		cmocka_unit_test(groups_of_a_function),
		cmocka_unit_test(a_series_has_bars),
		cmocka_unit_test(groups_have_a_row_each),
		cmocka_unit_test(a_step_is_a_number_of_seconds_or_a_duration),
		cmocka_unit_test(snapshots_are_not_added_up),
		cmocka_unit_test(counts_have_no_unit),
		cmocka_unit_test(csv_has_a_row_for_each_value),
		cmocka_unit_test(csv_has_no_formulas),
		cmocka_unit_test(a_difference_is_a_table),
		cmocka_unit_test(noise_is_at_most_three_standard_errors),
		cmocka_unit_test(an_empty_side_has_no_noise),
		cmocka_unit_test(a_difference_is_folded),
		cmocka_unit_test(trees_are_pictures),
		cmocka_unit_test(nothing_before_or_now),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(the_hub_says_what_is_wrong),
		cmocka_unit_test(a_refusal_is_plain_text),
		cmocka_unit_test(other_answers_are_refused),
		cmocka_unit_test(an_answer_that_is_cut_off_is_an_error),
		cmocka_unit_test(names_are_plain_text),
	};

	be_verb(argc, argv);
	return cmocka_run_group_tests(tests, hub_start, hub_stop);
}
