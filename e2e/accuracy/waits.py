# SPDX-License-Identifier: Apache-2.0
"""Runs programs that know how long they wait, what they allocate and what they leak
(e2e/workloads/waits.*) under `podflame record`, and compares."""
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

import known

WORKLOADS = os.path.join(known.HERE, "../workloads")
EVENTS = ("off-cpu", "mem-alloc", "mem-inuse")
CAUSES = {"naps": "sleep", "waits_for_lock": "lock", "reads_pipe": "pipe", "readsPipe": "pipe",
          "reads_socket": "socket", "polls": "poll"}


@dataclass
class Target:
    language: str
    build: str
    run: str
    prefix: str = ""
    allocates: str = "allocates leaks"
    leaks: str = "leaks"
    needs: list = field(default_factory=list)
    error: float = 0.05     # allowed difference of allocated bytes, as a part of them
    causes: float = 0.95    # this part of a wait must have the cause that its function is for
    all_lives: bool = False # what was allocated before the recording is known, too
    sample: bool = False
    name: str = "waits and memory"


TARGETS = [
    Target("C", "gcc -O1 -g -fno-optimize-sibling-calls -o {out}/waits {src}/waits.c -lpthread",
           "{out}/waits", allocates="allocates_small allocates_large leaks",
           needs=["gcc"], sample=True),
    # Go reports what it allocated when a collection has ended, and record reads that every 10 s
    Target("Go", "CGO_ENABLED=0 go build -o {out}/waits {src}/waits.go", "{out}/waits", "main.",
           needs=["go"], error=0.4, all_lives=True),
    # after each wait the thread waits for the interpreter's lock
    Target("Python", "true", "/usr/bin/python3 {src}/languages/waits.py", "__main__.", causes=0.7),
    # a sleeping thread of the JVM waits on a futex; podflame sees objects when a thread takes new
    # space for them
    Target("Java", "javac -d {out} {src}/languages/Waits.java", "java -cp {out} Waits", "Waits::",
           "allocates", "", ["javac"], 0.25, 0),
]


class Program:
    """Runs the program and keeps each line that it prints, with the time when it came."""

    def __init__(self, words):
        self.p = subprocess.Popen(words.split(), stdout=subprocess.PIPE, text=True)
        self.told = []
        threading.Thread(target=self.read, daemon=True).start()
        end = time.monotonic() + 60
        while len(self.told) < 2:
            if time.monotonic() > end or self.p.poll() is not None:
                self.end()
                raise RuntimeError("it does not say what it does")
            time.sleep(0.05)

    def read(self):
        for line in self.p.stdout:
            words = line.split()
            self.told.append((time.monotonic(),
                              {k: int(v) for k, v in (w.split("=") for w in words[2:])}))

    def at(self, when, name):
        """The value of a function at that time, from the lines before and after it."""
        before = [t for t in self.told if t[0] <= when][-1]
        after = next((t for t in self.told if t[0] > when), before)
        part = (when - before[0]) / (after[0] - before[0]) if after is not before else 0
        return before[1][name] + part * (after[1][name] - before[1][name])

    def between(self, start, end, name):
        return self.at(end, name) - self.at(start, name)

    def end(self):
        self.p.kill()
        self.p.wait()


def record(pid, folder, seconds):
    """Records all events at once, each in a recording of its own: {event: (rows of frames and a
    number, when it began, when it ended)}."""
    runs, result = [], {}
    for event in EVENTS:
        out = os.path.join(folder, event + ".folded")
        each = [] if event == "off-cpu" else ["-s", "1"]
        p = subprocess.Popen([known.PODFLAME, "record", "-e", event, *each, "-p", str(pid), "-o",
                              out],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
        known.wait_line(p.stderr, b"recording", "podflame record", 120)
        runs.append((event, out, p, time.monotonic()))
    time.sleep(seconds)
    for event, out, p, began in runs:
        ended = time.monotonic()
        p.send_signal(signal.SIGINT)
        text = p.communicate(timeout=120)[1].decode()
        if p.returncode:
            raise RuntimeError(f"podflame record -e {event}: status {p.returncode}: {text}")
        result[event] = (known.read_folded(out), began, ended)
    time.sleep(1.5)         # until the program has printed one more line
    return result


def sum_of(rows, name):
    return sum(n for frames, n in rows if name in frames)


def compare(t, program, recorded):
    rows = []
    waits = [n for n in program.told[0][1] if n in CAUSES]
    for event, names in (("off-cpu", waits), ("mem-alloc", t.allocates.split()),
                         ("mem-inuse", t.leaks.split())):
        stacks, began, ended = recorded[event]
        for name in names:
            if event == "mem-inuse" and t.all_lives:
                told = program.at(ended, name)
            else:
                told = program.between(began, ended, name)
            r = {"event": event, "name": name, "told": round(told),
                 "seen": sum_of(stacks, t.prefix + name)}
            if event == "off-cpu":
                cause = {x: sum(n for frames, n in stacks if t.prefix + name in frames
                                and frames[-1] == f"[wait: {x}]")
                         for x in (CAUSES[name], "runqueue")}
                r["cause"] = round(sum(cause.values()) / max(r["seen"], 1), 4)
            rows.append(r)
    return rows


def verdict(t, rows):
    wrong = []
    for r in rows:
        error = 0.05 if r["event"] == "off-cpu" else t.error
        if abs(r["seen"] - r["told"]) > error * r["told"] + (300000 if r["event"] == "off-cpu"
                                                             else 200000):
            wrong.append(f"{r['event']} {r['name']}: {r['seen']} seen, {r['told']} told")
        if r.get("cause", 1) < t.causes:
            wrong.append(f"{r['name']}: {r['cause']:.2%} of its waits have its cause")
    return wrong


def test(t, seconds):
    """A result for the report; raises Skip."""
    known.need(t.needs)
    folder = os.path.join(known.BUILD, "accuracy", f"waits-{t.language.lower()}")
    os.makedirs(folder, exist_ok=True)
    words = {"src": WORKLOADS, "out": folder}
    done = subprocess.run(t.build.format(**words), shell=True, capture_output=True, text=True,
                          timeout=300)
    if done.returncode:
        raise known.Skip(f"does not build here: {(done.stderr or done.stdout).strip()[-150:]}")
    program = Program(t.run.format(**words))
    try:
        rows = compare(t, program, record(program.p.pid, folder, seconds))
    finally:
        program.end()
    return {"name": t.name, "language": t.language, "rows": rows, "wrong": verdict(t, rows)}
