#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""languages.py: what it costs to profile Python, Java and Lua, with podflame and with other
profilers. Prints one JSON object a line. `make languages-cost` calls it, as root.

In each round one process of a language does the same work again and again, under each profiler and
under none, in an order drawn by chance. The machine's other load is in all of them. A thread of its
own with the highest priority ticks each millisecond: what stops the process stops it, too.
"""
import contextlib
import mmap
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

import beside
import bpf_stats
import known
import perf
import programs
import pyspy
import stopped

ROUNDS = int(os.environ.get("ROUNDS", "5"))
HZ, FAST_HZ = 99, 1999
DEPTH, DEEP = 30, 130               # frames of the program's own, main and leaf among them
LEARN_FOR = "300ms"
# CPU time of the work while a profiler learns the process, and of what is measured
LEARN_S, WORK_S = 0.2, 0.7
SETTLE_S = 2.2                      # podflame looks up names at the end of the first second

PYTHON = """
import sys
def leaf():
    x = 1
    for i in range(20000):
        x = x * 31 + i & 65535
    return x
def down(depth):
    return down(depth - 1) if depth else leaf()
def run(depth, units):
    for _ in range(units):
        down(depth)
for line in sys.stdin:
    depth, units = map(int, line.split())
    run(depth - 4, units)
    print("done", flush=True)
"""
JAVA = """
public class Work {
    static long sink;
    static long leaf() {
        long x = 1;
        for (int i = 0; i < 20000; i++) x = x * 31 + i & 65535;
        return x;
    }
    static long down(int depth) { return depth > 0 ? down(depth - 1) : leaf(); }
    static void run(int depth, int units) { for (int i = 0; i < units; i++) sink += down(depth); }
    public static void main(String[] args) {
        java.util.Scanner in = new java.util.Scanner(System.in);
        for (; in.hasNextInt(); System.out.println("done")) run(in.nextInt() - 4, in.nextInt());
    }
}
"""
LUA = """
function leaf()
    local x = 1
    for i = 1, 20000 do x = (x * 31 + i) % 65536 end
    return x
end
function down(depth)
    local x
    if depth > 0 then x = down(depth - 1) else x = leaf() end
    return x
end
function run(depth, units)
    for _ = 1, units do down(depth) end
end
for line in io.lines() do
    local depth, units = line:match("(%d+) (%d+)")
    run(depth - 4, tonumber(units))
    print("done")
    io.stdout:flush()
end
"""
HEARTBEAT = r"""
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

static void *beat(void *arg)
{
    volatile uint64_t *longest = arg;
    uint64_t last = 0, now;
    struct timespec t = {0, 1000000};

    prctl(PR_SET_NAME, "heartbeat");
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = t.tv_sec * 1000000000ull + t.tv_nsec;
        if (last && now - last > *longest)
            *longest = now - last;
        last = now;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

__attribute__((constructor)) static void begin(void)
{
    int fd = getenv("HEARTBEAT") ? open(getenv("HEARTBEAT"), O_RDWR | O_CLOEXEC) : -1;
    struct sched_param above = {1};
    pthread_attr_t a;
    pthread_t t;

    unsetenv("LD_PRELOAD");
    if (fd < 0)
        return;
    pthread_attr_init(&a);
    pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&a, SCHED_FIFO);
    pthread_attr_setschedparam(&a, &above);
    if (pthread_create(&t, &a, beat, mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)))
        abort();
}
"""


# ---- the work ----

class Work:
    """A process that does units of work on request."""

    def __init__(self, language, folder):
        self.command = language.command(folder)
        beats = os.path.join(folder, "heartbeat")
        with open(beats, "wb") as f:
            f.write(bytes(8))
        with open(beats, "r+b") as f:
            self.longest = mmap.mmap(f.fileno(), 8)
        self.p = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  bufsize=0, cwd=folder,
                                  env={**os.environ, "LD_PRELOAD": f"{folder}/heartbeat.so",
                                       "HEARTBEAT": beats})
        self.per_second = 50
        for _ in range(3):      # so often also for a JIT compiler
            self.per_second = max(1, round(self.per_second / self.cpu(DEPTH, 0.4)[0] * 0.4))

    def begin(self, depth, seconds):
        units = max(1, round(seconds * self.per_second))
        self.p.stdin.write(f"{depth} {units}\n".encode())
        return units

    def cpu(self, depth, seconds):
        """Does so much work; returns (CPU, units)."""
        before = perf.cpu_and_rss([self.p.pid])[0]
        units = self.begin(depth, seconds)
        known.wait_line(self.p.stdout, b"done", "work", 120)
        return perf.cpu_and_rss([self.p.pid])[0] - before, units

    def gap(self):
        """The longest gap between two ticks since the last call, in ns."""
        longest = struct.unpack("Q", self.longest[:])[0]
        self.longest[:] = bytes(8)
        return longest

    def end(self):
        self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()


# ---- profilers: stacks() has (frames from the outermost on, number) of the thread that works ----

class Podflame(perf.Podflame):
    """A busy process in the kernel runs beside it, because an agent reads the kernel's names once,
    not once for each target."""

    def __init__(self, pid, folder, hz):
        self.kernel = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"],
                                       stderr=subprocess.DEVNULL) if hz == HZ else None
        super().__init__(f"{pid},{self.kernel.pid}" if self.kernel else pid, folder, hz)
        self.pids = stopped.below(self.r.p.pid)
        self.said = ""

    def settled(self):
        """The CPU time of the processes that are not the profiler's."""
        before = perf.children_cpu()
        if self.kernel:
            self.kernel.kill()
            self.kernel.wait()
        return perf.children_cpu() - before

    def stop(self):
        self.said = self.r.stop()

    def stacks(self):
        with open(self.r.output, encoding="utf-8") as f:
            for line in f:
                stack, n = line.rstrip("\n").rsplit(" ", 1)
                process, thread, *frames = stack.split(";")
                # the thread that works has the name of its process
                if thread[4:] == process != "dd":
                    yield frames, int(n)


class PySpy(perf.Nobody):
    def __init__(self, pid, folder, hz):
        self.out = os.path.join(folder, "pyspy.raw")
        self.p = subprocess.Popen([pyspy.PYSPY, "record", "-r", str(hz), "-f", "raw", "-d", "600",
                                   "-o", self.out, "-p", str(pid)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.pids = [self.p.pid]
        time.sleep(1)           # as in Perf

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(60)

    def stacks(self):
        with open(self.out, encoding="utf-8") as f:
            for line in f:
                stack, n = line.rstrip("\n").rsplit(" ", 1)
                yield stack.split(";"), int(n)


class AsyncProfiler(perf.Nobody):
    """It runs in the target, so its CPU time is in the target's."""

    def __init__(self, pid, folder, hz):
        self.pid, self.out, self.pids = pid, os.path.join(folder, "async.collapsed"), []
        self.load(f"start,event=itimer,interval={10**9 // hz},threads,collapsed,file={self.out}")

    def load(self, words):
        beside.load_agent(programs.JDKS[17], self.pid, beside.async_profiler(), words)

    def stop(self):
        self.load(f"stop,threads,collapsed,file={self.out}")

    def stacks(self):
        with open(self.out, encoding="utf-8") as f:
            for line in f:
                stack, n = line.rstrip("\n").rsplit(" ", 1)
                thread, *frames = stack.split(";")
                if thread.startswith("[main "):
                    yield [re.sub(r"_\[\w\]$", "", x).replace(".", "::") for x in frames], int(n)


class Perf(perf.Perf):
    def __init__(self, pid, folder, hz):
        super().__init__(pid, folder, hz)
        self.pids = [self.p.pid]


class PerfMap(Perf):
    def __init__(self, pid, folder, hz):
        super().__init__(pid, folder, hz)
        self.target = pid

    def stop(self):
        """Writes the perf map, which `perf script` reads, after the methods have run."""
        super().stop()
        subprocess.run([f"{programs.JDKS[17]}/bin/jcmd", str(self.target), "Compiler.perfmap"],
                       check=True, capture_output=True, timeout=60)

    def stacks(self):
        for frames, n in super().stacks():
            if not re.search("CompileBroker|GangWorker|WorkerThread|VMThread", " ".join(frames)):
                yield [re.sub(r"^\S+ (\w+)\.(\w+)\(.*", r"\1::\2", f) for f in frames], n


# ---- languages ----

class Language:
    def __init__(self, name, words, frames, peers=()):
        self.name, self.words, self.peers = name, words, dict(peers)
        main, run, down, leaf = frames
        self.wanted = [main, run] + (DEPTH - 3) * [down] + [leaf]
        self.frame = {re.compile(f): f for f in frames}

    def command(self, folder):
        return [word.format(folder) for word in self.words]

    def whole(self, frames):
        """Each of the program's frames in its place; whatever runs it may lie between."""
        seen = [own for frame in frames for pattern, own in self.frame.items()
                if pattern.fullmatch(frame)]
        # A sample may also be taken on the way to the leaf.
        return seen == self.wanted or 0 < len(seen) < DEPTH - 1 and seen == self.wanted[:len(seen)]


def own(pattern, *names):
    return [pattern.format(name) for name in names]


def languages():
    java = programs.JDKS.get(17, "/none") + "/bin/java"
    python = own(r"(?:__main__\.)?{}(?: \(.*\))?", "<module>", "run", "down", "leaf")
    methods = own(r"Work::{}", "main", "run", "down", "leaf")
    lua = own(r"(?:function )?'?{}'?", "main chunk", "run", "down", "leaf")
    with_perf = bool(shutil.which("perf"))
    inside = {}
    with contextlib.suppress(known.Skip):
        inside = {"async-profiler": AsyncProfiler} if beside.async_profiler() else {}
    found = [
        Language("python 3.11", ["/usr/bin/python3.11", "{}/work.py"], python,
                 ([("py-spy", PySpy)] if os.access(pyspy.PYSPY, os.X_OK) else [])
                 + ([("perf fp", Perf)] if with_perf else [])),
        Language("java 17", [java, "-Xmx256m", "-cp", "{}", "Work"], methods,
                 [*inside.items()] + ([("perf fp with a map", PerfMap)] if with_perf else [])),
        Language("java 17 -Xint", [java, "-Xint", "-Xmx256m", "-cp", "{}", "Work"], methods,
                 inside),
        Language("lua 5.4", ["/usr/bin/lua5.4", "{}/work.lua"], lua),
        Language("luajit", ["/usr/bin/luajit", "{}/work.lua"], lua),
    ]
    for language in found:
        if os.access(language.words[0], os.X_OK):
            yield language
        else:
            print(f"languages.py: no {language.words[0]}, {language.name} left out",
                  file=sys.stderr)


def prepare(folder):
    for name, text in {"work.py": PYTHON, "Work.java": JAVA, "work.lua": LUA,
                       "heartbeat.c": HEARTBEAT}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-fPIC", "-shared", "-o", "heartbeat.so",
                    "heartbeat.c", "-lpthread"], cwd=folder,
                   check=True)
    if 17 in programs.JDKS:
        subprocess.run([f"{programs.JDKS[17]}/bin/javac", "-d", folder, "Work.java"], cwd=folder,
                       check=True)


# ---- the kernel's own measure ----

def ns_filtered_out(folder):
    """BPF run time of a tick of a process that is not selected."""
    spin = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        recording = known.Recording(["--pid", str(sleep.pid)], os.path.join(folder, "none.folded"),
                                    FAST_HZ)
        time.sleep(1.5)
        ns, runs = bpf_stats.of_ticks(recording.p.pid)
        recording.stop()
        return ns / runs
    finally:
        for p in (spin, sleep):
            p.kill()
            p.wait()


# ---- what a new process takes ----

def learn(pid, folder, pattern):
    """CPU and wall seconds from exec until the names are in the file. A short recording is part of
    that."""
    out = os.path.join(folder, "learn.folded")
    before, begin = perf.children_cpu(), time.monotonic()
    subprocess.run([known.PODFLAME, "record", "-d", LEARN_FOR, "-o", out, "--pid", str(pid)],
                   check=True, capture_output=True, timeout=60)
    seconds, cpu = time.monotonic() - begin, perf.children_cpu() - before
    with open(out, encoding="utf-8") as f:
        if not re.search(pattern, f.read()):
            raise RuntimeError(f"{pattern} is in no stack of the first {LEARN_FOR}")
    return cpu, seconds


def learn_shell(folder):
    """What record takes for any process, with the names of libc."""
    spin = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        return learn(spin.pid, folder, "main")
    finally:
        spin.kill()
        spin.wait()


def learn_language(work, folder, results):
    shell = learn_shell(folder)
    work.begin(DEPTH, 600)
    for what, theirs, ours in zip(("cpu", "wall"), shell, learn(work.p.pid, folder, "down;")):
        results.add(("learn", what), 1000 * (ours - theirs))


# ---- measuring ----

class Results:
    def __init__(self):
        self.rows = defaultdict(list)

    def add(self, what, value):
        self.rows[what].append(value)

    def report(self, name, what, unit, compared_with):
        values = self.rows[what]
        if values:
            spread = f"{len(values)} rounds, {min(values):.4g} to {max(values):.4g}"
            perf.report(name, statistics.median(values), unit, f"{compared_with}; {spread}")


def watch(work, profiler, hz, folder, depth=DEPTH):
    """(CPU seconds a unit of the target, the profiler, {what else was measured})"""
    used, all_before = {}, perf.children_cpu()
    work.gap()
    watcher = profiler(work.p.pid, folder, hz)
    pids = getattr(watcher, "pids", [])
    known_from = time.monotonic() + (SETTLE_S if isinstance(watcher, Podflame) and hz == HZ else 0)
    work.cpu(depth, LEARN_S)
    time.sleep(max(0, known_from - time.monotonic()))
    if isinstance(watcher, Podflame):
        all_before += watcher.settled()
    used["gap at start"] = work.gap() / 1e6
    before, begin = perf.cpu_and_rss(pids)[0], time.monotonic()
    cpu, units = work.cpu(depth, WORK_S)
    seconds = time.monotonic() - begin
    after, rss = perf.cpu_and_rss(pids)
    used["cpu"], used["rss"] = 100 * (after - before) / seconds, rss / 2**20
    if isinstance(watcher, Podflame) and hz == FAST_HZ:
        used["bpf"] = bpf_stats.of_ticks(watcher.r.p.pid)
    used["gap"] = work.gap() / 1e6
    watcher.stop()
    used["all"] = perf.children_cpu() - all_before
    return cpu / units, watcher, used


def ns_a_sample(watcher, used, filtered_ns):
    ns, runs = used["bpf"]
    samples = int(re.search(r"(\d+) samples", watcher.said)[1])
    return (ns - filtered_ns * max(0, runs - samples)) / samples


def one_round(language, folder, filtered_ns, results):
    """The profilers in the order that they run: those that run inside of the process come last."""
    ways = 2 * [("nobody", perf.Nobody, 0)] + [("podflame", Podflame, HZ),
                                               ("podflame", Podflame, FAST_HZ)]
    ways += [(name, profiler, HZ) for name, profiler in language.peers.items()]
    random.shuffle(ways)
    ways.sort(key=lambda way: way[1] is AsyncProfiler)
    costs = defaultdict(list)
    work = Work(language, folder)
    try:
        for name, profiler, hz in ways:
            cost, watcher, used = watch(work, profiler, hz, folder)
            costs[name, hz].append(cost)
            for key in ("cpu", "rss", "all", "gap", "gap at start"):
                results.add((key, name, hz), used[key])
            if profiler is perf.Nobody:
                continue
            stacks = list(watcher.stacks())
            for key, n in (("whole", sum(n for f, n in stacks if language.whole(f))),
                           ("samples", sum(n for _, n in stacks))):
                results.add((key, name, hz), n)
            if "bpf" in used:
                results.add(("ns", DEPTH), ns_a_sample(watcher, used, filtered_ns))
        # async-profiler has ended but is still loaded, so CPU times are not reported from here on
        *_, watcher, used = watch(work, Podflame, FAST_HZ, folder, DEEP)
        results.add(("ns", DEEP), ns_a_sample(watcher, used, filtered_ns))
        results.add(("ns", "frame"),
                    (results.rows["ns", DEEP][-1] - results.rows["ns", DEPTH][-1]) / (DEEP - DEPTH))
        learn_language(work, folder, results)
    finally:
        work.end()
    alone = costs.pop(("nobody", 0))
    results.add("noise", 100 * (alone[0] / alone[1] - 1))
    for (name, hz), (cost,) in costs.items():
        results.add(("slower", name, hz), 100 * (cost / statistics.mean(alone) - 1))


def tell(language, results):
    prefix = f"languages.{language.name.replace(' ', '_')}"
    for depth in (DEPTH, DEEP):
        results.report(f"{prefix}.depth_{depth}", ("ns", depth), "ns/sample",
                       "BPF run time; depth is the program's own frames")
    results.report(f"{prefix}.frame", ("ns", "frame"), "ns/frame",
                   "a frame of the program, its native ones among it")
    results.report(f"{prefix}.learn_cpu", ("learn", "cpu"), "CPU ms",
                   "of record, more than for a shell: files and process")
    results.report(f"{prefix}.learn", ("learn", "wall"), "ms",
                   "from exec to the program's names on disk, more than for a shell")
    results.report(f"{prefix}.noise", "noise", "percent", "the same work twice without profiler")
    gaps(prefix, ("nobody", 0), results)
    for kind, name, hz in [key for key in results.rows if key[0] == "samples"]:
        of = f"{prefix}.{name.replace(' ', '_')}_{hz}hz"
        n, whole = sum(results.rows[kind, name, hz]), sum(results.rows["whole", name, hz])
        perf.report(f"{of}.whole", 100 * whole / max(1, n), "percent",
                    f"of {n} samples: all {DEPTH} frames of the program, in order")
        if hz == HZ and name != "async-profiler":
            results.report(f"{of}.cpu", ("cpu", name, hz), "percent of a CPU",
                           "while the target works, once it is known")
            results.report(f"{of}.rss", ("rss", name, hz), "MiB", "as above")
        results.report(f"{of}.cpu_in_all", ("all", name, hz), "CPU s",
                       "from exec to exit, what it started among it")
        results.report(f"{of}.slowdown", ("slower", name, hz), "percent",
                       "target's CPU time a unit of work, mean of two without profiler")
        gaps(of, (name, hz), results)


def gaps(prefix, who, results):
    what = "the longest between two ticks of a thread, 1 ms apart, "
    results.report(f"{prefix}.gap", ("gap", *who), "ms", what + "while the target works")
    results.report(f"{prefix}.gap_at_start", ("gap at start", *who), "ms",
                   what + "from before the profiler starts until then")


def main():
    folder = tempfile.mkdtemp(prefix="podflame-languages-")
    os.chmod(folder, 0o755)
    try:
        prepare(folder)
        with bpf_stats.enabled():
            filtered_ns = ns_filtered_out(folder)
            for language in languages():
                results = Results()
                for _ in range(ROUNDS):
                    one_round(language, folder, filtered_ns, results)
                tell(language, results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
