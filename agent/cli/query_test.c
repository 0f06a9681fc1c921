/* SPDX-License-Identifier: Apache-2.0 */
/* podflame query: the meaning of its options, and the form of its output. */
#include "cli/client.h"
#include "cli/query.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testdir.h"

static void urls(void **state)
{
	static const struct {
		const char *url, *host;
		int port;
		bool tls;
	} good[] = {
		{"http://127.0.0.1:20416", "127.0.0.1", 20416, false},
		{"https://hub.example/", "hub.example", 443, true},
		{"https://[::1]:8443", "::1", 8443, true},
		{"http://x", "x", 80, false},
	};
	static const char *const bad[] = {
		"",	      "x:1",	     "ftp://x",	       "http://",
		"http://:80", "http://x:0",  "http://x:65536", "http://x:",
		"http://x/y", "http://[::1", "http://[a:b]",   "http://[hub]",
		"http://u@x", "http://x?y",  "http://::1:80",  "http://[fe80::1%25eth0]"};
	struct field_error e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct url u;

		assert_int_equal(cli_client_url_parse(good[i].url, &u, &e), 0);
		assert_string_equal(u.host, good[i].host);
		assert_int_equal(u.port, good[i].port);
		assert_int_equal(u.tls, good[i].tls);
		url_done(&u);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct url u;

		assert_int_equal(cli_client_url_parse(bad[i], &u, &e), -EINVAL);
		assert_string_equal(e.path, "--url");
	}
}

/* A password in a URL must not get into a terminal or a log. */
static void a_password_is_not_shown(void **state)
{
	struct field_error e;
	struct url u;

	(void)state;
	assert_int_equal(cli_client_url_parse("https://me:secret@hub", &u, &e), -EINVAL);
	assert_string_equal(e.reason, "has a user name in it");
	assert_int_equal(cli_client_url_parse("https://hub:99999", &u, &e), -EINVAL);
	assert_string_equal(e.reason, "'https://hub:99999' has a port that is not in 1..65535");
}

static char dir[TESTDIR_BYTES];

static int make_files(void **state)
{
	_cleanup_free_ char *empty = NULL, *text = NULL;

	(void)state;
	if (testdir_make(dir))
		return -1;
	empty = xasprintf("%s/empty", dir);
	text = xasprintf("%s/text", dir);
	return file_write_atomic(empty, "", 0, 0600) || file_write_atomic(text, "a b", 3, 0600);
}

static int remove_files(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

static void files_that_cannot_be_used_are_named(void **state)
{
	static const struct {
		const char *option, *file, *why;
	} t[] = {
		{"--ca-file", "/empty", "/empty: holds no PEM certificate"},
		{"--ca-file", "/text", "/text: holds no PEM certificate"},
		{"--ca-file", "/none", "/none: No such file or directory"},
		{"--ca-file", "", ": Is a directory"},
		{"--token-file", "/empty", "/empty is empty"},
		{"--token-file", "/text", "/text does not hold a token"},
		{"--token-file", "/none", "/none: No such file or directory"},
		{"--token-file", "", ": Is a directory"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_free_ char *file = xasprintf("%s%s", dir, t[i].file),
				    *why = xasprintf("%s%s", dir, t[i].why);
		bool is_ca = streq(t[i].option, "--ca-file");
		struct client_options o = {.url = "https://127.0.0.1:1",
					   .ca_file = is_ca ? file : NULL,
					   .token_file = is_ca ? NULL : file};
		struct field_error e = {0};
		struct client *c;

		assert_int_equal(cli_client_new(&o, &c, &e), -EINVAL);
		assert_string_equal(e.path, t[i].option);
		assert_string_equal(e.reason, why);
	}
	assert_string_equal(file_error_text(-E2BIG),
			    /* strerror(E2BIG) would be "Argument list too long" */
			    "File too large");
}

static void a_token_leaves_the_machine_over_tls_only(void **state)
{
	static const struct {
		const char *url;
		int r;
	} t[] = {
		{"http://hub:20416", -EINVAL}, {"http://10.0.0.1", -EINVAL}, {"https://hub", 0},
		{"http://localhost:20416", 0}, {"http://127.0.0.2", 0},	     {"http://[::1]:1", 0}};
	_cleanup_free_ char *file = xasprintf("%s/token", dir);

	(void)state;
	assert_int_equal(file_write_atomic(file, "abc", 3, 0600), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct client_options o = {.url = t[i].url, .token_file = file};
		struct field_error e = {0};
		struct client *c = NULL;

		assert_int_equal(cli_client_new(&o, &c, &e), t[i].r);
		assert_string_equal(e.path, t[i].r ? "--token-file" : "");
		cli_client_free(c);
		o.token_file = NULL;
		assert_int_equal(cli_client_new(&o, &c, &e), 0);
		cli_client_free(c);
	}
}

static void times(void **state)
{
	const uint64_t now = 1700000000 * NSEC_PER_SEC;
	static const char *const bad[] = {"", "yesterday", "-", "-15", "15m", "-100000000h", "1.5"};
	int64_t s;

	(void)state;
	assert_int_equal(cli_query_time_parse("now", now, &s), 0);
	assert_int_equal(s, 1700000000);
	assert_int_equal(cli_query_time_parse("-1h30m", now, &s), 0);
	assert_int_equal(s, 1700000000 - 5400);
	assert_int_equal(cli_query_time_parse("1708479421", now, &s), 0);
	assert_int_equal(s, 1708479421);
	assert_int_equal(cli_query_time_parse("2023-11-14T22:13:20Z", now, &s), 0);
	assert_int_equal(s, 1700000000);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (cli_query_time_parse(bad[i], now, &s) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
}

static json_t *golden(void)
{
	_cleanup_free_ char *text = NULL;
	json_t *j;

	assert_int_equal(file_read(AT_FDCWD, "agent/hub/query/testdata/golden_flat.json", 1 << 20,
				   &text, NULL),
			 0);
	j = json_loads(text, 0, NULL);
	assert_non_null(j);
	return j;
}

static void folded(void **state)
{
	_cleanup_json_ json_t *reply = golden();
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	assert_int_equal(cli_query_print_folded(reply, &out), 0);
	assert_string_equal(out.data, "api;[t] worker;[unknown start_thread?];main_loop;[l] "
				      "write;[k] do_syscall_64 20202\n"
				      "api;[t] worker;[unknown start_thread?];main_loop 20202\n"
				      "api;[p] api;main;main_loop 10101\n");
}

static void table(void **state)
{
	_cleanup_json_ json_t *reply = golden();
	_cleanup_buf_ struct buf out = {0}, notes = {0};

	(void)state;
	assert_int_equal(cli_query_print_table(reply, 2, &out), 0);
	assert_string_equal(out.data,
			    "api:    50.51 ms  in 5 samples, 100.00 % with a whole stack\n"
			    "        SELF      %         TOTAL      %  FUNCTION\n"
			    "   30.30 ms   60.00     50.51 ms  100.00  main_loop\n"
			    "   20.20 ms   40.00     20.20 ms   40.00  [k] do_syscall_64\n"
			    "... and 3 more (--limit)\n");
	cli_query_print_notes(reply, &notes);
	assert_string_equal(
		notes.data,
		"lost: ring_full, 3 samples of some process on the nodes of the selection\n");
}

/* The profile of a whole host has no functions. The rows of its table are processes and threads. */
static void table_of_total(void **state)
{
	_cleanup_json_ json_t *reply = json_loads(
		"{\"unit\":\"microseconds\",\"summary\":{\"samples\":4,\"finished_percent\":100},"
		"\"result\":{"
		"\"functions\":[\"Total\",\"[t] worker\",\"[p] api\",\"[p] sh\"],"
		"\"function_types\":[\"H\",\"T\",\"P\",\"P\"],\"function_values\":{\"values\":"
		"[[0,40],[30,30],[0,30],[10,10]]},\"node_values\":{\"values\":"
		"[[0,-1,0,40],[1,2,30,30],[2,0,0,30],[3,0,10,10]]}}}",
		0, NULL);
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	assert_non_null(reply);
	assert_int_equal(cli_query_print_table(reply, 0, &out), 0);
	assert_string_equal(out.data, "Total:    40.00 us  in 4 samples\n"
				      "        SELF      %         TOTAL      %  PROCESS, THREAD\n"
				      "   30.00 us   75.00     30.00 us   75.00  [t] worker\n"
				      "   10.00 us   25.00     10.00 us   25.00  [p] sh\n"
				      "    0.00 us    0.00     30.00 us   75.00  [p] api\n");
}

/* A process can have any bytes as its name. Control characters must not reach the terminal. */
static void names_are_text(void **state)
{
	_cleanup_json_ json_t *reply = json_loads(
		"{\"unit\":\"bytes\",\"summary\":{\"samples\":1},\"result\":{"
		"\"functions\":[\"a\\u001b[2J\",\"f\\n\"],\"function_types\":[\"P\",\"A\"],"
		"\"function_values\":{\"values\":[[0,1],[1,1]]},\"node_values\":{"
		"\"values\":[[0,-1,0,1],[1,0,1,1]]}}}",
		0, NULL);
	_cleanup_buf_ struct buf out = {0}, lines = {0};

	(void)state;
	assert_non_null(reply);
	assert_int_equal(cli_query_print_table(reply, 0, &out), 0);
	assert_true(str_has_prefix(out.data, "a [2J: "));
	assert_null(strchr(out.data, '\x1b'));
	assert_int_equal(cli_query_print_folded(reply, &lines), 0);
	assert_string_equal(lines.data, "a [2J;f  1\n");
}

/* Values in bytes, and the notes of an answer. */
static void table_of_memory(void **state)
{
	_cleanup_json_ json_t *reply = json_loads(
		"{\"unit\":\"bytes\",\"summary\":{\"samples\":4,\"finished_percent\":100,"
		"\"estimated\":{\"share\":0.12,\"error\":94372},\"throttled_us\":1500000,"
		"\"losses\":[],\"notes\":[\"a note\"]},\"result\":{"
		"\"functions\":[\"api\",\"[l] malloc\",\"main\",\"[p] api\"],"
		"\"function_types\":[\"O\",\"O\",\"A\",\"P\"],\"function_values\":{\"values\":"
		"[[0,3145728],[3145728,3145728],[0,3145728],[0,3145728]]},\"node_values\":{"
		"\"values\":[[0,-1,0,3145728],[1,2,3145728,3145728],[2,3,0,3145728],"
		"[3,0,0,3145728]]}}}",
		0, NULL);
	_cleanup_buf_ struct buf out = {0}, notes = {0};

	(void)state;
	assert_non_null(reply);
	assert_int_equal(cli_query_print_table(reply, 0, &out), 0);
	assert_string_equal(out.data,
			    "api:     3.00 MiB in 4 samples, 100.00 % with a whole stack\n"
			    "        SELF      %         TOTAL      %  FUNCTION\n"
			    "    3.00 MiB 100.00      3.00 MiB 100.00  [l] malloc\n"
			    "    0.00 B     0.00      3.00 MiB 100.00  main\n");
	cli_query_print_notes(reply, &notes);
	assert_string_equal(notes.data,
			    "estimated from 12 % of what happened, +-3 %\n"
			    "throttled: CPU limits held the containers back for 1.500 s\n"
			    "note: a note\n");
}

static void broken_answers(void **state)
{
	static const char *const bad[] = {
		"{\"result\":[]}",
		"{}",
		"{\"result\":{\"functions\":[\"a\"],\"function_types\":[\"P\"],"
		"\"node_values\":{\"values\":[[7,-1,1,1]]}}}",
		"{\"result\":{\"functions\":[\"a\"],\"function_types\":[\"P\"],"
		"\"node_values\":{\"values\":[[0,0,1,1]]}}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_json_ json_t *reply = json_loads(bad[i], 0, NULL);
		_cleanup_buf_ struct buf out = {0};

		assert_int_equal(cli_query_print_folded(reply, &out), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls),
		cmocka_unit_test(times),
		cmocka_unit_test(folded),
		cmocka_unit_test(table),
		cmocka_unit_test(table_of_total),
		cmocka_unit_test(table_of_memory),
		cmocka_unit_test(names_are_text),
		cmocka_unit_test(broken_answers),
		cmocka_unit_test(a_password_is_not_shown),
		cmocka_unit_test_setup_teardown(files_that_cannot_be_used_are_named, make_files,
						remove_files),
		cmocka_unit_test_setup_teardown(a_token_leaves_the_machine_over_tls_only,
						make_files, remove_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
