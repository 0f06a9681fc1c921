#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""real.py [--seconds S] [--json FILE] NAME... | all | list: how much of what programs that nobody
here wrote do has its whole stack?

As root. `real.py x264 qemu` runs two of the programs of real_programs.py, `real.py list` prints
their names. Each repeats a fixed piece of work in a cgroup, where `podflame record --cgroup` and
`perf record --call-graph dwarf` sample it at the same time. With -v it prints every end of a stack
that is not whole. The folded stacks stay in build/accuracy/real/NAME/samples.folded.

`make accuracy` runs all of them (run.py, part g), and writes the table into docs/accuracy.md.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import known
import limit
from real_programs import PROGRAMS, WORDS

HZ, PERF_HZ = 499, 99
PERF_COPY_BYTES = 16384
UNNAMED = re.compile(r"\[.*\]")
# What known.ROOTS lacks: perf often stops one or two frames before.
ROOTS = re.compile(known.ROOTS.pattern + "|main|__libc_start_call_main|_dl_start_user")
# The entry point of a stripped program has no name: what it calls tells it, or that it is alone.
# Those of the loader and of threads are in files that may be stripped, too; there podflame marks
# every other end, and perf has the names of debug files.
CALLED_BY_ENTRY = re.compile(r"__libc_start_main(_impl)?(@.*)?")
UNNAMED_ENTRY = re.compile(r"\[(.*/)?(ld-linux\S*|libc\.so\.6)\]")
PROGRAM = re.compile(r"\[/(?!.*\.(so|map)\b).*\]")
GOAL, MOST_EXCEPTED = 0.99, 0.02
ENDS_KEPT = 6           # the commonest ends of a program's stacks, in its result


# ---- run ----

def environment():
    """That of the programs: compilers are not ccache."""
    path = [d for d in os.environ["PATH"].split(":") if not d.endswith("/ccache")]
    return {**os.environ, **WORDS, "PATH": ":".join(path)}


def prepared(p):
    """The folder of a program, with its inputs. What an interrupted preparation leaves is never
    taken for the inputs."""
    known.need(p.needs)
    folder = os.path.join(known.BUILD, "accuracy", "real", p.name)
    stamp = os.path.join(folder, "prepared")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as f:
            if f.read() == p.prepare:
                return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    done = subprocess.run(["bash", "-c", p.prepare], cwd=folder, capture_output=True, text=True,
                          env=environment(), timeout=300)
    if done.returncode:
        raise known.Skip(f"cannot be prepared here: {done.stderr.strip()[-150:]}")
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(p.prepare)
    return folder


def perf_cgroup(cgroup):
    """The same cgroup in the hierarchy that has perf's events, where that is another one."""
    top = "/sys/fs/cgroup"
    for base in (f"{top}/perf_event", f"{top}/unified"):
        if os.path.isdir(base):
            path = os.path.join(base, os.path.basename(cgroup))
            os.makedirs(path, exist_ok=True)
            return path
    return cgroup


class Running:
    """A program that repeats its work in its cgroups, until the block ends. If the work fails, it
    ends at once."""

    def __init__(self, p, folder):
        self.p, self.folder = p, folder
        self.cgroup = known.new_cgroup()
        self.of_perf = perf_cgroup(self.cgroup)
        self.cgroups = list(dict.fromkeys([self.cgroup, self.of_perf]))

    def enter(self):
        for cgroup in self.cgroups:
            known.enter(cgroup)

    def __enter__(self):
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.shell = subprocess.Popen(
                ["bash", "-c", f"while\n{self.p.unit}\ndo :; done"], cwd=self.folder,
                env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=self.enter)
        return self

    def __exit__(self, *_):
        for cgroup in self.cgroups:
            known.end_cgroup(cgroup)
        self.shell.wait()


class Perf:
    """perf record with copies of the stack, which perf script walks later."""

    def __init__(self, cgroup, folder):
        self.out = os.path.join(folder, "perf.data")
        name = os.path.basename(cgroup)
        self.p = subprocess.Popen(
            ["perf", "record", "-q", "-B", "-N", "-a", "-F", str(PERF_HZ), "-e", "cpu-clock", "-G",
             name, "--call-graph", f"dwarf,{PERF_COPY_BYTES}", "-o", self.out],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        self.p.wait(60)

    def stacks(self):
        """[(user frames from the outermost on, 1)], as known.read_folded has them."""
        text = subprocess.run(["perf", "script", "--no-inline", "-F", "ip,sym,dso", "-i", self.out],
                              capture_output=True, text=True, errors="replace", timeout=600,
                              check=True).stdout
        os.unlink(self.out)
        return [(perf_frames(sample), 1) for sample in text.split("\n\n") if sample.strip()]


def perf_frames(sample):
    frames = []
    for ip, what in (line.split(None, 1) for line in sample.splitlines() if line.strip()):
        if int(ip, 16) < 1 << 63:
            name, _, dso = what.rpartition(" (")
            module = dso[:-1].strip("[]")
            frames.append(f"[{module}]" if name == "[unknown]" else name)
    return frames[::-1]


def run(p, folder, seconds, beside_perf):
    """(rows of podflame, rows of perf or None)"""
    folded = os.path.join(folder, "samples.folded")
    with Running(p, folder) as running:
        time.sleep(p.settle_s)
        recording = known.Recording(["--cgroup", running.cgroup, "--delay", str(p.delay_s)],
                                    folded, HZ)
        time.sleep(p.delay_s)
        perf = Perf(running.of_perf, folder) if beside_perf and shutil.which("perf") else None
        try:
            time.sleep(seconds)
            if running.shell.poll() is not None:
                raise RuntimeError(f"it ended: see {folder}/log")
        finally:
            if perf:
                perf.stop()
            recording.stop()
    return known.read_folded(folded), perf.stacks() if perf else None


# ---- read ----

def end_of(frames):
    """Where a stack ends that is not whole: its marker and the frame before it, or its outermost
    frame. None: it is whole."""
    for i, f in enumerate(frames):
        if known.MARKER.fullmatch(f):
            return " ".join(frames[i:i + 2])
    if ROOTS.fullmatch(frames[0]) and not UNNAMED.fullmatch(frames[0]):
        return None
    called = frames[1] if len(frames) > 1 else None
    if UNNAMED_ENTRY.fullmatch(frames[0]) or called and CALLED_BY_ENTRY.fullmatch(called):
        return None
    if not called and PROGRAM.fullmatch(frames[0]):
        return None
    return f"begins at {frames[0]}"


def read(rows):
    """Shares of the samples that have frames of the program: the others were in the kernel before
    a program began, or after it ended."""
    ends, frames_n, named = Counter(), 0, 0
    kernel = sum(n for frames, n in rows if not frames)
    samples = sum(n for frames, n in rows if frames)
    for frames, n in rows:
        if frames and (end := end_of(frames)):
            ends[end] += n
        own = [f for f in frames if not known.MARKER.fullmatch(f)]
        frames_n += n * len(own)
        named += n * sum(1 for f in own if not UNNAMED.fullmatch(f))
    return {"samples": samples, "kernel": kernel,
            "whole": round(1 - sum(ends.values()) / samples, 5) if samples else 0,
            "named": round(named / frames_n, 5) if frames_n else 0,
            "ends": [{"end": e, "share": round(n / samples, 5)} for e, n in ends.most_common()]}


def excepted(p, r):
    """[{why, share}] of the program's exceptions."""
    return [{"why": why, "share": round(sum(e["share"] for e in r["ends"]
                                            if re.fullmatch(pattern, e["end"])), 5)}
            for pattern, why in p.exceptions]


def verdict(p, r):
    wrong = []
    share = sum(x["share"] for x in r["exceptions"])
    if r["samples"] < 100:
        wrong.append(f"{r['samples']} samples")
    if share > MOST_EXCEPTED:
        wrong.append(f"exceptions are {share:.1%}")
    if r["ends"] and r["whole"] + share < p.least:
        end = r["ends"][0]
        wrong.append(f"{r['whole']:.2%} whole; {end['share']:.2%} {end['end']}")
    return wrong


def test(p, seconds, beside_perf=True):
    """A result for the report; raises Skip."""
    folder = prepared(p)
    ours, theirs = run(p, folder, seconds, beside_perf)
    r = {"name": p.name, "language": p.language, "kind": p.kind, **read(ours)}
    r["exceptions"] = excepted(p, r)
    r["wrong"] = verdict(p, r)
    if theirs:
        r["perf"] = read(theirs)
    for x in (r, r.get("perf", r)):
        x["ends"] = x["ends"][:ENDS_KEPT]
    return r


def told(r):
    """A result in one line."""
    if "samples" not in r:
        return ""
    perf = f"; perf {r['perf']['whole']:.1%} of {r['perf']['samples']}" if "perf" in r else ""
    return (f"{r['whole']:.2%} whole, {r['named']:.1%} named, {r['samples']} samples and "
            f"{r['kernel']} of the kernel alone{perf}")


def short(end):
    """An end without directories of modules, and without arguments of functions."""
    return re.sub(r"\[/\S*/", "[", re.sub(r"(?<=\w)[(<].*", "", end))


def details(r):
    return ([f"{e['share']:.2%} {e['end']}" for e in r.get("ends", [])]
            + [f"perf: {e['share']:.2%} {e['end']}" for e in r.get("perf", {}).get("ends", [])[:3]])


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("names", nargs="+", metavar="NAME")
    a.add_argument("--seconds", type=float, default=6)
    a.add_argument("--json", metavar="FILE")
    a.add_argument("-v", "--verbose", action="store_true")
    options = a.parse_args()
    if options.names == ["list"]:
        for p in PROGRAMS:
            print(f"{p.name:18} {p.kind}")
        return 0
    unknown = set(options.names) - {p.name for p in PROGRAMS} - {"all"}
    if unknown:
        a.error(f"no program is named {', '.join(sorted(unknown))}")
    results = []
    for p in PROGRAMS:
        if p.name not in options.names and "all" not in options.names:
            continue
        try:
            with limit.within(600, p.name):
                results.append(test(p, options.seconds))
        except known.Skip as why:
            print(f"skip: {p.name}: {why}", flush=True)
            continue
        except (OSError, RuntimeError, subprocess.SubprocessError) as why:
            results.append({"name": p.name, "wrong": [f"{type(why).__name__}: {why}"]})
        r = results[-1]
        print(f"{'FAILED' if r['wrong'] else 'ok    '} {p.name}: {told(r) or r['wrong'][0]}",
              flush=True)
        for x in details(r) if options.verbose else []:
            print(f"           {x}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1, ensure_ascii=False)
    return any(r["wrong"] for r in results)


if __name__ == "__main__":
    sys.exit(main())
