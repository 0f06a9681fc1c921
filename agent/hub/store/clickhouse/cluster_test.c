/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a cluster as ClickHouse's engine makes them: replicated, in a real ZooKeeper, and
 * with a storage policy. The servers are two engines that e2e/clickhouse/run.sh starts (shards.py);
 * without them the tests are skipped. Replicated tables stay read-only there, so no row is written
 * to them: an engine that is a library does not listen to other replicas.
 */
#include "hub/store/clickhouse/testsql.h"

#include <pthread.h>

#define CLUSTER	  "replicas"
#define N_SERVERS 2
#define N_HUBS	  2

static const char *const tables[] = {"windows",	 "stacks",  "frames",	    "cuts",
				     "clusters", "symbols", "symbol_chunks"};

/* The servers, and the queue of ON CLUSTER: all servers run all statements in the same order. */
struct cluster {
	struct ch_store *servers[N_SERVERS];
	pthread_mutex_t queue;
};

static int setup(void **state)
{
	const char *urls[N_SERVERS] = {getenv("CLICKHOUSE_URL"), getenv("CLICKHOUSE_REPLICA_URL")};
	struct cluster *c;

	if (!urls[1])
		return 0;
	*state = c = xcalloc(1, sizeof(*c));
	pthread_mutex_init(&c->queue, NULL);
	for (size_t i = 0; i < N_SERVERS; i++) {
		const struct store_config config = {.url = urls[i]};

		c->servers[i] = xcalloc(1, sizeof(*c->servers[i]));
		c->servers[i]->database = xstrdup("default");
		assert_int_equal(store_ch_connect(c->servers[i], &config, NULL), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	struct cluster *c = *state;

	for (size_t i = 0; c && i < N_SERVERS; i++) {
		store_ch_disconnect(c->servers[i]);
		free(c->servers[i]->database);
		free(c->servers[i]);
	}
	free(c);
	return 0;
}

static struct cluster *cluster_of(void **state)
{
	if (!*state) {
		print_message("skip: CLICKHOUSE_REPLICA_URL is not set\n");
		skip();
	}
	return *state;
}

/* ---- a migration ---- */

struct hub {
	pthread_t thread;
	struct cluster *cluster;
	const char *database;
	struct buf error;
};

/* A statement that is printed, with ";". */
static void run_on_all(const char *line, void *arg)
{
	struct hub *h = arg;
	_cleanup_free_ char *sql = xstrndup(line, strlen(line) - 1);

	if (str_has_prefix(line, "INSERT ")) /* the record of a step */
		return;
	pthread_mutex_lock(&h->cluster->queue);
	for (size_t i = 0; i < N_SERVERS; i++) {
		struct field_error e = {0};

		if (store_ch_run(h->cluster->servers[i], sql, &e))
			buf_printf(&h->error, "%s: %s\n", line, e.reason);
	}
	pthread_mutex_unlock(&h->cluster->queue);
}

/* What `podflame hub --migrate --dry-run` prints is what runs. */
static void *migrate(void *arg)
{
	struct hub *h = arg;
	const struct store_config c = {.kind = "clickhouse",
				       .path = "",
				       .url = getenv("CLICKHOUSE_URL"),
				       .database = h->database,
				       .cluster = CLUSTER,
				       .storage_policy = "hot_cold",
				       .retention_ns = 3600 * NSEC_PER_SEC};
	struct field_error e = {0};

	if (store_migrate(&c, true, run_on_all, h, &e))
		buf_printf(&h->error, "%s", e.reason);
	return NULL;
}

static void migrate_by_all_hubs(struct cluster *c, const char *database)
{
	struct hub hubs[N_HUBS];

	for (size_t i = 0; i < N_HUBS; i++) {
		hubs[i] = (struct hub){.cluster = c, .database = database};
		assert_int_equal(pthread_create(&hubs[i].thread, NULL, migrate, &hubs[i]), 0);
	}
	for (size_t i = 0; i < N_HUBS; i++) {
		pthread_join(hubs[i].thread, NULL);
		if (hubs[i].error.len)
			fail_msg("%s", hubs[i].error.data);
		buf_done(&hubs[i].error);
	}
}

/* What a query answers with, which must be the same on all servers. The caller frees it. */
static char *on_all(struct cluster *c, const char *sql)
{
	char *first = lines_of(c->servers[0], sql);

	for (size_t i = 1; i < N_SERVERS; i++)
		assert_lines(c->servers[i], sql, first);
	return first;
}

/* ---- tests ---- */

static void hubs_make_the_replicas_of_all_tables_at_once(void **state)
{
	struct cluster *c = cluster_of(state);

	for (int round = 0; round < 2; round++) {
		_cleanup_free_ char *name = xasprintf("r%llx",
						      (unsigned long long)random_below(UINT64_MAX)),
				    *where = xasprintf(" WHERE database='%s'", name),
				    *of_seed = xasprintf("SELECT comment FROM system.tables%s AND "
							 "name='podflame'",
							 where),
				    *of_policies = xasprintf(
					    "SELECT DISTINCT storage_policy FROM system.tables%s "
					    "AND name LIKE '%%\\_local'",
					    where),
				    *seed = NULL, *policies = NULL;

		migrate_by_all_hubs(c, name);
		/* one seed, whichever hub was first */
		seed = on_all(c, of_seed);
		assert_int_equal(strspn(seed, "0123456789abcdef"), 32);
		policies = on_all(c, of_policies);
		assert_string_equal(policies, "hot_cold\n");
		for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
			_cleanup_free_ char *sql = xasprintf("SELECT concat(zookeeper_path, ' ', "
							     "toString(total_replicas)) FROM "
							     "system.replicas%s AND "
							     "table='%s_local'",
							     where, tables[i]),
					    *want = xasprintf("/clickhouse/tables/1/%s/%s 2\n",
							      name, tables[i]),
					    *got = on_all(c, sql);

			assert_string_equal(got, want);
		}
	}
}

/* The definition is in ZooKeeper, not only in the engine. */
static void a_replica_with_other_columns_is_refused(void **state)
{
	struct cluster *c = cluster_of(state);
	_cleanup_free_ char *name = xasprintf("r%llx",
					      (unsigned long long)random_below(UINT64_MAX)),
			    *sql = xasprintf("CREATE TABLE %s.other (name UInt8) ENGINE = "
					     "ReplicatedReplacingMergeTree('/clickhouse/tables/1/"
					     "%s/clusters', 'other') ORDER BY name",
					     name, name);
	struct field_error e = {0};

	migrate_by_all_hubs(c, name);
	assert_true(store_ch_run(c->servers[1], sql, &e) < 0);
	if (!strstr(e.reason, "ZooKeeper"))
		fail_msg("%s", e.reason);
}

/* ---- storage policies ---- */

/* The steps of a migration of one server: how many tables got the policy. */
static void count_policies(const char *line, void *arg)
{
	*(size_t *)arg += strstr(line, "storage_policy = ") != NULL;
}

static int migrate_to(struct store_config *c, const char *policy, size_t *ret_n,
		      struct field_error *reterr)
{
	c->storage_policy = policy;
	*ret_n = 0;
	return store_migrate(c, false, count_policies, ret_n, reterr);
}

static void a_policy_is_set_and_changed(void **state)
{
	struct ch_store *s = cluster_of(state)->servers[0];
	_cleanup_free_ char *name = xasprintf("p%llx",
					      (unsigned long long)random_below(UINT64_MAX)),
			    *insert = xasprintf("INSERT INTO %s.windows (time, pod_ns) VALUES "
						"(1700000000, 'app')",
						name),
			    *move = xasprintf("ALTER TABLE %s.windows MOVE PARTITION ID '20231114' "
					      "TO VOLUME 'cold'",
					      name),
			    *of_disks =
				    xasprintf("SELECT concat(disk_name, ' ', toString(rows)) FROM "
					      "system.parts WHERE database='%s' AND active AND "
					      "table='windows'",
					      name),
			    *of_policies =
				    xasprintf("SELECT DISTINCT storage_policy FROM "
					      "system.tables WHERE database='%s' AND engine LIKE "
					      "'Replacing%%'",
					      name),
			    *of_rows = xasprintf("SELECT toString(pod_ns) FROM %s.windows", name);
	struct store_config c = {.kind = "clickhouse",
				 .path = "",
				 .url = getenv("CLICKHOUSE_URL"),
				 .database = name};
	struct field_error e = {0};
	size_t n;

	assert_int_equal(migrate_to(&c, "hot_cold", &n, NULL), 0);
	assert_int_equal(n, ARRAY_SIZE(tables));
	run_sql(s, insert);
	assert_lines(s, of_disks, "hot 1\n");
	run_sql(s, move);
	assert_lines(s, of_disks, "cold 1\n");
	assert_int_equal(migrate_to(&c, "hot_cold", &n, NULL), 0);
	assert_int_equal(n, 0);
	/* one with all disks of the first, and one without */
	assert_int_equal(migrate_to(&c, "hot_cold_colder", &n, NULL), 0);
	assert_int_equal(n, ARRAY_SIZE(tables));
	assert_lines(s, of_policies, "hot_cold_colder\n");
	assert_lines(s, of_rows, "app\n");
	assert_true(migrate_to(&c, "hot_cold", &n, &e) < 0);
	assert_non_null(strstr(e.reason, "storage policy"));
	assert_true(migrate_to(&c, "nowhere", &n, &e) < 0);
	assert_non_null(strstr(e.reason, "nowhere"));
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hubs_make_the_replicas_of_all_tables_at_once),
		TEST(a_replica_with_other_columns_is_refused),
		TEST(a_policy_is_set_and_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
