# SPDX-License-Identifier: Apache-2.0
"""Stopped CPython processes: compares the frames of the program that `stackof` prints with those of
py-spy: function, file and line.

python_kinds.py runs under every CPython of this machine and is stopped at moments drawn by chance.
It has only one interpreter, because py-spy 0.4.3 shows the frames of only the newest one.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import known
import programs
import stopped

PYSPY = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                     "podflame/tools/py-spy/bin/py-spy")


def ours(pid):
    """{thread: frames}. A frame is (function, file, line); the thread is there by its number and by
    its pthread_self()."""
    done = subprocess.run([stopped.STACKOF, str(pid)], capture_output=True, text=True, timeout=120,
                          check=True)
    stacks, frames = {}, []
    for line in done.stdout.splitlines():
        if m := re.match(r"TID (\d+) 0x([0-9a-f]+)", line):
            frames = []
            stacks[int(m[1])] = stacks[int(m[2], 16)] = frames
        elif m := re.match(r"python (\S+) (.*):(\d+)$", line):
            frames.append((m[1], m[2], int(m[3])))
        elif line.startswith("python "):
            frames.append((line, "", 0))
    return stacks


def theirs(pid):
    done = subprocess.run([PYSPY, "dump", "--nonblocking", "--json", "--pid", str(pid)],
                          capture_output=True, text=True, timeout=120, check=True)
    return {t["os_thread_id"]
            or t["thread_id"]: [(f["name"], f["filename"], f["line"]) for f in t["frames"]]
            for t in json.loads(done.stdout)}


def same(a, b):
    """Whether two frames are the same; podflame's has the module before its name."""
    return (a[0] == b[0] or a[0].endswith("." + b[0])) and a[1:] == b[1:]


def kind(mine, theirs_):
    """How two stacks differ that are not equal."""
    if len(mine) != len(theirs_):
        return "ours longer" if len(mine) > len(theirs_) else "theirs longer"
    return "different"


def note(result, mine, theirs_):
    pairs = [(a, b) for a, b in zip(mine, theirs_) if not same(a, b)] or [(mine[:1], theirs_[:1])]
    # For an instruction without a line py-spy shows the line before; for a function that has not
    # begun, the line of its first instruction.
    lines = all(len(a) == 3 and (a[2] == 0 or (a is mine[0] and a[2] < b[2]))
                and same((*a[:2], b[2]), b) for a, b in pairs)
    key = "another line" if lines else kind(mine, theirs_)
    d = result["differences"].setdefault(key,
                                         {"n": 0, "gdb": {}, "ours": [str(a) for a, _ in pairs],
                                               "theirs": [str(b) for _, b in pairs]})
    d["n"] += 1
    return key


def compare(pid, result):
    mine, want = ours(pid), theirs(pid)
    result["moments"] += 1
    for thread, b in want.items():
        a = mine.get(thread, [])
        result["threads"] += 1
        result["frames"] += len(b)
        if len(a) == len(b) and all(map(same, a, b)):
            result["equal"] += 1
        else:
            result[kind(a, b)] += 1
            if note(result, a, b) != "another line":
                result["wrong"] = [f"{d['n']} {key}: {d['ours'][:2]}, not {d['theirs'][:2]}"
                                   for key, d in result["differences"].items()]


def wait_for(pid):
    """Waits until py-spy finds the threads of the program."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if theirs(pid):
                return
        except subprocess.CalledProcessError:
            time.sleep(0.1)
    theirs(pid)


def test(p, moments):
    """A Python program of programs.py."""
    if not os.access(PYSPY, os.X_OK):
        raise known.Skip(f"no {PYSPY} (.ci/deps long)")
    known.need(p.needs)
    result = {"name": f"{p.name}, beside py-spy", "language": p.language, "moments": 0,
              "threads": 0, "frames": 0, "equal": 0,
              "ours longer": 0, "theirs longer": 0, "different": 0, "differences": {}, "wrong": []}
    script = os.path.join(known.HERE, "programs/python_kinds.py")
    command, root = p.needs[0], programs.PYTHON_ROOT
    if command.startswith(root):
        shutil.copy(script, f"{root}/tmp")
        command = f"chroot {root} {command.removeprefix(root)}"
        script = "/tmp/python_kinds.py"
    child = subprocess.Popen([*command.split(), script, "300", "2"], stdin=subprocess.DEVNULL)
    try:
        wait_for(child.pid)
        for _ in range(moments):
            time.sleep(random.uniform(0.02, 0.1))
            if stopped.stop(child.pid):
                compare(child.pid, result)
            child.send_signal(signal.SIGCONT)
    finally:
        child.kill()
        child.wait()
    if not result["frames"]:
        result["wrong"].append("nothing was compared")
    return result


TARGETS = programs.PYTHON_PROGRAMS
