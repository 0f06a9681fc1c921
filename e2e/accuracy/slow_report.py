# SPDX-License-Identifier: Apache-2.0
"""Writes docs/events-cost.md from what slowdown.py measured."""
import os

import report
from slow_peers import LIMIT

INTRO = """# What waits and memory cost the profiled process

Who needs this page: people who want to profile waits or memory and ask how much that slows their
program down.

`make events-cost` wrote it on {date}.
Kernel {kernel}, {cpus} CPUs, {system}; the load average was {began} at the beginning and
{ended} at the end{quiet}.

A number is the CPU time of a unit of work under a profiler, compared with the time without one: the
median of {rounds} pairs, with the least and the greatest one. A storm does nothing but what is
profiled, so no program is slowed down more. Except for the storm of switches and redis, a twin that
nobody profiles ran on the same CPU at the same time, and the speed of the machine at that moment is
taken out.

| row | meaning |
| --- | --- |
| *nobody* | the difference between before and after a profiler. A smaller number means nothing |
| `podflame record` | the cost of the probes themselves, because `record` has no limit |
| *limit* | what a pod gets by default: an agent with `limits.overheadPercent` {limit}, measured \
once for {seconds} s, beginning 4 s after its first decision. What the program paid before is \
shown beside it |
| others | bcc's libbpf-tools 0.31 (Debian trixie), async-profiler 4.0, memray 1.20 |
"""
ENDING = """
## What a number here does not say

It does not include the CPU time of podflame itself, and it differs on other machines: most of a hit
is the trap of the probe, whose cost differs by a factor of two. `probe_bench` and `memory_bench`
(`make bench`) measure a hit, a switch and a walk by themselves; see [events](events.md).
"""


def load():
    return "%.1f" % os.getloadavg()[0]


def signed(x):
    return f"{x:+.2f}" if abs(x) < 10 else f"{x:+.0f}"


def ns(x):
    return f"{x:+.1f} ns" if abs(x) < 100 else f"{x / 1000:+.2f} us"


def program_tables(rows):
    for name in dict.fromkeys(r["program"] for r in rows):
        of = [r for r in rows if r["program"] == name]
        some = next((r for r in of if r["profiler"] != "nobody"), None)
        if not some:
            continue
        yield f"\n## {name.replace('_', ' ')}\n"
        if some["remark"]:
            yield f"{some['remark'][0].upper()}{some['remark'][1:]}.\n"
        yield f"Unit: {some['unit']}, {some['alone_ns']:.4g} ns.\n"
        yield "| profiler | slower, % | least to most | a unit | |"
        yield "| --- | ---: | ---: | ---: | --- |"
        noise = next((r["percent"] for r in of if r["profiler"] == "nobody"), 0)
        for r in of:
            unsure = " (noise)" if abs(r["percent"]) <= noise and r["profiler"] != "nobody" else ""
            more = ns(r["more_ns"]) if "more_ns" in r else ""
            yield (f"| {r['profiler']} | {signed(r['percent'])}{unsure} | {signed(r['least'])} to "
                   f"{signed(r['most'])} | {more} | {r.get('decided', '')} |")


def whole_table(whole):
    if whole:
        yield "\n## Waits with their whole stack\n"
        yield ("The part of the time that a process waited whose stack begins in `main` or at a "
               "thread's start. Both\nprofilers record the same process at the same time. Debian "
               "builds redis without frame pointers and\nPostgreSQL with them. Its C library has "
               "none, so a profiler that uses frame pointers lacks the\ncaller of each system call "
               "even then.\n")
        yield "| process | profiler | whole, % of the time | seconds |"
        yield "| --- | --- | ---: | ---: |"
    for name, who, percent, seconds in whole:
        yield f"| {name.removesuffix('_waits')} | {who} | {percent:.1f} | {seconds:.1f} |"


GOALS = [       # (program, profiler, key, at most, what)
    ("malloc_storm", "mem-alloc", "more_ns", 1000, "mem-alloc, a malloc and free, at most 1.0 us"),
    ("malloc_storm", "mem-inuse", "more_ns", 3500, "mem-inuse, a malloc and free, at most 3.5 us"),
    ("switch_storm", "off-cpu", "more_ns", 1200,
     "a switch of a selected process, its stack recognised, at most 1.2 us"),
]


def goals(rows, whole):
    yield "\n## Goals\n"
    found = {(r["program"], r["profiler"]): r for r in rows}
    for program, profiler, key, most, what in GOALS:
        if r := found.get((program, profiler)):
            yield f"- {what}: {verdict(r[key] <= most)} ({ns(r[key])})."
    noise = {r["program"]: r["percent"] for r in rows if r["profiler"] == "nobody"}
    for r in rows:
        if "limit" in r["profiler"]:
            what = f"{r['program'].replace('_', ' ')}, {r['profiler']}, at most 1 point more"
            yield (f"- {what}: {limit_verdict(r['percent'], noise[r['program']])} "
                   f"({signed(r['percent'])} %).")
    ours = [percent for _, who, percent, _ in whole if who.startswith("podflame")]
    if ours:
        yield ("- Waiting told whole without frame pointers, at least 95 %: "
               f"{verdict(min(ours) >= 95)} ({min(ours):.1f} %).")


def limit_verdict(percent, noise):
    """A goal is neither met nor missed if the noise is as large as the allowed difference."""
    if percent - noise > LIMIT + 1:
        return "**missed**"
    return "**met**" if noise <= LIMIT + 1 >= percent else f"**not shown**, noise is {noise:.1f} %"


def verdict(ok):
    return "**met**" if ok else "**missed**"


def write(folder, rows, whole, began, settings):
    ended = load()
    text = [INTRO.format(**report.machine(), began=began, ended=ended, limit=LIMIT, **settings,
                         quiet="" if max(float(began), float(ended)) < 2 + os.cpu_count()
                         else ": **not quiet**, of others' work; small numbers are noise")]
    text += [*program_tables(rows.rows), *whole_table(whole), *goals(rows.rows, whole)]
    if rows.skips:
        text += ["\n## Skipped\n"] + [f"- {name}: {why}" for name, why in rows.skips]
    with open(os.path.join(folder, "events-cost.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(text) + "\n" + ENDING)
