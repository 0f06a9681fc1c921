# SPDX-License-Identifier: Apache-2.0
"""Compares `podflame record` with async-profiler, which runs inside of the JVM, on the same live
JVM: how much of the time each Java method is on the stack."""
import glob
import math
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass

import known
import programs


@dataclass
class Target:
    name: str
    major: int
    language: str = "Java"
    sample: bool = False
    program: str = "Shares"


# JDK 8 has no jcmd that loads an agent
TARGETS = [Target(f"JDK {major}", major) for major in (11, 17, 21, 25)]
LARGEST = 0.02          # allowed difference of a method's part, however many sigmas it is
# of whole stacks: with 5,000 samples of each, noise takes a few of a hundred
OVERLAP = 0.90


def async_profiler():
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "podflame")
    for path in [os.environ.get("ASYNC_PROFILER", ""),
                 f"{cache}/async-profiler/libasyncProfiler.so"]:
        if path and os.path.exists(path):
            return path
    raise known.Skip("no async-profiler on this machine")


def their_name(frame):
    """podflame's form of async-profiler's pkg/Class.method, without numbers of copies. None: it is
    no Java frame."""
    m = re.fullmatch(r"([\w/$.+]+)\.([\w$<>]+)(?:_\[\w\])?", frame)
    if not m or "::" in frame:
        return None
    owner = re.sub(r"(\$\$Lambda)\$\d+$", r"\1", re.sub(r"[.+/](0x[0-9a-f]+|\d+)$", "", m[1]))
    return f"{owner}::{m[2]}"


class Stacks:
    """Stacks of only Java methods, and only of the program's own parts."""

    def __init__(self, program):
        self.root, self.n, self.methods, self.stacks = f"{program}::part", 0, Counter(), Counter()

    def add(self, frames, n):
        if self.root not in frames:
            return
        self.n += n
        self.stacks[";".join(frames)] += n
        for f in set(frames):
            self.methods[f] += n


def load_agent(home, pid, agent, words):
    done = subprocess.run([f"{home}/bin/jcmd", str(pid), "JVMTI.agent_load", agent, f'"{words}"'],
                          capture_output=True, text=True, timeout=60)
    if "return code: 0" not in done.stdout:
        raise RuntimeError(f"async-profiler: {words}: {done.stdout}{done.stderr}")


def run(target, seconds):
    """(ours, theirs)"""
    jdks = [home for home in programs.JDKS.values() if os.path.exists(f"{home}/bin/jcmd")]
    agent = async_profiler()
    if target.major not in programs.JDKS or not jdks:
        raise known.Skip(f"no JDK {target.major}, or no jcmd, on this machine")
    p = programs.java("beside async-profiler", target.major, source=f"{target.program}.java")
    folder, out = known.build(p)
    told, folded, theirs = (os.path.join(folder, x) for x in ("told", "samples.folded",
                                                              "theirs.collapsed"))
    child = subprocess.Popen([out, told, str(seconds)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, bufsize=0)
    recording = None
    try:
        known.wait_line(child.stdout, b"ready", p.name, 30)
        recording = known.Recording(["--pid", str(child.pid)], folded)
        load_agent(jdks[-1], child.pid, agent,
                   f"start,event=cpu,interval=1ms,collapsed,file={theirs},jstackdepth=512")
        child.stdin.write(b"\n")
        known.wait_line(child.stdout, b"done", p.name, 60 + 20 * seconds)
        recording.stop()
        load_agent(jdks[-1], child.pid, agent, f"stop,collapsed,file={theirs}")
    finally:
        if recording and recording.p.poll() is None:
            recording.p.kill()
        child.kill()
        child.wait()
    return read(target.program, known.read_folded(folded), read_collapsed(theirs))


def read_collapsed(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            yield [name for name in map(their_name, stack.split(";")) if name], int(n)


def read(program, our_rows, their_rows):
    """Of podflame's frames it takes only those that can be a method's name: those that
    async-profiler has, and those that look like a method of a package."""
    ours, theirs = Stacks(program), Stacks(program)
    for frames, n in their_rows:
        theirs.add(frames, n)
    for frames, n in our_rows:
        ours.add([f for f in frames if f in theirs.methods
                  or re.fullmatch(r"(\w+/)+[\w$]+::[\w$<>]+", f)], n)
    return ours, theirs


def compare(ours, theirs):
    """[(difference, its sigmas, method)], the largest first."""
    rows = []
    for name in set(ours.methods) | set(theirs.methods):
        a, b = ours.methods[name], theirs.methods[name]
        both = (a + b) / (ours.n + theirs.n)
        sigma = math.sqrt(both * (1 - both) * (1 / ours.n + 1 / theirs.n)) or 1
        rows.append((abs(a / ours.n - b / theirs.n), (a / ours.n - b / theirs.n) / sigma, name))
    return sorted(rows, reverse=True)


def test(target, seconds):
    ours, theirs = run(target, seconds)
    r = {"name": target.name, "language": target.language, "wrong": []}
    if min(ours.n, theirs.n) < 500:
        r["wrong"].append(f"{ours.n} samples of ours, {theirs.n} of theirs: 500 wanted")
        return r
    rows = compare(ours, theirs)
    r.update({"samples": ours.n, "their samples": theirs.n, "methods": len(rows),
              "largest": [{"method": name, "points": round(100 * d, 2), "sigmas": round(s, 1)}
                          for d, s, name in rows[:3]],
              "overlap": round(sum(min(n / ours.n, theirs.stacks[s] / theirs.n)
                                   for s, n in ours.stacks.items()), 4)})
    r["wrong"] += [f"{name}: {100 * d:.1f} points apart, {s:.1f} sigma" for d, s, name in rows
                   if d > LARGEST and abs(s) > 3]
    if r["overlap"] < OVERLAP:
        r["wrong"].append(f"{r['overlap']} of the stacks are the same")
    return r
