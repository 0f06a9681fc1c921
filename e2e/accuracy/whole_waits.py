# SPDX-License-Identifier: Apache-2.0
"""How much of the time that a server waits has its whole stack, in podflame and in bcc's
offcputime, which record the same process at the same time. Debian builds redis without frame
pointers and PostgreSQL with them; its C library has none."""
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass

import known
from perf import report
from slow_peers import Bcc, Podflame

SECONDS = 5
STARTS = {"main", "_start", "start_thread", "clone", "clone3"}
BIN = "/usr/lib/postgresql/15/bin"


@dataclass
class Server:
    name: str
    start: object       # (folder) -> (pid, processes to end, in order)


def redis(folder):
    known.need(["redis-server", "redis-benchmark"])
    path = os.path.join(folder, "redis.sock")
    p = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--dir", folder,
                          "--appendonly", "yes", "--appendfsync", "always"],
                         stdout=subprocess.DEVNULL)
    await_(lambda: os.path.exists(path), "redis-server")
    load = subprocess.Popen(["redis-benchmark", "-s", path, "-q", "-l", "-c", "4", "-t", "set,get",
                             "-r", "10000"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return p.pid, [load, p]


def postgres(folder):
    if not os.access(f"{BIN}/initdb", os.X_OK):
        raise known.Skip("no PostgreSQL 15 on this machine (.ci/deps long)")
    shutil.chown(folder, "postgres", "postgres")
    as_postgres = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*as_postgres, f"{BIN}/initdb", "-A", "trust", "-N", f"{folder}/data"],
                   check=True, capture_output=True, timeout=120)
    p = subprocess.Popen([*as_postgres, f"{BIN}/postgres", "-D", f"{folder}/data", "-k", folder,
                          "-h", ""], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    psql = [*as_postgres, f"{BIN}/psql", "-h", folder, "-Atq", "-c"]
    await_(lambda: subprocess.run([*psql, "select 1"], capture_output=True).returncode == 0,
           "postgres")
    subprocess.run([*as_postgres, f"{BIN}/pgbench", "-h", folder, "-i", "-q", "postgres"],
                   check=True, capture_output=True, timeout=120)
    load = subprocess.Popen([*as_postgres, "env", "PGAPPNAME=load", f"{BIN}/pgbench", "-h", folder,
                             "-n", "-c", "1", "-T", "600", "postgres"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    pid = []

    def has_backend():
        out = subprocess.run([*psql,
                              "select pid from pg_stat_activity where application_name = 'load'"],
                             capture_output=True, text=True)
        before, pid[:] = list(pid), out.stdout.split()
        return pid and pid == before        # pgbench's first connection is only a check
    await_(has_backend, "pgbench")
    return int(pid[0]), [load, p]


def await_(true, what):
    end = time.monotonic() + 60
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} does not come up")
        time.sleep(0.3)


TARGETS = [Server("redis_waits", redis), Server("postgres_waits", postgres)]


def of_ours(path):
    """(frames, microseconds) of each stack of podflame, the outermost frame first."""
    for frames, us in known.read_folded(path):
        yield [f for f in frames if not f.startswith("[wait: ")], us


def of_offcputime(path, pid):
    """The same of offcputime: stacks with the leaf first, the kernel's before the user's, then
    "-  NAME (PID)" and microseconds."""
    frames = []
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = iter([line.strip() for line in f])
    for line in lines:
        if re.fullmatch(rf"-\s+.* \({pid}\)", line):
            yield frames[::-1], int(next(lines))
        frames = frames + [line] if line and not line.startswith("-") else []


def is_whole(frames):
    """The stack begins where programs or threads do, or comes from main. A profiler that uses frame
    pointers may still lack a caller within."""
    own = [f.removeprefix("[l] ") for f in frames]
    return (bool(own) and (not known.unfinished(own) or any(f in STARTS for f in own))
            and not any(map(known.MARKER.fullmatch, own)))


def wholes(stacks):
    """(percent of the time whose stack is whole, seconds)"""
    whole = all_ = 0
    for frames, us in stacks:
        all_ += us
        whole += us if is_whole(frames) else 0
    return 100 * whole / max(1, all_), all_ / 1e6


def test(server, folder, results):
    """Rows for the report."""
    pid, running = server.start(folder)
    ours, theirs = Podflame("off-cpu"), Bcc("offcputime", "-m", "50")
    try:
        ours.begin(pid, folder)
        try:
            theirs.begin(pid, folder)
            begun = True
        except known.Skip as why:
            results.skip(f"{server.name}, {theirs.name}", why)
            begun = False
        time.sleep(SECONDS)
        if begun:
            theirs.end()
        ours.end()
    finally:
        for p in running:
            p.terminate()
            p.wait()
    rows = [("podflame off-cpu", *wholes(of_ours(ours.folded)))]
    if begun:
        rows.append((theirs.name, *wholes(of_offcputime(theirs.path, pid))))
    for name, percent, seconds in rows:
        report(f"slowdown.{server.name}.whole.{re.sub('[^a-z]+', '_', name)}", percent,
               "percent of the time waited",
               f"its stack comes from main or a thread's start; {seconds:.2f} s of waits, the same "
               f"process at once")
    return [(server.name, *row) for row in rows]
