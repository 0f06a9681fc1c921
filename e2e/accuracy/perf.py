#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf.py: what profiling costs beside `perf record` on the same work: one JSON object a line. Run by `make bench`, as root.

A quiet machine is needed for costs: what others do beside it is in them. `podflame record` stands for the agent: the same
BPF programs, tables, parse child and names, without Kubernetes and the wire.
"""
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import known
import stopped

ROUNDS = int(os.environ.get("ROUNDS", "5"))
COST_HZ, WORK_ROUNDS = 1999, 250        # 1.7 s of CPU time
BUSY, BUSY_HZ = 50, 99
CHAINS = [known.chain_pattern("_start > ... > main > " + c, "") for c in ("shallow", "middle*31", "deep*60")]
PERF = {"perf fp": ["--call-graph", "fp"], "perf dwarf": ["--call-graph", "dwarf,16384"]}


def report(name, value, unit, compared_with):
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "compared_with": compared_with}), flush=True)


# ---- the same work under each profiler ----

class Nobody:
    def __init__(self, pid, folder, hz):
        pass

    def stop(self):
        pass

    def stacks(self):
        return []


class Podflame(Nobody):
    def __init__(self, pid, folder, hz):
        self.r = known.Recording(["--pid", str(pid)], os.path.join(folder, "out.folded"), hz)

    def stop(self):
        self.r.stop()

    def stacks(self):
        return known.read_folded(self.r.output)


class Perf(Nobody):
    name = "perf fp"

    def __init__(self, pid, folder, hz):
        self.out = os.path.join(folder, "perf.data")
        self.p = subprocess.Popen(["perf", "record", "-q", "-F", str(hz), "-e", "cpu-clock", *PERF[self.name], "-p", str(pid),
                                   "-o", self.out], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)         # it does not say when it has begun

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(60)

    def stacks(self):
        """From the outermost on, like podflame's."""
        text = subprocess.run(["perf", "script", "--no-inline", "-F", "ip,sym", "-i", self.out], capture_output=True, text=True,
                              timeout=300, check=True).stdout
        rows = []
        for sample in text.split("\n\n"):
            frames = [line.split(None, 1) for line in sample.splitlines() if line.strip()]
            users = [f[1] if len(f) > 1 else "[unknown]" for f in frames if int(f[0], 16) < 1 << 63]
            if frames:
                rows.append((users[::-1], 1))
        return rows


class PerfDwarf(Perf):
    name = "perf dwarf"


PROFILERS = {"nobody": Nobody, "podflame": Podflame, "perf fp": Perf, "perf dwarf": PerfDwarf}


def work(program, profiler, hz, folder, rounds=WORK_ROUNDS):
    """CPU ns of each of its functions, and the stacks seen."""
    p = subprocess.Popen([program, str(rounds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    known.wait_line(p.stdout, b"ready", "work", 10)
    watcher = profiler(p.pid, folder, hz)
    p.stdin.write(b"\n")
    text = known.wait_line(p.stdout, b"done", "work", 120).decode()
    watcher.stop()
    p.stdin.close()
    p.wait(10)
    return {name: int(ns) for name, ns in re.findall(r"(\w+) (\d+)", text)}, watcher.stacks()


def wholes(stacks):
    total = sum(n for _, n in stacks)
    whole = sum(n for frames, n in stacks if any(c.fullmatch("".join(f + ";" for f in frames)) for c in CHAINS))
    return whole / total if total else 0, total


def share(ns, name):
    return 100 * ns[name] / sum(ns.values())


def same_work(program, folder):
    cost, moved, whole = ({name: [] for name in PROFILERS} for _ in range(3))
    for _ in range(ROUNDS):
        alone, _ = work(program, Nobody, COST_HZ, folder)
        for name, profiler in PROFILERS.items():
            ns, stacks = work(program, profiler, COST_HZ, folder)
            samples = sum(n for _, n in stacks) or sum(ns.values()) * COST_HZ // 10**9
            cost[name].append((sum(ns.values()) - sum(alone.values())) / samples / 1000)
            moved[name].append(max(abs(share(ns, k) - share(alone, k)) for k in ns))
            if stacks:
                whole[name].append(wholes(stacks)[0])
    for name in PROFILERS:
        spread = f"{ROUNDS} rounds, {min(cost[name]):.1f} to {max(cost[name]):.1f}"
        report(f"accuracy.cost_a_sample.{name}", statistics.median(cost[name]), "us/sample",
               f"the same work without profiler, {COST_HZ} Hz, depths 3, 33, 62: {spread}"
               + ("; nothing measured: this is noise" if name == "nobody" else ""))
        report(f"accuracy.split_moved.{name}", statistics.median(moved[name]), "points",
               "largest shift of a function's part of the CPU time, of the same work without profiler")
        if whole[name]:
            report(f"accuracy.whole_stacks.{name}", 100 * statistics.median(whole[name]), "percent",
                   "samples whose every frame is the one of the source")


# ---- how long until something is seen ----

def first_stack(program, folder):
    """From exec to a file with a known function in it; every one of these records for one second."""
    def timed(command, seen):
        begin = time.monotonic()
        p = subprocess.Popen([program, "100000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)
        p.stdin.write(b"\n")
        try:
            subprocess.run(command(str(p.pid)), shell=True, check=True, capture_output=True, timeout=60)
            if not seen():
                return float("nan")
            return time.monotonic() - begin
        finally:
            p.kill()
            p.wait()
    out = os.path.join(folder, "first")

    def has_name(path):
        with open(path, encoding="utf-8", errors="replace") as f:
            return "main;deep;" in (text := f.read()) or re.search(r"\bdeep\b", text)
    ways = {"podflame": f"{known.PODFLAME} record -F 99 -d 1 -o {out}.folded --pid "}
    for name, how in PERF.items():
        ways[name] = f"cd {folder} && perf record -q -F 99 -e cpu-clock {' '.join(how)} -o {out}.data -p $PID -- sleep 1 && " \
                     f"perf script --no-inline -i {out}.data >{out}.folded"
    for name, command in ways.items():
        took = [timed(lambda pid, c=command: c.replace("$PID", pid) if "$PID" in c else c + pid,
                      lambda: has_name(out + ".folded")) for _ in range(3)]
        report(f"accuracy.first_symbolized_stack.{name}", statistics.median(took), "s",
               "exec to a known function's name on disk, one second of recording among it; median of 3")


def cpu_to_ready():
    """CPU time of `record` until it samples: loading and verifying BPF programs."""
    p = subprocess.Popen(["sleep", "60"])
    try:
        with tempfile.TemporaryDirectory() as d:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            known.Recording(["--pid", str(p.pid)], os.path.join(d, "x.folded"), 99).stop()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        p.kill()
        p.wait()
    report("accuracy.start_and_stop", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "CPU s",
           "record from exec to exit, with nothing sampled")


# ---- many processes of the distribution ----

COMMANDS = [
    "exec python3 -c 'while True: sorted(str(i) for i in range(9999))'", "exec perl -e 'while (1) { $x .= \"a\"; $x =~ s/a{9}/b/g }'",
    "exec openssl speed -seconds 600 sha256", "exec xz -c /dev/zero", "exec gzip -c /dev/zero", "exec sha256sum /dev/zero",
    "exec awk 'BEGIN { while (1) for (i = 0; i < 1000; i++) a[i] = a[i] + length(a[i]) }'", "exec bzip2 -c /dev/zero",
    "while :; do for i in {1..999}; do x=$((x + i)); done; done", "exec zstd -c </dev/zero", "exec sort /dev/urandom -o /dev/null",
    "exec sed -E 's/(a+)b/c/' /dev/zero", "exec git hash-object --stdin </dev/zero", "exec tr a b </dev/zero", "exec base64 /dev/zero",
    "exec sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x+1 from c) select sum(x*x) from c'",
]


def bpftool(what):
    """All maps ("map") or programs ("prog") of the kernel."""
    program = shutil.which("bpftool", path="/usr/sbin:/sbin:" + os.environ["PATH"])
    return json.loads(subprocess.run([program, what, "show", "-j"], capture_output=True, text=True, check=True).stdout or "[]")


def memory_of_maps(after_id):
    """Bytes of BPF maps newer than that, and the newest one's id."""
    maps = bpftool("map")
    return sum(m.get("bytes_memlock", 0) for m in maps if m["id"] > after_id), max((m["id"] for m in maps), default=0)


def cpu_and_rss(pids):
    """Seconds of CPU time so far, bytes."""
    ns = rss = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as f:
                ns += int(f.read().split()[0])
        with open(f"/proc/{pid}/statm", encoding="utf-8") as f:
            rss += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return ns / 1e9, rss


def idle_maps(folder, n):
    """Bytes of BPF maps with n idle processes selected."""
    idle = [subprocess.Popen(["sleep", "60"]) for _ in range(n)]
    try:
        _, newest = memory_of_maps(0)
        recording = known.Recording(["--pid", ",".join(str(p.pid) for p in idle)], os.path.join(folder, "idle.folded"), BUSY_HZ)
        time.sleep(1.5)
        size = memory_of_maps(newest)[0]
        recording.stop()
        return size
    finally:
        for p in idle:
            p.kill()
            p.wait()


def many(folder):
    """podflame's own CPU time and memory with many busy programs selected."""
    one, more = idle_maps(folder, 1), idle_maps(folder, 41)
    cgroup = known.new_cgroup()

    def enter():
        with open(f"{cgroup}/cgroup.procs", "w", encoding="utf-8") as f:
            f.write("0")
    busy = [subprocess.Popen(["bash", "-c", COMMANDS[i % len(COMMANDS)]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, preexec_fn=enter) for i in range(BUSY)]
    try:
        time.sleep(2)
        _, newest = memory_of_maps(0)
        recording = known.Recording(["--cgroup", cgroup], os.path.join(folder, "many.folded"), BUSY_HZ)
        time.sleep(8)           # all have been seen, all files read
        taken_in, _ = cpu_and_rss(stopped.below(recording.p.pid))
        begin = time.monotonic()
        time.sleep(10)
        used, rss = cpu_and_rss(stopped.below(recording.p.pid))
        seconds = time.monotonic() - begin
        late = memory_of_maps(newest)[0]
        said = recording.stop()
    finally:
        for p in busy:
            stopped.end(p)
        time.sleep(0.2)
        os.rmdir(cgroup)
    n = int((re.search(r"(\d+) samples", said) or [0, 0])[1])
    rows = known.read_folded(os.path.join(folder, "many.folded"))
    finished = sum(c for f, c in rows if not known.unfinished(f)) / max(1, sum(c for _, c in rows))
    what = f"{BUSY} busy processes of {len(COMMANDS)} programs of the distribution, {BUSY_HZ} Hz, {os.cpu_count()} CPUs"
    report("accuracy.busy.cpu", 100 * (used - taken_in) / seconds, "percent of a CPU", what + "; otel's agent: 1.3 to 2.9")
    report("accuracy.busy.taken_in", taken_in, "CPU s", "from exec until all were known, BPF load among it; otel: 2.4 to 2.6")
    report("accuracy.busy.rss", rss / 2**20, "MiB", "record and its parse child; otel's agent: 57 to 61 MB")
    report("accuracy.busy.kernel", late / 2**20, "MiB", f"all its BPF maps; {one / 2**20:.1f} with one idle process; otel: 42 to 45 MB")
    report("accuracy.kernel_a_process", (more - one) / 2**10 / 40, "KiB", "40 more small processes of one program; otel: 41 to 56 KB")
    report("accuracy.busy.finished", 100 * finished, "percent", f"of {n} samples")


def main():
    folder = tempfile.mkdtemp(prefix="podflame-perf-")
    program = os.path.join(folder, "work")
    try:
        subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", program, os.path.join(known.HERE, "programs", "work.c")], check=True)
        if not shutil.which("perf"):
            print("perf.py: no perf on this machine: podflame alone", file=sys.stderr)
            for name in PERF:
                del PROFILERS[name]
            PERF.clear()
        cpu_to_ready()
        first_stack(program, folder)
        same_work(program, folder)
        many(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
