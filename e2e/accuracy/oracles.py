# SPDX-License-Identifier: Apache-2.0
"""Other tools that look at the same process at the same time as podflame: what each of them saw of
a function. `.ci/deps long` installs them.

An oracle has a name, the events that it knows, and start(run), which returns watching; watching()
ends it and returns {(event, function): value}. It raises known.Skip if it cannot run here.
"""
import os
import pty
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter

import beside
import known
import programs

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "podflame")
MEMRAY = f"{CACHE}/tools/memray/bin/python"


def need(path):
    if not os.access(path, os.X_OK):
        raise known.Skip(f"no {os.path.basename(path)} on this machine (.ci/deps long)")
    return path


class Printing:
    """A tool that prints until SIGINT. It has a terminal, so that it prints at once."""

    def __init__(self, words, ready):
        terminal, its = pty.openpty()
        self.text, self.fd = "", terminal
        self.p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=its, stderr=its,
                                  close_fds=True)
        os.close(its)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        end = time.monotonic() + 60
        while ready not in self.text:
            if time.monotonic() > end or self.p.poll() is not None:
                self.stop()
                raise known.Skip(f"{os.path.basename(words[0])} does not run here: "
                                 f"{self.text.strip()[-150:]}")
            time.sleep(0.05)

    def read(self):
        try:
            while part := os.read(self.fd, 65536):
                self.text += part.decode(errors="replace").replace("\r\n", "\n")
        except OSError:         # the other end of the terminal is closed
            pass

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            self.p.wait(60)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.reader.join(10)
        os.close(self.fd)
        return self.text


def by_function(event, stacks):
    """stacks: (names, value). The sum of a function counts each stack once."""
    sums = Counter()
    for names, value in stacks:
        for name in set(names):
            sums[event, name] += value
    return sums


# ---- bcc, by frame pointers ----

def memleak(run):
    # it uses only 31 characters of a path
    words = [need(f"{CACHE}/bcc/bin/memleak"), "-p", str(run.pid), "-O",
             run.libc().removeprefix("/usr"), "-C", "-T", "1000", "1"]
    tool = Printing(words, "Tracing outstanding")

    def end():
        shown = tool.text.count(" stacks with outstanding")
        # the last block but one is whole
        wait_for(lambda: tool.text.count(" stacks with outstanding") > shown + 1)
        last = re.split(r"\[[\d:]+\] Top \d+ stacks.*\n", tool.stop())[-2]
        blocks = re.split(r"(?m)^(\d+) bytes in \d+ allocations from stack\n", last)[1:]
        return by_function("mem-inuse", [(re.findall(r"\] (\w+)\+0x", text), int(n))
                                         for n, text in zip(blocks[::2], blocks[1::2])])
    return end


def offcputime(run):
    tool = Printing([need(f"{CACHE}/bcc/bin/offcputime"), "-p", str(run.pid)], "Tracing off-CPU")

    def end():
        blocks = re.findall(r"((?:    .*\n)+?)    -\s.*\n\s+(\d+)\n", tool.stop())
        return by_function("off-cpu", [(text.split(), int(n)) for text, n in blocks])
    return end


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


# ---- Go ----

def pprof(run):
    """The program's own heap profile, over its port."""
    port = int(re.search(rb"port (\d+)", run.told_first)[1])

    def end():
        path, sums = f"{run.folder}/heap.pb.gz", Counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/pprof/heap",
                                    timeout=60) as page, open(path, "wb") as f:
            f.write(page.read())
        for event, index in (("mem-alloc", "alloc_space"), ("mem-inuse", "inuse_space")):
            done = subprocess.run(["go", "tool", "pprof", "-top", "-cum", "-unit=B",
                                   "-nodecount=100000", "-nodefraction=0",
                                   f"-sample_index={index}", path], capture_output=True, text=True,
                                  timeout=120, check=True)
            for flat in re.finditer(r"(?m)^ *[\d.]+B? +[\d.]+% +[\d.]+% +(\d+)B +[\d.]+%  (.*)$",
                                    done.stdout):
                sums[event, flat[2].removesuffix(" (inline)")] = int(flat[1])
        return sums
    return end


# ---- Java ----

def async_profiler(run):
    agent = beside.async_profiler()
    jdks = [home for home in programs.JDKS.values() if os.path.exists(f"{home}/bin/jcmd")]
    if not jdks:
        raise known.Skip("no jcmd on this machine")
    path = f"{run.folder}/theirs.collapsed"
    beside.load_agent(jdks[-1], run.pid, agent,
                      f"start,event=alloc,alloc=16k,total,collapsed,file={path}")

    def end():
        beside.load_agent(jdks[-1], run.pid, agent, f"stop,total,collapsed,file={path}")
        return by_function("mem-alloc", beside.read_collapsed(path))
    return end


# ---- Python ----

READ = """
import sys, memray
reader = memray.FileReader(sys.argv[1])
frees = memray.AllocatorType.FREE, memray.AllocatorType.PYMALLOC_FREE
leaked = reader.get_leaked_allocation_records(merge_threads=True)
for event, records in (("mem-alloc", reader.get_allocation_records()), ("mem-inuse", leaked)):
    for r in records:
        if r.size and r.allocator not in frees:
            print(event, r.size, *{f"__main__.{f[0]}" for f in r.stack_trace()})
"""


def memray(run):
    """It began together with the program."""
    def end():
        run.finish()
        done = subprocess.run([MEMRAY, "-c", READ, run.memray], capture_output=True, text=True,
                              timeout=300, check=True)
        rows = [line.split() for line in done.stdout.splitlines()]
        return sum((by_function(event, [(w[2:], int(w[1])) for w in rows if w[0] == event])
                    for event in ("mem-alloc", "mem-inuse")),
                   Counter())
    return end
