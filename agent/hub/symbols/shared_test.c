/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded files in ClickHouse: two hubs with stores of their own over one database (the real
 * engine, behind a server that can fail: testproxy.h). What one has taken, the other names; what is
 * lost or altered in the database names nothing.
 */
#include "hub/symbols/table.h"
#include "hub/symbols/testindex.h"
#include "hub/store/clickhouse/testengine.h"
#include "hub/store/clickhouse/testproxy.h"
#include "hub/store/clickhouse/testsql.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define ID    "00112233445566778899aabbccddeeff00112233"
#define OTHER "ff112233445566778899aabbccddeeff00112233"
#define NOISE (9u << 20) /* more than one statement takes */
#define ROOM  (256u << 20)
#define LATER (60 * NSEC_PER_SEC) /* more than any interval of the module */
#define BOTH(call)                                                                                 \
	for (struct hub *h = w->hubs; h < w->hubs + 2; h++)                                        \
	call

struct hub {
	struct store *store;
	struct symbols *symbols;
	char *dir;
};
struct world {
	struct proxy *proxy;
	struct ch_store *sql; /* past the proxy */
	char dir[TESTDIR_BYTES], database[32];
	struct hub hubs[2];
	struct field_error e;
};

static void hub_open(struct world *w, struct hub *h, uint64_t max_bytes)
{
	const struct store_config c = {
		.kind = "clickhouse", .url = w->proxy->url, .database = w->database};
	struct symbols_config sc = {.dir = h->dir, .max_bytes = max_bytes};

	if (store_open(&c, &h->store, &w->e))
		fail_msg("%s: %s", w->e.path, w->e.reason);
	sc.store = h->store;
	assert_true(store_shares_uploads(h->store));
	assert_int_equal(symbols_open(&sc, &h->symbols, &w->e), 0);
}

static void hub_close(struct hub *h)
{
	h->symbols = symbols_close(h->symbols);
	h->store = store_close(h->store);
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));
	struct store_config c = {
		.path = "", .url = getenv("CLICKHOUSE_URL"), .database = w->database};

	*state = w;
	assert_int_equal(testdir_make(w->dir), 0);
	w->proxy = proxy_start();
	if (!w->proxy)
		return 0;
	snprintf(w->database, sizeof(w->database), "u%llx",
		 (unsigned long long)random_below(UINT64_MAX));
	assert_int_equal(store_clickhouse_sink.open(&c, (void **)&w->sql, &w->e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(w->hubs); i++) {
		w->hubs[i].dir = xasprintf("%s/%zu", w->dir, i);
		hub_open(w, &w->hubs[i], ROOM);
	}
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(w->hubs); i++) {
		hub_close(&w->hubs[i]);
		free(w->hubs[i].dir);
	}
	if (w->sql)
		store_clickhouse_sink.close(w->sql);
	proxy_stop(w->proxy);
	assert_int_equal(testdir_remove(w->dir), 0);
	free(w);
	return 0;
}

static struct world *world_of(void **state)
{
	struct world *w = *state;

	need_engine();
	return w;
}

/* The hubs' lists are now too old. The clock stays, because requests have deadlines. */
static void later(struct world *w)
{
	for (size_t i = 0; i < ARRAY_SIZE(w->hubs); i++)
		w->hubs[i].symbols->listed_ns -= symbols_shared.list_ns;
}

/* ---- uploads ---- */

/* app::work() gets another name of the same length. n_noise: bytes that no compressor shortens. */
static int put_large(struct world *w, struct hub *h, const char *build_id, const char *name,
		     size_t n_noise)
{
	struct test_index x = test_index(build_id);
	_cleanup_free_ char *data = xmalloc(sizeof(x) + n_noise);
	size_t n;
	_cleanup_free_ void *upload = NULL;

	memcpy(strstr(x.strings + 1, "work"), name, 4);
	x.header.string_bytes += (uint32_t)n_noise;
	memcpy(data, &x, sizeof(x));
	random_bytes(data + sizeof(x), n_noise);
	if (n_noise)
		data[sizeof(x) + n_noise - 1] = '\0';
	upload = test_compressed(data, sizeof(x) + n_noise, &n);
	w->e = (struct field_error){0};
	return symbols_put(h->symbols, NULL, build_id, upload, n, &w->e);
}

static int put(struct world *w, struct hub *h, const char *build_id, const char *name)
{
	return put_large(w, h, build_id, name, 0);
}

/* The name that a hub gives to a frame; "": none. */
static void assert_name(struct hub *h, const char *build_id, const char *want)
{
	const struct frame f = {.kind = FRAME_APP, .build_id = build_id, .address = 0x1020};
	struct symbols_names *n = symbols_any(h->symbols) ? symbols_names_new(h->symbols) : NULL;
	const struct frame *got;

	if (n && symbols_name(&f, NULL, n, &got))
		assert_string_equal(got[0].name, want);
	else
		assert_string_equal("", want);
	symbols_names_free(n);
}

static uint64_t n_fetched(const char *result)
{
	return counter_get(counter("symbols_fetched_total", "result", result));
}

/* Each would write all chunks anew. */
static void assert_no_mutation_of_chunks(struct world *w)
{
	assert_lines(w->sql,
		     "SELECT toString(count()) FROM system.mutations WHERE "
		     "database=currentDatabase() AND startsWith(table, 'symbol_chunks')",
		     "0\n");
}

static void assert_rows(struct world *w, const char *uploads, const char *with_chunks)
{
	assert_lines(w->sql, "SELECT toString(count()) FROM symbols", uploads);
	assert_lines(w->sql, "SELECT toString(uniqExact(upload)) FROM symbol_chunks", with_chunks);
}

static void an_upload_at_one_hub_names_frames_at_all(void **state)
{
	struct world *w = world_of(state);
	uint64_t n_ok = n_fetched("ok");

	assert_int_equal(put_large(w, &w->hubs[0], ID, "some", NOISE), 0);
	assert_rows(w, "1\n", "1\n");
	later(w);
	BOTH(assert_name(h, ID, "app::some()"));
	assert_int_equal(n_fetched("ok"), n_ok + 1); /* the first hub has what it was sent */
	assert_int_equal(put(w, &w->hubs[1], ID, "more"), 0);
	later(w);
	BOTH(assert_name(h, ID, "app::more()"));
	assert_int_equal(symbols_delete(w->hubs[0].symbols, NULL, ID), 0);
	later(w);
	BOTH(assert_name(h, ID, ""));
	assert_lines(w->sql, "SELECT toString(count()) FROM symbols", "0\n");
	assert_no_mutation_of_chunks(w);
}

/* A hub that starts anew, with its directory or without. */
static void a_directory_is_only_a_cache(void **state)
{
	struct world *w = world_of(state);
	struct hub *h = &w->hubs[0];
	uint64_t n_ok = n_fetched("ok");
	struct dirent *e;
	DIR *d;

	assert_int_equal(put(w, h, ID, "some"), 0);
	hub_close(h);
	hub_open(w, h, ROOM);
	assert_name(h, ID, "app::some()");
	assert_int_equal(n_fetched("ok"), n_ok);
	hub_close(h);
	d = opendir(h->dir);
	assert_non_null(d);
	while ((e = readdir(d)))
		if (str_has_suffix(e->d_name, ".pfindex")) {
			_cleanup_free_ char *path = xasprintf("%s/%s", h->dir, e->d_name);

			assert_int_equal(truncate(path, 100), 0);
		}
	closedir(d);
	hub_open(w, h, ROOM);
	assert_name(h, ID, "app::some()");
	assert_int_equal(n_fetched("ok"), n_ok + 1);
	hub_close(h);
	testdir_remove(h->dir);
	hub_open(w, h, ROOM);
	assert_name(h, ID, "app::some()");
	assert_int_equal(n_fetched("ok"), n_ok + 2);
}

static uint64_t dir_bytes(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;
	uint64_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
			n += (uint64_t)st.st_size;
	closedir(d);
	return n;
}

/* The database has more than the cache of the second hub may have. */
static void the_cache_has_a_limit(void **state)
{
	struct world *w = world_of(state);
	char id[] = "00";

	hub_close(&w->hubs[1]);
	hub_open(w, &w->hubs[1], 3 << 20);
	for (char i = '0'; i < '6'; i++) {
		id[0] = i;
		assert_int_equal(put_large(w, &w->hubs[0], id, "some", 1 << 20), 0);
	}
	assert_int_equal(put(w, &w->hubs[1], ID, "more"), -ENOSPC);
	later(w);
	for (int round = 0; round < 2; round++) {
		for (char i = '0'; i < '6'; i++) {
			id[0] = i;
			assert_name(&w->hubs[1], id, "app::some()");
			assert_true(dir_bytes(w->hubs[1].dir) <= 3 << 20);
		}
		hub_close(&w->hubs[1]);
		hub_open(w, &w->hubs[1], 3 << 20);
	}
}

/* ---- what somebody has done to the tables ---- */

static void assert_unreadable(struct world *w, const char *result)
{
	uint64_t n = n_fetched(result), n_damaged;
	struct counter *damaged = counter("symbols_damaged_total", NULL, NULL);
	struct elf_index *index;

	n_damaged = counter_get(damaged);
	later(w);
	assert_true(symbols_any(w->hubs[1].symbols));
	assert_int_equal(symbols_index(w->hubs[1].symbols, NULL, ID, NULL, &index), -EBADMSG);
	assert_true(n_fetched(result) > n);
	assert_int_equal(counter_get(damaged), n_damaged + 1);
	assert_name(&w->hubs[1], ID, "");
	/* an upload mends it */
	assert_int_equal(put(w, &w->hubs[0], ID, "next"), 0);
	later(w);
	assert_name(&w->hubs[1], ID, "app::next()");
}

static void a_lost_chunk_is_told(void **state)
{
	struct world *w = world_of(state);

	assert_int_equal(put_large(w, &w->hubs[0], ID, "some", NOISE), 0);
	run_sql(w->sql, "DELETE FROM symbol_chunks WHERE n=5");
	assert_unreadable(w, "lost");
}

static void an_altered_chunk_is_told(void **state)
{
	static const char *const changes[] = {
		"UPDATE data=concat(left(data, 100), 'x', substring(data, 102)) WHERE n=2",
		"UPDATE data=left(data, 100) WHERE n=2",
		"UPDATE data='' WHERE n=2",
		"UPDATE data=concat(data, 'x') WHERE n=2",
	};
	struct world *w = world_of(state);

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		_cleanup_free_ char *sql = xasprintf("ALTER TABLE symbol_chunks %s SETTINGS "
						     "mutations_sync=1",
						     changes[i]);

		assert_int_equal(put_large(w, &w->hubs[0], ID, "some", 3 << 20), 0);
		run_sql(w->sql, sql);
		assert_unreadable(w, i < 3 ? "altered" : "lost");
	}
}

static void absurd_rows_are_left_out(void **state)
{
	struct world *w = world_of(state);
	_cleanup_json_ json_t *list = NULL;

	assert_int_equal(put(w, &w->hubs[0], ID, "some"), 0);
	run_sql(w->sql,
		"INSERT INTO symbols (ns, build_id, upload, version, bytes, packed, sha256) VALUES "
		"('', 'aa', 1, 1, 18446744073709551615, 10, ''), "
		"('', 'bb', 2, 1, 10, 18446744073709551615, ''), "
		"('', '" ID "', 18446744073709551615, 18446744073709551615, 10, 10, ''), "
		"(repeat('n', 100000), 'cc', 3, 1, 10, 10, ''), "
		"('', repeat('d', 100000), 4, 1, 10, 10, ''), ('', '../x', 5, 1, 10, 10, '')");
	/* a huge chunk does not reach the hub */
	run_sql(w->sql, "INSERT INTO symbols (build_id, upload, version, bytes, packed) VALUES "
			"('ee', 6, 1, 10, 10)");
	run_sql(w->sql, "INSERT INTO symbol_chunks (upload, n, data) "
			"SELECT 6, 0, repeat(repeat('x', 1000), 100000)");
	later(w);
	list = symbols_list(w->hubs[1].symbols);
	assert_int_equal(json_array_size(list), 2);
	assert_name(&w->hubs[1], ID, "app::some()");
	assert_name(&w->hubs[1], "ee", "");
	assert_int_equal(symbols_delete(w->hubs[1].symbols, NULL, "ee"), 0);
}

/* ---- ClickHouse is away ---- */

static void an_upload_that_is_cut_is_not_seen(void **state)
{
	static const enum proxy_fault faults[] = {PROXY_DOWN, PROXY_LOST};
	struct world *w = world_of(state);

	assert_int_equal(put(w, &w->hubs[0], ID, "fore"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		proxy_fault(w->proxy, faults[i], "symbol_chunks", 0, 0);
		assert_int_equal(put(w, &w->hubs[0], ID, "some"), -EAGAIN);
		assert_non_null(strstr(w->e.reason, "ClickHouse"));
		proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
		later(w);
		BOTH(assert_name(h, ID, "app::fore()"));
	}
	assert_int_equal(put(w, &w->hubs[1], ID, "then"), 0);
	later(w);
	BOTH(assert_name(h, ID, "app::then()"));
}

static void a_hub_without_clickhouse_takes_nothing(void **state)
{
	struct world *w = world_of(state);
	uint64_t n_failed = n_fetched("failed");
	struct elf_index *index;

	assert_int_equal(put(w, &w->hubs[0], ID, "some"), 0);
	assert_int_equal(put(w, &w->hubs[0], OTHER, "some"), 0);
	later(w);
	assert_true(symbols_any(w->hubs[1].symbols));
	proxy_fault(w->proxy, PROXY_DOWN, NULL, 0, 0);
	assert_int_equal(put(w, &w->hubs[0], OTHER, "more"), -EAGAIN);
	assert_int_equal(symbols_delete(w->hubs[0].symbols, NULL, ID), -EAGAIN);
	assert_int_equal(symbols_index(w->hubs[1].symbols, NULL, ID, NULL, &index), -EAGAIN);
	/* one has waited for it, and others do not for a while */
	assert_int_equal(symbols_index(w->hubs[1].symbols, NULL, OTHER, NULL, &index), -EAGAIN);
	assert_int_equal(n_fetched("failed"), n_failed + 1);
	later(w);
	assert_name(&w->hubs[0], ID, "app::some()"); /* of its cache */
	proxy_fault(w->proxy, PROXY_PASS, NULL, 0, 0);
	hub_close(&w->hubs[1]);
	hub_open(w, &w->hubs[1], ROOM);
	BOTH(assert_name(h, ID, "app::some()"));
}

struct waiting {
	struct symbols *symbols;
	struct store_wait wait;
	int result;
};

static void *wait_for_index(void *arg)
{
	struct waiting *x = arg;
	struct elf_index *index;

	x->result = symbols_index(x->symbols, NULL, ID, &x->wait, &index);
	return NULL;
}

/* Waits until a request has met the only fault. */
static void wait_for_fault(struct proxy *p)
{
	bool met = false;

	while (!met) {
		usleep(1000);
		pthread_mutex_lock(&p->lock);
		met = p->fault == PROXY_PASS;
		pthread_mutex_unlock(&p->lock);
	}
}

/* The store does not send one file, and a query waits for it. Others get theirs meanwhile. */
static void a_slow_file_keeps_no_other_query_waiting(void **state)
{
	struct world *w = world_of(state);
	atomic_bool given_up = false;
	struct waiting x = {.symbols = w->hubs[1].symbols, .wait = {UINT64_MAX, &given_up}};
	_cleanup_free_ char *only = NULL;
	pthread_t thread;

	assert_int_equal(put(w, &w->hubs[0], ID, "some"), 0);
	assert_int_equal(put(w, &w->hubs[0], OTHER, "some"), 0);
	later(w);
	assert_true(symbols_any(x.symbols));
	only = xasprintf("upload=%llu ",
			 (unsigned long long)symbols_find(x.symbols, NULL, ID)->u.id);
	proxy_fault(w->proxy, PROXY_STALL, only, 1, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_index, &x), 0);
	wait_for_fault(w->proxy);
	assert_name(&w->hubs[1], OTHER, "app::some()");
	given_up = true;
	pthread_join(thread, NULL);
	assert_int_equal(x.result, -ETIME);
	/* that was no fault of the store, so the next query asks it */
	assert_name(&w->hubs[1], ID, "app::some()");
}

/* ---- what is left ---- */

/* The clock of the hub that deletes is ahead by a day. */
static void what_is_left_of_uploads_is_deleted_later(void **state)
{
	struct world *w = world_of(state);
	uint64_t now_ns = now_wall_ns() + 90000 * NSEC_PER_SEC;

	assert_int_equal(put(w, &w->hubs[0], ID, "some"), 0);
	/* an older upload of the file, and what is left of two that did not end */
	run_sql(w->sql, "INSERT INTO symbols SELECT ns, build_id, 1, 1, bytes, packed, sha256 "
			"FROM symbols");
	run_sql(w->sql,
		"INSERT INTO symbol_chunks (upload, n, made, data) VALUES "
		"(1, 0, now() - 90000, 'x'), (2, 0, now() - 90000, 'x'), (3, 0, now(), 'x')");
	/* hubs leave this one out, so it is not the newer one */
	run_sql(w->sql, "INSERT INTO symbols (build_id, upload, version) VALUES "
			"('" ID "', 9, 18446744073709551615)");
	assert_rows(w, "3\n", "4\n");
	/* a failure does not wait for the next hour */
	run_sql(w->sql, "RENAME TABLE symbols TO hidden");
	assert_int_not_equal(store_ch_expire_uploads(w->sql, now_ns, &w->e), 0);
	run_sql(w->sql, "RENAME TABLE hidden TO symbols");
	assert_int_equal(store_ch_expire_uploads(w->sql, now_ns, &w->e), 0);
	/* the engine deletes chunks a little later */
	run_sql(w->sql, "ALTER TABLE symbol_chunks DELETE WHERE 0 SETTINGS mutations_sync=1");
	assert_rows(w, "2\n", "2\n");
	assert_int_equal(store_ch_expire_uploads(w->sql, now_ns, &w->e), 0); /* once an hour */
	later(w);
	BOTH(assert_name(h, ID, "app::some()"));
}

/* ---- from a directory ---- */

static void a_directory_is_copied(void **state)
{
	struct world *w = world_of(state);
	_cleanup_free_ char *dir = xasprintf("%s/from", w->dir),
			    *damaged = xasprintf("%s/aa.pfindex", dir);
	const struct symbols_config c = {.dir = dir, .max_bytes = ROOM};
	const struct timespec then[2] = {{.tv_sec = T0}, {.tv_sec = T0}};
	_cleanup_free_ char *file = xasprintf("%s/" ID ".pfindex", dir);
	_cleanup_json_ json_t *list = NULL;
	struct hub local = {0};
	size_t n;

	assert_int_equal(symbols_open(&c, &local.symbols, &w->e), 0);
	assert_int_equal(put(w, &local, ID, "copy"), 0);
	assert_int_equal(put(w, &local, OTHER, "copy"), 0);
	symbols_close(local.symbols);
	assert_int_equal(file_write_atomic(damaged, "x", 1, 0600), 0);
	assert_int_equal(utimensat(AT_FDCWD, file, then, 0), 0);
	assert_int_equal(put(w, &w->hubs[0], OTHER, "mine"), 0);
	for (size_t want = 1; want != (size_t)-1; want--) {
		assert_int_equal(symbols_copy_into(dir, w->hubs[0].symbols, &n, &w->e), 0);
		assert_int_equal(n, want);
	}
	later(w);
	BOTH(assert_name(h, ID, "app::copy()"));
	BOTH(assert_name(h, OTHER, "app::mine()"));
	list = symbols_list(w->hubs[1].symbols);
	assert_int_equal(json_array_size(list), 2);
	assert_int_equal(json_int_at(json_array_get(list, 0), "uploaded", 0), T0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_upload_at_one_hub_names_frames_at_all),
		TEST(a_directory_is_only_a_cache),
		TEST(the_cache_has_a_limit),
		TEST(a_lost_chunk_is_told),
		TEST(an_altered_chunk_is_told),
		TEST(absurd_rows_are_left_out),
		TEST(an_upload_that_is_cut_is_not_seen),
		TEST(a_hub_without_clickhouse_takes_nothing),
		TEST(a_slow_file_keeps_no_other_query_waiting),
		TEST(what_is_left_of_uploads_is_deleted_later),
		TEST(a_directory_is_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
