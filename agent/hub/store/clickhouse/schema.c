/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables. Each step of the migration may run again, from several hubs at once, and while hubs
 * of the version before write: it only adds. docs/clickhouse.md explains the choices.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define SEED_TABLE "podflame"
#define TEXT	   " LowCardinality(String) CODEC(ZSTD(1))"
#define NUMBERS	   "CODEC(T64, ZSTD(1))"

static const char *const tables[] = {
	/* The comment has the seed: who makes the table first decides it for all. */
	"CREATE TABLE IF NOT EXISTS %1$s." SEED_TABLE " (version UInt32, made DateTime) "
	"ENGINE = MergeTree ORDER BY version COMMENT '%2$s'",
	/*
	 * One row a window. A window that comes again is the same row: the engine, and FINAL in
	 * each query, keep one. Its partition and its key follow from what it says.
	 */
	"CREATE TABLE IF NOT EXISTS %1$s.windows ("
	"time DateTime CODEC(DoubleDelta, ZSTD(1)),"
	"start DateTime CODEC(DoubleDelta, ZSTD(1)),"
	"profile_id FixedString(16) CODEC(NONE),"
	"profile_event_type" TEXT ","
	"app_service" TEXT ","
	"process_id UInt32 CODEC(ZSTD(1)),"
	"process_start_ms UInt64 CODEC(ZSTD(1)),"
	"pod_cluster" TEXT ", pod_ns" TEXT ", pod_node" TEXT ", pod_group" TEXT ","
	"pod_group_type" TEXT ", pod" TEXT ", pod_uid" TEXT ", container" TEXT ","
	"container_id" TEXT ", image" TEXT ", unverified" TEXT ","
	"tag_names Array(LowCardinality(String)) CODEC(ZSTD(1)),"
	"tag_values Array(String) CODEC(ZSTD(1)),"
	"value UInt64 " NUMBERS ", n UInt64 " NUMBERS ","
	"stacks Array(UInt64) CODEC(ZSTD(1)),"
	"`values` Array(UInt64) " NUMBERS ", counts Array(UInt64) " NUMBERS ","
	"cpus Array(Int32) " NUMBERS ","
	"traces Array(FixedString(16)) CODEC(ZSTD(1)), spans Array(FixedString(8)) CODEC(ZSTD(1)),"
	"call_stacks Array(UInt64) CODEC(ZSTD(1)), call_values Array(UInt64) " NUMBERS ","
	"call_counts Array(UInt64) " NUMBERS ", call_cpus Array(Int32) " NUMBERS ","
	"loss_reasons Array(LowCardinality(String)), loss_counts Array(UInt64),"
	"loss_times Array(UInt64),"
	"estimate_ppm UInt32 CODEC(ZSTD(1)), estimate_error UInt64 CODEC(ZSTD(1)),"
	"snapshot UInt8 CODEC(ZSTD(1)), stored UInt64 CODEC(DoubleDelta, ZSTD(1)),"
	"INDEX traces traces TYPE bloom_filter(0.001) GRANULARITY 4"
	") ENGINE = ReplacingMergeTree PARTITION BY toDate(time) "
	"ORDER BY (profile_event_type, pod_cluster, pod_ns, toStartOfHour(time), app_service,"
	" process_id, process_start_ms, time, profile_id) "
	"%3$s",
	/* last: the day of the last window that uses the row, at most a day before */
	"CREATE TABLE IF NOT EXISTS %1$s.stacks ("
	"id UInt64, process" TEXT ", thread" TEXT ", main UInt8, wait UInt8,"
	"label_names Array(LowCardinality(String)), label_values Array(String),"
	"frames Array(UInt64) CODEC(ZSTD(1)), last Date"
	") ENGINE = ReplacingMergeTree(last) ORDER BY id %4$s",
	"CREATE TABLE IF NOT EXISTS %1$s.frames ("
	"id UInt64, kind UInt8, inlined UInt8, line UInt32, address UInt64,"
	"name String CODEC(ZSTD(1)), has_name UInt8, module" TEXT ", build_id" TEXT ", file" TEXT
	","
	"last Date"
	") ENGINE = ReplacingMergeTree(last) ORDER BY id %4$s",
};

static int read_seed(struct ch_store *s, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + 30 * NSEC_PER_SEC};
	struct ch_sql q = {0};
	struct http_answer a = {0};
	struct ch_rows rows;
	_cleanup_free_ char *seed = NULL;
	size_t n = 0;
	int r;

	store_ch_text(&q, "SELECT comment FROM system.tables WHERE name='" SEED_TABLE
			  "' AND database=");
	store_ch_str(&q, s->database);
	r = store_ch_ask(s, &q, &l, &a, &rows, reterr);
	if (!r) {
		seed = store_ch_get_str(&rows);
		r = rows.failed || hex_decode(seed, sizeof(s->seed), s->seed, &n) ||
				    n != sizeof(s->seed)
			    ? field_error_set(reterr, "store",
					      "the comment of the table %s." SEED_TABLE
					      " is not the one that podflame wrote",
					      s->database)
			    : 0;
	}
	http_answer_done(&a);
	store_ch_sql_done(&q);
	return r;
}

/* The engine deletes what is older than the retention; 0: nothing. */
static void make_ttl(const struct ch_store *s, char windows[static 96], char names[static 96])
{
	unsigned long long keep_s = s->retention_ns / NSEC_PER_SEC;

	windows[0] = names[0] = '\0';
	if (!keep_s)
		return;
	snprintf(windows, 96, "TTL time + toIntervalSecond(%llu) SETTINGS ttl_only_drop_parts = 1",
		 keep_s);
	snprintf(names, 96, "TTL last + toIntervalDay(%llu)", keep_s / 86400 + 2);
}

int store_ch_migrate(struct ch_store *s, struct field_error *reterr)
{
	_cleanup_free_ char *database = xasprintf("CREATE DATABASE IF NOT EXISTS %s", s->database);
	char ttl_windows[96], ttl_names[96];
	uint8_t seed[sizeof(s->seed)];
	char text[2 * sizeof(seed) + 1];
	int r = store_ch_run(s, database, reterr);

	make_ttl(s, ttl_windows, ttl_names);
	random_bytes(seed, sizeof(seed));
	hex_encode(seed, sizeof(seed), text);
	for (size_t i = 0; !r && i < ARRAY_SIZE(tables); i++) {
		_cleanup_free_ char *sql =
			xasprintf(tables[i], s->database, text, ttl_windows, ttl_names);

		r = store_ch_run(s, sql, reterr);
	}
	return r ? r : read_seed(s, reterr);
}
