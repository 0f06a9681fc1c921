#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slowdown.py [--report DIR] [NAME...]: how much slower a program is when its waits and memory are
profiled: the CPU time of a unit of work with and without a profiler. Prints one JSON object a line;
--report writes DIR/events-cost.md. `make events-cost` calls it, as root.

The program is measured under each profiler in turn, and without one before and after each. Where it
is possible, a twin that is not profiled runs beside it, on the same CPU and at the same time: the
machine's speed at that moment then cancels out in the quotient.
"""
import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import known
import slow_report
import whole_waits
from perf import report
from slow_peers import (LIMITED_S, PYTHON, AsyncProfiler, Bcc, Limited, Memray, Podflame, java,
                        memray_path)

ROUNDS = int(os.environ.get("ROUNDS", "2"))
SECONDS = float(os.environ.get("SECONDS_EACH", "1.2"))
LIMITED_SECONDS = 10            # from the first look at the program on, and what follows from it
WARM_UP_S = 3
TELLS_MS = 100
SOURCES = os.path.join(known.HERE, "programs")
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


# ---- programs ----

class Storm:
    """A program that prints "rate N UNITS CPU_NS ...", the two since it began."""

    def __init__(self, words, cpu, env=None):
        self.p = subprocess.Popen([*words, str(TELLS_MS)], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, **(env or {})},
                                  preexec_fn=lambda: os.sched_setaffinity(0, cpu))
        self.pid, self.told = self.p.pid, (0, 0, 0)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for n, line in enumerate(self.p.stdout, 1):
            self.told = (n, *map(int, line.split()[2:4]))

    def now(self):
        """(units, CPU ns) of its next line."""
        n, end = self.told[0], time.monotonic() + 30
        while self.told[0] == n:
            if self.p.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the program tells nothing any more")
            time.sleep(0.005)
        return self.told[1:]

    def end(self):
        self.p.kill()
        self.p.wait()


class Redis:
    """A server under the load of redis-benchmark, over loopback. Units are commands."""

    def __init__(self, folder):
        known.need(["redis-server", "redis-benchmark"])
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.p = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1",
                                   "--save", "", "--dir", folder],
                                  stdout=subprocess.DEVNULL)
        self.pid, end = self.p.pid, time.monotonic() + 20
        while True:
            try:
                self.ask = socket.create_connection(("127.0.0.1", port), 10)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.loads = [subprocess.Popen(["redis-benchmark", "-p", str(port), "-q", "-l", "-n",
                                        "1000000", "-t", test, "-r", "10000", "-d",
                                        "128", "-c", "20"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL) for test in ("set", "get")]

    def now(self):
        self.ask.sendall(b"INFO stats\r\n")
        text = b""
        while not (m := re.search(rb"total_commands_processed:(\d+)\r", text)):
            text += self.ask.recv(65536)
        return int(m[1]), cpu_ns(self.pid)

    def end(self):
        for p in [*self.loads, self.p]:
            p.kill()
            p.wait()
        self.ask.close()


def cpu_ns(pid):
    ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as f:
            ns += int(f.read().split()[0])
    return ns


class Load:
    """A program, and its twin if it has one."""

    def __init__(self, what, folder):
        known.need(what.needs)
        self.programs = []
        if what.build:
            subprocess.run(what.build.format(out=folder), shell=True, check=True,
                           capture_output=True, timeout=300)
        cpu = {0} if what.twin else os.sched_getaffinity(0)
        for _ in range(2 if what.twin else 1):
            self.programs.append(
                Storm(what.run.format(out=folder).split(), cpu, what.env) if what.run
                else Redis(folder))
        self.pid = self.programs[0].pid
        self.ns(lambda: time.sleep(WARM_UP_S))

    def ns(self, wait=lambda: time.sleep(SECONDS)):
        """CPU ns a unit, of the program and of its twin, over the same time."""
        before = [p.now() for p in self.programs]
        wait()
        after = [p.now() for p in self.programs]
        return [(cpu_b - cpu_a) / max(1, units_b - units_a)
                for (units_a, cpu_a), (units_b, cpu_b) in zip(before, after)]

    def end(self):
        for p in self.programs:
            p.end()


class Program:
    def __init__(self, name, unit, run, profilers, needs=(), build="", twin=True, env=None,
                 remark=""):
        self.name, self.unit, self.run, self.profilers = name, unit, run, profilers
        self.needs, self.build, self.twin, self.env = needs, build, twin, env
        self.remark = remark


def programs():
    """Profilers that run inside of a process, and may leave something there, come last."""
    storm = os.path.join(known.HERE, "../workloads/storm.c")
    return [
        Program("malloc_storm", "malloc and free", "{out}/storm",
                [Podflame("mem-alloc"), Podflame("mem-inuse"), Bcc("memleak"),
                 Limited("mem-alloc", "mem-inuse")],
                ["gcc"], f"gcc -O2 -o {{out}}/storm {storm}"),
        Program("switch_storm", "a context switch", "{out}/switches",
                [Podflame("off-cpu", other=True, name="off-cpu of another process"),
                 Podflame("off-cpu"),
                 Podflame("off-cpu", "-b", "1us", name="off-cpu, minBlock 1 us"), Bcc("offcputime"),
                 Limited("off-cpu")],
                ["gcc"], f"gcc -O2 -o {{out}}/switches {SOURCES}/switches.c -lpthread", twin=False),
        Program("go", "an object", "{out}/storm-go", [Podflame("mem-alloc"), Limited("mem-alloc")],
                ["go"], f"CGO_ENABLED=0 go build -o {{out}}/storm-go {SOURCES}/storm.go",
                remark="its own profile is off, runtime.mallocgc is probed; nobody else attaches "
                "to such a process"),
        Program("go_profile", "an object", "{out}/storm-go",
                [Podflame("mem-alloc"), Podflame("mem-inuse")],
                ["go"],
                f"CGO_ENABLED=0 go build -o {{out}}/storm-go {SOURCES}/storm.go "
                f"{SOURCES}/storm_profile.go",
                remark="its own profile is on and is read; what it costs the program is in both"),
        Program("java", "an object", f"{java()} -XX:+UseG1GC -Xmx256m -cp {{out}} Storm",
                [Podflame("mem-alloc"), Podflame("off-cpu"), Limited("off-cpu", "mem-alloc"),
                 AsyncProfiler()],
                ["javac"], f"javac -d {{out}} {SOURCES}/Storm.java"),
        Program("python", "three objects", f"{PYTHON} {SOURCES}/storm.py",
                [Podflame("mem-alloc"), Podflame("mem-inuse"), Limited("mem-alloc"), Memray()],
                env={"PYTHONPATH": memray_path()} if memray_path() else None),
        Program("redis", "a SET or GET of 128 bytes", "",
                [Podflame("off-cpu"), Bcc("offcputime"), Podflame("mem-alloc"),
                 Podflame("mem-inuse"),
                Bcc("memleak", library=JEMALLOC), Limited("off-cpu", "mem-alloc", "mem-inuse")],
                twin=False),
    ]


# ---- measuring ----

def under(profiler, load, folder):
    profiler.begin(load.pid, folder)
    try:
        if not isinstance(profiler, Limited):
            return load.ns()
        began = time.monotonic()
        profiler.first = load.ns(profiler.settle)
        profiler.first_s = time.monotonic() - began
        return load.ns(profiler.wait)
    finally:
        profiler.end()


def quotient(ns, alone):
    """How much slower the program is than alone, beside its twin."""
    slower = [a / b for a, b in zip(ns, alone)]
    return slower[0] / (slower[1] if len(slower) > 1 else 1)


class Rows:
    def __init__(self):
        self.rows, self.skips = [], []

    def skip(self, name, why):
        print(f"slowdown.py: skip: {name}: {why}", file=sys.stderr, flush=True)
        self.skips.append((name, str(why)))

    def tell(self, program, profiler, pairs):
        """pairs: (ns alone, how much slower)"""
        percent = [100 * (q - 1) for _, q in pairs]
        alone = statistics.median(ns for ns, _ in pairs)
        row = {"program": program.name, "unit": program.unit, "profiler": profiler.name,
               "alone_ns": alone, "percent": statistics.median(percent),
               "least": min(percent), "most": max(percent),
               "more_ns": alone * statistics.median(percent) / 100,
               "decided": getattr(profiler, "decided", ""), "remark": program.remark}
        self.rows.append(row)
        told = f"; {row['decided']}" if row["decided"] else ""
        report(f"slowdown.{program.name}.{re.sub(r'[^a-z0-9]+', '_', profiler.name.lower())}",
               row["percent"], "percent of CPU time",
               f"{program.unit} without: {alone:.4g} ns, with: {row['more_ns']:+.4g} ns; "
               f"{len(pairs)} pairs, {min(percent):.2f} to {max(percent):.2f}{told}")

    def tell_noise(self, program, pairs):
        percent = [100 * (q - 1) for _, q in pairs]
        row = {"program": program.name, "profiler": "nobody",
               "percent": statistics.median(map(abs, percent)), "least": min(percent),
               "most": max(percent)}
        self.rows.append(row)
        report(f"slowdown.{program.name}.nobody", row["percent"], "percent of CPU time",
               f"noise: how much it differs before a profiler and after; {len(pairs)} pairs")


def measure(program, folder, rows):
    load = Load(program, folder)
    pairs, noise = {profiler: [] for profiler in program.profilers}, []
    try:
        alone = load.ns()
        for n in range(ROUNDS):
            for profiler in [x for x in pairs if n == 0 or not isinstance(x, Limited)]:
                try:
                    ns = under(profiler, load, folder)
                except known.Skip as why:
                    rows.skip(f"{program.name}, {profiler.name}", why)
                    del pairs[profiler]
                    continue
                again = load.ns()
                noise.append((alone[0], quotient(again, alone)))
                mean = [(a + b) / 2 for a, b in zip(alone, again)]
                pairs[profiler].append((mean[0], quotient(ns, mean)))
                if isinstance(profiler, Limited):
                    before = 100 * (quotient(profiler.first, mean) - 1)
                    profiler.decided += f"; until then, {profiler.first_s:.0f} s, {before:+.1f} %"
                alone = again
    finally:
        load.end()
    if noise:
        rows.tell_noise(program, noise)
    for profiler, found in pairs.items():
        if found:
            rows.tell(program, profiler, found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", metavar="DIR")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    if options.report and options.name:
        parser.error("the page is of all programs")
    rows, whole, began = Rows(), [], slow_report.load()
    for program in programs() + whole_waits.TARGETS:
        if options.name and program.name not in options.name:
            continue
        folder = tempfile.mkdtemp(prefix="pf-")
        os.chmod(folder, 0o755)
        try:
            if program in whole_waits.TARGETS:
                whole += whole_waits.test(program, folder, rows)
            else:
                measure(program, folder, rows)
        except known.Skip as why:
            rows.skip(program.name, why)
        except Exception as why:        # the others run even if one crashes
            traceback.print_exc()
            rows.skip(program.name, f"{type(why).__name__}: {why}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if options.report:
        slow_report.write(options.report, rows, whole, began,
                          {"rounds": ROUNDS, "seconds": LIMITED_S})


if __name__ == "__main__":
    main()
