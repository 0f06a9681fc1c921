#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sample_cost.py: what one sample costs, beside bpftrace and perf on the same work. Prints one JSON
object a line. `make bench` calls it, as root.

In each round the same work runs under each profiler and twice without one, in an order drawn by
chance. The CPU time that a sample adds to the work contains the timer interrupt, which every
profiler pays; the run time of BPF programs does not. A tick that finds a process that the profiler
does not profile is measured in the same round and subtracted from the run time of BPF programs.
"""
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

import bpf_stats
import known
import perf

ROUNDS = int(os.environ.get("ROUNDS", "5"))
HZ, WORK_ROUNDS = 1999, 200         # 1.3 s of CPU time
CHAINS = [known.chain_pattern("_start > ... > main > " + c, "")
          for c in ("shallow", "middle*31", "deep*60")]
DEPTHS = f"depths 3, 33 and 62, {HZ} Hz"
FP, OMITTED = "fp", "no_fp"
FLAGS = {FP: "-fno-omit-frame-pointer", OMITTED: "-fomit-frame-pointer"}
WAYS = {FP: [perf.Podflame, perf.Bpftrace, perf.Perf],
        OMITTED: [perf.Podflame, perf.Perf, perf.PerfDwarf]}
NEEDS = {perf.Bpftrace: "bpftrace", perf.Perf: "perf", perf.PerfDwarf: "perf"}
NAMES = {perf.Podflame: "podflame", perf.Bpftrace: "bpftrace", perf.Perf: "perf_fp",
         perf.PerfDwarf: "perf_dwarf"}


def process_of(watcher):
    return watcher.r.p.pid if isinstance(watcher, perf.Podflame) else watcher.p.pid


def has_bpf(profiler):
    return profiler in (perf.Podflame, perf.Bpftrace)


class Done:
    """One run of the work: CPU ns of its functions, the stacks seen, BPF run time and runs."""

    def __init__(self, program, profiler, folder, somebody_else=None):
        p = subprocess.Popen([program, str(WORK_ROUNDS)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, bufsize=0)
        try:
            known.wait_line(p.stdout, b"ready", "work", 10)
            watcher = profiler(somebody_else or p.pid, folder, HZ)
            before = bpf_stats.of_ticks(process_of(watcher)) if has_bpf(profiler) else (0, 0)
            p.stdin.write(b"\n")
            text = known.wait_line(p.stdout, b"done", "work", 120).decode()
            after = bpf_stats.of_ticks(process_of(watcher)) if has_bpf(profiler) else (0, 0)
            watcher.stop()
        finally:
            p.kill()
            p.wait()
        self.parts = {name: int(ns) for name, ns in re.findall(r"(\w+) (\d+)", text)}
        self.ns = sum(self.parts.values())
        before_names = perf.children_cpu()
        self.stacks = list(watcher.stacks()) if not somebody_else else []
        self.names_cpu = perf.children_cpu() - before_names     # of `perf script`
        self.samples = sum(n for _, n in self.stacks)
        self.bpf_ns, self.bpf_runs = after[0] - before[0], after[1] - before[1]

    def whole(self):
        n = sum(n for frames, n in self.stacks if any(c.fullmatch("".join(f + ";" for f in frames))
                                                      for c in CHAINS))
        return 100 * n / max(1, self.samples)

    def moved(self, alone):
        """The largest shift of a function's part of the CPU time, in points."""
        def part_alone(k):
            return statistics.mean(a.parts[k] / a.ns for a in alone)
        return 100 * max(abs(self.parts[k] / self.ns - part_alone(k)) for k in self.parts)


def ns_filtered(profiler, program, folder):
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        done = Done(program, profiler, folder, somebody_else=sleep.pid)
        return done.bpf_ns / max(1, done.bpf_runs)
    finally:
        sleep.kill()
        sleep.wait()


def one_round(kind, program, folder, profilers, found):
    ways = [perf.Nobody, perf.Nobody, *profilers]
    random.shuffle(ways)
    done = [(profiler, Done(program, profiler, folder)) for profiler in ways]
    alone = [d for profiler, d in done if profiler is perf.Nobody]
    alone_ns = statistics.mean(d.ns for d in alone)
    found["noise"].append(100 * (alone[0].ns / alone[1].ns - 1))
    for profiler, d in done:
        if profiler is perf.Nobody:
            continue
        name = NAMES[profiler]
        found["cost", name].append((d.ns - alone_ns) / max(1, d.samples) / 1000)
        found["whole", name].append(d.whole())
        found["moved", name].append(d.moved(alone))
        if profiler is perf.Perf:
            found["script", name].append(d.samples / d.names_cpu)
        if has_bpf(profiler):
            filtered = ns_filtered(profiler, program, folder)
            found["filtered", name].append(filtered)
            others_ns = filtered * max(0, d.bpf_runs - d.samples)
            found["bpf", name].append((d.bpf_ns - others_ns) / max(1, d.samples))
    for what in ("cost", "bpf"):
        if kind == FP and found[what, "bpftrace"]:
            found["ratio", what].append(found[what, "podflame"][-1] / found[what, "bpftrace"][-1])


TELLS = [
    ("bpf", "ns/sample", f"BPF run time, without the timer; {DEPTHS}"),
    ("filtered", "ns/tick",
     "BPF run time of a tick of somebody else, idle ticks among them where a profiler has these"),
    ("cost", "us/sample", f"of the program's CPU time, the timer's interrupt among it; {DEPTHS}"),
    ("moved", "points", "largest shift of a function's part of the CPU time"),
    ("script", "samples/CPU s", "`perf script`, from its file to named frames"),
    ("whole", "percent", "samples whose every frame is the one of the source"),
]
GOALS = {"bpf": "<= 1.1", "cost": "<= 1.1"}


def tell(kind, profilers, found):
    for what, unit, against in TELLS:
        for name in (NAMES[p] for p in profilers):
            if found[what, name]:
                perf.report(f"sample.{kind}.{what}.{name}", found[what, name], unit, against)
    for what in ("bpf", "cost"):
        if found["ratio", what]:
            perf.report(f"sample.{kind}.{what}.to_bpftrace", found["ratio", what], "times",
                        "podflame's over bpftrace's, of one round each", GOALS[what])
    perf.report(f"sample.{kind}.noise", found["noise"], "percent",
                "the work without profiler, twice in a round")


def main():
    folder = tempfile.mkdtemp(prefix="podflame-sample-")
    try:
        with bpf_stats.enabled():
            for kind, flag in FLAGS.items():
                program = os.path.join(folder, kind)
                subprocess.run(["gcc", "-O2", flag, "-D_GNU_SOURCE", "-o", program,
                                os.path.join(known.HERE, "programs", "work.c")],
                               check=True)
                missing = {NEEDS[p] for p in WAYS[kind] if p in NEEDS
                           and not shutil.which(NEEDS[p])}
                if missing:
                    print(f"sample_cost.py: skip: no {', '.join(missing)} on this machine",
                          file=sys.stderr)
                profilers = [p for p in WAYS[kind] if NEEDS.get(p) not in missing]
                found = defaultdict(list)
                for _ in range(ROUNDS):
                    one_round(kind, program, folder, profilers, found)
                tell(kind, profilers, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
