/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to a real server (testserver18.h): signing in, errors and limits, requests at
 * once, a reader that has gone, a server that is killed. And what the hub says of a server that is
 * too old for its tables. e2e/clickhouse/run.sh says where the server is; without it the tests are
 * skipped.
 */
#include "hub/store/clickhouse/testserver18.h"
#include "hub/store/teststore.h"

#include <inttypes.h>

#define N_AT_ONCE 16
#define N_QUERIES "SELECT value FROM system.events WHERE event='Query'"

static struct server18 *server;

/* Another user of the server, who looks what happens there. */
static struct ch_store *watcher;

static int start(void **state)
{
	(void)state;
	server = server18_new();
	if (server)
		watcher = server18_connect(server, "open", NULL);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	if (watcher)
		server18_disconnect(watcher);
	server18_free(server);
	return 0;
}

static int has_server(void **state)
{
	(void)state;
	if (!server) {
		print_message("skip: CLICKHOUSE_SERVER is not set\n");
		skip();
	}
	return 0;
}

static void assert_error(int got, int want, const struct field_error *e, const char *text)
{
	if (got != want || !strstr(e->reason, text))
		fail_msg("%d (not %d): \"%s\" (not \"%s\")", got, want, e->reason, text);
}

/* ---- who asks ---- */

static void it_signs_in_as_the_configuration_says(void **state)
{
	static const struct {
		const char *user, *password;
		int want;
		const char *says;
	} cases[] = {
		{"podflame", SERVER18_PASSWORD, 0, ""},
		{"podflame", SERVER18_PASSWORD "\r\n", 0, ""},
		{"podflame", "another", -EACCES, "Wrong password for user podflame"},
		{"podflame", "", -EACCES, "Password required for user podflame"},
		{"podflame", NULL, -EACCES, "Password required for user podflame"},
		{"nobody", "another", -EACCES, "Unknown user nobody"},
		{"open", NULL, 0, ""},
		{"open", "", 0, ""},
		{NULL, NULL, -EACCES, "Password required for user default"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ch_store *ch = server18_connect(server, cases[i].user, cases[i].password);
		_cleanup_free_ char *who = NULL;
		struct field_error e = {0};
		int r = server18_ask(ch, "", "SELECT user FROM system.processes", NULL, &who, &e);

		assert_error(r, cases[i].want, &e, cases[i].says);
		assert_null(strstr(e.reason, "another"));
		if (!r)
			assert_int_equal(strncmp(who, cases[i].user, strlen(cases[i].user)), 0);
		server18_disconnect(ch);
	}
}

/* ---- what it answers with ---- */

static void errors_and_limits_have_their_meaning(void **state)
{
	static const struct {
		const char *settings, *sql;
		int want;
		const char *says;
	} cases[] = {
		{"", "SELECT 1 FROM nowhere", -ESTALE, "Code: 60"},
		{"", "SELECT 1 FROM nowhere.t", -ESTALE, "Code: 81"},
		{"", "SELECT nothing FROM system.one", -ESTALE, "Code: 47"},
		{"", "SELECT", -EIO, "Code: 62"},
		{"max_execution_time=1", "SELECT count() FROM system.numbers", -ETIME, "Code: 159"},
		{"max_memory_usage=1000000",
		 "SELECT length(groupArray(number)) FROM (SELECT * FROM system.numbers LIMIT "
		 "1000000)",
		 -ENOBUFS, "Code: 241"},
		{"max_result_rows=9&result_overflow_mode=throw", "SELECT * FROM system.numbers",
		 -ENOBUFS, "Code: 396"},
		{"readonly=1", "CREATE DATABASE d", -EACCES, "Code: 164"},
		/* after half of the answer: wait_end_of_query has the server hold it back */
		{"wait_end_of_query=1&max_block_size=10",
		 "SELECT throwIf(number=9999) FROM (SELECT * FROM system.numbers LIMIT 20000)",
		 -EIO, "Code: 395"},
	};
	struct ch_store *ch = server18_connect(server, "podflame", SERVER18_PASSWORD);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct field_error e = {0};
		int r = server18_ask(ch, cases[i].settings, cases[i].sql, NULL, NULL, &e);

		assert_error(r, cases[i].want, &e, cases[i].says);
	}
	server18_disconnect(ch);
}

static void rights_and_quotas_are_told(void **state)
{
	struct ch_store *reader = server18_connect(server, "reader", "r"), *thrifty;
	struct field_error e = {0};
	int r;

	(void)state;
	assert_error(server18_ask(reader, "", "CREATE DATABASE d", NULL, NULL, &e), -EACCES, &e,
		     "readonly mode");
	server18_disconnect(reader);
	thrifty = server18_connect(server, "thrifty", "t");
	do /* the quota is for a few queries */
		r = server18_ask(thrifty, "", "SELECT 1", NULL, NULL, &e);
	while (!r);
	assert_error(r, -EAGAIN, &e, "Quota for user 'thrifty'");
	server18_disconnect(thrifty);
}

static void rows_may_be_compressed_if_it_can(void **state)
{
	struct ch_store *ch = server18_connect(server, "open", NULL);
	_cleanup_buf_ struct buf rows = {0};
	_cleanup_free_ char *text = NULL;
	struct field_error e = {0};

	(void)state;
	/* it does not know zstd, and answers without */
	assert_int_equal(
		server18_ask(ch, "enable_http_compression=1", "SELECT 'plain'", NULL, &text, &e),
		0);
	assert_string_equal(text, "plain\n");
	store_ch_put_u64(&rows, 1);
	assert_true(store_ch_insert(ch, "nowhere (n)", &rows, &e) < 0);
	if (!strstr(e.reason, "Unknown setting") && !strstr(e.reason, "zstd"))
		fail_msg("%s", e.reason);
	server18_disconnect(ch);
}

/* ---- several requests ---- */

struct request {
	pthread_t thread;
	struct ch_store *ch;
	const char *settings, *sql;
	const atomic_bool *given_up;
	int result;
	struct field_error error;
};

static void *ask(void *arg)
{
	struct request *r = arg;

	r->result = server18_ask(r->ch, r->settings, r->sql, r->given_up, NULL, &r->error);
	return NULL;
}

static void begin(struct request *r)
{
	assert_int_equal(pthread_create(&r->thread, NULL, ask, r), 0);
}

static void wait_until(const char *sql, uint64_t n)
{
	while (server18_number(watcher, sql) != n)
		usleep(5000);
}

#define RUNNING "SELECT count() FROM system.processes WHERE user='podflame'"
/* Rows without an end, a block of them each 10 ms. */
#define SLOW_ROWS "SELECT number, sleep(0.01) FROM system.numbers"

static void many_requests_run_at_once_and_end_with_their_readers(void **state)
{
	struct ch_store *ch = server18_connect(server, "podflame", SERVER18_PASSWORD);
	struct request requests[N_AT_ONCE] = {0};
	atomic_bool given_up = false;

	(void)state;
	for (size_t i = 0; i < N_AT_ONCE; i++) {
		requests[i] = (struct request){
			.ch = ch, .settings = "", .sql = SLOW_ROWS, .given_up = &given_up};
		begin(&requests[i]);
	}
	wait_until(RUNNING, N_AT_ONCE);
	atomic_store(&given_up, true);
	for (size_t i = 0; i < N_AT_ONCE; i++) {
		pthread_join(requests[i].thread, NULL);
		assert_int_equal(requests[i].result, -ETIME);
	}
	wait_until(RUNNING, 0);
	server18_disconnect(ch);
}

/* ---- kill -9 ---- */

struct writer {
	pthread_t thread;
	struct ch_store *ch;
	_Atomic uint64_t n; /* 0 to n-1 are stored, says the server */
	int result;
};

static void *write_numbers(void *arg)
{
	struct writer *w = arg;

	while (!w->result) {
		_cleanup_free_ char *sql =
			xasprintf("INSERT INTO numbers VALUES (%" PRIu64 ")", atomic_load(&w->n));

		w->result = server18_ask(w->ch, "", sql, NULL, NULL, NULL);
		if (!w->result)
			atomic_fetch_add(&w->n, 1);
	}
	return NULL;
}

static void what_it_has_confirmed_survives_a_kill(void **state)
{
	struct writer w = {.ch = server18_connect(server, "podflame", SERVER18_PASSWORD)};
	struct request endless = {.ch = w.ch,
				  .settings = "",
				  .sql = "INSERT INTO numbers SELECT 1000000000 + number FROM "
					 "system.numbers WHERE sleep(0.01) = 0"};

	(void)state;
	assert_int_equal(
		server18_ask(w.ch, "",
			     "CREATE TABLE numbers (n UInt64) ENGINE = MergeTree ORDER BY n", NULL,
			     NULL, NULL),
		0);
	for (uint64_t round = 1; round <= 3; round++) {
		uint64_t found;

		w.result = 0;
		assert_int_equal(pthread_create(&w.thread, NULL, write_numbers, &w), 0);
		begin(&endless);
		while (atomic_load(&w.n) < round * 30)
			usleep(1000);
		wait_until(RUNNING " AND query LIKE '%system.numbers WHERE%'", 1);
		server18_kill(server);
		pthread_join(w.thread, NULL);
		pthread_join(endless.thread, NULL);
		assert_int_equal(w.result, -ENOTCONN);
		assert_int_equal(endless.result, -ENOTCONN);
		/* on the same port: the hub goes on with the connections that it has */
		server18_start(server);
		found = server18_number(w.ch,
					"SELECT uniqExact(n) FROM numbers WHERE n < 1000000000");
		/* the one that was on its way may be there, too */
		assert_in_range(found, w.n, w.n + 1);
	}
	server18_disconnect(w.ch);
}

static void half_an_answer_is_none(void **state)
{
	struct ch_store *ch = server18_connect(server, "podflame", SERVER18_PASSWORD);
	struct request r = {.ch = ch, .settings = "", .sql = SLOW_ROWS};

	(void)state;
	begin(&r);
	/* more than what the server keeps back of an answer */
	wait_until("SELECT count() FROM system.processes WHERE user='podflame' AND "
		   "read_rows > 500000",
		   1);
	server18_kill(server);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.result, -ENOTCONN);
	server18_start(server);
	server18_disconnect(ch);
}

/* ---- it is too old for the tables ---- */

#define TOO_OLD "ClickHouse 18.16.1 is too old: podflame needs "

static void no_line(const char *line, void *arg)
{
	(void)arg;
	fail_msg("it has run: %s", line);
}

static int write_one(struct store *s)
{
	struct batch *b = profile_batch_new();
	size_t n_new;
	int r;

	add_sample(b, add_profile(b, "id", "api", 10, "app", T0), "api", true, "f", 10);
	r = store_write(s, b, &n_new);
	profile_batch_free(b);
	return r;
}

/* It goes on, without asking all the time, and makes nothing. */
static void a_hub_says_that_a_server_is_too_old(void **state)
{
	static const char *const clusters[] = {"", "prod"};
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u", server->port);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(clusters); i++) {
		const struct store_config c = {
			.kind = "clickhouse", .url = url, .user = "open", .cluster = clusters[i]};
		uint64_t began_ns = now_mono_ns(), n_before, n;
		struct store_stats stats;
		struct field_error e = {0};
		struct store *s;

		assert_int_equal(store_migrate(&c, true, no_line, NULL, &e), -EPROTONOSUPPORT);
		assert_non_null(strstr(e.reason, TOO_OLD));
		assert_int_equal(store_migrate(&c, false, no_line, NULL, NULL), -EPROTONOSUPPORT);
		assert_int_equal(store_open(&c, &s, NULL), 0);
		n_before = server18_number(watcher, N_QUERIES);
		for (int k = 0; k < 1000; k++)
			assert_int_equal(write_one(s), -EPROTONOSUPPORT);
		n = server18_number(watcher, N_QUERIES) - n_before;
		/* the watcher's own, and one each two seconds */
		assert_in_range(n, 1, 2 + (now_mono_ns() - began_ns) / (2 * NSEC_PER_SEC));
		store_stats(s, &stats);
		assert_true(stats.failed);
		assert_non_null(strstr(stats.error, TOO_OLD));
		store_close(s);
	}
	wait_until("SELECT count() FROM system.databases WHERE name='profile'", 0);
}

/*
 * A row of the table in docs/testing.md: "| `STATEMENT` | CODE |". A statement that begins with &
 * is a parameter of the address.
 */
static bool parse_row(char *line, char **ret_sql, char **ret_code)
{
	static const char begin[] = "| `", middle[] = "` | ";
	char *end = strstr(line, middle);

	if (!str_has_prefix(line, begin) || !end)
		return false;
	*ret_sql = xstrndup(line + strlen(begin), (size_t)(end - line) - strlen(begin));
	end += strlen(middle);
	*ret_code = xasprintf("Code: %.*s,", (int)strcspn(end, " "), end);
	return true;
}

static void it_cannot_parse_what_the_page_lists(void **state)
{
	_cleanup_free_ char *page = NULL;
	char *at, *rest = NULL;
	size_t n = 0;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, "docs/testing.md", 1 << 20, &page, NULL), 0);
	at = strstr(page, "Debian's server cannot");
	assert_non_null(at);
	*strstr(at, "\n## ") = '\0';
	for (char *line = strtok_r(at, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		_cleanup_free_ char *sql = NULL, *code = NULL;
		struct field_error e = {0};
		bool is_setting;

		if (!parse_row(line, &sql, &code))
			continue;
		is_setting = *sql == '&';
		if (!server18_ask(watcher, is_setting ? sql + 1 : "", is_setting ? "SELECT 1" : sql,
				  NULL, NULL, &e) ||
		    !strstr(e.reason, code))
			fail_msg("%s: \"%s\" (not %s)", sql, e.reason, code);
		n++;
	}
	assert_true(n > 15);
}

#define TEST(t) cmocka_unit_test_setup(t, has_server)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_signs_in_as_the_configuration_says),
		TEST(errors_and_limits_have_their_meaning),
		TEST(rights_and_quotas_are_told),
		TEST(rows_may_be_compressed_if_it_can),
		TEST(many_requests_run_at_once_and_end_with_their_readers),
		TEST(what_it_has_confirmed_survives_a_kill),
		TEST(half_an_answer_is_none),
		TEST(a_hub_says_that_a_server_is_too_old),
		TEST(it_cannot_parse_what_the_page_lists),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
