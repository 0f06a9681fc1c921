# SPDX-License-Identifier: Apache-2.0
"""The run time of BPF programs, by the kernel's own statistics, and the CPU time of processes."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import time

SYS_BPF, BPF_ENABLE_STATS = 321, 32         # of x86-64


@contextlib.contextmanager
def enabled():
    """Switches the statistics on (BPF_ENABLE_STATS). No other program can switch them off then."""
    run_time = ctypes.create_string_buffer(4)
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, BPF_ENABLE_STATS, run_time,
                                                   len(run_time))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "BPF statistics")
    try:
        yield
    finally:
        os.close(fd)


def bpftool(what):
    """All maps ("map") or programs ("prog") of the kernel."""
    program = shutil.which("bpftool", path="/usr/sbin:/sbin:" + os.environ["PATH"])
    return json.loads(subprocess.run([program, what, "show", "-j"], capture_output=True, text=True,
                                     check=True).stdout or "[]")


def of_ticks(pid):
    """ns and runs of the BPF program that this process has at the CPU clock."""
    ids = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}",
                                                          encoding="utf-8") as f:
            ids.update(int(n) for n in re.findall(r"(?m)^prog_id:\s*(\d+)", f.read()))
    found = [p for p in bpftool("prog") if p["type"] == "perf_event" and p["id"] in ids]
    if not found:
        raise RuntimeError(f"bpftool shows no program at the clock of process {pid}")
    return sum(p.get("run_time_ns", 0) for p in found), sum(p.get("run_cnt", 0) for p in found)


def cpu_of(pid):
    """CPU seconds of all its threads, also of ended ones: clock_getcpuclockid()."""
    return time.clock_gettime(~pid << 3 | 2)
