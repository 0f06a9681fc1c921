/* SPDX-License-Identifier: Apache-2.0 */
/* A hub's directory is copied into a new one, and into the store of another hub. */
#include "hub/hub.h"
#include "hub/store/store.h"
#include "hub/symbols/symbols.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hub/data_dir.h"
#include "hub/stores.h"
#include "hub/symbols/testindex.h"
#include "lib/base/testdir.h"

#define T0	 1700000000
#define BUILD_ID "00112233445566778899aabbccddeeff00112233"
#define N	 200 /* profiles */

struct place {
	char dir[TESTDIR_BYTES];
	char *from, *to; /* directories of hubs */
	struct config conf;
};

static void fill_store(const char *dir)
{
	const struct store_config c = {.kind = "sqlite", .path = dir};
	struct batch *b = profile_batch_new();
	struct field_error e = {0};
	struct store *s = NULL;
	size_t n_new;

	for (int i = 0; i < N; i++) {
		_cleanup_free_ char *name = xasprintf("function %d", i);
		struct frame f = {.kind = FRAME_APP, .name = name, .module = "/bin/web"};
		struct profile *p = profile_batch_profile(b);
		struct profile_sample *x = profile_add(b, p);

		profile_id_make((const char *const[]){name}, 1, p->id);
		p->start_ns = (uint64_t)T0 * NSEC_PER_SEC;
		p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
		x->cpu = -1;
		x->value = 10;
		assert_int_equal(profile_batch_stack(b, &f, 1, &x->stack), 0);
	}
	assert_int_equal(store_open(&c, &s, &e), 0);
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
	store_close(s);
}

static struct symbols *open_symbols(const char *dir)
{
	_cleanup_free_ char *path = xasprintf("%s/symbols", dir);
	const struct symbols_config c = {.dir = path, .max_bytes = 1 << 20};
	struct field_error e = {0};
	struct symbols *s = NULL;

	assert_int_equal(symbols_open(&c, &s, &e), 0);
	return s;
}

static void fill_symbols(const char *dir)
{
	struct symbols *s = open_symbols(dir);
	struct field_error e = {0};
	size_t n;
	_cleanup_free_ void *upload = test_upload(BUILD_ID, &n);

	assert_int_equal(symbols_put(s, NULL, BUILD_ID, upload, n, &e), 0);
	assert_int_equal(symbols_put(s, "app", BUILD_ID, upload, n, &e), 0);
	symbols_close(s);
}

static int place_setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));

	*state = p;
	if (testdir_make(p->dir))
		return -1;
	p->from = xasprintf("%s/from", p->dir);
	p->to = xasprintf("%s/to", p->dir);
	conf_init(&p->conf);
	free(p->conf.data_dir);
	p->conf.data_dir = xstrdup(p->from);
	fill_store(p->from);
	fill_symbols(p->from);
	return 0;
}

static int place_teardown(void **state)
{
	struct place *p = *state;
	int r = testdir_remove(p->dir);

	conf_done(&p->conf);
	free(p->from);
	free(p->to);
	free(p);
	return r;
}

static void hub_is_at(struct place *p, const char *dir)
{
	free(p->conf.data_dir);
	p->conf.data_dir = xstrdup(dir);
}

static int add_value(const struct store_row *row, void *arg)
{
	*(int64_t *)arg += row->value;
	return 0;
}

static void have_all(struct store *s, struct symbols *symbols)
{
	const struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = T0, .time_end_s = T0 + 100};
	_cleanup_json_ json_t *list = symbols_list(symbols);
	struct store_summary summary = {0};
	struct field_error e = {0};
	int64_t value = 0;

	assert_int_equal(json_array_size(list), 2);
	if (store_read(s, &store_scope_all, &sel, add_value, &value, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(value, N * 10);
	store_summary_done(&summary);
}

/* The directory has all that a hub needs. */
static void is_whole(const char *dir)
{
	const struct store_config c = {.kind = "sqlite", .path = dir};
	struct symbols *symbols = open_symbols(dir);
	struct field_error e = {0};
	struct store *s = NULL;

	assert_int_equal(store_open(&c, &s, &e), 0);
	have_all(s, symbols);
	symbols_close(symbols);
	store_close(s);
}

static void refused(int r, const struct field_error *e, const char *why)
{
	assert_int_equal(r, -EINVAL);
	if (!strstr(e->reason, why))
		fail_msg("%s: %s", e->path, e->reason);
}

static void a_backup_is_a_directory_of_a_hub(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};

	if (hub_backup(&p->conf, p->to, &e))
		fail_msg("%s: %s", e.path, e.reason);
	is_whole(p->to);
	is_whole(p->from);
	refused(hub_backup(&p->conf, p->to, &e), &e, "is there already");
}

/* The kernel kills the process when the copy is half written. */
static void a_killed_backup_does_not_look_whole(void **state)
{
	struct place *p = *state;
	_cleanup_free_ char *file = xasprintf("%s/profiles.sqlite", p->from),
			    *part = xasprintf("%s.partial", p->to);
	struct field_error e = {0};
	struct stat st;
	int status;
	pid_t child;

	assert_int_equal(stat(file, &st), 0);
	child = fork();
	if (!child) {
		const struct rlimit half = {(rlim_t)st.st_size / 2, (rlim_t)st.st_size / 2},
				    none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		setrlimit(RLIMIT_FSIZE, &half);
		_exit(hub_backup(&p->conf, p->to, &e) ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
	assert_int_equal(access(p->to, F_OK), -1);
	assert_int_equal(access(part, F_OK), 0);
	refused(hub_backup(&p->conf, p->to, &e), &e, "no other backup is under way");
	assert_int_equal(testdir_remove(part), 0);
	assert_int_equal(hub_backup(&p->conf, p->to, &e), 0);
	is_whole(p->to);
}

static void a_copy_has_all(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};

	hub_is_at(p, p->to);
	for (int i = 0; i < 2; i++)
		if (hub_copy_from(&p->conf, p->from, &e))
			fail_msg("%s: %s", e.path, e.reason);
	is_whole(p->to);
	is_whole(p->from);
}

static void a_copy_into_itself(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};

	refused(hub_copy_from(&p->conf, p->from, &e), &e, "the store itself");
}

static void a_hub_has_the_other_store(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};
	int status, lock = -1;
	pid_t child;

	hub_is_at(p, p->to);
	assert_int_equal(mkdir(p->to, 0700), 0);
	assert_int_equal(hub_data_dir_lock(p->to, &lock, &e), 0);
	child = fork(); /* a process does not see its own locks */
	if (!child)
		_exit(hub_copy_from(&p->conf, p->from, &e) == -EINVAL &&
				      strstr(e.reason, "another podflame uses it")
			      ? 0
			      : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(lock);
}

static void a_store_that_keeps_nothing(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};

	free(p->conf.store_kind);
	p->conf.store_kind = xstrdup("null");
	refused(hub_copy_from(&p->conf, p->from, &e), &e, "keeps no profiles");
	assert_string_equal(e.path, "store.kind");
}

/* Any hub has it then, not only one with the directory of the command, which a hub may be using. */
static void a_copy_into_clickhouse_has_all(void **state)
{
	struct place *p = *state;
	_cleanup_free_ char *cache = xasprintf("%s/symbols-cache", p->to),
			    *under_way = xasprintf("%s/.upload-of-the-hub", cache),
			    *own = xasprintf("%s/symbols-copy", p->to);
	struct field_error e = {0};
	struct symbols *symbols = NULL;
	struct store_config c;
	struct store *s = NULL;

	free(p->conf.store_kind);
	p->conf.store_kind = xstrdup("clickhouse");
	free(p->conf.store_url);
	p->conf.store_url = xstrdup(getenv("CLICKHOUSE_URL"));
	free(p->conf.clickhouse_database);
	p->conf.clickhouse_database =
		xasprintf("m%llx", (unsigned long long)random_below(UINT64_MAX));
	p->conf.store_retention_ns = 0; /* or windows of T0 are too old to be stored */
	hub_is_at(p, p->to);
	assert_int_equal(mkdir_parents(cache, 0700), 0);
	assert_int_equal(file_write_atomic(under_way, "x", 1, 0600), 0);
	for (int i = 0; i < 2; i++)
		if (hub_copy_from(&p->conf, p->from, &e))
			fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(access(under_way, F_OK), 0);
	assert_int_equal(access(own, F_OK), -1);
	assert_int_equal(testdir_remove(p->to), 0);
	c = hub_store_config(&p->conf);
	assert_int_equal(store_open(&c, &s, &e), 0);
	assert_int_equal(hub_stores_open_symbols(&p->conf, s, &symbols, &e), 0);
	have_all(s, symbols);
	symbols_close(symbols);
	store_close(s);
	is_whole(p->from);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, place_setup, place_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_backup_is_a_directory_of_a_hub),
		TEST(a_killed_backup_does_not_look_whole),
		TEST(a_copy_has_all),
		TEST(a_copy_into_itself),
		TEST(a_hub_has_the_other_store),
		TEST(a_store_that_keeps_nothing),
	};

	const struct CMUnitTest over_engine[] = {TEST(a_copy_into_clickhouse_has_all)};

	return getenv("CLICKHOUSE_URL") ? cmocka_run_group_tests(over_engine, NULL, NULL)
					: cmocka_run_group_tests_name("moving", tests, NULL, NULL);
}
