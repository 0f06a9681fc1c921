/* SPDX-License-Identifier: Apache-2.0 */
/* The tables and the views, as steps. docs/clickhouse.md explains the choices. */
#include "hub/store/clickhouse/schema.h"

#define TEXT	"LowCardinality(String)", "ZSTD(1)"
#define TEXTS	"Array(LowCardinality(String))"
#define IDS	"Array(UInt64)", "ZSTD(1)"
#define NUMBERS "Array(UInt64)", "T64, ZSTD(1)"

/*
 * Rows of a granule. A window is a kilobyte, and an hour of a namespace some thousand of them.
 * Names are asked for by ids, which are hashes: each is in another granule.
 */
#define ROWS		8192 /* ClickHouse's own */
#define ROWS_OF_WINDOWS 1024
#define ROWS_OF_NAMES	256

/*
 * One row a window. A window that comes again is the same row: the engine, and FINAL in each query,
 * keep one. Its partition and its key follow from what it says.
 */
static const struct schema_column window_columns[] = {
	{"time", "DateTime", "DoubleDelta, ZSTD(1)"},
	{"start", "DateTime", "DoubleDelta, ZSTD(1)"},
	{"profile_id", "FixedString(16)", "NONE"},
	{"profile_event_type", TEXT},
	{"app_service", TEXT},
	{"process_id", "UInt32", "ZSTD(1)"},
	{"process_start_ms", "UInt64", "ZSTD(1)"},
	{"pod_cluster", TEXT},
	{"pod_ns", TEXT},
	{"pod_node", TEXT},
	{"pod_group", TEXT},
	{"pod_group_type", TEXT},
	{"pod", TEXT},
	{"pod_uid", TEXT},
	{"container", TEXT},
	{"container_id", TEXT},
	{"image", TEXT},
	{"unverified", TEXT},
	{"tag_names", TEXTS, "ZSTD(1)"},
	{"tag_values", "Array(String)", "ZSTD(1)"},
	{"value", "UInt64", "T64, ZSTD(1)"},
	{"n", "UInt64", "T64, ZSTD(1)"},
	{"stacks", IDS},
	{"values", NUMBERS},
	{"counts", NUMBERS},
	{"cpus", "Array(Int32)", "T64, ZSTD(1)"},
	{"traces", "Array(FixedString(16))", "ZSTD(1)"},
	{"spans", "Array(FixedString(8))", "ZSTD(1)"},
	{"call_stacks", IDS},
	{"call_values", NUMBERS},
	{"call_counts", NUMBERS},
	{"call_cpus", "Array(Int32)", "T64, ZSTD(1)"},
	{"loss_reasons", TEXTS, ""},
	{"loss_counts", "Array(UInt64)", ""},
	{"loss_times", "Array(UInt64)", ""},
	{"estimate_ppm", "UInt32", "ZSTD(1)"},
	{"estimate_error", "UInt64", "ZSTD(1)"},
	{"snapshot", "UInt8", "ZSTD(1)"},
	{"stored", "UInt64", "DoubleDelta, ZSTD(1)"},
};
static const struct schema_table windows = {
	.name = "windows",
	.columns = window_columns,
	.n_columns = ARRAY_SIZE(window_columns),
	.indexes = ", INDEX traces traces TYPE bloom_filter(0.001) GRANULARITY 4",
	.newest = "",
	.partition = "toDate(time, 'UTC')",
	.key = "profile_event_type, pod_cluster, pod_ns, toStartOfHour(time), app_service, "
	       "process_id, process_start_ms, time, profile_id",
	.granularity = ROWS_OF_WINDOWS,
	.shard = "cityHash64(pod_cluster, pod_ns, app_service)",
	.keep = KEEP_WINDOW,
};

/* last: the day of the last window that uses the row, at most a day before */
static const struct schema_column stack_columns[] = {
	{"id", "UInt64", ""},
	{"process", TEXT},
	{"thread", TEXT},
	{"main", "UInt8", ""},
	{"wait", "UInt8", ""},
	{"label_names", TEXTS, ""},
	{"label_values", "Array(String)", ""},
	{"frames", IDS},
	{"last", "Date", ""},
};
static const struct schema_table stacks = {
	.name = "stacks",
	.columns = stack_columns,
	.n_columns = ARRAY_SIZE(stack_columns),
	.indexes = "",
	.newest = "last",
	.partition = "",
	.key = "id",
	.granularity = ROWS_OF_NAMES,
	.shard = "id",
	.keep = KEEP_NAME,
};

static const struct schema_column frame_columns[] = {
	{"id", "UInt64", ""},	   {"kind", "UInt8", ""},
	{"inlined", "UInt8", ""},  {"line", "UInt32", ""},
	{"address", "UInt64", ""}, {"name", "String", "ZSTD(1)"},
	{"has_name", "UInt8", ""}, {"module", TEXT},
	{"build_id", TEXT},	   {"file", TEXT},
	{"last", "Date", ""},
};
static const struct schema_table frames = {
	.name = "frames",
	.columns = frame_columns,
	.n_columns = ARRAY_SIZE(frame_columns),
	.indexes = "",
	.newest = "last",
	.partition = "",
	.key = "id",
	.granularity = ROWS_OF_NAMES,
	.shard = "id",
	.keep = KEEP_NAME,
};

/*
 * Frames as text: profile_frame_render() in SQL. in_process_test.c compares both. mark: 'm': a
 * frame of the kernel, or a marker; 'b': of a program, and nothing is known of it; 'u': others.
 */
static const char frame_texts[] =
	"CREATE VIEW IF NOT EXISTS {db}.frame_texts{on} AS SELECT id, "
	"multiIf(kind IN (2, 8), 'm', has_name = 0 AND module = '', 'b', 'u') AS mark, "
	"replaceAll(multiIf("
	"has_name != 0, "
	"concat(transform(kind, [1, 2, 6], ['[l] ', '[k] ', '[c] '], ''), name), "
	"module != '' AND kind != 2, concat('[', module, ']'), "
	"concat(if(kind = 2, '[k] ', ''), '[unknown] 0x', leftPad(lower(hex(address)), 16, '0'))), "
	"';', ':') AS text FROM {db}.frames";

/*
 * The table of DeepFlow, by its column names, types and meaning: a row a stack of a window.
 * podflame has no numbers of resources: those columns are 0, and the names are columns after them.
 * The text of a stack is profile_stack_render() in SQL. Of events that programs push the language
 * is a tag.
 */
#define LOST "'m[stack trace lost]'"
/* Samples with their stacks. The smaller side of the join is in memory: what the query selects. */
#define SAMPLES                                                                                    \
	"(WITH (SELECT (arrayPushBack(groupArray(id), 0),"                                         \
	" arrayPushBack(groupArray(concat(mark, text)), " LOST "))"                                \
	" FROM {db}.frame_texts) AS known "                                                        \
	"SELECT w.*, s.id AS found, s.process AS process, s.thread AS thread, s.main AS main, "    \
	"s.wait AS wait, arrayMap(f -> transform(f, known.1, known.2, " LOST "), s.frames)"        \
	" AS texts "                                                                               \
	"FROM (SELECT id, process, thread, main, wait, frames FROM {db}.stacks FINAL) AS s "       \
	"RIGHT JOIN (SELECT *, stack, v, nr FROM {db}.windows FINAL "                              \
	"ARRAY JOIN stacks AS stack, `values` AS v, arrayEnumerate(stacks) AS nr) AS w "           \
	"ON s.id = w.stack)"
static const char in_process[] =
	"CREATE OR REPLACE VIEW {db}.in_process{on} AS WITH "
	"arrayFirstIndex(t -> NOT startsWith(t, 'm'), w.texts) AS outermost, "
	"if(w.process != '', [concat('[p] ', w.process)], emptyArrayString()) AS process, "
	"if(w.thread != '' AND NOT (w.process != '' AND w.main != 0),"
	" [concat(if(w.process = '' AND w.main != 0, '[p] ', '[t] '), w.thread)],"
	" emptyArrayString()) AS thread, "
	"['runqueue', 'disk', 'lock', 'sleep', 'poll', 'socket', 'pipe', 'other', 'gpu'] AS waits, "
	"if(w.wait BETWEEN 1 AND 9, [concat('[wait: ', waits[w.wait], ']')], emptyArrayString())"
	" AS wait "
	"SELECT w.time AS time, "
	"toUnixTimestamp(w.time) * 4294967296 +"
	" cityHash64(w.profile_id, w.nr) % 4294967296 AS _id, "
	"toIPv4('0.0.0.0') AS ip4, toIPv6('::') AS ip6, toUInt8(1) AS is_ipv4, "
	"w.app_service AS app_service, "
	"if(w.found = 0, '[stack trace lost]', arrayStringConcat(arrayConcat("
	"arrayMap(h -> replaceAll(h, ';', ':'), arrayConcat(process, thread)), "
	"arrayMap((t, i) -> if(i = outermost AND startsWith(t, 'b'), '[unknown start_thread?]',"
	" substring(t, 2)), w.texts, arrayEnumerate(w.texts)), wait), ';')) "
	"AS profile_location_str, "
	"toInt64(w.v) AS profile_value, "
	"CAST(multiIf(w.profile_event_type IN ('on-cpu', 'off-cpu', 'on-gpu', 'rdma-latency',"
	" 'cpu', 'wall', 'mutex_duration', 'block_duration'), 'microseconds',"
	" endsWith(w.profile_event_type, '_objects'), 'objects',"
	" w.profile_event_type IN ('mutex_count', 'block_count'), 'lock_samples',"
	" w.profile_event_type = 'goroutines', 'goroutines',"
	" 'bytes') AS LowCardinality(String)) AS profile_value_unit, "
	"w.profile_event_type AS profile_event_type, "
	"toDateTime64(w.time, 6) AS profile_create_timestamp, "
	"fromUnixTimestamp64Micro(toInt64(intDiv(w.stored, 1000))) AS profile_in_timestamp, "
	"CAST(multiIf(has(w.tag_names, 'profile_language_type'),"
	" w.tag_values[indexOf(w.tag_names, 'profile_language_type')],"
	" w.profile_event_type IN ('on-cpu', 'off-cpu', 'mem-alloc', 'mem-inuse', 'hbm-alloc',"
	" 'hbm-inuse', 'on-gpu', 'rdma', 'rdma-latency'), 'eBPF',"
	" '') AS LowCardinality(String)) AS profile_language_type, "
	"'' AS profile_id, '' AS trace_id, '' AS span_name, w.app_service AS app_instance, "
	"w.tag_names AS tag_names, w.tag_values AS tag_values, "
	"CAST('' AS LowCardinality(String)) AS compression_algo, w.process_id AS process_id, "
	"fromUnixTimestamp64Milli(toInt64(w.process_start_ms)) AS process_start_time, "
	"toUInt32(0) AS gprocess_id, toUInt16(0) AS agent_id, toUInt16(0) AS region_id, "
	"toUInt16(0) AS az_id, toUInt16(0) AS subnet_id, toUInt16(0) AS host_id, "
	"toInt32(0) AS l3_epc_id, toUInt32(0) AS pod_id, toUInt32(0) AS pod_node_id, "
	"toUInt32(0) AS pod_group_id, toUInt16(0) AS pod_ns_id, toUInt16(0) AS pod_cluster_id, "
	"toUInt32(0) AS auto_instance_id, toUInt32(0) AS auto_service_id, "
	"toUInt32(0) AS l3_device_id, toUInt32(0) AS service_id, "
	"toUInt8(0) AS auto_instance_type, toUInt8(0) AS auto_service_type, "
	"toUInt8(0) AS l3_device_type, toUInt16(1) AS team_id, "
	"w.pod_cluster AS pod_cluster, w.pod_ns AS pod_ns, w.pod_node AS pod_node, "
	"w.pod_group AS pod_group, w.pod_group_type AS pod_group_type, w.pod AS pod, "
	"w.pod_uid AS pod_uid, w.container AS container, w.container_id AS container_id, "
	"w.image AS image, w.unverified AS unverified "
	"FROM " SAMPLES " AS w";

/* Until when profiles of a place were deleted because the store was full (expire.c). */
static const struct schema_column cut_columns[] = {
	{"pod_cluster", "String", ""},
	{"pod_ns", "String", ""},
	{"unverified", "String", ""},
	{"until", "DateTime", ""},
};
static const struct schema_table cuts = {
	.name = "cuts",
	.columns = cut_columns,
	.n_columns = ARRAY_SIZE(cut_columns),
	.indexes = "",
	.newest = "until",
	.partition = "",
	.key = "pod_cluster, pod_ns, unverified",
	.granularity = ROWS,
	.shard = "cityHash64(pod_cluster, pod_ns)",
	.keep = KEEP_ALWAYS,
};

/* The names of the other clusters that hubs of this database have known (clusters.c). */
static const struct schema_column cluster_columns[] = {
	{"name", "String", ""},
};
static const struct schema_table clusters = {
	.name = "clusters",
	.columns = cluster_columns,
	.n_columns = ARRAY_SIZE(cluster_columns),
	.indexes = "",
	.newest = "",
	.partition = "",
	.key = "name",
	.granularity = ROWS,
	.shard = "cityHash64(name)",
	.keep = KEEP_ALWAYS,
};

/*
 * Symbol files that users have uploaded (uploads.c). A row here says that all chunks of an upload
 * are there.
 */
static const struct schema_column symbol_columns[] = {
	{"ns", "String", ""},
	{"build_id", "String", ""},
	{"upload", "UInt64", ""},
	{"version", "UInt64", ""},
	{"bytes", "UInt64", ""},
	{"packed", "UInt64", ""},
	{"sha256", "FixedString(32)", ""},
};
static const struct schema_table symbols = {
	.name = "symbols",
	.columns = symbol_columns,
	.n_columns = ARRAY_SIZE(symbol_columns),
	.indexes = "",
	.newest = "",
	.partition = "",
	.key = "ns, build_id, upload",
	.granularity = ROWS,
	.shard = "cityHash64(ns, build_id)",
	.keep = KEEP_ALWAYS,
};
static const struct schema_column chunk_columns[] = {
	{"upload", "UInt64", ""},
	{"n", "UInt32", ""},
	{"made", "DateTime", ""},
	{"data", "String", "NONE"},
};
static const struct schema_table symbol_chunks = {
	.name = "symbol_chunks",
	.columns = chunk_columns,
	.n_columns = ARRAY_SIZE(chunk_columns),
	.indexes = "",
	.newest = "",
	.partition = "",
	.key = "upload, n",
	.granularity = ROWS,
	.shard = "upload",
	.keep = KEEP_ALWAYS,
};

const struct schema_step store_ch_steps[] = {
	{1, "windows", &windows, NULL},	  {2, "stacks", &stacks, NULL},
	{3, "frames", &frames, NULL},	  {4, "frame_texts", NULL, frame_texts},
	{5, "in_process", NULL, NULL},	  {6, "cuts", &cuts, NULL},
	{7, "clusters", &clusters, NULL}, {8, "symbol_chunks", &symbol_chunks, NULL},
	{9, "symbols", &symbols, NULL},	  {10, "in_process", NULL, in_process},
};
const size_t store_ch_n_steps = ARRAY_SIZE(store_ch_steps);
