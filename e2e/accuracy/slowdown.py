#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slowdown.py: what off-cpu and memory cost who is profiled: CPU time of a unit of work with and without, in turns. Run by `make bench`, as root.

`podflame record` has no limit: these are costs of the probes themselves. An agent holds a container to
limits.overheadPercent (node_test.c, e2e/tests/16).
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import known
from perf import report

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = 3
EVENTS = ("off-cpu", "mem-alloc", "mem-inuse")
SOURCES = os.path.join(known.HERE, "programs")
STORMS = {      # name: (commands, its build, how it runs, events); a heap that a collector moves has no mem-inuse
    "malloc_storm": (["gcc"], "gcc -O2 -o {out}/storm " + os.path.join(known.HERE, "../workloads/storm.c"), "{out}/storm", EVENTS),
    "go": (["go"], f"CGO_ENABLED=0 go build -o {{out}}/storm-go {SOURCES}/storm.go", "{out}/storm-go", EVENTS[:2]),
    "java": (["javac"], f"javac -d {{out}} {SOURCES}/Storm.java", "java -cp {out} Storm", EVENTS[:2]),
    "python": (["python3"], "true", f"/usr/bin/python3 {SOURCES}/storm.py", EVENTS),
}


def recording(pid, event, folder):
    p = subprocess.Popen([known.PODFLAME, "record", "-e", event, "-p", str(pid), "-o", os.path.join(folder, "x.folded")],
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
    known.wait_line(p.stderr, b"recording", "podflame record", 120)
    time.sleep(1)       # probes are attached when its files are known
    return p


def stop(p):
    p.terminate()
    p.communicate(timeout=120)


def tell(name, event, pairs, what):
    slower = [100 * (w / a - 1) for a, w in pairs]
    report(f"slowdown.{name}.{event}", statistics.median(slower), "percent of CPU time",
           f"{what}, without: {statistics.median(a for a, _ in pairs):.4g} ns; {len(pairs)} pairs, {min(slower):.2f} to {max(slower):.2f}")


# ---- programs that print their rate ----

class Storm:
    def __init__(self, words):
        self.p = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.rates = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.p.stdout:
            self.rates.append(int(line.split()[1]))

    def ns_of_unit(self):
        """The median of whole seconds from now on."""
        first = len(self.rates) + 1
        while len(self.rates) < first + SECONDS:
            if self.p.poll() is not None:
                raise RuntimeError("the program has ended")
            time.sleep(0.1)
        return 1e9 / statistics.median(self.rates[first:])

    def end(self):
        self.p.kill()
        self.p.wait()


def storm(name, folder):
    needs, build, run, events = STORMS[name]
    known.need(needs)
    subprocess.run(build.format(out=folder), shell=True, check=True, capture_output=True)
    s = Storm(run.format(out=folder).split())
    try:
        s.ns_of_unit()
        for event in events:
            pairs = []
            for _ in range(ROUNDS):
                alone = s.ns_of_unit()
                r = recording(s.p.pid, event, folder)
                pairs.append((alone, s.ns_of_unit()))
                stop(r)
            tell(name, event, pairs, "an allocation")
    finally:
        s.end()


# ---- redis ----

def cpu_ns(pid):
    ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as f:
            ns += int(f.read().split()[0])
    return ns


def redis(folder):
    known.need(["redis-server", "redis-benchmark"])
    socket, n = os.path.join(folder, "redis.sock"), 60000
    p = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder],
                         stdout=subprocess.DEVNULL)

    def request_ns():
        before = cpu_ns(p.pid)
        subprocess.run(["redis-benchmark", "-s", socket, "-q", "-n", str(n), "-t", "set,get", "-r", "10000", "-d", "128"], check=True,
                       stdout=subprocess.DEVNULL, timeout=300)
        return (cpu_ns(p.pid) - before) / (2 * n)
    try:
        while not os.path.exists(socket):
            time.sleep(0.05)
        request_ns()
        for event in EVENTS:
            pairs = []
            for _ in range(ROUNDS):
                alone = request_ns()
                r = recording(p.pid, event, folder)
                pairs.append((alone, request_ns()))
                stop(r)
            tell("redis", event, pairs, "a request (set, get of 128 bytes)")
    finally:
        p.kill()
        p.wait()


def main():
    for name in [*STORMS, "redis"]:
        folder = tempfile.mkdtemp(prefix="podflame-slowdown-")
        try:
            redis(folder) if name == "redis" else storm(name, folder)
        except known.Skip as why:
            print(f"slowdown.py: {name}: {why}", file=sys.stderr)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
