# SPDX-License-Identifier: Apache-2.0
"""shards: clusters for an engine of tests that has no other servers. The engine itself runs
Distributed tables: it hashes rows, writes, reads and adds up by shard, and sends what is GLOBAL.
This file makes up what needs other servers: ON CLUSTER, which chdb refuses, and replicas, whose
tables stay read-only, because chdb does not listen to others.

`one` has one shard, this engine. `two` has two shards, which are both this engine, with the same
tables: a filter has each shard see only its own rows. Both have no replicas. `replicas` has
replicas, with the environment variables ZOOKEEPER (its port) and REPLICA (the engine's name)."""
import os
import re

DISKS = ("hot", "cold", "colder")
PORT = 9000             # nobody listens: the address with the engine's own port is the engine
SHARD = ("<shard><internal_replication>true</internal_replication><replica>"
         f"<host>127.0.0.1</host><port>{PORT}</port></replica></shard>")


def config(folder):
    """Writes a configuration of the engine, with the clusters and two storage policies;
    returns its path."""
    disks = "".join(f"<{d}><path>{folder}/{d}/</path></{d}>" for d in DISKS)
    policies = ""
    for names in (DISKS[:2], DISKS):
        volumes = "".join(f"<{d}><disk>{d}</disk></{d}>" for d in names)
        policies += f"<{'_'.join(names)}><volumes>{volumes}</volumes></{'_'.join(names)}>"
    keeper = os.environ.get("ZOOKEEPER", "1")
    path = os.path.join(folder, "config.xml")
    with open(path, "w", encoding="ascii") as f:
        f.write(f"<clickhouse><tcp_port>{PORT}</tcp_port>"
                f"<remote_servers><one>{SHARD}</one><two>{SHARD}{SHARD}</two>"
                f"<replicas>{SHARD}</replicas></remote_servers>"
                f"<zookeeper><node><host>127.0.0.1</host><port>{keeper}</port></node>"
                "<connection_timeout_ms>60000</connection_timeout_ms></zookeeper>"
                f"<macros><shard>1</shard><replica>{os.environ.get('REPLICA', 'a')}</replica>"
                "</macros>"
                f"<storage_configuration><disks>{disks}</disks><policies>{policies}</policies>"
                "</storage_configuration></clickhouse>")
    return path


def without_servers(sql):
    """A statement ON CLUSTER as one for this engine alone."""
    m = re.search(r" ON CLUSTER `(\w+)`", sql)
    if not m:
        if re.match(r"\s*(ALTER TABLE|DELETE FROM) \S*_local\b", sql):
            raise ValueError(f"Code: 36. the other servers would not do that: {sql}")
        return sql
    sql = sql[:m.start()] + sql[m.end():]
    if m[1] == "replicas":
        return sql
    return re.sub(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?", r"\1(", sql)


class Filters:
    """Which rows a shard of `two` sees of a table: those that its Distributed table puts there."""
    def __init__(self):
        self.by_database = {}

    def learn(self, sql):
        m = re.search(r"Distributed\('two', '(\w+)', '(\w+)', (.*)\)$", sql)
        if m:
            self.by_database.setdefault(m[1], {})[f"{m[1]}.{m[2]}"] = f"{m[3]} % 2 = shardNum() - 1"

    def setting(self, database):
        """The value of additional_table_filters; "": it needs none."""
        of = self.by_database.get(database, {})
        return "{" + ",".join(f"'{t}':'{f}'" for t, f in of.items()) + "}" if of else ""
