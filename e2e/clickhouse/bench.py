#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench.py: what a fleet's profiles cost in ClickHouse. The hub writes the same load to SQLite and
to ClickHouse's engine (engine.py) and asks both. Then the same samples go into DeepFlow's own table
(one row a sample, with the stack as a compressed text) in the same engine, and DeepFlow's SQL asks
that. Prints one JSON object a line. `make bench` calls it.

ROWS=1e7 writes so many rows (default 1e6). Out of those the engine makes databases of so many rows
as FLEET says ("1e7 1e8"), with 20 namespaces, and is asked for an hour and a day of one of them.
ASKS=5 asks each question so often (20), after the first time."""
import ctypes
import http.client
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BUILD", os.path.join(HERE, "../../build"))
TOOLS = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                     "podflame/tools")
DATABASE, DEEPFLOW, FLEET = "bench", "deepflow", "fleet"
T0, BASE_S = 1700000000, 1000       # of sinks_bench.c: 1e6 rows are 1000 s of 200 pods
REPEATS = 5
ASKS = os.environ.get("ASKS", "20")
WHATS = ("all", "hour", "series", "choices", "threads", "thread_choices")   # of sinks_bench.c
DEEPFLOW_LIMIT = 1000000            # querier.profile.flame_query_limit

# deepflow.md, section 1: the columns of profile.in_process that the queries or the size depend on,
# and its keys. Ids of resources stand for their names, as DeepFlow's ingester writes them.
IN_PROCESS = """CREATE TABLE {db}.in_process (
time DateTime, _id UInt64 CODEC(DoubleDelta), ip4 IPv4, ip6 IPv6, is_ipv4 UInt8,
app_service LowCardinality(String), profile_location_str String, profile_value Int64,
profile_value_unit LowCardinality(String), profile_event_type LowCardinality(String),
profile_create_timestamp DateTime64(6), profile_in_timestamp DateTime64(6),
profile_language_type LowCardinality(String), profile_id String, trace_id String,
span_name String, app_instance LowCardinality(String),
tag_names Array(LowCardinality(String)), tag_values Array(String),
compression_algo LowCardinality(String), process_id UInt32, process_start_time DateTime64(3),
gprocess_id UInt32, agent_id UInt16, region_id UInt16, az_id UInt16, subnet_id UInt16,
host_id UInt16, l3_epc_id Int32, pod_id UInt32, pod_node_id UInt32, pod_group_id UInt32,
pod_ns_id UInt16, pod_cluster_id UInt16, auto_instance_id UInt32, auto_service_id UInt32,
l3_device_id UInt32, service_id UInt32, auto_instance_type UInt8, auto_service_type UInt8,
l3_device_type UInt8, team_id UInt16,
INDEX is_ipv4_idx is_ipv4 TYPE minmax GRANULARITY 2,
INDEX created_idx profile_create_timestamp TYPE set(300) GRANULARITY 2,
INDEX agent_idx agent_id TYPE set(300) GRANULARITY 2
) ENGINE = MergeTree() PRIMARY KEY (app_service, profile_language_type, time)
ORDER BY (app_service, profile_language_type, time) PARTITION BY toStartOfHour(time)
SETTINGS ttl_only_drop_parts = 1"""
ROWS_OF = """SELECT time,
toUInt64(toUnixTimestamp(time))*4294967296 + rowNumberInAllBlocks() AS _id,
toIPv4(process_id+167772160) AS ip4, toIPv6('::') AS ip6, 1 AS is_ipv4, app_service,
t.text AS profile_location_str, toInt64(v) AS profile_value,
'microseconds' AS profile_value_unit, profile_event_type,
toDateTime64(time, 6) AS profile_create_timestamp, toDateTime64(time, 6) AS profile_in_timestamp,
'eBPF' AS profile_language_type, '' AS profile_id, '' AS trace_id, '' AS span_name,
app_service AS app_instance, []::Array(String) AS tag_names,
[]::Array(String) AS tag_values, 'zstd' AS compression_algo, process_id,
toDateTime64(process_start_ms/1000, 3) AS process_start_time, process_id AS gprocess_id,
toUInt16(process_id/20) AS agent_id, 1 AS region_id, 1 AS az_id, 1 AS subnet_id,
agent_id AS host_id, 1 AS l3_epc_id, process_id AS pod_id, agent_id AS pod_node_id,
intDiv(process_id-1, 10) AS pod_group_id, toUInt16(cityHash64(pod_ns)%1000) AS pod_ns_id,
1 AS pod_cluster_id, process_id AS auto_instance_id, pod_group_id AS auto_service_id,
process_id AS l3_device_id, 0 AS service_id, 10 AS auto_instance_type, 11 AS auto_service_type,
10 AS l3_device_type, 1 AS team_id
FROM (SELECT time, app_service, profile_event_type, process_id, process_start_ms, pod_ns, stack, v
FROM {db}.windows ARRAY JOIN stacks AS stack, `values` AS v) AS w
ANY LEFT JOIN {deepflow}.texts AS t ON t.id = w.stack"""
ASKED = """SELECT profile_location_str, profile_value FROM {db}.in_process WHERE
profile_language_type='eBPF' AND profile_event_type='on-cpu' AND app_service!='Total' AND
time>={start} AND time<={end} AND pod_ns_id=toUInt16(cityHash64('{ns}')%1000)"""

# The same windows later, for other namespaces. In each copy, a process has the samples of another
# one of its service, so that a process does not repeat itself.
COPY = """INSERT INTO {fleet}.windows SELECT * REPLACE (
time + {k}*{base} AS time, start + {k}*{base} AS start,
toFixedString(leftPad(hex(sipHash64(profile_id, {k})), 16, '0'), 16) AS profile_id,
toUInt32(intDiv(process_id-1, 10)*10 + (process_id-1+{k})%10 + 1) AS process_id,
concat('service-', toString(intDiv(process_id-1, 10)), '-', toString((process_id-1+{k})%10)) AS pod,
concat('ns-', toString(intDiv(process_id-1, 10))) AS pod_ns) FROM {db}.windows"""


def report(name, value, unit, compared_with, goal=""):
    row = {"name": f"clickhouse.{name}", "value": float(f"{value:.4g}"), "unit": unit,
           "compared_with": compared_with}
    if goal:
        row["goal"] = goal
    print(json.dumps(row), flush=True)


class Engine:
    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        path = os.path.join(self.dir.name, "port")
        self.process = subprocess.Popen(
            [f"{TOOLS}/chdb/bin/python", os.path.join(HERE, "engine.py"), path],
            stdin=subprocess.PIPE)
        while not os.path.exists(path):
            if self.process.poll() is not None:
                sys.exit("bench.py: the engine did not start")
            time.sleep(.05)
        with open(path, encoding="ascii") as f:
            self.port = int(f.read())
        self.env = {**os.environ, "CLICKHOUSE_URL": f"http://127.0.0.1:{self.port}",
                    "CLICKHOUSE_PID": str(self.process.pid)}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.dir.cleanup()

    def cpu_s(self):
        """CPU time of the engine's process (Linux: a clock by a process's number)."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def ask(self, sql, body=b""):
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        if body:
            c.request("POST", "/?query=" + urlquote(sql), body)
        else:
            c.request("POST", "/?default_format=RowBinary", sql.encode())
        r = c.getresponse()
        data = r.read()
        c.close()
        if r.status != 200:
            sys.exit(f"bench.py: {sql[:200]}: {data[:1000].decode(errors='replace')}")
        return data

    def number(self, sql):
        return struct.unpack("<Q", self.ask(f"SELECT toUInt64({sql})")[-8:])[0]   # perhaps Nullable

    def cost(self, sql):
        """The median of the engine's CPU seconds and of the latency in ms."""
        cpus, walls = [], []
        for _ in range(REPEATS):
            cpu, wall = self.cpu_s(), time.monotonic()
            self.ask(sql)
            cpus.append(self.cpu_s() - cpu)
            walls.append(1000 * (time.monotonic() - wall))
        return sorted(cpus)[REPEATS // 2], sorted(walls)[REPEATS // 2]

    def bytes_of(self, database):
        return self.number("(SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND "
                           f"database='{database}' AND table!='texts')")


def urlquote(sql):
    import urllib.parse
    return urllib.parse.quote(sql)


def hub(engine, *args, database=DATABASE):
    """What sinks_bench says, by name."""
    out = subprocess.run([f"{BUILD}/agent/hub/query/sinks_bench", *args], check=True,
                         stdout=subprocess.PIPE, text=True,
                         env={**engine.env, "CLICKHOUSE_DATABASE": database}).stdout
    return {r["name"]: r["value"] for r in map(json.loads, out.splitlines())}


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def read_varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 0x7f) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return n, at


def make_texts(engine):
    """The stacks as DeepFlow's agent sends them: "a;b;c", each compressed for itself."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    zstd.ZSTD_compressBound.restype = ctypes.c_size_t
    engine.ask(f"CREATE TABLE {DEEPFLOW}.texts (id UInt64, text String) ENGINE=MergeTree "
               "ORDER BY id")
    data = engine.ask(
        "SELECT id, arrayStringConcat(groupArray(name), ';') FROM (SELECT s.id AS id, n, f.name AS "
        f"name FROM (SELECT id, frame, n FROM {DATABASE}.stacks FINAL ARRAY JOIN frames AS frame, "
        f"arrayEnumerate(frames) AS n) AS s ANY LEFT JOIN {DATABASE}.frames AS f ON "
        "f.id=s.frame ORDER BY id, n) GROUP BY id")
    rows, at = [], 0
    while at < len(data):
        key = data[at:at + 8]
        n, at = read_varint(data, at + 8)
        text, at = data[at:at + n], at + n
        out = ctypes.create_string_buffer(zstd.ZSTD_compressBound(ctypes.c_size_t(n)))
        n = zstd.ZSTD_compress(out, ctypes.c_size_t(len(out)), text, ctypes.c_size_t(n), 3)
        rows.append(key + varint(n) + out.raw[:n])
    engine.ask(f"INSERT INTO {DEEPFLOW}.texts FORMAT RowBinary", b"".join(rows))


def make_deepflow(engine, rows):
    """Fills DeepFlow's table; returns the engine's CPU for the insert of rows that are at hand, in
    ns a row."""
    engine.ask(f"CREATE DATABASE {DEEPFLOW}")
    engine.ask(IN_PROCESS.format(db=DEEPFLOW))
    make_texts(engine)
    sql = ROWS_OF.format(db=DATABASE, deepflow=DEEPFLOW)
    engine.ask(f"INSERT INTO {DEEPFLOW}.in_process {sql}")
    if engine.number(f"(SELECT count() FROM {DEEPFLOW}.in_process)") != rows:
        sys.exit("bench.py: DeepFlow's table lacks rows")
    # its ingester writes 51200 rows at a time
    engine.ask(IN_PROCESS.format(db=DEEPFLOW).replace("in_process", "inserted", 1))
    cpu = n = 0
    for i in range(5):
        body = engine.ask(f"SELECT * FROM {DEEPFLOW}.in_process LIMIT {51200 * i}, 51200")
        before = engine.cpu_s()
        engine.ask(f"INSERT INTO {DEEPFLOW}.inserted FORMAT RowBinary", body)
        cpu, n = cpu + engine.cpu_s() - before, n + 51200
    engine.ask(f"DROP TABLE {DEEPFLOW}.inserted")
    return 1e9 * cpu / n


def merged(engine, database, tables):
    for t in tables:
        engine.ask(f"OPTIMIZE TABLE {database}.{t} FINAL")


def compare(engine, rows, got):
    """Both layouts, side by side, when their parts are merged."""
    n = f"{rows:.0e}"
    inserted = make_deepflow(engine, rows)
    merged(engine, DEEPFLOW, ["in_process"])
    merged(engine, DATABASE, ["windows", "stacks", "frames"])
    ours, theirs = engine.bytes_of(DATABASE) / rows, engine.bytes_of(DEEPFLOW) / rows
    report(f"bytes_{n}", ours, "B/row", f"DeepFlow's table: {theirs:.1f}; SQLite: "
           f"{got['sqlite.bytes']:.1f}")
    report(f"bytes_deepflow_{n}", theirs, "B/row", "DeepFlow's table, stacks compressed one by one")
    report(f"bytes_to_deepflow_{n}", ours / theirs, "",
           "bytes a row over those of DeepFlow's table", "<= 0.2")
    report(f"in_engine_{n}", got["clickhouse.in_engine"], "ns/row",
           f"the engine's CPU; DeepFlow's table: {inserted:.0f}")
    report(f"in_engine_deepflow_{n}", inserted, "ns/row", "the engine's CPU, 51200 rows at a time")
    report(f"in_hub_{n}", got["clickhouse.in_hub"], "ns/row",
           f"the hub's CPU; SQLite: {got['sqlite.in_hub']:.0f}")
    report(f"in_hub_sqlite_{n}", got["sqlite.in_hub"], "ns/row", "the hub's CPU")
    report(f"in_hub_to_sqlite_{n}", got["clickhouse.in_hub"] / got["sqlite.in_hub"], "",
           "the hub's CPU a row over SQLite's", "<= 2")
    report(f"in_{n}", got["clickhouse.in_rows_per_s"], "rows/s", "one writer, wall time; SQLite: "
           f"{got['sqlite.in_rows_per_s']:.0f}")
    again = hub(engine, "ask", "app", str(T0), str(T0 + rows // 1000), ASKS)
    sql = ASKED.format(db=DEEPFLOW, start=T0, end=T0 + rows // 1000, ns="app")
    cpu, wall = engine.cost(f"{sql} LIMIT {DEEPFLOW_LIMIT}")
    summed, _ = engine.cost("SELECT profile_location_str, sum(profile_value) FROM ("
                            f"{sql}) GROUP BY profile_location_str")
    report_costs(n, again, "all", "query", f"half of the rows; SQLite: {got['sqlite.all_hub']:.3f}")
    report(f"query_deepflow_{n}", cpu, "CPU-s",
           f"DeepFlow's SQL, at most {DEEPFLOW_LIMIT} rows; summed in its table: {summed:.3f}")
    report(f"query_to_deepflow_{n}", again["clickhouse.all_engine"] / cpu, "",
           "the engine's CPU over that of DeepFlow's SQL", "<= 0.2")
    report(f"query_cold_to_deepflow_{n}", again["clickhouse.all_cold_engine"] / cpu, "",
           "the same for the first query of a hub")
    report(f"query_to_deepflow_summed_{n}", again["clickhouse.all_engine"] / summed, "",
           "the same over a sum by stack in DeepFlow's table")
    for what in WHATS:
        report(f"{what}_p50_{n}", again[f"clickhouse.{what}_p50"], "ms", "wall time; SQLite: "
               f"{got[f'sqlite.{what}_p50']:.1f}" +
               (f"; DeepFlow's SQL: {wall:.1f}" if what == "all" else ""))
        report(f"{what}_p99_{n}", again[f"clickhouse.{what}_p99"], "ms", "wall time; SQLite: "
               f"{got[f'sqlite.{what}_p99']:.1f}")


def report_costs(n, got, what, name, how, goal=""):
    """The CPU of one question: all its statements."""
    report(f"{name}_{n}", got[f"clickhouse.{what}_engine"], "CPU-s", f"the engine's CPU; {how}",
           goal)
    report(f"{name}_cold_{n}", got[f"clickhouse.{what}_cold_engine"], "CPU-s",
           "the same, the first time" +
           (" after the hub's start" if what == "all" else ""))
    report(f"{name}_hub_{n}", got[f"clickhouse.{what}_hub"], "CPU-s",
           f"the hub's part; the first time: {got[f'clickhouse.{what}_cold_hub']:.3f}")


def make_fleet(engine, rows):
    """A database like that of the hub, with `rows` rows of 20 namespaces. Returns its last
    second."""
    hub(engine, "ask", "app", str(T0), str(T0 + BASE_S), "1")
    engine.ask(f"CREATE DATABASE {FLEET}")
    for t in ("windows", "stacks", "frames", "cuts", "podflame"):
        sql = engine.ask(f"SELECT create_table_query FROM system.tables WHERE database="
                         f"'{DATABASE}' AND name='{t}'")
        _, at = read_varint(sql, 0)
        engine.ask(sql[at:].decode().replace(f"{DATABASE}.{t}", f"{FLEET}.{t}", 1))
    for t in ("stacks", "frames"):
        engine.ask(f"INSERT INTO {FLEET}.{t} SELECT * FROM {DATABASE}.{t}")
    copies = rows // engine.number(f"(SELECT sum(length(stacks)) FROM {DATABASE}.windows)")
    for k in range(copies):
        engine.ask(COPY.format(fleet=FLEET, db=DATABASE, k=k, base=BASE_S))
    return T0 + copies * BASE_S


def fleet(engine, rows):
    n = f"{rows:.0e}"
    end_s = make_fleet(engine, rows)
    report(f"bytes_{n}", engine.bytes_of(FLEET) / rows, "B/row", "made in the engine")
    got = hub(engine, "ask", "ns-7", str(max(T0, end_s - 86400)), str(end_s), ASKS, database=FLEET)
    for what in WHATS:
        name = "day" if what == "all" else what
        report_costs(n, got, what, name, "one of 20 namespaces", "<= 1" if name == "day" else "")
        report(f"{name}_p50_{n}", got[f"clickhouse.{what}_p50"], "ms", "wall time")
        report(f"{name}_p99_{n}", got[f"clickhouse.{what}_p99"], "ms", "wall time")


def main():
    rows = int(float(os.environ.get("ROWS", "1e6")))
    if not os.path.exists(f"{TOOLS}/chdb/bin/python"):
        print("bench.py: skip: ClickHouse's engine is not installed (make deps)", file=sys.stderr)
        return
    engine = Engine()
    try:
        got = hub(engine, "write", str(rows))
        compare(engine, rows, got)
        for n in os.environ.get("FLEET", "1e7 1e8").split():
            fleet(engine, int(float(n)))
            engine.ask(f"DROP DATABASE {FLEET}")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
