#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs two programs that are instrumented with OpenTelemetry (Go, Python) under `podflame local`
with trace_context. Each prints how much CPU time it used, in all and for each of its traces. The
API must answer with the same shares for `trace_id='...'`. long.sh runs it, as root."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", HERE + "/../../build"))
CACHE = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/podflame/trace"
SDK = "opentelemetry-sdk==1.45.2"
SECONDS = int(os.environ.get("SECONDS_EACH", "20"))
HZ = 99
good = bad = skipped = 0


def check(ok, text):
    global good, bad
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    good += bool(ok)
    bad += not ok


def fetch(name, *command, **options):
    """Fetches what a program needs from a package registry. If that is not possible, it prints why
    and counts a skip."""
    global skipped
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       **options)
    if r.returncode:
        said = r.stdout.strip().splitlines()
        print(f"skip: {name}: its packages could not be fetched: "
              f"{said[-1] if said else command[0]}", flush=True)
        skipped += 1
    return r.returncode == 0


def build_go(work):
    """The command line and environment of the Go program; None: it is skipped."""
    if not fetch("Go", "go", "mod", "download", cwd=f"{HERE}/calls"):
        return None
    subprocess.run(["go", "build", "-o", f"{work}/calls-go", "."], cwd=f"{HERE}/calls", check=True)
    return [f"{work}/calls-go", str(SECONDS)], {}


def build_python(work):
    """The command line and environment of the Python program; None: it is skipped. A copy of the
    interpreter has a name that the filter can recognise, and uses the packages of a venv."""
    python, library = f"{CACHE}/{SDK}/bin/python", f"{work}/libcalls.so"
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", f"{CACHE}/{SDK}"], check=True)
    has_sdk = subprocess.run([python, "-c", "import opentelemetry.sdk"], stderr=subprocess.DEVNULL)
    install = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", SDK]
    if has_sdk.returncode and not fetch("Python", *install):
        return None
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-mtls-dialect=gnu2", "-o", library,
                    f"{HERE}/calls.c"], check=True)
    shutil.copy(os.path.realpath(python), f"{work}/calls-python")
    path = subprocess.run([python, "-c", "import sys; print(':'.join(p for p in sys.path if p))"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return [f"{work}/calls-python", f"{HERE}/calls.py", library, str(SECONDS)], {"PYTHONPATH": path}


def ask(port, path, body=None):
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=40) as r:
        return r.read().decode()


def value(port, begin, tag_filter):
    """Microseconds and samples of a selection."""
    a = json.loads(ask(port, "/v1/profile/ProfileTracing", {
        "profile_event_type": "on-cpu", "profile_language_type": "eBPF", "time_start": begin,
        "time_end": int(time.time()) + 60, "tag_filter": tag_filter}))
    if a["OPT_STATUS"] != "SUCCESS":
        raise SystemExit(f"{tag_filter}: {a['DESCRIPTION']}")
    return (a["result"][0]["total_value"], a["summary"]["samples"]) if a["result"] else (0, 0)


def compare(name, port, begin, truth):
    pid = f"process_id={truth['pid']}"
    total, samples = value(port, begin, pid)
    used = truth["cpu"]
    check(abs(total - used) <= used * 0.05,
          f"{name}: {samples} samples, {total / 1e6:.2f} s of {used / 1e6:.2f} s of CPU time")
    inside = 0
    for trace, us in truth["traces"].items():
        got, n = value(port, begin, f"{pid} AND trace_id='{trace}'")
        inside += got
        share, truly = got / total, us / used
        # the standard deviation of a share that is counted in so many samples
        sigma = (truly * (1 - truly) / samples) ** 0.5
        check(abs(share - truly) <= 4 * sigma + 0.005,
              f"{name}: trace {trace[:8]}: {100 * share:.2f} % of the samples ({n}), "
              f"{100 * truly:.2f} % of the CPU time")
    share, truly = 1 - inside / total, 1 - sum(truth["traces"].values()) / used
    check(abs(share - truly) <= 4 * (truly * (1 - truly) / samples) ** 0.5 + 0.01,
          f"{name}: in no trace: {100 * share:.2f} % of the samples, {100 * truly:.2f} % of the "
          f"CPU time")
    n = sum(value(port, begin, f"{pid} AND profile_id='{s}'")[1] for s in list(truth["spans"])[:40])
    truly = sum(list(truth["spans"].values())[:40]) / 1e6 * HZ
    check(abs(n - truly) <= 4 * truly ** 0.5,
          f"{name}: 40 spans: {n} samples, {truly:.0f} by their CPU time")


def profile(work, programs, children):
    """Runs one program after another beside podflame local."""
    with open(f"{work}/config.yaml", "w") as f:
        f.write(f"trace_context: true\nwindow: 2s\ndata_dir: {work}/data\n"
                "api: {port: 0}\ningest: {port: 0}\n"
                "static_config: {ebpf: {on-cpu-profile: {regex: '^calls-'}}}\n")
    log = open(f"{work}/log", "w+")
    local = subprocess.Popen([f"{BUILD}/podflame", "local", "--config", f"{work}/config.yaml"],
                             stderr=log, stdout=log)
    children.append(local)
    port = None
    for _ in range(100):
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", open(f"{work}/log").read())
        if found:
            port = int(found[1])
            break
        time.sleep(0.1)
    if not port:
        raise SystemExit("podflame local did not start:\n" + open(f"{work}/log").read())
    begin = int(time.time())
    for name, (line, environment) in programs.items():
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, **environment})
        children.append(child)
        time.sleep(12)                                  # it is found, and its files are read
        truth = json.loads(child.communicate("\n", timeout=SECONDS + 120)[0])
        time.sleep(6)                                   # its last window is stored
        compare(name, port, begin, truth)
    for line in ask(port, "/metrics").splitlines():
        if re.match(r"podflame_(contexts_failed|links_dropped)_total", line):
            print("     " + line)


def main():
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    children = []
    try:
        programs = {"Go": build_go(work), "Python": build_python(work)}
        programs = {name: p for name, p in programs.items() if p}
        if programs:
            profile(work, programs, children)
    finally:
        for c in children:
            c.terminate()
            c.wait(timeout=20)
        if not os.environ.get("KEEP"):
            shutil.rmtree(work)
    print(f"{good} passed, {bad} failed, {skipped} skipped")
    sys.exit(bad > 0)


main()
