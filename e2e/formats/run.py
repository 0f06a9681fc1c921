#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of podflame, read by the programs that others wrote for them: google/pprof, the libraries
of the OpenTelemetry Collector and of Python's OpenTelemetry, speedscope in Chromium, and Go's
compiler (optimization by profile). long.sh runs it, as root. `make test` has the short part of it:
agent/hub/query/formats_test.c, which also makes the files."""
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", HERE + "/../../build"))
CACHE = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/podflame/formats"
PROTO = "opentelemetry-proto==1.43.0"
EVENTS = ("on-cpu", "off-cpu", "mem-alloc", "mem-inuse", "hbm-alloc", "hbm-inuse", "on-gpu", "rdma",
          "rdma-latency")
NOTE = "estimated from 50 % of what happened"   # of each file
good = bad = skipped = 0


def unit_of(event):
    return "bytes" if event.startswith(("mem", "hbm")) or event == "rdma" else "microseconds"


def check(ok, text):
    global good, bad
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    good += bool(ok)
    bad += not ok


def fetch(name, *command, **options):
    """Fetches what a reader needs from a package registry. If that is not possible, it prints why
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


def says(text, *parts):
    """Whether the text has the parts, in this order."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            print(f"{part!r} is missing in:\n{text}")
            return False
    return True


def run(*command, **options):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       **options)
    return r.stdout if r.returncode == 0 else f"status {r.returncode}: {r.stdout}"


def go_readers(work):
    """google/pprof, and pdata of the Collector."""
    if not fetch("Go", "go", "mod", "download", cwd=f"{HERE}/reader"):
        return
    subprocess.run(["go", "build", "-o", f"{work}/reader", "."], cwd=f"{HERE}/reader", check=True)
    for event in EVENTS:
        kind = event.replace("-", "_")
        period = "1000000000" if event == "on-cpu" else "0"
        check(says(run(f"{work}/reader", f"{work}/{event}.pb.gz"),
                   f"default {kind} period {period}\n",
                   "sample [2 2000000] map[pod:[web-1] process:[web] thread:[worker]]\n",
                   'frame 0x2000 ab12 "shop::sum(long)" "" /src/sum.h:30\n',
                   'frame 0x2000 ab12 "shop::Cart<int>::price(long)" "" /src/main.cc:20\n',
                   'frame 0x1000 ab12 "main" "main" /src/main.cc:10\n',
                   "sample [1 1000000]", "merged 2 samples 5 locations\n"),
              f"google/pprof: {event}")
        check(says(run(f"{work}/reader", f"{work}/{event}.otlp"),
                   "resource map[k8s.pod.name:web-1 service.name:web]\n",
                   f"type {kind} {unit_of(event)} 2023-11-14 22:13:20 +0000 UTC 60000000000\n",
                   "sample [2000000]\n",
                   'frame 0x2000 "shop::sum(long)" /src/sum.h:30\n'
                   'frame 0x2000 "shop::Cart<int>::price(long)" /src/main.cc:20\n'
                   'frame 0x1000 "main" /src/main.cc:10\n', "sample [1000000]\n"),
              f"the Collector's pdata: {event}")


READ = """
import sys
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest)
for kind in ProfilesData, ExportProfilesServiceRequest:
    m = kind.FromString(open(sys.argv[1], "rb").read())
    d, p = m.dictionary, m.resource_profiles[0].scope_profiles[0].profiles[0]
    text = d.string_table
    print(kind.__name__, text[p.sample_type.type_strindex], p.duration_nano, len(p.profile_id))
    for s in p.samples:
        lines = [l for i in d.stack_table[s.stack_index].location_indices
                 for l in d.location_table[i].lines]
        print(list(s.values), [text[d.function_table[l.function_index].name_strindex]
                               for l in lines])
"""


def python_reader(work):
    """Python's opentelemetry-proto, with protobuf: both messages have these bytes."""
    python = f"{CACHE}/{PROTO}/bin/python"
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", f"{CACHE}/{PROTO}"], check=True)
    has = subprocess.run([python, "-c", "import opentelemetry.proto"], stderr=subprocess.DEVNULL)
    if has.returncode and not fetch("Python", python, "-m", "pip", "-q",
                                    "--disable-pip-version-check", "install", PROTO):
        return
    stack = "['do_syscall_64', 'write', 'shop::sum(long)', 'shop::Cart<int>::price(long)', 'main']"
    for event in EVENTS:
        begin = f" {event.replace('-', '_')} 60000000000 0\n[2000000] {stack}\n[1000000] ["
        check(says(run(python, "-c", READ, f"{work}/{event}.otlp"), "ProfilesData" + begin,
                   "ExportProfilesServiceRequest" + begin), f"opentelemetry-proto: {event}")


def speedscope(work):
    """In Chromium: web/speedscope.mjs prints what the page of speedscope shows."""
    global skipped
    text = run(f"{HERE}/../../web/speedscope.mjs",
               *(f"{work}/{event}.speedscope.json" for event in EVENTS))
    if text.startswith("skip: "):
        print(text, end="")
        skipped += 1
        return
    for event in EVENTS:
        at = text.find(f"title {event}: {NOTE} - speedscope\n")
        two, three, one = (("1.91 MB", "2.86 MB", "976.56 KB") if unit_of(event) == "bytes" else
                           ("2.00s", "3.00s", "1.00s"))
        check(at >= 0 and says(text[at:], f"row {two} (67%) | {two} (67%) | [k] do_syscall_64\n",
                               f"row {three} (100%) | {one} (33%) | shop::sum(long)\n",
                               f"row {two} (67%) | ", " | main\n"), f"speedscope: {event}")


def go_compiler(work):
    """A recording of a Go program is a profile for its next build."""
    subprocess.run(["go", "build", "-o", f"{work}/busy", "."], cwd=f"{HERE}/busy", check=True)
    child = subprocess.Popen([f"{work}/busy"])
    try:
        said = run(f"{BUILD}/podflame", "record", "--pid", str(child.pid), "--hz", "499",
                   "--duration", "5", "--output", f"{work}/busy.pb.gz")
    finally:
        child.kill()
        child.wait()
    check(says(said, "samples of 1 process"), "a Go program is recorded")
    edges = run("go", "tool", "preprofile", "-i", f"{work}/busy.pb.gz")
    check(says(edges, "GO PREPROFILE V1\n", "main.sum\n"), "go tool preprofile")
    built = run("go", "build", f"-pgo={work}/busy.pb.gz", "-o", f"{work}/busy2", ".",
                cwd=f"{HERE}/busy")
    check(built == "", f"go build -pgo: {built or 'accepts it'}")


def main():
    with tempfile.TemporaryDirectory() as work:
        said = run(f"{BUILD}/agent/hub/query/formats_test", env={**os.environ, "FORMATS_DIR": work})
        check(says(said, "PASSED") and len(glob.glob(f"{work}/*.*")) == 4 * len(EVENTS),
              "the files are made")
        go_readers(work)
        python_reader(work)
        speedscope(work)
        go_compiler(work)
    print(f"{good} passed, {bad} failed, {skipped} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
