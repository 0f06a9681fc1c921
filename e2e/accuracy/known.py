# SPDX-License-Identifier: Apache-2.0
"""Runs a known-answer program under `podflame record` and compares what podflame saw with what the
program measured itself."""
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from dataclasses import replace

HZ = 999
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../../build")))
PODFLAME = os.path.join(BUILD, "podflame")
# Where a stack may begin, in any language: entry points of programs, of threads, of Go's own
# stacks.
ROOTS = re.compile(
    r"_start(_c)?|libc_start_main_stage2|(__)?clone3?|start_thread|start|_?rt0_\w+(\.abi0)?|"
    r"runtime\.\w+(\.abi0)?|\[(?!unknown).*\]")
MARKER = re.compile(r"\[unwind: .*\]|\[truncated\]")


class Skip(Exception):
    """This machine lacks something that a program needs."""


def need(things):
    """Commands or files."""
    for thing in things:
        if not shutil.which(thing) and not os.path.exists(thing):
            raise Skip(f"no {thing} on this machine")


# ---- build ----

def build(p):
    need(p.needs)
    folder = os.path.join(BUILD, "accuracy",
                          re.sub(r"\W+", "-", f"{p.language} {p.name}").strip("-").lower())
    os.makedirs(folder, exist_ok=True)
    out, source = os.path.join(folder, "program"), os.path.join(HERE, "programs", p.source)
    for command in p.build:
        words = command.format(src=source, out=out, dir=folder)
        done = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **p.env})
        if done.returncode:
            text = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            raise Skip(f"does not build here: {text[-1][:150]}")
    return folder, out


# ---- run ----

def wait_line(stream, line, what, seconds):
    """Reads lines of an unbuffered pipe until the wanted one; returns what came before it."""
    seen, end = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as s:
        s.register(stream, selectors.EVENT_READ)
        while not re.search(rb"(?m)^" + line + rb"$", seen):
            if not s.select(max(0, end - time.monotonic())):
                raise RuntimeError(f"{what}: no '{line.decode()}' in {seconds} s: "
                                   f"{seen.decode(errors='replace')}")
            part = os.read(stream.fileno(), 4096)
            if not part:
                raise RuntimeError(f"{what}: ended before '{line.decode()}': "
                                   f"{seen.decode(errors='replace')}")
            seen += part
    return seen


def new_cgroup():
    """A cgroup in the hierarchy that podflame uses."""
    top = "/sys/fs/cgroup"
    base = top if os.path.exists(f"{top}/cgroup.controllers") else f"{top}/memory"
    path = f"{base}/podflame-accuracy-{os.getpid()}"
    os.makedirs(path, exist_ok=True)
    return path


def enter(cgroup):
    """Moves this process into the cgroup, if there is one."""
    if cgroup:
        with open(f"{cgroup}/cgroup.procs", "w") as f:
            f.write("0")


def end_cgroup(cgroup):
    """Ends the processes that are left in the cgroup, and removes it."""
    while True:
        with open(f"{cgroup}/cgroup.procs", encoding="utf-8") as f:
            pids = f.read().split()
        if not pids:
            break
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    os.rmdir(cgroup)


class Recording:
    """`podflame record` of a process, or of a cgroup."""

    def __init__(self, what, output, hz=HZ):
        self.output = output
        rate = [] if "-e" in what else ["-F", str(hz)]
        self.p = subprocess.Popen([PODFLAME, "record", *what, *rate, "-o", output],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
        try:
            wait_line(self.p.stderr, b"recording", "podflame record", 180)
        except RuntimeError:
            self.p.kill()
            raise

    def stop(self):
        """The losses that record printed."""
        self.p.send_signal(signal.SIGINT)
        text = self.p.communicate(timeout=120)[1].decode()
        if self.p.returncode:
            raise RuntimeError(f"podflame record: status {self.p.returncode}: {text}")
        return text


def run(p, folder, out, seconds, hz=HZ):
    """The lines of the .folded file, {share: ns}, and what record said."""
    told, folded = os.path.join(folder, "told"), os.path.join(folder, "samples.folded")
    for f in (told, folded):
        if os.path.exists(f):
            os.unlink(f)
    program = os.path.join(folder, "program")
    args = [a.format(dir=folder) for a in p.args]
    cgroup = new_cgroup() if p.processes else None
    child = subprocess.Popen([program, told, str(seconds), *args], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, bufsize=0, preexec_fn=lambda: enter(cgroup))
    recording = None
    try:
        wait_line(child.stdout, b"ready", p.name, 30)
        if p.unlink:
            os.unlink(program)
        recording = Recording(["--cgroup", cgroup] if cgroup else ["--pid", str(child.pid)], folded,
                              hz)
        child.stdin.write(b"\n")
        wait_line(child.stdout, b"done", p.name, 60 + 20 * seconds)
        said = recording.stop()
        child.stdin.close()
        child.wait(30)
    finally:
        if recording and recording.p.poll() is None:
            recording.p.kill()
        if child.poll() is None:
            child.kill()
            child.wait()
        if cgroup:
            end_cgroup(cgroup)
    return read_folded(folded), read_told(told), said


def read_folded(path):
    """[(user frames from the outermost on, number)]"""
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            frames = [re.sub(r"^\[[cl]\] ", "", x) for x in stack.split(";")[2:]
                      if not x.startswith("[k] ")]
            rows.append((frames, int(n)))
    return rows


def read_told(path):
    told = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            name, ns = line.split()
            told[name] = told.get(name, 0) + int(ns)
    return told


# ---- compare ----

def read_stacks(path):
    """The stacks that a program printed about itself: {share: (frame, chain)}."""
    with open(path, encoding="utf-8") as f:
        return {name: (frame, chain)
                for name, frame, chain in (line.rstrip("\n").split("\t") for line in f)}


def frame_pattern(token, program):
    if token == "@program":
        return re.escape(f"[{program}]")
    if token.endswith("~"):
        return re.escape(token[:-1]) + "[^;]*"
    return (re.escape(token)
            + r"(?:\.[a-z_]+(?:\.\d+)?)*(?:[(<\[][^;]*)?(?:::<[^;]*)?(?:::h[0-9a-f]{16})?")


def chain_pattern(chain, program):
    """A chain as a regular expression for frames that each end in ';'."""
    text = ""
    for token in chain.split(" > "):
        name, times = re.fullmatch(r"(.*?)(?:\*(\d+))?", token).groups()
        if token == "...":
            text += "(?:[^;]*;)*?"
        elif token == "@others":
            text += f"(?:(?!{frame_pattern('@program', program)})[^;]*;)+"
        else:
            text += f"(?:{frame_pattern(name, program)};){{{times or 1}}}"
    return re.compile(text)


def unfinished(frames):
    """Why a stack is not finished. None: it is finished, or there is no stack (the process was
    ending, or had not begun its program)."""
    for f in frames:
        if MARKER.fullmatch(f):
            return f
    if frames and not ROOTS.fullmatch(frames[0]):
        return f"begins at {frames[0]}"
    return None


class Share:
    def __init__(self, name, told, program):
        frame, chain = told if isinstance(told, tuple) else (told.split(" > ")[-1].split("*")[0],
                                                             told)
        self.name, self.n, self.complete, self.odd = name, 0, 0, {}
        self.chain = chain_pattern(chain, program)
        self.frame = re.compile("(?:^|.*;)" + frame_pattern(frame, program)
                                + ";") if frame else None

    def take(self, text, n):
        whole = self.chain.fullmatch(text)
        if not (self.frame.match(text) if self.frame else whole):
            return False
        self.n += n
        self.complete += n if whole else 0
        if not whole:
            self.odd[text] = self.odd.get(text, 0) + n
        return True


def one_share(name, n, total, ns, total_ns, least_sigma):
    part = max(0.0, ns / total_ns)
    sigma = max(math.sqrt(total * part * (1 - part)), least_sigma)
    return {"name": name, "told": round(part, 5), "seen": round(n / total, 5) if total else 0,
            "samples": n, "sigmas": round((n - total * part) / sigma, 2)}


def compare(p, out, rows, told):
    """Compares what podflame saw of each share with what the program measured."""
    shares = [Share(name, what, out) for name, what in p.shares.items()]
    total = sum(n for _, n in rows)
    reasons, rest = {}, 0
    for frames, n in rows:
        text = "".join(f + ";" for f in frames)
        why = unfinished(frames)
        if why:
            reasons[why] = reasons.get(why, 0) + n
        if not any(s.take(text, n) for s in shares):
            rest += n
    results = []
    named, named_ns = sum(s.n for s in shares), sum(told[s.name] for s in shares)
    for s in shares:
        if p.runtime:
            results.append(one_share(s.name, s.n, named, told[s.name], named_ns, 1.5))
        else:
            results.append(one_share(s.name, s.n, total, told[s.name], told["total"], 1.5))
    # The rest also has what came before and after the program looked at the clock: some
    # milliseconds.
    results.append(one_share("(rest)", rest, total, told["total"] - named_ns, told["total"], 4))
    for s, r in zip(shares, results):
        r["complete"] = round(s.complete / s.n, 5) if s.n else 0
        worst = [(t.replace(out, "program").replace(os.path.expanduser("~"), "~"), n)
                 for t, n in sorted(s.odd.items(), key=lambda x: -x[1])[:3]]
        r["odd"] = [f"{n} {t if len(t) < 300 else t[:80] + ' ... ' + t[-200:]}" for t, n in worst]
    bad = sum(reasons.values())
    return {"samples": total, "finished": round(1 - bad / total, 5) if total else 0,
            "reasons": reasons, "shares": results, "cpu_s": round(told["total"] / 1e9, 3)}


def verdict(p, r, least):
    """What is wrong with a result, in words."""
    wrong = []
    if r["samples"] < least:
        wrong.append(f"{r['samples']} samples, {least} wanted")
    for s in r["shares"]:
        if abs(s["sigmas"]) > 3 and not (p.runtime and s["name"] == "(rest)"):
            wrong.append(f"{s['name']}: {s['seen']:.4f} seen, {s['told']:.4f} told: {s['sigmas']} "
                         f"sigma")
        # A single stack of a few hundred is let pass: libgcc's CFI is wrong for the instructions
        # in which a handler's frame takes over.
        if s.get("complete", 1) < p.complete and s["samples"] * (1 - s["complete"]) > 1.5:
            wrong.append(f"{s['name']}: {s['complete']:.4f} of its stacks are whole")
    if not p.excluded and r["finished"] < p.finished:
        why = ", ".join(f"{n} {k}" for k, n in sorted(r["reasons"].items(),
                                                      key=lambda x: -x[1])[:3])
        wrong.append(f"{r['finished']:.4f} finished: {why}")
    return wrong


def test(p, seconds, least, hz=HZ):
    """A result for the report; raises Skip."""
    folder, out = build(p)
    rows, told, said = run(p, folder, out, seconds, hz)
    if not p.shares:
        p = replace(p, shares=read_stacks(os.path.join(folder, "told.stacks")))
    r = compare(p, out, rows, told)
    r.update(name=p.name, runtime=p.runtime, language=p.language, source=p.source,
             excluded=p.excluded, hz=hz,
             lost=[x for x in said.splitlines() if "lost" in x], wrong=verdict(p, r, least))
    return r
