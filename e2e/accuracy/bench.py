#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench.py [--report DIR] PROGRAM...: runs benches one after another. Each prints JSON objects, one
a line, and bench.py prints them, too. --report writes DIR/performance.json and .md (bench_page.py).
bench.py --page writes the page again from the numbers of the last run. `make bench` calls it, as
root, on a quiet machine.

If a bench prints "skip: ..." to stderr, the page has that line. If a bench fails, bench.py says so
and runs the others. With ROWS=1e7 it measures the hub's store a second time with so many rows. A
line that a run does not have keeps the number of the last quiet page, with its date.
"""
import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time

import bench_page
import report
import slow_report

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
MOST_S = 600            # of one program
VERSIONS = ["gcc", "clang", "bpftrace", "perf", "sqlite3"]


def machine():
    def first(path, pattern):
        with open(path, encoding="utf-8") as f:
            m = re.search(pattern, f.read(), re.M)
        return m[1].strip() if m else "?"
    m = report.machine()
    told = {name: re.search(r"\d+(\.\d+)+", report.version(f"{name} --version"))
            for name in VERSIONS}
    m["versions"] = [f"{name} {v[0]}" for name, v in told.items() if v]
    m["cpu"] = first("/proc/cpuinfo", r"^model name\s*:(.*)$")
    m["memory"] = "%.0f GiB" % (int(first("/proc/meminfo", r"^MemTotal:\s+(\d+) kB")) / 2**20)
    m["commit"] = report.version("git rev-parse --short HEAD")
    return m


class Share:
    """The percentage of the machine's CPU time that went to other programs, since this was made."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="utf-8") as f:
            ticks = [int(x) for x in f.readline().split()[1:9]]
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        hz = os.sysconf("SC_CLK_TCK")
        return {"all": sum(ticks) / hz, "busy": (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / hz,
                "stolen": ticks[7] / hz, "own": sum(u.ru_utime + u.ru_stime for u in own)}

    def told(self):
        spent = {k: v - self.before[k] for k, v in self.now().items()}
        return {"others": round(100 * max(0, spent["busy"] - spent["own"]) / spent["all"], 1),
                "stolen": round(100 * spent["stolen"] / spent["all"], 1)}


class Run:
    def __init__(self):
        self.lines, self.skipped, self.failed = {}, [], False

    def take(self, line):
        print(line, end="", flush=True)
        try:
            row = json.loads(line)
            self.lines[row["name"]] = row
        except (ValueError, KeyError, TypeError):
            self.skip(f"a line that is none: {line.strip()[:80]}")

    def skip(self, why):
        if why not in self.skipped:
            self.skipped.append(why)

    def errors(self, stream):
        for line in stream:
            sys.stderr.write(line)
            if m := re.search(r"^(\S+): skip: (.*)$", line):
                self.skip(m[2].strip())

    def program(self, path, env):
        name, began = os.path.basename(path), time.monotonic()
        p = subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
        threads = [threading.Thread(target=self.errors, args=(p.stderr,), daemon=True),
                   threading.Thread(target=lambda: [self.take(line) for line in p.stdout],
                                    daemon=True)]
        for t in threads:
            t.start()
        try:
            why = f"status {p.wait(MOST_S)}" if p.wait(MOST_S) else ""
        except subprocess.TimeoutExpired:
            why = f"not done in {MOST_S} s"
        # a process that one bench leaves behind would be in the next one's numbers
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, 9)
        p.wait()
        for t in threads:
            t.join(10)
        if why:
            self.skip(f"{name} failed: {why}")
            self.failed = True
        print(f"bench.py: {name}: {time.monotonic() - began:.0f} s{', ' + why if why else ''}",
              file=sys.stderr, flush=True)


def committed():
    """The last page that was committed; None: there is none."""
    got = subprocess.run(["git", "show", "HEAD:docs/performance.json"], cwd=ROOT,
                         capture_output=True, text=True, check=False)
    try:
        return json.loads(got.stdout)
    except ValueError:
        return None


KEEP = ("name", "value", "least", "most", "rounds", "unit", "goal", "compared_with")


def rows_of(lines, old):
    """The lines in the order of the page."""
    before = {r["name"]: r for r in old["rows"]} if old else {}
    rows = []
    for name in dict.fromkeys(bench_page.names()):
        was = before.get(name)
        if name in lines:
            row = {k: lines[name][k] for k in KEEP if lines[name].get(k) not in (None, "")}
            row.setdefault("compared_with", "")
            if was and bench_page.is_quiet(old):
                row["before"] = {k: was[k] for k in ("value", "least", "most") if k in was}
            rows.append(row)
        elif was and bench_page.is_quiet(old):
            rows.append({"date": old["machine"]["date"], **was})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", metavar="DIR")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("program", nargs="*")
    options = parser.parse_args()
    if options.page:
        bench_page.write(bench_page.read(), bench_page.DOCS)
        return 0
    run, load, began, share, old = Run(), slow_report.load(), time.monotonic(), Share(), committed()
    env = {k: v for k, v in os.environ.items() if k != "ROWS"}
    for path in options.program:
        run.program(path, env)
        if os.path.basename(path) == "store_bench" and "ROWS" in os.environ:
            run.program(path, os.environ)
    if options.report:
        data = {"machine": machine(), "minutes": round((time.monotonic() - began) / 60),
                "load": [load, slow_report.load()], **share.told(),
                "before": {"date": old["machine"]["date"], "cpu": old["machine"]["cpu"],
                           "others": old["others"]} if old and bench_page.is_quiet(old) else None,
                "skipped": run.skipped, "rows": rows_of(run.lines, old)}
        bench_page.write(data, options.report)
    return int(run.failed)


if __name__ == "__main__":
    sys.exit(main())
