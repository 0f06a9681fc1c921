/* SPDX-License-Identifier: Apache-2.0 */
/* podflame top in a terminal of its own, and without one, with a stand-in hub. */
#include "cli/cli.h"
#include "cli/testhub.h"
#include "cli/testterminal.h"

#include <fcntl.h>

#include "lib/base/testdir.h"

#define SHOW "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define HIDE "\x1b[?7h\x1b[?25h\x1b[?1049l"

/* web; main; malloc; write. Before: main had more. */
static const char tree_answer[] =
	"{\"OPT_STATUS\":\"SUCCESS\",\"result\":{\"strings\":[\"web\",\"main\",\"malloc\","
	"\"write\"],\"kinds\":[\"app\",\"library\",\"kernel\",\"root\"],\"functions\":{"
	"\"name\":[0,1,2,3],\"kind\":[3,0,1,2]},\"nodes\":{\"function\":[0,1,3,2],"
	"\"depth\":[0,1,2,2],\"self\":[0,1000,6000,3000],\"before\":[0,3000,0,2000]},"
	"\"inlined\":[]},\"unit\":\"microseconds\",\"summary\":{\"samples\":100,"
	"\"estimated\":{\"share\":0.5,\"error\":100},\"losses\":[{\"reason\":\"ring_full\","
	"\"samples\":3}],\"notes\":[]},\"before_summary\":{\"samples\":50,\"notes\":[\"old\"]}}";

static const char groups_answer[] =
	"{\"OPT_STATUS\":\"SUCCESS\",\"result\":{\"groups\":["
	"{\"value\":\"worker\",\"total\":12000}],\"total\":12000,"
	"\"others\":{\"groups\":0,\"total\":0}},"
	"\"unit\":\"microseconds\",\"summary\":{\"samples\":20,\"losses\":[],\"notes\":[]}}";

#define TABLE                                                                                      \
	"web: 10.00 ms in 100 samples\n"                                                           \
	"        SELF      %   CHANGE         TOTAL      %  FUNCTION\n"                            \
	"    6.00 ms   60.00   +60.00      6.00 ms   60.00  [k] write\n"                           \
	"    3.00 ms   30.00   -10.00      3.00 ms   30.00  [l] malloc\n"

static void without_a_terminal_it_prints_once(void **state)
{
	struct asked a = ask_verb("top", tree_answer, ARGS("-q", "pod='a'", "--last", "2m"));

	(void)state;
	assert_int_equal(a.status, 0);
	assert_string_equal(a.path, "/v1/profile/tree");
	assert_string_equal(json_str_at(a.body, "tag_filter", ""), "pod='a'");
	assert_string_equal(json_str_at(a.body, "before.tag_filter", ""), "pod='a'");
	/* two minutes, both ends included, and the two minutes before */
	assert_int_equal(json_int_at(a.body, "time_end", 0) - json_int_at(a.body, "time_start", 0),
			 119);
	assert_int_equal(json_int_at(a.body, "time_start", 0) -
				 json_int_at(a.body, "before.time_end", 0),
			 1);
	assert_int_equal(json_int_at(a.body, "before.time_end", 0) -
				 json_int_at(a.body, "before.time_start", 0),
			 119);
	assert_string_equal(a.text,
			    TABLE "    1.00 ms   10.00   -50.00     10.00 ms  100.00  main\n"
				  "estimated from 50 % of what happened, +-1 %\n"
				  "lost: ring_full, 3 samples\n");
	asked_done(&a);
	a = ask_verb("top", tree_answer, ARGS("-n", "2"));
	assert_true(str_has_prefix(a.text, TABLE "... and 1 more (--limit)\n"));
	asked_done(&a);
	a = ask_verb("top", groups_answer, ARGS("-g", "thread"));
	assert_string_equal(a.path, "/v1/profile/groups");
	assert_non_null(strstr(a.text, "   12.00 ms  100.00  worker\n"));
	asked_done(&a);
}

static void what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *args[3], *why;
		int status;
	} t[] = {
		{{"--last", "0"}, "--last: '0' is not a time from 1s to 86400s", 2},
		{{"--last", "x"}, "--last: 'x' is not a time", 2},
		{{"--last", "25h"}, "--last: '25h' is not a time", 2},
		{{"--last", "86401"}, "--last: '86401' is not a time", 2},
		{{"--delay", "10ms"}, "--delay: '10ms' is not a time from 1s to 3600s", 2},
		{{"--limit", "-1"}, "--limit: '-1' is not a number", 2},
		{{"x"}, "'x' is not expected here", 2},
		{{"-q", "\xff"}, "--tag-filter, --app-service or --event: is not UTF-8", 2},
		{{"-u", "http://127.0.0.1:1"}, "http://127.0.0.1:1: ", 1},
		{{NULL}, "the answer does not come from podflame's API", 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct asked a = ask_verb("top", "{\"result\":{}}", t[i].args);

		assert_int_equal(a.status, t[i].status);
		if (!strstr(a.text, t[i].why))
			fail_msg("'%s' is not in '%s'", t[i].why, a.text);
		asked_done(&a);
	}
}

/* ---- with a terminal ---- */

static void start(struct terminal *t, unsigned short rows, const char *const *args)
{
	hub_answer = tree_answer;
	hub_path = "/v1/profile/groups";
	hub_path_answer = groups_answer;
	if (terminal_fork(t, rows))
		run_verb("top", args);
}

static void quit(struct terminal *t)
{
	terminal_press(t, "q");
	assert_int_equal(terminal_end(t), 0);
	assert_true(str_has_suffix(t->seen.data, HIDE));
	buf_done(&t->seen);
}

/* Lines as they are on the screen: each ends in "clear the rest of the line". */
#define LINE(text) text "\x1b[K"

static void a_table_fills_the_screen(void **state)
{
	struct terminal t;

	(void)state;
	start(&t, 24, ARGS("-a", "web"));
	terminal_wait(&t, "main\x1b[K\x1b[J");
	assert_true(str_has_prefix(t.seen.data, SHOW));
	assert_non_null(strstr(t.seen.data, LINE("  on-cpu of the last 60 s")));
	assert_non_null(strstr(t.seen.data,
			       "estimated from 50 % of what happened, +-1 %; lost: ring_full, 3 "
			       "samples\x1b[K"));
	/* what has grown is red, what has shrunk is green */
	assert_non_null(strstr(t.seen.data, "60.00  \x1b[31m +60.00\x1b[0m      6.00 ms"));
	assert_non_null(strstr(t.seen.data, "30.00  \x1b[32m -10.00\x1b[0m      3.00 ms"));
	assert_true(terminal_is_raw(&t));
	quit(&t);
}

static void it_asks_again(void **state)
{
	int before = ts_n_requests(hub);
	struct terminal t;

	(void)state;
	start(&t, 24, ARGS("-d", "1s"));
	while (ts_n_requests(hub) < before + 3)
		terminal_read(&t);
	quit(&t);
}

static void keys_sort(void **state)
{
	struct terminal t;

	(void)state;
	start(&t, 24, ARGS("-d", "1h"));
	terminal_wait(&t, "main\x1b[K\x1b[J");
	terminal_press(&t, "s");
	terminal_wait(&t, "\x1b[J");
	assert_non_null(strstr(t.seen.data, "s: sort (by total)"));
	assert_true(strstr(t.seen.data, "  main\x1b[K") < strstr(t.seen.data, "  [k] write"));
	terminal_press(&t, "s");
	terminal_wait(&t, "\x1b[J");
	assert_non_null(strstr(t.seen.data, "s: sort (by change)"));
	assert_true(strstr(t.seen.data, "  [k] write") < strstr(t.seen.data, "  main\x1b[K"));
	assert_true(strstr(t.seen.data, "  main\x1b[K") < strstr(t.seen.data, "  [l] malloc"));
	quit(&t);
}

static void keys_go_through_groups(void **state)
{
	struct terminal t;

	(void)state;
	start(&t, 24, ARGS("-d", "1h", "-g", "pod_gpu"));
	terminal_wait(&t, "worker\x1b[K");
	assert_non_null(strstr(t.seen.data, "g: group (pod_gpu)"));
	terminal_press(&t, "g");
	terminal_wait(&t, LINE("       TOTAL      %  APP_SERVICE"));
	terminal_wait(&t, "worker\x1b[K");
	for (int i = 0; i < 7; i++) { /* thread, pod_ns, pod, container, image, pod_node */
		terminal_press(&t, "g");
		terminal_wait(&t, i < 6 ? "worker\x1b[K" : "main\x1b[K");
	}
	assert_non_null(strstr(t.seen.data, "g: group (functions)"));
	quit(&t);
}

static void the_end_of_a_pause_asks_at_once(void **state)
{
	struct terminal t;
	int n;

	(void)state;
	start(&t, 24, ARGS("-d", "1h"));
	terminal_wait(&t, "main\x1b[K");
	terminal_press(&t, " ");
	terminal_wait(&t, "PAUSED");
	terminal_press(&t, "s"); /* a key is answered meanwhile */
	terminal_wait(&t, "(by total)");
	n = ts_n_requests(hub);
	terminal_press(&t, " ");
	terminal_wait(&t, "space: pause");
	while (ts_n_requests(hub) == n)
		terminal_read(&t);
	quit(&t);
}

/* Waits until a `top` that asks each second has asked so often. */
static void wait_for_questions(size_t n)
{
	struct terminal clock;

	start(&clock, 24, ARGS("-d", "1s", "-a", "clock"));
	n += hub_asked("\"clock\"");
	while (hub_asked("\"clock\"") < n)
		terminal_read(&clock);
	quit(&clock);
}

static void a_pause_lasts(void **state)
{
	uint64_t began = now_mono_ns();
	struct terminal t;
	size_t n;

	(void)state;
	start(&t, 24, ARGS("-d", "4s", "-a", "lasting"));
	terminal_wait(&t, "main\x1b[K");
	terminal_press(&t, " ");
	terminal_wait(&t, "PAUSED");
	/* on a machine that is so slow, the second question was under way */
	n = now_mono_ns() - began < 4 * NSEC_PER_SEC ? 1 : 2;
	wait_for_questions(6);
	assert_in_range(hub_asked("\"lasting\""), 1, n);
	quit(&t);
}

/* The pause holds, too, if an answer comes in it. */
static void a_pause_begins_before_an_answer(void **state)
{
	struct terminal t;

	(void)state;
	hub_holds = true;
	start(&t, 24, ARGS("-d", "1s", "-a", "paused"));
	while (!hub_asked("\"paused\""))
		usleep(1000);
	terminal_press(&t, " ");
	terminal_wait(&t, "PAUSED");
	hub_release();
	terminal_wait(&t, "main\x1b[K");
	wait_for_questions(4);
	assert_int_equal(hub_asked("\"paused\""), 1);
	quit(&t);
}

static void rows_follow_the_size(void **state)
{
	struct terminal t;

	(void)state;
	start(&t, 6, ARGS("-d", "1h"));
	terminal_wait(&t, "[k] write\x1b[K\x1b[J");
	assert_null(strstr(t.seen.data, "[l] malloc"));
	terminal_forget(&t);
	terminal_resize(&t, 7);
	terminal_wait(&t, "[l] malloc\x1b[K\x1b[J");
	quit(&t);
}

static void a_hub_that_is_away_is_asked_again(void **state)
{
	struct ts_config cfg = {.port = hub->port};
	struct terminal t;

	start(&t, 24, ARGS("-d", "1s"));
	terminal_wait(&t, "main\x1b[K");
	terminal_forget(&t);
	hub_stop(state);
	terminal_wait(&t, "Asking again every 1 s.");
	/* the last table is still there */
	terminal_wait(&t, "main\x1b[K");
	terminal_press(&t, "g");
	terminal_wait(&t, "Asking again every 1 s.");
	hub = ts_start(&cfg, hub_answers, NULL);
	terminal_wait(&t, "worker\x1b[K");
	quit(&t);
}

/* A token that is read anew when the hub refuses it, as one of Kubernetes expires. */
static void a_new_token_is_read(void **state)
{
	char dir[TESTDIR_BYTES];
	_cleanup_free_ char *file = NULL;
	struct terminal t;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	file = xasprintf("%s/token", dir);
	assert_int_equal(file_write_atomic(file, "old", 3, 0600), 0);
	hub_token = "Bearer old";
	start(&t, 24, ARGS("-d", "1s", "--token-file", file));
	terminal_wait(&t, "main\x1b[K");
	terminal_forget(&t);
	hub_token = "Bearer new";
	terminal_wait(&t, "the token has expired (HTTP 401). Asking again");
	unlink(file);
	terminal_wait(&t, "token: No such file or directory. Asking again");
	terminal_forget(&t);
	assert_int_equal(file_write_atomic(file, "new", 3, 0600), 0);
	terminal_wait(&t, "estimated from");
	quit(&t);
	hub_token = NULL;
	assert_int_equal(testdir_remove(dir), 0);
}

static void a_bad_answer_is_said(void **state)
{
	struct terminal t;

	(void)state;
	start(&t, 24, ARGS("-d", "1s"));
	terminal_wait(&t, "main\x1b[K");
	terminal_forget(&t);
	hub_answer = "{\"result\":{\"nodes\":";
	terminal_wait(&t, "the answer does not come from podflame's API. Asking again");
	terminal_wait(&t, "main\x1b[K"); /* the last good answer */
	quit(&t);
}

/* After each end, the terminal is as it was. */
static void the_terminal_is_restored(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
	struct terminal t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		start(&t, 24, ARGS("-d", "1h"));
		terminal_wait(&t, "main\x1b[K");
		kill(t.pid, signals[i]);
		terminal_wait(&t, HIDE);
		assert_int_equal(terminal_end(&t), 0);
		buf_done(&t.seen);
	}
	start(&t, 24, ARGS("-d", "1h"));
	terminal_wait(&t, "main\x1b[K");
	terminal_press(&t, "\x03"); /* Ctrl-C */
	terminal_wait(&t, HIDE);
	assert_int_equal(terminal_end(&t), 0);
	buf_done(&t.seen);
}

static void ctrl_z_gives_the_terminal_back(void **state)
{
	struct terminal t;
	int status;

	(void)state;
	start(&t, 24, ARGS("-d", "1h"));
	terminal_wait(&t, "main\x1b[K");
	terminal_press(&t, "\x1a"); /* Ctrl-Z */
	terminal_wait(&t, HIDE);
	assert_int_equal(waitpid(t.pid, &status, WUNTRACED), t.pid);
	assert_true(WIFSTOPPED(status));
	assert_false(terminal_is_raw(&t));
	kill(t.pid, SIGCONT);
	terminal_wait(&t, SHOW);
	terminal_wait(&t, "main\x1b[K");
	assert_true(terminal_is_raw(&t));
	quit(&t);
}

/* A terminal without escape sequences gets one table. */
static void a_dumb_terminal_gets_one_table(void **state)
{
	struct terminal t;

	(void)state;
	hub_answer = tree_answer;
	if (terminal_fork(&t, 24)) {
		setenv("TERM", "dumb", 1);
		run_verb("top", ARGS("-d", "1h"));
	}
	assert_int_equal(terminal_end(&t), 0);
	assert_null(strchr(t.seen.data, '\x1b'));
	assert_non_null(strstr(t.seen.data, "  main\r\n"));
	buf_done(&t.seen);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_terminal_it_prints_once),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(a_table_fills_the_screen),
		cmocka_unit_test(it_asks_again),
		cmocka_unit_test(keys_sort),
		cmocka_unit_test(keys_go_through_groups),
		cmocka_unit_test(the_end_of_a_pause_asks_at_once),
		cmocka_unit_test(a_pause_lasts),
		cmocka_unit_test(a_pause_begins_before_an_answer),
		cmocka_unit_test(rows_follow_the_size),
		cmocka_unit_test(a_hub_that_is_away_is_asked_again),
		cmocka_unit_test(a_new_token_is_read),
		cmocka_unit_test(a_bad_answer_is_said),
		cmocka_unit_test(the_terminal_is_restored),
		cmocka_unit_test(ctrl_z_gives_the_terminal_back),
		cmocka_unit_test(a_dumb_terminal_gets_one_table),
	};

	be_verb(argc, argv);
	return cmocka_run_group_tests(tests, hub_start, hub_stop);
}
