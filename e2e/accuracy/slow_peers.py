# SPDX-License-Identifier: Apache-2.0
"""The profilers of waits and memory that slowdown.py compares: `podflame record`, an agent with a
limit, and other tools of that kind."""
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import beside
import known
import programs

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "podflame")
TOOLS = os.path.join(CACHE, "tools")
LIMITED = os.path.join(known.BUILD, "accuracy", "limited")
ATTACH_S = 1.5          # the other tools do not print when they have begun
# seconds after its first decision until the agent has settled, and seconds that are measured
SETTLE_S, LIMITED_S = 4, 5
LIMIT = 1               # the default of limits.overheadPercent


class Running:
    """A profiler that runs as a process until it gets a signal."""
    signal = signal.SIGINT

    def start(self, words, ready=None):
        out = subprocess.DEVNULL if ready else self.output
        self.p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, bufsize=0,
                                  stderr=subprocess.PIPE if ready else subprocess.STDOUT)
        if ready:
            try:
                known.wait_line(self.p.stderr, ready, self.name, 120)
            except RuntimeError:
                self.p.kill()
                raise
            time.sleep(1)       # podflame attaches probes when it knows the process's files
        else:
            time.sleep(ATTACH_S)
        if self.p.poll() is not None:
            raise known.Skip(f"{self.name} ends at once, status {self.p.returncode}: "
                             f"{self.last_words()}")

    def stop(self):
        self.p.send_signal(self.signal)
        try:
            self.p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            raise known.Skip(f"{self.name} does not end") from None


class Podflame(Running):
    """`podflame record`, which has no limit. other: it records a process beside the measured
    one."""

    def __init__(self, event, *options, other=False, name=None):
        self.event, self.options, self.other, self.name = event, options, other, name or event

    def begin(self, pid, folder):
        self.beside = subprocess.Popen(["sleep", "600"]) if self.other else None
        self.folded = os.path.join(folder, "ours.folded")
        pid = self.beside.pid if self.other else pid
        self.start([known.PODFLAME, "record", "-e", self.event, *self.options, "-p", str(pid), "-o",
                    self.folded], b"recording")

    def end(self):
        self.stop()
        if self.beside:
            self.beside.kill()
            self.beside.wait()


class Bcc(Running):
    """memleak or offcputime of libbpf-tools, which .ci/deps long fetches."""

    def __init__(self, tool, *options, library=None):
        self.tool, self.name, self.options, self.library = tool, f"bcc {tool}", options, library

    def begin(self, pid, folder):
        program = f"{TOOLS}/bcc/bin/{self.tool}"
        if not os.access(program, os.X_OK):
            raise known.Skip(f"no {self.tool} on this machine (.ci/deps long)")
        words = [program, *self.options, "-p", str(pid)]
        if self.library:        # memleak keeps only 31 characters of a path
            link = os.path.join(folder, "lib.so")
            if not os.path.exists(link):
                os.symlink(self.library, link)
            words += ["-O", link]
        self.path = os.path.join(folder, "bcc.txt")
        self.output = open(self.path, "wb")
        # memleak prints at an interval, offcputime at its end
        self.start(words + (["600"] if self.tool == "memleak" else []))

    def last_words(self):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()[-150:].replace("\n", "; ")

    def end(self):
        self.stop()
        self.output.close()


class AsyncProfiler:
    name = "async-profiler"

    def begin(self, pid, folder):
        homes = [home for home in programs.JDKS.values() if os.path.exists(f"{home}/bin/jcmd")]
        agent = beside.async_profiler()
        if not homes:
            raise known.Skip("no jcmd on this machine")
        self.load = lambda words: beside.load_agent(homes[-1], pid, agent, words)
        self.folder = folder
        try:
            self.load("start,event=alloc,alloc=512k,jstackdepth=512")
        except RuntimeError as why:
            raise known.Skip(str(why)[:200]) from None

    def end(self):
        self.load(f"stop,collapsed,file={self.folder}/theirs.collapsed")


PYTHON = "/usr/bin/python3"


def memray_path():
    """The path that the profiled Python needs for memray; None: there is no memray."""
    version = subprocess.run([PYTHON, "-c",
                              "import sys; print('python%d.%d' % sys.version_info[:2])"],
                             capture_output=True, text=True, check=True)
    found = glob.glob(f"{TOOLS}/memray/lib/{version.stdout.strip()}/site-packages")
    return found[0] if found else None


class Memray:
    """It enters the process with gdb, and records Python's own allocators, as mem-alloc does."""
    name = "memray"

    def begin(self, pid, folder):
        known.need(["gdb"])
        if not memray_path():
            raise known.Skip(f"no memray for {PYTHON} on this machine (.ci/deps long)")
        self.pid = str(pid)
        out = os.path.join(folder, "memray.bin")
        self.do("attach", "--trace-python-allocators", "-f", "-o", out)
        end = time.monotonic() + 20
        while not os.path.exists(out):
            if time.monotonic() > end:
                raise known.Skip("memray attach: nothing is recorded")
            time.sleep(0.1)

    def do(self, *words):
        done = subprocess.run([f"{TOOLS}/memray/bin/memray", *words, "--method", "gdb", self.pid],
                              capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise known.Skip(f"memray {words[0]}: {(done.stdout + done.stderr).strip()[-150:]}")

    def end(self):
        self.do("detach")


class Limited:
    """What a pod gets: an agent that keeps to limits.overheadPercent for its container
    (limited.c)."""

    def __init__(self, *events):
        self.events, self.name = events, f"{' and '.join(events)}, limit {LIMIT} %"

    def begin(self, pid, folder):
        if not os.access(LIMITED, os.X_OK):
            raise known.Skip(f"no {LIMITED} (make events-cost builds it)")
        self.p = subprocess.Popen([LIMITED, str(pid), str(LIMIT), *self.events],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        known.wait_line(self.p.stdout, b"recording", "limited", 120)

    def settle(self):
        try:
            known.wait_line(self.p.stdout, b"decided", "limited", 90)
        except RuntimeError as why:
            raise known.Skip(str(why)) from None
        time.sleep(SETTLE_S)

    def wait(self):
        time.sleep(LIMITED_S)

    def end(self):
        said = self.p.communicate(timeout=120)[0].decode()
        self.decided = "; ".join(re.findall(r"(?m)^\S+: .*$", said))


def java():
    """A JVM whose JDK has jcmd, so that other profilers can be loaded."""
    home = programs.JDKS.get(17)
    return f"{home}/bin/java" if home else shutil.which("java")
