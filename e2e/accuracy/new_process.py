#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""new_process.py: how soon a process of Python, Java or Lua that begins under a running profiler
has the names of its functions, and what that takes; and what a first sample of a process takes
whose files are known. Prints one JSON object a line. `make bench` calls it, as root."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

import bpf_stats
import known
import perf
import stopped

ROUNDS = int(os.environ.get("ROUNDS", "5"))
RUNS_S = 3          # the time that the program needs alone, about
PYTHON = """
import time
def leaf(n):
    x = 1
    for i in range(n):
        x = x * 31 + i & 65535
    return x
end = time.monotonic() + %d
while time.monotonic() < end:
    leaf(20000)
""" % RUNS_S
LUA = """
function leaf(n)
    local x = 1
    for i = 1, n do x = (x * 31 + i) %% 65536 end
    return x
end
local stop = os.time() + %d
while os.time() < stop do leaf(20000) end
""" % RUNS_S
JAVA = """
public class Begin {
    static long sink;
    static long leaf(int n) {
        long x = 1;
        for (int i = 0; i < n; i++) x = x * 31 + i & 65535;
        return x;
    }
    public static void main(String[] args) {
        long end = System.nanoTime() + %dL * 1000000000;
        while (System.nanoTime() < end) sink += leaf(20000);
    }
}
""" % RUNS_S
# Works N times for a millisecond: itself (steady, warm), or N processes that end then (first).
NATIVE = """
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned long sink;
#define OWN __attribute__((noinline, no_icf))
static OWN void leaf(long n) { while (n--) sink += n * sink; }
static OWN void work(void)
{
    struct timespec t, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    end.tv_nsec += 1000000;
    do {
        leaf(2000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((t.tv_sec - end.tv_sec) * 1000000000 + t.tv_nsec < end.tv_nsec);
}
static OWN void steady(void) { work(); sink++; }
static OWN void warm(void) { work(); sink++; }
static OWN void first(void) { work(); sink++; }
int main(int argc, char **argv)
{
    if (argc == 2) return first(), 0;
    for (int i = atoi(argv[2]); i > 0; i--) {
        if (argv[1][0] == 's') { steady(); continue; }
        if (argv[1][0] == 'w') { warm(); continue; }
        if (vfork() == 0) execl(argv[0], argv[0], "child", NULL), _exit(1);
        wait(NULL);
    }
    return 0;
}
"""
N_WORK = 1000       # milliseconds of work, or processes
LANGUAGES = {
    "python": ("python3", ["begin.py"], "leaf"),
    "lua": ("lua5.4", ["begin.lua"], "leaf"),
    "luajit": ("luajit", ["-joff", "begin.lua"], "leaf"),
    "java": ("java", ["-Xmx256m", "-cp", ".", "Begin"], "Begin::leaf"),
}


def prepare(folder):
    for name, text in {"begin.py": PYTHON, "begin.lua": LUA, "Begin.java": JAVA}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", folder, "Begin.java"], cwd=folder, check=True)


def cpu(recording):
    return sum(map(bpf_stats.cpu_of, stopped.below(recording.p.pid)))


def one_round(words, function, folder):
    """(ms of CPU time until the first sample with the name, CPU ms that podflame took). None: no
    sample has it."""
    out, cgroup = os.path.join(folder, "out.folded"), known.new_cgroup()
    try:
        recording = known.Recording(["--cgroup", cgroup], out)
        before = cpu(recording)
        subprocess.run(words, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=60,
                       stdout=subprocess.DEVNULL, preexec_fn=lambda: known.enter(cgroup))
        took = cpu(recording) - before
        recording.stop()
    finally:
        known.end_cgroup(cgroup)
    named = [any(function in frame for frame in frames) for frames, _ in known.read_folded(out)]
    counts = [n for _, n in known.read_folded(out)]
    late = sum(n for n, has in zip(counts, named) if not has)
    return (1000 * late / known.HZ, 1000 * took) if any(named) else None


def ticks(recording, fn):
    """ns and runs of the recording's BPF program while fn() runs."""
    before = bpf_stats.of_ticks(recording.p.pid)
    fn()
    return [b - a for a, b in zip(before, bpf_stats.of_ticks(recording.p.pid))]


def known_round(program, way, folder):
    """(BPF ns of a sample, CPU us of podflame for a millisecond of work). When it is measured, the
    program's files are known. None: the work has no sample."""
    out, cgroup = os.path.join(folder, "out.folded"), known.new_cgroup()

    def run(*words):
        subprocess.run([program, *words], check=True, timeout=60,
                       preexec_fn=lambda: known.enter(cgroup))
    try:
        recording = known.Recording(["--cgroup", cgroup], out)
        run("warm", "300")
        others_ns, others = ticks(recording, lambda: time.sleep(1))
        used = cpu(recording)
        ns, runs = ticks(recording, lambda: run(way, str(N_WORK)))
        used = cpu(recording) - used
        recording.stop()
    finally:
        known.end_cgroup(cgroup)
    n = sum(n for frames, n in known.read_folded(out) if "warm" not in frames)
    if not n:
        return None
    idle = others_ns / max(others, 1) * max(0, runs - n)    # of ticks that were of no sample
    return (ns - idle) / n, 1e6 * used / N_WORK


def known_files(folder):
    """What a process of known files costs, beside one that podflame has read."""
    program = os.path.join(folder, "native")
    subprocess.run(["gcc", "-O2", "-x", "c", "-o", program, "-"], input=NATIVE, text=True,
                   check=True)
    with bpf_stats.enabled():
        for way, what in (("first", "a first sample: of processes that live for a millisecond, "
                           "whose files are known"), ("steady", "the same work in one process")):
            rounds = list(filter(None, (known_round(program, way, folder)
                                        for _ in range(ROUNDS))))
            if not rounds:
                print(f"new_process.py: skip: {way}: the work has no sample", file=sys.stderr)
                continue
            perf.report(f"new.known.{way}.bpf", [r[0] for r in rounds], "ns/sample",
                        f"BPF run time of {what}; {known.HZ} Hz")
            perf.report(f"new.known.{way}.cpu", [r[1] for r in rounds], "CPU us",
                        f"that podflame takes for a millisecond of work; {what}")


def main():
    if os.geteuid() != 0:
        print("new_process.py: skip: only root may", file=sys.stderr)
        return
    folder, found = tempfile.mkdtemp(prefix="podflame-new-"), defaultdict(list)
    os.chmod(folder, 0o755)
    try:
        known_files(folder)
        prepare(folder)
        ways = {name: way for name, way in LANGUAGES.items() if shutil.which(way[0])
                and (name != "java" or shutil.which("javac"))}
        for name in LANGUAGES:
            if name not in ways:
                print(f"new_process.py: skip: no {name} on this machine", file=sys.stderr)
        for _ in range(ROUNDS):
            for name, (program, words, function) in ways.items():
                if took := one_round([shutil.which(program), *words], function, folder):
                    found[name].append(took)
                else:
                    print(f"new_process.py: skip: {name}: no sample has {function}",
                          file=sys.stderr)
        for name, rounds in found.items():
            perf.report(f"new.{name}.unnamed", [r[0] for r in rounds], "CPU ms",
                        f"of a new process in samples without the name of its function, the "
                        f"start of the interpreter among it; {RUNS_S} s, {known.HZ} Hz")
            perf.report(f"new.{name}.cpu", [r[1] for r in rounds], "CPU ms",
                        f"that podflame takes for such a process until its end; {RUNS_S} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
