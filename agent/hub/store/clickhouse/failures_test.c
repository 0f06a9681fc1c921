/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClickHouse is away, slow, full, or says nonsense; what was on its way then is stored once, and a
 * reader gets an error instead of a wrong answer. The engine is the real one (testproxy.h).
 */
#include <fcntl.h>

#include "hub/store/clickhouse/clickhouse.h"
#include "hub/store/clickhouse/testengine.h"
#include "hub/store/clickhouse/testproxy.h"
#include "hub/store/teststore.h"

struct world {
	struct proxy *proxy;
	struct store *store;
	char dir[TESTDIR_BYTES], database[32];
	char *password_file;
};

static void open_it(struct world *w)
{
	const struct store_config c = {.kind = "clickhouse",
				       .url = w->proxy->url,
				       .database = w->database,
				       .user = w->password_file ? "podflame" : NULL,
				       .password_file = w->password_file};
	struct field_error e = {0};

	if (store_open(&c, &w->store, &e))
		fail_msg("%s: %s", e.path, e.reason);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	*state = w;
	snprintf(w->database, sizeof(w->database), "f%llx",
		 (unsigned long long)random_below(UINT64_MAX));
	w->proxy = proxy_start();
	return testdir_make(w->dir);
}

static int teardown(void **state)
{
	struct world *w = *state;

	store_close(w->store);
	proxy_stop(w->proxy);
	testdir_remove(w->dir);
	free(w->password_file);
	free(w);
	return 0;
}

/* The world of a test, with an open store. Skips the test if there is no engine. */
static struct world *world_of(void **state)
{
	struct world *w = *state;

	need_engine();
	return w;
}

static struct world *with_store(void **state)
{
	struct world *w = world_of(state);

	open_it(w);
	return w;
}

static int write_two(struct world *w)
{
	struct batch *b = two_services();
	size_t n_new;
	int r = store_write(w->store, b, &n_new);

	profile_batch_free(b);
	return r;
}

static int try_to_read(struct world *w, uint64_t max_time_ns, const atomic_bool *given_up,
		       struct field_error *e)
{
	_cleanup_(got_done) struct got g = {0};
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 1000,
				.max_time_ns = max_time_ns,
				.given_up = given_up};

	return store_read(w->store, &store_scope_all, &sel, take, &g, &g.summary, e);
}

static void assert_stored_once(struct world *w)
{
	_cleanup_(got_done) struct got g = {0};

	read_where(w->store, NULL, &g);
	assert_int_equal(g.sum, 240);
	assert_int_equal(g.summary.n_profiles, 2);
	for (size_t i = 0; i < g.n; i++)
		assert_null(strstr(g.rows[i].text, STORE_LOST));
}

/* Writes until ClickHouse takes it: the sink does not try to make its tables each time. */
static void write_when_it_is_back(struct world *w)
{
	uint64_t end_ns = now_mono_ns() + 120 * NSEC_PER_SEC;
	int r;

	while ((r = write_two(w)) && now_mono_ns() < end_ns)
		usleep(20000);
	assert_int_equal(r, 0);
}

static void assert_health(struct world *w, bool failed, const char *text)
{
	struct store_stats s;

	store_stats(w->store, &s);
	assert_int_equal(s.failed, failed);
	if (!strstr(s.error, text))
		fail_msg("\"%s\" is not in: %s", text, s.error);
}

static void a_store_opens_while_clickhouse_is_away(void **state)
{
	struct world *w = world_of(state);
	struct field_error e = {0};

	proxy_fault(w->proxy, PROXY_DOWN, NULL, 0, 0);
	open_it(w);
	assert_health(w, true, "ClickHouse");
	assert_int_equal(write_two(w), -ENOTCONN);
	assert_int_equal(try_to_read(w, 0, NULL, &e), -ENOTCONN);
	assert_non_null(strstr(e.reason, "ClickHouse: "));
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	write_when_it_is_back(w);
	assert_health(w, false, "");
	assert_stored_once(w);
}

static void what_was_written_in_part_is_written_whole_later(void **state)
{
	static const char *const tables[] = {"frames", "stacks", "windows"};
	static const enum proxy_fault faults[] = {PROXY_DOWN, PROXY_LOST};
	struct world *w = with_store(state);

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(faults); k++) {
			_cleanup_free_ char *only = xasprintf(".%s%%20", tables[i]);

			proxy_fault(w->proxy, faults[k], only, 0, 0);
			assert_true(write_two(w) < 0 || (i < 2 && k + i > 0));
			proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
		}
	}
	assert_int_equal(write_two(w), 0);
	assert_stored_once(w);
	assert_int_equal(write_two(w), 0);
	assert_stored_once(w);
}

static void a_connection_that_was_closed_is_made_again(void **state)
{
	struct world *w = with_store(state);

	assert_int_equal(write_two(w), 0); /* so there is a connection to be closed */
	proxy_fault(w->proxy, PROXY_DOWN, NULL, 1, 0);
	assert_int_equal(write_two(w), 0);
	assert_stored_once(w);
}

static void a_full_disk_is_told(void **state)
{
	struct world *w = with_store(state);

	proxy_fault(w->proxy, PROXY_REFUSE, "INSERT", 0, 243);
	assert_int_equal(write_two(w), -ENOSPC);
	assert_health(w, true, "because");
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	assert_int_equal(write_two(w), 0);
	assert_health(w, false, "");
	assert_stored_once(w);
}

/* Takes all the room of the disk that has this folder. */
static void fill_disk(const char *path)
{
	static const char zeros[64 << 10];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

/* As above, by the engine itself: run.sh starts one whose tables are on a small disk. */
static void a_disk_is_full_and_has_room_again(void **state)
{
	struct world *w = world_of(state);
	const char *dir = getenv("CLICKHOUSE_SMALL_DISK");
	const struct store_config c = {.kind = "clickhouse",
				       .url = getenv("CLICKHOUSE_SMALL_URL"),
				       .database = w->database};
	_cleanup_free_ char *path = xasprintf("%s/fill", dir ?: "");

	if (!dir || !c.url) {
		print_message("skip: CLICKHOUSE_SMALL_URL is not set\n");
		skip();
	}
	assert_int_equal(store_open(&c, &w->store, NULL), 0);
	fill_disk(path);
	assert_int_equal(write_two(w), -ENOSPC);
	assert_health(w, true, "NOT_ENOUGH_SPACE");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(write_two(w), 0);
	assert_health(w, false, "");
	assert_stored_once(w);
}

/* "BEFORE DATABASE.REST", by somebody else */
static void change(struct world *w, const char *before, const char *rest)
{
	_cleanup_free_ char *sql = xasprintf("%s %s.%s", before, w->database, rest);
	const char *headers[] = {"Content-Type: text/plain", NULL};
	const struct http_question q = {.method = "POST",
					.path = "/?",
					.headers = headers,
					.body = sql,
					.body_bytes = strlen(sql),
					.deadline_ns = now_mono_ns() + 60 * NSEC_PER_SEC};
	struct http_answer a;

	assert_int_equal(http_ask(w->proxy->engine, &q, &a), 0);
	assert_int_equal(a.status, 200);
	http_answer_done(&a);
}

/* docs/clickhouse.md says what to do then. A hub that made the table again would hide the loss. */
static void a_table_that_somebody_dropped_is_named(void **state)
{
	struct world *w = with_store(state);
	struct field_error e = {0};
	uint64_t end_ns = now_mono_ns() + 60 * NSEC_PER_SEC;

	assert_int_equal(write_two(w), 0);
	change(w, "DROP TABLE", "windows");
	assert_true(write_two(w) < 0); /* this one sees that the table is not there */
	assert_true(write_two(w) < 0);
	assert_health(w, true, "windows");
	/* ClickHouse's own words, until the hub has looked at the tables again */
	while (!strstr(e.reason, "somebody has dropped it") && now_mono_ns() < end_ns) {
		assert_true(try_to_read(w, 0, NULL, &e) < 0);
		assert_non_null(strstr(e.reason, "windows"));
		usleep(20000);
	}
	assert_non_null(strstr(e.reason, "somebody has dropped it"));
}

static struct ch_store *open_sink(struct world *w)
{
	const struct store_config c = {.url = w->proxy->url, .database = w->database};
	void *s;

	assert_int_equal(store_clickhouse_sink.open(&c, &s, NULL), 0);
	return s;
}

static int write_to(struct ch_store *s)
{
	struct batch *b = two_services();
	size_t n_new;
	int r = store_ch_write(s, (const struct batch *const *)&b, 1, &n_new);

	profile_batch_free(b);
	return r;
}

/*
 * The rows that a hub sends do not say their types, so ClickHouse may take what is wrong. The hub
 * looks again after it has refused some, and sometimes.
 */
static void a_column_that_somebody_altered_is_named(void **state)
{
	struct world *w = world_of(state);
	struct ch_store *s = open_sink(w);

	for (int refused = 0; refused < 2; refused++) {
		struct field_error e = {0};

		change(w, "ALTER TABLE", "frames MODIFY COLUMN line Int32");
		assert_int_equal(store_ch_ready(s, &e), 0);
		proxy_fault(w->proxy, refused ? PROXY_REFUSE : PROXY_PASS, "INSERT", 1, 33);
		assert_int_equal(write_to(s), refused ? -EIO : 0);
		if (!refused) /* the hub looked at the tables a minute ago */
			s->tried_ns -= 60 * NSEC_PER_SEC;
		assert_int_equal(store_ch_ready(s, &e), -EINVAL);
		assert_non_null(strstr(e.reason, "the column line of the table"));
		assert_non_null(strstr(e.reason, ".frames is Int32, not UInt32"));
		change(w, "ALTER TABLE", "frames MODIFY COLUMN line UInt32");
		s->tried_ns = 0; /* else it tries again two seconds later */
		assert_int_equal(store_ch_ready(s, &e), 0);
		change(w, "TRUNCATE TABLE", "windows");
	}
	store_clickhouse_sink.close(s);
}

/* A node gets 503 for any error of the store, and sends its windows again. */
static void a_slow_insert_ends_and_is_stored_once(void **state)
{
	static const char *const tables[] = {"frames", "stacks", "windows"};
	static const enum proxy_fault faults[] = {PROXY_STALL, PROXY_SLOW};
	struct world *w = with_store(state);
	struct ch_store *s = open_sink(w);

	s->insert_ns = NSEC_PER_SEC / 5;
	for (size_t i = 0; i < ARRAY_SIZE(tables) * ARRAY_SIZE(faults); i++) {
		_cleanup_free_ char *only = xasprintf(".%s%%20", tables[i % 3]);
		struct store_stats stats;

		proxy_fault(w->proxy, faults[i / 3], only, 0, 0);
		assert_int_equal(write_to(s), -ETIME);
		store_ch_stats(s, &stats);
		assert_non_null(strstr(stats.error, "no answer in time"));
	}
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	s->insert_ns = 0;
	assert_int_equal(write_to(s), 0);
	assert_stored_once(w);
	store_clickhouse_sink.close(s);
}

static void a_wrong_answer_is_an_error(void **state)
{
	static const enum proxy_fault faults[] = {PROXY_HALF, PROXY_NOISE, PROXY_DOWN};
	struct world *w = with_store(state);

	assert_int_equal(write_two(w), 0);
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		struct field_error e = {0};

		proxy_fault(w->proxy, faults[i], NULL, 0, 0);
		assert_true(try_to_read(w, 0, NULL, &e) < 0);
		assert_true(*e.reason);
	}
	proxy_fault(w->proxy, PROXY_REFUSE, NULL, 0, 241);
	assert_int_equal(try_to_read(w, 0, NULL, NULL), -ENOBUFS);
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	assert_stored_once(w);
}

static void a_slow_answer_ends_with_the_deadline_or_the_reader(void **state)
{
	const atomic_bool given_up = true;
	struct world *w = with_store(state);
	struct field_error e = {0};

	proxy_fault(w->proxy, PROXY_STALL, NULL, 0, 0);
	assert_int_equal(try_to_read(w, NSEC_PER_MSEC, NULL, &e), -ETIME);
	assert_int_equal(try_to_read(w, 600 * NSEC_PER_SEC, &given_up, &e), -ETIME);
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void the_password_is_read_again_for_each_request(void **state)
{
	struct world *w = world_of(state);
	struct field_error e = {0};

	w->password_file = xasprintf("%s/password", w->dir);
	put_file(w->password_file, "first\n");
	open_it(w);
	assert_int_equal(write_two(w), 0);
	assert_string_equal(w->proxy->user, "podflame");
	assert_string_equal(w->proxy->key, "first");
	put_file(w->password_file, "second");
	assert_int_equal(try_to_read(w, 0, NULL, NULL), 0);
	assert_string_equal(w->proxy->key, "second");
	unlink(w->password_file);
	assert_int_equal(try_to_read(w, 0, NULL, &e), -EACCES);
	assert_non_null(strstr(e.reason, w->password_file));
	put_file(w->password_file, "wrong");
	proxy_fault(w->proxy, PROXY_REFUSE, NULL, 0, 516);
	assert_int_equal(write_two(w), -EACCES);
	assert_health(w, true, "because");
}

static void batches_together_are_one_insert_a_table(void **state)
{
	struct world *w = with_store(state);
	const struct batch *batches[20];

	for (size_t i = 0; i < ARRAY_SIZE(batches); i++) {
		struct batch *b = profile_batch_new();
		_cleanup_free_ char *id = xasprintf("id%zu", i % 10);

		add_sample(b, add_profile(b, id, "api", 10, "app", T0), "api", true, id, 10);
		batches[i] = b;
	}
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	assert_int_equal(store_write_all(w->store, batches, ARRAY_SIZE(batches)), 0);
	assert_int_equal(w->proxy->n_inserts, 3);
	assert_int_equal(value_where(w->store, NULL), 100);
	for (size_t i = 0; i < ARRAY_SIZE(batches); i++)
		profile_batch_free((struct batch *)batches[i]);
}

/* Each day is a partition: a sender must not make one for each day since 1970. */
static void a_window_that_is_too_old_makes_no_partition(void **state)
{
	struct world *w = world_of(state);
	const struct store_config c = {.kind = "clickhouse",
				       .url = w->proxy->url,
				       .database = w->database,
				       .retention_ns = 72 * 3600 * NSEC_PER_SEC};
	int64_t now_s = (int64_t)(now_wall_ns() / NSEC_PER_SEC);
	struct batch *b = profile_batch_new();
	size_t n_new;

	assert_int_equal(store_open(&c, &w->store, NULL), 0);
	for (int day = 0; day < 40; day++) {
		_cleanup_free_ char *id = xasprintf("day %d", day);

		add_sample(b, add_profile(b, id, "api", 10, "app", now_s - day * 86400), "api",
			   true, "f", 10);
	}
	assert_int_equal(store_write(w->store, b, &n_new), 0);
	profile_batch_free(b);
	assert_int_equal(n_new, 5); /* of the three days, and of two more */
}

static void a_wrong_configuration_is_refused(void **state)
{
	static const struct {
		const char *url, *password_file, *path, *why;
	} wrong[] = {
		{"", NULL, "store.url", "must be there"},
		{"ftp://h", NULL, "store.url", "ftp://h"},
		{"http://db:8123", NULL, "store.url", "https://"},
		{"https://db:8443", "/p", "store.clickhouse.password_file", "user"},
	};
	struct store *s = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		const struct store_config c = {.kind = "clickhouse",
					       .url = wrong[i].url,
					       .password_file = wrong[i].password_file};
		struct field_error e = {0};

		assert_int_equal(store_open(&c, &s, &e), -EINVAL);
		assert_string_equal(e.path, wrong[i].path);
		assert_non_null(strstr(e.reason, wrong[i].why));
	}
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_store_opens_while_clickhouse_is_away),
		TEST(what_was_written_in_part_is_written_whole_later),
		TEST(a_connection_that_was_closed_is_made_again),
		TEST(a_full_disk_is_told),
		TEST(a_disk_is_full_and_has_room_again),
		TEST(a_table_that_somebody_dropped_is_named),
		TEST(a_column_that_somebody_altered_is_named),
		TEST(a_slow_insert_ends_and_is_stored_once),
		TEST(a_wrong_answer_is_an_error),
		TEST(a_slow_answer_ends_with_the_deadline_or_the_reader),
		TEST(the_password_is_read_again_for_each_request),
		TEST(batches_together_are_one_insert_a_table),
		TEST(a_window_that_is_too_old_makes_no_partition),
		cmocka_unit_test(a_wrong_configuration_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
