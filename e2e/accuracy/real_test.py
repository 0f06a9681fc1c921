#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""real_test.py: how real.py reads stacks."""
import sys

import real
from real_programs import OTHER, PROGRAMS, Program

LIBC, LOADER = "[/usr/lib/libc.so.6]", "[/usr/lib/ld-linux-x86-64.so.2]"

# (user frames from the outermost on, where the stack ends; None: it is whole)
STACKS = [
    (["_start", "__libc_start_main_impl", "main"], None),
    (["clone3", "start_thread", "work"], None),
    (["main", "work"], None),
    # stripped files
    (["[/usr/bin/7z]", "__libc_start_main_impl", "[/usr/bin/7z]"], None),
    (["[/usr/bin/7z]", "__libc_start_main@@GLIBC_2.34", "[/usr/bin/7z]"], None),
    (["[/usr/bin/7z]"], None),
    ([LOADER, "_dl_start"], None),
    ([LOADER], None),
    ([LIBC, LIBC, "[/usr/lib/libx264.so.164]"], None),
    # no end says so, and none of these is where a program begins
    (["[/usr/bin/7z]", "[/usr/bin/7z]"], "begins at [/usr/bin/7z]"),
    (["[/usr/lib/libx264.so.164]"], "begins at [/usr/lib/libx264.so.164]"),
    (["[/tmp/perf-12.map]"], "begins at [/tmp/perf-12.map]"),
    (["[unknown]", "main"], "begins at [unknown]"),
    (["work"], "begins at work"),
    # markers
    (["[unwind: register]", "work", "leaf"], "[unwind: register] work"),
    (["[truncated]", "work"], "[truncated] work"),
    (["[unwind: read]"], "[unwind: read]"),
]

SAMPLE = """\
 ffffffff81000000 do_syscall_64 ([kernel.kallsyms])
     7f0000001234 [unknown] (/usr/lib/libx264.so.164)
     7f0000002000 [unknown] ([unknown])
         55550000 std::vector<int, (anonymous)>::at (/usr/bin/ffmpeg)
"""


def reading():
    rows = [(["_start", "main", "[/x.so]"], 6), (["[unwind: read]", "f"], 2), (["g"], 1), ([], 5)]
    r = real.read(rows)
    yield "samples", (r["samples"], r["kernel"]), (9, 5)
    yield "whole", r["whole"], round(6 / 9, 5)
    yield "named", r["named"], round((6 * 2 + 2 + 1) / (6 * 3 + 2 + 1), 5)
    yield "ends", [(e["end"], e["share"]) for e in r["ends"]], [
        ("[unwind: read] f", round(2 / 9, 5)), ("begins at g", round(1 / 9, 5))]


def judging():
    p = Program("x", OTHER, "true", exceptions=((r"\[unwind: read\] f", "its code says nothing"),))
    r = {"samples": 1000, "whole": 0.98, "ends": [{"end": "[unwind: read] f", "share": 0.015},
                                                  {"end": "begins at g", "share": 0.005}]}
    r["exceptions"] = real.excepted(p, r)
    yield "exception", r["exceptions"], [{"why": "its code says nothing", "share": 0.015}]
    yield "with its exception", real.verdict(p, r), []
    yield "without", real.verdict(p, {**r, "exceptions": []}), [
        "98.00% whole; 1.50% [unwind: read] f"]
    r["exceptions"][0]["share"] = 0.021
    yield "nothing sampled", real.verdict(p, {**real.read([]), "exceptions": []}), ["0 samples"]
    yield "too much excepted", real.verdict(p, r), ["exceptions are 2.1%"]


def cases():
    for frames, end in STACKS:
        yield ";".join(frames), real.end_of(frames), end
    yield "perf's frames", real.perf_frames(SAMPLE), [
        "std::vector<int, (anonymous)>::at", "[unknown]", "[/usr/lib/libx264.so.164]"]
    yield "short", real.short("[unwind: read] [/usr/lib/libx264.so.164]"), \
        "[unwind: read] [libx264.so.164]"
    yield from reading()
    yield from judging()
    yield "names", len({p.name for p in PROGRAMS}), len(PROGRAMS)
    yield "a sample of each kind but one", len({p.kind for p in PROGRAMS if p.sample}), 3


def main():
    passed = failed = 0
    for what, is_, wanted in cases():
        if is_ == wanted:
            passed += 1
            continue
        failed += 1
        print(f"{what}: {is_!r}, not {wanted!r}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
