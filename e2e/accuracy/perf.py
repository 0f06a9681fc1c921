#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf.py: what a profiler costs, beside `perf record` and bpftrace on the same work: to begin, to
name what it saw, to follow many programs. Prints one JSON object a line. `make bench` calls it, as
root.

The machine must be quiet, because other work on it adds to the costs. `podflame record` stands for
the agent: it has the same BPF programs, tables, parse child and names, without Kubernetes and
without sending.
"""
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import bpf_stats
import known
import stopped

BUSY, BUSY_HZ = 50, 99
BPFTRACE = ('BEGIN { printf("ready\\n"); } '
            'profile:hz:%d /pid == %s/ { @[ustack(perf,127)] = count(); }')
PERF = {"perf fp": ["--call-graph", "fp"], "perf dwarf": ["--call-graph", "dwarf,16384"]}


def report(name, value, unit, compared_with, goal=""):
    """value: one value, or a list with one for each round. goal: as "<= 0.2"."""
    line = {"name": name}
    if isinstance(value, list):
        line.update({"least": round(min(value), 4), "most": round(max(value), 4),
                     "rounds": len(value)})
        value = statistics.median(value)
    print(json.dumps({**line, "value": round(value, 4), "unit": unit, "goal": goal,
                      "compared_with": compared_with}), flush=True)


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
        self.p = subprocess.Popen(["perf", "record", "-q", "-F", str(hz), "-e", "cpu-clock",
                                   *PERF[self.name], "-p", str(pid),
                                   "-o", self.out], stdin=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        time.sleep(1.5)         # it does not print when it has begun

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(60)

    def stacks(self):
        """Frames from the outermost on, as podflame has them."""
        text = subprocess.run(["perf", "script", "--no-inline", "-F", "ip,sym", "-i", self.out],
                              capture_output=True, text=True, timeout=300, check=True).stdout
        rows = []
        for sample in text.split("\n\n"):
            frames = [line.split(None, 1) for line in sample.splitlines() if line.strip()]
            users = [f[1] if len(f) > 1 else "[unknown]" for f in frames if int(f[0], 16) < 1 << 63]
            if frames:
                rows.append((users[::-1], 1))
        return rows


class PerfDwarf(Perf):
    name = "perf dwarf"


class Bpftrace(Nobody):
    def __init__(self, pid, folder, hz):
        self.out = os.path.join(folder, "bpftrace.txt")
        with open(self.out, "wb") as f:
            self.p = subprocess.Popen(["bpftrace", "-B", "none", "-e", BPFTRACE % (hz, pid)],
                                      stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while b"ready" not in Path(self.out).read_bytes():
            if time.monotonic() > end or self.p.poll() is not None:
                raise RuntimeError("bpftrace does not begin")
            time.sleep(0.05)
        time.sleep(0.3)         # probes are attached after BEGIN

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(120)

    def stacks(self):
        with open(self.out, encoding="utf-8", errors="replace") as f:
            for stack, n in re.findall(r"@\[\n(.*?)\n?\]: (\d+)", f.read(), re.S):
                frames = [re.sub(r"\+\d+$", "", line.split()[1]) for line in stack.splitlines()
                          if line.strip()]
                yield frames[::-1], int(n)


# ---- CPU time until it samples ----

class Busy:
    """A process that is profiled."""

    def __init__(self, *words):
        self.p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.pid = self.p.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()


def start_podflame(pid, folder):
    recording = known.Recording(["--pid", str(pid)], os.path.join(folder, "x.folded"), BUSY_HZ)
    cpu = sum(map(bpf_stats.cpu_of, stopped.below(recording.p.pid)))
    recording.stop()
    return cpu


def start_perf(pid, folder):
    """perf acknowledges that its events are on."""
    (its_end, tell), (ask, its_answer) = os.pipe(), os.pipe()
    p = subprocess.Popen(["perf", "record", "-q", "-F", str(BUSY_HZ), "-g", "-e", "cpu-clock", "-D",
                          "-1", "--control", f"fd:{its_end},{its_answer}",
                          "-p", str(pid), "-o", os.path.join(folder, "x.data")],
                         pass_fds=(its_end, its_answer), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        os.write(tell, b"enable\n")
        if not os.read(ask, 100).startswith(b"ack"):
            raise RuntimeError("perf record does not begin")
        return bpf_stats.cpu_of(p.pid)
    finally:
        p.kill()
        p.wait()
        for fd in (its_end, tell, ask, its_answer):
            os.close(fd)


def start_bpftrace(pid, _):
    """bpftrace prints its first sample."""
    p = subprocess.Popen(["bpftrace", "-B", "none", "-e", BPFTRACE % (BUSY_HZ, pid)
                          + ' profile:hz:99 /pid == %d/ { printf("sample\\n"); }' % pid],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, bufsize=0)
    try:
        known.wait_line(p.stdout, b"sample", "bpftrace", 60)
        return bpf_stats.cpu_of(p.pid)
    finally:
        p.kill()
        p.wait()


def cpu_to_ready(folder):
    """CPU time from exec until it samples: loading and verifying BPF programs."""
    ways = {"podflame": start_podflame, "perf_fp": start_perf, "bpftrace": start_bpftrace}
    ways = {name: start for name, start in ways.items() if name == "podflame"
            or shutil.which(name.split("_")[0])}
    cpu = defaultdict(list)
    with Busy("sh", "-c", "while :; do :; done") as busy:
        for _ in range(5):
            for name in random.sample(list(ways), len(ways)):
                cpu[name].append(ways[name](busy.pid, folder))
    for name in ways:
        report(f"start.cpu.{name}", cpu[name], "CPU s",
               "from exec until it samples one process at 99 Hz",
               "<= 0.2" if name == "podflame" else "")


# ---- one second recorded, until its names are on disk ----

RECORD = {
    "podflame": "{podflame} record -F 99 -d 1 -o {out} --pid {pid}",
    "bpftrace": "bpftrace -o {out} -e 'profile:hz:99 /pid == {pid}/ {{ @[ustack(perf,127)] = "
    "count(); }} interval:s:1 {{ exit(); }}'",
    **{name: f"perf record -q -F 99 -e cpu-clock {' '.join(how)} -o {{out}}.data -p {{pid}} -- "
       f"sleep 1 && perf script --no-inline -i {{out}}.data >{{out}}"
       for name, how in (("perf_fp", PERF["perf fp"]), ("perf_dwarf", PERF["perf dwarf"]))},
}


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def recorded(name, pid, folder, pattern):
    """Wall and CPU seconds from its exec to a file with that name in it. None: the name is not
    there."""
    out = os.path.join(folder, "first.folded")
    command = RECORD[name].format(podflame=known.PODFLAME, out=out, pid=pid)
    begin, before = time.monotonic(), children_cpu()
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=120, cwd=folder)
    took = time.monotonic() - begin, children_cpu() - before
    if not re.search(pattern, Path(out).read_text(encoding="utf-8", errors="replace")):
        print(f"perf.py: skip: {name}: no name like {pattern} in what it recorded", file=sys.stderr)
        return None
    return took


def name_all(what, target, pattern, folder):
    """target: makes the process that is profiled."""
    ways = [name for name in RECORD if name == "podflame" or shutil.which(name.split("_")[0])]
    took = defaultdict(list)
    for _ in range(3):
        for name in random.sample(ways, len(ways)):
            with target() as busy:
                time.sleep(0.3)
                if t := recorded(name, busy.pid, folder, pattern):
                    took[name].append(t)
    for name in filter(took.get, ways):
        report(f"first_names.{what}.wall.{name}", [t[0] for t in took[name]], "s",
               "from exec to names on disk, a second of recording among it")
        report(f"first_names.{what}.cpu.{name}", [t[1] for t in took[name]], "CPU s", "the same")


def compiler(folder):
    """A process in libLLVM, 110 MB, for some ten seconds."""
    source = os.path.join(folder, "long.c")
    if not os.path.exists(source):
        with open(source, "w", encoding="utf-8") as f:
            for i in range(6000):
                f.write(f"int f{i}(int *a, int n) {{ int s = {i}; for (int i = 0; i < n; i++) {{ s "
                        f"+= a[i] * {i + 3}; if (s & {i % 13 + 1}) a[i] ^= s; else a[i] += s >> "
                        f"{i % 7}; }} return s; }}\n")
    return Busy("clang", "-O2", "-w", "-c", "-o", "/dev/null", source)


def first_names(program, folder):
    name_all("small", lambda: Busy(program, "100000", "now"), r"\bdeep\b", folder)
    if shutil.which("clang"):
        name_all("libLLVM", lambda: compiler(folder), "llvm", folder)
    else:
        print("perf.py: skip: no clang on this machine: names of a large library", file=sys.stderr)


# ---- many processes of the distribution ----

COMMANDS = [
    "exec python3 -c 'while True: sorted(str(i) for i in range(9999))'",
    "exec perl -e 'while (1) { $x .= \"a\"; $x =~ s/a{9}/b/g }'",
    "exec openssl speed -seconds 600 sha256", "exec xz -c /dev/zero", "exec gzip -c /dev/zero",
    "exec sha256sum /dev/zero",
    "exec awk 'BEGIN { while (1) for (i = 0; i < 1000; i++) a[i] = a[i] + length(a[i]) }'",
    "exec bzip2 -c /dev/zero",
    "while :; do for i in {1..999}; do x=$((x + i)); done; done", "exec zstd -c </dev/zero",
    "exec sort /dev/urandom -o /dev/null",
    "exec sed -E 's/(a+)b/c/' /dev/zero", "exec git hash-object --stdin </dev/zero",
    "exec tr a b </dev/zero", "exec base64 /dev/zero",
    "exec sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x+1 from c) select "
    "sum(x*x) from c'",
]


def memory_of_maps(after_id):
    """Bytes of the BPF maps with higher ids than that, and the highest id."""
    maps = bpf_stats.bpftool("map")
    return (sum(m.get("bytes_memlock", 0) for m in maps if m["id"] > after_id),
            max((m["id"] for m in maps), default=0))


def cpu_and_rss(pids):
    """Seconds of CPU time so far, and bytes of memory."""
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
        recording = known.Recording(["--pid", ",".join(str(p.pid) for p in idle)],
                                    os.path.join(folder, "idle.folded"), BUSY_HZ)
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
    busy = [subprocess.Popen(["bash", "-c", COMMANDS[i % len(COMMANDS)]], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, preexec_fn=enter) for i in range(BUSY)]
    try:
        time.sleep(2)
        _, newest = memory_of_maps(0)
        recording = known.Recording(["--cgroup", cgroup], os.path.join(folder, "many.folded"),
                                    BUSY_HZ)
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
    what = (f"{BUSY} busy processes of {len(COMMANDS)} programs of the distribution, {BUSY_HZ} Hz, "
            f"{os.cpu_count()} CPUs")
    report("accuracy.busy.cpu", 100 * (used - taken_in) / seconds, "percent of a CPU",
           what + "; otel's agent: 1.3 to 2.9")
    report("accuracy.busy.taken_in", taken_in, "CPU s",
           "from exec until all were known, BPF load among it; otel: 2.4 to 2.6")
    report("accuracy.busy.rss", rss / 2**20, "MiB",
           "record and its parse child; otel's agent: 57 to 61 MB")
    report("accuracy.busy.kernel", late / 2**20, "MiB",
           f"all its BPF maps; {one / 2**20:.1f} with one idle process; otel: 42 to 45 MB")
    report("accuracy.kernel_a_process", (more - one) / 2**10 / 40, "KiB",
           "40 more small processes of one program; otel: 41 to 56 KB")
    report("accuracy.busy.finished", 100 * finished, "percent", f"of {n} samples")


def main():
    folder = tempfile.mkdtemp(prefix="podflame-perf-")
    program = os.path.join(folder, "work")
    try:
        subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", program,
                        os.path.join(known.HERE, "programs", "work.c")], check=True)
        for peer in ("perf", "bpftrace"):
            if not shutil.which(peer):
                print(f"perf.py: skip: no {peer} on this machine", file=sys.stderr)
        cpu_to_ready(folder)
        first_names(program, folder)
        many(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
