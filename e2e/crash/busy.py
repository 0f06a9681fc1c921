#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""busy.py: the CPU and memory that an agent takes while it profiles a machine whose CPUs are all
busy, at 99 Hz, and what it took until its first sample. bpftrace and perf profile the same machine
in turn, in an order drawn by chance. Prints one JSON object a line. `make bench` calls it, as
root."""
import contextlib
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict

from roles import Place, free_port, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../accuracy"))
import bpf_stats  # noqa: E402
import perf  # noqa: E402
import stopped  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SETTLE_S, WINDOW_S = 6, 10          # the first window's names and files come before
PROGRAMS = [["python3", "-c", "while True: sorted(str(i) for i in range(9999))"],
            ["openssl", "speed", "-seconds", "600", "sha256"]]
MB = 1e6


def memory(pids):
    """RSS, and the part of it that belongs to no file, in bytes. File pages that processes of the
    program share count once."""
    anonymous, files = 0, [0]
    for pid in pids:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            kb = {key: int(n) for key, n in re.findall(r"(?m)^Rss(Anon|File|Shmem):\s+(\d+) kB$",
                                                       f.read())}
        anonymous += kb["Anon"] * 1024
        files.append((kb["File"] + kb["Shmem"]) * 1024)
    return anonymous + max(files), anonymous


def cpu(pids):
    return sum(map(bpf_stats.cpu_of, pids))


def samples(pid):
    """Whether the agent samples: it has a perf event. Its /metrics would say so up to a second
    later, and reading them costs it CPU time."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return "anon_inode:[perf_event]" in links


def window(pid, found, name):
    """Measures for WINDOW_S, after the profiler has settled."""
    pids = stopped.below(pid)
    before, begin = cpu(pids), time.monotonic()
    time.sleep(WINDOW_S)
    found["cpu", name].append(100 * (cpu(pids) - before) / (time.monotonic() - begin))
    total, anonymous = memory(pids)
    found["rss", name].append(total / MB)
    found["rss_anonymous", name].append(anonymous / MB)


class Agent:
    def __init__(self, place, port):
        self.role, self.url = place.roles["agent"], f"http://127.0.0.1:{port}/metrics"

    def metric(self, name):
        """A metric of the agent; -1 while it does not answer."""
        try:
            with urllib.request.urlopen(self.url, timeout=5) as answer:
                found = re.search(rf"(?m)^podflame_{name} (\S+)$", answer.read().decode())
        except OSError:
            return -1
        return float(found[1]) if found else 0

    def measure(self, found, name):
        self.role.start()
        until("the agent samples", lambda: samples(self.role.process.pid))
        found["start", name].append(cpu(stopped.below(self.role.process.pid)))
        until("samples are folded", lambda: self.metric("samples_folded_total") > 0)
        time.sleep(SETTLE_S)
        folded = self.metric("samples_folded_total")
        window(self.role.process.pid, found, name)
        found["samples", name].append((self.metric("samples_folded_total") - folded) / WINDOW_S)
        self.role.end()


class Peer:
    """Another profiler, which profiles all of the machine."""

    def __init__(self, *words):
        self.words = words

    def measure(self, found, name):
        p = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            time.sleep(3)       # they do not print when they have begun
            window(p.pid, found, name)
        finally:
            # not SIGINT: bpftrace would first name all stacks of the machine, for minutes
            p.kill()
            p.wait()


def tell(found, ways):
    what = f"{os.cpu_count()} CPUs busy with Python and OpenSSL, 99 Hz"
    samples, expected = statistics.median(found["samples", "podflame"]), 99 * os.cpu_count()
    if samples < 0.9 * expected:
        print(f"busy.py: skip: {samples:.0f} samples/s where {expected} are due: others had the "
              f"CPUs", file=sys.stderr)
        return
    for name in ways:
        ours = name == "podflame"
        perf.report(f"agent.cpu.{name}", found["cpu", name], "percent of a CPU",
                    what + ("; names, windows and sending among it" if ours
                            else "; names come at its end, or later"), "<= 0.7" if ours else "")
        perf.report(f"agent.rss.{name}", found["rss", name], "MB",
                    what + ("; agent and parse child" if ours else ""), "<= 30" if ours else "")
        perf.report(f"agent.rss_anonymous.{name}", found["rss_anonymous", name], "MB",
                    "of it, what is no file's page")
    perf.report("agent.samples", found["samples", "podflame"], "samples/s",
                f"99 a busy CPU are {expected}")
    perf.report("agent.start", found["start", "podflame"], "CPU s",
                "from exec until it samples: credentials, watches and all of /proc among it",
                "<= 0.2")


def main():
    if os.geteuid() != 0:
        print("busy.py: skip: only root may", file=sys.stderr)
        return
    port, found = free_port(), defaultdict(list)
    with Place(window="10s", agent=f"health:\n  address: 127.0.0.1\n  port: {port}\n") as place:
        ways = {"podflame": Agent(place, port),
                "bpftrace": Peer("bpftrace", "-o", f"{place.dir}/bpftrace.txt", "-e",
                                 "profile:hz:99 { @[ustack(perf,127), kstack(perf,127), comm] = "
                                 "count(); }"),
                "perf_fp": Peer("perf", "record", "-q", "-F", "99", "-e", "cpu-clock", "-g", "-a",
                                "-o", f"{place.dir}/perf.data")}
        for name in ("bpftrace", "perf"):
            if not shutil.which(name):
                print(f"busy.py: skip: no {name} on this machine", file=sys.stderr)
                ways = {k: v for k, v in ways.items() if not k.startswith(name)}
        place.roles["hub"].start()
        place.wait_hub()
        place.target("busy", "busy")
        for i in range(os.cpu_count()):
            # a low priority, so that the agent gets the CPU that it needs
            words = ["nice", "-n", "10", "taskset", "-c", str(i), *PROGRAMS[i % len(PROGRAMS)]]
            container = place.container(f"busy{i}", {"app": "busy"})
            place.processes.append(
                container.run(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(ROUNDS):
            for name in random.sample(list(ways), len(ways)):
                ways[name].measure(found, name)
        tell(found, ways)


if __name__ == "__main__":
    main()
